//! Entries of secondary indexes without the rows that they lead to.
//!
//! The key of an entry tells the columns of the index, and with it, or behind it, stands the
//! primary key. A reader that needs no other columns need not look at the row: the tree of an index
//! has its entries in leaves that are latched, versioned, recorded and validated as those of a
//! table are, so an entry is visible exactly where its row is. What is recorded as read is the
//! range of the index. It changes with each row that comes, goes, or gets another key, and not with
//! other columns of rows, which were not read.
//!
//! Some types have keys that tell less than the value ([`ColumnType::has_exact_keys`]): columns of
//! these are not told.

use std::ops::ControlFlow;

use crate::access::read::Flow;
use crate::access::walk::Walk;
use crate::access::walk_state::EntryPosition;
#[cfg(doc)]
use crate::catalogue::column_type::ColumnType;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_value::KeyValue;
use crate::encoding::row_builder::RowBuilder;
use crate::error::TxnError;
use crate::transaction::txn::Txn;

/// What an entry says of a column of the table.
#[derive(Clone, Copy)]
enum Told {
    Nothing,
    Null,
    /// Its value is between these bytes of what was read of the entry.
    Value(usize, usize),
}

/// Makes rows of the entries of an index, with what these tell of them.
pub(super) struct EntryRows<'i> {
    info: &'i TableInfo,
    index: &'i IndexInfo,
    row: RowBuilder<'i>,
    /// Of each column of the table.
    told: Vec<Told>,
    /// The values of the entry, as rows store them.
    stored: Vec<u8>,
}

impl<'i> EntryRows<'i> {
    pub(super) fn new(info: &'i TableInfo, index: &'i IndexInfo) -> Self {
        let (row, told) =
            (RowBuilder::new(&info.layout), vec![Told::Nothing; info.layout.columns.len()]);
        Self { info, index, row, told, stored: Vec::new() }
    }

    /// The bytes of the row of an entry.
    pub(super) fn row(&mut self, key: &[u8], value: &[u8]) -> Result<&[u8], TxnError> {
        self.stored.clear();
        self.told.fill(Told::Nothing);
        let (info, index) = (self.info, self.index);
        let is_whole = match (self.read(index, key), index.ends_in_primary_key(value)) {
            (Some(primary), true) => self.is_whole_key(primary),
            (Some([]), false) => self.is_whole_key(value),
            _ => false,
        };
        if !is_whole {
            return Err(info.inconsistent(index));
        }
        self.row.clear();
        for told in &self.told {
            match told {
                Told::Nothing => self.row.left_out(),
                Told::Null => self.row.null(),
                Told::Value(start, end) => self.row.stored(self.stored.get(*start..*end)),
            };
        }
        Ok(self.row.finish()?.as_bytes())
    }

    /// Reads a primary key; whether it is one.
    fn is_whole_key(&mut self, primary: &[u8]) -> bool {
        self.read(&self.info.primary, primary).is_some_and(<[u8]>::is_empty)
    }

    /// Reads the columns that the keys of an index begin with. The rest of the key; `None` if it
    /// does not begin with such columns.
    fn read<'k>(&mut self, index: &IndexInfo, mut key: &'k [u8]) -> Option<&'k [u8]> {
        for part in index.parts() {
            let start = self.stored.len();
            let (found, rest) = part.read(key, &mut self.stored)?;
            let told = match found {
                KeyValue::Inexact => None,
                KeyValue::Null => Some(Told::Null),
                KeyValue::Read => Some(Told::Value(start, self.stored.len())),
            };
            if let (Some(told), Some(place)) = (told, self.told.get_mut(part.column)) {
                *place = told;
            }
            key = rest;
        }
        Some(key)
    }
}

/// The bytes of a row with what an entry of an index tells of it.
pub(crate) fn row_of_entry(
    info: &TableInfo,
    index: &IndexInfo,
    key: &[u8],
    value: &[u8],
) -> Result<Vec<u8>, TxnError> {
    EntryRows::new(info, index).row(key, value).map(<[u8]>::to_vec)
}

/// The columns of a table, one bit each, that the entries of an index tell.
pub(super) fn told_columns(info: &TableInfo, index: &IndexInfo) -> u64 {
    index.told_columns() | info.primary.told_columns()
}

impl<'db> Txn<'db> {
    /// Shows `visit` key and value of the entries that a walk over an index comes to, until it
    /// breaks. Returns the entry at which it did, on which the walk stands; `None` if the walk has
    /// come to its end. Records what was read up to there. `key` is a buffer.
    pub(super) async fn walk_entries(
        &mut self,
        walk: &mut Walk<'_, 'db>,
        visit: &mut (dyn FnMut(&[u8], &[u8]) -> Flow + Send),
        key: &mut Vec<u8>,
    ) -> Result<Option<EntryPosition>, TxnError> {
        while let Some(at) = walk.next(self).await? {
            walk.key_into(self, &at, key)?;
            let flow = visit(key, walk.value(self, &at)?);
            if !matches!(flow, Ok(ControlFlow::Continue(()))) {
                walk.record(self, &at)?;
            }
            if flow?.is_break() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}
