//! The names of a table and of its columns, as errors give them.

use std::sync::Arc;

use crate::catalogue::schema::TableSchema;

/// The names of a table and of its columns, in their order. Two layouts of rows are one whatever
/// their columns are called: all names count as equal.
#[derive(Debug)]
pub(crate) struct RowNames {
    table: Box<str>,
    columns: Box<[Box<str>]>,
}

impl RowNames {
    pub(crate) fn of(schema: &TableSchema) -> Arc<Self> {
        let columns = schema.columns.iter().map(|column| column.name.as_str().into());
        Arc::new(Self { table: schema.name.as_str().into(), columns: columns.collect() })
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The name of the column at this position, if there is one.
    pub(crate) fn column(&self, column: usize) -> Option<&str> {
        self.columns.get(column).map(|name| &**name)
    }
}

impl PartialEq for RowNames {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for RowNames {}
