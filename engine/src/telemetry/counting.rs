//! All that one engine counts.

use super::contention::ContentionPredictor;
use super::hottest::Hottest;
use super::stats::{Counters, EngineStats};
use crate::cache::frames::Frames;

/// Counters and sketches of one engine.
pub(crate) struct Telemetry {
    pub(crate) counters: Counters,
    /// Fed by misses and invalidations.
    pub(crate) hottest: Hottest,
    /// Fed by what latch words were found to be.
    pub(crate) contention: ContentionPredictor,
}

impl Telemetry {
    pub(crate) fn new() -> Self {
        Self {
            counters: Counters::new(),
            hottest: Hottest::default(),
            contention: ContentionPredictor::default(),
        }
    }

    /// What was counted so far, and the state of the frames.
    pub(crate) fn snapshot(&self, frames: &Frames) -> EngineStats {
        let stats = self.counters.snapshot(frames);
        EngineStats { hottest_skipped: self.hottest.skipped(), ..stats }
    }
}
