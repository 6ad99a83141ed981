//! Errors of operations on a table, with its names and with what the operation was given.

use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_column::KeyColumn;
use crate::encoding::row_ref::RowRef;
use crate::encoding::shown_key::shown_key;
use crate::encoding::shown_value::shown;
use crate::error::{LongestValue, TxnError};

impl IndexInfo {
    /// The table that it is of.
    pub(crate) fn table(&self) -> &str {
        self.names.table()
    }

    /// The columns of a key with their values.
    pub(crate) fn shown_key(&self, key: &[u8]) -> String {
        shown_key(&self.names, &self.parts, key)
    }

    /// The types of its columns.
    fn shape(&self) -> String {
        let part = |part: &KeyColumn| {
            let name = self.names.column(part.column).unwrap_or_default();
            format!("{name} {:?}{}", part.ty, if part.nullable { " or NULL" } else { "" })
        };
        self.parts.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    /// An error of a wait for a lock, with the row of this key that it is of; `None`: all rows.
    pub(crate) fn of_lock(&self, error: TxnError, key: Option<&[u8]>) -> TxnError {
        let table = || self.table().to_owned();
        let key = || key.map_or_else(String::new, |key| self.shown_key(key));
        match error {
            TxnError::LockTimeout { waited, .. } => {
                TxnError::LockTimeout { waited, table: table(), key: key() }
            }
            TxnError::Deadlock { .. } => TxnError::Deadlock { table: table(), key: key() },
            other => other,
        }
    }
}

impl TableInfo {
    /// The error for a second row with one key.
    pub(crate) fn duplicate(&self, index: &IndexInfo, key: &[u8]) -> TxnError {
        let (table, index_name) = (self.schema.name.clone(), index.name.clone());
        TxnError::Duplicate { table, index: index_name, key: index.shown_key(key) }
    }

    pub(crate) fn inconsistent(&self, index: &IndexInfo) -> TxnError {
        TxnError::Inconsistent { table: self.schema.name.clone(), index: index.name.clone() }
    }

    /// The error where there is no row with this primary key.
    pub(crate) fn not_found(&self, key: &[u8]) -> TxnError {
        TxnError::NotFound { table: self.schema.name.clone(), key: self.primary.shown_key(key) }
    }

    /// The error where another transaction has locked the row with this primary key.
    pub(crate) fn row_locked(&self, key: &[u8]) -> TxnError {
        TxnError::RowLocked { table: self.schema.name.clone(), key: self.primary.shown_key(key) }
    }

    /// The error for a cursor that is not one of the transaction it is used with.
    pub(crate) fn invalid_cursor(&self, index: &IndexInfo) -> TxnError {
        TxnError::InvalidCursor { table: self.schema.name.clone(), index: index.name.clone() }
    }

    /// The error for something that was given as a key of `index`, and is none.
    pub(super) fn mismatch(&self, index: &IndexInfo, given: String) -> TxnError {
        TxnError::KeyMismatch {
            table: self.schema.name.clone(),
            index: index.name.clone(),
            key: given,
            columns: index.shape().into(),
        }
    }

    /// The error for a key that is too long for `index`.
    pub(crate) fn key_too_long(&self, index: &IndexInfo, key: &[u8], limit: usize) -> TxnError {
        TxnError::KeyTooLong {
            table: self.schema.name.clone(),
            index: index.name.clone(),
            bytes: key.len(),
            limit,
            longest: self.longest_part(index, key),
        }
    }

    /// The error for a row that takes so many bytes, of so many allowed, with a key of so many.
    /// `length` says what a column takes of the row.
    pub(crate) fn row_too_large(
        &self,
        row: RowRef<'_>,
        length: impl Fn(usize) -> usize,
        (bytes, limit, key_bytes): (usize, usize, usize),
    ) -> TxnError {
        let longest = (0..self.schema.columns.len()).max_by_key(|column| length(*column));
        let longest = longest.filter(|column| length(*column) > 0).map(|column| {
            let name = self.schema.columns.get(column).map(|column| column.name.clone());
            let value = match row.value(column) {
                Ok(value) => shown(value),
                Err(_) => "stored apart from the row".to_owned(),
            };
            let column_name = name.unwrap_or_default();
            Box::new(LongestValue { column: column_name, value, bytes: length(column) })
        });
        TxnError::RowTooLarge { table: self.schema.name.clone(), bytes, limit, key_bytes, longest }
    }

    /// The longest part of a key of `index`, which may end in the primary key.
    fn longest_part(&self, index: &IndexInfo, key: &[u8]) -> Option<Box<LongestValue>> {
        let is_primary = index.number == self.primary.number;
        let behind: &[KeyColumn] = if is_primary { &[] } else { &self.primary.parts };
        let (mut longest, mut rest): (Option<(&KeyColumn, &[u8])>, _) = (None, key);
        for column in index.parts.iter().chain(behind) {
            let length = column.part_length(rest);
            let Some((part, behind)) = length.and_then(|length| rest.split_at_checked(length))
            else {
                break;
            };
            if longest.is_none_or(|(_, longest)| longest.len() < part.len()) {
                longest = Some((column, part));
            }
            rest = behind;
        }
        let (column, part) = longest?;
        let (value, bytes) = (column.shown(part), part.len());
        let column = self.schema.columns.get(column.column)?.name.clone();
        Some(Box::new(LongestValue { column, value, bytes }))
    }
}
