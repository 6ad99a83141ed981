//! What a table looks like: columns, primary key, secondary indexes.
//!
//! A schema is plain data: it is written to the catalogue when a database is created and read back
//! by every compute node that opens it. Columns are named by their position everywhere; names are
//! kept for errors and for the SQL layer. [`TableSchema::validate`] refuses what cannot work,
//! naming the table, the value and what is allowed, before a single page is allocated.

use serde::{Deserialize, Serialize};

use crate::catalogue::column_type::{
    ColumnType, MAX_COLUMN_BYTES, MAX_COLUMNS, MAX_DECIMAL_DIGITS,
};
use crate::catalogue::default_value::DefaultValue;
use crate::catalogue::schema_error::SchemaError;
use crate::encoding::value::Value;
use crate::protocol::choice::Protocol;

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, unique in the table.
    pub name: String,
    /// Its type.
    pub ty: ColumnType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What it is in a new row that does not say
    /// ([`RowBuilder::default_value`](crate::RowBuilder::default_value)). `None`: NULL, if it may
    /// be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultValue>,
}

impl Column {
    /// A column that is never NULL, and has no default.
    ///
    /// ```
    /// use selkie_txn::{Column, ColumnType, Value};
    /// // As `stars SMALLINT DEFAULT 3` in SQL.
    /// let column = Column::new("stars", ColumnType::I16).nullable().default(Value::I16(3));
    /// assert!(column.nullable);
    /// ```
    pub fn new(name: impl Into<String>, ty: ColumnType) -> Self {
        Self { name: name.into(), ty, nullable: false, default: None }
    }

    /// It may be NULL.
    #[must_use]
    pub fn nullable(self) -> Self {
        Self { nullable: true, ..self }
    }

    /// Sets its default, which has to be of its type. NULL is none.
    #[must_use]
    pub fn default(self, value: Value<'_>) -> Self {
        Self { default: DefaultValue::of(value), ..self }
    }
}

/// How one column of a key is ordered. The default is ascending with NULLs first.
///
/// ```
/// use selkie_txn::KeyOrder;
/// assert_eq!(KeyOrder::default(), KeyOrder::ASCENDING);
/// let order = KeyOrder::DESCENDING.nulls_last();
/// assert!(order.descending && order.nulls_last);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyOrder {
    /// Whether the greatest value is first.
    #[serde(default)]
    pub descending: bool,
    /// Whether NULL follows all values, ascending or not; else it is before them.
    #[serde(default)]
    pub nulls_last: bool,
}

impl KeyOrder {
    /// The least value first, and NULLs before it.
    pub const ASCENDING: Self = Self { descending: false, nulls_last: false };
    /// The greatest value first, and NULLs before it.
    pub const DESCENDING: Self = Self { descending: true, nulls_last: false };

    /// The same with NULLs behind all values.
    #[must_use]
    pub const fn nulls_last(self) -> Self {
        Self { nulls_last: true, ..self }
    }
}

/// One secondary index of a table.
///
/// ```
/// use selkie_txn::{IndexSchema, KeyOrder};
/// // As `UNIQUE (email, age DESC)` in SQL.
/// let index = IndexSchema::new("by_email", [1, 2])
///     .order([KeyOrder::ASCENDING, KeyOrder::DESCENDING])
///     .unique()
///     .nulls_distinct();
/// assert!(index.unique && index.nulls_distinct);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSchema {
    /// Its name, unique in the table.
    pub name: String,
    /// Positions of the indexed columns, most significant first.
    pub columns: Vec<usize>,
    /// Whether two rows may not agree in all indexed columns.
    pub unique: bool,
    /// The order of each column. Empty: all ascending, NULLs first.
    #[serde(default)]
    pub order: Vec<KeyOrder>,
    /// Whether rows with a NULL in an indexed column agree with no other row, as is the default of
    /// SQL. Else NULL is a value like any other. It matters only if the index is unique.
    #[serde(default)]
    pub nulls_distinct: bool,
}

impl IndexSchema {
    /// An index in which several rows may have the same key.
    pub fn new(name: impl Into<String>, columns: impl Into<Vec<usize>>) -> Self {
        let (name, columns) = (name.into(), columns.into());
        Self { name, columns, unique: false, order: Vec::new(), nulls_distinct: false }
    }

    /// No two rows may have the same key.
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Sets the order of each column.
    #[must_use]
    pub fn order(mut self, order: impl Into<Vec<KeyOrder>>) -> Self {
        self.order = order.into();
        self
    }

    /// A key with a NULL is like no other key, so that it may repeat in a unique index.
    #[must_use]
    pub fn nulls_distinct(mut self) -> Self {
        self.nulls_distinct = true;
        self
    }
}

