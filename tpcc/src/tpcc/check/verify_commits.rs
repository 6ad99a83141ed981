//! Looking for the transactions of a driver's journal.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_txn::{Direction, Isolation, KeyRange, key, retry};

use crate::error::TpccError;
use crate::run::retries::PATIENCE;
use crate::run::tasks::join_unless_interrupted;
use crate::run::{Progress, advance};
use crate::tpcc::columns::{history as h, order_line as ol, orders as o};
use crate::tpcc::commit_record::{CommitRecords, CommittedTransaction};
use crate::tpcc::nodes::TpccNode;
use crate::tpcc::partitioned::home_of;

/// Missing transactions named in a report.
const EXAMPLES: usize = 3;
/// Entries that a task takes at once: neighbours, which lie on the same pages.
const BATCH: usize = 256;

/// What became of the transactions of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitVerification {
    /// NewOrder and Payment transactions that this driver committed.
    pub committed: u64,
    /// Of them, those that were looked for.
    pub looked_for: u64,
    /// Found as they were committed.
    pub found: u64,
    /// On pages that dead nodes took with them, at least in part.
    pub on_lost_pages: u64,
    /// Not found, or other than they were committed, though their pages are there.
    pub missing: u64,
    /// The first of these.
    pub examples: Vec<String>,
}

impl CommitVerification {
    /// Adds what became of others.
    pub(crate) fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.looked_for += other.looked_for;
        self.found += other.found;
        self.on_lost_pages += other.on_lost_pages;
        self.missing += other.missing;
        self.examples.extend_from_slice(&other.examples);
        self.examples.truncate(EXAMPLES);
    }

    fn note(&mut self, fate: CommitFate) {
        self.looked_for += 1;
        match fate {
            CommitFate::Found => self.found += 1,
            CommitFate::OnLostPage => self.on_lost_pages += 1,
            CommitFate::Missing(what) => {
                self.missing += 1;
                self.examples.push(what);
                self.examples.sort();
                self.examples.truncate(EXAMPLES);
            }
        }
    }
}

enum CommitFate {
    Found,
    OnLostPage,
    Missing(String),
}

/// Looks for every transaction that the journal keeps, of a database with so many warehouses.
/// No transaction may write meanwhile.
///
/// # Errors
/// What the database reports, but for lost pages.
pub fn verify_commits<'a>(
    nodes: &'a [Arc<TpccNode>],
    warehouses: i32,
    journal: CommitRecords,
    tasks_per_node: usize,
    progress: &'a Arc<dyn Progress>,
) -> BoxFuture<'a, Result<CommitVerification, TpccError>> {
    Box::pin(async move {
        let sum =
            CommitVerification { committed: journal.committed(), ..CommitVerification::default() };
        let Some(env) = nodes.first().map(|node| node.engine.env().clone()) else { return Ok(sum) };
        let entries: Arc<[CommittedTransaction]> = journal.into_sorted().into();
        progress.begin("looking for commits", entries.len() as u64);
        let (next, sum) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(sum)));
        let all_nodes: Arc<[Arc<TpccNode>]> = nodes.into();
        let mut tasks = Vec::new();
        for node in nodes.iter().flat_map(|node| std::iter::repeat_n(node, tasks_per_node)) {
            let (node, nodes, entries) =
                (Arc::clone(node), Arc::clone(&all_nodes), Arc::clone(&entries));
            let (next, sum, progress) = (Arc::clone(&next), Arc::clone(&sum), Arc::clone(progress));
            tasks.push(async move {
                loop {
                    let first = {
                        let mut next = next.lock();
                        let first: usize = *next;
                        *next = first.saturating_add(BATCH).min(entries.len());
                        first
                    };
                    let batch = entries.iter().skip(first).take(BATCH);
                    if batch.len() == 0 {
                        return Ok(());
                    }
                    let count = batch.len();
                    for entry in batch {
                        let node = home_of(&nodes, &node, (entry.warehouse(), warehouses));
                        let fate = fate(node, entry).await?;
                        sum.lock().note(fate);
                    }
                    advance(&*progress, count as u64)?;
                }
            });
        }
        let done = join_unless_interrupted(&env, progress, "verify", tasks).await;
        progress.end();
        done?;
        let sum = std::mem::take(&mut *sum.lock());
        Ok(sum)
    })
}

async fn fate(node: &TpccNode, entry: &CommittedTransaction) -> Result<CommitFate, TpccError> {
    let look = || async {
        let looked = match *entry {
            CommittedTransaction::Order { warehouse, district, order, lines, amount } => {
                look_for_order(node, (warehouse, district, order), (lines, amount)).await
            }
            CommittedTransaction::Payment { warehouse, writer, district, sequence, amount } => {
                look_for_payment(node, (warehouse, writer, sequence), (district, amount)).await
            }
        };
        match looked {
            Err(error) if error.lost_page().is_some() => Ok(CommitFate::OnLostPage),
            looked => looked,
        }
    };
    let fate = retry(node.engine.env(), &PATIENCE, look).await;
    fate.map_err(|error| TpccError::of_retry("journal", error))
}

async fn look_for_order(
    node: &TpccNode,
    (warehouse, district, order): (i32, i32, i32),
    (lines, amount): (i32, i64),
) -> Result<CommitFate, TpccError> {
    let what = || format!("order ({warehouse}, {district}, {order})");
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let key = key![warehouse, district, order];
    let Some(row) = txn.get(node.tables.orders, &key).await? else {
        return Ok(CommitFate::Missing(format!("{} is not there", what())));
    };
    let wanted = row.i32(o::O_OL_CNT)?;
    let (mut found, mut sum) = (0, 0);
    txn.scan(node.tables.order_line, &KeyRange::prefix(&key), Direction::Forward, |row| {
        found += 1;
        sum += row.i64(ol::OL_AMOUNT)?;
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    txn.commit().await?;
    if (wanted, found, sum) == (lines, lines, amount) {
        return Ok(CommitFate::Found);
    }
    Ok(CommitFate::Missing(format!(
        "{} was committed with {lines} lines of {amount} in all, and has {found} of {sum} (O_OL_CNT {wanted})",
        what()
    )))
}

async fn look_for_payment(
    node: &TpccNode,
    (warehouse, writer, sequence): (i32, i32, i64),
    committed: (i32, i64),
) -> Result<CommitFate, TpccError> {
    let what = || format!("payment ({warehouse}, {writer}, {sequence})");
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let Some(row) = txn.get(node.tables.history, &key![warehouse, writer, sequence]).await? else {
        return Ok(CommitFate::Missing(format!("{} is not there", what())));
    };
    let found = (row.i32(h::H_D_ID)?, row.i64(h::H_AMOUNT)?);
    txn.commit().await?;
    if found == committed {
        return Ok(CommitFate::Found);
    }
    Ok(CommitFate::Missing(format!(
        "{} was committed as (district, amount) {committed:?}, and is {found:?}",
        what()
    )))
}
