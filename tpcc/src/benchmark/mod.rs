//! What SmallBank and TATP have in common: everything but their tables, inputs, transactions and
//! rules.
//!
//! A benchmark numbers its rows by keys from 1, accounts or subscribers, and makes what it loads
//! for a key from seed and key alone. Workers on all compute nodes run its mix on the same data,
//! and note in its *ledger*, after each commit, what the transaction has changed. The check reads
//! every table once, when nobody writes any more, and compares it with what was loaded and what the
//! ledger says.
//!
//! ```text
//! load       keys in pieces, pieces in transactions of some keys; all nodes side by side
//! workers    run::Terminal, at as many seats as the setup says; Ledger after each commit
//! check      keys in pieces again: Findings, one rule after the other
//! ```
//!
//! A ledger adds up what is *added* to a value (see [`Cells`]), so it does not matter in which
//! order workers note what they did: where transactions are serializable, the sum of all
//! differences leads from the first value of a row to the last. A transaction that worked on a
//! stale value, or whose change was lost, breaks the sum.

mod findings;
mod ledger;
mod report;
mod run;
mod sequence;

use std::fmt;
use std::future::Future;
use std::ops::{ControlFlow, Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_txn::{Direction, Index, Isolation, KeyBuf, KeyRange, RowRef, Table, TxnError, retry};

pub use findings::{Findings, Violation};
pub use ledger::Cells;
pub use report::Report;
#[cfg(test)]
pub(crate) use run::tests;
pub use run::{Stage, run};
pub(crate) use sequence::Sequence;

use crate::cluster::{Node, TableSet};
use crate::error::TpccError;
use crate::mix::Mix;
use crate::random::Random;
use crate::run::{Outcome, Terminal};
use crate::setup::Shape;
use crate::tasks::PATIENCE;

/// First stream of the generators of what is loaded, one for each key.
pub(crate) const LOAD_STREAMS: u64 = 1 << 34;

/// A configured benchmark.
pub trait Benchmark: Clone + fmt::Debug + Send + Sync + 'static {
    /// Its transaction types.
    type Kind: Mix;
    /// Its tables.
    type Tables: TableSet;
    /// What committed transactions have changed.
    type Ledger: Send + Sync + 'static;

    /// Its name.
    const TITLE: &'static str;

    /// What the rate of transactions that did not fail is called.
    const RATE: &'static str;

    /// Checks every field of the configuration.
    ///
    /// # Errors
    /// [`TpccError::Config`] with the key, the value and what is allowed, for the first bad field.
    fn validate(&self) -> Result<(), TpccError>;

    /// Nodes, workers and sizes.
    fn shape(&self) -> Shape;

    /// How many keys there are, numbered from 1.
    fn keys(&self) -> i32;

    /// Rows that a transaction of that type reads or writes, about.
    fn accesses(kind: Self::Kind) -> u32;

    /// The ledger of a database that was just loaded.
    fn ledger(&self) -> Self::Ledger;

    /// Inserts the rows of these keys in one transaction; returns how many rows.
    ///
    /// # Errors
    /// What the database reports; a retryable one on a conflict.
    fn load(
        &self,
        node: &Node<Self::Tables>,
        keys: Range<i32>,
    ) -> impl Future<Output = Result<u64, TpccError>> + Send;

    /// A worker, and what it draws its inputs with.
    ///
    /// # Errors
    /// What the database reports.
    fn terminal<'a>(
        &'a self,
        place: Place<'a, Self>,
        random: Random,
    ) -> Result<impl Terminal<Kind = Self::Kind> + 'a, TpccError>;

    /// Looks at all rows of these keys, whoever else's rows are among them. Nobody may write
    /// meanwhile.
    ///
    /// # Errors
    /// What the database reports; a retryable one on a conflict.
    fn check(
        &self,
        node: &Node<Self::Tables>,
        ledger: &Self::Ledger,
        keys: Range<i32>,
    ) -> impl Future<Output = Result<Findings, TpccError>> + Send;

    /// Judges what was found of all keys together.
    fn judge(&self, ledger: &Self::Ledger, findings: &mut Findings);

    /// Settings of its own, for people.
    fn settings(&self) -> Vec<(&'static str, String)>;

    /// Settings of its own, for programs: an object.
    fn settings_to_json(&self) -> serde_json::Value;
}

