//! How far the memory of a memory node is populated: one line that changes on a terminal, else a
//! line now and then, and nothing where it takes less than a second.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use selkie::memnode::PopulationWatcher;
use selkie::pool::WaitNotice;
use selkie_tpcc::units;

use super::signals::Interrupt;

/// What is shown where there is a terminal, from then on.
const FIRST: Duration = Duration::from_secs(1);

/// Watches the population of memory until a signal asks the process to end.
pub(crate) fn watch(interrupt: &Interrupt) -> PopulationWatcher {
    let is_terminal = std::io::stderr().is_terminal();
    let state = Mutex::new((Instant::now(), Lines::new(is_terminal)));
    let interrupt = interrupt.clone();
    PopulationWatcher::new(move |done, total| {
        let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if done == 0 {
            // It may have waited for its turn.
            *state = (Instant::now(), Lines::new(is_terminal));
        }
        let (began, lines) = &mut *state;
        if let Some(text) = lines.told(began.elapsed(), done, total) {
            // A closed stderr is no reason to stop.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })
}

/// Decides what is written when.
struct Lines {
    is_terminal: bool,
    notice: WaitNotice,
    is_shown: bool,
}

impl Lines {
    fn new(is_terminal: bool) -> Self {
        Self { is_terminal, notice: WaitNotice::new(Duration::ZERO), is_shown: false }
    }

    fn told(&mut self, passed: Duration, done: u64, total: u64) -> Option<String> {
        let (of, percent) = (units::bytes(total), (100 * done + total / 2) / total.max(1));
        let line = format!("takes memory to lend: {percent} % of {of}");
        if !self.is_terminal {
            return self.notice.due(passed).map(|_| line + "\n");
        }
        // The line is cleared at the end, as a progress bar is.
        let is_over = done >= total;
        if passed < FIRST || is_over && !self.is_shown {
            return None;
        }
        self.is_shown = true;
        Some(if is_over { "\r\x1b[K".to_owned() } else { format!("\r{line}\x1b[K") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn told(is_terminal: bool, seconds: u64) -> Vec<String> {
        let mut lines = Lines::new(is_terminal);
        let all = (0..=10 * seconds).filter_map(|tenth| {
            let passed = Duration::from_millis(100 * tenth);
            lines.told(passed, 8 * GIB * tenth / (10 * seconds).max(1), 8 * GIB)
        });
        all.collect()
    }

    #[test]
    fn population_is_told_of_when_it_takes_long() {
        let piped = told(false, 20);
        let expected = [5, 20, 80].map(|p| format!("takes memory to lend: {p} % of 8.0 GiB\n"));
        assert_eq!(piped, expected);
        assert_eq!((told(true, 0), told(false, 0)), (Vec::new(), Vec::new()));
        let shown = told(true, 20);
        assert!(shown.len() > 100 && shown.iter().all(|line| line.starts_with('\r')), "{shown:?}");
        assert_eq!(shown.last().map(String::as_str), Some("\r\x1b[K"), "the line is cleared");
    }
}
