//! Values as callers read and write them, whether they are in their rows or apart from them: whole,
//! with the row, or in parts.

use std::sync::Arc;

use crate::access::row_size::Pointers;
use crate::catalogue::column_type::ColumnType;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::TableInfo;
use crate::encoding::moved_values::{MovedValues, ValuePointer};
use crate::encoding::row_error::{RowError, wrong_type};
use crate::encoding::row_mut::RowMut;
use crate::encoding::row_ref::RowRef;
use crate::encoding::value::{Value, check_length};
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

/// A row with its values, also those that are stored apart from it. It owns all of them: the
/// transaction can be used while the caller has it.
///
/// ```
/// # use selkie_txn::{Direction, KeyRange, Table, Txn, TxnError};
/// # async fn example(txn: &mut Txn<'_>, table: Table) -> Result<(), TxnError> {
/// // As `SELECT note FROM t` in SQL: rows that have no moved values are not copied.
/// let mut cursor = txn.cursor(table, KeyRange::all(), Direction::Forward)?;
/// while let Some(row) = cursor.next(txn).await? {
///     if row.is_moved(1)? {
///         let whole = txn.load_values(table, row, &[1]).await?;
///         println!("{}", whole.row().text(1)?);
///     } else {
///         println!("{}", row.text(1)?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WholeRow {
    table: Arc<TableInfo>,
    bytes: Vec<u8>,
    moved: MovedValues,
}

impl WholeRow {
    /// The row.
    ///
    /// # Panics
    /// Never: its layout was known when it was read.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the layout was known when the row was read")]
    pub fn row(&self) -> RowRef<'_> {
        let row = self.table.row(&self.bytes).expect("the row was read by this definition");
        RowRef::with_moved(row.layout(), &self.bytes, &self.moved)
    }
}

/// Where a value is.
enum FoundValue {
    Null,
    Here(Vec<u8>),
    Apart(ValuePointer),
}

