//! Progress on stderr: a bar on a terminal, else a line for each fifth of a stage, and at least one
//! in some seconds in which it gets on.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use indicatif::{ProgressBar, ProgressStyle};
use selkie::engine::Roster;
use selkie_tpcc::{Progress, TpccError};

use super::exit;
use super::signals::Interrupt;
use super::waiting::Waiting;

/// Lines a stage may take where there is no terminal.
const LINES: u64 = 5;

/// More lines come so long after the last.
const LONGEST: Duration = Duration::from_secs(10);

const TEMPLATE: &str = "{prefix:>6} [{bar:40}] {percent:>3} % {elapsed_precise}";

/// Shows stages on stderr.
pub(crate) struct Stderr {
    terminal: bool,
    /// What is behind each line, so that those of several processes are told apart.
    label: String,
    stage: Mutex<ProgressStage>,
    roster: Roster,
    began: Arc<OnceLock<SystemTime>>,
    interrupt: Interrupt,
    waiting: Waiting,
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
    /// When a line was written last, and of which part in a hundred.
    told: (Instant, u64),
}

impl Stderr {
    /// SIGINT, SIGTERM and SIGHUP end the measurement while there is one, and else the run.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn mind_signals() -> std::io::Result<Self> {
        Ok(Self { interrupt: Interrupt::mind()?, ..Self::new() })
    }

    pub(crate) fn new() -> Self {
        let (bar, told) = (ProgressBar::hidden(), (Instant::now(), 0));
        let stage = ProgressStage { name: "", bar, total: 0, done: 0, told };
        Self {
            label: String::new(),
            terminal: std::io::stderr().is_terminal(),
            stage: Mutex::new(stage),
            roster: Roster::default(),
            began: Arc::default(),
            interrupt: Interrupt::default(),
            waiting: Waiting::default(),
            is_measuring: AtomicBool::new(false),
            is_shortened: AtomicBool::new(false),
        }
    }

    /// The same with the process behind each line: others may write to the same place.
    pub(crate) fn labelled(self) -> Self {
        Self { label: format!(" (process {})", std::process::id()), ..self }
    }

    /// The signals that ask the run to end.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// When the measurement began, as soon as it has.
    pub(crate) fn began(&self) -> Arc<OnceLock<SystemTime>> {
        Arc::clone(&self.began)
    }

    /// What is waited for now.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Where compute nodes are entered.
    pub(crate) fn nodes(&self) -> &Roster {
        &self.roster
    }

    /// Writes a line to stderr. A closed stderr is no reason to stop.
    fn line(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{text}{}", self.label);
    }

    fn with(&self, change: impl FnOnce(&mut ProgressStage)) {
        // A panic while a number was changed leaves nothing that matters broken.
        let mut stage = self.stage.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut stage);
    }
}

impl Progress for Stderr {
    fn begin(&self, name: &'static str, total: u64) {
        self.waiting.end();
        if name == "run" {
            let _first = self.began.set(SystemTime::now());
            self.is_measuring.store(true, Ordering::SeqCst);
        }
        self.with(|stage| {
            let bar = if self.terminal { ProgressBar::new(total) } else { ProgressBar::hidden() };
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                bar.set_style(style);
            }
            bar.set_prefix(format!("{name}{}", self.label));
            *stage = ProgressStage { name, bar, total, done: 0, told: (Instant::now(), 0) };
            if !self.terminal {
                self.line(&begins(name));
            }
        });
    }

    fn advance(&self, steps: u64) {
        self.with(|stage| {
            stage.done = (stage.done + steps).min(stage.total);
            stage.bar.set_position(stage.done);
            let (at, told) = stage.told;
            let percent = 100 * stage.done / stage.total.max(1);
            let is_due = |percent| percent * LINES / 100 > told * LINES / 100;
            if !self.terminal && percent > told && (is_due(percent) || at.elapsed() >= LONGEST) {
                stage.told = (Instant::now(), percent);
                self.line(&format!("{}: {percent} %", stage.name));
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
        self.line(text);
    }

    fn wait(&self, what: &str) {
        self.waiting.begin(what);
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
