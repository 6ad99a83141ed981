//! Progress on stderr: a bar on a terminal, else a line for each fifth of a stage.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use indicatif::{ProgressBar, ProgressStyle};
use selkie::engine::Roster;
use selkie_tpcc::{Progress, TpccError};

use super::exit;
use super::signals::Interrupt;

/// Lines a stage may take where there is no terminal.
const LINES: u64 = 5;

const TEMPLATE: &str = "{prefix:>6} [{bar:40}] {percent:>3} % {elapsed_precise}";

/// Shows stages on stderr.
pub(crate) struct Stderr {
    terminal: bool,
    stage: Mutex<ProgressStage>,
    roster: Roster,
    began: Arc<OnceLock<SystemTime>>,
    interrupt: Interrupt,
    /// A signal ends the measurement now, and not the whole run.
    is_measuring: AtomicBool,
    /// One has: the run goes on with its check.
    is_shortened: AtomicBool,
}

struct ProgressStage {
    name: &'static str,
    bar: ProgressBar,
    total: u64,
    done: u64,
}

impl Stderr {
    /// SIGINT and SIGTERM end the measurement while there is one, and else the run.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn mind_signals() -> std::io::Result<Self> {
        Ok(Self { interrupt: Interrupt::mind()?, ..Self::new() })
    }

    pub(crate) fn new() -> Self {
        let stage = ProgressStage { name: "", bar: ProgressBar::hidden(), total: 0, done: 0 };
        Self {
            terminal: std::io::stderr().is_terminal(),
            stage: Mutex::new(stage),
            roster: Roster::default(),
            began: Arc::default(),
            interrupt: Interrupt::default(),
            is_measuring: AtomicBool::new(false),
            is_shortened: AtomicBool::new(false),
        }
    }

    /// The signals that ask the run to end.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
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
            self.is_measuring.store(true, Ordering::SeqCst);
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
        if self.is_measuring.swap(false, Ordering::SeqCst) && self.interrupt.signal().is_some() {
            self.is_shortened.store(true, Ordering::SeqCst);
        }
        self.with(|stage| stage.bar.finish_and_clear());
    }

    fn note(&self, text: &str) {
        line(text);
    }

    fn is_over(&self) -> bool {
        self.interrupt.signal().is_some()
    }

    fn can_be_interrupted(&self) -> bool {
        true
    }

    fn is_interrupted(&self) -> bool {
        let is_spent =
            self.is_measuring.load(Ordering::SeqCst) || self.is_shortened.load(Ordering::SeqCst);
        self.interrupt.signal().is_some() && !is_spent
    }

    fn roster(&self) -> Option<&Roster> {
        Some(&self.roster)
    }
}

/// Says on stderr why a driver failed, or that a signal has ended it.
pub(crate) fn fail_driver(interrupt: &Interrupt, error: &TpccError) -> ExitCode {
    match (error, interrupt.signal()) {
        (TpccError::Interrupted, Some(interrupted)) => interrupted.end(),
        _ => exit::fail_driver(error),
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
