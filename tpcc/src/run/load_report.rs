//! What a load did.

use std::sync::Arc;
use std::time::Duration;

use super::progress::Progress;
use crate::cluster::ClusterShape;
use crate::figures::units;

/// What a load did.
#[derive(Clone, Copy, Debug)]
pub struct LoadReport {
    /// How long it took.
    pub duration: Duration,
    /// Rows inserted, order lines by their average.
    pub rows: u64,
    /// Bytes of pages in use after it.
    pub database_bytes: u64,
}

/// Says what was loaded, and how much of it a compute node can cache.
pub(crate) fn tell_load(load: &LoadReport, shape: &ClusterShape, progress: &Arc<dyn Progress>) {
    let cache_bytes = shape.cache_bytes();
    let share = 100.0 * cache_bytes as f64 / load.database_bytes.max(1) as f64;
    progress.note(&format!(
        "loaded {} rows in {} {}: database {}, cache {} a compute node ({} %)",
        units::count(load.rows),
        units::precise(load.duration.as_secs_f64()),
        shape.setup.network.seconds(),
        units::bytes(load.database_bytes),
        units::bytes(cache_bytes),
        units::count(share.round() as u64),
    ));
}
