//! Statements in lines of text, and errors about them.

use selkie_sql::SqlError;

/// Statements that come line by line.
#[derive(Default)]
pub(super) struct Statements {
    text: String,
}

/// Where a text stands that is read from its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place<'t> {
    Plain,
    /// In quotes.
    Quoted(char),
    /// Behind `$tag$`.
    Dollar(&'t str),
    LineComment,
    /// So many comments within each other.
    Comment(usize),
}

impl Statements {
    /// Whether nothing of a statement has come.
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Adds a line. Returns the statements that are complete now.
    pub(super) fn add(&mut self, line: &str) -> Vec<String> {
        self.text.push_str(line);
        self.text.push('\n');
        let mut complete = Vec::new();
        while let Some(end) = end_of_first(&self.text) {
            let rest = self.text.split_off(end);
            let statement = std::mem::replace(&mut self.text, rest);
            complete.push(statement.trim().to_owned());
        }
        complete
    }

    /// What is left at the end.
    pub(super) fn rest(self) -> Option<String> {
        let rest = self.text.trim();
        (!rest.is_empty()).then(|| rest.to_owned())
    }
}

/// The byte behind the first semicolon that ends a statement.
fn end_of_first(text: &str) -> Option<usize> {
    let mut place = Place::Plain;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (next, step) = match place {
            Place::Plain if rest.starts_with(';') => return Some(at + 1),
            Place::Plain if rest.starts_with("--") => (Place::LineComment, 2),
            Place::Plain if rest.starts_with("/*") => (Place::Comment(1), 2),
            Place::Plain => match (rest.chars().next(), dollar_tag(rest)) {
                (Some(quote @ ('\'' | '"')), _) => (Place::Quoted(quote), 1),
                (_, Some(tag)) => (Place::Dollar(tag), tag.len()),
                (first, _) => (Place::Plain, first.map_or(1, char::len_utf8)),
            },
            Place::Quoted(quote) if rest.starts_with(quote) => (Place::Plain, 1),
            Place::Dollar(tag) if rest.starts_with(tag) => (Place::Plain, tag.len()),
            Place::LineComment if rest.starts_with('\n') => (Place::Plain, 1),
            Place::Comment(depth) if rest.starts_with("/*") => (Place::Comment(depth + 1), 2),
            Place::Comment(1) if rest.starts_with("*/") => (Place::Plain, 2),
            Place::Comment(depth) if rest.starts_with("*/") => (Place::Comment(depth - 1), 2),
            place => (place, rest.chars().next().map_or(1, char::len_utf8)),
        };
        (place, at) = (next, at + step);
    }
    None
}

/// `$tag$` at the beginning of a text.
fn dollar_tag(text: &str) -> Option<&str> {
    let behind = text.strip_prefix('$')?;
    let end = behind.find('$')?;
    let tag = behind.get(..end)?;
    let is_tag = tag.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !tag.starts_with(|c: char| c.is_ascii_digit());
    if is_tag { text.get(..end + 2) } else { None }
}

/// An error as psql shows it, with the line that it is about.
pub(super) fn error_text(sql: &str, error: &SqlError) -> String {
    let mut text = format!("ERROR:  {}: {}", error.state(), error.message());
    if let Some(position) = error.position().and_then(|position| position.checked_sub(1)) {
        let before: String = sql.chars().take(position).collect();
        let line_number = before.matches('\n').count();
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        if let Some(line) = sql.lines().nth(line_number) {
            let head = format!("LINE {}: ", line_number + 1);
            text.push_str(&format!("\n{head}{line}\n{}^", " ".repeat(head.len() + column)));
        }
    }
    for (name, part) in [("DETAIL", error.detail_text()), ("HINT", error.hint_text())] {
        if let Some(part) = part {
            text.push_str(&format!("\n{name}:  {part}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_at_a_semicolon_that_is_not_in_quotes_or_comments() {
        let mut statements = Statements::default();
        assert_eq!(statements.add("select ';' -- no;"), Vec::<String>::new());
        assert_eq!(
            statements.add("/* ; /* ; */ ; */ , \";\" , $a$ ; $b$ ; $a$"),
            Vec::<String>::new()
        );
        let complete = statements.add("; select 2; sel");
        assert_eq!(complete.len(), 2);
        assert!(complete[0].ends_with("$a$\n;") && complete[1] == "select 2;", "{complete:?}");
        assert_eq!(statements.rest().as_deref(), Some("sel"));
    }
}
