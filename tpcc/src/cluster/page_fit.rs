//! Whether the largest entries of tables fit a page size.

use selkie_btree::{max_key, max_value};
use selkie_engine::PSN_BYTES;
use selkie_txn::{ColumnType, TableSchema};

/// A table whose largest entry does not fit a page size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The table.
    pub table: String,
    /// Bytes of its largest entry with the key.
    pub bytes: usize,
    /// Bytes allowed.
    pub allowed: usize,
}

/// The table with the largest entry that does not fit the page of a cache line of `gcl_bytes`, if
/// there is one.
pub(crate) fn misfit_of(schemas: &[TableSchema], gcl_bytes: usize) -> Option<Misfit> {
    let page_bytes = gcl_bytes.saturating_sub(PSN_BYTES);
    let misfits = schemas.iter().filter_map(|schema| {
        let (entry, primary, key) = largest_entry(schema);
        let key_misfits = key > max_key(page_bytes);
        let largest = primary + max_value(page_bytes, primary);
        let allowed = if key_misfits { max_key(page_bytes) } else { largest };
        let bytes = if key_misfits { key } else { entry };
        (bytes > allowed).then(|| Misfit { table: schema.name.clone(), bytes, allowed })
    });
    misfits.max_by_key(|misfit| misfit.bytes)
}

/// Bytes of the largest row with its key, of that key, and of the longest key of the table's trees.
fn largest_entry(schema: &TableSchema) -> (usize, usize, usize) {
    // Two bytes say where a variable column ends.
    let value = |ty: ColumnType| ty.max_bytes() + if ty.fixed_bytes().is_some() { 0 } else { 2 };
    let part = |column: usize| {
        let column = schema.columns.get(column);
        column.map_or(0, |column| column.ty.max_key_bytes(column.nullable))
    };
    let key = |columns: &[usize]| columns.iter().map(|&column| part(column)).sum::<usize>();
    let nulls = if schema.columns.iter().any(|column| column.nullable) {
        schema.columns.len().div_ceil(8)
    } else {
        0
    };
    let row: usize = nulls + schema.columns.iter().map(|column| value(column.ty)).sum::<usize>();
    let primary = key(&schema.primary_key);
    let indexes = schema.indexes.iter().map(|index| key(&index.columns));
    (row + primary, primary, indexes.chain([primary]).max().unwrap_or(primary))
}
