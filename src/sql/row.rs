//! Rows, and how programs read them.

use std::sync::Arc;

use selkie_sql::types::FormatSettings;
use selkie_sql::types::text_format::to_string;
use selkie_sql::{Datum, OutputColumn};

use super::error::{ColumnError, QueryError};
use super::from_sql::FromSql;

/// What the rows of a statement have in common.
#[derive(Debug, Default)]
pub(super) struct RowShape {
    pub(super) columns: Arc<[OutputColumn]>,
    pub(super) format: FormatSettings,
}

/// A row that a statement gave.
#[derive(Clone, Debug)]
pub struct Row {
    shape: Arc<RowShape>,
    values: Vec<Datum>,
}

/// Names a column: its name, or its index from 0.
pub trait ColumnIndex {
    /// The index of the column.
    ///
    /// # Errors
    /// [`ColumnError::NoName`], [`ColumnError::Ambiguous`], [`ColumnError::NoIndex`].
    fn find(&self, columns: &[OutputColumn]) -> Result<usize, ColumnError>;
}

impl ColumnIndex for usize {
    fn find(&self, columns: &[OutputColumn]) -> Result<usize, ColumnError> {
        let (index, count) = (*self, columns.len());
        if index < count { Ok(index) } else { Err(ColumnError::NoIndex { index, count }) }
    }
}

impl ColumnIndex for str {
    fn find(&self, columns: &[OutputColumn]) -> Result<usize, ColumnError> {
        let mut found =
            (0..columns.len()).filter(|at| columns.get(*at).is_some_and(|own| own.name == self));
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(at),
            (Some(_), Some(_)) => Err(ColumnError::Ambiguous { name: self.to_owned() }),
            (None, _) => {
                let columns = columns.iter().map(|own| own.name.clone()).collect();
                Err(ColumnError::NoName { name: self.to_owned(), columns })
            }
        }
    }
}

impl<I: ColumnIndex + ?Sized> ColumnIndex for &I {
    fn find(&self, columns: &[OutputColumn]) -> Result<usize, ColumnError> {
        (**self).find(columns)
    }
}

impl Row {
    pub(super) fn new(shape: &Arc<RowShape>, values: Vec<Datum>) -> Self {
        Self { shape: Arc::clone(shape), values }
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[OutputColumn] {
        &self.shape.columns
    }

    /// The values as SQL has them.
    #[must_use]
    pub fn values(&self) -> &[Datum] {
        &self.values
    }

    fn cell(&self, index: &dyn ColumnIndex) -> Result<(&OutputColumn, &Datum), ColumnError> {
        let at = index.find(&self.shape.columns)?;
        let cell = self.shape.columns.get(at).zip(self.values.get(at));
        cell.ok_or(ColumnError::NoIndex { index: at, count: self.values.len() })
    }

    /// The value of a column, by its name or its index from 0.
    ///
    /// ```
    /// # fn of(row: &selkie::sql::Row) -> Result<(), selkie::sql::QueryError> {
    /// let id = row.get::<i64>("id")?;
    /// let note = row.get::<Option<String>>(1)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ColumnError`]: it names the column, the type that it has, and the one asked for.
    pub fn get<T: FromSql>(&self, index: impl ColumnIndex) -> Result<T, ColumnError> {
        let (column, value) = self.cell(&index)?;
        let (name, wanted) = (|| column.name.clone(), T::NAME);
        if !T::accepts(column.ty) {
            return Err(ColumnError::Type { column: name(), found: column.ty, wanted });
        }
        if value.is_null() {
            return T::from_null().ok_or_else(|| ColumnError::Null { column: name(), wanted });
        }
        T::from_sql(value, column.ty).ok_or_else(|| {
            let value = to_string(value, column.ty, &self.shape.format);
            ColumnError::Value { column: name(), value, wanted }
        })
    }

    /// The value of a column as text, as the settings of the connection have it; `None` if it is
    /// NULL.
    ///
    /// # Errors
    /// [`ColumnError`] if there is no such column.
    pub fn text(&self, index: impl ColumnIndex) -> Result<Option<String>, ColumnError> {
        let (column, value) = self.cell(&index)?;
        Ok((!value.is_null()).then(|| to_string(value, column.ty, &self.shape.format)))
    }
}

/// What a row can be read as: tuples of up to 12 [values](FromSql), in the order of the columns.
///
/// ```
/// use selkie::sql::{FromRow, QueryError, Row};
///
/// struct Account {
///     id: i64,
///     owner: String,
/// }
///
/// impl FromRow for Account {
///     fn from_row(row: &Row) -> Result<Self, QueryError> {
///         Ok(Self { id: row.get("id")?, owner: row.get("owner")? })
///     }
/// }
/// ```
pub trait FromRow: Sized {
    /// The row as this type.
    ///
    /// # Errors
    /// [`ColumnError`].
    fn from_row(row: &Row) -> Result<Self, QueryError>;
}

impl FromRow for Row {
    fn from_row(row: &Row) -> Result<Self, QueryError> {
        Ok(row.clone())
    }
}

macro_rules! tuples {
    ($($count:literal: $($ty:ident $at:literal)*;)*) => { $(
        impl<$($ty: FromSql),*> FromRow for ($($ty,)*) {
            fn from_row(row: &Row) -> Result<Self, QueryError> {
                let found = row.columns().len();
                if found != $count {
                    return Err(ColumnError::Count { found, wanted: $count }.into());
                }
                Ok(($(row.get::<$ty>($at)?,)*))
            }
        }
    )* };
}

tuples! {
    1: A 0;
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
    5: A 0 B 1 C 2 D 3 E 4;
    6: A 0 B 1 C 2 D 3 E 4 F 5;
    7: A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    8: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
    9: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8;
    10: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9;
    11: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10;
    12: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11;
}
