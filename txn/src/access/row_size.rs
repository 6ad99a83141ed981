//! How large a row or a key is that is to be written, and which values are stored apart from it.
//!
//! A row that takes more than its [in-line bytes](in_line_bytes) has its longest values moved out,
//! the longest first, until it takes no more. Values of columns that a key has stay, as keys are
//! made of them, and are no longer than a key. A value that was moved out before stays where it is:
//! the row keeps its pointer, and nothing is read.

use selkie_btree::{max_key, max_value};

use crate::access::long_values::piece_count;
use crate::catalogue::sizes::in_line_bytes;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::moved_values::{MovedValues, POINTER_BYTES, ValuePointer};
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_bytes::{push_pointer, set_end};
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::ColumnPlace;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::transaction::txn::Txn;

/// Which pointers of a row to be written may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointers {
    /// Those to stored values: it is an update of the row that has them.
    Kept,
    /// None: the values are those of another row, and are stored anew.
    Copied,
}

/// A variable column of a row that is to be written.
#[derive(Clone, Copy)]
enum Part<'a> {
    InRow(&'a [u8]),
    /// To be moved out.
    MovedOut(&'a [u8]),
    /// Moved out before.
    Pointer(ValuePointer),
}

impl Part<'_> {
    /// Bytes in the row.
    fn in_row(&self) -> usize {
        match self {
            Self::InRow(value) => value.len(),
            Self::MovedOut(_) | Self::Pointer(_) => POINTER_BYTES,
        }
    }

    /// Bytes of the value.
    fn whole(&self) -> usize {
        match self {
            Self::InRow(value) | Self::MovedOut(value) => value.len(),
            Self::Pointer(pointer) => pointer.bytes as usize,
        }
    }
}

/// The variable columns of a row in their order, also those that were dropped.
fn parts<'a>(row: RowRef<'a>, pointers: Pointers) -> Result<Vec<Part<'a>>, NamedRowError> {
    let (layout, bytes) = (row.layout(), row.as_bytes());
    let mut parts = Vec::with_capacity(layout.variable_columns);
    for ordinal in 0..layout.variable_columns {
        let is_here = |place| place == ColumnPlace::Variable(ordinal);
        let column = || layout.columns.iter().position(|column| is_here(column.place));
        let damaged = || layout.named(RowError::Damaged { column: column().unwrap_or_default() });
        let range = layout.variable(bytes, ordinal).ok_or_else(damaged)?;
        let stored = bytes.get(range).ok_or_else(damaged)?;
        if !layout.is_moved(bytes, ordinal) {
            parts.push(Part::InRow(stored));
            continue;
        }
        let pointer = ValuePointer::decode(stored).ok_or_else(damaged)?;
        let value = row.moved().and_then(|moved| moved.get(pointer));
        parts.push(match value {
            Some(value) if !pointer.is_stored() || pointers == Pointers::Copied => {
                Part::MovedOut(value)
            }
            _ if pointer.is_stored() && pointers == Pointers::Kept => Part::Pointer(pointer),
            _ => {
                let column = column().unwrap_or_default();
                return Err(layout.named(RowError::Moved { column, bytes: pointer.bytes }));
            }
        });
    }
    Ok(parts)
}

