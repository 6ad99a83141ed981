//! Progress reports of a long stage.

use selkie_engine::Roster;

use crate::error::TpccError;

/// Looks on at a run: is told of its stages `load`, `run`, `check`, one at a time.
pub trait Progress: Send + Sync {
    /// A stage of `total` steps begins.
    fn begin(&self, stage: &'static str, total: u64);
    /// So many more steps are done.
    fn advance(&self, steps: u64);
    /// The stage is over.
    fn end(&self);
    /// Something worth a line of its own.
    fn note(&self, line: &str);
    /// What the run waits for now, such as another driver; until the next stage begins.
    fn wait(&self, _what: &str) {}
    /// Whether the measurement is to end before its time.
    fn is_over(&self) -> bool {
        false
    }
    /// Whether [`is_interrupted`](Self::is_interrupted) may become true while something waits.
    fn can_be_interrupted(&self) -> bool {
        false
    }
    /// Whether the run is to end at once, without a result: it leaves the pool and fails.
    fn is_interrupted(&self) -> bool {
        false
    }
    /// Where the compute nodes of the run are entered for as long as it lasts, with the
    /// transactions that they have committed.
    fn roster(&self) -> Option<&Roster> {
        None
    }
}

/// Fails if the run is to end at once.
///
/// # Errors
/// [`TpccError::Interrupted`].
pub(crate) fn check_interrupted(progress: &dyn Progress) -> Result<(), TpccError> {
    if progress.is_interrupted() { Err(TpccError::Interrupted) } else { Ok(()) }
}

/// So many more steps are done.
///
/// # Errors
/// [`TpccError::Interrupted`].
pub(crate) fn advance(progress: &dyn Progress, steps: u64) -> Result<(), TpccError> {
    progress.advance(steps);
    check_interrupted(progress)
}

/// Reports nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &'static str, _total: u64) {}
    fn advance(&self, _steps: u64) {}
    fn end(&self) {}
    fn note(&self, _line: &str) {}
}
