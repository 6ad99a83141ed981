//! The control plane of a pool within one process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::{BoxFuture, PeerId};

use super::error::ControlError;
use super::plane::{Beat, Change, ControlPlane, Version, Versioned};
use crate::document::PoolState;

/// Keeps the state in memory. All calls are done at once.
#[derive(Default)]
pub struct LocalPlane(Mutex<Local>);

#[derive(Default)]
struct Local {
    current: Option<Versioned>,
    /// What wrote `current`.
    change: Option<Change>,
    beats: BTreeMap<PeerId, Beat>,
}

impl LocalPlane {
    /// A plane that keeps the pool `state`.
    #[must_use]
    pub fn of(state: PoolState) -> Self {
        let current = Some(Versioned { version: 1, state: Arc::new(state) });
        Self(Mutex::new(Local { current, ..Local::default() }))
    }

    fn current(&self) -> Result<Versioned, ControlError> {
        self.0.lock().current.clone().ok_or_else(no_pool)
    }
}

impl ControlPlane for LocalPlane {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        Box::pin(async { self.current() })
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        Box::pin(async {
            let mut local = self.0.lock();
            if local.current.is_some() {
                return Err(ControlError::PoolExists { place: "the process".into() });
            }
            local.current = Some(Versioned { version: 1, state: Arc::new(state) });
            Ok(1)
        })
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move {
            let mut local = self.0.lock();
            let current = local.current.as_ref().ok_or_else(no_pool)?.version;
            if current != expected {
                return Ok((local.change == Some(change)).then_some(current));
            }
            let version = expected + 1;
            local.current = Some(Versioned { version, state: Arc::new(state) });
            local.change = Some(change);
            Ok(Some(version))
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            self.0.lock().beats.insert(beat.node, beat);
            Ok(())
        })
    }

    /// A process that dies takes the plane with it: every beat is fresh.
    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async {
            Ok(self.0.lock().beats.values().map(|beat| (beat.clone(), Duration::ZERO)).collect())
        })
    }

    fn pace(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async {
            *self.0.lock() = Local::default();
            Ok(())
        })
    }
}

fn no_pool() -> ControlError {
    ControlError::NoPool { place: "the process".into() }
}
