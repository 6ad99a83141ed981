//! Tables and trees as operations need them: schemas resolved once, into positions.

use std::sync::Arc;

use selkie_btree::Tree;
use selkie_engine::GAddr;

use crate::catalogue::column_history::ColumnHistory;
use crate::catalogue::earlier_layouts::EarlierLayouts;
use crate::catalogue::handles::{Source, Table};
use crate::catalogue::known_tree::KnownTree;
use crate::catalogue::schema::{IndexSchema, TableSchema};
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::stored_table::{IndexDefinition, StoredTable, ValuesTree, nullable_columns};
use crate::encoding::key::KeyBuf;
use crate::encoding::key_column::{KeyColumn, split_parts};
use crate::encoding::key_range::KeyRange;
use crate::encoding::moved_values::{MovedValues, ValuePointer};
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_builder::RowBuilder;
#[cfg(doc)]
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::RowLayout;
use crate::encoding::row_names::RowNames;
use crate::encoding::row_ref::RowRef;
use crate::encoding::shown_value::shown_bytes;
use crate::encoding::value::Value;
use crate::error::TxnError;

/// What errors call the primary index.
pub(crate) const PRIMARY: &str = "primary key";
/// What errors call the tree of long values.
pub(crate) const VALUES: &str = "long values";

/// A tree and what its keys look like.
#[derive(Debug)]
pub(crate) struct IndexInfo {
    /// Its name in errors.
    pub(crate) name: String,
    /// The number of its tree among all trees of the database.
    pub(crate) number: usize,
    /// Whether it has an entry for each row. If not, it is being built: changes of rows are entered
    /// in it, and nothing is read from it.
    pub(crate) is_complete: bool,
    pub(crate) tree: Tree,
    /// The same, to be worked on later.
    pub(crate) known: KnownTree,
    /// Its columns as a set, one bit a column.
    pub(crate) mask: u64,
    /// Its columns, and how they are encoded.
    pub(super) parts: Vec<KeyColumn>,
    /// For errors: of the table.
    pub(super) names: Arc<RowNames>,
    /// Whether the key stands for itself; else the primary key follows it.
    unique: bool,
    /// Whether a key with a NULL does not, though the index is unique.
    nulls_distinct: bool,
}

/// An entry of a secondary index.
pub(crate) struct IndexEntry<'p> {
    pub(crate) key: KeyBuf,
    /// The primary key, unless it is the end of `key`.
    pub(crate) value: &'p [u8],
}

/// A table.
#[derive(Debug)]
pub(crate) struct TableInfo {
    pub(crate) schema: TableSchema,
    /// In which rows are written.
    pub(crate) layout: RowLayout,
    /// Of rows that were written before; empty where tables do not change.
    earlier: EarlierLayouts,
    pub(crate) primary: IndexInfo,
    pub(crate) indexes: Vec<IndexInfo>,
    /// The tree of the values that rows have no room for, if there can be such.
    pub(crate) values: Option<IndexInfo>,
}

impl TableInfo {
    /// Resolves a stored table that never changes.
    pub(crate) fn resolve(table: Table, stored: StoredTable) -> Result<Self, SchemaError> {
        let nullable = |index| nullable_columns(&stored.schema, index);
        let indexes: Vec<_> = stored.schema.indexes.iter().map(nullable).collect();
        let index = |(number, nullable)| {
            let (is_complete, identity) = (true, 0);
            IndexDefinition { number, is_complete, identity, nullable }
        };
        Self::resolve_with(table, stored, 0, (0..).zip(indexes).map(index), None, None)
    }

    /// Resolves a stored table, with the identity of its own tree, with its indexes, with its
    /// columns if it may change, and with the tree of its long values.
    pub(crate) fn resolve_with(
        table: Table,
        stored: StoredTable,
        identity: i64,
        definitions: impl Iterator<Item = IndexDefinition>,
        columns: Option<ColumnHistory>,
        values: Option<ValuesTree>,
    ) -> Result<Self, SchemaError> {
        let StoredTable { schema, primary, indexes } = stored;
        schema.validate()?;
        let limit = schema.max_rows_per_page.unwrap_or(u16::MAX);
        let tree = Tree::open(GAddr::from_u64(primary), limit);
        let primary_schema = primary_schema(&schema);
        let tree = KnownTree::new(tree, table.primary_tree(), identity);
        let names = RowNames::of(&schema);
        let primary = IndexInfo::resolve(&schema, &primary_schema, tree, (true, 0), &names);
        let mut resolved = Vec::with_capacity(indexes.len());
        let indexes = schema.indexes.iter().zip(indexes).zip(definitions);
        for ((index, root), definition) in indexes {
            let IndexDefinition { number, is_complete, identity, nullable } = definition;
            let tree = Tree::open(GAddr::from_u64(root), u16::MAX);
            let tree = KnownTree::new(tree, table.index(number).tree(), identity);
            let kind = (is_complete, nullable);
            resolved.push(IndexInfo::resolve(&schema, index, tree, kind, &names));
        }
        let layout = match &columns {
            Some(columns) => columns.layout(&schema, columns.last()),
            None => RowLayout::of(&schema),
        };
        let earlier = EarlierLayouts::new(columns);
        let values = values.map(|values| IndexInfo::of_values(table, values, &names));
        Ok(Self { schema, layout, earlier, primary, indexes: resolved, values })
    }

