//! Long values: those that are stored apart from their rows, in pieces.
//!
//! A table that can have long values has a tree for them. Its entries are pieces:
//!
//! ```text
//! key    id of the value u64, piece number u32, both big-endian
//! value  the bytes of the piece: as many as a page has room for; the last piece has the rest
//! ```
//! The row has the id and the length. An id is a random number, so no two nodes need to agree, and
//! it is looked at whether there is such a value already.
//!
//! Pieces are entries as others: they are deferred to commit, found in the write set, kept in
//! images for snapshots, logged, undone. What is special is that nobody records them as read. A new
//! value has a new id, so the bytes of a value that a row points to never change; a value that is
//! appended to only gets more, and who has the row as it was before reads no more than its length
//! says. So the row alone says whether what was read is current, and readers of a row read or
//! compare nothing else to commit. Who changes a value changes the row.
//!
//! Under [`ReadCommitted`](crate::Isolation::ReadCommitted) an operation finds the pieces of a row
//! that it has found itself. Those of a row of an earlier operation may be gone.

use std::ops::Range;

use selkie_btree::LeafView;
use selkie_fabric::env::yield_now;

use crate::catalogue::sizes::{PIECE_KEY_BYTES, piece_bytes};
use crate::catalogue::table_info::{IndexInfo, TableInfo, VALUES};
use crate::encoding::moved_values::{MovedValues, ValuePointer};
use crate::encoding::row_mut::RowMut;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::protocol::write_set::WrittenEntry;
use crate::transaction::txn::Txn;

/// Pieces after which other tasks of the thread run once.
const PIECES_AT_ONCE: u32 = 256;

/// The key of a piece.
fn piece_key(id: u64, piece: u32) -> [u8; PIECE_KEY_BYTES] {
    let mut key = [0; PIECE_KEY_BYTES];
    let (first, last) = key.split_at_mut(size_of::<u64>());
    first.copy_from_slice(&id.to_be_bytes());
    last.copy_from_slice(&piece.to_be_bytes());
    key
}

/// How many pieces a value of so many bytes has.
pub(crate) fn piece_count(page_bytes: usize, bytes: u32) -> u32 {
    (bytes as usize).div_ceil(piece_bytes(page_bytes)) as u32
}

/// Pages are small.
fn piece_u64(page_bytes: usize) -> u64 {
    piece_bytes(page_bytes) as u64
}

