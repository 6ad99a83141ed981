//! Tables and trees as operations need them: schemas resolved once, into positions.

use selkie_btree::{Tree, max_entry, max_key};
use selkie_engine::GAddr;

use crate::catalogue::schema::{ColumnType, IndexSchema, SchemaError, TableSchema};
use crate::catalogue::store::StoredTable;
use crate::encoding::key::{KeyBuf, KeyColumn, part_length, split_parts};
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::RowLayout;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;

/// What errors call the primary index.
pub(crate) const PRIMARY: &str = "primary key";

/// A tree and what its keys look like.
#[derive(Debug)]
pub(crate) struct IndexInfo {
    /// Its name in errors.
    pub(crate) name: String,
    /// Its position among all trees of the database.
    pub(crate) number: usize,
    pub(crate) tree: Tree,
    /// Positions of its columns.
    pub(crate) columns: Vec<usize>,
    /// The same as a set, one bit a column.
    pub(crate) mask: u64,
    /// How its columns are encoded.
    pub(crate) parts: Vec<KeyColumn>,
    /// Whether the key stands for itself; else the primary key follows it.
    pub(crate) unique: bool,
}

/// A table.
#[derive(Debug)]
pub(crate) struct TableInfo {
    pub(crate) schema: TableSchema,
    pub(crate) layout: RowLayout,
    pub(crate) primary: IndexInfo,
    pub(crate) indexes: Vec<IndexInfo>,
}

impl TableInfo {
    /// Resolves a stored table whose trees begin at number `first_tree`.
    pub(crate) fn resolve(stored: StoredTable, first_tree: usize) -> Result<Self, SchemaError> {
        let StoredTable { schema, primary, indexes } = stored;
        schema.validate()?;
        let limit = schema.max_rows_per_page.unwrap_or(u16::MAX);
        let tree = Tree::open(GAddr::from_u64(primary), limit);
        let primary_schema = primary_schema(&schema);
        let primary = IndexInfo::resolve(&schema, &primary_schema, tree, first_tree);
        let mut resolved = Vec::with_capacity(indexes.len());
        for (at, (index, root)) in schema.indexes.iter().zip(indexes).enumerate() {
            let tree = Tree::open(GAddr::from_u64(root), u16::MAX);
            resolved.push(IndexInfo::resolve(&schema, index, tree, first_tree + 1 + at));
        }
        Ok(Self { layout: RowLayout::of(&schema), schema, primary, indexes: resolved })
    }

    /// The error for a second row with one key.
    pub(crate) fn duplicate(&self, index: &IndexInfo) -> TxnError {
        TxnError::Duplicate { table: self.schema.name.clone(), index: index.name.clone() }
    }

    pub(crate) fn inconsistent(&self, index: &IndexInfo) -> TxnError {
        TxnError::Inconsistent { table: self.schema.name.clone(), index: index.name.clone() }
    }

    pub(crate) fn not_found(&self) -> TxnError {
        TxnError::NotFound { table: self.schema.name.clone() }
    }

    /// Refuses bytes that are not a whole key of `index`.
    pub(crate) fn check_key(&self, index: &IndexInfo, key: &[u8]) -> Result<(), TxnError> {
        match split_parts(&index.parts, key) {
            Some((_, [])) => Ok(()),
            _ => Err(self.mismatch(index)),
        }
    }

    /// Refuses a bound that is not made of the first columns of `index`.
    pub(crate) fn check_prefix(&self, index: &IndexInfo, key: &[u8]) -> Result<(), TxnError> {
        let mut rest = key;
        for &part in &index.parts {
            if rest.is_empty() {
                return Ok(());
            }
            let length = part_length(part, rest).ok_or_else(|| self.mismatch(index))?;
            rest = rest.get(length..).ok_or_else(|| self.mismatch(index))?;
        }
        if rest.is_empty() { Ok(()) } else { Err(self.mismatch(index)) }
    }

    fn mismatch(&self, index: &IndexInfo) -> TxnError {
        TxnError::KeyMismatch { table: self.schema.name.clone(), index: index.name.clone() }
    }
}

impl IndexInfo {
    fn resolve(table: &TableSchema, index: &IndexSchema, tree: Tree, number: usize) -> Self {
        let parts = parts(table, &index.columns);
        Self {
            name: index.name.clone(),
            number,
            tree,
            mask: index.columns.iter().fold(0, |mask, &column| mask | 1 << column),
            columns: index.columns.clone(),
            parts,
            unique: index.unique,
        }
    }

