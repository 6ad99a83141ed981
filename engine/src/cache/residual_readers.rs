//! What this node has left in the latch words of lines it has no copy of: one byte a line of the
//! pool.
//!
//! Exact, as a forgotten bit would be added to the word twice. The byte of a line changes under the
//! lock of its shard. Bytes come in chunks that are allocated when the first line of one is noted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use selkie_pool::PoolDescriptor;
use selkie_pool::control::MAX_RANGES;

use crate::GAddr;
use crate::coherence::word::ComputeId;

/// Lines of a chunk, at most.
const CHUNK_LINES: usize = 4096;

/// This node's bit in the word of a line that it has no copy of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResidualReader {
    /// It is not set.
    None,
    /// It is set.
    Bit,
    /// It may be set; that node clears it.
    BitHandedTo(ComputeId),
}

impl ResidualReader {
    fn to_byte(self) -> u8 {
        match self {
            ResidualReader::None => 0,
            ResidualReader::Bit => 1,
            ResidualReader::BitHandedTo(node) => 2 + node.index() as u8,
        }
    }

    fn from_byte(byte: u8) -> ResidualReader {
        match (byte, byte.checked_sub(2).and_then(|index| ComputeId::new(index.into()))) {
            (1, _) => ResidualReader::Bit,
            (_, Some(node)) => ResidualReader::BitHandedTo(node),
            _ => ResidualReader::None,
        }
    }
}

type Chunk = Box<[AtomicU8]>;
/// The chunks of a range.
type Chunks = Box<[OnceLock<Chunk>]>;

/// [`ResidualReader`] of every line.
pub(crate) struct ResidualReaders {
    ranges: Box<[OnceLock<Chunks>]>,
    lines_per_range: usize,
    gcl_shift: u32,
}

impl ResidualReaders {
    /// Nothing left in any line of the pool.
    pub(crate) fn new(pool: &PoolDescriptor) -> ResidualReaders {
        let ranges = if pool.coding.is_plain() {
            pool.memory_nodes.iter().map(|node| node.ranges as usize).sum()
        } else {
            // It gets memory nodes, and ranges, as it goes.
            MAX_RANGES
        };
        ResidualReaders {
            ranges: (0..ranges).map(|_| OnceLock::new()).collect(),
            lines_per_range: pool.range_bytes as usize / pool.gcl_bytes,
            gcl_shift: pool.gcl_bytes.trailing_zeros(),
        }
    }

    fn chunks(&self) -> Chunks {
        (0..self.lines_per_range.div_ceil(CHUNK_LINES)).map(|_| OnceLock::new()).collect()
    }

    /// The range of a line, and which of its lines it is.
    fn place(&self, addr: GAddr) -> Option<(&OnceLock<Chunks>, usize)> {
        let line = (addr.to_u64() >> self.gcl_shift) as usize;
        let range = self.ranges.get(line.checked_div(self.lines_per_range)?)?;
        Some((range, line % self.lines_per_range))
    }

    pub(crate) fn get(&self, addr: GAddr) -> ResidualReader {
        let byte = self.place(addr).and_then(|(range, line)| {
            let chunk = range.get()?.get(line / CHUNK_LINES)?.get()?;
            chunk.get(line % CHUNK_LINES)
        });
        // Relaxed, as everywhere here: the shard's lock orders what belongs to a line.
        byte.map_or(ResidualReader::None, |byte| {
            ResidualReader::from_byte(byte.load(Ordering::Relaxed))
        })
    }

    /// Lines outside the pool are ignored: they have no word.
    pub(crate) fn set(&self, addr: GAddr, left: ResidualReader) {
        let Some((range, line)) = self.place(addr) else { return };
        let chunks = range.get_or_init(|| self.chunks());
        let Some(chunk) = chunks.get(line / CHUNK_LINES) else { return };
        // Small ranges have fewer lines than a chunk.
        let lines = CHUNK_LINES.min(self.lines_per_range);
        let chunk = chunk.get_or_init(|| (0..lines).map(|_| AtomicU8::new(0)).collect());
        if let Some(byte) = chunk.get(line % CHUNK_LINES) {
            byte.store(left.to_byte(), Ordering::Relaxed);
        }
    }

    /// The lines in whose words a bit was left, as they are when the iterator gets to them.
    pub(crate) fn all(&self) -> impl Iterator<Item = GAddr> + '_ {
        let ranges = self.ranges.iter().enumerate();
        let chunks = ranges.filter_map(|(range, chunks)| Some((range, chunks.get()?)));
        let chunks = chunks.flat_map(move |(range, chunks)| {
            let first = range * self.lines_per_range;
            let chunks = chunks.iter().enumerate();
            chunks.filter_map(move |(number, chunk)| {
                Some((first + number * CHUNK_LINES, chunk.get()?))
            })
        });
        chunks.flat_map(move |(first, chunk)| {
            let lines = chunk.iter().enumerate();
            let left = lines.filter(|(_, byte)| byte.load(Ordering::Relaxed) != 0);
            left.map(move |(line, _)| GAddr::from_u64(((first + line) as u64) << self.gcl_shift))
        })
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::{PeerId, RegionKey};
    use selkie_pool::{Coding, MemoryNodeDescriptor};

    use super::*;
    use crate::coherence::word::MAX_COMPUTE_NODES;

    #[test]
    fn lines_keep_what_was_noted_for_them() {
        let (peer, region) = (PeerId::memory(0), RegionKey::from_raw(0));
        let node = MemoryNodeDescriptor { peer, region, ranges: 20 };
        let lines = ResidualReaders::new(&PoolDescriptor {
            gcl_bytes: 512,
            range_bytes: 256 << 10,
            max_compute_nodes: 1,
            coding: Coding::PLAIN,
            log_bytes: 0,
            memory_nodes: vec![node],
        });
        let line = |number: u64| GAddr::from_u64(number * 512);
        let node = |index| ResidualReader::BitHandedTo(ComputeId::new(index).unwrap());
        let noted = (0..MAX_COMPUTE_NODES).map(node).chain([ResidualReader::Bit]);
        let noted: Vec<(u64, ResidualReader)> = (4090..).zip(noted).collect();
        for (number, left) in &noted {
            lines.set(line(*number), *left);
        }
        assert!(noted.iter().all(|(number, left)| lines.get(line(*number)) == *left));
        assert!(lines.all().eq(noted.iter().map(|(number, _)| line(*number))));
        lines.set(line(4091), ResidualReader::None);
        assert_eq!(lines.get(line(4091)), ResidualReader::None);
        assert_eq!(lines.get(line(1)), ResidualReader::None);
        assert_eq!(lines.all().count(), noted.len() - 1);
        lines.set(line(1 << 30), ResidualReader::Bit);
        assert_eq!(lines.get(line(1 << 30)), ResidualReader::None, "no line of the pool");
    }
}
