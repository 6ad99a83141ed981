//! Why the shell ends, what a command of it may fail with, and errors of statements as psql shows
//! them.

use super::table::printable;
use super::words::cells;
use crate::support::signals::Interrupted;
use crate::wire::Report;

/// Why the shell ended before its input.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShellError {
    #[error("{file}: {error}")]
    File { file: String, error: std::io::Error },
    #[error("standard input: {0}")]
    Input(#[from] std::io::Error),
    #[error("the line editor: {0}")]
    Editor(String),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    #[error("the connection to the server at {0} is lost")]
    Lost(String),
    /// Nothing is said of it.
    #[error("nobody reads the output any more")]
    Unread,
}

/// Why a backslash command failed; the shell goes on.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// It is not as it has to be.
    #[error("{0}")]
    Usage(String),
    #[error("{file}: {error}")]
    File { file: String, error: std::io::Error },
    /// A statement that it has run failed; `said` is how that is shown.
    #[error("{said}")]
    Statement { said: String },
    #[error(transparent)]
    Over(#[from] ShellError),
}

impl CommandError {
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// A statement of the command's own failed.
    pub(super) fn statement(sql: &str, error: &Report) -> Self {
        Self::Statement { said: error_text(sql, error) }
    }
}

/// Most columns of the line of a statement that an error shows.
const MOST_COLUMNS: usize = 100;
/// Characters before the place of an error that are shown of a longer line.
const CHARACTERS_BEFORE: usize = 60;

/// An error as psql shows it, with the line that it is about.
pub(super) fn error_text(sql: &str, error: &Report) -> String {
    let (level, state) = (printable(&error.level), printable(&error.state));
    let mut text = format!("{level}:  {state}: {}", printable(&error.message));
    if let Some(position) = error.position.and_then(|position| position.checked_sub(1)) {
        let before: String = sql.chars().take(position).collect();
        let line_number = before.matches('\n').count();
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        if let Some(line) = sql.split('\n').nth(line_number) {
            let head = format!("LINE {}: ", line_number + 1);
            let (line, shift) = part_of(line, column);
            text.push_str(&format!("\n{head}{line}\n{}^", " ".repeat(head.len() + shift)));
        }
    }
    text.push_str(&parts_text(error));
    text
}

/// What is said behind the message, each part in a line of its own.
fn parts_text(error: &Report) -> String {
    let parts = [("DETAIL", &error.detail), ("HINT", &error.hint), ("CONTEXT", &error.context)];
    let shown = |(name, part): (_, &Option<String>)| {
        Some(format!("\n{name}:  {}", printable(part.as_deref()?)))
    };
    parts.into_iter().filter_map(shown).collect()
}

/// A message that is no error, as psql shows it.
pub(super) fn notice_text(notice: &Report) -> String {
    let (level, message) = (printable(&notice.level), printable(&notice.message));
    format!("{level}:  {message}{}", parts_text(notice))
}

/// What is shown of a line, and how many columns of it are before a character.
fn part_of(line: &str, character: usize) -> (String, usize) {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let before: String = line.chars().take(character).map(shown).collect();
    let behind: String = line.chars().skip(character).map(shown).collect();
    if cells(&before) + cells(&behind) <= MOST_COLUMNS {
        let shift = cells(&before);
        return (before + behind.trim_end(), shift);
    }
    let head: Vec<char> = before.chars().rev().take(CHARACTERS_BEFORE).collect();
    let cut = if head.len() < before.chars().count() { "..." } else { "" };
    let head: String = cut.chars().chain(head.into_iter().rev()).collect();
    let (mut tail, left) = (String::new(), MOST_COLUMNS.saturating_sub(cells(&head)));
    for c in behind.chars() {
        if cells(&tail) >= left {
            tail.push_str("...");
            break;
        }
        tail.push(c);
    }
    let shift = cells(&head);
    (head + tail.trim_end(), shift)
}

#[cfg(test)]
mod tests {
    use selkie_sql::{Notice, SqlError, SqlState};

    use super::*;

    #[test]
    fn an_error_is_shown_with_its_line_and_place() {
        let at = |sql: &str, word: &str| {
            let position = sql.chars().count() - sql.split(word).nth(1).unwrap().chars().count();
            let error = SqlError::new(SqlState::UNDEFINED_COLUMN, "no");
            error_text(sql, &error.at(position - word.chars().count() + 1).into())
        };
        let said = at("select 1,\n\tbad from t", "bad");
        assert_eq!(said, "ERROR:  42703: no\nLINE 2:  bad from t\n         ^");
        // A character of two columns.
        let said = at("select '\u{4e16}', bad", "bad");
        assert!(
            said.ends_with("\nLINE 1: select '\u{4e16}', bad\n                     ^"),
            "{said}"
        );
        let notice = Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, "a\u{1b}").detail("b");
        assert_eq!(notice_text(&Report::from(&notice)), "WARNING:  a\\x1B\nDETAIL:  b");
        let error = SqlError::new(SqlState::SYNTAX_ERROR, "a\u{1b}[2J").detail("b\u{9b}\nc");
        let said = error_text("", &error.into());
        assert_eq!(said, "ERROR:  42601: a\\x1B[2J\nDETAIL:  b\\x9B\nc");
        let long = format!("select {}bad{}", "1, ".repeat(50), ", 1".repeat(50));
        let said = at(&long, "bad");
        let mut lines = said.lines().skip(1);
        let (line, place) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(line.starts_with("LINE 1: ...") && line.ends_with("..."), "{line}");
        assert_eq!(line.get(place.len() - 1..).unwrap().get(..3), Some("bad"), "{said}");
    }
}
