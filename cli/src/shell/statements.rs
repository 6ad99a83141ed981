//! Statements and backslash commands in lines of text.

/// A piece of what is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A statement with its semicolon.
    Statement(String),
    /// A command from its backslash to the end of the line.
    Command(String),
}

/// Text that comes line by line, and the pieces in it.
#[derive(Default)]
pub(super) struct Statements {
    text: String,
    /// How far the text was looked at.
    scan: Scan,
}

/// Where a text stands that is read from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// In no quotes or comments.
    #[default]
    Plain,
    /// In quotes.
    Quoted(char),
    /// In a text with escapes: `E'...'`.
    Escaped,
    /// Behind `$tag$`.
    Dollar(String),
    LineComment,
    /// So many comments within each other.
    Comment(usize),
}

/// Reads a text from its beginning; it may be added to meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    at: usize,
    place: Place,
    /// Open parentheses.
    depth: usize,
    /// There is more than comments and spaces.
    has_text: bool,
}

/// What a step of a scan has found.
enum Found {
    Nothing,
    Semicolon,
    Backslash,
}

impl Scan {
    /// In what the text stands.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The scan of text that comes behind what was read.
    pub(super) fn behind(&self) -> Self {
        Self { at: 0, ..self.clone() }
    }

    /// How many bytes were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Reads on by a character, or a few that belong together.
    pub(super) fn advance(&mut self, text: &str) -> bool {
        self.step(text).is_some()
    }

    fn step(&mut self, text: &str) -> Option<Found> {
        let rest = text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let first = rest.chars().next()?;
        let mut found = Found::Nothing;
        let was_text = match self.place {
            Place::Plain => !first.is_whitespace(),
            Place::LineComment | Place::Comment(_) => false,
            _ => true,
        };
        let (place, step) = match std::mem::take(&mut self.place) {
            Place::Plain => {
                found = match first {
                    ';' => Found::Semicolon,
                    '\\' => Found::Backslash,
                    _ => Found::Nothing,
                };
                self.plain(text, rest, first)
            }
            Place::Quoted(quote) if first == quote => (Place::Plain, 1),
            Place::Escaped if first == '\'' => (Place::Plain, 1),
            Place::Escaped if first == '\\' => {
                let next = rest.chars().nth(1).map_or(0, char::len_utf8);
                (Place::Escaped, 1 + next)
            }
            Place::Dollar(tag) if rest.starts_with(&tag) => (Place::Plain, tag.len()),
            Place::LineComment if first == '\n' => (Place::Plain, 1),
            Place::Comment(depth) if rest.starts_with("/*") => (Place::Comment(depth + 1), 2),
            Place::Comment(1) if rest.starts_with("*/") => (Place::Plain, 2),
            Place::Comment(depth) if rest.starts_with("*/") => (Place::Comment(depth - 1), 2),
            place => (place, first.len_utf8()),
        };
        let is_comment = matches!(place, Place::LineComment | Place::Comment(_));
        self.has_text |= was_text && !is_comment && !matches!(found, Found::Backslash);
        (self.place, self.at) = (place, self.at + step);
        Some(found)
    }

    fn plain(&mut self, text: &str, rest: &str, first: char) -> (Place, usize) {
        if rest.starts_with("--") {
            return (Place::LineComment, 2);
        }
        if rest.starts_with("/*") {
            return (Place::Comment(1), 2);
        }
        let before = text.get(..self.at).and_then(|before| before.chars().next_back());
        match first {
            '\'' if self.is_escaped(text) => (Place::Escaped, 1),
            '\'' | '"' => (Place::Quoted(first), 1),
            '$' if !before.is_some_and(is_of_word) => match dollar_tag(rest) {
                Some(tag) => (Place::Dollar(tag.to_owned()), tag.len()),
                None => (Place::Plain, 1),
            },
            '(' => {
                self.depth += 1;
                (Place::Plain, 1)
            }
            ')' => {
                self.depth = self.depth.saturating_sub(1);
                (Place::Plain, 1)
            }
            _ => (Place::Plain, first.len_utf8()),
        }
    }

