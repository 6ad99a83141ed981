//! The accounts of a bank: their table, and what must hold of its trees.
//!
//! Beside its balance an account has a version, a number that no other write of the run uses, so
//! that what a transaction read says which transaction wrote it.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_txn::{
    ColumnType, Database, DatabaseSchema, Protocol, RetryError, RetryPolicy, TableSchema, retry,
};

use super::bulk::Bulk;
use crate::check::serial::{Op, Status, Transaction};
use crate::cluster::SimCluster;
use crate::error::{SimError, ensure};

/// Accounts at the start; others are opened on the way, between them.
pub(super) const ACCOUNTS: u64 = 24;
/// Account numbers leave room for new accounts.
pub(super) const SPACING: u64 = 10;
pub(super) const DEPOSIT: i64 = 1000;

/// Columns.
pub(super) const VERSION: usize = 1;
pub(super) const BALANCE: usize = 2;

/// All transactions of a run.
pub(super) type History = Arc<Mutex<Vec<Transaction>>>;

/// Creates the accounts on the first node and opens the database on all.
pub(super) async fn open_accounts(
    cluster: &SimCluster,
    history: &History,
    protocol: Protocol,
    has_bulk: bool,
) -> Result<Vec<(usize, Arc<Database>)>, SimError> {
    let account = TableSchema::new("account")
        .column("id", ColumnType::I64)
        .column("version", ColumnType::I64)
        .column("balance", ColumnType::I64)
        // Few accounts a page, so that transactions meet on some pages and not on all.
        .column("note", ColumnType::Text(150))
        .primary_key([0])
        .index("by_version", [VERSION]);
    let mut tables = vec![account];
    tables.extend(has_bulk.then(Bulk::table));
    let schema = DatabaseSchema::from(tables).protocol(protocol);
    let first = Database::create(cluster.engine(0)?, schema).await?;
    let table = first.table("account")?;
    let written = |account| (account * SPACING, account + 1);
    let open = || async {
        let mut txn = first.begin();
        for (id, version) in (0..ACCOUNTS).map(written) {
            let mut row = first.row(table)?;
            row.i64(id.cast_signed()).i64(version.cast_signed()).i64(DEPOSIT);
            txn.insert(table, row.text(&"x".repeat(150)).finish()?).await?;
        }
        txn.commit().await
    };
    // The smallest logs have no room yet after the catalogue was written.
    let opened = retry(first.engine().env(), &RetryPolicy::default(), open).await;
    opened.map_err(RetryError::into_inner)?;
    let write = |(key, value)| Op::Write { key, value };
    let ops = (0..ACCOUNTS).map(written).map(write).collect();
    let status = Status::Committed;
    let opening = Transaction { process: usize::MAX, invoked: 0, returned: Some(0), status, ops };
    history.lock().push(opening);
    let mut branches = vec![(0, Arc::new(first))];
    for (node, engine) in cluster.engines.iter().enumerate().skip(1) {
        branches.push((node, Arc::new(Database::open(engine).await?)));
    }
    Ok(branches)
}

/// Checks that the table and its index have equally many entries at every branch.
pub(super) async fn check_trees(branches: &[(usize, Arc<Database>)]) -> Result<(), SimError> {
    for (_, database) in branches {
        let table = database.table("account")?;
        let rows = database.tree(table)?.verify(database.engine()).await?.entries;
        let index = database.index("account", "by_version")?;
        let entries = database.tree(index)?.verify(database.engine()).await?.entries;
        ensure(rows == entries, || format!("{rows} accounts, {entries} index entries"))?;
    }
    Ok(())
}
