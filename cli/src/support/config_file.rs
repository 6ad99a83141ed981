//! Configuration files: options of commands, read by the definition of the command line.
//!
//! A file has a section for each command and in it a key for each option:
//! ```toml
//! [pool.create]
//! memory-nodes = 3
//! [tpcc]
//! warehouses = 2
//! json = true
//! ```
//! There is no second list of options. The sections and keys are those of clap's definition of the
//! command line, and an entry is turned into the argument that says the same (`--warehouses=2`), so
//! that whatever holds for arguments holds for entries: what is allowed, what is needed, what
//! excludes what. Entries of the chosen command are put behind the user's arguments, but for those
//! that the user gave, or that exclude or are excluded by what the user gave. A switch that a file
//! turns on cannot be turned off by an argument.
//!
//! Every use of a file looks at all of its sections, so that a mistake does not wait for the day on
//! which its command is run. `selkie config check` also applies the checks that commands make of
//! values together.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Parser};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::exit::Refusal;

/// Commands that have no section.
const WITHOUT_SECTION: [&str; 4] = ["config", "help", "completions", "man"];
/// How alike two words are of which one may be meant for the other, 0 to 1; as clap has it.
const ALIKE: f64 = 0.7;

/// A command line that can look at its values together.
pub(crate) trait Checked: Parser {
    /// Looks for values out of range, and for values that contradict each other, without starting
    /// anything.
    fn check(&self) -> Result<(), Refusal>;
}

/// Why a configuration file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// A place in it is wrong.
    #[error("{}:{line}: {what}", path.display())]
    Mistake { path: PathBuf, line: usize, what: String },
    /// It does not go together with the arguments.
    #[error("{what} (with the entries of {}: {entries})", path.display())]
    Arguments { path: PathBuf, entries: String, what: String },
}

/// Looks for the first mistake in a file.
pub(crate) fn check<C: Checked>(path: &Path) -> Result<(), ConfigError> {
    ConfigFile::read::<C>(path)?.check::<C>()
}

/// Parses the arguments (the first is the program's name) with the entries of the file that they
/// name. Ends the process, as clap does, if the arguments are wrong whatever the file says, and
/// after `--help`.
pub(crate) fn parse<C: Checked>(mut arguments: Vec<OsString>) -> Result<C, ConfigError> {
    // What is needed may be in the file.
    let given = relaxed(command::<C>()).try_get_matches_from(&arguments);
    let named = given.ok().and_then(|given| {
        let path = given.get_one::<PathBuf>("config").cloned();
        path.map(|path| (path, given))
    });
    let Some((path, given)) = named else {
        return Ok(try_parse::<C>(&arguments).unwrap_or_else(|error| error.exit()));
    };
    let file = ConfigFile::read::<C>(&path)?;
    let entries = file.entries_for::<C>(&given);
    // Behind a `--` all is positional.
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    arguments.splice(end..end, entries.iter().map(OsString::from));
    try_parse::<C>(&arguments).map_err(|error| {
        if entries.is_empty() {
            error.exit();
        }
        ConfigError::Arguments { path, entries: entries.join(" "), what: summary(&error) }
    })
}

/// The command line. `--duration -1` is a value that `--duration` refuses, not an unknown option.
fn command<C: Parser>() -> Command {
    fn with_negatives(command: Command) -> Command {
        let is_option = |arg: &Arg| arg.get_action().takes_values() && !arg.is_positional();
        let option = move |arg: Arg| match is_option(&arg) {
            true => arg.allow_negative_numbers(true),
            false => arg,
        };
        command.mut_args(option).mut_subcommands(with_negatives)
    }
    with_negatives(C::command())
}

/// Parses arguments, without a file.
pub(crate) fn try_parse<C: Parser>(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<C, clap::Error> {
    let mut command = command::<C>();
    let matches = command.try_get_matches_from_mut(arguments);
    let matches = matches.map_err(|error| of_others(error, &command))?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// An option that other commands have is named as theirs, and not taken for a misspelt one of this
/// command.
fn of_others(mut error: clap::Error, command: &Command) -> clap::Error {
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) => unknown.clone(),
        _ => return error,
    };
    let name = unknown.trim_start_matches('-');
    let mut owners = Vec::new();
    find_owners(command, name, "", &mut owners);
    if !owners.is_empty() {
        let said = format!("'{unknown}' is an option of other commands: {}", owners.join(", "));
        // The usage is of the option that was meant.
        for kind in [ContextKind::SuggestedArg, ContextKind::Usage] {
            error.remove(kind);
        }
        let said = ContextValue::StyledStrs(vec![said.into()]);
        error.insert(ContextKind::Suggested, said);
    }
    error
}

/// The commands below this one that have an option, each with the commands before it.
fn find_owners(command: &Command, option: &str, path: &str, owners: &mut Vec<String>) {
    for inner in command.get_subcommands() {
        let path = format!("{path}{}", inner.get_name());
        if inner.get_arguments().any(|arg| arg.get_long() == Some(option)) {
            owners.push(path.clone());
        }
        find_owners(inner, option, &format!("{path} "), owners);
    }
}

