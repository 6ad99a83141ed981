//! A whole run of the benchmark.

use std::sync::Arc;

use super::config::Config;
use crate::benchmark::{Report, Valid};
use crate::error::TpccError;
use crate::run::Progress;

/// [`benchmark::run`](crate::benchmark::run) of this benchmark, compiled in this crate.
///
/// # Errors
/// As [`benchmark::run`](crate::benchmark::run).
pub fn run(
    config: &Valid<Config>,
    progress: &Arc<dyn Progress>,
) -> Result<Report<Config>, TpccError> {
    crate::benchmark::run(config, progress)
}
