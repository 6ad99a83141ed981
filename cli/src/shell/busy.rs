//! What a statement that takes long is doing: a bar or a spinner on a terminal, else a notice after
//! a second, and then less and less often.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use selkie::pool::{NOTICE, WaitNotice, units};

/// A statement that has run for so long says what it does.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// How often what is said is drawn anew.
const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// Most characters of a statement that are said.
const MOST_CHARACTERS: usize = 60;

/// A statement that runs, or a file that is copied.
pub(super) struct Busy {
    what: String,
    since: Instant,
    /// Bytes that are to be read, if it is a file.
    total: Option<u64>,
    state: Mutex<State>,
}

struct State {
    notice: WaitNotice,
    bar: Option<ProgressBar>,
    done: u64,
    /// Rows have come: nothing more is said.
    is_over: bool,
}

impl Busy {
    /// With a statement, or what is copied out of so many bytes.
    pub(super) fn new(what: &str, total: Option<u64>) -> Self {
        let notice = WaitNotice::new(Duration::ZERO);
        let state = Mutex::new(State { notice, bar: None, done: 0, is_over: false });
        Self { what: shortened(what), since: Instant::now(), total, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what is done, if it takes long.
    pub(super) fn look(&self) {
        let mut state = self.state();
        let passed = self.since.elapsed();
        if state.bar.is_some() || state.is_over || passed < SHOWN_AFTER {
            return;
        }
        if std::io::stderr().is_terminal() {
            state.bar = Some(self.bar(state.done));
        } else if let Some(passed) = state.notice.due(passed) {
            tracing::info!(target: NOTICE, "{}", self.line(passed, state.done));
        }
    }

    /// What is said where there is no terminal.
    fn line(&self, passed: Duration, done: u64) -> String {
        let (what, passed) = (&self.what, passed.as_secs());
        match self.total {
            Some(total) => {
                let (done, total) = (units::bytes(done), units::bytes(total));
                format!("{what}: for {passed} s so far, {done} of {total}")
            }
            None => format!(
                "{what}: for {passed} s so far; a wait for what others have locked ends with their transactions, or by \
                 lock_timeout"
            ),
        }
    }

    fn bar(&self, done: u64) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr());
        let template = match self.total {
            Some(_) => "{msg} [{bar:40}] {percent:>3} % {bytes}/{total_bytes} {elapsed}",
            None => "{spinner} {msg} ({elapsed})",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let bar = bar.with_message(self.what.clone()).with_elapsed(self.since.elapsed());
        bar.set_position(done);
        bar.enable_steady_tick(DRAWN_EVERY);
        bar
    }

    /// So many more bytes were read.
    pub(super) fn advance(&self, bytes: usize) {
        let mut state = self.state();
        state.done += bytes as u64;
        if let Some(bar) = &state.bar {
            bar.set_position(state.done);
        }
        drop(state);
        self.look();
    }

    /// What was said is gone, and nothing more is.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.is_over = true;
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A statement in one short line.
fn shortened(text: &str) -> String {
    let text: Vec<&str> = text.split_whitespace().take(MOST_CHARACTERS).collect();
    let text = text.join(" ");
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_said_with_how_much_of_it_was_read() {
        let said = Busy::new("\\copy t", Some(3 << 20)).line(Duration::from_secs(4), 1 << 20);
        assert_eq!(said, "\\copy t: for 4 s so far, 1.0 MiB of 3.0 MiB");
    }

    #[test]
    fn a_statement_is_said_in_one_short_line() {
        assert_eq!(shortened("create index i\n  on t (a);"), "create index i on t (a);");
        let long = shortened(&"select 1, ".repeat(20));
        assert_eq!(long.chars().count(), MOST_CHARACTERS + 3);
        assert!(long.ends_with("..."));
    }
}
