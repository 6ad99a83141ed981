//! How far a load is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::TpccError;
use crate::run::{Progress, advance};

/// How far a load is: what its observer is told, and what is said if it ends early.
#[derive(Clone)]
pub struct LoadProgress {
    progress: Arc<dyn Progress>,
    loaded: Arc<AtomicU64>,
}

impl LoadProgress {
    pub(super) fn new(progress: &Arc<dyn Progress>) -> Self {
        Self { progress: Arc::clone(progress), loaded: Arc::default() }
    }

    /// So many more keys are loaded.
    ///
    /// # Errors
    /// [`TpccError::Interrupted`] if the load is to end.
    pub(crate) fn advance(&self, keys: u64) -> Result<(), TpccError> {
        self.loaded.fetch_add(keys, Ordering::Relaxed);
        advance(&*self.progress, keys)
    }

    /// How many are.
    pub(super) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Relaxed)
    }
}