impl<'db> Txn<'db> {
    /// The row with this primary key and all its values. As [`get`](Self::get), and for each value
    /// that is stored apart from the row a read of each of its pages.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_whole(
        &mut self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<WholeRow>, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let result = Box::pin(self.read_row(info, key, u64::MAX)).await;
        self.close_read(result).await
    }

    /// A row that a read or a cursor of this transaction has shown, with the values of these
    /// columns that are stored apart from it; all columns if none is named. A read of each page
    /// that they have.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`TxnError::ForeignRow`]; [`RowError::NoSuchColumn`]. Under
    /// [`ReadCommitted`](crate::Isolation::ReadCommitted) [`TxnError::ValueGone`] if the row was
    /// changed since.
    pub async fn load_values(
        &mut self,
        table: Table,
        row: RowRef<'_>,
        columns: &[usize],
    ) -> Result<WholeRow, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        info.check_whole_row(row)?;
        let mut named = 0;
        for column in columns {
            info.layout.column(*column).map_err(|error| info.layout.named(error))?;
            named |= 1 << column;
        }
        let columns = if columns.is_empty() { u64::MAX } else { named };
        let result = Box::pin(self.read_moved(info, row, columns)).await;
        let moved = self.close_read(result).await?;
        Ok(WholeRow { table: Arc::clone(info), bytes: row.as_bytes().to_vec(), moved })
    }

    /// Bytes of the value of a column, `None` if it is NULL: see
    /// [`RowRef::value_bytes`](RowRef::value_bytes). Reads no more than the row.
    ///
    /// # Errors
    /// [`TxnError::NotFound`]; [`TxnError::Row`] if there is no such column; and as
    /// [`get`](Self::get).
    pub async fn value_bytes(
        &mut self,
        table: Table,
        key: &[u8],
        column: usize,
    ) -> Result<Option<u64>, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let found = Box::pin(self.find_value(info, key, column)).await;
        Ok(match self.close_read(found).await? {
            FoundValue::Null => None,
            FoundValue::Here(value) => Some(value.len() as u64),
            FoundValue::Apart(pointer) => Some(pointer.bytes.into()),
        })
    }

    /// Fills `buffer` with the bytes of a column from `offset` on, and returns how many there were:
    /// fewer than the buffer has room for at the end of the value, none behind it. Of a value that
    /// is stored apart from its row, reads those of its pages that have these bytes.
    ///
    /// ```
    /// # use selkie_txn::{Table, Txn, TxnError};
    /// # async fn example(txn: &mut Txn<'_>, table: Table, key: &[u8]) -> Result<(), TxnError> {
    /// let (mut part, mut offset) = (vec![0; 1 << 20], 0);
    /// loop {
    ///     let read = txn.read_value(table, key, 1, offset, &mut part).await?;
    ///     if read == 0 {
    ///         break;
    ///     }
    ///     offset += read as u64;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TxnError::NotFound`]; [`TxnError::Row`] if there is no such column, or it is of fixed
    /// width, or NULL; and as [`get`](Self::get).
    pub async fn read_value(
        &mut self,
        table: Table,
        key: &[u8],
        column: usize,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let read = Box::pin(self.read_part(info, key, column, (offset, buffer))).await;
        self.close_read(read).await
    }

    /// Gives a text, byte or JSON column another value. As [`update`](Self::update).
    ///
    /// # Errors
    /// As [`update`](Self::update); [`RowError::NotUtf8`] for a text.
    pub async fn write_value(
        &mut self,
        table: Table,
        key: &[u8],
        column: usize,
        value: &[u8],
    ) -> Result<(), TxnError> {
        self.update(table, key, |row| set_bytes(row, column, value)).await
    }

    /// Adds bytes to the end of a text, byte or JSON column; NULL counts as empty. Returns how many
    /// it has then. A value of any length is written in parts like that: what was there is neither
    /// read nor copied, once it is long enough to be stored apart from its row. The parts of a text
    /// are UTF-8 each.
    ///
    /// All parts that a transaction has written are in memory until it commits.
    ///
    /// ```
    /// # use selkie_txn::{Table, Txn, TxnError};
    /// # async fn example(txn: &mut Txn<'_>, table: Table, key: &[u8]) -> Result<(), TxnError> {
    /// txn.write_value(table, key, 1, &[]).await?;
    /// for part in 0..256 {
    ///     txn.append_value(table, key, 1, &vec![part as u8; 1 << 20]).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`update`](Self::update); [`RowError::TooLong`] if the value would be longer than the
    /// column allows; [`RowError::NotUtf8`]. Nothing is changed then.
    pub async fn append_value(
        &mut self,
        table: Table,
        key: &[u8],
        column: usize,
        bytes: &[u8],
    ) -> Result<u64, TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let mark = self.begin_change();
        let mut row = std::mem::take(&mut self.work.row);
        let appended = Box::pin(self.append_to_column(info, key, &mut row, (column, bytes))).await;
        self.work.row = row;
        self.close_change(mark, appended).await
    }

    /// A row with the values of some columns.
    async fn read_row(
        &mut self,
        info: &'db Arc<TableInfo>,
        key: &[u8],
        columns: u64,
    ) -> Result<Option<WholeRow>, TxnError> {
        let found = self.find_row_position(info, key, LatchMode::Shared, None).await?;
        let Some(found) = found else {
            self.release_read();
            return Ok(None);
        };
        let bytes = self.row_bytes(info, &found)?.to_vec();
        self.release_read();
        let moved = self.read_moved(info, info.row(&bytes)?, columns).await?;
        Ok(Some(WholeRow { table: Arc::clone(info), bytes, moved }))
    }

    /// The value of a column of the row with this key.
    async fn find_value(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        column: usize,
    ) -> Result<FoundValue, TxnError> {
        let found = self.find_row_position(info, key, LatchMode::Shared, None).await?;
        let Some(found) = found else {
            return Err(self.error_of_valid_reads(info.not_found(key)).await);
        };
        let row = info.row(self.row_bytes(info, &found)?)?;
        let value = match row.pointer(column)? {
            Some(pointer) if !row.is_null(column)? => FoundValue::Apart(pointer),
            _ => row
                .stored(column)?
                .map_or(FoundValue::Null, |value| FoundValue::Here(value.to_vec())),
        };
        self.release_read();
        Ok(value)
    }

    async fn read_part(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        column: usize,
        (offset, buffer): (u64, &mut [u8]),
    ) -> Result<usize, TxnError> {
        let named = |error| info.layout.named(error);
        let ty = info.layout.column(column).map_err(named)?.ty;
        if ty.fixed_bytes().is_some() {
            return Err(named(wrong_type(column, ty, ColumnType::Bytes(0))).into());
        }
        match self.find_value(info, key, column).await? {
            FoundValue::Null => Err(named(RowError::Null { column }).into()),
            FoundValue::Here(value) => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                let value = value.get(offset..).unwrap_or_default();
                buffer.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
                Ok(value.len().min(buffer.len()))
            }
            FoundValue::Apart(pointer) => self.read_pieces(info, pointer, offset, buffer).await,
        }
    }

    async fn append_to_column(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
        (column, bytes): (usize, &[u8]),
    ) -> Result<u64, TxnError> {
        let refused = |error| info.layout.refused(error, Some(Value::Bytes(bytes)));
        let ty = info.layout.column(column).map_err(refused)?.ty;
        let in_key = info.key_columns() & 1 << column != 0;
        check_bytes(column, ty, bytes).map_err(refused)?;
        let found = self.find_value(info, key, column).await?;
        let (pointer, values) = match (found, &info.values) {
            (FoundValue::Apart(pointer), Some(values)) if !in_key => (pointer, values),
            (found, _) => {
                let mut value = match found {
                    FoundValue::Null => Vec::new(),
                    FoundValue::Here(value) => value,
                    FoundValue::Apart(pointer) => self.read_whole(info, pointer).await?,
                };
                value.extend_from_slice(bytes);
                let set = |row: &mut RowMut<'_>| set_bytes(row, column, &value);
                self.update_row(info, key, row, set).await?;
                return Ok(value.len() as u64);
            }
        };
        let longer = (pointer.bytes as usize).saturating_add(bytes.len());
        check_length(column, ty, longer).map_err(refused)?;
        // Recorded as read to be changed.
        let read = self.copy_row(info, key, row).await?;
        self.work.last_read = None;
        let before = info.pointers(row)?;
        let moved = info.write_in_last_layout(row)?;
        let longer = self.append_to_value(info, values, pointer, bytes).await?;
        let mut changed = RowMut::with_moved(&info.layout, row, moved);
        changed.set_pointer(column, longer)?;
        let (_, moved) = changed.into_changes();
        let changed = RowRef::with_moved(&info.layout, row, &moved);
        let stored = self.move_out(info, key, changed, Pointers::Kept).await?;
        self.work.writes.set(info.primary.number, key, Some(&stored), read);
        self.remove_unused(info, &before, Some(&stored)).await?;
        Ok(longer.bytes.into())
    }

    /// Releases the leaf that was read last, where changes are deferred: no latch outlives the
    /// operation.
    fn release_read(&mut self) {
        let defers_writes = self.defers_writes();
        self.work.last_read.take_if(|_| defers_writes);
    }
}