/// The word of those that are known which is most alike, as a question behind a complaint.
pub(crate) fn meant<'a>(word: &str, known: &[&'a str]) -> String {
    let alike = known.iter().map(|other| (strsim::jaro(word, other), *other));
    let best: Option<(f64, &'a str)> = alike.max_by(|one, other| one.0.total_cmp(&other.0));
    match best.filter(|(alike, _)| *alike > ALIKE) {
        Some((_, other)) => format!(", did you mean `{other}`?"),
        None => ";".to_owned(),
    }
}

/// The same command line with nothing required, so that each part of it can be parsed on its own.
fn relaxed(command: Command) -> Command {
    let groups: Vec<_> = command.get_groups().map(|group| group.get_id().clone()).collect();
    let command = command
        .mut_args(|arg| arg.required(false))
        .subcommand_required(false)
        .arg_required_else_help(false);
    let command = groups
        .into_iter()
        .fold(command, |command, group| command.mut_group(group, |group| group.required(false)));
    command.mut_subcommands(relaxed)
}

/// What clap says in its first paragraph, in one line.
fn summary(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

/// Options and other arguments of a command, by the names that they have in a file.
fn options(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    command.get_arguments().map(|arg| (arg.get_long().unwrap_or(arg.get_id().as_str()), arg))
}

/// A file that was read, and found to have only sections and keys that exist, with values that they
/// take.
struct ConfigFile {
    path: PathBuf,
    sections: Vec<Section>,
}

/// What a file says about one command.
struct Section {
    /// The command, and the command of the command.
    command: Vec<String>,
    line: usize,
    entries: Vec<Entry>,
}

/// A key and its value.
struct Entry {
    key: String,
    line: usize,
    /// What says the same on the command line; nothing for a switch that is off.
    arguments: Vec<String>,
}

impl ConfigFile {
    fn read<C: Checked>(path: &Path) -> Result<Self, ConfigError> {
        let path = path.to_owned();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(ConfigError::Unreadable { path, source }),
        };
        let command = relaxed(command::<C>());
        let reader = Reader { path: &path, text: &text, command: &command };
        let table = DeTable::parse(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.mistake(at, error.message().to_owned())
        })?;
        let mut sections = Vec::new();
        reader.sections(&command, &[], table.get_ref(), &mut sections)?;
        Ok(Self { path, sections })
    }

    /// The arguments that the file adds to those that were given.
    fn entries_for<C: Checked>(&self, given: &ArgMatches) -> Vec<String> {
        let command = command::<C>();
        let (mut leaf, mut matches, mut names) = (&command, given, Vec::new());
        while let Some((name, inner)) = matches.subcommand() {
            let Some(found) = leaf.find_subcommand(name) else { break };
            (leaf, matches) = (found, inner);
            names.push(name);
        }
        let is_given = |arg: &Arg| {
            matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        };
        let overridden = |key: &str| {
            let arg = options(leaf).find(|(name, _)| *name == key).map(|(_, arg)| arg);
            arg.is_none_or(|arg| {
                let mut others = options(leaf).map(|(_, other)| other);
                is_given(arg) || others.any(|other| is_given(other) && exclude(leaf, arg, other))
            })
        };
        let sections = self.sections.iter().filter(|section| section.command == names);
        let entries = sections.flat_map(|section| &section.entries);
        let added = entries.filter(|entry| !overridden(&entry.key));
        added.flat_map(|entry| entry.arguments.clone()).collect()
    }

    /// Looks for values that do not go together, and for those that commands refuse themselves.
    fn check<C: Checked>(&self) -> Result<(), ConfigError> {
        for section in &self.sections {
            let mistake = |line, what| {
                let what = format!("[{}] {what}", section.command.join("."));
                ConfigError::Mistake { path: self.path.clone(), line, what }
            };
            let entries = section.entries.iter().flat_map(|entry| &entry.arguments);
            let arguments = ["selkie".to_owned()].into_iter();
            let arguments = arguments.chain(section.command.iter().chain(entries).cloned());
            match try_parse::<C>(arguments) {
                Ok(cli) => cli.check().map_err(|Refusal { key, what }| {
                    let entry = section.entries.iter().find(|entry| entry.key == key);
                    mistake(entry.map_or(section.line, |entry| entry.line), what)
                })?,
                // The rest may be given as arguments.
                Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {}
                Err(error) => return Err(mistake(section.line, summary(&error))),
            }
        }
        Ok(())
    }
}

/// Whether two arguments may not be given together.
fn exclude(command: &Command, one: &Arg, other: &Arg) -> bool {
    let conflicts = |one: &Arg, other: &Arg| {
        let conflicts = command.get_arg_conflicts_with(one);
        conflicts.iter().any(|conflict| conflict.get_id() == other.get_id())
    };
    let mut groups = command.get_groups();
    one.get_id() != other.get_id()
        && (conflicts(one, other)
            || conflicts(other, one)
            || groups.any(|group| {
                let has = |arg: &Arg| group.get_args().any(|id| id == arg.get_id());
                !group.clone().is_multiple() && has(one) && has(other)
            }))
}

