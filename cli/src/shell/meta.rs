//! The backslash commands: their names, what they take, and what is typed as one.

use super::arguments::words;
use super::error::CommandError;
use super::words::nearest;

/// A command that there is.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) takes: &'static str,
    pub(super) does: &'static str,
    pub(super) verb: Verb,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Commands,
    Statements,
    Quit,
    Go,
    GoExpanded,
    Print,
    Reset,
    Watch,
    Explain,
    Include,
    Output,
    Copy,
    Echo,
    Describe,
    Relations(&'static str),
    Roles,
    Databases,
    Schemas,
    Functions,
    Privileges,
    Format,
    Expanded,
    Timing,
    Set,
}

macro_rules! known {
    ($($name:literal, $takes:literal, $verb:expr, $does:literal;)*) => {
        &[$(Known { name: $name, takes: $takes, verb: $verb, does: $does },)*]
    };
}

/// All commands, in the order in which they are listed.
pub(super) const KNOWN: &[Known] = known! {
    "?", "", Verb::Commands, "shows these commands";
    "h", "[STATEMENT]", Verb::Statements, "shows how a statement of SQL is written";
    "q", "", Verb::Quit, "ends the shell";
    "g", "", Verb::Go, "runs what was typed, as a semicolon does, or the last statement again";
    "gx", "", Verb::GoExpanded, "as \\g, and shows each row with a line for each column";
    "watch", "[SECONDS] [c=TIMES]", Verb::Watch, "runs the statement every 2 or so many seconds";
    "explain", "[STATEMENT]", Verb::Explain,
        "runs EXPLAIN ANALYZE of the last or this statement; what it changes is rolled back";
    "p", "", Verb::Print, "shows what was typed of a statement, or the last one";
    "r", "", Verb::Reset, "forgets what was typed of a statement";
    "i", "FILE", Verb::Include, "runs the statements and commands of a file";
    "o", "[FILE]", Verb::Output, "lets results go to a file, or to the screen again";
    "copy", "TABLE|(QUERY) FROM|TO FILE [OPTIONS]", Verb::Copy,
        "runs COPY with a file of this machine";
    "echo", "[TEXT]", Verb::Echo, "shows a text";
    "d", "[NAME]", Verb::Describe, "lists tables, views and sequences, or describes what is named";
    "dt", "[NAME]", Verb::Relations("r"), "lists tables";
    "di", "[NAME]", Verb::Relations("i"), "lists indexes";
    "dv", "[NAME]", Verb::Relations("v"), "lists views";
    "ds", "[NAME]", Verb::Relations("S"), "lists sequences";
    "du", "[NAME]", Verb::Roles, "lists roles";
    "dg", "[NAME]", Verb::Roles, "lists roles";
    "dn", "[NAME]", Verb::Schemas, "lists schemas";
    "df", "[NAME]", Verb::Functions, "lists functions";
    "dp", "[NAME]", Verb::Privileges, "lists privileges of tables, views and sequences";
    "z", "[NAME]", Verb::Privileges, "lists privileges of tables, views and sequences";
    "l", "[NAME]", Verb::Databases, "lists databases";
    "format", "[table|expanded|csv|json]", Verb::Format, "sets or shows how rows are shown";
    "x", "[on|off|auto]", Verb::Expanded,
        "shows a line for each column, or with auto only of what is too wide";
    "timing", "[on|off]", Verb::Timing, "says how long each statement took";
    "pset", "[null TEXT]", Verb::Set, "sets how NULL is shown";
};

/// A command as it was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Typed<'t> {
    pub(super) verb: Verb,
    /// With its backslash, as errors name it.
    pub(super) name: String,
    /// `+` behind the name: more is shown.
    pub(super) is_verbose: bool,
    /// All that is behind the name.
    pub(super) rest: &'t str,
}

