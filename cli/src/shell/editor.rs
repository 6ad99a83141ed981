//! The line editor of a terminal, in a thread of its own: the shell sees signals meanwhile.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{ColorMode, CompletionType, Config, Context, Helper};

use super::backend::Backend;
use super::complete::{Names, candidates};
use super::error::ShellError;
use super::highlight::highlighted;
use super::history::{HistoryChoice, MOST_ENTRIES, is_secret, prepare};
use super::input::{LOOK_EVERY, Line, Prompt};
use super::statements::{Scan, Statements};
use crate::support::signals::Interrupt;
use crate::support::stderr::complain;

/// What the shell asks of the editor's thread.
enum Ask {
    Line { prompt: String, before: String, is_data: bool },
    Remember(String),
}

/// The line editor.
pub(super) struct Editor {
    /// Taken when the thread is to end.
    asks: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
    lines: Receiver<Result<Line, ReadlineError>>,
    /// How the terminal was before.
    modes: Option<Termios>,
    /// A line was asked for and has not come.
    is_asked: Cell<bool>,
}

impl Editor {
    /// An editor that asks a session for names.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn start(
        session: &Arc<Mutex<Backend>>,
        history: &HistoryChoice,
    ) -> Result<Self, ShellError> {
        let (asks, asked) = channel();
        let (sender, lines) = channel();
        let (session, file) = (Arc::downgrade(session), history.file());
        let edit = move || {
            if let Err(error) = answer(session, file, &asked, &sender) {
                // The shell may have ended meanwhile.
                let _ = sender.send(Err(error));
            }
        };
        let thread = Some(Builder::new().name("editor".to_owned()).spawn(edit)?);
        let modes = tcgetattr(std::io::stdin()).ok();
        Ok(Self { asks: Some(asks), thread, lines, modes, is_asked: Cell::new(false) })
    }

    /// Asks the user for a line.
    ///
    /// # Errors
    /// What the terminal reports, and the signal that asks the process to end.
    pub(super) fn line(
        &self,
        prompt: &Prompt<'_>,
        interrupt: &Interrupt,
    ) -> Result<Line, ShellError> {
        let (text, before) = (prompt.text.to_owned(), prompt.before.to_owned());
        self.ask(Ask::Line { prompt: text, before, is_data: prompt.is_data });
        self.is_asked.set(true);
        loop {
            let line = match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(Ok(line)) => Ok(line),
                Ok(Err(error)) => Err(ShellError::Editor(error.to_string())),
                Err(RecvTimeoutError::Disconnected) => Ok(Line::End),
                Err(RecvTimeoutError::Timeout) => match interrupt.signal() {
                    Some(interrupted) => return Err(interrupted.into()),
                    None => continue,
                },
            };
            self.is_asked.set(false);
            // What Ctrl-C was for has ended.
            interrupt.clear_stop();
            return line;
        }
    }

    /// Keeps what was typed, unless it may hold a password.
    pub(super) fn remember(&self, typed: &str) {
        if !typed.trim().is_empty() && !is_secret(typed) {
            self.ask(Ask::Remember(typed.to_owned()));
        }
    }

    /// If the thread has ended, its last answer says why.
    fn ask(&self, ask: Ask) {
        let _ = self.asks.as_ref().map(|asks| asks.send(ask));
    }
}

impl Drop for Editor {
    /// A thread that waits for a line would leave the terminal as editing needs it; one that does
    /// not has what was typed last to keep.
    fn drop(&mut self) {
        self.asks = None;
        if !self.is_asked.get() {
            // It has no lines for anybody any more: a panic of it changes nothing.
            let _ = self.thread.take().map(JoinHandle::join);
        } else if let Some(modes) = &self.modes {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, modes);
            // The end of bracketed paste.
            let _ = std::io::stdout().write_all(b"\x1b[?2004l\n");
        }
    }
}

type Lines = rustyline::Editor<Assistant, FileHistory>;

