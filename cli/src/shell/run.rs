//! The shell: runs what comes from an input, piece by piece.

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use selkie_sql::TransactionState;

use super::backend::{Answer, Backend};
use super::busy::Busy;
use super::copy::CopySource;
use super::editor::Editor;
use super::error::{CommandError, ShellError, error_text};
use super::history::{HistoryChoice, is_secret};
use super::input::{Input, Line, Prompt};
use super::output::Shown;
use super::sink::{Sink, mention};
use super::statements::{Piece, Statements, has_command};
use super::view::{Format, View};
use crate::support::signals::Interrupt;
use crate::wire::Report;

/// What a shell is to be like.
pub(crate) struct ShellOptions {
    pub(crate) format: Format,
    pub(crate) null: Option<String>,
    pub(crate) timing: bool,
    pub(crate) keep_going: bool,
    pub(crate) history: HistoryChoice,
}

/// Whether the shell goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoesOn,
    Quits,
}

/// The shell.
pub(crate) struct Shell {
    backend: Arc<Mutex<Backend>>,
    interrupt: Interrupt,
    keep_going: bool,
    history: HistoryChoice,
    /// The lines of the standard input, for all who read them.
    stdin: Input,
    failures: usize,
    pub(super) view: View,
    pub(super) sink: Sink,
    /// The last statement.
    pub(super) last: String,
    /// Files that are within each other.
    pub(super) depth: usize,
    /// A user types on the standard input.
    pub(super) is_typed: bool,
}

