//! Building an index while others change the table.
//!
//! ```text
//! a transaction adds the index to the definition, not complete: who changes rows keeps it up
//!  -> transactions enter the rows that were there, some hundred at a time
//!  -> a transaction makes it complete: it may be read
//! ```
//! A transaction that used the definition without the index cannot commit once the first of these
//! has, so from then on each row that changes has its entry. The later ones are serializable with
//! all that change rows, so they enter a row as it is, or not at all. There is no stage in which
//! the index takes removals only, as there would be if a transaction could commit under the last
//! definition but one.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::Poll;

use selkie_btree::Direction;
use selkie_fabric::BoxFuture;

use crate::catalogue::handles::{Index, Table};
use crate::catalogue::new_index::NewIndex;
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::stored_table::{IndexDefinition, nullable_columns};
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key::KeyBuf;
use crate::encoding::key_range::KeyRange;
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::transaction::database::Database;
use crate::transaction::retry::{RetryError, RetryPolicy, retry_numbered};
use crate::transaction::session::LOSSES_BEFORE_INSISTING;
use crate::transaction::txn::Txn;

/// Rows that one transaction enters.
const ROWS_AT_ONCE: usize = 256;

/// Leaves whose rows one transaction locks that has lost before.
const LEAVES_AT_ONCE: usize = 16;

/// Others change the same rows at most as often as this before a batch is entered.
const ATTEMPTS: u32 = 1000;

impl Database {
    /// Builds an index of a table while others change the table, in several transactions of its
    /// own. If it fails, the future is dropped, or the node ends, an index may be left that is not
    /// complete, which nothing reads and changes of rows keep up
    /// ([`Txn::incomplete_indexes`]). Any node may go on with it by
    /// [`resume_index`](Self::resume_index), or remove it by [`Txn::drop_index`]. The names
    /// of its columns are looked up in the definition that is in force when it begins.
    ///
    /// # Errors
    /// [`TxnError::Duplicate`] if it is unique and two rows have the same key: it is dropped then.
    /// [`TxnError::Schema`] if it cannot work, or there is one of that name;
    /// [`SchemaError::NoSuchColumn`] with the table and the name of a column that it has not;
    /// [`CatalogueError::FixedTables`](crate::CatalogueError::FixedTables) where tables do not
    /// change; what the engine reports.
    pub fn create_index(
        &self,
        table: Table,
        new: NewIndex,
    ) -> BoxFuture<'_, Result<Index, TxnError>> {
        Box::pin(async move {
            let index = self.add_index(table, &new).await?;
            self.finish_index(table, index).await
        })
    }

    /// As [`create_index`](Self::create_index), but that it ends with `None` when `ended` is ready
    /// before all rows are entered: the index is dropped then. One of the same name and definition
    /// that is not complete is gone on with, as by [`resume_index`](Self::resume_index), and left
    /// as it is when `ended` is ready: another may be building it. `entered` is told every now and
    /// then how many rows are entered by now, with none to begin with.
    ///
    /// # Errors
    /// Those of [`create_index`](Self::create_index); [`SchemaError::IncompleteIndex`] if there is
    /// one of that name with another definition that is not complete.
    pub fn create_index_until<'a>(
        &'a self,
        table: Table,
        new: NewIndex,
        mut ended: BoxFuture<'a, ()>,
        entered: &'a (dyn Fn(u64) + Sync),
    ) -> BoxFuture<'a, Result<Option<Index>, TxnError>> {
        Box::pin(async move {
            loop {
                let found = || async { self.begin_to_read().index_left(table, &new).await };
                let left = self.again(found).await?;
                let index = match left {
                    Some(left) => left,
                    None => self.add_index(table, &new).await?,
                };
                let entered = {
                    let mut entering = pin!(self.enter_rows(table, index, entered));
                    poll_fn(|cx| match entering.as_mut().poll(cx) {
                        Poll::Ready(entered) => Poll::Ready(Some(entered)),
                        Poll::Pending => ended.as_mut().poll(cx).map(|()| None),
                    })
                    .await
                };
                let gone = |error: &TxnError| {
                    matches!(error, TxnError::Schema(SchemaError::NoSuchIndex { .. }))
                };
                // What another has begun, and may be building, is left to it unless it can never
                // be complete.
                return match entered {
                    // Its builder has dropped it: this one begins it anew, which is its own then.
                    Some(Err(error)) if left.is_some() && gone(&error) => continue,
                    Some(Err(error))
                        if left.is_some() && !matches!(error, TxnError::Duplicate { .. }) =>
                    {
                        Err(error)
                    }
                    Some(entered) => self.complete(table, index, entered).await.map(Some),
                    None if left.is_some() => Ok(None),
                    None => self.drop_begun(table, index).await.map(|()| None),
                };
            }
        })
    }

    /// Adds an index that is not complete to the definition of a table.
    async fn add_index(&self, table: Table, new: &NewIndex) -> Result<Index, TxnError> {
        let begun = || async {
            let mut txn = self.begin();
            let index = txn.begin_index(table, new).await?;
            txn.commit().await.map(|()| index)
        };
        self.again(begun).await
    }

    /// Goes on with an index of that name whose [builder](Self::create_index) has ended before it
    /// was complete. It begins with the first row again. Rows that are entered already stay so,
    /// also by a builder that works still, on any node: both may go on.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchIndex`]; those of [`create_index`](Self::create_index). That it is
    /// complete is no error.
    pub fn resume_index<'a>(
        &'a self,
        table: Table,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Index, TxnError>> {
        Box::pin(async move {
            let found = || async { self.begin_to_read().index_begun(table, name).await };
            match self.again(found).await? {
                (index, true) => Ok(index),
                (index, false) => self.finish_index(table, index).await,
            }
        })
    }

    /// Enters all rows in an index that was begun, and makes it complete. Drops it if it cannot be.
    async fn finish_index(&self, table: Table, index: Index) -> Result<Index, TxnError> {
        let entered = self.enter_rows(table, index, &|_| ()).await;
        self.complete(table, index, entered).await
    }

    /// Drops an index that is not complete.
    async fn drop_begun(&self, table: Table, index: Index) -> Result<(), TxnError> {
        let dropped = || async {
            let mut txn = self.begin();
            txn.drop_incomplete(table, index).await?;
            txn.commit().await
        };
        self.again(dropped).await
    }

    /// Makes an index complete if all rows could be entered, and drops it if they cannot be.
    async fn complete(
        &self,
        table: Table,
        index: Index,
        entered: Result<(), TxnError>,
    ) -> Result<Index, TxnError> {
        if let Err(error) = entered {
            if error.abort_cause().is_none() {
                self.drop_begun(table, index).await?;
            }
            return Err(error);
        }
        let completed = || async {
            let mut txn = self.begin();
            txn.complete_index(table, index).await?;
            txn.commit().await
        };
        self.again(completed).await?;
        Ok(index)
    }

    /// Enters all rows that are in the table, and tells how many it has entered so far.
    async fn enter_rows(
        &self,
        table: Table,
        index: Index,
        tell: &(dyn Fn(u64) + Sync),
    ) -> Result<(), TxnError> {
        let (mut from, mut so_far) = (Vec::new(), 0);
        loop {
            tell(so_far);
            let start = &from;
            let entered = |losses| async move {
                let mut txn = self.begin();
                if losses >= LOSSES_BEFORE_INSISTING && txn.check_locks_rows().is_ok() {
                    txn.insist()?;
                }
                let next = txn.enter_some(table, index, start).await?;
                txn.commit().await.map(|()| next)
            };
            let (rows, next) = self.again_numbered(entered).await?;
            so_far += rows;
            match next {
                Some(next) => from = next,
                None => {
                    tell(so_far);
                    return Ok(());
                }
            }
        }
    }

    async fn again<T, F, Fut>(&self, mut attempt: F) -> Result<T, TxnError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, TxnError>>,
    {
        self.again_numbered(|_| attempt()).await
    }

    /// Tells each attempt how many have failed before.
    async fn again_numbered<T, F, Fut>(&self, attempt: F) -> Result<T, TxnError>
    where
        F: FnMut(u32) -> Fut,
        Fut: Future<Output = Result<T, TxnError>>,
    {
        let policy = RetryPolicy { attempts: ATTEMPTS, ..RetryPolicy::default() };
        let tried = retry_numbered(self.engine().env(), &policy, attempt).await;
        tried.map_err(RetryError::into_inner)
    }
}

