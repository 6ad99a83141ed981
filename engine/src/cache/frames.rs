//! The frames of a node: one arena of page memory, the metadata of each frame, and the free list.
//! Frames beyond the cache have memory of their own ([`overflow`](super::overflow)).
//!
//! The arena is allocated once and never moves, so leases of its pages can be handed to the fabric
//! as buffers. The holder of a frame's local latch, or of the lock of its line's shard while the
//! latch is sealed and idle, owns the bytes.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use selkie_fabric::{Buf, want_huge_pages};

use super::frame::{Frame, FrameId};
use super::overflow::Overflow;
use super::page_memory::PageMemory;
use crate::GAddr;

/// Alignment of the arena: a huge page of the machine, or a page if it is not larger than a few.
const ARENA_ALIGN: usize = 2 << 20;
const SMALL_ALIGN: usize = 4096;

/// All frames of a node's cache.
pub(crate) struct Frames {
    arena: Arc<PageMemory>,
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
        let mut meta = Vec::with_capacity(count);
        want_huge_pages(meta.spare_capacity_mut());
        meta.extend((0..count).map(|_| Frame::default()));
        let bytes = count * gcl_bytes;
        let align = if bytes < 4 * ARENA_ALIGN { SMALL_ALIGN } else { ARENA_ALIGN };
        Frames {
            arena: Arc::new(PageMemory::new(bytes, align)),
            meta: meta.into_boxed_slice(),
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
        unsafe { self.arena.base().add((id.0 as usize) << self.gcl_shift) }
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
        let keep: Arc<PageMemory> = match self.is_beyond_cache(id) {
            true => self.overflow.page(id.0 as usize - self.meta.len()),
            false => Arc::clone(&self.arena),
        };
        // SAFETY: exclusiveness is the caller's promise; `keep` keeps the memory alive.
        unsafe { Buf::from_raw(start, range.len(), Some(keep)) }
    }
}
