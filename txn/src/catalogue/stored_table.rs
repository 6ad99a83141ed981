//! Parts of the definition of a table as they are stored.

use serde::{Deserialize, Serialize};

use crate::catalogue::schema::TableSchema;

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
}
