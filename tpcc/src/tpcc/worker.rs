//! TPC-C's worker: draws inputs, runs the transactions, and records what it committed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::MAX_COMPUTE_NODES;
use selkie_txn::partition::Partition;
use selkie_txn::retry;

use crate::cluster::MAX_WORKERS;
use crate::connection::SqlConnection;
use crate::error::TpccError;
use crate::run::retries::PATIENCE;
use crate::run::{Terminal, TransactionOutcome, WORKER_STREAMS, WorkerIdentity};
use crate::tpcc::by_sql::{self, Via};
use crate::tpcc::commit_record::{CommitFile, CommitRecorder, CommitRecords, CommittedTransaction};
use crate::tpcc::config::Config;
use crate::tpcc::input::{DeliveryInput, InputSource, NewOrderInput, PaymentInput};
use crate::tpcc::nurand::NuConstants;
use crate::tpcc::partitioned::{PartitionProcedures, PartitionRoute};
use crate::tpcc::scale::DISTRICTS;
use crate::tpcc::schema::Tables;
use crate::tpcc::transaction_type::TransactionType;
use crate::tpcc::transactions::{
    Session, StockLevelProgress, deliver_district, new_order, order_status, payment, stock_level,
};
use crate::workload::{Deck, Random};

/// First stream of the generators by which workers choose what to keep in their commit records.
const JOURNAL_STREAMS: u64 = 1 << 33;

/// Numbers of workers that compute nodes of one index have in turn.
const WORKERS_OF_ALL_NODES: usize = MAX_COMPUTE_NODES * MAX_WORKERS;

/// Think times are cut at ten times their mean (clause 5.2.5.4).
const MAX_THINK: f64 = 10.0;

/// One worker of one compute node.
pub(super) struct Worker<'a> {
    session: Session<'a>,
    /// Where the database is partitioned.
    route: Option<PartitionRoute>,
    via: Via,
    /// Where transactions are SQL, once the first is to run.
    connection: Option<Box<dyn SqlConnection>>,
    writer: i32,
    source: InputSource,
    recorder: CommitRecorder,
    only: Option<TransactionType>,
    think: bool,
}

impl<'a> Worker<'a> {
    /// A worker with this identity; `partitions` is empty unless the database is partitioned.
    pub(super) fn new(
        config: &Config,
        seat: &'a WorkerIdentity<Tables>,
        partitions: &[Partition<PartitionProcedures>],
        commits: Option<CommitFile>,
    ) -> Result<Self, TpccError> {
        let node = &seat.node;
        let (index, ordinal) = (node.engine.node().index(), seat.ordinal());
        let random = Random::stream(config.seed, WORKER_STREAMS + ordinal);
        let constants = NuConstants::of_run(config.seed, &config.scale);
        let warehouses = config.warehouses.cast_signed();
        let source = InputSource::new(random, constants, warehouses, config.homes_of(index))
            .with_remote_percent(config.remote_percent);
        let route = partitions.get(index).map(|partition| PartitionRoute {
            partition: partition.clone(),
            own: index,
            nodes: partitions.len(),
            warehouses,
            worker: u32::try_from(seat.number).unwrap_or(u32::MAX),
        });
        let workers = config.workers * config.compute_nodes;
        let recorder =
            CommitRecorder::new(workers, Random::stream(config.seed, JOURNAL_STREAMS + ordinal))
                .noting_in(commits);
        let writer = writer(ordinal, seat.incarnation)?;
        let session = Session::new(&node.db, node.tables, writer)
            .with_access_time(config.network.access_time());
        let (only, think) = (config.only, config.think);
        let (via, connection) = (config.via.clone(), None);
        Ok(Self { session, route, via, connection, writer, source, recorder, only, think })
    }

    /// The records of what it committed.
    pub(super) fn into_records(self) -> CommitRecords {
        self.recorder.finish()
    }
}

