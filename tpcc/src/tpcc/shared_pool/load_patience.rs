//! For how long a driver waits for one that loads: it may live, and not get on.

use std::time::Duration;

use super::labels::LoadUnderWay;
use crate::error::TpccError;

/// How long a load may last before others give up,
const PATIENCE: Duration = Duration::from_secs(3600);
/// and how much longer for each warehouse, which takes a second or so.
const PATIENCE_A_WAREHOUSE: Duration = Duration::from_secs(60);

/// The load that is waited for, and since when.
#[derive(Default)]
pub(super) struct LoadPatience(Option<(LoadUnderWay, Duration)>);

impl LoadPatience {
    /// Notes that this load is waited for at this time.
    ///
    /// # Errors
    /// [`TpccError::PhaseHangs`] if it was for too long.
    pub(super) fn check(&mut self, load: &LoadUnderWay, now: Duration) -> Result<(), TpccError> {
        let since = match &self.0 {
            Some((of, since)) if of == load => *since,
            _ => {
                self.0 = Some((load.clone(), now));
                now
            }
        };
        if now - since <= Self::bound(load) {
            return Ok(());
        }
        let waited_s = (now - since).as_secs();
        Err(TpccError::PhaseHangs { drivers: 1, what: "the load", waited_s })
    }

    /// For how long a load is waited for.
    pub(super) fn bound(load: &LoadUnderWay) -> Duration {
        PATIENCE + PATIENCE_A_WAREHOUSE * load.shape.warehouses()
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::{DatabaseShape, LoadStage};
    use super::*;
    use crate::tpcc::config::Config;

    #[test]
    fn only_the_same_load_can_last_for_too_long() {
        let shape = DatabaseShape::of(&Config { warehouses: 10, ..Config::default() });
        let load =
            |generation, stage| LoadUnderWay { host: 1, generation, shape: shape.clone(), stage };
        let (first, writes) = (load(1, LoadStage::Begins(None)), load(1, LoadStage::Writes));
        let mut patience = LoadPatience::default();
        let mut at = |load: &LoadUnderWay, seconds| {
            patience.check(load, Duration::from_secs(seconds)).map_err(|error| error.to_string())
        };
        assert_eq!(at(&first, 100), Ok(()));
        assert_eq!(at(&writes, 5_000), Ok(()), "it has got on");
        assert_eq!(at(&writes, 9_200), Ok(()), "ten minutes more, for ten warehouses");
        let said = at(&writes, 9_201).unwrap_err();
        let expected = "another driver has been in the way for 4,201 s, and not ended the load; ";
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(at(&load(2, LoadStage::Writes), 9_202), Ok(()), "another one");
    }
}