    /// Appends the encoded columns of `row`.
    pub(crate) fn encode(&self, row: RowRef<'_>, key: &mut KeyBuf) -> Result<(), RowError> {
        for (&column, part) in self.columns.iter().zip(&self.parts) {
            if part.nullable {
                let present = !row.is_null(column)?;
                key.push_presence(present);
                if !present {
                    continue;
                }
            }
            match part.ty {
                ColumnType::I32 => key.push_i32(row.i32(column)?),
                ColumnType::I64 => key.push_i64(row.i64(column)?),
                ColumnType::F64 => return Err(RowError::Damaged { column }),
                ColumnType::Text(_) | ColumnType::Bytes(_) => {
                    let value = row.variable_bytes(column)?;
                    key.push_bytes(value.ok_or(RowError::Null { column })?);
                }
            }
        }
        Ok(())
    }

    /// The primary key inside an entry of this secondary index.
    pub(crate) fn primary_key<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Option<&'a [u8]> {
        if self.unique { Some(value) } else { Some(split_parts(&self.parts, key)?.1) }
    }
}

/// Checks the sizes of a table's entries against the pages they must fit.
///
/// A key must be short enough for inner pages. Two entries and, whatever the fences are, two keys
/// of the longest kind must fit a leaf: the transaction keeps room for its fences free (see
/// `write`), and a leaf with one entry must still take another one of any size.
///
/// # Errors
/// [`SchemaError::EntryTooLarge`] naming table, size and what is allowed.
pub(crate) fn check_sizes(schema: &TableSchema, gcl_bytes: usize) -> Result<(), SchemaError> {
    let layout = RowLayout::of(schema);
    let primary = primary_schema(schema);
    let primary_key = max_key_bytes(schema, &primary);
    let check = |index: &str, size: usize, allowed: usize| {
        if size <= allowed {
            return Ok(());
        }
        let (table, index) = (schema.name.clone(), index.to_owned());
        Err(SchemaError::EntryTooLarge { table, index, size, allowed })
    };
    let largest = max_entry(gcl_bytes);
    let entry = |key_bytes: usize| largest.min((3 * largest).saturating_sub(2 * key_bytes) / 2);
    check(PRIMARY, primary_key, max_key(gcl_bytes))?;
    check(PRIMARY, primary_key + layout.max_bytes, entry(primary_key))?;
    for index in &schema.indexes {
        let key_bytes = max_key_bytes(schema, index);
        let value_bytes = if index.unique { primary_key } else { 0 };
        check(&index.name, key_bytes, max_key(gcl_bytes))?;
        check(&index.name, key_bytes + value_bytes, entry(key_bytes))?;
    }
    Ok(())
}

fn primary_schema(table: &TableSchema) -> IndexSchema {
    IndexSchema { name: PRIMARY.to_owned(), columns: table.primary_key.clone(), unique: true }
}

/// How the columns of a key are encoded.
#[expect(clippy::indexing_slicing, reason = "the schema was validated: keys name its columns")]
fn parts(table: &TableSchema, columns: &[usize]) -> Vec<KeyColumn> {
    let columns = columns.iter().map(|&column| &table.columns[column]);
    columns.map(|column| KeyColumn { ty: column.ty, nullable: column.nullable }).collect()
}

/// Longest key in the tree of an index.
fn max_key_bytes(table: &TableSchema, index: &IndexSchema) -> usize {
    let longest = |columns: &[usize]| -> usize {
        parts(table, columns).iter().map(|part| part.ty.max_key_bytes(part.nullable)).sum()
    };
    longest(&index.columns) + if index.unique { 0 } else { longest(&table.primary_key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_tables_are_refused_by_name() {
        let table = |text| {
            TableSchema::new("big")
                .column("id", ColumnType::I32)
                .column("text", ColumnType::Text(text))
                .primary_key([0])
                .index("by_text", [1])
        };
        assert_eq!(check_sizes(&table(20), 2048), Ok(()));
        let error = check_sizes(&table(200), 2048).unwrap_err();
        assert!(error.to_string().contains("table big, by_text"), "{error}");
        let mut no_index = table(2000);
        no_index.indexes.clear();
        let error = check_sizes(&no_index, 2048).unwrap_err();
        let SchemaError::EntryTooLarge { size, allowed, .. } = &error else { panic!("{error}") };
        assert_eq!(*size, 4 + 4 + 2 + 2000);
        assert!(*allowed < 2048 / 3 + 16);
        assert!(check_sizes(&no_index, 8192).is_ok());
    }
}