impl<'t> Typed<'t> {
    /// Reads a command, which begins with its backslash.
    ///
    /// # Errors
    /// If there is none of that name; the error names what there is.
    pub(super) fn of(text: &'t str) -> Result<Self, CommandError> {
        let text = text.strip_prefix('\\').unwrap_or(text);
        let end = text.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(text.len());
        let (name, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        let plain = name.trim_end_matches(['+', 'S']);
        let plain = if name.starts_with('d') && !plain.is_empty() { plain } else { name };
        // `\dS` would be \d for the system.
        let found = find(name).or_else(|| find(plain));
        let Some(known) = found else { return Err(unknown(name)) };
        let is_verbose = known.name != name && name.contains('+');
        let rest = rest.trim().trim_end_matches(';').trim_end();
        Ok(Self { verb: known.verb, name: format!("\\{}", known.name), is_verbose, rest })
    }

    /// The words behind the name.
    pub(super) fn words(&self) -> Vec<String> {
        words(self.rest)
    }

    /// The word behind the name, if there is one.
    ///
    /// # Errors
    /// If there are more.
    pub(super) fn word(&self) -> Result<Option<String>, CommandError> {
        let mut words = self.words();
        match words.len() {
            0 | 1 => Ok(words.pop()),
            _ => Err(self.wrong()),
        }
    }

    /// What it takes, as is said of it.
    fn takes(&self) -> &'static str {
        find(self.name.get(1..).unwrap_or_default()).map_or("", |known| known.takes)
    }

    /// Looks whether it takes anything, if there is something behind it.
    ///
    /// # Errors
    /// If it takes nothing.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        match self.takes().is_empty() && !self.rest.is_empty() {
            true => Err(self.wrong()),
            false => Ok(()),
        }
    }

    /// That it takes something else.
    pub(super) fn wrong(&self) -> CommandError {
        let takes = self.takes();
        let separator = if takes.is_empty() { "" } else { " " };
        CommandError::usage(format!("usage: {}{separator}{takes}", self.name))
    }

    /// Whether something is on: as is said, or else the other way round.
    ///
    /// # Errors
    /// If neither on nor off is said.
    pub(super) fn switch(&self, now: bool) -> Result<bool, CommandError> {
        match self.word()?.as_deref() {
            None => Ok(!now),
            Some("on" | "true" | "1") => Ok(true),
            Some("off" | "false" | "0") => Ok(false),
            Some(_) => Err(self.wrong()),
        }
    }
}

fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

fn unknown(name: &str) -> CommandError {
    let names = KNOWN.iter().map(|known| known.name);
    let what = format!("there is no command \\{name}");
    CommandError::usage(match nearest(name, names.clone()) {
        Some(near) => format!("{what}; did you mean \\{near}? \\? lists all"),
        None => {
            let all: Vec<String> = names.map(|name| format!("\\{name}")).collect();
            format!("{what}; there are {}", all.join(" "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_with_what_is_behind_it() {
        let typed = Typed::of("\\d+ public.\"A b\";").unwrap();
        assert_eq!((typed.verb, typed.is_verbose), (Verb::Describe, true));
        assert_eq!(typed.words(), ["public.\"A b\""]);
        let typed = Typed::of("\\dt").unwrap();
        assert_eq!((typed.verb, typed.is_verbose), (Verb::Relations("r"), false));
        assert_eq!(typed.word().unwrap(), None);
        assert_eq!(Typed::of("\\q;").unwrap().verb, Verb::Quit);
        for wrong in ["\\g out", "\\gx | less", "\\q 1", "\\r x", "\\p x"] {
            assert!(Typed::of(wrong).unwrap().check().is_err(), "{wrong}");
        }
        assert!(Typed::of("\\g;").unwrap().check().is_ok());
        assert!(Typed::of("\\timing on off").unwrap().switch(false).is_err());
        assert!(!Typed::of("\\timing").unwrap().switch(true).unwrap());
    }

    #[test]
    fn a_command_that_there_is_not_is_answered_with_those_that_there_are() {
        let said = |text: &str| Typed::of(text).unwrap_err().to_string();
        assert_eq!(
            said("\\timng"),
            "there is no command \\timng; did you mean \\timing? \\? lists all"
        );
        let all = said("\\unheard-of");
        assert!(KNOWN.iter().all(|known| all.contains(&format!("\\{}", known.name))), "{all}");
        let usage = Typed::of("\\x a b").unwrap().switch(true).unwrap_err().to_string();
        assert_eq!(usage, "usage: \\x [on|off|auto]");
    }

    #[test]
    fn no_two_commands_have_one_name() {
        for (at, known) in KNOWN.iter().enumerate() {
            let first = KNOWN.iter().position(|own| own.name == known.name);
            assert_eq!(first, Some(at), "{}", known.name);
        }
    }
}
