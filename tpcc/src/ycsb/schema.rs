//! The table of records.

use selkie_txn::{ColumnType, Database, Table, TableSchema, TxnError};

use super::record::{FIELDS, FieldSizes};
use crate::cluster::TableSet;

/// Its name, that of YCSB.
pub(super) const NAME: &str = "usertable";
/// Position of the key.
pub(super) const KEY: usize = 0;
/// Position of the version.
pub(super) const VERSION: usize = 1;
/// Position of the first field.
pub(super) const FIRST_FIELD: usize = 2;
/// Bytes of a row beside those of its fields: key, version, and where each field ends.
pub(super) const ROW_OVERHEAD: usize = 2 * 8 + 2 * FIELDS;

/// The tables, resolved once.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The records, or the tree that has them.
    pub records: Table,
}

/// The table for records of these fields.
pub(super) fn schemas_of(fields: FieldSizes) -> Vec<TableSchema> {
    let longest = u32::try_from(fields.of(0)).unwrap_or(u32::MAX);
    let columns = (0..FIELDS).fold(
        TableSchema::new(NAME)
            .column("ycsb_key", ColumnType::I64)
            .column("version", ColumnType::I64),
        |table, field| table.column(format!("field{field}"), ColumnType::Text(longest)),
    );
    vec![columns.primary_key([KEY])]
}

impl TableSet for Tables {
    fn schemas() -> Vec<TableSchema> {
        schemas_of(FieldSizes::new(super::config::USUAL_VALUE_BYTES))
    }

    fn resolve(db: &Database) -> Result<Self, TxnError> {
        Ok(Self { records: db.table(NAME)? })
    }
}
