//! What COMMENT ON has said of a table and of what belongs to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The comments of a table or view, and of what belongs to it, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Comments {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) columns: BTreeMap<String, String>,
    /// Also of the primary key as an index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) indexes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) constraints: BTreeMap<String, String>,
}

impl Comments {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Forgets those of a column.
    pub(crate) fn drop_column(&mut self, name: &str) {
        self.columns.remove(name);
    }

    /// Forgets those of a key or constraint.
    pub(crate) fn drop_constraint(&mut self, name: &str) {
        self.indexes.remove(name);
        self.constraints.remove(name);
    }

    pub(crate) fn rename_column(&mut self, old: &str, new: &str) {
        rename(&mut self.columns, old, new);
    }

    /// A key or constraint has another name.
    pub(crate) fn rename_constraint(&mut self, old: &str, new: &str) {
        rename(&mut self.indexes, old, new);
        rename(&mut self.constraints, old, new);
    }
}

fn rename(comments: &mut BTreeMap<String, String>, old: &str, new: &str) {
    if let Some(comment) = comments.remove(old) {
        comments.insert(new.to_owned(), comment);
    }
}

/// Sets a comment; an empty one is none, as in PostgreSQL.
pub(crate) fn set_comment(
    comments: &mut BTreeMap<String, String>,
    name: &str,
    comment: Option<String>,
) {
    match comment.filter(|text| !text.is_empty()) {
        Some(text) => comments.insert(name.to_owned(), text),
        None => comments.remove(name),
    };
}
