//! Snapshots, commit stamps and images, as the transaction layer uses them.

use std::sync::atomic::Ordering;

use selkie_fabric::BoxFuture;

use super::active::ActiveSnapshots;
use super::link::ImageLink;
use super::stamp::Stamp;
use super::state::Snapshot;
use crate::{Engine, EngineError};

impl Engine {
    /// Begins a snapshot, at least as new as every commit acknowledged before, at any node. It ends
    /// when it is dropped. One round trip; in a coded pool two, unless this node has begun one
    /// lately.
    ///
    /// # Errors
    /// `Timeout`, `Fabric`; the node's error, if it has failed or is closed.
    pub fn begin_snapshot(&self) -> BoxFuture<'_, Result<Snapshot, EngineError>> {
        Box::pin(self.core().begin_snapshot())
    }

    /// The next commit stamp, later than every stamp and snapshot handed out before, and the
    /// snapshots that may be active. The caller has latched all pages that it is to change under
    /// this stamp, and keeps them latched until they are changed. One round trip, another one while
    /// other nodes have snapshots; in a coded pool one more for each parity split, and one.
    ///
    /// # Errors
    /// `ReadsOnly`, `Timeout`, `Fabric`.
    pub async fn draw_stamp(&self) -> Result<(Stamp, ActiveSnapshots), EngineError> {
        self.core().draw_stamp().await
    }

    /// Keeps a copy of a page as it was in `[from, until)`, before a change at `until`. The image
    /// before it is `previous`, and `active` what was learnt when `until` was drawn. The link leads
    /// to both. Does not wait.
    ///
    /// [`ImageLink::NONE`] if the node has no memory for images: snapshots in that interval, and
    /// before it, then have none of this page.
    pub fn keep_image(
        &self,
        page: &[u8],
        from: Stamp,
        until: Stamp,
        previous: ImageLink,
        active: &ActiveSnapshots,
    ) -> ImageLink {
        self.core().keep_image(page, from, until, previous, active)
    }

    /// Follows links to the image that was valid at `at`, and copies it: `None` if it is gone. The
    /// caller then reads the page again: if its link has changed, it tries again; else the snapshot
    /// is too old. What is in `into` is then unspecified. One round trip for each image of another
    /// node.
    ///
    /// # Errors
    /// `Fabric`; the node's error, if it has failed.
    pub fn image_at<'a>(
        &'a self,
        link: ImageLink,
        at: Stamp,
        into: &'a mut Vec<u8>,
    ) -> BoxFuture<'a, Result<Option<()>, EngineError>> {
        Box::pin(self.core().image_at(link, at, into))
    }

    /// No snapshot before this one is active at any node, nor ever will be. Lags by some ticks, and
    /// is read from the others after it was asked for.
    #[must_use]
    pub fn snapshot_horizon(&self) -> Stamp {
        self.core().snapshots.horizon_is_wanted.store(true, Ordering::Relaxed);
        self.core().snapshot_horizon()
    }
}
