//! What a transaction leaves to be done to trees after it has ended.

use selkie_btree::{PendingPost, Tree};
use selkie_engine::GAddr;

use crate::database::Inner;

/// One thing to do. None of it is needed for correctness: a tree with unposted splits and empty
/// leaves is valid.
pub(crate) enum Upkeep {
    /// Tell the parent about a split.
    Post(Tree, PendingPost),
    /// Give back a leaf that is empty.
    Reclaim(Tree, GAddr),
}

impl Inner {
    /// Does it, waiting for inner pages; the caller holds no latch. A page that stays busy puts it
    /// off; any other failure is left to later traversals, because the transaction it came from has
    /// ended.
    pub(crate) async fn do_upkeep(&self, upkeep: Upkeep) {
        match upkeep {
            Upkeep::Post(tree, post) => {
                if let Err(error) = tree.post(&self.engine, post.clone()).await
                    && error.is_retryable()
                {
                    self.postpone(Upkeep::Post(tree, post));
                }
            }
            // It gives up quietly when somebody is at the leaf, who then has use for it.
            Upkeep::Reclaim(tree, leaf) => drop(tree.reclaim(&self.engine, leaf).await),
        }
    }
}