impl Worker<'_> {
    /// Connects, if transactions are SQL and it has not.
    async fn connect(&mut self) -> Result<(), TpccError> {
        if let (Via::Sql(connector), None) = (&self.via, &self.connection) {
            self.connection = Some(connector.connect(self.session.db).await?);
        }
        Ok(())
    }

    /// Runs New-Order; returns whether it entered an order, which an unused item prevents.
    async fn enter_order(&mut self, now: i64, attempts: &AtomicU64) -> Result<bool, TpccError> {
        let (session, route) = (&self.session, self.route.as_ref());
        let (input, connection) = (self.source.new_order(), self.connection.as_deref());
        let attempt = || async {
            attempts.fetch_add(1, Ordering::Relaxed);
            let output = match (connection, route) {
                (Some(connection), _) => {
                    return by_sql::new_order(connection, &input, now).await;
                }
                // Apart: most runs have no partitions, and do not carry room for them along.
                (None, Some(route)) => Box::pin(route.new_order(session, &input, now)).await?,
                (None, None) => new_order(session, &input, now).await?,
            };
            Ok(output.order.map(|order| (order, output.amount)))
        };
        let failed = |error| TpccError::of_retry(TransactionType::NewOrder.title(), error);
        let env = session.db.engine().env();
        let entered = retry(env, &PATIENCE, attempt).await.map_err(failed)?;
        let Some((order, amount)) = entered else { return Ok(false) };
        let NewOrderInput { warehouse, district, ref lines, .. } = input;
        let lines = lines.len() as i32;
        let entry = CommittedTransaction::Order { warehouse, district, order, lines, amount };
        self.recorder.note(entry)?;
        Ok(true)
    }

    /// Runs Payment.
    async fn pay(&mut self, now: i64, attempts: &AtomicU64) -> Result<(), TpccError> {
        let (session, route) = (&self.session, self.route.as_ref());
        let (input, connection) = (self.source.payment(), self.connection.as_deref());
        let attempt = || async {
            attempts.fetch_add(1, Ordering::Relaxed);
            let output = match (connection, route) {
                (Some(connection), _) => {
                    let key = session.history_key();
                    return by_sql::payment(connection, &input, key, now).await.map(|()| key.1);
                }
                (None, Some(route)) => Box::pin(route.payment(session, &input, now)).await?,
                (None, None) => payment(session, &input, now).await?,
            };
            Ok(output.sequence)
        };
        let failed = |error| TpccError::of_retry(TransactionType::Payment.title(), error);
        let env = session.db.engine().env();
        let sequence = retry(env, &PATIENCE, attempt).await.map_err(failed)?;
        let PaymentInput { warehouse, district, amount, .. } = input;
        let writer = self.writer;
        let entry = CommittedTransaction::Payment { warehouse, writer, district, sequence, amount };
        self.recorder.note(entry)
    }

    /// Delivers in all ten districts. Returns how many had nothing to deliver, and whether a
    /// district failed because of lost pages.
    async fn deliver(
        &self,
        input: &DeliveryInput,
        now: i64,
        attempts: &AtomicU64,
    ) -> Result<(u64, bool), TpccError> {
        let (session, connection) = (&self.session, self.connection.as_deref());
        let env = session.db.engine().env();
        let (mut skipped, mut lost) = (0, false);
        // The first attempt at each further district is no retry.
        let further = u64::from(DISTRICTS.unsigned_abs()) - 1;
        for district in 1..=DISTRICTS {
            let attempt = || async {
                attempts.fetch_add(1, Ordering::Relaxed);
                match connection {
                    Some(own) => by_sql::deliver_district(own, input, district, now).await,
                    None => {
                        let output = deliver_district(session, input, district, now).await?;
                        Ok(output.order.is_some())
                    }
                }
            };
            let had_one = retry(env, &PATIENCE, attempt).await;
            match had_one.map_err(|error| TpccError::of_retry("Delivery", error)) {
                Ok(had_one) => skipped += u64::from(!had_one),
                Err(error) if error.lost_page().is_some() => lost = true,
                Err(error) => return Err(error),
            }
        }
        attempts.fetch_sub(further, Ordering::Relaxed);
        Ok((skipped, lost))
    }
}