    /// A stored row of the table.
    ///
    /// # Errors
    /// [`RowError::UnknownLayout`] if this definition is older than the row, or the row is damaged.
    #[inline]
    pub(crate) fn row<'a>(&'a self, bytes: &'a [u8]) -> Result<RowRef<'a>, NamedRowError> {
        if self.layout.mark.is_of(bytes) {
            return Ok(RowRef::new(&self.layout, bytes));
        }
        let earlier = self.earlier.of_row(&self.schema, bytes);
        Ok(RowRef::new(earlier.map_err(|error| self.layout.named(error))?, bytes))
    }

    /// Gives a stored row the layout in which rows are written, if it has an earlier one. Returns
    /// values that are too long for the row, as a default may be.
    ///
    /// # Errors
    /// As [`row`](Self::row).
    pub(crate) fn write_in_last_layout(
        &self,
        row: &mut Vec<u8>,
    ) -> Result<MovedValues, NamedRowError> {
        if self.layout.mark.is_of(row) {
            return Ok(MovedValues::default());
        }
        let (earlier, mut rewritten) = (self.row(row)?, RowBuilder::new(&self.layout));
        for column in 0..self.layout.columns.len() {
            match earlier.pointer(column)? {
                Some(pointer) => rewritten.pointer(pointer),
                None => rewritten.stored(earlier.stored(column)?),
            };
        }
        let (bytes, moved) = rewritten.into_parts()?;
        *row = bytes;
        Ok(moved)
    }

    /// The pointers of a stored row, also those of columns that were dropped.
    ///
    /// # Errors
    /// As [`row`](Self::row).
    pub(crate) fn pointers(&self, row: &[u8]) -> Result<Vec<ValuePointer>, NamedRowError> {
        Ok(self.row(row)?.layout().pointers(row).collect())
    }

    /// The columns of all keys as a set. Their values stay in rows.
    pub(crate) fn key_columns(&self) -> u64 {
        self.indexes.iter().fold(self.primary.mask, |mask, index| mask | index.mask)
    }

    /// All trees.
    pub(crate) fn all_indexes(&self) -> impl Iterator<Item = &IndexInfo> {
        std::iter::once(&self.primary).chain(&self.indexes).chain(&self.values)
    }

    /// The index whose tree has this number.
    pub(crate) fn index_of_tree(&self, tree: usize) -> Option<&IndexInfo> {
        self.all_indexes().find(|index| index.number == tree)
    }

    /// What a scan of this table reads.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchIndex`], also of one that is being built.
    pub(crate) fn source(&self, source: Source) -> Result<&IndexInfo, SchemaError> {
        let found = self.index_of_tree(source.tree()).filter(|index| index.is_complete);
        found.ok_or_else(|| SchemaError::NoSuchIndex {
            table: self.schema.name.clone(),
            name: match source {
                Source::Table(_) => PRIMARY.to_owned(),
                Source::Index(index) => format!("number {}", index.number()),
            },
        })
    }

    /// As [`check_row`](Self::check_row). Refuses a row as well of which only some columns were
    /// read.
    pub(crate) fn check_whole_row(&self, row: RowRef<'_>) -> Result<(), TxnError> {
        self.check_row(row)?;
        Ok(row.check_whole()?)
    }

    /// Refuses a row that was made for another table, or by another definition of its columns. One
    /// that was read from the table may have an earlier layout.
    pub(crate) fn check_row(&self, row: RowRef<'_>) -> Result<(), TxnError> {
        let is_same = |own: &RowLayout| std::ptr::eq(row.layout(), own) || *row.layout() == *own;
        let is_earlier = || {
            let earlier = self.earlier.numbered(&self.schema, row.layout().mark.number);
            earlier.is_some_and(is_same)
        };
        if is_same(&self.layout) || is_earlier() {
            return Ok(());
        }
        Err(TxnError::ForeignRow { table: self.schema.name.clone() })
    }

    /// Refuses bytes that are not a whole key of `index`.
    pub(crate) fn check_key(&self, index: &IndexInfo, key: &[u8]) -> Result<(), TxnError> {
        match split_parts(&index.parts, key) {
            Some((_, [])) => Ok(()),
            _ => Err(self.mismatch(index, shown_bytes(key))),
        }
    }

