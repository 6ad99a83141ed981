//! Where leaves begin, for callers that look at some of them to tell what all are like.

use selkie_engine::Engine;

use crate::error::TreeError;
use crate::page::{PageView, Target};
use crate::tree::Tree;

/// The leaves below one inner page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavesOfParent {
    /// The keys from which on the leaves have rows, in order; the first leaf of all begins at the
    /// empty key.
    pub begin: Vec<Box<[u8]>>,
    /// Where the last of them ends: the key to go on from. `None` at the end of the tree.
    pub end: Option<Box<[u8]>>,
}

impl Tree {
    /// Where the leaves begin that lie below the parent of `key`'s leaf, that one and those behind
    /// it. As of a moment ago: leaves are split and merged meanwhile. Latches inner pages only,
    /// each briefly. No round trip when they are cached.
    ///
    /// # Errors
    /// As [`Tree::locate`].
    pub async fn leaves_from(
        &self,
        engine: &Engine,
        key: &[u8],
    ) -> Result<LeavesOfParent, TreeError> {
        let _pin = engine.pin();
        let parent = self.descend(engine, Target::At(key), 1).await?;
        let addr = parent.addr();
        let view = PageView::parse(&parent).map_err(TreeError::damaged(addr))?;
        let first = view.child_slot(Target::At(key)).map_err(TreeError::damaged(addr))?;
        let mut begin = Vec::with_capacity(view.len() - first);
        for slot in first..view.len() {
            let mut separator = Vec::new();
            view.key_into(slot, &mut separator).map_err(TreeError::damaged(addr))?;
            begin.push(separator.into_boxed_slice());
        }
        let end = Some(view.high()).filter(|high| !high.is_empty()).map(Into::into);
        Ok(LeavesOfParent { begin, end })
    }
}
