//! A node's cache of pages: frames, the table that finds them, and the lines with an operation
//! open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;
use selkie_pool::PoolDescriptor;

use super::address_table::AddressTable;
use super::frame::{Frame, FrameId};
use super::frames::Frames;
use super::latch::Permissions;
use super::residual_readers::ResidualReaders;
use super::shards::{LineMap, Shard};
use crate::coherence::machine::LocalUse;
use crate::coherence::open_line::OpenLine;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

/// Share of the frames kept free: the evictor starts below the first, stops at the second.
const LOW_WATER: usize = 64;
const HIGH_WATER: usize = 32;

/// Copies of dirty pages that may be on their way home at a time; pages beyond that keep their
/// frames until they are home.
const SEND_RING_PAGES: usize = 1024;

/// The cache of one node.
pub(crate) struct PageCache {
    pub(crate) frames: Frames,
    pub(crate) table: AddressTable,
    shards: Box<[Shard]>,
    /// Lines without a copy whose word still has this node's bit.
    pub(crate) residual: ResidualReaders,
    /// Frames with outstanding reads that no caller waits for.
    pub(crate) late_frames: AtomicUsize,
    /// Dirty pages copied out of their frames and not home yet.
    copies_under_way: AtomicUsize,
    /// Rung when free frames run low.
    evict_bell: Arc<Doorbell>,
    /// Free frames below which the evictor starts, and above which it stops.
    low_water: usize,
    high_water: usize,
}

impl PageCache {
    /// An empty cache of so many frames, and at most so many beyond it.
    pub(crate) fn new(pool: &PoolDescriptor, frames: usize, most_beyond: usize) -> Self {
        let table = AddressTable::new(frames, pool.gcl_bytes);
        Self {
            shards: (0..table.shards()).map(|_| Shard::default()).collect(),
            frames: Frames::new(frames, pool.gcl_bytes, most_beyond),
            table,
            residual: ResidualReaders::new(pool),
            late_frames: AtomicUsize::new(0),
            copies_under_way: AtomicUsize::new(0),
            evict_bell: Arc::new(Doorbell::new()),
            low_water: frames / LOW_WATER,
            high_water: frames / HIGH_WATER,
        }
    }

    /// Bytes of a line: a page and its sequence number.
    #[inline]
    pub(crate) fn gcl_bytes(&self) -> usize {
        self.frames.gcl_bytes()
    }

    /// Bytes of memory beside the page data itself.
    pub(crate) fn overhead_bytes(&self) -> usize {
        self.frames.count() * (size_of::<Frame>() + size_of::<u32>()) + self.table.bytes()
    }

    /// The shard of a line.
    #[expect(clippy::indexing_slicing, reason = "the table masks shard numbers to its own count")]
    pub(crate) fn shard(&self, addr: GAddr) -> &Mutex<LineMap> {
        &self.shards[self.table.shard_of(addr)].0
    }

    /// All shards, for housekeeping.
    pub(crate) fn all_shards(&self) -> impl Iterator<Item = &Mutex<LineMap>> {
        self.shards.iter().map(|s| &s.0)
    }

    /// The frame of a line, in the cache or beyond it.
    #[inline]
    pub(crate) fn frame_of(&self, addr: GAddr) -> Option<FrameId> {
        let cached = self.table.lookup(&self.frames, addr);
        cached.or_else(|| self.frames.find_beyond_cache(addr))
    }

    /// A line with an operation under way, if there is one.
    pub(crate) fn line_under_way(&self) -> Option<GAddr> {
        self.all_shards().find_map(|shard| {
            let map = shard.lock();
            let found = map.iter().find(|(_, open)| !open.line.phase.at_rest());
            found.map(|(addr, _)| GAddr::from_u64(*addr))
        })
    }

    /// The page of a frame.
    ///
    /// # Safety
    /// The caller holds the frame's latch, or its sealed line under the shard's lock with no
    /// writer in, for as long as the slice lives.
    pub(crate) unsafe fn page(&self, id: FrameId) -> &[u8] {
        let start = self.frames.page_ptr(id).as_ptr();
        // SAFETY: page_ptr is the start of gcl_bytes bytes of the arena; the caller keeps writers
        // out.
        unsafe { std::slice::from_raw_parts(start, self.gcl_bytes()) }
    }

    /// The page of a frame, to be written.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively, or its sealed line under the shard's lock
    /// with no holder in, and makes no second reference, for as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the frame's latch is the borrow; see Safety")]
    pub(crate) unsafe fn page_mut(&self, id: FrameId) -> &mut [u8] {
        let start = self.frames.page_ptr(id).as_ptr();
        // SAFETY: as for page(), and the caller keeps all other users out.
        unsafe { std::slice::from_raw_parts_mut(start, self.gcl_bytes()) }
    }

