//! Parts of the definition of a table as they are stored.

use serde::{Deserialize, Serialize};

use crate::catalogue::schema::{IndexSchema, TableSchema};

/// One table: its schema and the roots of its trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredTable {
    pub(crate) schema: TableSchema,
    /// Root of the primary index.
    pub(crate) primary: u64,
    /// Roots of the secondary indexes, in the schema's order.
    pub(crate) indexes: Vec<u64>,
}

/// What is stored of an index of a table that may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexDefinition {
    /// No number is used again.
    pub(crate) number: u16,
    /// Whether it has an entry for each row.
    pub(crate) is_complete: bool,
    /// Of its tree, as that of the table.
    pub(crate) identity: i64,
    /// Of which of its columns the keys say whether they are NULL, one bit a column of the index:
    /// of those that could be NULL when the index was made.
    pub(crate) nullable: u64,
}

/// The tree of the values that the rows of a table have no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ValuesTree {
    pub(crate) root: u64,
    /// Of the tree, as that of the table.
    pub(crate) identity: i64,
}

/// Which columns of an index may be NULL.
pub(crate) fn nullable_columns(schema: &TableSchema, index: &IndexSchema) -> u64 {
    let may_be = |column: &usize| schema.columns.get(*column).is_some_and(|own| own.nullable);
    let columns = index.columns.iter().enumerate();
    columns.fold(0, |mask, (at, column)| mask | u64::from(may_be(column)) << at)
}
