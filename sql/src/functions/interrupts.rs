//! How what is computed without waiting is ended.
//!
//! A statement is cancelled where it waits, and one call of a function may compute for long before
//! it does. So what takes more than a pass over its arguments counts its steps, and is asked every
//! million of them whether the statement is to go on: that is once a millisecond or so, and costs
//! nothing in between.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::SqlResult;

/// Steps after which it is asked.
const STEPS: usize = 1 << 20;

/// After how many questions a statement is to wait, where it can.
const QUESTIONS: usize = 8;

/// After what time others are let have the thread of a statement that does not wait.
const TURN: Duration = Duration::from_millis(10);

/// Whether a statement is to go on: an error if not, else what time it is.
type Ask = Box<dyn Fn() -> SqlResult<Duration> + Send + Sync>;

/// Ends what a statement computes. A step is what takes about as long as to look at a byte.
#[derive(Default)]
pub struct Interrupts {
    /// Since it was asked last. All is counted by the one thread that computes, so that Relaxed
    /// loads and stores do.
    steps: AtomicUsize,
    /// How often it was asked since the statement has waited last.
    questions: AtomicUsize,
    /// Since when it has the thread, in microseconds; 0 if that is not known.
    since_us: AtomicU64,
    ask: Option<Ask>,
    /// Gives the tasks that wait for this thread to another.
    hand_over: Option<fn()>,
}

impl Interrupts {
    /// Of a statement that ends when `ask` gives an error.
    pub(crate) fn new(ask: Ask, hand_over: Option<fn()>) -> Self {
        Self { ask: Some(ask), hand_over, ..Self::default() }
    }

    /// Counts steps.
    ///
    /// # Errors
    /// 57014 or 57P01 if the statement is to end.
    pub(crate) fn after(&self, steps: usize) -> SqlResult<()> {
        let steps = self.steps.load(Ordering::Relaxed).saturating_add(steps);
        if steps < STEPS {
            self.steps.store(steps, Ordering::Relaxed);
            return Ok(());
        }
        self.steps.store(0, Ordering::Relaxed);
        let questions = self.questions.load(Ordering::Relaxed).saturating_add(1);
        self.questions.store(questions, Ordering::Relaxed);
        let Some(ask) = &self.ask else { return Ok(()) };
        let now = u64::try_from(ask()?.as_micros()).unwrap_or(u64::MAX).max(1);
        let since = self.since_us.load(Ordering::Relaxed);
        let is_over = Duration::from_micros(now.saturating_sub(since)) >= TURN;
        if since == 0 || is_over {
            self.since_us.store(now, Ordering::Relaxed);
        }
        if since > 0 && is_over {
            self.let_others_run();
        }
        Ok(())
    }

    /// What follows counts no steps, and may take long.
    ///
    /// # Errors
    /// As [`after`](Self::after).
    pub(crate) fn before_long(&self) -> SqlResult<()> {
        self.let_others_run();
        self.ask.as_ref().map_or(Ok(()), |ask| ask().map(|_| ()))
    }

    /// Whether it is time to wait, so that others run. From now on it has waited.
    pub(crate) fn take_turn(&self) -> bool {
        let is_time = self.questions.load(Ordering::Relaxed) >= QUESTIONS;
        if is_time {
            self.questions.store(0, Ordering::Relaxed);
            self.since_us.store(0, Ordering::Relaxed);
        }
        is_time
    }

    fn let_others_run(&self) {
        if let Some(hand_over) = self.hand_over {
            hand_over();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::error::{SqlError, SqlState};

    #[test]
    fn a_long_computation_is_asked_now_and_then() {
        static HANDED_OVER: AtomicUsize = AtomicUsize::new(0);
        let (asked, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (Arc::clone(&asked), Arc::clone(&is_over));
        let ask = move || {
            // A millisecond for each.
            let asked = count.fetch_add(1, Ordering::Relaxed);
            match over.load(Ordering::Relaxed) {
                true => Err(SqlError::new(SqlState::QUERY_CANCELED, "over")),
                false => Ok(Duration::from_millis(asked as u64)),
            }
        };
        let hand_over = || {
            HANDED_OVER.fetch_add(1, Ordering::Relaxed);
        };
        let interrupts = Interrupts::new(Box::new(ask), Some(hand_over));
        assert!(!interrupts.take_turn());
        (0..64).for_each(|_| interrupts.after(STEPS / 2).unwrap());
        assert_eq!(asked.load(Ordering::Relaxed), 32);
        assert_eq!(HANDED_OVER.load(Ordering::Relaxed), 3);
        assert_eq!((interrupts.take_turn(), interrupts.take_turn()), (true, false));
        is_over.store(true, Ordering::Relaxed);
        interrupts.after(1).unwrap();
        assert!(interrupts.after(usize::MAX).is_err());
        assert!(interrupts.before_long().is_err());
        assert_eq!(HANDED_OVER.load(Ordering::Relaxed), 4);
    }
}