impl Txn<'_> {
    /// Stores a new value in pieces; the pointer to it.
    pub(super) async fn store_value(
        &mut self,
        info: &TableInfo,
        values: &IndexInfo,
        value: &[u8],
    ) -> Result<ValuePointer, TxnError> {
        // A column takes no longer one.
        let bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let pointer = ValuePointer::of_new_value(self.db.engine.env().random_u64(), bytes);
        let piece = piece_bytes(self.db.engine.page_bytes());
        let first = value.get(..piece).unwrap_or(value);
        self.defer_add(info, values, &piece_key(pointer.id, 0), first).await?;
        self.work.last_read = None;
        self.write_pieces(values, pointer.id, 1, value.get(piece..).unwrap_or_default()).await?;
        Ok(pointer)
    }

    /// Writes pieces of a value from one on.
    async fn write_pieces(
        &mut self,
        values: &IndexInfo,
        id: u64,
        first: u32,
        bytes: &[u8],
    ) -> Result<(), TxnError> {
        let pieces = bytes.chunks(piece_bytes(self.db.engine.page_bytes()));
        for (piece, bytes) in (first..).zip(pieces) {
            self.work.writes.set(values.number, &piece_key(id, piece), Some(bytes), None);
            if piece % PIECES_AT_ONCE == PIECES_AT_ONCE - 1 {
                // Not all of it, if it is more than a transaction may change.
                self.check_write_set()?;
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Adds bytes to a stored value; the pointer to it as it is then.
    pub(super) async fn append_to_value(
        &mut self,
        info: &TableInfo,
        values: &IndexInfo,
        pointer: ValuePointer,
        bytes: &[u8],
    ) -> Result<ValuePointer, TxnError> {
        let piece_bytes = piece_bytes(self.db.engine.page_bytes());
        let (mut next, in_last) = {
            let length = pointer.bytes as usize;
            ((length / piece_bytes) as u32, length % piece_bytes)
        };
        let mut rest = bytes;
        if in_last > 0 {
            let mut last = Vec::with_capacity(piece_bytes);
            self.read_piece(info, pointer, next, |piece| last.extend_from_slice(piece)).await?;
            if last.len() < in_last {
                // Shorter than the row says.
                return Err(self.error_of_valid_reads(value_gone(info)).await);
            }
            last.truncate(in_last);
            let (added, behind) = rest.split_at(rest.len().min(piece_bytes - in_last));
            last.extend_from_slice(added);
            self.work.writes.set(values.number, &piece_key(pointer.id, next), Some(&last), None);
            (rest, next) = (behind, next + 1);
        }
        self.write_pieces(values, pointer.id, next, rest).await?;
        let added = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(ValuePointer { bytes: pointer.bytes.saturating_add(added), ..pointer })
    }

    /// Removes pieces of a value.
    pub(super) async fn remove_pieces(
        &mut self,
        info: &TableInfo,
        pointer: ValuePointer,
        pieces: Range<u32>,
    ) -> Result<(), TxnError> {
        let values = values_of(info)?;
        for piece in pieces {
            self.work.writes.set(values.number, &piece_key(pointer.id, piece), None, None);
            if piece % PIECES_AT_ONCE == PIECES_AT_ONCE - 1 {
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Fills `buffer` with the bytes of a stored value from `offset` on, as far as there are any.
    /// Returns how many there were.
    pub(super) async fn read_pieces(
        &mut self,
        info: &TableInfo,
        pointer: ValuePointer,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, TxnError> {
        let piece_bytes = piece_u64(self.db.engine.page_bytes());
        let left = u64::from(pointer.bytes).saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let mut filled = 0;
        while filled < wanted {
            let at = offset + filled as u64;
            // No longer than the value, whose length has 32 bits.
            let (piece, skipped) = ((at / piece_bytes) as u32, (at % piece_bytes) as usize);
            let target = buffer.get_mut(filled..wanted).unwrap_or_default();
            let copy = |bytes: &[u8]| {
                let bytes = bytes.get(skipped..).unwrap_or_default();
                target.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                bytes.len().min(target.len())
            };
            match self.read_piece(info, pointer, piece, copy).await? {
                // Shorter than the row says.
                0 => return Err(self.error_of_valid_reads(value_gone(info)).await),
                copied => filled += copied,
            }
        }
        Ok(filled)
    }

    /// What `read` makes of a piece of a stored value.
    async fn read_piece<R>(
        &mut self,
        info: &TableInfo,
        pointer: ValuePointer,
        piece: u32,
        read: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<R, TxnError> {
        let values = values_of(info)?;
        let key = piece_key(pointer.id, piece);
        match self.work.writes.get(values.number, &key) {
            WrittenEntry::Present(bytes) => return Ok(read(bytes)),
            WrittenEntry::Removed => return Err(value_gone(info)),
            WrittenEntry::Unchanged => {}
        }
        let found = self.find(values, &key, LatchMode::Shared).await?;
        let Ok(slot) = found.slot else {
            return Err(self.error_of_valid_reads(value_gone(info)).await);
        };
        let result = read(LeafView::new(self.leaf_bytes(found.leaf))?.value(slot)?);
        self.work.last_read = None;
        Ok(result)
    }

    /// A whole stored value.
    pub(super) async fn read_whole(
        &mut self,
        info: &TableInfo,
        pointer: ValuePointer,
    ) -> Result<Vec<u8>, TxnError> {
        let mut value = vec![0; pointer.bytes as usize];
        self.read_pieces(info, pointer, 0, &mut value).await?;
        Ok(value)
    }

    /// Puts values back into a row, which is in the last layout, that it has pointers to and keys
    /// are made of: they were moved out before there was such a key. Returns of which columns.
    pub(super) async fn bring_in(
        &mut self,
        info: &TableInfo,
        row: &mut Vec<u8>,
        moved: &mut MovedValues,
    ) -> Result<u64, TxnError> {
        let (keys, read) = (info.key_columns(), RowRef::with_moved(&info.layout, row, moved));
        let mut columns = Vec::new();
        for column in (0..info.layout.columns.len()).filter(|column| keys & 1 << column != 0) {
            let pointer = read.pointer(column)?.filter(|pointer| pointer.is_stored());
            columns.extend(pointer.map(|pointer| (column, pointer)));
        }
        let mut brought = 0;
        for (column, pointer) in columns {
            let value = self.read_whole(info, pointer).await?;
            let mut changed = RowMut::with_moved(&info.layout, row, std::mem::take(moved));
            changed.bring_in(column, &value)?;
            (_, *moved) = changed.into_changes();
            brought |= 1 << column;
        }
        Ok(brought)
    }

    /// The values of some columns, one bit each, that a stored row has pointers to.
    pub(super) async fn read_moved(
        &mut self,
        info: &TableInfo,
        row: RowRef<'_>,
        columns: u64,
    ) -> Result<MovedValues, TxnError> {
        let mut moved = row.moved().cloned().unwrap_or_default();
        for column in 0..row.layout().columns.len() {
            if columns & 1 << column != 0
                && let Some(pointer) = row.pointer(column)?
                && moved.get(pointer).is_none()
            {
                let value = self.read_whole(info, pointer).await?;
                moved.add_stored(pointer, value);
            }
        }
        Ok(moved)
    }
}

/// The tree of a table's long values.
fn values_of(info: &TableInfo) -> Result<&IndexInfo, TxnError> {
    info.values.as_ref().ok_or_else(|| TxnError::Inconsistent {
        table: info.schema.name.clone(),
        index: VALUES.to_owned(),
    })
}

/// The error for a value of which there is not what the row says.
fn value_gone(info: &TableInfo) -> TxnError {
    TxnError::ValueGone { table: info.schema.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_in_the_order_of_their_numbers() {
        let keys = [(1, 0), (1, 1), (1, 255), (1, 256), (1, u32::MAX), (2, 0), (u64::MAX, 0)];
        assert!(keys.map(|(id, piece)| piece_key(id, piece)).is_sorted());
        let bytes = piece_bytes(2040) as u32;
        let counts = [0, 1, bytes, bytes + 1, 3 * bytes].map(|bytes| piece_count(2040, bytes));
        assert_eq!(counts, [0, 1, 1, 2, 3]);
    }
}
