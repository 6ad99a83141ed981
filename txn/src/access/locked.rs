//! Rows that a transaction locks before it reads them.

use selkie_btree::{KeyLocation, LeafView, leaf_mark_locked};
use selkie_engine::GAddr;

use crate::access::cursor::Cursor;
use crate::access::leaf::no_stable_leaf;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key::KeyBuf;
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::locks::entry::LockName;
use crate::locks::row_locks::{LockOutcome, LockWait};
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;
use crate::transaction::workspace::Workspace;

/// Attempts to find a leaf that others split or merge meanwhile.
const MARK_ATTEMPTS: u32 = 64;

impl Txn<'_> {
    /// Locks the row with this primary key to the end of the transaction, be it there or not: other
    /// transactions, on any node, that lock it or commit a change of it wait for that end. Those
    /// that only read do not. Waiters get it in the order in which they came. No round trip if the
    /// pages are cached; nothing is latched afterwards, also in a [`Session`](crate::Session).
    ///
    /// # Errors
    /// [`TxnError::Deadlock`] and [`TxnError::LockTimeout`], which roll back, as the other errors
    /// that do; after a wait, [`TxnError::Stale`] if the table was changed or emptied meanwhile, or
    /// what the transaction has read and that has to stay; [`TxnError::NoRowLocks`];
    /// [`TxnError::ReadOnly`]; [`TxnError::KeyMismatch`].
    pub async fn lock_row(
        &mut self,
        table: Table,
        key: &[u8],
        wait: LockWait,
    ) -> Result<LockOutcome, TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        self.check_locks_rows()?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let locked = self.lock_key(&info.primary, key, wait).await;
        self.close_read(locked).await
    }

    /// Locks all rows of a table to the end of the transaction, those that are not there, too:
    /// commits of others that change the table wait for that end. Those that only read do not, nor
    /// does who locks a row ([`lock_row`](Self::lock_row)) before it changes it. Marks all leaves
    /// of the table, one after the other.
    ///
    /// # Errors
    /// As [`lock_row`](Self::lock_row).
    pub async fn lock_table(
        &mut self,
        table: Table,
        wait: LockWait,
    ) -> Result<LockOutcome, TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        self.check_locks_rows()?;
        let info = self.table_info(table).await?;
        let locked = self.lock_tree(info, wait).await;
        self.close_read(locked).await
    }

    async fn lock_tree(
        &mut self,
        info: &TableInfo,
        wait: LockWait,
    ) -> Result<LockOutcome, TxnError> {
        if wait != LockWait::Wait {
            let name = LockName::of_tree(info.primary.tree.root());
            let acquired = self.acquire_lock(name, wait).await;
            let (outcome, _) = acquired.map_err(|error| info.primary.of_lock(error, None))?;
            if outcome == LockOutcome::NotAvailable {
                return Ok(outcome);
            }
        }
        self.insist_on_table(info).await.map(|()| LockOutcome::Held)
    }

    /// The row with this primary key, locked as by [`lock_row`](Self::lock_row), in its newest
    /// state. Rows that a serializable transaction has read before have to be as they were. `None`
    /// if there is no such row, or it is locked by another and is to be left out
    /// ([`LockWait::SkipLocked`]).
    ///
    /// # Errors
    /// As [`lock_row`](Self::lock_row) and [`get`](Self::get); [`TxnError::RowLocked`] if it is
    /// locked by another and the transaction was not to wait, which leaves all as it was;
    /// [`TxnError::Stale`] under [`RepeatableRead`](crate::Isolation::RepeatableRead) if the row
    /// was changed after the snapshot.
    pub async fn get_locked(
        &mut self,
        table: Table,
        key: &[u8],
        wait: LockWait,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        match (self.lock_row(table, key, wait).await?, wait) {
            (LockOutcome::Held, _) => {}
            (LockOutcome::NotAvailable, LockWait::SkipLocked) => return Ok(None),
            (LockOutcome::NotAvailable, _) => {
                return Err(self.table_info(table).await?.row_locked(key));
            }
        }
        if self.view.is_of_transaction() {
            return self.get_unchanged(table, key).await;
        }
        self.get_for_update(table, key).await
    }

    /// The row at the snapshot of the transaction, if it has not changed since.
    async fn get_unchanged(
        &mut self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.get_for_update(table, key).await?;
        // A leaf that has not changed since is read as it is; of another there is an image.
        if self.work.last_version.psn.is_none() {
            let valid = self.validate_rows().await;
            self.close_read(valid).await?;
        }
        self.get_for_update(table, key).await
    }

    /// The next row of a [cursor](Self::cursor) that could be locked, in its newest state. A row
    /// that is gone by then, or not in the range any more, is left out, and those that others have
    /// locked under [`LockWait::SkipLocked`]. One row and one lock at a time. For a queue of work,
    /// under [`ReadCommitted`](crate::Isolation::ReadCommitted): there what was looked at and left
    /// out need not stay as it was.
    ///
    /// # Errors
    /// As [`Cursor::fetch`] and [`get_locked`](Self::get_locked).
    pub async fn next_locked(
        &mut self,
        cursor: &mut Cursor,
        wait: LockWait,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        self.check_locks_rows()?;
        let (source, range) = cursor.source_and_range();
        let key = loop {
            self.open_read()?;
            let info = self.table_info(source.table()).await?;
            let mut key = KeyBuf::new();
            match cursor.fetch(self, 1).await?.iter().next() {
                None => return Ok(None),
                Some(row) => {
                    info.primary.encode(row, &mut key)?;
                }
            }
            let Some(row) = self.get_locked(source.table(), &key, wait).await? else { continue };
            if info.source(source)?.number == info.primary.number {
                break key;
            }
            // The table may have another definition since the row was fetched.
            let row = row.as_bytes().to_vec();
            let info = self.known_table(source.table())?;
            let index = info.source(source)?;
            if range.contains(&index.entry(info.row(&row)?, &key)?.key) {
                break key;
            }
        };
        self.get_for_update(source.table(), &key).await
    }

    /// How long the transaction waits for a lock at most, from now on: 60 seconds unless set. A
    /// commit waits no longer than that for all locks that are in its way together.
    pub fn set_lock_timeout(&mut self, timeout: std::time::Duration) {
        self.row_locks.timeout = timeout;
    }

    /// Fails unless there are row locks.
    pub(crate) fn check_locks_rows(&self) -> Result<(), TxnError> {
        match self.records_rows() && self.db.locks.is_some() {
            true => Ok(()),
            false => Err(TxnError::NoRowLocks),
        }
    }

    /// Waits for the turn of the transaction at a row that it is to change, if many are.
    #[inline]
    pub(crate) async fn await_turn(&mut self, index: &IndexInfo, key: &[u8]) {
        if self.records_rows() {
            let name = self.db.digester.name_of(index.number, key);
            if self.db.turns.is_hot(name) && !self.has_seen(index, key) {
                let may_wait = self.row_locks.is_empty();
                let (env, number) = (self.db.engine.env(), || self.db.unique_number());
                Box::pin(self.turns.take(env, name, may_wait, number)).await;
            }
        }
    }

    /// Whether it is settled what the transaction sees of a row: it has read it lately, or it sees
    /// a snapshot.
    fn has_seen(&self, index: &IndexInfo, key: &[u8]) -> bool {
        self.view.stamp().is_some() || self.work.rows.has_read_lately(index.number, key)
    }

    /// Locks a tree, and marks the leaves of a range of it: at most so many. Returns where the last
    /// of them ends, if there may be more of the range.
    pub(super) async fn lock_range(
        &mut self,
        index: &IndexInfo,
        range: &KeyRange,
        most_leaves: usize,
    ) -> Result<Option<Vec<u8>>, TxnError> {
        let name = LockName::of_tree(index.tree.root());
        let acquired = self.acquire_lock(name, LockWait::Wait).await;
        let (_, waited) = acquired.map_err(|error| index.of_lock(error, None))?;
        if waited {
            self.check_after_wait().await?;
        }
        let (mut at, mut marked) = (range.low().to_vec(), 0);
        let end = loop {
            let end = self.mark_leaf(index, &at).await?;
            let end = end.filter(|end| range.high().is_none_or(|high| **end < *high));
            marked += 1;
            match end {
                Some(end) if marked < most_leaves => at = end,
                end => break end,
            }
            self.yield_now_and_then().await;
        };
        self.refresh_view();
        Ok(end)
    }

    pub(super) async fn lock_key(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        wait: LockWait,
    ) -> Result<LockOutcome, TxnError> {
        let name = LockName::of_row(index.tree.root(), key);
        let acquired = self.acquire_lock(name, wait).await;
        let (outcome, waited) = acquired.map_err(|error| index.of_lock(error, Some(key)))?;
        if waited {
            self.check_after_wait().await?;
        }
        if outcome == LockOutcome::Held {
            // The entry before the mark: see `locks`.
            self.mark_leaf(index, key).await?;
        }
        self.refresh_view();
        Ok(outcome)
    }

    /// Where an operation or a statement has a view of its own, it begins after the wait: the rest
    /// of a statement sees that later state, too, and in it tables as they are defined there.
    fn refresh_view(&mut self) {
        if !self.view.is_refreshable() {
            return;
        }
        // The rest of this operation goes on with the definition that it has. Its trees were there
        // until now, by the snapshot that ends here or by an earlier pin.
        self.pin_for_definitions();
        self.view.refresh();
        self.forget_definitions();
    }

    /// From now on no page is used again that is given back, to the end of the operation.
    fn pin_for_definitions(&mut self) {
        if self.work.pin.is_none() {
            self.work.pin = Some(self.db.engine.pin());
        }
    }

    /// After a wait, for which neither pages nor images were kept: fails if a table was changed
    /// meanwhile, whose trees may be something else by now.
    async fn check_after_wait(&mut self) -> Result<(), TxnError> {
        if self.view.is_refreshable() {
            // Before the check: a tree that is in force then stays.
            self.pin_for_definitions();
        }
        self.check_tables().await
    }

    /// Locks a row or a tree, and says whether it has waited for that. During a wait nothing is
    /// held that keeps freed pages of the whole pool from being used again, unless the transaction
    /// reads one snapshot: a wait may take a minute.
    pub(crate) async fn acquire_lock(
        &mut self,
        name: LockName,
        wait: LockWait,
    ) -> Result<(LockOutcome, bool), TxnError> {
        let Some(table) = &self.db.locks else { return Err(TxnError::NoRowLocks) };
        self.work.last_read = None;
        let (db, age) = (self.db, self.row_locks.age);
        let new = || db.lock_owner(age);
        let (Workspace { pin, .. }, view, mut waited) = (&mut self.work, &mut self.view, false);
        let before_wait = || {
            waited = true;
            *pin = None;
            view.refresh();
        };
        let outcome = self.row_locks.acquire(table, new, name, wait, before_wait).await?;
        Ok((outcome, waited))
    }

    /// Marks the leaf of a key: rows of it may be locked. Returns where it ends.
    async fn mark_leaf(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, TxnError> {
        self.work.last_read = None;
        let engine = &self.db.engine;
        for _ in 0..MARK_ATTEMPTS {
            let _pin = engine.pin();
            let mut addr = self.locate(index, key).await?;
            let mut marks = false;
            while !addr.is_null() {
                let found = match marks {
                    false => marked(&engine.shared(addr).await?, key)?,
                    true => {
                        let mut leaf = engine.exclusive(addr).await?;
                        let found = marked(&leaf, key)?;
                        if let Marked::Here(false, _) = found {
                            leaf_mark_locked(&mut leaf, true)?;
                        }
                        found
                    }
                };
                match found {
                    Marked::Here(false, _) if !marks => marks = true,
                    Marked::Here(_, end) => return Ok(end),
                    Marked::At(next) => addr = next,
                }
            }
        }
        Err(no_stable_leaf(index))
    }
}

/// Whether a leaf is that of a key.
enum Marked {
    /// It is; whether it is marked, and where it ends.
    Here(bool, Option<Vec<u8>>),
    /// That one may be; null for none.
    At(GAddr),
}

fn marked(page: &[u8], key: &[u8]) -> Result<Marked, TxnError> {
    let leaf = LeafView::new(page)?;
    Ok(match leaf.where_is(key)? {
        KeyLocation::Here(_) => {
            Marked::Here(leaf.may_be_locked(), leaf.high_fence().map(<[u8]>::to_vec))
        }
        KeyLocation::Right(next) => Marked::At(next),
        KeyLocation::Elsewhere => Marked::At(GAddr::NULL),
    })
}
