//! Names as text: what `nextval`, `regclass` and `search_path` take.

use crate::error::{SqlError, SqlResult, SqlState};

/// Words that a name has to be quoted for.
const RESERVED: [&str; 77] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// The parts of a name as SQL writes it.
///
/// # Errors
/// 42602 if it is none.
pub(crate) fn names_of_text(text: &str) -> SqlResult<Vec<String>> {
    let wrong = || SqlError::new(SqlState::INVALID_NAME, "invalid name syntax");
    split(text, '.').filter(|parts| !parts.iter().any(String::is_empty)).ok_or_else(wrong)
}

/// The names of a list, such as `search_path` is; `None` if it is none.
pub(crate) fn list_of_names(text: &str) -> Option<Vec<String>> {
    if text.trim().is_empty() { Some(Vec::new()) } else { split(text, ',') }
}

/// A list of names as text.
pub(crate) fn text_of_list(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// Names between separators, those without quotes in lower case.
fn split(text: &str, separator: char) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let (part, behind) = match rest.strip_prefix('"') {
            Some(inner) => quoted_part(inner)?,
            None => {
                let is_end = |c: char| c == separator || c.is_whitespace() || c == '"';
                let end = rest.find(is_end).unwrap_or(rest.len());
                let (part, behind) = rest.split_at_checked(end)?;
                if part.is_empty() {
                    return None;
                }
                (part.to_ascii_lowercase(), behind)
            }
        };
        parts.push(part);
        let behind = behind.trim_start();
        match behind.strip_prefix(separator) {
            Some(next) => rest = next,
            None => return behind.is_empty().then_some(parts),
        }
    }
}

/// What stands up to the closing quote, and behind it.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let (mut part, mut rest) = (String::new(), text);
    loop {
        let (before, behind) = rest.split_once('"')?;
        part.push_str(before);
        match behind.strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return Some((part, behind)),
        }
    }
}

/// A name as a statement has to write it.
pub(crate) fn quoted(name: &str) -> String {
    let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = name.starts_with(is_first)
        && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
        && !RESERVED.contains(&name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_statements_write_them() {
        for (name, expected) in [
            ("Item", vec!["item"]),
            ("\"Item\"", vec!["Item"]),
            ("s.\"a.b\"", vec!["s", "a.b"]),
            ("\"a\"\"b\"", vec!["a\"b"]),
            (" a . b ", vec!["a", "b"]),
        ] {
            assert_eq!(names_of_text(name).unwrap(), expected);
        }
        for wrong in ["", "a.", ".a", "a..b", "\"a", "a b", "\"\"", "a\"b\""] {
            assert_eq!(
                names_of_text(wrong).unwrap_err().state(),
                SqlState::INVALID_NAME,
                "{wrong}"
            );
        }
    }

    #[test]
    fn lists_of_names_are_read_as_search_path_is() {
        for (list, expected) in [
            ("", vec![]),
            ("public", vec!["public"]),
            ("\"$user\", Public", vec!["$user", "public"]),
            ("$user,a", vec!["$user", "a"]),
            ("\"\"", vec![""]),
            ("\"a, b\"", vec!["a, b"]),
        ] {
            assert_eq!(list_of_names(list).unwrap(), expected, "{list}");
        }
        for wrong in ["a,", ",", "a b", "\"a"] {
            assert_eq!(list_of_names(wrong), None, "{wrong}");
        }
        let names = ["$user", "a", "B c"].map(str::to_owned);
        assert_eq!(text_of_list(&names), "\"$user\", a, \"B c\"");
    }
}
