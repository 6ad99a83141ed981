//! How long the nodes of a driver that loads have been absent.

use std::time::Duration;

/// How long a driver that loads may be without a living node.
pub(super) const LOADER_PATIENCE: Duration = Duration::from_secs(10);

/// Since when a driver that loads has been seen without a living node.
#[derive(Default)]
pub(super) struct LoaderAbsence(Option<(u64, u64, Duration)>);

impl LoaderAbsence {
    /// Notes whether this process, which loads this generation, is there at this time; whether it
    /// is gone.
    pub(super) fn is_gone(
        &mut self,
        host: u64,
        generation: u64,
        there: bool,
        now: Duration,
    ) -> bool {
        match self.0 {
            Some((of, its, since)) if !there && (of, its) == (host, generation) => {
                now - since > LOADER_PATIENCE
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
        assert!(!missing.is_gone(1, 1, false, seconds(0)));
        assert!(!missing.is_gone(2, 1, false, seconds(11)), "another driver");
        assert!(!missing.is_gone(2, 2, false, seconds(22)), "another database");
        assert!(!missing.is_gone(2, 2, true, seconds(33)), "it is there");
        assert!(!missing.is_gone(2, 2, false, seconds(44)));
        assert!(!missing.is_gone(2, 2, false, seconds(54)));
        assert!(missing.is_gone(2, 2, false, seconds(55)));
    }
}