/// A benchmark whose configuration was found to be valid, in every field.
#[derive(Clone, Debug)]
pub struct Valid<B>(B);

impl<B: Benchmark> Valid<B> {
    /// Checks the configuration.
    ///
    /// # Errors
    /// As [`Benchmark::validate`].
    pub fn new(config: B) -> Result<Self, TpccError> {
        config.validate()?;
        Ok(Self(config))
    }
}

impl<B> Deref for Valid<B> {
    type Target = B;
    fn deref(&self) -> &B {
        &self.0
    }
}

/// What a worker works with.
pub struct Place<'a, B: Benchmark> {
    /// Its compute node.
    pub node: &'a Node<B::Tables>,
    /// Where it notes what it committed.
    pub ledger: &'a B::Ledger,
    /// Processor time of an access to a row, in virtual time.
    pub access: Duration,
}

impl<B: Benchmark> Place<'_, B> {
    /// Executes a transaction again and again until it meets no conflict, and notes what it did if
    /// it did not fail.
    pub(crate) async fn transact<D, F>(
        &self,
        kind: B::Kind,
        attempts: &AtomicU64,
        execute: impl Fn() -> F,
        note: impl FnOnce(D),
    ) -> Result<Outcome, TpccError>
    where
        F: Future<Output = Result<Option<D>, TpccError>>,
    {
        let env = self.node.engine.env();
        let attempt = || async {
            attempts.fetch_add(1, Ordering::Relaxed);
            // Nothing, if time is real.
            env.spend(self.access * B::accesses(kind)).await;
            execute().await
        };
        let done = retry(env, &PATIENCE, attempt).await;
        let done = done.map_err(|error| TpccError::of_retry(kind.title(), error))?;
        let failed = done.is_none();
        if let Some(done) = done {
            note(done);
        }
        Ok(Outcome { failed, ..Outcome::default() })
    }
}

/// The range of a table that begins where the first of the keys does and ends where the first after
/// them does; there is nothing before the range of key 1, and nothing after that of the last.
pub(crate) fn range_of(keys: &Range<i32>, last: i32, encode: impl Fn(i32) -> KeyBuf) -> KeyRange {
    let low = if keys.start > 1 { encode(keys.start) } else { KeyBuf::new() };
    if keys.end > last {
        KeyRange::from(&low)
    } else {
        KeyRange::half_open(&low, &encode(keys.end))
    }
}

/// Shows `visit` every row of a range. Nobody may write meanwhile: latches are held leaf by leaf,
/// as holding all would need a cache as large as the table.
pub(crate) async fn scan<T: TableSet>(
    node: &Node<T>,
    table: Table,
    range: &KeyRange,
    mut visit: impl FnMut(RowRef<'_>) -> Result<(), TxnError> + Send,
) -> Result<(), TpccError> {
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let visit = |row: RowRef<'_>| {
        visit(row)?;
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(table, range, Direction::Forward, visit).await?;
    Ok(txn.commit().await?)
}

/// Shows `visit` the primary keys that an index leads to, in the order of the index. As [`scan`].
pub(crate) async fn scan_keys<T: TableSet>(
    node: &Node<T>,
    index: Index,
    range: &KeyRange,
    mut visit: impl FnMut(&[u8]) + Send,
) -> Result<(), TpccError> {
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let visit = |key: &[u8]| {
        visit(key);
        Ok(ControlFlow::Continue(()))
    };
    txn.scan_keys(index, range, Direction::Forward, visit).await?;
    Ok(txn.commit().await?)
}
