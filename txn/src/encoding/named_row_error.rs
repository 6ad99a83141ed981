//! Errors of rows with the names of table and column, and with the value that was refused: rows
//! know columns by their positions only.

use std::fmt;

use crate::encoding::row_error::RowError;
use crate::encoding::row_names::RowNames;
use crate::encoding::shown_value::shown;
use crate::encoding::value::Value;

/// A [`RowError`] with the names of table and column, and, if a value was refused, with that.
///
/// ```
/// # use selkie_txn::{Database, RowError, Table, TxnError};
/// # fn example(db: &Database, paper: Table) -> Result<(), TxnError> {
/// let mut row = db.row(paper)?;
/// if let Err(refused) = row.text("Too long a title").finish() {
///     assert!(matches!(refused.error, RowError::TooLong { column: 0, max: 9, .. }));
///     assert_eq!((refused.table(), refused.column()), (Some("paper"), Some("title")));
///     assert_eq!(refused.value(), Some("Text \"Too long a title\""));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRowError {
    /// What is wrong, which says the position of the column, and the limit if there is one.
    pub error: RowError,
    /// Apart, so that what reads give back stays small.
    names: Option<Box<Names>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Names {
    table: String,
    column: Option<String>,
    value: Option<String>,
}

impl NamedRowError {
    /// An error of a row with these names. `given` is the value that was to be put into the column.
    #[cold]
    pub(crate) fn new(error: RowError, names: &RowNames, given: Option<Value<'_>>) -> Self {
        let column = error.column().and_then(|column| names.column(column));
        let names = Names {
            table: names.table().to_owned(),
            column: column.map(str::to_owned),
            value: given.map(shown),
        };
        Self { error, names: Some(Box::new(names)) }
    }

    /// An error of which is not known of what table it is.
    pub(crate) fn unnamed(error: RowError) -> Self {
        Self { error, names: None }
    }

    /// The table, if it is known.
    #[must_use]
    pub fn table(&self) -> Option<&str> {
        Some(&self.names.as_ref()?.table)
    }

    /// The column, if the error is of one that the table has.
    #[must_use]
    pub fn column(&self) -> Option<&str> {
        self.names.as_ref()?.column.as_deref()
    }

    /// The value that was refused, with its type and at most 64 characters or bytes of it, if there
    /// was one.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.names.as_ref()?.value.as_deref()
    }
}

impl fmt::Display for NamedRowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.table(), self.column()) {
            (Some(table), Some(column)) => write!(f, "table {table}, column {column}: ")?,
            (Some(table), None) => write!(f, "table {table}: ")?,
            (None, _) => {}
        }
        self.error.fmt(f)?;
        match self.value() {
            Some(value) => write!(f, "; the value is {value}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NamedRowError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::column_type::ColumnType;
    use crate::catalogue::schema::TableSchema;
    use crate::encoding::row_builder::RowBuilder;
    use crate::encoding::row_layout::RowLayout;
    use crate::encoding::row_mut::RowMut;

    fn layout() -> RowLayout {
        let table = TableSchema::new("paper")
            .column("id", ColumnType::I32)
            .column("title", ColumnType::Text(9))
            .nullable_column("read", ColumnType::Date);
        RowLayout::of(&table.primary_key([0]))
    }

    #[test]
    fn rows_that_are_made_changed_and_read_name_what_is_wrong() {
        let layout = layout();
        let mut row = RowBuilder::new(&layout);
        let refused = row.i32(7).text("Too long a title").finish().unwrap_err();
        let text = "table paper, column title: column 1: 16 bytes (allowed: 9); the value is Text \
                    \"Too long a title\"";
        assert_eq!(refused.to_string(), text);
        row.clear();
        let refused = row.i32(7).finish().unwrap_err();
        assert_eq!(refused.to_string(), "table paper: the row has 1 of 3 columns");
        row.clear();
        let refused = row.i32(7).null().finish().unwrap_err();
        assert_eq!(refused.to_string(), "table paper, column title: column 1 may not be NULL");
        row.clear();
        let mut bytes = row.i32(7).text("Title").null().finish().unwrap().as_bytes().to_vec();
        let mut changed = RowMut::new(&layout, &mut bytes);
        let refused = changed.set_i64(2, 5).unwrap_err();
        let names = (refused.table(), refused.column(), refused.value());
        assert_eq!(names, (Some("paper"), Some("read"), Some("I64 5")));
        let refused = changed.set_i32(0, 8).unwrap_err();
        let text = "table paper, column id: column 0 is part of the primary key and cannot be \
                    changed; the value is I32 8";
        assert_eq!(refused.to_string(), text);
        let refused = changed.as_row().date(2).unwrap_err();
        assert_eq!(refused.to_string(), "table paper, column read: column 2 is NULL");
        let refused = changed.as_row().value(3).unwrap_err();
        let names = (refused.table(), refused.column(), refused.value());
        assert_eq!(names, (Some("paper"), None, None));
    }

    #[test]
    fn an_error_without_names_is_what_it_is() {
        let error = RowError::Null { column: 4 };
        assert_eq!(NamedRowError::unnamed(error.clone()).to_string(), error.to_string());
    }
}
