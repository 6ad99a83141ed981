//! What a statement that takes long is doing, on stderr if that is a terminal.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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

#[derive(Default)]
struct State {
    bar: Option<ProgressBar>,
    done: u64,
    /// Rows have come: nothing more is said.
    is_over: bool,
}

impl Busy {
    /// With a statement, or what is copied out of so many bytes.
    pub(super) fn new(what: &str, total: Option<u64>) -> Self {
        Self { what: shortened(what), since: Instant::now(), total, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what is done, if it takes long.
    pub(super) fn look(&self) {
        let mut state = self.state();
        if state.bar.is_some() || state.is_over || self.since.elapsed() < SHOWN_AFTER {
            return;
        }
        if !std::io::stderr().is_terminal() {
            state.is_over = true;
            return;
        }
        state.bar = Some(self.bar(state.done));
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
    fn a_statement_is_said_in_one_short_line() {
        assert_eq!(shortened("create index i\n  on t (a);"), "create index i on t (a);");
        let long = shortened(&"select 1, ".repeat(20));
        assert_eq!(long.chars().count(), MOST_CHARACTERS + 3);
        assert!(long.ends_with("..."));
    }
}