/// Answers until nobody asks any more.
fn answer(
    session: Weak<Mutex<Backend>>,
    file: Option<PathBuf>,
    asked: &Receiver<Ask>,
    answers: &Sender<Result<Line, ReadlineError>>,
) -> Result<(), ReadlineError> {
    let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let config = Config::builder()
        .max_history_size(MOST_ENTRIES)?
        .history_ignore_dups(true)?
        .completion_type(CompletionType::List)
        .color_mode(if has_colors { ColorMode::Enabled } else { ColorMode::Disabled })
        .build();
    let history = FileHistory::with_config(&config);
    let mut lines = Lines::with_history(config, history)?;
    lines.set_helper(Some(Assistant::new(session)));
    let file = file.filter(|file| {
        let loaded = prepare(file).map_err(ReadlineError::from);
        let loaded = loaded.and_then(|()| lines.load_history(file));
        if let Err(error) = &loaded {
            complain!("no history is kept: {}: {error}", file.display());
        }
        loaded.is_ok()
    });
    for ask in asked {
        match ask {
            Ask::Line { prompt, before, is_data } => {
                if let Some(own) = lines.helper_mut() {
                    own.begin(before, is_data);
                }
                let line = match lines.readline(&prompt) {
                    Ok(line) => Ok(Line::Text(line.into_bytes())),
                    Err(ReadlineError::Interrupted) => Ok(Line::Cancelled),
                    Err(ReadlineError::Eof) => Ok(Line::End),
                    Err(error) => Err(error),
                };
                if answers.send(line).is_err() {
                    return Ok(());
                }
            }
            Ask::Remember(text) => {
                lines.add_history_entry(text)?;
                let kept = file.as_ref().map_or(Ok(()), |file| lines.append_history(file));
                if let Err(error) = kept {
                    complain!("the history: {error}");
                }
            }
        }
    }
    Ok(())
}

/// Completes and colours what is typed.
struct Assistant {
    /// The shell may end while a line is asked for: then the session ends, too.
    session: Weak<Mutex<Backend>>,
    /// What was typed of the statement in lines before.
    before: String,
    /// What has read that.
    scan: Scan,
    /// The line is data.
    is_data: bool,
    /// The names of the database, as they were last known.
    names: RefCell<Names>,
    /// Whether they are those of now.
    are_known: Cell<bool>,
    files: FilenameCompleter,
}

impl Assistant {
    fn new(session: Weak<Mutex<Backend>>) -> Self {
        Self {
            session,
            before: String::new(),
            scan: Scan::default(),
            is_data: false,
            names: RefCell::default(),
            are_known: Cell::new(false),
            files: FilenameCompleter::new(),
        }
    }

    /// Another line is typed.
    fn begin(&mut self, before: String, is_data: bool) {
        let mut statements = Statements::default();
        if !before.is_empty() {
            statements.add(&before);
        }
        // There is no whole statement in it.
        while statements.next().is_some() {}
        self.scan = statements.scan().behind();
        (self.before, self.is_data) = (before, is_data);
        self.are_known.set(false);
    }

    /// Asks for names once a line: statements may have changed them. In a transaction they are
    /// those that were known before it.
    fn know(&self) {
        if !self.are_known.replace(true) {
            let Some(session) = self.session.upgrade() else { return };
            let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(names) = Names::of(&mut session) {
                *self.names.borrow_mut() = names;
            }
        }
    }
}

impl Helper for Assistant {}
impl Hinter for Assistant {
    type Hint = String;
}
impl Validator for Assistant {}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _pos: usize) -> Cow<'l, str> {
        match self.is_data {
            true => Cow::Borrowed(line),
            false => Cow::Owned(highlighted(line, &self.scan)),
        }
    }

    fn highlight_char(&self, _line: &str, _pos: usize, kind: CmdKind) -> bool {
        !self.is_data && kind != CmdKind::MoveCursor
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _context: &Context<'_>,
    ) -> Result<(usize, Vec<Pair>), ReadlineError> {
        if self.is_data {
            return Ok((pos, Vec::new()));
        }
        let (head, behind) = line.split_at_checked(pos).unwrap_or((line, ""));
        self.know();
        let found = candidates(&self.before, head, behind, &self.names.borrow());
        if found.are_files {
            return self.files.complete_path(line, pos);
        }
        let is_only = found.words.len() == 1;
        let pair = |word: String| {
            let ends = word.ends_with(['(', '.']) || behind.starts_with(' ');
            let space = if is_only && !ends { " " } else { "" };
            Pair { replacement: format!("{word}{space}"), display: word }
        };
        let pairs = found.words.into_iter().map(pair).collect();
        Ok((pos.saturating_sub(found.replaced), pairs))
    }
}