    /// Refuses a bound that is not made of the first columns of `index`.
    pub(crate) fn check_prefix(&self, index: &IndexInfo, key: &[u8]) -> Result<(), TxnError> {
        let mismatch = || self.mismatch(index, shown_bytes(key));
        let mut rest = key;
        for &part in &index.parts {
            if rest.is_empty() {
                return Ok(());
            }
            let length = part.part_length(rest).ok_or_else(mismatch)?;
            rest = rest.get(length..).ok_or_else(mismatch)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(mismatch()) }
    }

    /// Refuses a range of which a bound is not made of the first columns of `index`.
    pub(crate) fn check_range(&self, index: &IndexInfo, range: &KeyRange) -> Result<(), TxnError> {
        range.bounds().try_for_each(|bound| self.check_prefix(index, bound))
    }

    /// The key of the first columns of `index`, as many as there are values.
    pub(crate) fn key(&self, index: &IndexInfo, values: &[Value<'_>]) -> Result<KeyBuf, TxnError> {
        if values.len() > index.parts.len() {
            return Err(self.mismatch(index, format!("{} values", values.len())));
        }
        let mut key = KeyBuf::new();
        for (&value, part) in values.iter().zip(&index.parts) {
            let appended = part.append(value, &mut key);
            appended.map_err(|error| self.layout.refused(error, Some(value)))?;
        }
        Ok(key)
    }

    /// The key of a row of this table in `index`, of the columns of that.
    pub(crate) fn key_of(&self, index: &IndexInfo, row: RowRef<'_>) -> Result<KeyBuf, TxnError> {
        self.check_row(row)?;
        let mut key = KeyBuf::new();
        index.encode(row, &mut key)?;
        Ok(key)
    }
}

impl IndexInfo {
    fn resolve(
        table: &TableSchema,
        index: &IndexSchema,
        known: KnownTree,
        (is_complete, nullable): (bool, u64),
        names: &Arc<RowNames>,
    ) -> Self {
        Self {
            name: index.name.clone(),
            number: known.number(),
            is_complete,
            tree: *known,
            known,
            mask: index.columns.iter().fold(0, |mask, &column| mask | 1 << column),
            parts: parts(table, index, nullable),
            names: Arc::clone(names),
            unique: index.unique,
            nulls_distinct: index.nulls_distinct,
        }
    }

    /// The tree of the values that the rows of a table have no room for. Its keys have no columns.
    fn of_values(table: Table, values: ValuesTree, names: &Arc<RowNames>) -> Self {
        let tree = Tree::open(GAddr::from_u64(values.root), u16::MAX);
        let known = KnownTree::new(tree, table.values_tree(), values.identity);
        Self {
            name: VALUES.to_owned(),
            number: known.number(),
            is_complete: true,
            tree,
            known,
            mask: 0,
            parts: Vec::new(),
            names: Arc::clone(names),
            unique: true,
            nulls_distinct: false,
        }
    }

    /// Its columns in their order, and how they are encoded.
    pub(crate) fn parts(&self) -> &[KeyColumn] {
        &self.parts
    }

    /// The columns of the table, one bit each, whose values its keys tell as they are.
    pub(crate) fn told_columns(&self) -> u64 {
        let exact = self.parts.iter().filter(|part| part.ty.has_exact_keys());
        exact.fold(0, |columns, part| columns | 1 << part.column)
    }

    /// Appends the encoded columns of `row`; returns whether one is NULL.
    pub(crate) fn encode(&self, row: RowRef<'_>, key: &mut KeyBuf) -> Result<bool, NamedRowError> {
        let mut any_null = false;
        for part in &self.parts {
            let value = row.value(part.column)?;
            any_null |= matches!(value, Value::Null);
            let appended = part.append(value, key);
            appended.map_err(|error| row.layout().refused(error, Some(value)))?;
        }
        Ok(any_null)
    }

    /// The entry of a row in this secondary index.
    pub(crate) fn entry<'p>(
        &self,
        row: RowRef<'_>,
        primary: &'p [u8],
    ) -> Result<IndexEntry<'p>, NamedRowError> {
        let mut key = KeyBuf::new();
        let any_null = self.encode(row, &mut key)?;
        if self.unique && !(any_null && self.nulls_distinct) {
            return Ok(IndexEntry { key, value: primary });
        }
        key.push_encoded(primary);
        Ok(IndexEntry { key, value: &[] })
    }

    /// Whether the primary key of an entry with this value is the end of its key. No primary key is
    /// empty.
    pub(crate) fn ends_in_primary_key(&self, value: &[u8]) -> bool {
        !self.unique || (self.nulls_distinct && value.is_empty())
    }

    /// The primary key inside an entry of this secondary index.
    pub(crate) fn primary_key<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Option<&'a [u8]> {
        if self.ends_in_primary_key(value) {
            Some(split_parts(&self.parts, key)?.1)
        } else {
            Some(value)
        }
    }
}