pub(super) fn locked(backend: &Mutex<Backend>) -> MutexGuard<'_, Backend> {
    // A statement that panicked has ended the process.
    backend.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shell {
    /// A shell for a session.
    pub(crate) fn new(backend: Backend, interrupt: &Interrupt, options: ShellOptions) -> Self {
        let mut view = View::new(options.format, options.timing);
        view.null = options.null.unwrap_or_default();
        Self {
            backend: Arc::new(Mutex::new(backend)),
            interrupt: interrupt.clone(),
            keep_going: options.keep_going,
            history: options.history,
            stdin: Input::stdin(interrupt),
            failures: 0,
            view,
            sink: Sink::default(),
            last: String::new(),
            depth: 0,
            is_typed: false,
        }
    }

    /// Whether nothing has failed.
    pub(crate) fn is_fine(&self) -> bool {
        self.failures == 0
    }

    /// Whether something has failed, and nothing more is to be run.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_fine() && !self.keep_going
    }

    pub(super) fn backend(&self) -> &Mutex<Backend> {
        &self.backend
    }

    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    pub(super) fn state(&self) -> TransactionState {
        locked(&self.backend).state()
    }

    /// Runs a text of the command line: its statements are one transaction, unless there are
    /// commands between them.
    ///
    /// # Errors
    /// If the shell has to end.
    pub(crate) fn text(&mut self, text: &str) -> Result<Flow, ShellError> {
        if has_command(text) {
            return self.feed(&Input::text(text, &self.interrupt));
        }
        self.run(text, &self.stdin.clone())?;
        self.keeps_connection(&self.stdin)?;
        Ok(Flow::GoesOn)
    }

    /// Runs a file; `-` is the standard input.
    ///
    /// # Errors
    /// If it cannot be read, or the shell has to end.
    pub(crate) fn file(&mut self, path: &Path) -> Result<Flow, ShellError> {
        let input = match path.as_os_str() == "-" {
            true => self.stdin.clone(),
            false => Input::file(path, &self.interrupt)?,
        };
        self.feed(&input)
    }

    /// Runs what a user types on this terminal.
    ///
    /// # Errors
    /// If the shell has to end.
    pub(crate) fn typed(&mut self) -> Result<Flow, ShellError> {
        self.is_typed = true;
        self.greet();
        let editor = Editor::start(&self.backend, &self.history)?;
        self.feed(&Input::editor(editor, &self.interrupt))
    }

    /// Runs all statements and commands of an input, each when it is complete.
    ///
    /// # Errors
    /// If the shell has to end.
    fn feed(&mut self, input: &Input) -> Result<Flow, ShellError> {
        let (mut statements, mut typed) = (Statements::default(), String::new());
        let failures = self.failures;
        let stops = |own: &Self| own.failures > failures && !own.keep_going && !input.is_typed();
        loop {
            while let Some(piece) = statements.next() {
                match piece {
                    Piece::Statement(_) if !self.is_ready(input)? => {
                        self.failures += 1;
                        statements.clear();
                        continue;
                    }
                    Piece::Statement(text) => {
                        self.run(&text, input)?;
                    }
                    Piece::Command(text) => {
                        if self.command(&text, &mut statements, input)? == Flow::Quits {
                            input.remember(&typed);
                            return Ok(Flow::Quits);
                        }
                    }
                }
                // What was typed behind it was meant for the session that is gone.
                let has_kept = self.keeps_connection(input)?;
                match self.interrupt.is_stopped() || !has_kept {
                    true if input.is_typed() => statements.clear(),
                    true => return Ok(Flow::GoesOn),
                    false if stops(self) => return Ok(Flow::GoesOn),
                    false => {}
                }
            }
            if statements.is_between() {
                input.remember(&typed);
                typed.clear();
            }
            let text = prompt(&statements, &locked(&self.backend));
            let prompt = Prompt { text: &text, before: statements.text(), is_data: false };
            match input.next(&prompt)? {
                Line::Text(line) => {
                    let line = String::from_utf8(line).map_err(|_| {
                        input.unread(Error::new(ErrorKind::InvalidData, "this is not UTF-8"))
                    })?;
                    if input.is_typed() {
                        typed = if typed.is_empty() { line.clone() } else { typed + "\n" + &line };
                    }
                    statements.add(&line);
                }
                Line::Cancelled => {
                    statements.clear();
                    typed.clear();
                }
                Line::End => {
                    input.remember(&typed);
                    break;
                }
            }
        }
        match statements.take() {
            // What a user has not ended is not meant.
            Some(rest) if !input.is_typed() => {
                self.run(&rest, input)?;
                self.keeps_connection(input)?;
                Ok(Flow::GoesOn)
            }
            _ => Ok(Flow::GoesOn),
        }
    }

    /// Runs statements and shows what they give. Whether they succeeded.
    ///
    /// # Errors
    /// If the shell has to end.
    pub(super) fn run(&mut self, text: &str, input: &Input) -> Result<bool, ShellError> {
        let view = self.view.clone();
        self.run_as(text, &view, input)
    }

    /// As [`run`](Self::run), with another view.
    ///
    /// # Errors
    /// If the shell has to end.
    pub(super) fn run_as(
        &mut self,
        text: &str,
        view: &View,
        input: &Input,
    ) -> Result<bool, ShellError> {
        text.clone_into(&mut self.last);
        let source = Arc::new(CopySource::lines(input));
        let told = if is_secret(text) { "a statement with a password" } else { text };
        let busy = Arc::new(Busy::new(told, None));
        let shown = Shown::new(&self.fitted(view), &self.sink, &busy, Some(Arc::clone(&source)));
        let ran = self.execute(text, shown, &busy)?;
        let is_fine = ran.is_ok();
        if let Err(error) = ran {
            self.failed(&input.place(), &error_text(text, &error));
            source.drain();
        }
        Ok(is_fine)
    }

    /// A view as it is on the terminal as it is now.
    fn fitted(&self, view: &View) -> View {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let width = size.ok().filter(|_| self.sink.is_terminal());
        View { width: width.map(|size| size.ws_col.into()), ..view.clone() }
    }

    /// Runs statements, and gives what they give to a client.
    ///
    /// # Errors
    /// The signal that asks the process to end, or that nobody reads what is given; within it,
    /// those of a statement, and what was not written.
    #[expect(clippy::result_large_err, reason = "one error a statement, which is shown then")]
    pub(super) fn execute(
        &self,
        text: &str,
        shown: Shown,
        busy: &Arc<Busy>,
    ) -> Result<Result<(), Report>, ShellError> {
        let shown = Arc::new(shown);
        let started = Instant::now();
        let looks = || {
            busy.look();
            self.interrupt.is_stopped()
        };
        let ran = locked(&self.backend).run(text, &shown, busy, &self.interrupt, looks);
        let took = started.elapsed();
        busy.clear();
        shown.mention_notices();
        let ran = ran?;
        if self.view.timing {
            mention(&format!("Time: {:.3} ms", took.as_secs_f64() * 1e3));
        }
        match self.interrupt.signal() {
            Some(interrupted) => Err(interrupted.into()),
            None if self.sink.is_unread() => Err(ShellError::Unread),
            None => Ok(ran.and_then(|()| shown.take_lost().map_or(Ok(()), |own| Err(own.into())))),
        }
    }

    /// Runs a statement of the shell's own, and gives what it gives.
    ///
    /// # Errors
    /// Those of the statement, and the signal that asks the process to end.
    pub(super) fn ask(&self, sql: &str) -> Result<Answer, CommandError> {
        self.ask_until(sql, || self.interrupt.is_stopped())
    }

    /// Runs a statement of the shell's own that Ctrl-C does not cancel.
    ///
    /// # Errors
    /// Those of the statement, and the signal that asks the process to end.
    pub(super) fn settle(&self, sql: &str) -> Result<(), CommandError> {
        self.ask_until(sql, || false).map(drop)
    }

    fn ask_until(&self, sql: &str, is_stopped: impl Fn() -> bool) -> Result<Answer, CommandError> {
        let ran = locked(&self.backend).ask(sql, &self.interrupt, is_stopped);
        let ran = ran.map_err(|interrupted| CommandError::Over(interrupted.into()))?;
        ran.map_err(|error| CommandError::statement(sql, &error))
    }

    /// Tells of what failed at a place of an input.
    pub(super) fn failed(&mut self, place: &str, what: &str) {
        mention(&format!("{place}{what}"));
        self.failures += 1;
    }
}

/// What asks for the next line.
fn prompt(statements: &Statements, backend: &Backend) -> String {
    let state = match backend.state() {
        TransactionState::Idle => "",
        TransactionState::InTransaction => "*",
        TransactionState::Failed => "!",
    };
    format!("{}{}{state}> ", backend.database(), statements.mark())
}
