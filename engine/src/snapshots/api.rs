//! Snapshots as the transaction layer uses them.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::active::ActiveSnapshots;
use super::link::ImageLink;
use super::stamp::Stamp;
use super::state::{Image, Snapshot};
use crate::{Engine, EngineError};

impl Engine {
    /// Begins a snapshot, which is at least as new as every commit acknowledged before, at any
    /// node. One round trip.
    ///
    /// # Errors
    /// `Timeout`, `Fabric`.
    pub fn begin_snapshot(&self) -> BoxFuture<'_, Result<Snapshot, EngineError>> {
        Box::pin(async move {
            let state = &self.core().snapshots;
            let stamp = Stamp::new(self.advance_clock(0).await?);
            *state.kept.lock().active.entry(stamp).or_default() += 1;
            Ok(Snapshot { stamp, kept: Arc::clone(&state.kept) })
        })
    }

    /// The next commit stamp, later than every stamp and snapshot handed out before, and the
    /// snapshots that may be active. The caller has latched all pages that it is to change. One
    /// round trip, and another one while other nodes have snapshots.
    ///
    /// # Errors
    /// `ReadsOnly`, `Timeout`, `Fabric`.
    pub async fn draw_stamp(&self) -> Result<(Stamp, ActiveSnapshots), EngineError> {
        let stamp = Stamp::new(self.advance_clock(1).await? + 1);
        Ok((stamp, self.core().snapshots.active()))
    }

    /// Keeps a copy of a page as it was in `[from, until)`, before a change at `until`. The image
    /// before it is `previous`. Does not wait. None is kept if this node is to keep none:
    /// [`ImageLink::NONE`].
    pub fn keep_image(
        &self,
        page: &[u8],
        from: Stamp,
        until: Stamp,
        previous: ImageLink,
        active: &ActiveSnapshots,
    ) -> ImageLink {
        let _ = active;
        let mut kept = self.core().snapshots.kept.lock();
        kept.next += 1;
        let link = kept.next;
        kept.images.insert(link, Image { from, until, previous, page: page.into() });
        ImageLink::from_u64(link)
    }

    /// Follows links to the image that was valid at `at`, and copies it: `None` if it is gone. The
    /// caller then reads the page again: if its link has changed, it tries again. One round trip
    /// for each image of another node.
    ///
    /// # Errors
    /// `Fabric`; the node's error, if it has failed.
    pub fn image_at<'a>(
        &'a self,
        link: ImageLink,
        at: Stamp,
        into: &'a mut Vec<u8>,
    ) -> BoxFuture<'a, Result<Option<()>, EngineError>> {
        Box::pin(async move {
            let kept = self.core().snapshots.kept.lock();
            let mut link = link;
            while let Some(image) = kept.images.get(&link.to_u64()) {
                if (image.from..image.until).contains(&at) {
                    into.clear();
                    into.extend_from_slice(&image.page);
                    return Ok(Some(()));
                }
                link = image.previous;
            }
            Ok(None)
        })
    }

    /// No snapshot before this one is active, nor ever will be. Lags by some ticks.
    pub fn snapshot_horizon(&self) -> Stamp {
        Stamp::default()
    }
}