    /// Whether the quote here is that of `E'...'`.
    fn is_escaped(&self, text: &str) -> bool {
        let mut before = text.get(..self.at).unwrap_or_default().chars().rev();
        matches!(before.next(), Some('e' | 'E')) && !before.next().is_some_and(is_of_word)
    }
}

impl Statements {
    /// Whether nothing of a statement has come. A comment is no statement.
    pub(super) fn is_empty(&self) -> bool {
        let unread = self.text.get(self.scan.at..).unwrap_or_default();
        !self.scan.has_text && unread.trim().is_empty()
    }

    /// Whether the next line begins anew: no statement and no comment goes on in it.
    pub(super) fn is_between(&self) -> bool {
        self.is_empty() && *self.scan.place() == Place::Plain
    }

    /// What has come of a statement.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How far it was read, and in what it stands.
    pub(super) fn scan(&self) -> &Scan {
        &self.scan
    }

    /// What a prompt shows of the place where the next line begins, as psql does.
    pub(super) fn mark(&self) -> char {
        match self.scan.place() {
            Place::Plain | Place::LineComment if self.is_empty() => '=',
            Place::Plain | Place::LineComment if self.scan.depth > 0 => '(',
            Place::Plain | Place::LineComment => '-',
            Place::Quoted(quote) => *quote,
            Place::Escaped => '\'',
            Place::Dollar(_) => '$',
            Place::Comment(_) => '*',
        }
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: &str) {
        if self.is_between() {
            self.clear();
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Forgets what has come of a statement.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The next piece that is complete. Text before a command stays.
    pub(super) fn next(&mut self) -> Option<Piece> {
        loop {
            let at = self.scan.at;
            match self.scan.step(&self.text)? {
                Found::Nothing => {}
                Found::Semicolon => {
                    let rest = self.text.split_off(self.scan.at);
                    let statement = std::mem::replace(&mut self.text, rest);
                    self.scan = Scan::default();
                    return Some(Piece::Statement(statement.trim().to_owned()));
                }
                Found::Backslash => {
                    let rest = self.text.get(at..).unwrap_or_default();
                    let end = at + rest.find('\n').unwrap_or(rest.len());
                    let command: String = self.text.drain(at..end).collect();
                    self.scan.at = at;
                    return Some(Piece::Command(command.trim().to_owned()));
                }
            }
        }
    }

    /// What is left, which is forgotten; `None` if that is no statement.
    pub(super) fn take(&mut self) -> Option<String> {
        let own = std::mem::take(self);
        (!own.is_empty()).then(|| own.text.trim().to_owned())
    }
}

/// The only statement of a text, without its semicolon; `None` if there are more or none.
pub(super) fn only_statement(text: &str) -> Option<String> {
    let mut statements = Statements::default();
    statements.add(text);
    let first = statements.next();
    if statements.next().is_some() {
        return None;
    }
    match (first, statements.take()) {
        (None, rest) => rest,
        (Some(Piece::Statement(own)), None) => {
            own.strip_suffix(';').map(|own| own.trim_end().to_owned())
        }
        _ => None,
    }
}

/// The first word of a statement behind comments and parentheses, in lower case.
pub(super) fn first_word(text: &str) -> String {
    let (mut scan, mut word) = (Scan::default(), String::new());
    loop {
        let (from, was_plain) = (scan.at, scan.place == Place::Plain);
        if !scan.advance(text) {
            return word;
        }
        let piece = text.get(from..scan.at).unwrap_or_default();
        if was_plain && piece.chars().all(is_of_word) {
            word.push_str(&piece.to_lowercase());
        } else if !word.is_empty() {
            return word;
        }
    }
}

/// Whether a text has a backslash command.
pub(super) fn has_command(text: &str) -> bool {
    let mut statements = Statements::default();
    statements.add(text);
    std::iter::from_fn(|| statements.next()).any(|piece| matches!(piece, Piece::Command(_)))
}

/// Whether a character may be part of a name that is not quoted.
pub(super) fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(statements: &mut Statements) -> Vec<Piece> {
        std::iter::from_fn(|| statements.next()).collect()
    }

    #[test]
    fn a_statement_ends_at_a_semicolon_that_is_not_in_quotes_or_comments() {
        let mut statements = Statements::default();
        for line in ["select ';' -- no;", "/* ; /* ; */ ; */ , \";\" , $a$ ; $b$ ; $a$, E'\\';'"] {
            statements.add(line);
            assert_eq!(statements.next(), None, "{line}");
        }
        statements.add("; select 2; sel");
        let complete = pieces(&mut statements);
        let [Piece::Statement(first), Piece::Statement(second)] = &complete[..] else {
            panic!("{complete:?}");
        };
        assert!(first.ends_with("E'\\';'\n;") && second == "select 2;", "{complete:?}");
        assert_eq!(statements.take().as_deref(), Some("sel"));
        assert!(statements.is_empty());
    }

    #[test]
    fn a_command_reaches_from_its_backslash_to_the_end_of_the_line() {
        let mut statements = Statements::default();
        statements.add("  \\d one; two");
        assert_eq!(pieces(&mut statements), [Piece::Command("\\d one; two".to_owned())]);
        statements.add("select '\\x' \\gx");
        assert_eq!(pieces(&mut statements), [Piece::Command("\\gx".to_owned())]);
        assert_eq!(statements.take().as_deref(), Some("select '\\x'"));
        statements.add("select 1; -- so\\g");
        assert_eq!(pieces(&mut statements), [Piece::Statement("select 1;".to_owned())]);
        assert_eq!((statements.mark(), statements.take()), ('=', None));
        statements.add("/* so */ \\g");
        assert_eq!(pieces(&mut statements), [Piece::Command("\\g".to_owned())]);
        assert_eq!(statements.take(), None);
        assert!(has_command("select 1 \\g") && !has_command("select '\\g', E'\\'\\g'"));
    }

    #[test]
    fn a_prompt_says_in_what_the_next_line_begins() {
        for (text, mark) in [
            ("", '='),
            ("  ", '='),
            ("select", '-'),
            ("select 'a", '\''),
            ("select \"a", '"'),
            ("select E'a\\'", '\''),
            ("select (1 + (2)", '('),
            ("select $a$ x", '$'),
            ("select /* x", '*'),
            ("select -- x", '-'),
            ("select (1)", '-'),
            ("-- x", '='),
            ("/* x */", '='),
            ("/* x", '*'),
        ] {
            let mut statements = Statements::default();
            statements.add(text);
            assert_eq!(statements.next(), None);
            assert_eq!(statements.mark(), mark, "{text}");
        }
    }

    #[test]
    fn the_only_statement_of_a_text_is_found() {
        for text in ["select 1", "select 1;", "select 1; -- so; no", " select 1 ;\n/* ; */"] {
            let only = only_statement(text);
            assert_eq!(only.as_deref(), Some("select 1"), "{text}");
        }
        for text in ["select 1; delete from t", "select 1; ;", "", "-- so", "select 1 \\g"] {
            assert_eq!(only_statement(text), None, "{text}");
        }
        assert_eq!(first_word("-- select\n/* values */ (DELETE from t"), "delete");
        assert_eq!(first_word("'select' explain"), "explain");
        assert_eq!(first_word(" -- so"), "");
    }

    #[test]
    fn a_line_is_read_from_where_the_last_has_ended() {
        let mut statements = Statements::default();
        for _ in 0..100 {
            let before = statements.text().len();
            statements.add("(1, 'some text'),");
            assert_eq!((statements.scan.at(), statements.next()), (before, None));
        }
    }
}
