//! Guards: a latched page, readable or writable, released on drop.
//!
//! A page is its global cache line without the first [`PSN_BYTES`], which have its *page sequence
//! number*: the number of its changes. A guard that handed out bytes for writing increments it on
//! release. The number stays with the page wherever the page goes and never decreases, whatever the
//! page is used for: a reader that finds the number unchanged finds the page unchanged.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::time::Duration;

use smallvec::SmallVec;

use crate::access::acquire::Access;
use crate::access::waiters::WaitPolicy;
use crate::cache::frame::{Frame, FrameId};
use crate::cache::latch::Released;
use crate::cache::leaving::MoveOutcome;
use crate::core::Core;
use crate::log::ChangedPage;
use crate::{EngineError, GAddr};
use selkie_wal::{Dirty, Lsn, PSN_BYTES, psn_of};

/// A page latched shared: no node writes it while the guard lives.
#[must_use]
pub struct SharedGuard<'e> {
    core: &'e Core,
    frame: &'e Frame,
    page: NonNull<u8>,
}

// SAFETY: the latch belongs to the guard, not to a thread, and governs the page's bytes.
unsafe impl Send for SharedGuard<'_> {}
// SAFETY: through a shared reference the page can only be read.
unsafe impl Sync for SharedGuard<'_> {}

/// A page latched exclusively: no other task or node reads or writes it while the guard lives.
#[must_use]
pub struct ExclusiveGuard<'e> {
    core: &'e Core,
    frame: &'e Frame,
    page: NonNull<u8>,
    /// The pieces that were handed out for writing.
    changed: Dirty,
}

// SAFETY: the latch belongs to the guard, not to a thread, and governs the page's bytes.
unsafe impl Send for ExclusiveGuard<'_> {}
// SAFETY: through a shared reference the page can only be read.
unsafe impl Sync for ExclusiveGuard<'_> {}

impl<'e> SharedGuard<'e> {
    /// The caller has latched the frame shared.
    #[inline]
    pub(crate) fn new(core: &'e Core, frame: FrameId) -> Self {
        SharedGuard {
            core,
            frame: core.cache.frames.get(frame),
            page: core.cache.frames.page_ptr(frame),
        }
    }

    /// The line's address.
    #[inline]
    pub fn addr(&self) -> GAddr {
        self.frame.addr()
    }

    /// The page's sequence number.
    #[inline]
    pub fn psn(&self) -> u64 {
        psn_of(line(self.page, self.core, self))
    }

    /// Has other nodes that ask for the page wait for so long, as if it had just come
    /// ([`crate::EngineConfig::hold`]; not at all where that is zero), or until
    /// [`Engine::end_hold`](crate::Engine::end_hold). Nobody else is told, and nothing is latched.
    pub fn hold_for(&self, time: Duration) {
        if !self.core.config.hold.is_zero() {
            // It counts from when the right came.
            self.frame.set_right_since(self.core.env.now() + time);
        }
    }

    /// The page with its sequence number, as it is coded.
    pub(crate) fn line(&self) -> &[u8] {
        line(self.page, self.core, self)
    }

    /// The node's log must be durable up to here before a caller may rely on the page's content, if
    /// there is a log.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.frame.lsn()
    }

    /// Whether this node has changed nothing of the page that is not home.
    pub(crate) fn is_clean(&self) -> bool {
        self.frame.dirty().is_empty()
    }

    /// Turns the guard into an exclusive one, at most one round trip when no other node reads the
    /// page. Never waits for a latch; but as [`crate::Engine::try_shared`] while the node is
    /// suspended.
    ///
    /// # Errors
    /// `Busy` when another holder, here or at another compute node, has the page latched, or is
    /// about to write it. Every error returns the shared guard. Dropping the future drops the
    /// shared guard.
    pub async fn try_upgrade(self) -> Result<ExclusiveGuard<'e>, (SharedGuard<'e>, EngineError)> {
        let addr = self.addr();
        match self.core.acquire(addr, Access::Upgrade, WaitPolicy::NoWait).await {
            Ok(frame) => {
                let core = self.core;
                // The shared latch has become the exclusive one.
                std::mem::forget(self);
                Ok(ExclusiveGuard::new(core, frame))
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl Deref for SharedGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        page_of(line(self.page, self.core, self))
    }
}

impl Drop for SharedGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let addr = self.frame.addr();
        if self.frame.latch.unlock_shared() == Released::Notify {
            self.core.notify(addr);
        }
    }
}