    /// Takes the line out of its frame, and frees the frame.
    pub(crate) fn release_frame(&self, addr: GAddr, id: FrameId) {
        self.vacate(addr, id);
        self.frames.give_back(id);
    }

    /// Takes the line out of its frame.
    pub(crate) fn vacate(&self, addr: GAddr, id: FrameId) {
        let frame = self.frames.get(id);
        if self.frames.is_beyond_cache(id) {
            self.frames.forget_beyond_cache(addr);
        } else {
            self.table.remove(&self.frames, addr, id);
        }
        frame.set_addr(GAddr::NULL);
        frame.set_dirty(Dirty::NONE);
        frame.set_lsn(0);
        frame.set_unhomed(0);
        // A reader that found the entry just before fails on the sealed latch.
        let _ =
            frame.latch.publish(Permissions { readable: false, writable: false, pending: false });
    }

    /// Puts the line into this frame, whose latch is sealed.
    pub(crate) fn occupy(&self, addr: GAddr, id: FrameId) -> LocalUse {
        let frame = self.frames.get(id);
        frame.set_addr(addr);
        frame.set_dirty(Dirty::NONE);
        assert!(self.table.insert(addr, id), "address table: a shard has overflowed");
        frame.latch.seal()
    }

    /// Gives an Invalid line a frame. False: none is free.
    pub(crate) fn ensure_frame(&self, addr: GAddr, open: &mut OpenLine) -> bool {
        if open.frame.is_some() {
            return true;
        }
        let Some(id) = self.frames.take_free() else {
            self.evict_bell.ring();
            return false;
        };
        self.ring_if_low();
        open.frame = Some(id);
        open.seen = self.occupy(addr, id);
        true
    }

    /// Rings the evictor if free frames run low.
    pub(crate) fn ring_if_low(&self) {
        if self.frames.free_count() < self.low_water {
            self.evict_bell.ring();
        }
    }

    /// Rung when free frames run low.
    pub(crate) fn evict_bell(&self) -> &Arc<Doorbell> {
        &self.evict_bell
    }

    /// Whether the evictor may stop.
    pub(crate) fn has_free_frames(&self) -> bool {
        self.frames.free_count() >= self.high_water
    }

    /// Whether enough frames are free to fetch a page that is not waited for yet.
    pub(crate) fn has_room_ahead(&self) -> bool {
        self.frames.free_count() > self.low_water / 2
    }

    /// Counts a copy of a dirty page; `false` if as many are under way as may be.
    pub(crate) fn begin_copy(&self) -> bool {
        // Relaxed: a bound on memory, nothing hangs on its order.
        if self.copies_under_way.load(Ordering::Relaxed) >= SEND_RING_PAGES {
            return false;
        }
        self.copies_under_way.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The copy of a page is home, or lost.
    pub(crate) fn end_copy(&self) {
        self.copies_under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the line has an operation that has not completed.
    pub(crate) fn is_under_way(&self, addr: GAddr) -> bool {
        let map = self.shard(addr).lock();
        map.get(&addr.to_u64()).is_some_and(|open| open.line.phase.operation_outstanding())
    }

    /// Whether the line was without an operation at some time since it was told of the last death.
    /// One that is settled may have another at once, and again, for as long as a dead node is in
    /// the way: to look from time to time would never find it without one.
    pub(crate) fn is_through(&self, addr: GAddr) -> bool {
        let map = self.shard(addr).lock();
        map.get(&addr.to_u64())
            .is_none_or(|open| open.is_through || !open.line.phase.operation_outstanding())
    }

    /// Ends all waits with an error.
    pub(crate) fn fail_all_waits(&self, error: &EngineError) {
        for shard in self.all_shards() {
            for open in shard.lock().values_mut() {
                open.waiters.fail_all(error);
            }
        }
    }

    /// Ends the waits that are longer than their bound.
    pub(crate) fn expire_waits(&self, now: Duration, bound: Duration) {
        for shard in self.all_shards() {
            let mut map = shard.lock();
            for (addr, open) in map.iter_mut() {
                let addr = GAddr::from_u64(*addr);
                let error = |waited| EngineError::Timeout { addr, waited };
                open.waiters.expire(now, bound, error);
            }
        }
    }

    /// Seals the latches of all frames. The caller has failed the node before, so that nothing is
    /// published any more: a hit finds the latch sealed, and learns the rest on the slow path.
    pub(crate) fn seal_all(&self) {
        let beyond = std::iter::once_with(|| self.frames.ids_beyond_cache()).flatten();
        for id in self.frames.ids().chain(beyond) {
            let frame = self.frames.get(id);
            let addr = frame.addr();
            // A publisher has the lock, and checks whether the node has failed.
            let _line = (!addr.is_null()).then(|| self.shard(addr).lock());
            let _ = frame.latch.seal();
        }
    }
}
