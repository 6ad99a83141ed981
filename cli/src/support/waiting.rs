//! What a command waits for, for those who look at its metrics meanwhile.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is waited for now, and since when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<Mutex<Option<(String, Instant)>>>);

impl Waiting {
    /// It is waited for this, from now on unless that has begun before.
    pub(crate) fn begin(&self, what: &str) {
        self.with(|now| match now {
            Some((before, _)) if before == what => {}
            now => *now = Some((what.to_owned(), Instant::now())),
        });
    }

    /// It is waited for nothing.
    pub(crate) fn end(&self) {
        self.with(|now| *now = None);
    }

    /// What is waited for, and for how long it has been.
    pub(crate) fn now(&self) -> Option<(String, Duration)> {
        self.with(|now| now.as_ref().map(|(what, since)| (what.clone(), since.elapsed())))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<(String, Instant)>) -> T) -> T {
        // A panic in between leaves nothing that matters broken.
        act(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_said_again_goes_on() {
        let waiting = Waiting::default();
        assert_eq!(waiting.now(), None);
        waiting.begin("a driver");
        std::thread::sleep(Duration::from_millis(20));
        waiting.begin("a driver");
        let (what, passed) = waiting.now().unwrap();
        assert!(what == "a driver" && passed >= Duration::from_millis(20), "{what}: {passed:?}");
        waiting.end();
        assert_eq!(waiting.now(), None);
    }
}
