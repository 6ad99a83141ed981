//! One frame: its index, and its metadata in one cache line.
//!
//! The holder of the frame's local latch, or of the lock of its line's shard while the latch is
//! sealed and idle, may change what is said of the page.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_wal::Dirty;

use super::latch::FrameLatch;
use crate::GAddr;
use crate::coherence::word::{LatchWord, NodeSet};

/// Index of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameId(pub(crate) u32);

/// Metadata of a frame, one cache line.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) latch: FrameLatch,
    /// The line in it; written under the shard's lock with the latch sealed and idle.
    addr: AtomicU64,
    /// What differs from home. Written by the exclusive holder, or under the shard's lock with the
    /// latch idle.
    dirty: AtomicU64,
    /// When the line got its present right, nanoseconds of the environment's clock.
    right_since: AtomicU64,
    /// Readers whose bits in the latch word are the holder's to clear; under the shard's lock.
    carried: AtomicU64,
    /// Up to where the node's log has to be durable before the line leaves. Written by the
    /// exclusive holder, or under the shard's lock with the latch idle.
    lsn: AtomicU64,
    /// Where the log has the oldest change that is not home, or before that; 0 if all is. As `lsn`.
    unhomed: AtomicU64,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    #[inline]
    pub(crate) fn addr(&self) -> GAddr {
        // Acquire pairs with set_addr: a latch taken on the frame is for the line it names.
        GAddr::from_u64(self.addr.load(Ordering::Acquire))
    }

    pub(crate) fn set_addr(&self, addr: GAddr) {
        // Release pairs with addr().
        self.addr.store(addr.to_u64(), Ordering::Release);
    }

    /// When the line got its present right.
    pub(crate) fn right_since(&self) -> Duration {
        Duration::from_nanos(self.right_since.load(Ordering::Relaxed))
    }

    /// The line gets a right, under the shard's lock.
    pub(crate) fn set_right_since(&self, now: Duration) {
        self.right_since.store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Readers whose bits in the latch word are this node's to clear.
    pub(crate) fn carried(&self) -> NodeSet {
        LatchWord::from_bits(self.carried.load(Ordering::Relaxed)).readers()
    }

    pub(crate) fn set_carried(&self, readers: NodeSet) {
        self.carried.store(LatchWord::of_readers(readers).bits(), Ordering::Relaxed);
    }

    /// Up to where the log has to be durable before the line leaves.
    #[inline]
    pub(crate) fn lsn(&self) -> u64 {
        // Relaxed: read with the latch, or after the seal that saw it free.
        self.lsn.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_lsn(&self, lsn: u64) {
        self.lsn.store(lsn, Ordering::Relaxed);
    }

    /// Where the log has the oldest change that is not home, or before that; 0 if all is.
    #[inline]
    pub(crate) fn unhomed(&self) -> u64 {
        // Relaxed: a checkpoint locks the log's tail after the changes that it must see.
        self.unhomed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_unhomed(&self, lsn: u64) {
        self.unhomed.store(lsn, Ordering::Relaxed);
    }

    /// What differs from home.
    #[inline]
    pub(crate) fn dirty(&self) -> Dirty {
        Dirty::from_bits(self.dirty.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_dirty(&self, dirty: Dirty) {
        self.dirty.store(dirty.bits(), Ordering::Relaxed);
    }

    /// Becomes the frame of the line that is in another frame, whose exclusive latch it takes over.
    /// Under the shard's lock, with both latches sealed.
    pub(super) fn take_over(&self, from: &Frame) {
        assert!(self.latch.try_exclusive_sealed(), "a free frame is latched");
        self.set_dirty(from.dirty());
        self.right_since.store(from.right_since.load(Ordering::Relaxed), Ordering::Relaxed);
        self.set_carried(from.carried());
        self.set_lsn(from.lsn());
        self.set_unhomed(from.unhomed());
        self.set_addr(from.addr());
    }

    /// More differs; only the exclusive holder calls it.
    #[inline]
    pub(crate) fn add_dirty(&self, dirty: Dirty) {
        self.set_dirty(self.dirty().union(dirty));
    }
}
