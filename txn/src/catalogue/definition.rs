//! The definition of a table that may change, and the tables that hold the definitions.
//!
//! Where tables may change, the catalogue is made of tables itself, whose own definitions stand in
//! the superblock and never change:
//!
//! | table | key | row |
//! |---|---|---|
//! | `tables` | number of the table | version of its definition, and in how many pieces it is |
//! | `names` | name | number of the table |
//! | `definitions` | number of the table, piece | a piece of the definition, a JSON document |
//! | `dropped` | root of a tree that is to be given back | who does that, and how far it is |
//! | `sequences`, `sequence_values` | see [`sequences`](crate::sequences) | |
//! | `statistics` | number of the table, piece | a piece of what `analyze` has found |
//!
//! Row 0 of `tables` has the next number of a table as its version. A version is a random number,
//! so two definitions never have the same. A transaction that uses a table reads its row, so a
//! transaction that commits has used the definition that was in force.

use selkie_btree::max_key;
use serde::{Deserialize, Serialize};

use crate::catalogue::column_history::ColumnHistory;
use crate::catalogue::column_type::ColumnType;
use crate::catalogue::error::CatalogueError;
use crate::catalogue::handles::{Index, Table};
use crate::catalogue::schema::{IndexSchema, TableSchema};
use crate::catalogue::stored_table::{IndexDefinition, StoredTable, ValuesTree, nullable_columns};
use crate::catalogue::table_info::TableInfo;
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_builder::RowBuilder;
use crate::error::TxnError;

/// The versions of all definitions.
pub(crate) const TABLES: Table = Table::of_number(0);
/// The numbers of tables by their names.
pub(crate) const NAMES: Table = Table::of_number(1);
/// The definitions.
pub(crate) const DEFINITIONS: Table = Table::of_number(2);
/// Trees whose pages are to be given back.
pub(crate) const DROPPED: Table = Table::of_number(3);
/// The definitions of sequences.
pub(crate) const SEQUENCES: Table = Table::of_number(4);
/// How far sequences are.
pub(crate) const SEQUENCE_VALUES: Table = Table::of_number(5);
/// What is known of the values in tables.
pub(crate) const STATISTICS: Table = Table::of_number(6);
/// The number of the first table of a user. Those before are of the catalogue.
pub(crate) const FIRST_TABLE: i64 = 16;

/// The row of `tables` that has the next number.
pub(crate) const COUNTER: i64 = 0;

/// Columns of a row of `tables` after its key.
pub(crate) const VERSION_COLUMN: usize = 1;
pub(crate) const PIECES_COLUMN: usize = 2;

/// Longest name of a table or an index, in bytes, on large pages.
const MAX_NAME_BYTES: usize = 63;

/// A table as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableDefinition {
    pub(crate) stored: StoredTable,
    /// Of its own tree: a random number, which no other tree has.
    pub(crate) identity: i64,
    /// Of each index of the schema.
    pub(crate) indexes: Vec<IndexDefinition>,
    /// The number of the next index.
    pub(crate) next_index: u16,
    /// By which its rows are read.
    pub(crate) columns: ColumnHistory,
    /// The tree of its long values, if it can have such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) values: Option<ValuesTree>,
}

impl TableDefinition {
    /// Of a new table with these trees, of which that at `values` is for its long values.
    /// `identity` makes identities.
    pub(crate) fn new(
        stored: StoredTable,
        values: Option<u64>,
        identity: impl Fn() -> i64,
    ) -> Self {
        let schema = &stored.schema;
        let index = |(number, index): (u16, &IndexSchema)| {
            let nullable = nullable_columns(schema, index);
            IndexDefinition { number, is_complete: true, identity: identity(), nullable }
        };
        let next_index = stored.indexes.len() as u16;
        let indexes = (0..).zip(&schema.indexes).map(index).collect();
        let columns = ColumnHistory::new(schema);
        let values = values.map(|root| ValuesTree { root, identity: identity() });
        Self { identity: identity(), indexes, stored, next_index, columns, values }
    }

    pub(crate) fn resolve(self, table: Table) -> Result<TableInfo, TxnError> {
        let (found, expected) = (self.columns.len(), self.stored.schema.columns.len());
        if found != expected {
            let damaged = CatalogueError::Columns { table: table.number(), found, expected };
            return Err(damaged.into());
        }
        let indexes = self.indexes.into_iter();
        let columns = Some(self.columns);
        let (identity, values) = (self.identity, self.values);
        Ok(TableInfo::resolve_with(table, self.stored, identity, indexes, columns, values)?)
    }

    /// The rows by which the catalogue, whose tables are `system`, says this of the table of that
    /// number.
    pub(crate) fn rows<'s>(
        &self,
        number: i64,
        version: i64,
        system: &[&'s TableInfo],
        page_bytes: usize,
    ) -> Result<Vec<(&'s TableInfo, Vec<u8>)>, TxnError> {
        let &[tables, names, definitions, ..] = system else {
            unreachable!("the catalogue was resolved with all of its tables");
        };
        let document = serde_json::to_vec(self).map_err(CatalogueError::from)?;
        let pieces = document.chunks(piece_bytes(page_bytes));
        let count = self.pieces(page_bytes)?;
        let mut rows = vec![(tables, version_row(tables, number, version, count)?)];
        let mut row = RowBuilder::new(&names.layout);
        rows.push((
            names,
            row.text(&self.stored.schema.name).i64(number).finish()?.as_bytes().to_vec(),
        ));
        for (piece, bytes) in (0..).zip(pieces) {
            let mut row = RowBuilder::new(&definitions.layout);
            let row = row.i64(number).i32(piece).bytes(bytes).finish()?;
            rows.push((definitions, row.as_bytes().to_vec()));
        }
        Ok(rows)
    }

