//! Moves latched pages beyond the cache ([`overflow`](super::overflow)), and writes them home when
//! they are not latched any more.

use std::time::Duration;

use super::frame::FrameId;
use crate::GAddr;
use crate::coherence::machine::{LocalUse, Phase};
use crate::core::Core;

/// Pages that are written home together: few are under way at a time, however many a transaction
/// has changed.
const LEAVE_AT_ONCE: usize = 128;
/// The interval of looks whether they are home, and how many of them a batch has at most.
const LOOK_EVERY: Duration = Duration::from_micros(100);
const LOOKS: usize = 100;
/// The wait after a batch of which no page could leave.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// What became of a page that was to leave the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoveOutcome {
    /// It is in this frame, and its old frame is free.
    Moved(FrameId),
    /// It is beyond the cache already.
    Beyond,
    /// Its line is not at rest: it may move later.
    NotNow,
    /// As many pages are beyond the cache as may be.
    Full,
}

impl Core {
    /// Moves a page that the caller has latched exclusively out of the cache. The caller's latch
    /// moves along: it is that of the new frame.
    pub(crate) fn move_beyond_cache(&self, addr: GAddr) -> MoveOutcome {
        let frames = &self.cache.frames;
        // The caller's latch keeps the line where it is.
        if frames.find_beyond_cache(addr).is_some() {
            return MoveOutcome::Beyond;
        }
        let Some(to) = frames.take_beyond_cache() else { return MoveOutcome::Full };
        let outcome = self.with_line(addr, |open| {
            let Some(from) = open.frame else { return MoveOutcome::NotNow };
            // At rest no operation has a lease of the frame.
            if open.line.phase != Phase::Modified || open.seen != LocalUse::Writer {
                return MoveOutcome::NotNow;
            }
            // SAFETY: the caller has latched the frame exclusively, and waits for this.
            let page = unsafe { self.cache.page(from) };
            // SAFETY: the frame was free, and no other code knows it yet.
            unsafe { self.cache.page_mut(to) }.copy_from_slice(page);
            if let Some(coded) = &self.memory.coded {
                coded.set_versions(to, &coded.versions_of(from));
            }
            frames.get(to).take_over(frames.get(from));
            // Before it is out of the cache: those that look there first find it in one of both.
            frames.enter_beyond_cache(addr, to);
            let _ = frames.get(from).latch.unlock_exclusive();
            self.cache.vacate(addr, from);
            frames.give_back(from);
            open.frame = Some(to);
            MoveOutcome::Moved(to)
        });
        if !matches!(outcome, MoveOutcome::Moved(_)) {
            frames.give_back(to);
        }
        outcome
    }

    /// Writes a batch of pages home that are beyond the cache and not latched any more, and waits
    /// until they are home, for a while. Returns `false` if there are none.
    pub(super) async fn evict_beyond_cache(&self) -> bool {
        let lines = self.cache.frames.take_leaving(LEAVE_AT_ONCE);
        let mut batches = Vec::new();
        let leaving = lines.iter().filter(|addr| self.evict_one(**addr, &mut batches)).count();
        self.post_batches(batches);
        if leaving == 0 && !lines.is_empty() {
            self.env.sleep(REFUSED_PAUSE).await;
        }
        for _ in 0..LOOKS {
            if !lines.iter().any(|addr| self.cache.is_under_way(*addr)) {
                break;
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        !lines.is_empty()
    }
}