/// Refuses bytes that are no part of a value of this type.
fn check_bytes(column: usize, ty: ColumnType, bytes: &[u8]) -> Result<(), RowError> {
    match ty {
        ColumnType::Bytes(_) | ColumnType::Json(_) => Ok(()),
        ColumnType::Text(_) if std::str::from_utf8(bytes).is_ok() => Ok(()),
        ColumnType::Text(_) => Err(RowError::NotUtf8 { column, bytes: bytes.len() }),
        _ => Err(wrong_type(column, ty, ColumnType::Bytes(0))),
    }
}

/// Sets a text, byte or JSON column.
fn set_bytes(row: &mut RowMut<'_>, column: usize, bytes: &[u8]) -> Result<(), TxnError> {
    let value = {
        let layout = row.as_row().layout();
        let refused = |error| layout.refused(error, Some(Value::Bytes(bytes)));
        let ty = layout.column(column).map_err(refused)?.ty;
        check_bytes(column, ty, bytes).map_err(refused)?;
        let not_utf8 = |_| refused(RowError::NotUtf8 { column, bytes: bytes.len() });
        match ty {
            ColumnType::Text(_) => Value::Text(std::str::from_utf8(bytes).map_err(not_utf8)?),
            ColumnType::Json(_) => Value::Json(bytes),
            _ => Value::Bytes(bytes),
        }
    };
    Ok(row.set(column, value)?)
}