/// Reads the text of a file.
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    /// The whole command line, with nothing required.
    command: &'a Command,
}

impl Reader<'_> {
    /// Reads the table of `command`, whose name is `names`.
    fn sections(
        &self,
        command: &Command,
        names: &[&str],
        table: &DeTable<'_>,
        sections: &mut Vec<Section>,
    ) -> Result<(), ConfigError> {
        let mut rows: Vec<_> = table.iter().collect();
        // The first mistake is the one that is found first from above.
        rows.sort_by_key(|(key, _)| key.span().start);
        let commands: Vec<_> = command
            .get_subcommands()
            .filter(|command| !WITHOUT_SECTION.contains(&command.get_name()))
            .collect();
        let mut entries = Vec::new();
        for (key, value) in &rows {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            if commands.is_empty() {
                entries.push(self.entry(command, names, key.span().start, name, value)?);
                continue;
            }
            let Some(inner) = commands.iter().find(|command| command.get_name() == name) else {
                let known: Vec<_> = commands.iter().map(|command| command.get_name()).collect();
                let meant = meant(name, &known);
                let what =
                    format!("there is no such command{meant} there are {}", known.join(", "));
                return Err(self.mistake(at, format!("{}: {what}", section_name(names, name))));
            };
            let DeValue::Table(table) = value.get_ref() else {
                let name = section_name(names, name);
                return Err(self.mistake(at, format!("{name}: is a section, not a value")));
            };
            let names = [names, &[inner.get_name()]].concat();
            self.sections(inner, &names, table, sections)?;
        }
        if let (Some((key, _)), true) = (rows.first(), commands.is_empty()) {
            let (command, line) =
                (names.iter().map(ToString::to_string), self.line(key.span().start));
            sections.push(Section { command: command.collect(), line, entries });
        }
        Ok(())
    }

    fn entry(
        &self,
        command: &Command,
        names: &[&str],
        at: usize,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Entry, ConfigError> {
        let shown = self.text.get(value.span()).and_then(|text| text.lines().next());
        let place = format!("[{}] {key} = {}", names.join("."), shown.unwrap_or_default());
        let mistake = |what: String| self.mistake(at, format!("{place}: {what}"));
        let Some((_, arg)) = options(command).find(|(name, _)| *name == key) else {
            let known: Vec<_> = options(command).map(|(name, _)| name).collect();
            let (meant, known) = (meant(key, &known), known.join(", "));
            return Err(mistake(format!("there is no such key{meant} there are {known}")));
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let refused = |what: String| mistake(format!("{what} ({help})"));
        let arguments = arguments(arg, value.get_ref()).map_err(|what| refused(what.to_owned()))?;
        let line = ["selkie"].iter().chain(names).copied();
        let line = line.chain(arguments.iter().map(String::as_str));
        match self.command.clone().try_get_matches_from(line) {
            Ok(_) => Ok(Entry { key: key.to_owned(), line: self.line(at), arguments }),
            Err(error) => Err(refused(reason(arg, &error))),
        }
    }

    fn mistake(&self, at: usize, what: String) -> ConfigError {
        ConfigError::Mistake { path: self.path.to_owned(), line: self.line(at), what }
    }

    /// The line of a position, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.bytes().take(at);
        1 + before.filter(|byte| *byte == b'\n').count()
    }
}

fn section_name(names: &[&str], name: &str) -> String {
    format!("[{}]", [names, &[name]].concat().join("."))
}

/// What says the same on the command line, or which types the key takes.
fn arguments(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
    let say = |text: String| match arg.get_long() {
        Some(long) => format!("--{long}={text}"),
        None => text,
    };
    if !arg.get_action().takes_values() {
        let DeValue::Boolean(on) = value else { return Err("must be true or false") };
        return Ok(arg
            .get_long()
            .filter(|_| *on)
            .map(|long| format!("--{long}"))
            .into_iter()
            .collect());
    }
    match value {
        DeValue::Array(items) if matches!(arg.get_action(), ArgAction::Append) => {
            let texts = items.iter().map(|item| scalar(item.get_ref()));
            let texts: Option<Vec<_>> = texts.map(|text| text.map(say)).collect();
            texts.ok_or("must be an array of numbers or strings")
        }
        value => {
            let text = scalar(value).ok_or("must be a number or a string")?;
            Ok(vec![say(text)])
        }
    }
}

/// A number or a string as it is written on the command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            // Of any base; the option says how large it may be.
            let decimal = i128::from_str_radix(number.as_str(), number.radix());
            Some(decimal.map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()))
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// Why an argument does not take a value.
fn reason(arg: &Arg, error: &clap::Error) -> String {
    let possible: Vec<_> = arg.get_possible_values();
    if !possible.is_empty() {
        let names: Vec<_> = possible.iter().map(|value| value.get_name()).collect();
        return format!("must be one of {}", names.join(", "));
    }
    error.source().map_or_else(|| summary(error), ToString::to_string)
}
