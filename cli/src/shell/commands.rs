//! Runs backslash commands.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::ValueEnum;

use super::arguments::CopyCommand;
use super::busy::Busy;
use super::copy::CopySource;
use super::error::{CommandError, ShellError, error_text};
use super::help;
use super::input::{Input, LOOK_EVERY};
use super::listing::list;
use super::meta::{Typed, Verb};
use super::output::Shown;
use super::run::{Flow, Shell};
use super::sink::Sink;
use super::statements::Statements;
use super::view::{Format, View};

/// Most files that run each other.
const MOST_DEPTH: usize = 16;
/// How often `\watch` runs a statement where nothing else is said.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// The longest time between two runs.
const LONGEST_WATCH: Duration = Duration::from_secs(86_400);

impl Shell {
    /// Runs a command. `statements` has what was typed of a statement before.
    ///
    /// # Errors
    /// If the shell has to end.
    pub(super) fn command(
        &mut self,
        text: &str,
        statements: &mut Statements,
        input: &Input,
    ) -> Result<Flow, ShellError> {
        let done = Typed::of(text).and_then(|typed| self.perform(&typed, statements, input));
        match done {
            Ok(flow) => Ok(flow),
            Err(CommandError::Over(error)) => Err(error),
            Err(error) => {
                let label =
                    if matches!(error, CommandError::Statement { .. }) { "" } else { "error: " };
                self.failed(&format!("{}{label}", input.place()), &error.to_string());
                Ok(Flow::GoesOn)
            }
        }
    }

    fn perform(
        &mut self,
        typed: &Typed<'_>,
        statements: &mut Statements,
        input: &Input,
    ) -> Result<Flow, CommandError> {
        typed.check()?;
        match typed.verb {
            Verb::Quit => return Ok(Flow::Quits),
            Verb::Commands => self.say(&help::commands())?,
            Verb::Statements => {
                let wrong =
                    || CommandError::usage(format!("no statement begins with {}", typed.rest));
                self.say(&help::statements(typed.rest).ok_or_else(wrong)?)?;
            }
            Verb::Go | Verb::GoExpanded => {
                let format = match typed.verb {
                    Verb::GoExpanded => Format::Expanded,
                    _ => self.view.format,
                };
                let view = View { format, ..self.view.clone() };
                let text = self.meant(statements)?;
                self.run_as(&text, &view, input)?;
            }
            Verb::Print => {
                let shown = Some(statements.text().trim()).filter(|text| !text.is_empty());
                let shown = format!("{}\n", shown.unwrap_or(&self.last));
                self.say(&shown)?;
            }
            Verb::Reset => statements.clear(),
            Verb::Watch => self.watch(typed, statements, input)?,
            Verb::Explain => self.explain(typed, statements, input)?,
            Verb::Include => return self.include(typed),
            Verb::Output => self.output(typed)?,
            Verb::Copy => self.copy(typed, input)?,
            Verb::Echo => self.say(&format!("{}\n", typed.words().join(" ")))?,
            Verb::Format | Verb::Expanded | Verb::Timing | Verb::Set => self.set(typed, input)?,
            Verb::Describe
            | Verb::Relations(_)
            | Verb::Roles
            | Verb::Databases
            | Verb::Schemas
            | Verb::Functions
            | Verb::Privileges => list(self, typed)?,
        }
        Ok(Flow::GoesOn)
    }

    /// Shows text where results go.
    ///
    /// # Errors
    /// What the system reports, and that nobody reads it.
    pub(super) fn say(&self, text: &str) -> Result<(), CommandError> {
        let said = self.sink.text(text).and_then(|()| self.sink.flush());
        said.map_err(|error| CommandError::File { file: "the output".to_owned(), error })?;
        match self.sink.is_unread() {
            true => Err(ShellError::Unread.into()),
            false => Ok(()),
        }
    }

    /// What was typed of a statement, or else the last one.
    pub(super) fn meant(&self, statements: &mut Statements) -> Result<String, CommandError> {
        let text = statements.take().unwrap_or_else(|| self.last.clone());
        match text.is_empty() {
            true => Err(CommandError::usage("there is no statement yet")),
            false => Ok(text),
        }
    }

    fn set(&mut self, typed: &Typed<'_>, input: &Input) -> Result<(), CommandError> {
        let word = typed.words();
        let word: Vec<&str> = word.iter().map(String::as_str).collect();
        let said = match (typed.verb, &word[..]) {
            (Verb::Timing, _) => {
                self.view.timing = typed.switch(self.view.timing)?;
                format!("Timing is {}.", if self.view.timing { "on" } else { "off" })
            }
            (Verb::Expanded, ["auto"]) => {
                (self.view.format, self.view.expands_wide) = (Format::Table, true);
                "Expanded display is used automatically.".to_owned()
            }
            (Verb::Expanded, _) => {
                let is_on = typed.switch(self.view.format == Format::Expanded)?;
                self.view.expands_wide = false;
                self.view.format = match (is_on, self.view.format) {
                    (true, _) => Format::Expanded,
                    (false, Format::Expanded) => Format::Table,
                    (false, format) => format,
                };
                format!("Expanded display is {}.", if is_on { "on" } else { "off" })
            }
            (Verb::Set, ["null", text]) => {
                (*text).clone_into(&mut self.view.null);
                format!("Null display is \"{text}\".")
            }
            (Verb::Format, [name]) => {
                self.view.format = Format::from_str(name, false).map_err(|_| typed.wrong())?;
                format!("Format is {name}.")
            }
            (Verb::Format, []) => {
                return self.say(&format!("Format is {}.\n", self.view.format.name()));
            }
            (Verb::Set, []) => {
                return self.say(&format!("Null display is \"{}\".\n", self.view.null));
            }
            _ => return Err(typed.wrong()),
        };
        // A script wants nothing between its rows.
        if input.is_typed() {
            self.say(&format!("{said}\n"))?;
        }
        Ok(())
    }

