//! Reads of many keys at a time: their leaves are fetched together.

use std::ops::ControlFlow;

use selkie_engine::GAddr;
use smallvec::SmallVec;

use crate::access::read::Flow;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::TableInfo;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::database_state::READ_AHEAD;
use crate::transaction::txn::Txn;

/// Keys whose leaves are looked for at once where none are fetched ahead.
const FEWEST_AT_ONCE: usize = 1;
/// Most batches in a row of which no leaves are fetched ahead, as those of earlier ones were
/// cached.
const MOST_RESTS: u32 = 8;

impl<'db> Txn<'db> {
    /// Shows `visit` the rows with these primary keys, until it breaks: for each key its position
    /// among the keys, and the row, or `None` if there is none. The keys may be in any order, and
    /// be there twice. The rows come in the order of their keys in the table, so that a leaf is
    /// fetched once for all keys of it. What is read, and recorded as read, is what
    /// [`get`](Self::get) would for each key that is shown.
    ///
    /// The leaves of as many keys as
    /// [may be read ahead](crate::Database::set_read_ahead) are fetched at the same time: about one
    /// round trip for all of them, if inner pages are cached.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use selkie_txn::{Table, Txn, TxnError, key};
    /// # async fn example(txn: &mut Txn<'_>, table: Table) -> Result<(), TxnError> {
    /// let keys = [key![8], key![3], key![5]];
    /// let mut balances = [None; 3];
    /// txn.get_many(table, &keys, |at, row| {
    ///     balances[at] = row.map(|row| row.i64(2)).transpose()?;
    ///     Ok(ControlFlow::Continue(()))
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get), [`TxnError::KeyMismatch`] before anything is read; an error of
    /// `visit` ends it and is passed on.
    pub async fn get_many<K, F>(
        &mut self,
        table: Table,
        keys: &[K],
        mut visit: F,
    ) -> Result<(), TxnError>
    where
        K: AsRef<[u8]> + Sync,
        F: FnMut(usize, Option<RowRef<'_>>) -> Result<ControlFlow<()>, TxnError> + Send,
    {
        self.open_read()?;
        let info = self.table_info(table).await?;
        for key in keys {
            info.check_key(&info.primary, key.as_ref())?;
        }
        let mut order: Vec<(&[u8], usize)> =
            keys.iter().enumerate().map(|(at, key)| (key.as_ref(), at)).collect();
        order.sort_unstable();
        if self.row_locks.insists_to_read() {
            for (key, _) in &order {
                Box::pin(self.insist_to_read(info, key)).await?;
            }
        }
        let result = self.read_many(info, &order, &mut visit).await;
        self.close_read(result).await?;
        let defers_writes = self.defers_writes();
        self.work.last_read.take_if(|_| defers_writes);
        Ok(())
    }

    async fn read_many(
        &mut self,
        info: &TableInfo,
        keys: &[(&[u8], usize)],
        visit: &mut (dyn FnMut(usize, Option<RowRef<'_>>) -> Flow + Send),
    ) -> Result<(), TxnError> {
        let reads_ahead = self.reads_shared(LatchMode::Shared);
        let (mut rests, mut next_rests) = (0, 1);
        for some in keys.chunks(self.db.read_ahead().max(FEWEST_AT_ONCE)) {
            // The leaves are used that are found now.
            let _pin = self.db.engine.pin();
            let mut leaves: SmallVec<[Option<GAddr>; READ_AHEAD]> = SmallVec::new();
            leaves.resize(some.len(), None);
            if rests > 0 {
                rests -= 1;
            } else if reads_ahead && some.len() > FEWEST_AT_ONCE {
                let keys = some.iter().map(|(key, _)| *key);
                let is_fetching = self.fetch_leaves_of(&info.primary, keys, |at, leaf| {
                    if let Some(place) = leaves.get_mut(at) {
                        *place = Some(leaf);
                    }
                });
                if is_fetching {
                    next_rests = 1;
                } else {
                    rests = next_rests;
                    next_rests = MOST_RESTS.min(2 * next_rests);
                }
            }
            for ((key, at), leaf) in some.iter().zip(leaves) {
                let mode = LatchMode::Shared;
                let flow = match self.find_row_position(info, key, mode, leaf).await? {
                    None => visit(*at, None)?,
                    Some(position) => {
                        let row = self.row_bytes(info, &position)?;
                        visit(*at, Some(info.row(row)?))?
                    }
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