    /// In how many pieces it is stored.
    pub(crate) fn pieces(&self, page_bytes: usize) -> Result<i16, CatalogueError> {
        let bytes = serde_json::to_vec(self)?.len();
        let pieces = bytes.div_ceil(piece_bytes(page_bytes));
        i16::try_from(pieces).map_err(|_| CatalogueError::TooLong { bytes: bytes as u64 })
    }

    /// The position of an index of this table in its schema.
    pub(crate) fn position(&self, index: Index) -> Option<usize> {
        self.indexes.iter().position(|known| usize::from(known.number) == index.number())
    }

    /// The roots of all trees.
    pub(crate) fn roots(&self) -> impl Iterator<Item = u64> {
        let values = self.values.map(|values| values.root);
        let indexes = self.stored.indexes.iter().copied();
        std::iter::once(self.stored.primary).chain(indexes).chain(values)
    }
}

/// A row of `tables`.
pub(crate) fn version_row(
    tables: &TableInfo,
    number: i64,
    version: i64,
    pieces: i16,
) -> Result<Vec<u8>, NamedRowError> {
    let mut row = RowBuilder::new(&tables.layout);
    Ok(row.i64(number).i64(version).i16(pieces).finish()?.as_bytes().to_vec())
}

/// Longest name of a table, in bytes.
pub(crate) fn max_name_bytes(page_bytes: usize) -> usize {
    // In a key, each byte may take two, and its end takes two.
    MAX_NAME_BYTES.min((max_key(page_bytes) - 2) / 2)
}

/// Bytes of a definition in one piece.
pub(crate) fn piece_bytes(page_bytes: usize) -> usize {
    // As it always was: definitions that are there are counted by it.
    ((page_bytes - 64) / 3 - 6) / 2
}

/// The tables of the catalogue, in the order of their numbers.
pub(crate) fn system_tables(page_bytes: usize) -> Vec<TableSchema> {
    let (name, piece) = (max_name_bytes(page_bytes) as u32, piece_bytes(page_bytes) as u32);
    let number = |table| TableSchema::new(table).column("number", ColumnType::I64);
    vec![
        number("tables")
            .column("version", ColumnType::I64)
            .column("pieces", ColumnType::I16)
            .primary_key([0]),
        TableSchema::new("names")
            .column("name", ColumnType::Text(name))
            .column("number", ColumnType::I64)
            .primary_key([0]),
        number("definitions")
            .column("piece", ColumnType::I32)
            .column("document", ColumnType::Bytes(piece))
            .primary_key([0, 1]),
        TableSchema::new("dropped")
            .column("root", ColumnType::I64)
            .column("owner", ColumnType::I64)
            .column("level", ColumnType::I16)
            .column("next", ColumnType::I64)
            .primary_key([0]),
        TableSchema::new("sequences")
            .column("name", ColumnType::Text(name))
            .column("identity", ColumnType::I64)
            .column("start", ColumnType::I64)
            .column("increment", ColumnType::I64)
            .column("min", ColumnType::I64)
            .column("max", ColumnType::I64)
            .column("cycles", ColumnType::Bool)
            .column("block", ColumnType::I64)
            .primary_key([0]),
        TableSchema::new("sequence_values")
            .column("identity", ColumnType::I64)
            .column("value", ColumnType::I64)
            .column("is_taken", ColumnType::Bool)
            .primary_key([0]),
        number("statistics")
            .column("piece", ColumnType::I32)
            .column("document", ColumnType::Bytes(piece))
            .primary_key([0, 1]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::sizes::check_sizes;

    #[test]
    fn the_tables_of_the_catalogue_fit_pages_of_all_sizes() {
        for page_bytes in [504, 512, 1024, 2048, 4096, 8192] {
            let tables = system_tables(page_bytes);
            for (number, schema) in tables.iter().enumerate() {
                assert_eq!(schema.validate(), Ok(()));
                assert_eq!(check_sizes(schema, 0, page_bytes), Ok(()), "{page_bytes}");
                assert!((number as i64) < FIRST_TABLE);
            }
            assert_eq!(tables[NAMES.number()].name, "names");
            assert_eq!(tables[DEFINITIONS.number()].name, "definitions");
            assert_eq!(tables[DROPPED.number()].name, "dropped");
            assert_eq!(tables[SEQUENCES.number()].name, "sequences");
            assert_eq!(tables[SEQUENCE_VALUES.number()].name, "sequence_values");
            assert_eq!(tables[STATISTICS.number()].name, "statistics");
        }
        assert_eq!(max_name_bytes(8192), MAX_NAME_BYTES);
    }
}
