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
    state: Mutex<State>,
}

/// What is known of how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing.
    Unknown,
    /// Bytes that were read or written; and of how many, if it is a file that is read.
    Bytes { done: u64, total: Option<u64> },
    /// Rows of about so many.
    Rows { done: u64, total: u64 },
}

struct State {
    notice: WaitNotice,
    bar: Option<ProgressBar>,
    progress: Progress,
    /// Rows have come: nothing more is said.
    is_over: bool,
}

impl Busy {
    /// With a statement, or what is copied out of so many bytes.
    pub(super) fn new(what: &str, total: Option<u64>) -> Self {
        let notice = WaitNotice::new(Duration::ZERO);
        let progress = match total {
            Some(_) => Progress::Bytes { done: 0, total },
            None => Progress::Unknown,
        };
        let state = Mutex::new(State { notice, bar: None, progress, is_over: false });
        Self { what: shortened(what), since: Instant::now(), state }
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
            state.bar = Some(self.bar(state.progress));
        } else if let Some(passed) = state.notice.due(passed) {
            tracing::info!(target: NOTICE, "{}", self.line(passed, state.progress));
        }
    }

    /// What is said where there is no terminal.
    fn line(&self, passed: Duration, progress: Progress) -> String {
        let begin = format!("{}: for {} s so far", self.what, passed.as_secs());
        match progress {
            Progress::Bytes { done, total: Some(total) } => {
                format!("{begin}, {} of {}", units::bytes(done), units::bytes(total))
            }
            Progress::Bytes { done, total: None } => format!("{begin}, {}", units::bytes(done)),
            Progress::Rows { done, total } => format!("{begin}, {done} of about {total} rows"),
            Progress::Unknown => format!(
                "{begin}; a wait for what others have locked ends with their transactions, or by \
                 lock_timeout"
            ),
        }
    }

    fn bar(&self, progress: Progress) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let bar = bar.with_message(self.what.clone()).with_elapsed(self.since.elapsed());
        style(&bar, progress);
        draw(&bar, progress);
        bar.enable_steady_tick(DRAWN_EVERY);
        bar
    }

    /// So many more bytes were read or written.
    pub(super) fn advance(&self, bytes: usize) {
        let (done, total) = match self.state().progress {
            Progress::Bytes { done, total } => (done, total),
            _ => (0, None),
        };
        self.note(Progress::Bytes { done: done + bytes as u64, total });
        self.look();
    }

    /// So many rows are done, of about so many.
    pub(super) fn count_rows(&self, done: u64, total: u64) {
        self.note(Progress::Rows { done, total: total.max(done) });
    }

    fn note(&self, progress: Progress) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.progress, progress);
        if let Some(bar) = &state.bar {
            if std::mem::discriminant(&before) != std::mem::discriminant(&progress) {
                style(bar, progress);
            }
            draw(bar, progress);
        }
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

/// How a bar looks.
fn style(bar: &ProgressBar, progress: Progress) {
    let template = match progress {
        Progress::Bytes { total: Some(_), .. } => {
            "{msg} [{bar:40}] {percent:>3} % {bytes}/{total_bytes} {elapsed}"
        }
        Progress::Bytes { total: None, .. } => "{spinner} {msg} {bytes} ({elapsed})",
        Progress::Rows { .. } => {
            "{msg} [{bar:40}] {percent:>3} % {human_pos}/{human_len} rows {elapsed}"
        }
        Progress::Unknown => "{spinner} {msg} ({elapsed})",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// How far a bar is.
fn draw(bar: &ProgressBar, progress: Progress) {
    let (done, total) = match progress {
        Progress::Unknown => return,
        Progress::Bytes { done, total } => (done, total),
        Progress::Rows { done, total } => (done, Some(total)),
    };
    if let Some(total) = total {
        bar.set_length(total);
    }
    bar.set_position(done);
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
        let busy = Busy::new("\\copy t", Some(3 << 20));
        busy.advance(1 << 20);
        let said = busy.line(Duration::from_secs(4), busy.state().progress);
        assert_eq!(said, "\\copy t: for 4 s so far, 1.0 MiB of 3.0 MiB");
    }

    #[test]
    fn a_statement_is_said_with_how_many_rows_or_bytes_are_done() {
        let busy = Busy::new("create index i on t (a)", None);
        let said = || busy.line(Duration::from_secs(2), busy.state().progress);
        assert!(said().contains("a wait for what others have locked"), "{}", said());
        busy.count_rows(256, 1_000);
        assert_eq!(said(), "create index i on t (a): for 2 s so far, 256 of about 1000 rows");
        // The estimate was too low.
        busy.count_rows(1_500, 1_000);
        assert!(said().ends_with("1500 of about 1500 rows"), "{}", said());
        let busy = Busy::new("\\copy t", None);
        busy.advance(1 << 20);
        busy.advance(1 << 20);
        let said = busy.line(Duration::from_secs(2), busy.state().progress);
        assert_eq!(said, "\\copy t: for 2 s so far, 2.0 MiB");
    }

    #[test]
    fn a_statement_is_said_in_one_short_line() {
        assert_eq!(shortened("create index i\n  on t (a);"), "create index i on t (a);");
        let long = shortened(&"select 1, ".repeat(20));
        assert_eq!(long.chars().count(), MOST_CHARACTERS + 3);
        assert!(long.ends_with("..."));
    }
}
