//! A table as SQL sees it.

use std::collections::BTreeSet;

use selkie_txn::{KeyOrder, Table};

use super::comments::Comments;
use super::foreign_key::{ForeignKey, Reference};
use super::note::{Identity, ViewNote};
use crate::roles::{Kind, Rights};
use crate::types::SqlType;

/// A table in the state that a transaction sees.
#[derive(Clone, Debug)]
pub(crate) struct TableDef {
    pub(crate) table: Table,
    /// Its name in the catalogue.
    pub(crate) key: String,
    /// Its name in its schema.
    pub(crate) name: String,
    /// In the order in which they are stored.
    pub(crate) columns: Vec<ColumnDef>,
    /// Positions of columns.
    pub(crate) primary_key: Vec<usize>,
    pub(crate) primary_order: Vec<KeyOrder>,
    pub(crate) indexes: Vec<IndexDef>,
    /// CHECK constraints: names and conditions, as SQL.
    pub(crate) checks: Vec<(String, String)>,
    /// Names of constraints that rows from before them need not fulfil.
    pub(crate) not_valid: BTreeSet<String>,
    /// What the primary key is called; its default without a name of its own.
    pub(crate) primary_key_name: Option<String>,
    pub(crate) foreign_keys: Vec<ForeignKey>,
    /// The constraints that refer to it.
    pub(crate) referenced_by: Vec<Reference>,
    pub(crate) comments: Comments,
    /// That it is a view, whose columns these are. It has no key.
    pub(crate) view: Option<ViewNote>,
    pub(crate) rights: Rights,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct ColumnDef {
    pub(crate) name: String,
    pub(crate) ty: SqlType,
    pub(crate) nullable: bool,
    /// As SQL.
    pub(crate) default: Option<String>,
    /// A key that the table has because its user gave it none: `*` does not show it.
    pub(crate) is_hidden: bool,
    /// The sequence that is dropped with it.
    pub(crate) sequence: Option<String>,
    pub(crate) identity: Option<Identity>,
}

/// An index of a table.
#[derive(Clone, Debug)]
pub(crate) struct IndexDef {
    pub(crate) name: String,
    pub(crate) columns: Vec<usize>,
    pub(crate) order: Vec<KeyOrder>,
    pub(crate) unique: bool,
    /// Whether it is a UNIQUE constraint.
    pub(crate) is_constraint: bool,
}

impl TableDef {
    /// The position of a column.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The positions of columns; `None` if one is not there.
    pub(crate) fn positions(&self, names: &[String]) -> Option<Vec<usize>> {
        names.iter().map(|name| self.column(name)).collect()
    }

    /// The key that has exactly these columns, in any order, and is unique: `Some(None)` is the
    /// primary key, `Some(Some(i))` an index.
    pub(crate) fn unique_key(&self, columns: &[usize]) -> Option<Option<usize>> {
        let has = |own: &[usize]| {
            own.len() == columns.len() && columns.iter().all(|column| own.contains(column))
        };
        if has(&self.primary_key) {
            return Some(None);
        }
        let is_it = |own: &IndexDef| own.unique && has(&own.columns);
        self.indexes.iter().position(is_it).map(Some)
    }

    /// Whether constraints refer to it, or it has some that refer to others.
    pub(crate) fn has_references(&self) -> bool {
        !self.foreign_keys.is_empty() || !self.referenced_by.is_empty()
    }

    /// Whether it is a table or a view.
    pub(crate) fn kind(&self) -> Kind {
        if self.view.is_some() { Kind::View } else { Kind::Table }
    }

    /// Whether its primary key is one that its user has not given it.
    pub(crate) fn has_hidden_key(&self) -> bool {
        let is_hidden = |at: &usize| self.columns.get(*at).is_some_and(|own| own.is_hidden);
        self.primary_key.iter().any(is_hidden)
    }

    /// What the primary key is called.
    pub(crate) fn primary_key_name(&self) -> String {
        self.primary_key_name.clone().unwrap_or_else(|| format!("{}_pkey", self.name))
    }

    /// The columns of its primary key, or of an index, and their order.
    pub(crate) fn key(&self, index: Option<usize>) -> Option<(&[usize], &[KeyOrder])> {
        match index {
            None => Some((&self.primary_key, &self.primary_order)),
            Some(index) => self.indexes.get(index).map(|own| (&*own.columns, &*own.order)),
        }
    }
}
