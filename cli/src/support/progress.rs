//! Progress on stderr: a bar on a terminal, else a line for each fifth of a stage.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use indicatif::{ProgressBar, ProgressStyle};
use selkie::engine::Roster;
use selkie_tpcc::Progress;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Lines a stage may take where there is no terminal.
const LINES: u64 = 5;

const TEMPLATE: &str = "{prefix:>6} [{bar:40}] {percent:>3} % {elapsed_precise}";

/// Shows stages on stderr.
pub(crate) struct Stderr {
    terminal: bool,
    stage: Mutex<ProgressStage>,
    roster: Roster,
    began: Arc<OnceLock<SystemTime>>,
    /// Whether a signal ends the process, as by default.
    ends: Arc<AtomicBool>,
    /// It was told by a signal to end the measurement.
    over: Arc<AtomicBool>,
}

struct ProgressStage {
    name: &'static str,
    bar: ProgressBar,
    total: u64,
    done: u64,
}

impl Stderr {
    pub(crate) fn new() -> Self {
        let stage = ProgressStage { name: "", bar: ProgressBar::hidden(), total: 0, done: 0 };
        Self {
            terminal: std::io::stderr().is_terminal(),
            stage: Mutex::new(stage),
            roster: Roster::default(),
            began: Arc::default(),
            ends: Arc::new(AtomicBool::new(true)),
            over: Arc::default(),
        }
    }

    /// Has SIGINT and SIGTERM end the measurement while there is one, instead of the process.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn mind_signals(&self) -> std::io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&self.ends))?;
            flag::register(signal, Arc::clone(&self.over))?;
        }
        Ok(())
    }

    /// When the measurement began, as soon as it has.
    pub(crate) fn began(&self) -> Arc<OnceLock<SystemTime>> {
        Arc::clone(&self.began)
    }

    /// Where compute nodes are entered.
    pub(crate) fn nodes(&self) -> &Roster {
        &self.roster
    }

    fn with(&self, change: impl FnOnce(&mut ProgressStage)) {
        // A panic while a number was changed leaves nothing that matters broken.
        let mut stage = self.stage.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut stage);
    }
}

impl Progress for Stderr {
    fn begin(&self, name: &'static str, total: u64) {
        if name == "run" {
            let _first = self.began.set(SystemTime::now());
            self.ends.store(false, Ordering::SeqCst);
        }
        self.with(|stage| {
            let bar = if self.terminal { ProgressBar::new(total) } else { ProgressBar::hidden() };
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                bar.set_style(style);
            }
            bar.set_prefix(name);
            *stage = ProgressStage { name, bar, total, done: 0 };
            if !self.terminal {
                line(&begins(name));
            }
        });
    }

    fn advance(&self, steps: u64) {
        self.with(|stage| {
            let before = stage.done;
            stage.done = (before + steps).min(stage.total);
            stage.bar.set_position(stage.done);
            let part = |done: u64| done * LINES / stage.total.max(1);
            if !self.terminal && part(before) < part(stage.done) {
                line(&format!("{}: {} %", stage.name, 100 * stage.done / stage.total.max(1)));
            }
        });
    }

    fn end(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.with(|stage| stage.bar.finish_and_clear());
    }

    fn note(&self, text: &str) {
        line(text);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn roster(&self) -> Option<&Roster> {
        Some(&self.roster)
    }
}

/// The line that says that a stage begins.
pub(crate) fn begins(stage: &str) -> String {
    format!("{stage}: 0 %")
}

/// Writes a line to stderr. A closed stderr is no reason to stop.
fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