/// The error for a row of these sizes: bytes that it takes, bytes allowed, bytes of its key.
/// `length` says what a part takes of the row.
fn too_large(
    info: &TableInfo,
    row: RowRef<'_>,
    parts: &[Part<'_>],
    length: impl Fn(&Part<'_>) -> usize,
    sizes: (usize, usize, usize),
) -> TxnError {
    let columns = &row.layout().columns;
    let of_column = |column: usize| match columns.get(column)?.place {
        ColumnPlace::Variable(ordinal) => parts.get(ordinal).map(&length),
        _ => None,
    };
    info.row_too_large(row, |column| of_column(column).unwrap_or_default(), sizes)
}

impl Txn<'_> {
    /// Refuses a key that is too long for its tree.
    #[inline]
    pub(crate) fn check_key_bytes(
        &self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
    ) -> Result<(), TxnError> {
        let limit = max_key(self.db.engine.page_bytes());
        if key.len() <= limit {
            return Ok(());
        }
        Err(info.key_too_long(index, key, limit))
    }

    /// Whether a row with this key can be written as it is: it is short enough, and has no value or
    /// pointer that needs another look.
    #[inline]
    pub(crate) fn is_in_line(&self, info: &TableInfo, key: &[u8], row: RowRef<'_>) -> bool {
        let page_bytes = self.db.engine.page_bytes();
        let is_plain = row.moved().is_none_or(MovedValues::is_empty) && info.values.is_none();
        let most = match is_plain {
            true => max_value(page_bytes, key.len()),
            false => in_line_bytes(page_bytes, key.len()),
        };
        row.as_bytes().len() <= most && (is_plain || !row.layout().has_pointers(row.as_bytes()))
    }

    /// Stores the values apart that a row with this key has no room for; the bytes that the row
    /// gets.
    pub(crate) async fn move_out(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: RowRef<'_>,
        pointers: Pointers,
    ) -> Result<Vec<u8>, TxnError> {
        let page_bytes = self.db.engine.page_bytes();
        let (limit, layout) = (max_value(page_bytes, key.len()), row.layout());
        let mut parts = parts(row, pointers)?;
        let whole = layout.variable_at + parts.iter().map(Part::whole).sum::<usize>();
        let mut bytes = layout.variable_at + parts.iter().map(Part::in_row).sum::<usize>();
        let is_moved = |part: &Part<'_>| !matches!(part, Part::InRow(_));
        let Some(values) = &info.values else {
            if bytes <= limit && !parts.iter().any(is_moved) {
                return Ok(row.as_bytes().to_vec());
            }
            let sizes = (whole, limit, key.len());
            return Err(too_large(info, row, &parts, |part| part.whole(), sizes));
        };
        let keys = info.key_columns();
        let stays = |ordinal: usize| {
            let mut columns = layout.columns.iter().enumerate();
            columns.any(|(at, column)| {
                column.place == ColumnPlace::Variable(ordinal) && keys & 1 << at != 0
            })
        };
        let most = in_line_bytes(page_bytes, key.len());
        while bytes > most {
            let longest = parts.iter_mut().enumerate().filter_map(|(ordinal, part)| match part {
                Part::InRow(value) if value.len() > POINTER_BYTES && !stays(ordinal) => {
                    let value = *value;
                    Some((value, part))
                }
                _ => None,
            });
            let Some((value, part)) = longest.max_by_key(|(value, _)| value.len()) else { break };
            bytes -= value.len() - POINTER_BYTES;
            *part = Part::MovedOut(value);
        }
        if bytes > limit {
            let sizes = (bytes, limit, key.len());
            return Err(too_large(info, row, &parts, |part| part.in_row(), sizes));
        }
        let mut stored = row.as_bytes().get(..layout.variable_at).unwrap_or_default().to_vec();
        for (ordinal, part) in parts.into_iter().enumerate() {
            let pointer = match part {
                Part::InRow(value) => {
                    stored.extend_from_slice(value);
                    set_end(layout, &mut stored, ordinal, false);
                    continue;
                }
                Part::MovedOut(value) => self.store_value(info, values, value).await?,
                Part::Pointer(pointer) => pointer,
            };
            push_pointer(layout, &mut stored, ordinal, pointer);
        }
        Ok(stored)
    }

    /// Removes the values of pointers that a row had and has not any more.
    pub(crate) async fn remove_unused(
        &mut self,
        info: &TableInfo,
        before: &[ValuePointer],
        row: Option<&[u8]>,
    ) -> Result<(), TxnError> {
        let kept = row.map(|row| info.pointers(row)).transpose()?.unwrap_or_default();
        for pointer in before {
            if kept.iter().all(|kept| kept.id != pointer.id) {
                let pieces = piece_count(self.db.engine.page_bytes(), pointer.bytes);
                self.remove_pieces(info, *pointer, 0..pieces).await?;
            }
        }
        Ok(())
    }
}
