//! Frames: one arena of page memory, one cache line of metadata a frame, and the free list. Frames
//! beyond the cache have memory of their own ([`overflow`](super::overflow)).
//!
//! The arena is allocated once and never moves, so leases of its pages can be handed to the fabric
//! as buffers. The holder of a frame's local latch, or of the lock of its line's shard while the
//! latch is sealed and idle, owns the bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::Buf;

use super::latch::FrameLatch;
use super::overflow::Overflow;
use crate::GAddr;
use crate::coherence::word::{LatchWord, NodeSet};
use selkie_wal::Dirty;

/// Alignment of the arena: a page of the machine.
const ARENA_ALIGN: usize = 4096;

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

/// Page memory that outlives every buffer leased from it.
pub(super) struct Arena {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the arena is plain memory; access to its bytes is governed by the frames' latches.
unsafe impl Send for Arena {}
// SAFETY: as for Send.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(bytes: usize, align: usize) -> Arena {
        let layout = match Layout::from_size_align(bytes, align) {
            Ok(layout) if bytes > 0 => layout,
            _ => handle_alloc_error(Layout::new::<u8>()),
        };
        // SAFETY: the layout's size is not zero, checked above.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Arena { base, layout }
    }

    /// Its first byte.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `base` came from alloc_zeroed with this very layout and is freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// All frames of a node's cache.
pub(crate) struct Frames {
    arena: Arc<Arena>,
    meta: Box<[Frame]>,
    free: Mutex<Vec<FrameId>>,
    /// Length of `free`, to look at without the lock.
    free_count: AtomicUsize,
    gcl_bytes: usize,
    gcl_shift: u32,
    hand: AtomicUsize,
    /// Frames beyond the cache; their ids follow those of the cache.
    overflow: Overflow,
}

impl Frames {
    /// So many frames, and at most so many beyond the cache.
    pub(crate) fn new(count: usize, gcl_bytes: usize, most_beyond: usize) -> Frames {
        Frames {
            arena: Arc::new(Arena::new(count * gcl_bytes, ARENA_ALIGN)),
            meta: (0..count).map(|_| Frame::default()).collect(),
            free: Mutex::new((0..count as u32).rev().map(FrameId).collect()),
            free_count: AtomicUsize::new(count),
            gcl_bytes,
            gcl_shift: gcl_bytes.trailing_zeros(),
            hand: AtomicUsize::new(0),
            overflow: Overflow::new(most_beyond.min(u32::MAX as usize - 1 - count)),
        }
    }

    /// Frames of the cache.
    pub(crate) fn count(&self) -> usize {
        self.meta.len()
    }

    /// Bytes of a frame's page, with its sequence number.
    #[inline]
    pub(crate) fn gcl_bytes(&self) -> usize {
        self.gcl_bytes
    }

    /// All frames of the cache.
    pub(crate) fn ids(&self) -> impl Iterator<Item = FrameId> + use<> {
        (0..self.meta.len() as u32).map(FrameId)
    }

    /// All frames beyond the cache, free ones among them.
    pub(crate) fn ids_beyond_cache(&self) -> impl Iterator<Item = FrameId> + use<> {
        let count = self.meta.len();
        self.overflow.indexes().map(move |index| FrameId((count + index) as u32))
    }

    /// Whether a frame is beyond the cache.
    #[inline]
    pub(crate) fn is_beyond_cache(&self, id: FrameId) -> bool {
        id.0 as usize >= self.meta.len()
    }

    /// Pages beyond the cache.
    pub(crate) fn beyond_cache(&self) -> usize {
        self.overflow.used()
    }

    /// Most pages beyond the cache.
    pub(crate) fn most_beyond_cache(&self) -> usize {
        self.overflow.most()
    }

    /// The frame of a line that is beyond the cache.
    pub(super) fn find_beyond_cache(&self, addr: GAddr) -> Option<FrameId> {
        let index = self.overflow.find(addr)?;
        Some(FrameId((self.meta.len() + index) as u32))
    }

    /// The line is in this frame beyond the cache.
    pub(super) fn enter_beyond_cache(&self, addr: GAddr, id: FrameId) {
        self.overflow.enter(addr, id.0 as usize - self.meta.len());
    }

    /// The line is not beyond the cache any more.
    pub(super) fn forget_beyond_cache(&self, addr: GAddr) {
        self.overflow.forget(addr);
    }

    /// Where the log has the oldest change of a page beyond the cache that is not home, or before
    /// that.
    pub(crate) fn oldest_beyond_cache(&self) -> Option<u64> {
        self.overflow.oldest_change()
    }

    /// Has the evictor write a line home that is beyond the cache.
    pub(crate) fn send_home(&self, addr: GAddr) {
        self.overflow.send_home(addr);
    }

    /// At most `most` of the lines to be written home.
    pub(super) fn take_leaving(&self, most: usize) -> Vec<GAddr> {
        self.overflow.take_leaving(most)
    }

    /// A frame beyond the cache; `None` if as many are in use as may be.
    pub(super) fn take_beyond_cache(&self) -> Option<FrameId> {
        let index = self.overflow.take(self.gcl_bytes)?;
        Some(FrameId((self.meta.len() + index) as u32))
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn get(&self, id: FrameId) -> &Frame {
        match self.meta.get(id.0 as usize) {
            Some(frame) => frame,
            None => self.overflow.frame(id.0 as usize - self.meta.len()),
        }
    }

    pub(crate) fn take_free(&self) -> Option<FrameId> {
        let mut free = self.free.lock();
        let id = free.pop()?;
        self.free_count.store(free.len(), Ordering::Relaxed);
        Some(id)
    }

    pub(crate) fn give_back(&self, id: FrameId) {
        if self.is_beyond_cache(id) {
            return self.overflow.give_back(id.0 as usize - self.meta.len());
        }
        let mut free = self.free.lock();
        free.push(id);
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    /// The next frame under the clock hand.
    pub(crate) fn advance_hand(&self) -> FrameId {
        let at = self.hand.fetch_add(1, Ordering::Relaxed);
        FrameId((at % self.meta.len()) as u32)
    }

    /// First byte of a frame's page.
    #[inline]
    pub(crate) fn page_ptr(&self, id: FrameId) -> NonNull<u8> {
        if self.is_beyond_cache(id) {
            return self.overflow.page(id.0 as usize - self.meta.len()).base();
        }
        // SAFETY: ids are made by this type, below the count the arena was allocated for.
        unsafe { self.arena.base.add((id.0 as usize) << self.gcl_shift) }
    }

    /// A lease of part of a frame's page for the fabric.
    ///
    /// # Safety
    /// No other code may touch these bytes until the buffer is dropped: the caller holds the line
    /// in a state with an operation outstanding, in which the latch is sealed for writers (a lease
    /// that is only read from may be shared with readers).
    pub(crate) unsafe fn lease(&self, id: FrameId, range: Range<usize>) -> Buf {
        assert!(range.end <= self.gcl_bytes, "lease beyond the page");
        let page = self.page_ptr(id);
        // SAFETY: the range is within the page, asserted above.
        let start = unsafe { page.add(range.start) };
        let keep: Arc<Arena> = match self.is_beyond_cache(id) {
            true => self.overflow.page(id.0 as usize - self.meta.len()),
            false => Arc::clone(&self.arena),
        };
        // SAFETY: exclusiveness is the caller's promise; `keep` keeps the memory alive.
        unsafe { Buf::from_raw(start, range.len(), Some(keep)) }
    }
}
