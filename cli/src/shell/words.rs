//! Names, literals and patterns in statements of the shell, and how wide text is.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns of a terminal a text takes.
pub(super) fn cells(text: &str) -> usize {
    // Most text is of one column a byte.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) { text.len() } else { text.width() }
}

/// How many columns a character takes.
pub(super) fn cells_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// A text as a literal of SQL.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as SQL has to write it.
pub(super) fn identifier(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A pattern of names as psql takes it: `*` is any text, `?` any character, what stands in double
/// quotes stands for itself, and what does not is taken as lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// A regular expression for the schema, if one is given.
    pub(super) schema: Option<String>,
    /// A regular expression for the name.
    pub(super) name: String,
}

impl Pattern {
    pub(super) fn of(text: &str) -> Self {
        let (mut parts, mut part, mut is_quoted) = (Vec::new(), String::new(), false);
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            match c {
                '"' if is_quoted && characters.peek() == Some(&'"') => {
                    characters.next();
                    part.push('"');
                }
                '"' => is_quoted = !is_quoted,
                '.' if !is_quoted => parts.push(std::mem::take(&mut part)),
                '*' if !is_quoted => part.push_str(".*"),
                '?' if !is_quoted => part.push('.'),
                c if c.is_alphanumeric() || c == '_' => match is_quoted {
                    true => part.push(c),
                    false => part.extend(c.to_lowercase()),
                },
                c => part.extend(['\\', c]),
            }
        }
        // Of `database.schema.name` the database is this one.
        let whole = |part: String| format!("^({part})$");
        Self { schema: parts.pop().map(whole), name: whole(part) }
    }

    /// The condition on the columns of schema and name; `visible` holds where no schema is given.
    pub(super) fn condition(&self, schema: &str, name: &str, visible: &str) -> String {
        let names = format!("{name} ~ {}", literal(&self.name));
        match &self.schema {
            Some(own) => format!("{names} AND {schema} ~ {}", literal(own)),
            None => format!("{names} AND {visible}"),
        }
    }
}

/// The word among some that is most like a wrong one.
pub(super) fn nearest<'w>(wrong: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let distance = |word: &str| strsim::damerau_levenshtein(wrong, word);
    let near = words.map(|word| (distance(word), word)).min_by_key(|(distance, _)| *distance)?;
    let allowed = (wrong.chars().count() / 3).max(1);
    (near.0 <= allowed).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_folded_and_matches_whole_names() {
        let pattern = Pattern::of("It*m?");
        assert_eq!(pattern, Pattern { schema: None, name: "^(it.*m.)$".to_owned() });
        let pattern = Pattern::of("public.\"A.\"\"b*\"");
        assert_eq!(pattern.schema.as_deref(), Some("^(public)$"));
        assert_eq!(pattern.name, "^(A\\.\"b\\*)$");
        let condition = pattern.condition("n.nspname", "c.relname", "visible");
        assert!(condition.ends_with("AND n.nspname ~ '^(public)$'"), "{condition}");
    }

    #[test]
    fn names_and_literals_are_quoted_where_they_have_to_be() {
        assert_eq!(identifier("a_1"), "a_1");
        assert_eq!(identifier("A\"b"), "\"A\"\"b\"");
        assert_eq!(literal("it's"), "'it''s'");
    }

    #[test]
    fn only_what_is_close_is_meant() {
        let words = || ["timing", "watch", "x"].into_iter();
        assert_eq!(nearest("timng", words()), Some("timing"));
        assert_eq!(nearest("y", words()), Some("x"));
        assert_eq!(nearest("nothing", words()), None);
    }
}
