//! Reading some columns of a row, where only those have to be the same at commit.
//!
//! Two transactions that change different columns of a row do conflict, as both write the row. One
//! that reads a column that the other does not change need not: of what it has read, only the
//! columns that it can see are recorded, and compared
//! ([`row_reads`](crate::protocol::row_reads)). What a column is follows from the definition of the
//! table that was in use: another definition in force at commit is a conflict by itself.

use selkie_btree::LeafView;

use crate::access::leaf::KeyPosition;
use crate::access::read::RowPosition;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::TableInfo;
#[cfg(doc)]
use crate::encoding::row_error::RowError;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::protocol::row_reads::{ColumnsRead, Read};
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// As [`get`](Self::get), of which only these columns can be read from the row. Under
    /// [`Protocol::Snapshot`](crate::Protocol::Snapshot) only they have to be the same at commit:
    /// others may be changed meanwhile. Under the other protocols as [`get`](Self::get).
    ///
    /// # Errors
    /// As [`get`](Self::get); [`RowError::NoSuchColumn`], where nothing is read.
    pub async fn get_columns(
        &mut self,
        table: Table,
        key: &[u8],
        columns: &[usize],
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let mut mask = 0;
        for column in columns {
            info.layout.column(*column).map_err(|error| info.layout.named(error))?;
            mask |= 1 << column;
        }
        if self.row_locks.insists_to_read() {
            Box::pin(self.insist_to_read(info, key)).await?;
        }
        self.view.narrow_to_one_leaf();
        let found = self.find_columns(info, key, mask).await;
        let found = found.and_then(|found| self.with_known_layout(info, found));
        let position = self.close_read(found).await?;
        Ok(self.row_if_found(info, position)?.map(|row| row.only(mask)))
    }

    /// Where the row with this primary key is, of which only these columns are read.
    async fn find_columns(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        columns: u64,
    ) -> Result<Option<RowPosition>, TxnError> {
        if let Some(written) = self.written_position(info, key) {
            return Ok(written);
        }
        let found = self.find(&info.primary, key, LatchMode::Shared).await?;
        self.record_columns(info, key, &found, columns, LatchMode::Shared)?;
        let KeyPosition { leaf, slot } = found;
        Ok(slot.ok().map(|slot| RowPosition::Leaf(leaf, slot)))
    }

    /// As [`record_point`](Self::record_point), of a row of which only these columns are read.
    pub(super) fn record_columns(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        found: &KeyPosition,
        columns: u64,
        mode: LatchMode,
    ) -> Result<(), TxnError> {
        let Ok(slot) = found.slot else {
            return self.record_point(&info.primary, key, found, LatchMode::Shared).map(drop);
        };
        if self.must_record(mode) {
            let value = LeafView::new(self.leaf_bytes(found.leaf))?.value(slot)?;
            let digest = self.db.digester.of_columns(info.row(value)?, columns)?;
            let tree = info.primary.number;
            let definition = self.definition_in_use(Table::of_tree(tree));
            let read = Read::Point(key, ColumnsRead::Some { columns, definition });
            let version = self.work.last_version;
            self.work.rows.add(tree, read, version, digest);
        }
        Ok(())
    }
}