impl<'db> Txn<'db> {
    /// The names of the indexes of a table that are not complete, in the state that this
    /// transaction sees: they are being built, or their builder has ended before.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub async fn incomplete_indexes(&mut self, table: Table) -> Result<Vec<String>, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        let incomplete = info.indexes.iter().filter(|index| !index.is_complete);
        Ok(incomplete.map(|index| index.name.clone()).collect())
    }

    /// The index of that name, and whether it is complete.
    async fn index_begun(&mut self, table: Table, name: &str) -> Result<(Index, bool), TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        let found = info.indexes.iter().find(|index| index.name == name);
        let missing =
            || SchemaError::NoSuchIndex { table: info.schema.name.clone(), name: name.to_owned() };
        let found = found.ok_or_else(missing)?;
        Ok((table.index_of_tree(found.number), found.is_complete))
    }

    /// The index of that name and definition, if there is one that is not complete.
    async fn index_left(
        &mut self,
        table: Table,
        new: &NewIndex,
    ) -> Result<Option<Index>, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        let schema = new.in_table(&info.schema)?;
        let both = info.indexes.iter().zip(&info.schema.indexes);
        let mut left = both.filter(|(index, _)| !index.is_complete);
        let Some((index, found)) = left.find(|(_, found)| found.name == schema.name) else {
            return Ok(None);
        };
        if *found != schema {
            let (table, name) = (info.schema.name.clone(), schema.name);
            return Err(SchemaError::IncompleteIndex { table, name }.into());
        }
        Ok(Some(table.index_of_tree(index.number)))
    }

    /// Adds an index to the definition of a table, which is not complete.
    async fn begin_index(&mut self, table: Table, new: &NewIndex) -> Result<Index, TxnError> {
        self.open_definitions()?;
        let mark = self.begin_change();
        let begun = Box::pin(self.add_index(table, new)).await;
        self.close_change(mark, begun).await
    }

    async fn add_index(&mut self, table: Table, new: &NewIndex) -> Result<Index, TxnError> {
        let before = self.definition(table).await?;
        let mut after = before.clone();
        after.stored.schema.indexes.push(new.in_table(&before.stored.schema)?);
        after.stored.schema.validate()?;
        self.check_table(&after.stored.schema)?;
        let nullable = after.stored.schema.indexes.last();
        let nullable = nullable.map_or(0, |index| nullable_columns(&after.stored.schema, index));
        let number = after.next_index;
        let name = &after.stored.schema.name;
        let next = number.checked_add(1).filter(|next| *next < u16::MAX);
        let too_many = || SchemaError::IndexNumbers { table: name.clone() };
        after.next_index = next.ok_or_else(too_many)?;
        let identity = self.new_version();
        after.indexes.push(IndexDefinition { number, is_complete: false, identity, nullable });
        let stamp = self.stamp_of_new_trees().await?;
        after.stored.indexes.push(self.create_tree(u16::MAX, stamp).await?);
        self.redefine(table, &before, &after).await?;
        Ok(table.index(number))
    }

    /// Makes an index complete that has an entry for each row.
    async fn complete_index(&mut self, table: Table, index: Index) -> Result<(), TxnError> {
        self.open_definitions()?;
        let mark = self.begin_change();
        let completed = Box::pin(self.set_complete(table, index)).await;
        self.close_change(mark, completed).await
    }

    async fn set_complete(&mut self, table: Table, index: Index) -> Result<(), TxnError> {
        let before = self.definition(table).await?;
        let mut after = before.clone();
        let at = after.position(index);
        let definition = at.and_then(|at| after.indexes.get_mut(at));
        let gone = || SchemaError::NoSuchIndex {
            table: before.stored.schema.name.clone(),
            name: format!("number {}", index.number()),
        };
        definition.ok_or_else(gone)?.is_complete = true;
        self.redefine(table, &before, &after).await
    }

    /// Enters some rows of a table from a key on in an index that is not complete. Returns how
    /// many, and the key to continue from, if there are more.
    async fn enter_some(
        &mut self,
        table: Table,
        index: Index,
        from: &[u8],
    ) -> Result<(u64, Option<Vec<u8>>), TxnError> {
        self.open_definitions()?;
        let info = self.table_info(table).await?;
        let gone = || SchemaError::NoSuchIndex {
            table: info.schema.name.clone(),
            name: format!("number {}", index.number()),
        };
        let index = info.index_of_tree(index.tree()).ok_or_else(gone)?;
        let mark = self.begin_change();
        let entered = Box::pin(self.enter_all(info, index, from)).await;
        self.close_change(mark, entered).await
    }

    async fn enter_all(
        &mut self,
        info: &'db TableInfo,
        index: &'db IndexInfo,
        from: &[u8],
    ) -> Result<(u64, Option<Vec<u8>>), TxnError> {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(ROWS_AT_ONCE);
        let mut take = |row: RowRef<'_>| {
            let mut key = KeyBuf::new();
            info.primary.encode(row, &mut key)?;
            rows.push((key.to_vec(), row.as_bytes().to_vec()));
            let is_enough = rows.len() > ROWS_AT_ONCE;
            Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let (mut range, mut entry, mut end) = (KeyRange::from(from), Vec::new(), None);
        if self.row_locks.insists {
            end = Box::pin(self.insist_on_leaves(info, from, LEAVES_AT_ONCE)).await?;
            range = end.as_ref().map_or(range, |end| KeyRange::half_open(from, end));
        }
        let forward = Direction::Forward;
        self.scan_rows(info, &info.primary, &range, forward, &mut take, &mut entry).await?;
        let next = rows.get(ROWS_AT_ONCE).map(|(key, _)| key.clone()).or(end);
        rows.truncate(ROWS_AT_ONCE);
        let count = rows.len() as u64;
        for (primary, mut row) in rows {
            if info.values.is_some() && has_moved(info, index, &row)? {
                // It stays in the row from now on.
                self.update_row(info, &primary, &mut row, |_| Ok(())).await?;
            }
            let entry = index.entry(info.row(&row)?, &primary)?;
            self.check_key_bytes(info, index, &entry.key)?;
            self.add_unless_entered(info, index, &entry.key, entry.value).await?;
        }
        Ok((count, next))
    }
}

/// Whether a value that the key of this index has is stored apart from its row.
fn has_moved(info: &TableInfo, index: &IndexInfo, row: &[u8]) -> Result<bool, NamedRowError> {
    let row = info.row(row)?;
    let mut columns = (0..row.layout().columns.len()).filter(|at| index.mask & 1 << at != 0);
    columns.try_fold(false, |found, column| Ok(found || row.pointer(column)?.is_some()))
}