impl<'e> ExclusiveGuard<'e> {
    /// The caller has latched the frame exclusively.
    #[inline]
    pub(crate) fn new(core: &'e Core, frame: FrameId) -> Self {
        let page = core.cache.frames.page_ptr(frame);
        ExclusiveGuard { core, frame: core.cache.frames.get(frame), page, changed: Dirty::NONE }
    }

    /// The line's address.
    #[inline]
    pub fn addr(&self) -> GAddr {
        self.frame.addr()
    }

    /// The page's sequence number, from before what is changed through this guard.
    #[inline]
    pub fn psn(&self) -> u64 {
        psn_of(line(self.page, self.core, self))
    }

    /// As [`SharedGuard::lsn`], of what the page was before it is changed through this guard, or
    /// since changes were made [together](change_together).
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.frame.lsn()
    }

    /// Bytes `range` of the page, for writing. Only bytes handed out in this way are written back.
    ///
    /// # Panics
    /// If the range does not lie in the page.
    #[inline]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        let bytes = self.core.cache.gcl_bytes();
        let range = range.start.saturating_add(PSN_BYTES)..range.end.saturating_add(PSN_BYTES);
        assert!(range.start <= range.end && range.end <= bytes, "range beyond the page");
        if !range.is_empty() {
            let pieces = Dirty::of(&range, bytes);
            self.changed = self.changed.union(pieces);
            self.frame.add_dirty(pieces);
        }
        #[expect(clippy::indexing_slicing, reason = "checked above")]
        &mut self.line_mut()[range]
    }

    /// Moves the page out of the cache to memory of its own, so that its frame is free for another
    /// page; for a page that stays latched long. When the latch is released the page goes home, and
    /// the memory is freed. Does not wait, no round trip. Returns `false` if the page cannot move
    /// now, because its line waits for another node.
    ///
    /// # Errors
    /// `OverflowFull` when as many pages are beyond the cache as
    /// [`crate::EngineConfig::overflow_bytes`] allows.
    pub fn leave_cache(&mut self) -> Result<bool, EngineError> {
        match self.core.move_beyond_cache(self.addr()) {
            MoveOutcome::Moved(id) => {
                self.frame = self.core.cache.frames.get(id);
                self.page = self.core.cache.frames.page_ptr(id);
                Ok(true)
            }
            MoveOutcome::Beyond => Ok(true),
            MoveOutcome::NotNow => Ok(false),
            MoveOutcome::Full => {
                let most = self.core.cache.frames.most_beyond_cache();
                Err(EngineError::OverflowFull { most })
            }
        }
    }

    /// Makes the page another one, whose bytes are the same: its sequence number goes up.
    pub(crate) fn mark_changed(&mut self) {
        let _ = self.bytes_mut(0..1);
    }

    /// Counts what was changed through the guard. The page's sequence number after that.
    pub(crate) fn psn_after(&mut self) -> u64 {
        self.count_change();
        self.psn()
    }

    /// Bytes that the changes made through this guard will take in the log, at most, with those of
    /// the first `header` bytes of the page, which the caller may change yet. None if nothing was
    /// changed.
    #[inline]
    #[must_use]
    pub fn change_bytes(&self, header: usize) -> usize {
        if self.changed.is_empty() {
            return 0;
        }
        // With the number, which changes on release.
        let gcl_bytes = self.core.cache.gcl_bytes();
        let pieces = self.changed.union(Dirty::of(&(0..PSN_BYTES + header), gcl_bytes));
        selkie_wal::change_bytes(pieces, gcl_bytes)
    }

    /// Bytes that this page takes in the log if all of it is changed.
    #[inline]
    #[must_use]
    pub fn whole_change_bytes(&self) -> usize {
        selkie_wal::change_bytes(Dirty::ALL, self.core.cache.gcl_bytes())
    }

    fn line_mut(&mut self) -> &mut [u8] {
        // SAFETY: the line has gcl_bytes bytes, and the exclusive latch is held until the guard
        // drops; the borrow is `&mut self`'s.
        unsafe { std::slice::from_raw_parts_mut(self.page.as_ptr(), self.core.cache.gcl_bytes()) }
    }

    /// Records the change, if bytes were handed out for writing.
    #[inline]
    fn count_change(&mut self) {
        if !self.changed.is_empty() {
            change_together([self]);
        }
    }

    /// Increments the page's sequence number, if bytes were handed out for writing. Returns the
    /// number before, and the changed pieces.
    fn number(&mut self) -> Option<(u64, Dirty)> {
        let (before, pieces) = (self.psn(), std::mem::take(&mut self.changed));
        if pieces.is_empty() {
            return None;
        }
        self.frame.add_dirty(Dirty::of(&(0..PSN_BYTES), self.core.cache.gcl_bytes()));
        #[expect(clippy::indexing_slicing, reason = "a pool's lines are longer than a number")]
        self.line_mut()[..PSN_BYTES].copy_from_slice(&before.wrapping_add(1).to_le_bytes());
        Some((before, pieces))
    }

    /// Turns the guard into a shared one. Does not wait.
    pub fn downgrade(mut self) -> SharedGuard<'e> {
        self.count_change();
        let guard = SharedGuard { core: self.core, frame: self.frame, page: self.page };
        std::mem::forget(self);
        if guard.frame.latch.downgrade() == Released::Notify {
            guard.core.notify(guard.addr());
        }
        guard
    }
}

