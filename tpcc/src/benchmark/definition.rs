//! What a benchmark is made of, and what its workers work with.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_txn::retry;

use super::findings::Findings;
use super::load_progress::LoadProgress;
use crate::cluster::{ClusterShape, Node, TableSet};
use crate::error::TpccError;
use crate::run::retries::PATIENCE;
use crate::run::{Interval, LoadReport, Terminal, TransactionOutcome};
use crate::workload::{Mix, Random};

/// First stream of the generators of what is loaded, one for each key.
pub(crate) const LOAD_STREAMS: u64 = 1 << 34;

/// A configured benchmark.
pub trait Benchmark: Clone + fmt::Debug + Send + Sync + 'static {
    /// Its transaction types.
    type TransactionType: Mix;
    /// Its tables.
    type Tables: TableSet;
    /// What committed transactions have changed.
    type Ledger: Send + Sync + 'static;

    /// Its name.
    const TITLE: &'static str;

    /// What the rate of transactions that did not fail is called.
    const RATE: &'static str;
    /// Which transactions fail as the benchmark has it.
    const FAILED: &'static str;

    /// Checks every field of the configuration.
    ///
    /// # Errors
    /// [`TpccError::Config`] with the key, the value and what is allowed, for the first bad field.
    fn validate(&self) -> Result<(), TpccError>;

    /// Nodes, workers and sizes.
    fn shape(&self) -> ClusterShape;

    /// How many keys there are, numbered from 1.
    fn keys(&self) -> i32;

    /// Rows that a transaction of that type reads or writes, about.
    fn accesses(kind: Self::TransactionType) -> u32;

    /// The ledger of a database that was just loaded.
    fn ledger(&self) -> Self::Ledger;

    /// Loads all keys at once, where the benchmark has a way to; returns how many rows. `None` if
    /// it has not, and they are to be loaded piece by piece.
    ///
    /// # Errors
    /// What the database reports, [`TpccError::Interrupted`].
    fn load_at_once(
        &self,
        _node: &Node<Self::Tables>,
        _progress: &LoadProgress,
    ) -> impl Future<Output = Result<Option<u64>, TpccError>> + Send {
        async { Ok(None) }
    }

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
        place: WorkerContext<'a, Self>,
        random: Random,
    ) -> Result<impl Terminal<TransactionType = Self::TransactionType> + 'a, TpccError>;

    /// Checks all rows of these keys. No transaction may write
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

    /// Figures of its own, for programs: an object.
    fn figures_to_json(
        &self,
        _load: &LoadReport,
        _interval: &Interval<Self::TransactionType, ()>,
    ) -> serde_json::Value {
        serde_json::json!({})
    }
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
pub struct WorkerContext<'a, B: Benchmark> {
    /// Its compute node.
    pub node: &'a Node<B::Tables>,
    /// Where it notes what it committed.
    pub ledger: &'a B::Ledger,
    /// Processor time of an access to a row, in virtual time.
    pub access: Duration,
}

impl<B: Benchmark> WorkerContext<'_, B> {
    /// Executes a transaction again and again until it meets no conflict, and notes what it did if
    /// it did not fail.
    pub(crate) async fn transact<D, F>(
        &self,
        kind: B::TransactionType,
        attempts: &AtomicU64,
        execute: impl Fn() -> F,
        note: impl FnOnce(D),
    ) -> Result<TransactionOutcome, TpccError>
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
        Ok(TransactionOutcome { failed, ..TransactionOutcome::default() })
    }
}