/// A table: columns, primary key and secondary indexes.
///
/// ```
/// use selkie_txn::{ColumnType, TableSchema};
/// let schema = TableSchema::new("account")
///     .column("id", ColumnType::I32)
///     .column("owner", ColumnType::Text(24))
///     .nullable_column("note", ColumnType::Text(80))
///     .primary_key([0])
///     .index("by_owner", [1]);
/// assert!(schema.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// Its name, unique in the database.
    pub name: String,
    /// The columns in order.
    pub columns: Vec<Column>,
    /// Positions of the primary-key columns, most significant first. They are not nullable.
    pub primary_key: Vec<usize>,
    /// The order of each primary-key column. Empty: all ascending.
    #[serde(default)]
    pub primary_key_order: Vec<KeyOrder>,
    /// Secondary indexes.
    pub indexes: Vec<IndexSchema>,
    /// Most rows on one page of the primary index (a page is the unit of locking), `None`: as many
    /// as fit. For small tables in which every row is hot.
    pub max_rows_per_page: Option<u16>,
    /// What a layer above keeps with the table: types of its own, constraints. It is stored,
    /// changed ([`Txn::set_note`](crate::Txn::set_note)) and seen like the rest, and never looked
    /// at.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What a database is made of. Made from its tables, it is for [`Protocol::Snapshot`]: it has
/// [sessions](crate::Session), row locks and tables that change.
///
/// ```
/// # use selkie_txn::{ColumnType, DatabaseSchema, Protocol, TableSchema};
/// # let tables = vec![TableSchema::new("t").column("id", ColumnType::I32).primary_key([0])];
/// // For two-phase locking and optimistic transactions instead.
/// let locked = DatabaseSchema::from(tables).protocol(Protocol::TwoPhase);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSchema {
    pub(crate) tables: Vec<TableSchema>,
    pub(crate) protocol: Protocol,
}

impl From<Vec<TableSchema>> for DatabaseSchema {
    fn from(tables: Vec<TableSchema>) -> Self {
        Self { tables, protocol: Protocol::default() }
    }
}

impl DatabaseSchema {
    /// Makes the database for this protocol, and those that [go with it](Protocol::goes_with).
    #[must_use]
    pub fn protocol(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }
}

