//! What SQL keeps with a table beside its stored schema.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::comments::Comments;
use super::foreign_key::{ForeignKey, Reference};
use crate::error::{SqlError, SqlResult};
use crate::roles::Rights;

/// The note of a table ([`selkie_txn::TableSchema::note`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableNote {
    /// By name of the column.
    #[serde(default)]
    pub(crate) columns: BTreeMap<String, ColumnNote>,
    /// CHECK constraints: names and conditions.
    #[serde(default)]
    pub(crate) checks: Vec<(String, String)>,
    /// Names of constraints that rows from before them need not fulfil: NOT VALID.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) not_valid: BTreeSet<String>,
    /// The name of the primary key.
    #[serde(default)]
    pub(crate) primary_key_name: Option<String>,
    /// Names of indexes that are UNIQUE constraints.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unique: BTreeSet<String>,
    /// That it is a view: a table without rows, which has its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) view: Option<ViewNote>,
    /// Its FOREIGN KEY constraints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) foreign_keys: Vec<ForeignKey>,
    /// Those of other tables, and its own, that refer to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) referenced_by: Vec<Reference>,
    #[serde(default, skip_serializing_if = "Comments::is_empty")]
    pub(crate) comments: Comments,
    /// Who owns it, and who may do what with it.
    #[serde(default, skip_serializing_if = "Rights::is_default")]
    pub(crate) rights: Rights,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ViewNote {
    /// Its query, as SQL.
    pub(crate) query: String,
    /// The tables and views that the query names, by their names in the catalogue.
    pub(crate) uses: BTreeSet<String>,
    pub(crate) columns: Vec<ViewColumn>,
}

/// A column of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ViewColumn {
    pub(crate) name: String,
    /// What its query calls it: `*` of a table may come to give more columns, which are none of
    /// the view.
    pub(crate) source: String,
    pub(crate) oid: u32,
    pub(crate) modifier: i32,
}

/// What SQL keeps of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnNote {
    /// PostgreSQL's number of the type.
    pub(crate) oid: u32,
    /// The modifier of the type.
    pub(crate) modifier: i32,
    /// As SQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<String>,
    /// A key that the table has because its user gave it none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hidden: bool,
    /// The sequence that is dropped with it, by its name in the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Identity>,
}

/// How an identity column gets its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Identity {
    /// From its sequence, unless a statement overrides that.
    Always,
    /// From its sequence where a statement says nothing.
    ByDefault,
}

impl TableNote {
    /// The note in the stored form; that of a table that SQL did not make is empty.
    pub(crate) fn from_stored(text: &str) -> SqlResult<Self> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let damaged =
            |error| SqlError::internal(format!("the note of a table is damaged: {error}"));
        serde_json::from_str(text).map_err(damaged)
    }

    pub(crate) fn to_stored(&self) -> SqlResult<String> {
        let failed = |error| SqlError::internal(format!("the note of a table: {error}"));
        serde_json::to_string(self).map_err(failed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    /// Notes of tables from before there were foreign keys and comments.
    #[test]
    fn notes_without_what_came_later_are_read() {
        let old = r#"{"columns":{"id":{"oid":23,"modifier":-1}},"checks":[["c","id > 0"]],
            "primary_key_name":null,"unique":["u"]}"#;
        let note = TableNote::from_stored(old).unwrap();
        assert!(note.foreign_keys.is_empty() && note.referenced_by.is_empty());
        assert!(note.comments.is_empty());
        let stored = note.to_stored().unwrap();
        assert_eq!(TableNote::from_stored(&stored).unwrap(), note);
        for word in ["foreign", "referenced", "comments"] {
            assert!(!stored.contains(word), "{stored}");
        }
    }
}
