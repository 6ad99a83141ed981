//! Where lines of the shell come from: the command line, a file, the standard input, or the editor
//! of a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::editor::Editor;
use super::error::ShellError;
use crate::support::signals::Interrupt;
use crate::support::stderr;

/// How often a signal is looked for while nothing is typed.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A line that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without its line feed, and else as it is.
    Text(Vec<u8>),
    /// There are no more.
    End,
    /// The user wants none of what was typed.
    Cancelled,
}

/// What asks for a line on a terminal.
#[derive(Clone, Copy)]
pub(super) struct Prompt<'p> {
    pub(super) text: &'p str,
    /// What has come of the statement before.
    pub(super) before: &'p str,
    /// Whether the line is data: nothing is completed, or kept.
    pub(super) is_data: bool,
}

/// Where lines come from. Clones share them.
#[derive(Clone)]
pub(super) struct Input {
    /// What errors name with the number of the line.
    name: Option<Arc<str>>,
    lines: Arc<Mutex<Lines>>,
    interrupt: Interrupt,
}

struct Lines {
    source: Source,
    count: usize,
}

enum Source {
    Text(std::vec::IntoIter<Vec<u8>>),
    File(BufReader<File>),
    Stdin { lines: Option<Receiver<std::io::Result<Vec<u8>>>>, asks: bool },
    Editor(Box<Editor>),
}

impl Input {
    fn new(name: Option<&str>, source: Source, interrupt: &Interrupt) -> Self {
        let lines = Arc::new(Mutex::new(Lines { source, count: 0 }));
        Self { name: name.map(Arc::from), lines, interrupt: interrupt.clone() }
    }

    /// The lines of a text.
    pub(super) fn text(text: &str, interrupt: &Interrupt) -> Self {
        let mut text = text.as_bytes();
        let mut lines = Vec::new();
        while let Ok(Some(line)) = line_of(&mut text) {
            lines.push(line);
        }
        Self::new(None, Source::Text(lines.into_iter()), interrupt)
    }

    /// The lines of a file.
    ///
    /// # Errors
    /// The file, and what the system reports of it.
    pub(super) fn file(path: &Path, interrupt: &Interrupt) -> Result<Self, ShellError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self::new(Some(&name), Source::File(BufReader::new(file)), interrupt)),
            Err(error) => Err(ShellError::File { file: name, error }),
        }
    }

    /// The lines of the standard input. Nothing is read before the first is asked for; then all
    /// that is read goes to this input and its clones.
    pub(super) fn stdin(interrupt: &Interrupt) -> Self {
        let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self::new(None, Source::Stdin { lines: None, asks }, interrupt)
    }

    /// What is typed on a terminal.
    pub(super) fn editor(editor: Editor, interrupt: &Interrupt) -> Self {
        Self::new(None, Source::Editor(Box::new(editor)), interrupt)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a user types, who goes on behind an error.
    pub(super) fn is_typed(&self) -> bool {
        match &self.lines().source {
            Source::Editor(_) => true,
            Source::Stdin { asks, .. } => *asks,
            _ => false,
        }
    }

    /// Where its last line is, as errors name it; nothing of what was typed.
    pub(super) fn place(&self) -> String {
        match &self.name {
            Some(name) => format!("{name}:{}: ", self.lines().count),
            None => String::new(),
        }
    }

    /// The next line.
    ///
    /// # Errors
    /// What cannot be read, or the signal that asks the process to end.
    pub(super) fn next(&self, prompt: &Prompt<'_>) -> Result<Line, ShellError> {
        let mut lines = self.lines();
        lines.count += 1;
        let interrupt = &self.interrupt;
        match &mut lines.source {
            Source::Text(texts) => Ok(texts.next().map_or(Line::End, Line::Text)),
            Source::File(reader) => {
                let line = line_of(reader).map_err(|error| self.unread(error))?;
                Ok(line.map_or(Line::End, Line::Text))
            }
            Source::Stdin { lines, asks } => {
                if *asks {
                    stderr::write(prompt.text);
                }
                match lines {
                    Some(lines) => waited(lines, interrupt),
                    None => waited(lines.insert(stdin_lines()?), interrupt),
                }
            }
            Source::Editor(editor) => editor.line(prompt, interrupt),
        }
    }

    /// That it cannot be read.
    pub(super) fn unread(&self, error: std::io::Error) -> ShellError {
        match &self.name {
            Some(name) => ShellError::File { file: name.to_string(), error },
            None => ShellError::Input(error),
        }
    }

    /// Keeps what was typed in the history.
    pub(super) fn remember(&self, typed: &str) {
        if let Source::Editor(editor) = &self.lines().source {
            editor.remember(typed);
        }
    }
}

/// The next line without its line feed; what else ends it is part of a value, perhaps.
fn line_of(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let count = reader.read_until(b'\n', &mut line)?;
    line.pop_if(|last| *last == b'\n');
    Ok((count > 0).then_some(line))
}

/// The lines of the standard input, which another thread reads: a read ends for no signal.
fn stdin_lines() -> std::io::Result<Receiver<std::io::Result<Vec<u8>>>> {
    let (sender, lines) = sync_channel(1);
    let read = move || {
        let mut stdin = std::io::stdin().lock();
        while let Some(line) = line_of(&mut stdin).transpose() {
            let has_failed = line.is_err();
            if sender.send(line).is_err() || has_failed {
                return;
            }
        }
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(read)?;
    Ok(lines)
}

/// Waits for a line or for a signal.
fn waited(
    lines: &Receiver<std::io::Result<Vec<u8>>>,
    interrupt: &Interrupt,
) -> Result<Line, ShellError> {
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => return Ok(Line::Text(line?)),
            Err(RecvTimeoutError::Disconnected) => return Ok(Line::End),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(interrupted) = interrupt.signal() {
                    return Err(interrupted.into());
                }
            }
        }
    }
}
