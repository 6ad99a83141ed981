//! How long the nodes of a driver that loads have been absent.

use std::time::Duration;

/// How long a driver may be without a living node that has said that it is about to load, and
/// starts its nodes.
pub(super) const STARTING_PATIENCE: Duration = Duration::from_secs(10);

/// Since when a driver that loads has been seen without a living node.
#[derive(Default)]
pub(super) struct LoaderAbsence(Option<(u64, u64, Duration)>);

impl LoaderAbsence {
    /// Notes whether this process, which loads this generation, is there at this time; whether it
    /// is gone, as it was not for longer than it may be.
    pub(super) fn is_gone(
        &mut self,
        (host, generation): (u64, u64),
        there: bool,
        now: Duration,
        patience: Duration,
    ) -> bool {
        match self.0 {
            Some((of, its, since)) if !there && (of, its) == (host, generation) => {
                now - since > patience
            }
            _ => {
                self.0 = (!there).then_some((host, generation, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_load_can_be_missing_for_long() {
        let seconds = Duration::from_secs;
        let mut missing = LoaderAbsence::default();
        let mut is_gone = |host, generation, there, at| {
            missing.is_gone((host, generation), there, seconds(at), STARTING_PATIENCE)
        };
        assert!(!is_gone(1, 1, false, 0));
        assert!(!is_gone(2, 1, false, 11), "another driver");
        assert!(!is_gone(2, 2, false, 22), "another database");
        assert!(!is_gone(2, 2, true, 33), "it is there");
        assert!(!is_gone(2, 2, false, 44));
        assert!(!is_gone(2, 2, false, 54));
        assert!(is_gone(2, 2, false, 55));
    }
}