pub(super) fn primary_schema(table: &TableSchema) -> IndexSchema {
    let primary = IndexSchema::new(PRIMARY, table.primary_key.clone());
    primary.unique().order(table.primary_key_order.clone())
}

/// How the columns of a key are encoded: `nullable` says of which it says whether they are NULL.
#[expect(clippy::indexing_slicing, reason = "the schema was validated: keys name its columns")]
pub(super) fn parts(table: &TableSchema, index: &IndexSchema, nullable: u64) -> Vec<KeyColumn> {
    let part = |(at, &column): (usize, &usize)| {
        let order = index.order.get(at).copied().unwrap_or_default();
        let (ty, nullable) = (table.columns[column].ty, nullable & 1 << at != 0);
        KeyColumn { column, ty, nullable, order }
    };
    index.columns.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::column_type::ColumnType;
    use crate::catalogue::schema::KeyOrder;
    use crate::encoding::row_builder::RowBuilder;

    fn info(index: IndexSchema) -> TableInfo {
        let schema = TableSchema::new("t")
            .column("id", ColumnType::I16)
            .nullable_column("a", ColumnType::I16)
            .nullable_column("b", ColumnType::Text(4))
            .primary_key([0])
            .primary_key_order([KeyOrder::DESCENDING])
            .with_index(index);
        let stored = StoredTable { schema, primary: 0, indexes: vec![0] };
        TableInfo::resolve(Table::of_number(0), stored).unwrap()
    }

    /// Key and value of the row (1, 2, `text`).
    fn entry(info: &TableInfo, text: Option<&str>) -> (Vec<u8>, Vec<u8>) {
        let mut row = RowBuilder::new(&info.layout);
        row.i16(1).i16(2).value(text.map_or(Value::Null, Value::Text));
        let primary = info.key(&info.primary, &[Value::I16(1)]).unwrap();
        assert_eq!(*primary, [0x7f, 0xfe]);
        let entry = info.indexes[0].entry(row.finish().unwrap(), &primary).unwrap();
        let found = info.indexes[0].primary_key(&entry.key, entry.value);
        assert_eq!(found, Some(&*primary));
        (entry.key.to_vec(), entry.value.to_vec())
    }

    #[test]
    fn entries_carry_the_primary_key_where_their_keys_may_repeat() {
        let index = || IndexSchema::new("i", [1, 2]);
        let (key, null_key) = ([1, 0x80, 2, 1, b'x', 0, 0].to_vec(), [1, 0x80, 2, 0].to_vec());
        let primary = vec![0x7f, 0xfe];
        let with_primary = |key: &[u8]| [key, &primary].concat();
        let plain = info(index());
        assert_eq!(entry(&plain, Some("x")), (with_primary(&key), vec![]));
        assert_eq!(entry(&plain, None), (with_primary(&null_key), vec![]));
        let unique = info(index().unique());
        assert_eq!(entry(&unique, Some("x")), (key.clone(), primary.clone()));
        assert_eq!(entry(&unique, None), (null_key.clone(), primary.clone()));
        let distinct = info(index().unique().nulls_distinct());
        assert_eq!(entry(&distinct, Some("x")), (key, primary.clone()));
        assert_eq!(entry(&distinct, None), (with_primary(&null_key), vec![]));
    }

    #[test]
    fn keys_have_the_orders_of_their_index() {
        let order = [KeyOrder::DESCENDING.nulls_last(), KeyOrder::ASCENDING.nulls_last()];
        let info = info(IndexSchema::new("i", [1, 2]).order(order));
        let index = &info.indexes[0];
        let key = |values: &[Value<'_>]| info.key(index, values).unwrap().to_vec();
        assert!(key(&[]).is_empty());
        assert_eq!(key(&[Value::I16(2)]), [1, 0x7f, 0xfd]);
        assert_eq!(key(&[Value::I16(2), Value::Null]), [1, 0x7f, 0xfd, 2]);
        assert!(info.check_prefix(index, &key(&[Value::Null])).is_ok());
        assert!(info.check_key(index, &key(&[Value::Null, Value::Text("y")])).is_ok());
        assert!(info.check_prefix(index, &[0]).is_err());
        let many = info.key(index, &[Value::Null, Value::Null, Value::Null]).unwrap_err();
        assert!(matches!(many, TxnError::KeyMismatch { .. }), "{many}");
        let wrong = info.key(index, &[Value::I16(1), Value::Bytes(b"y")]).unwrap_err();
        let text = "table t, column b: column 2 is Text(4), not Bytes; the value is Bytes 0x79";
        assert_eq!(wrong.to_string(), text);
    }
}
