//! What a command does while it has nothing else to show: a spinner on a terminal, else a line
//! after a second, and then less and less often.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use selkie::pool::WaitNotice;

/// How often the spinner turns, and how often it is looked whether a line is due.
const TICK: Duration = Duration::from_millis(100);

/// Shows what is done, until it is dropped.
pub(crate) struct Activity(Shown);

enum Shown {
    Spinner(ProgressBar),
    /// A thread, as what is done may leave this one no time.
    Lines {
        now: Option<Sender<String>>,
        thread: Option<JoinHandle<()>>,
    },
}

impl Activity {
    /// From now on this is done, such as `reading logs`.
    ///
    /// # Errors
    /// That the system gives no thread.
    pub(crate) fn begin(what: &str) -> std::io::Result<Self> {
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner().with_message(what.to_owned());
            bar.enable_steady_tick(TICK);
            return Ok(Self(Shown::Spinner(bar)));
        }
        let (now, next) = channel::<String>();
        let what = what.to_owned();
        let lines = move || {
            let mut told = Lines::new(what);
            loop {
                match next.recv_timeout(TICK) {
                    Ok(what) => told = Lines::new(what),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if let Some(line) = told.due(told.began.elapsed()) {
                    // A closed stderr is no reason to stop.
                    let _ = writeln!(std::io::stderr(), "{line}");
                }
            }
        };
        let thread = thread::Builder::new().name("activity".to_owned()).spawn(lines)?;
        Ok(Self(Shown::Lines { now: Some(now), thread: Some(thread) }))
    }

    /// From now on this is done instead.
    pub(crate) fn turn_to(&self, what: &str) {
        match &self.0 {
            Shown::Spinner(bar) => bar.set_message(what.to_owned()),
            Shown::Lines { now, .. } => {
                now.iter().for_each(|now| drop(now.send(what.to_owned())));
            }
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        match &mut self.0 {
            Shown::Spinner(bar) => bar.finish_and_clear(),
            Shown::Lines { now, thread } => {
                drop(now.take());
                // No line comes behind what the command says next.
                thread.take().into_iter().for_each(|thread| drop(thread.join()));
            }
        }
    }
}

/// Decides when a line is written.
struct Lines {
    what: String,
    began: Instant,
    notice: WaitNotice,
}

impl Lines {
    fn new(what: String) -> Self {
        Self { what, began: Instant::now(), notice: WaitNotice::new(Duration::ZERO) }
    }

    fn due(&mut self, passed: Duration) -> Option<String> {
        let passed = self.notice.due(passed)?.as_secs();
        Some(format!("{}: for {passed} s so far", self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_than_a_second_is_told_of() {
        let mut lines = Lines::new("reading logs".to_owned());
        let told = (0..300).filter_map(|tenth| lines.due(Duration::from_millis(100 * tenth)));
        let expected = [1, 4, 16].map(|s| format!("reading logs: for {s} s so far"));
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}