impl TableSchema {
    /// A table without columns yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            columns: Vec::new(),
            primary_key: Vec::new(),
            primary_key_order: Vec::new(),
            indexes: Vec::new(),
            max_rows_per_page: None,
            note: String::new(),
        }
    }

    /// Sets what a layer above keeps with the table.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Adds a column that is never NULL.
    #[must_use]
    pub fn column(self, name: impl Into<String>, ty: ColumnType) -> Self {
        self.with_column(Column::new(name, ty))
    }

    /// Adds a column that may be NULL.
    #[must_use]
    pub fn nullable_column(self, name: impl Into<String>, ty: ColumnType) -> Self {
        self.with_column(Column::new(name, ty).nullable())
    }

    /// Adds a column.
    #[must_use]
    pub fn with_column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Sets the primary key, as positions of columns.
    #[must_use]
    pub fn primary_key(mut self, columns: impl Into<Vec<usize>>) -> Self {
        self.primary_key = columns.into();
        self
    }

    /// Sets the order of each column of the primary key.
    #[must_use]
    pub fn primary_key_order(mut self, order: impl Into<Vec<KeyOrder>>) -> Self {
        self.primary_key_order = order.into();
        self
    }

    /// Adds an index in which several rows may have the same key.
    #[must_use]
    pub fn index(self, name: impl Into<String>, columns: impl Into<Vec<usize>>) -> Self {
        self.with_index(IndexSchema::new(name, columns))
    }

    /// Adds an index in which no two rows may have the same key. NULL is a value like any other
    /// there.
    #[must_use]
    pub fn unique_index(self, name: impl Into<String>, columns: impl Into<Vec<usize>>) -> Self {
        self.with_index(IndexSchema::new(name, columns).unique())
    }

    /// Adds an index.
    #[must_use]
    pub fn with_index(mut self, index: IndexSchema) -> Self {
        self.indexes.push(index);
        self
    }

    /// Sets the most rows a page of the primary index may hold.
    #[must_use]
    pub fn max_rows_per_page(mut self, rows: u16) -> Self {
        self.max_rows_per_page = Some(rows);
        self
    }

    /// Position of the column of that name.
    #[must_use]
    pub fn column_position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Checks everything that does not depend on the page size.
    ///
    /// # Errors
    /// [`SchemaError`] naming the table and what is wrong with it.
    pub fn validate(&self) -> Result<(), SchemaError> {
        if self.columns.is_empty() || self.columns.len() > MAX_COLUMNS {
            let columns = self.columns.len();
            return Err(SchemaError::ColumnCount { table: self.name.clone(), columns });
        }
        for (position, column) in self.columns.iter().enumerate() {
            if self.column_position(&column.name) != Some(position) {
                return Err(self.duplicate(&column.name));
            }
            self.check_length(column)?;
            if let Some(default) = &column.default {
                default.check(position, column.ty).map_err(|error| SchemaError::Default {
                    table: self.name.clone(),
                    column: column.name.clone(),
                    error,
                })?;
            }
        }
        self.check_key("primary key", &self.primary_key, &self.primary_key_order)?;
        for &position in &self.primary_key {
            if let Some(column) = self.columns.get(position)
                && column.nullable
            {
                let (table, column) = (self.name.clone(), column.name.clone());
                return Err(SchemaError::NullableKey { table, column });
            }
        }
        for (position, index) in self.indexes.iter().enumerate() {
            if self.indexes.iter().position(|other| other.name == index.name) != Some(position) {
                return Err(self.duplicate(&index.name));
            }
            self.check_key(&index.name, &index.columns, &index.order)?;
        }
        if self.max_rows_per_page == Some(0) {
            return Err(SchemaError::RowsPerPage { table: self.name.clone() });
        }
        Ok(())
    }

    fn duplicate(&self, name: &str) -> SchemaError {
        SchemaError::DuplicateName { table: self.name.clone(), name: name.to_owned() }
    }

    fn check_length(&self, column: &Column) -> Result<(), SchemaError> {
        let (table, name) = (self.name.clone(), column.name.clone());
        match column.ty {
            ColumnType::Text(bytes) | ColumnType::Bytes(bytes) | ColumnType::Json(bytes)
                if bytes == 0 || bytes > MAX_COLUMN_BYTES =>
            {
                Err(SchemaError::ColumnBytes { table, column: name, bytes })
            }
            ColumnType::Decimal(digits) if digits == 0 || digits > MAX_DECIMAL_DIGITS => {
                Err(SchemaError::DecimalDigits { table, column: name, digits })
            }
            _ => Ok(()),
        }
    }

    fn check_key(
        &self,
        name: &str,
        columns: &[usize],
        order: &[KeyOrder],
    ) -> Result<(), SchemaError> {
        let refuse = |reason| SchemaError::Key {
            table: self.name.clone(),
            key: name.to_owned(),
            columns: columns.to_vec(),
            reason,
        };
        if columns.is_empty() {
            return Err(refuse("it has no columns"));
        }
        if !order.is_empty() && order.len() != columns.len() {
            return Err(refuse("it has not one order for each column"));
        }
        for (at, &position) in columns.iter().enumerate() {
            let Some(column) = self.columns.get(position) else {
                return Err(refuse("there is no column at such a position"));
            };
            if matches!(column.ty, ColumnType::Json(_)) {
                return Err(refuse("JSON has no place in a key"));
            }
            if columns.iter().take(at).any(|&earlier| earlier == position) {
                return Err(refuse("a column appears twice"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> TableSchema {
        TableSchema::new("t")
            .column("a", ColumnType::I32)
            .nullable_column("b", ColumnType::Text(10))
            .column("c", ColumnType::Json(10))
            .primary_key([0])
            .index("i", [1])
    }

    #[test]
    fn each_fault_is_named() {
        assert_eq!(good().validate(), Ok(()));
        let refused = |schema: TableSchema| schema.validate().unwrap_err().to_string();
        assert!(refused(good().column("a", ColumnType::I32)).contains("name a is used twice"));
        assert!(refused(good().index("i", [0])).contains("name i is used twice"));
        assert!(refused(TableSchema::new("e")).contains("table e: 0 columns"));
        assert!(refused(good().column("d", ColumnType::Text(0))).contains("column d: 0 bytes"));
        assert!(refused(good().primary_key([1])).contains("column b of the primary key"));
        assert!(refused(good().primary_key([])).contains("no columns"));
        assert!(refused(good().primary_key([9])).contains("no column at"));
        assert!(refused(good().primary_key([0, 0])).contains("twice"));
        assert!(refused(good().index("f", [2])).contains("JSON has no place"));
        let long = good().column("d", ColumnType::Json(MAX_COLUMN_BYTES + 1));
        assert!(refused(long).contains("column d: 268435457 bytes (allowed: 1 to 268435456)"));
        let default = Column::new("d", ColumnType::I16).default(Value::I32(1));
        let default = refused(good().with_column(default));
        assert!(default.contains("column d: its default cannot be stored: column 3 is I16"));
        let digits = good().column("d", ColumnType::Decimal(0));
        assert!(refused(digits).contains("column d: 0 digits (allowed: 1 to 8192)"));
        let order = [KeyOrder::ASCENDING, KeyOrder::DESCENDING];
        assert!(refused(good().primary_key_order(order)).contains("not one order for each"));
        let index = IndexSchema::new("j", [0, 1]).order([KeyOrder::ASCENDING]);
        assert!(refused(good().with_index(index)).contains("j on columns [0, 1]: it has not one"));
        assert!(refused(good().max_rows_per_page(0)).contains("max_rows_per_page is 0"));
    }
}