impl Deref for ExclusiveGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        page_of(line(self.page, self.core, self))
    }
}

impl Drop for ExclusiveGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.count_change();
        let addr = self.frame.addr();
        if self.frame.latch.unlock_exclusive() == Released::Notify {
            self.core.notify(addr);
        }
    }
}

/// Makes the changes through these guards atomic together: after any failure either all of them
/// exist or none. The pages stay latched, and later changes through the guards are another change.
/// A guard that is dropped without this is a change of its own. Returns up to where the node's log
/// must be durable before a caller may rely on the changes, if there is a log and a page was
/// changed. Does not wait, no round trip.
pub fn change_together<'g, 'e: 'g>(
    guards: impl IntoIterator<Item = &'g mut ExclusiveGuard<'e>>,
) -> Option<Lsn> {
    let mut core = None;
    let number = |guard: &'g mut ExclusiveGuard<'e>| {
        let (psn, pieces) = guard.number()?;
        let guard = &*guard;
        core.get_or_insert(guard.core);
        Some(ChangedPage {
            frame: guard.frame,
            psn,
            pieces,
            line: line(guard.page, guard.core, guard),
        })
    };
    let changed: SmallVec<[_; 4]> = guards.into_iter().filter_map(number).collect();
    Some(core?.log.as_ref()?.record(&changed))
}

/// The whole line of a guard.
#[inline]
fn line<'g, G>(start: NonNull<u8>, core: &Core, _guard: &'g G) -> &'g [u8] {
    // SAFETY: the line has gcl_bytes bytes; the guard, which the slice borrows, holds the latch
    // until it drops.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), core.cache.gcl_bytes()) }
}

/// The page in a line: what follows its sequence number.
#[inline]
fn page_of(line: &[u8]) -> &[u8] {
    #[expect(clippy::indexing_slicing, reason = "a pool's lines are longer than a number")]
    &line[PSN_BYTES..]
}

impl fmt::Debug for SharedGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedGuard({})", self.addr())
    }
}

impl fmt::Debug for ExclusiveGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExclusiveGuard({})", self.addr())
    }
}
