//! An index that is added to a table which exists already.
//!
//! Its columns have names here, and no positions: another node may drop a column between a look at
//! the table and the creation of the index, and then a position is that of another column. The
//! names are looked up in the transaction that adds the index to the definition of the table.

use crate::catalogue::schema::{IndexSchema, KeyOrder, TableSchema};
use crate::catalogue::schema_error::SchemaError;

/// A secondary index for [`Database::create_index`](crate::Database::create_index).
///
/// ```
/// use selkie_txn::{KeyOrder, NewIndex};
/// // As `CREATE UNIQUE INDEX by_email ON ... (email, age DESC)` in SQL.
/// let index = NewIndex::new("by_email", ["email", "age"])
///     .order([KeyOrder::ASCENDING, KeyOrder::DESCENDING])
///     .unique()
///     .nulls_distinct();
/// assert_eq!(index.columns(), ["email", "age"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    columns: Vec<String>,
    /// All but the positions of the columns.
    schema: IndexSchema,
}

impl NewIndex {
    /// An index in which several rows may have the same key. The columns are named, most
    /// significant first.
    pub fn new<C: Into<String>>(
        name: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Self { columns, schema: IndexSchema::new(name, Vec::new()) }
    }

    /// No two rows may have the same key.
    #[must_use]
    pub fn unique(self) -> Self {
        Self { schema: self.schema.unique(), ..self }
    }

    /// Sets the order of each column.
    #[must_use]
    pub fn order(self, order: impl Into<Vec<KeyOrder>>) -> Self {
        Self { schema: self.schema.order(order), ..self }
    }

    /// A key with a NULL is like no other key, so that it may repeat in a unique index.
    #[must_use]
    pub fn nulls_distinct(self) -> Self {
        Self { schema: self.schema.nulls_distinct(), ..self }
    }

    /// The names of its columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The same with the positions that its columns have in this definition of the table.
    pub(crate) fn in_table(&self, table: &TableSchema) -> Result<IndexSchema, SchemaError> {
        let position = |name: &String| {
            let missing =
                || SchemaError::NoSuchColumn { table: table.name.clone(), name: name.clone() };
            table.column_position(name).ok_or_else(missing)
        };
        let columns = self.columns.iter().map(position).collect::<Result<_, _>>()?;
        Ok(IndexSchema { columns, ..self.schema.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::column_type::ColumnType;

    #[test]
    fn names_become_the_positions_of_a_definition() {
        let table = TableSchema::new("t")
            .column("id", ColumnType::I32)
            .column("n", ColumnType::I32)
            .column("at", ColumnType::I64)
            .primary_key([0]);
        let order = [KeyOrder::DESCENDING, KeyOrder::ASCENDING];
        let index = NewIndex::new("i", ["at", "n"]).order(order).unique().nulls_distinct();
        let same = IndexSchema::new("i", [2, 1]).order(order).unique().nulls_distinct();
        assert_eq!(index.in_table(&table), Ok(same));
        let unknown = NewIndex::new("i", ["at", "gone"]).in_table(&table).unwrap_err();
        assert_eq!(unknown.to_string(), "table t has no column gone");
    }
}
