//! FOREIGN KEY constraints as the catalogue has them.
//!
//! A constraint stands in the note of the table that has it. The table that it refers to has a back
//! reference in its own note. Both are changed in one transaction, so who has used one of the
//! definitions has used the constraint.

use serde::{Deserialize, Serialize};

/// A FOREIGN KEY constraint of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForeignKey {
    pub(crate) name: String,
    /// By name, as are those of the parent.
    pub(crate) columns: Vec<String>,
    /// The table that it refers to, by its name in the catalogue.
    pub(crate) parent: String,
    pub(crate) parent_columns: Vec<String>,
    /// MATCH FULL: all columns are NULL, or none is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_full: bool,
    #[serde(default)]
    pub(crate) on_delete: ReferenceAction,
    /// The columns that SET NULL and SET DEFAULT set when a parent is deleted; none for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) set_columns: Vec<String>,
    #[serde(default)]
    pub(crate) on_update: ReferenceAction,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_deferrable: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_deferred: bool,
}

/// A FOREIGN KEY constraint, as the table has it that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// The table that has the constraint, by its name in the catalogue.
    pub(crate) child: String,
    /// The name of the constraint.
    pub(crate) name: String,
}

/// What is done with rows whose parent goes, or gets another key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReferenceAction {
    /// It is an error if there are such rows when the statement has ended.
    #[default]
    NoAction,
    /// It is an error also if another parent has come in the place of the one that goes.
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

impl ReferenceAction {
    /// As a statement says it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NoAction => "NO ACTION",
            Self::Restrict => "RESTRICT",
            Self::Cascade => "CASCADE",
            Self::SetNull => "SET NULL",
            Self::SetDefault => "SET DEFAULT",
        }
    }

    /// As `pg_constraint` says it.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::NoAction => "a",
            Self::Restrict => "r",
            Self::Cascade => "c",
            Self::SetNull => "n",
            Self::SetDefault => "d",
        }
    }
}
