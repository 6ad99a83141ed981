//! The address table: from a line's address to its frame, with lookups that take no lock.
//!
//! Open addressing with linear probing inside a shard. An entry is one word, `tag << 32 | frame+1`
//! (0 is empty), so readers see it whole. Writers hold the shard's lock and delete by shifting the
//! cluster back; a reader that probes meanwhile may miss an entry, which merely sends it to the
//! slow path, where the lock is held. A reader may also find an entry that is just being removed:
//! it checks the frame's own address after it has latched it.

use selkie_fabric::want_huge_pages;

use super::frame::FrameId;
use super::frames::Frames;
use crate::GAddr;
use crate::sync::{AtomicU64, Ordering};

/// Frames a shard is made for; large enough that its load never strays far from the mean.
const FRAMES_PER_SHARD: usize = 512;
const MAX_SHARDS: usize = 256;

/// Lock-free lookups, locked updates.
pub(crate) struct AddressTable {
    /// All slots; the upper bits of an index are the shard.
    slots: Box<[AtomicU64]>,
    /// Masks the slot within its shard.
    slot_mask: usize,
    /// Bits of the slot within its shard.
    slot_bits: u32,
    /// Bits of an address below the line's number.
    line_shift: u32,
}

impl AddressTable {
    pub(crate) fn new(frames: usize, gcl_bytes: usize) -> AddressTable {
        let shards = (frames / FRAMES_PER_SHARD).next_power_of_two().clamp(1, MAX_SHARDS);
        // Twice the mean, so between a quarter and a half of the slots are taken.
        let per_shard = (2 * frames / shards).next_power_of_two();
        let mut slots = Vec::with_capacity(shards * per_shard);
        want_huge_pages(slots.spare_capacity_mut());
        slots.extend((0..shards * per_shard).map(|_| AtomicU64::new(0)));
        AddressTable {
            slots: slots.into_boxed_slice(),
            slot_mask: per_shard - 1,
            slot_bits: per_shard.trailing_zeros(),
            line_shift: gcl_bytes.trailing_zeros(),
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.slots.len() >> self.slot_bits
    }

    /// Bytes the table takes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU64>()
    }

    /// Fibonacci hashing: the upper half picks the slot, the lower half is the tag.
    #[inline]
    fn hash(&self, addr: GAddr) -> u64 {
        let product = (addr.to_u64() >> self.line_shift).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        product ^ (product >> 32)
    }

    /// Where the search for a hash starts.
    #[inline]
    fn start(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    /// Where the search for `addr` starts.
    #[inline]
    pub(crate) fn start_of(&self, addr: GAddr) -> usize {
        self.start(self.hash(addr))
    }

    /// The shard whose lock governs `addr`.
    #[inline]
    pub(crate) fn shard_of(&self, addr: GAddr) -> usize {
        self.start_of(addr) >> self.slot_bits
    }

    /// The slot `probe` steps after `start`, within the same shard.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the masks keep the index below the length")]
    fn slot(&self, start: usize, probe: usize) -> &AtomicU64 {
        &self.slots[(start & !self.slot_mask) | ((start + probe) & self.slot_mask)]
    }

    /// The frame that holds `addr`, unless an update is under way.
    #[inline]
    pub(crate) fn lookup(&self, frames: &Frames, addr: GAddr) -> Option<FrameId> {
        let hash = self.hash(addr);
        let start = self.start(hash);
        for probe in 0..=self.slot_mask {
            // Acquire pairs with the Release of insert: the frame's address was set before.
            let entry = self.slot(start, probe).load(Ordering::Acquire);
            if entry == 0 {
                return None;
            }
            if (entry >> 32) as u32 == hash as u32 {
                let id = FrameId(entry as u32 - 1);
                if frames.get(id).addr() == addr {
                    return Some(id);
                }
            }
        }
        None
    }

    fn entry(hash: u64, id: FrameId) -> u64 {
        hash << 32 | (u64::from(id.0) + 1)
    }

    /// Enters a frame whose address is set; the caller holds the shard's lock. False: no slot.
    pub(crate) fn insert(&self, addr: GAddr, id: FrameId) -> bool {
        let hash = self.hash(addr);
        let start = self.start(hash);
        // One slot always stays empty, so that every search ends.
        for probe in 0..self.slot_mask {
            let slot = self.slot(start, probe);
            if slot.load(Ordering::Relaxed) == 0 {
                // Release pairs with lookup: the frame's address was set before.
                slot.store(Self::entry(hash, id), Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Removes the entry of `addr`; the frame's address is still set, the shard's lock held.
    pub(crate) fn remove(&self, frames: &Frames, addr: GAddr, id: FrameId) {
        let hash = self.hash(addr);
        let (start, entry) = (self.start(hash), Self::entry(hash, id));
        let found = |probe: &usize| self.slot(start, *probe).load(Ordering::Relaxed) == entry;
        let Some(first) = (0..=self.slot_mask).find(found) else { return };
        let mut hole = first;
        // Shift the rest of the cluster back, so that no search ends early at the hole.
        for next in first + 1.. {
            let moved = self.slot(start, next).load(Ordering::Relaxed);
            if moved == 0 {
                break;
            }
            let home = self.start_of(frames.get(FrameId(moved as u32 - 1)).addr());
            // Both counted back from `next`: an entry may not move in front of its own start.
            let distance = (start + next).wrapping_sub(home) & self.slot_mask;
            if distance >= next - hole {
                // Release pairs with lookup, as in insert.
                self.slot(start, hole).store(moved, Ordering::Release);
                hole = next;
            }
        }
        self.slot(start, hole).store(0, Ordering::Release);
    }
}
