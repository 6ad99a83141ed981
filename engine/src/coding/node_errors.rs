//! Counts of damaged splits by memory node. Beyond one limit reads compare more splits, beyond
//! another the memory node is drained (Hydra §4.1).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use selkie_pool::MAX_MEMORY_NODES;

use crate::EngineConfig;
use crate::addressing::locations::SplitsAt;

/// Reads of pages after which all counts are halved.
const WINDOW: u32 = 4096;

/// Damaged splits of each memory node in about the last [`WINDOW`] reads of pages.
pub(crate) struct MemoryNodeErrors {
    damaged: Box<[AtomicU32]>,
    reads: AtomicU32,
    /// A split was counted. Read first, because mostly none is.
    any: AtomicBool,
    correction_limit: u32,
    regeneration_limit: u32,
}

impl MemoryNodeErrors {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            damaged: (0..MAX_MEMORY_NODES).map(|_| AtomicU32::new(0)).collect(),
            reads: AtomicU32::new(0),
            any: AtomicBool::new(false),
            correction_limit: config.error_correction_limit,
            regeneration_limit: config.slab_regeneration_limit,
        }
    }

    fn of(&self, memory: usize) -> u32 {
        self.damaged.get(memory).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// A page was read.
    pub(crate) fn note_read(&self) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let reads = self.reads.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if reads.is_multiple_of(WINDOW) {
            let mut any = false;
            for count in &self.damaged {
                // An error that is counted meanwhile may be lost: the counts are a rate.
                let half = count.load(Ordering::Relaxed) / 2;
                count.store(half, Ordering::Relaxed);
                any |= half > 0;
            }
            self.any.store(any, Ordering::Relaxed);
        }
    }

    /// Counts a damaged split of a memory node.
    pub(crate) fn note_damaged(&self, memory: usize) {
        if let Some(count) = self.damaged.get(memory) {
            count.fetch_add(1, Ordering::Relaxed);
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a split lies at a memory node beyond the correction limit.
    pub(crate) fn suspects(&self, places: &SplitsAt) -> bool {
        self.any.load(Ordering::Relaxed)
            && places.iter().flatten().any(|place| self.of(place.node) > self.correction_limit)
    }

    /// The memory nodes beyond the regeneration limit. Their counts begin again at 0.
    pub(crate) fn take_beyond_limit(&self) -> Vec<usize> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let beyond =
            (0..self.damaged.len()).filter(|memory| self.of(*memory) > self.regeneration_limit);
        let beyond: Vec<usize> = beyond.collect();
        for count in beyond.iter().filter_map(|memory| self.damaged.get(*memory)) {
            count.store(0, Ordering::Relaxed);
        }
        beyond
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::{RegionKey, RemoteAddr};

    use super::*;
    use crate::addressing::locations::SplitAt;

    fn errors() -> MemoryNodeErrors {
        let config = EngineConfig {
            error_correction_limit: 2,
            slab_regeneration_limit: 5,
            ..EngineConfig::default()
        };
        MemoryNodeErrors::new(&config)
    }

    fn at(node: usize) -> SplitsAt {
        let mut places = SplitsAt::default();
        places[2] = Some(SplitAt { node, at: RemoteAddr::new(RegionKey::from_raw(1), 0) });
        places
    }

    #[test]
    fn a_memory_node_that_errs_is_suspected_then_drained_and_forgiven_in_time() {
        let errors = errors();
        for _ in 0..2 {
            errors.note_damaged(3);
        }
        assert!(!errors.suspects(&at(3)));
        errors.note_damaged(3);
        assert!(errors.suspects(&at(3)) && !errors.suspects(&at(1)));
        for _ in 0..2 {
            errors.note_damaged(3);
        }
        assert!(errors.take_beyond_limit().is_empty(), "5 are within the limit");
        errors.note_damaged(3);
        assert_eq!(errors.take_beyond_limit(), [3]);
        assert!(errors.take_beyond_limit().is_empty(), "once");
        for _ in 0..4 {
            errors.note_damaged(1);
        }
        for _ in 0..WINDOW {
            errors.note_read();
        }
        assert!(!errors.suspects(&at(1)), "2 are left of 4");
    }
}
