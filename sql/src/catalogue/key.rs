//! What tables, views and sequences are called in the catalogue.
//!
//! One of the schema `public` has its own name there, as all had before there were schemas. One of
//! another schema has the number of that before its name: `\0`, the number, a dot. No name has a
//! `\0`, so a name with a dot in it is never taken for one of a schema; and a schema that is
//! renamed leaves what is in it as it is.

use std::fmt;

/// A schema, by a number that no other ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SchemaId(u32);

/// How the key begins of what is in another schema than `public`.
const MARK: char = '\0';

impl SchemaId {
    /// The schema `public`.
    pub(crate) const PUBLIC: Self = Self(0);

    /// The schema of a number, which is not 0.
    pub(crate) const fn of_number(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// The key of a name in the schema.
    pub(crate) fn key(self, name: &str) -> String {
        match self {
            Self::PUBLIC => name.to_owned(),
            Self(number) => format!("{MARK}{number}.{name}"),
        }
    }
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The schema that a key is of, and the name in it.
pub(crate) fn split_key(key: &str) -> (SchemaId, &str) {
    let parts = key.strip_prefix(MARK).and_then(|rest| rest.split_once('.'));
    match parts.and_then(|(number, name)| Some((number.parse().ok()?, name))) {
        Some((number, name)) => (SchemaId(number), name),
        None => (SchemaId::PUBLIC, key),
    }
}

/// The name in its schema that a key is of.
pub(crate) fn name_of(key: &str) -> &str {
    split_key(key).1
}

/// Where a table is while another takes its name. No statement can say it.
pub(crate) fn aside(number: usize) -> String {
    format!("{MARK}~{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_in_a_name_is_no_schema() {
        let other = SchemaId::of_number(12);
        for (schema, name) in
            [(SchemaId::PUBLIC, "a.b"), (other, "a.b"), (other, "b"), (SchemaId::PUBLIC, "12.b")]
        {
            assert_eq!(split_key(&schema.key(name)), (schema, name));
        }
        assert_eq!(SchemaId::PUBLIC.key("a.b"), "a.b", "as databases have it that are there");
        assert_ne!(SchemaId::PUBLIC.key("12.b"), other.key("b"));
    }
}