impl Terminal for Worker<'_> {
    type TransactionType = TransactionType;

    fn deck(&self) -> Deck<TransactionType> {
        self.only.map_or_else(Deck::new, Deck::only)
    }

    fn random(&mut self) -> &mut Random {
        &mut self.source.random
    }

    fn keying(&self, kind: TransactionType) -> Duration {
        if self.think { Duration::from_secs_f64(kind.keying_seconds()) } else { Duration::ZERO }
    }

    fn thinking(&mut self, kind: TransactionType) -> Duration {
        if !self.think {
            return Duration::ZERO;
        }
        let factor = (-self.source.random.fraction().ln()).min(MAX_THINK);
        Duration::from_secs_f64(factor * kind.think_seconds())
    }

    async fn transact(
        &mut self,
        kind: TransactionType,
        started: Duration,
        attempts: &AtomicU64,
    ) -> Result<TransactionOutcome, TpccError> {
        self.connect().await?;
        let now = i64::try_from(started.as_micros()).unwrap_or(i64::MAX);
        let count = || attempts.fetch_add(1, Ordering::Relaxed);
        let mut outcome = TransactionOutcome::default();
        let failed = |error| TpccError::of_retry(kind.title(), error);
        match kind {
            TransactionType::NewOrder => {
                outcome.failed = !self.enter_order(now, attempts).await?;
            }
            TransactionType::Payment => self.pay(now, attempts).await?,
            TransactionType::OrderStatus => {
                let (session, input) = (&self.session, self.source.order_status());
                let connection = self.connection.as_deref();
                let attempt = || async {
                    count();
                    match connection {
                        Some(connection) => {
                            by_sql::order_status(connection, &input).await.map(drop)
                        }
                        None => order_status(session, &input).await.map(drop),
                    }
                };
                retry(session.db.engine().env(), &PATIENCE, attempt).await.map_err(failed)?;
            }
            TransactionType::Delivery => {
                let input = self.source.delivery();
                (outcome.skipped, outcome.lost) = self.deliver(&input, now, attempts).await?;
            }
            TransactionType::StockLevel => {
                let (session, input) = (&self.session, self.source.stock_level());
                let (connection, progress) =
                    (self.connection.as_deref(), StockLevelProgress::default());
                let attempt = || async {
                    count();
                    match connection {
                        Some(connection) => by_sql::stock_level(connection, &input).await.map(drop),
                        None => stock_level(session, &input, &progress).await.map(drop),
                    }
                };
                retry(session.db.engine().env(), &PATIENCE, attempt).await.map_err(failed)?;
            }
        }
        Ok(outcome)
    }
}

/// The number of a worker among all workers that the database ever has: no two have the same one.
/// The loader's rows have number 0.
///
/// # Errors
/// [`TpccError::WriterNumbersExhausted`]: two workers with one number would write the same keys.
fn writer(ordinal: u64, incarnation: u32) -> Result<i32, TpccError> {
    let before = u64::from(incarnation.saturating_sub(1)) * WORKERS_OF_ALL_NODES as u64;
    let number = i32::try_from(before + ordinal + 1);
    number.map_err(|_| TpccError::WriterNumbersExhausted { incarnation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_workers_have_one_number() {
        let last = (WORKERS_OF_ALL_NODES - 1) as u64;
        let number = |ordinal, incarnation| writer(ordinal, incarnation).unwrap();
        assert_eq!((number(0, 1), number(last, 1)), (1, WORKERS_OF_ALL_NODES as i32));
        assert_eq!(number(0, 2), number(last, 1) + 1);
        assert_eq!(number(0, 0), 1, "a pool of one process does not count incarnations");
        let incarnations = i32::MAX as u32 / WORKERS_OF_ALL_NODES as u32;
        assert_eq!(number(last, incarnations), (incarnations * WORKERS_OF_ALL_NODES as u32) as i32);
        let error = writer(last, incarnations + 1).unwrap_err();
        assert!(matches!(error, TpccError::WriterNumbersExhausted { .. }), "{error}");
    }
}
