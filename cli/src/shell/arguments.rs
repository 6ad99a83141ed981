//! The words of a backslash command.

/// Words behind the name of a command. `'...'` is one, with `''` for a quote within; `"..."` keeps
/// its quotes, as a name of SQL does.
pub(super) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some('\''), '\'') if characters.peek() == Some(&'\'') => {
                characters.next();
                word.get_or_insert_default().push('\'');
            }
            (Some(open), c) if c == open => {
                quote = None;
                if c == '"' {
                    word.get_or_insert_default().push(c);
                }
            }
            (None, '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '"') => {
                quote = Some(c);
                word.get_or_insert_default().push(c);
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What `\copy` is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CopyCommand {
    /// The statement that copies from STDIN or to STDOUT.
    pub(super) sql: String,
    pub(super) is_in: bool,
    /// The file; `None` is the standard input or output.
    pub(super) file: Option<String>,
}

impl CopyCommand {
    /// Reads `TABLE|(QUERY) FROM|TO FILE [OPTIONS]`; `None` if it is not that.
    pub(super) fn of(text: &str) -> Option<Self> {
        let (what, is_in, behind) = split(text)?;
        let (file, options) = match behind.strip_prefix('\'') {
            Some(quoted) => {
                let end = end_of_quoted(quoted)?;
                (quoted.get(..end)?.replace("''", "'"), quoted.get(end + 1..)?)
            }
            None => {
                let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
                (behind.get(..end)?.to_owned(), behind.get(end..)?)
            }
        };
        let is_quoted = behind.starts_with('\'');
        let own = ["stdin", "stdout", "pstdin", "pstdout"];
        let is_standard = !is_quoted && own.contains(&file.to_lowercase().as_str());
        if what.is_empty() || file.is_empty() {
            return None;
        }
        let direction = if is_in { "FROM STDIN" } else { "TO STDOUT" };
        let options = options.trim().trim_end_matches(';').trim_end();
        let sql = format!("COPY {what} {direction} {options}").trim_end().to_owned();
        Some(Self { sql, is_in, file: (!is_standard).then_some(file) })
    }
}

/// Where a text in quotes ends.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let end = from + text.get(from..)?.find('\'')?;
        if text.get(end + 1..)?.starts_with('\'') {
            from = end + 2;
        } else {
            return Some(end);
        }
    }
}

/// What is before the first FROM or TO that is in no parentheses or quotes, whether it is FROM, and
/// what is behind it.
fn split(text: &str) -> Option<(&str, bool, &str)> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, c) if depth == 0 && c.is_whitespace() => {
                let rest = text.get(at..)?.trim_start();
                for (word, is_in) in [("from", true), ("to", false)] {
                    let own = rest.get(..word.len()).filter(|own| own.eq_ignore_ascii_case(word));
                    let behind = own.and_then(|_| rest.get(word.len()..));
                    if let Some(behind) = behind.filter(|own| own.starts_with([' ', '\t', '\''])) {
                        return Some((text.get(..at)?.trim(), is_in, behind.trim_start()));
                    }
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_by_spaces_that_are_not_in_quotes() {
        assert_eq!(words("  a 'b c''d' \"E f\".g  "), ["a", "b c'd", "\"E f\".g"]);
        assert_eq!(words("''"), [""]);
        assert!(words("  ").is_empty());
    }

    #[test]
    fn a_copy_is_taken_apart() {
        let copy = |text| CopyCommand::of(text);
        let (sql, file) = ("COPY t (a, b) FROM STDIN with (format csv)", "it's.csv".to_owned());
        let expected = CopyCommand { sql: sql.to_owned(), is_in: true, file: Some(file) };
        assert_eq!(copy("t (a, b) from 'it''s.csv' with (format csv);"), Some(expected));
        let query = copy("(select a from t where b = ' to ') TO out.csv csv").unwrap();
        assert_eq!(query.sql, "COPY (select a from t where b = ' to ') TO STDOUT csv");
        assert_eq!((query.is_in, query.file.as_deref()), (false, Some("out.csv")));
        assert_eq!(copy("t from stdin").unwrap().file, None);
        assert_eq!(copy("t from 'stdin'").unwrap().file.as_deref(), Some("stdin"));
        for wrong in ["", "t", "t from", "t from ''", "from x", "t from 'x", "(select 1) x"] {
            assert_eq!(copy(wrong), None, "{wrong}");
        }
    }
}
