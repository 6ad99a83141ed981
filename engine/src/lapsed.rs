//! A set of the pool's lines, one bit a line.
//!
//! The bits of a line change under the lock of its shard; they are atomics because neighbours share a
//! word. A pool of 1 TiB in lines of 2 KiB takes 64 MiB, of which only what is used is committed.

use std::sync::atomic::{AtomicU64, Ordering};

use selkie_memnode::PoolDescriptor;

use crate::GAddr;

pub(crate) struct LineSet {
    words: Box<[AtomicU64]>,
    gcl_shift: u32,
}

impl LineSet {
    /// The empty set of a pool's lines.
    pub(crate) fn new(pool: &PoolDescriptor) -> LineSet {
        let ranges: u64 = pool.memory_nodes.iter().map(|node| u64::from(node.ranges)).sum();
        let lines = ranges * pool.range_bytes / pool.gcl_bytes as u64;
        let words = (0..lines.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        LineSet { words, gcl_shift: pool.gcl_bytes.trailing_zeros() }
    }

    fn place(&self, addr: GAddr) -> Option<(&AtomicU64, u64)> {
        let line = addr.to_u64() >> self.gcl_shift;
        Some((self.words.get((line / 64) as usize)?, 1 << (line % 64)))
    }

    pub(crate) fn contains(&self, addr: GAddr) -> bool {
        // Relaxed, as everywhere here: the shard's lock orders what belongs to a line.
        self.place(addr).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(crate) fn set(&self, addr: GAddr, member: bool) {
        match self.place(addr) {
            Some((word, bit)) if member => drop(word.fetch_or(bit, Ordering::Relaxed)),
            Some((word, bit)) => drop(word.fetch_and(!bit, Ordering::Relaxed)),
            None => {}
        }
    }

    /// The members, as they are when the iterator gets to them.
    pub(crate) fn all(&self) -> impl Iterator<Item = GAddr> + '_ {
        self.words.iter().enumerate().flat_map(move |(index, word)| {
            let word = word.load(Ordering::Relaxed);
            let bits = (0..64).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| GAddr::from_u64((index as u64 * 64 + bit) << self.gcl_shift))
        })
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::{PeerId, RegionKey};
    use selkie_memnode::MemoryNodeDescriptor;

    use super::*;

    #[test]
    fn members_are_those_that_were_put_in() {
        let (peer, region) = (PeerId::memory(0), RegionKey::from_raw(0));
        let node = MemoryNodeDescriptor { peer, region, ranges: 2 };
        let set = LineSet::new(&PoolDescriptor {
            gcl_bytes: 512,
            range_bytes: 256 << 10,
            max_compute_nodes: 1,
            memory_nodes: vec![node],
        });
        let line = |number: u64| GAddr::from_u64(number * 512);
        for number in [1, 63, 64, 1023] {
            set.set(line(number), true);
        }
        set.set(line(63), false);
        assert_eq!(set.all().collect::<Vec<_>>(), [line(1), line(64), line(1023)]);
        assert!(set.contains(line(64)) && !set.contains(line(63)) && !set.contains(line(2)));
        set.set(line(5000), true);
        assert!(!set.contains(line(5000)), "no line of the pool");
    }
}
