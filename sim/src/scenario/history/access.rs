//! One transaction, as the operations on registers and lists have it.

use std::ops::ControlFlow;

use selkie_fabric::env::SplitMix;
use selkie_txn::{Database, Direction, KeyRange, RowRef, Source, Txn, TxnError};

use super::journal::Notes;

/// A transaction under way, with what it works on.
pub(super) struct Access<'t, 'db> {
    pub(super) db: &'db Database,
    pub(super) txn: &'t mut Txn<'db>,
    pub(super) notes: &'t mut Notes,
    pub(super) random: &'t SplitMix,
}

impl Access<'_, '_> {
    pub(super) fn coin(&self) -> bool {
        self.random.below(2) == 0
    }

    pub(super) fn direction(&self) -> Direction {
        if self.coin() { Direction::Forward } else { Direction::Reverse }
    }

    /// What is in the rows of a range, in either direction: by a scan, or by a cursor, some rows at
    /// a time.
    pub(super) async fn rows<T: Send>(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
        of: impl Fn(RowRef<'_>) -> Result<T, TxnError> + Send + Sync,
    ) -> Result<Vec<T>, TxnError> {
        let (source, direction, mut rows) = (source.into(), self.direction(), Vec::new());
        if self.coin() {
            let visit = |row: RowRef<'_>| {
                rows.push(of(row)?);
                Ok(ControlFlow::Continue(()))
            };
            self.txn.scan(source, range, direction, visit).await?;
            return Ok(rows);
        }
        let mut cursor = self.txn.cursor(source, range.clone(), direction)?;
        loop {
            let most = 1 + self.random.below(4) as usize;
            let some = cursor.fetch(self.txn, most).await?;
            for row in &some {
                rows.push(of(row)?);
            }
            if some.len() < most {
                return Ok(rows);
            }
        }
    }
}
