//! What several errors say in the same way: of which table, row or value they are.

use std::fmt;

/// Of which table an error is, if that is known.
pub(crate) fn of_table(table: &str) -> String {
    of_row(table, "")
}

/// Of which row an error is, if that is known.
pub(crate) fn of_row(table: &str, key: &str) -> String {
    match (table, key) {
        ("", _) => String::new(),
        (table, "") => format!("table {table}: "),
        (table, key) => format!("table {table}, row {key}: "),
    }
}

/// What takes most of a row or key that is too long.
pub(crate) fn of_longest(longest: &Option<Box<LongestValue>>) -> String {
    longest.as_ref().map_or_else(String::new, |longest| format!(", most of them {longest}"))
}

/// The value that takes most of a row or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongestValue {
    /// Its column.
    pub column: String,
    /// It, with its type, and at most 64 characters or bytes of it.
    pub value: String,
    /// Bytes that it takes.
    pub bytes: usize,
}

impl fmt::Display for LongestValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, value, bytes } = self;
        write!(f, "the {bytes} of column {column}, which is {value}")
    }
}