    fn include(&mut self, typed: &Typed<'_>) -> Result<Flow, CommandError> {
        let path = typed.word()?.ok_or_else(|| typed.wrong())?;
        if self.is_typed && path == "-" {
            return Err(CommandError::usage("statements are typed on the standard input"));
        }
        if self.depth >= MOST_DEPTH {
            let message = format!("{path}: more than {MOST_DEPTH} files run each other");
            return Err(CommandError::usage(message));
        }
        self.depth += 1;
        let fed = self.file(Path::new(&path));
        self.depth -= 1;
        match fed {
            Err(ShellError::File { file, error }) => Err(CommandError::File { file, error }),
            // \q in a file ends that file.
            fed => fed.map(|_| Flow::GoesOn).map_err(CommandError::from),
        }
    }

    fn output(&mut self, typed: &Typed<'_>) -> Result<(), CommandError> {
        let path = typed.word()?;
        if typed.rest.starts_with('|') {
            return Err(CommandError::usage("\\o takes a file, no program"));
        }
        let gone = self.sink.go_to(path.as_deref().map(Path::new));
        gone.map_err(|error| CommandError::File { file: path.unwrap_or_default(), error })
    }

    fn watch(
        &mut self,
        typed: &Typed<'_>,
        statements: &mut Statements,
        input: &Input,
    ) -> Result<(), CommandError> {
        let (mut every, mut left) = (WATCH_EVERY, None);
        for word in typed.words() {
            match word.split_once('=') {
                Some(("c" | "count", text)) => {
                    left = Some(text.parse::<u64>().map_err(|_| typed.wrong())?);
                }
                Some(("i" | "interval", text)) => {
                    every = seconds(text).ok_or_else(|| typed.wrong())?
                }
                _ => every = seconds(&word).ok_or_else(|| typed.wrong())?,
            }
        }
        let text = self.meant(statements)?;
        while left != Some(0) {
            if self.view.format.is_for_people() {
                let now = humantime::format_rfc3339_seconds(SystemTime::now());
                self.say(&format!("{now} (every {})\n\n", humantime::format_duration(every)))?;
            }
            if !self.run(&text, input)? {
                return Ok(());
            }
            left = left.map(|left| left - 1);
            let until = Instant::now() + every;
            while left != Some(0) && Instant::now() < until {
                std::thread::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
                if let Some(interrupted) = self.interrupt().signal() {
                    return Err(ShellError::from(interrupted).into());
                }
                if self.interrupt().is_stopped() {
                    break;
                }
            }
            if self.interrupt().is_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn copy(&mut self, typed: &Typed<'_>, input: &Input) -> Result<(), CommandError> {
        let command = CopyCommand::of(typed.rest).ok_or_else(|| typed.wrong())?;
        let name = command.file.clone().unwrap_or_default();
        let failed = |error| CommandError::File { file: name.clone(), error };
        let label = format!("\\copy {name}");
        let data = Sink::default();
        let shown = |shell: &Self, busy: &Arc<Busy>, source| {
            Shown::new(&shell.view, &shell.sink, busy, source)
        };
        let (busy, source, shown) = match (&command.file, command.is_in) {
            (Some(file), true) => {
                let path = Path::new(file);
                let opened = File::open(path).map_err(failed)?;
                let about = opened.metadata().map_err(failed)?;
                if about.is_dir() {
                    return Err(CommandError::usage(format!("{file} is a directory")));
                }
                // A pipe does not say how much will come.
                let total = about.is_file().then_some(about.len());
                let busy = Arc::new(Busy::new(&label, total));
                let source = Some(Arc::new(CopySource::file(opened, path, &busy)));
                let shown = shown(self, &busy, source.clone());
                (busy, source, shown)
            }
            (None, true) => {
                let busy = Arc::new(Busy::new(&label, None));
                let source = Some(Arc::new(CopySource::lines(input)));
                let shown = shown(self, &busy, source.clone());
                (busy, source, shown)
            }
            (file, false) => {
                let busy = Arc::new(Busy::new(&label, None));
                let shown = shown(self, &busy, None);
                match file {
                    Some(file) => {
                        data.go_to(Some(Path::new(file))).map_err(failed)?;
                        (busy, None, shown.with_data(&data))
                    }
                    None => (busy, None, shown),
                }
            }
        };
        let ran = self.execute(&command.sql, shown, &busy)?;
        data.flush().map_err(failed)?;
        if let Err(error) = ran {
            self.failed(&input.place(), &error_text(&command.sql, &error));
            if let Some(source) = source {
                source.drain();
            }
        }
        Ok(())
    }
}

/// A time in seconds, which may be a fraction.
fn seconds(text: &str) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (time <= LONGEST_WATCH).then_some(time)
}
