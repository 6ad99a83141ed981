//! A worker: draws a transaction, runs it until it completes, and does so again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::MAX_COMPUTE_NODES;
use selkie_fabric::env::{Env, yield_now};
use selkie_txn::retry;

use super::measure::Measurements;
use crate::cluster::Node;
use crate::config::{Config, MAX_WORKERS};
use crate::error::TpccError;
use crate::input::{DeliveryInput, InputSource, NewOrderInput, PaymentInput};
use crate::journal::{Entry, Journal, Recorder};
use crate::kind::{Deck, Kind};
use crate::random::{NuConstants, Random};
use crate::scale::DISTRICTS;
use crate::tasks::PATIENCE;
use crate::transactions::{
    Session, StockLevelProgress, deliver_district, new_order, order_status, payment, stock_level,
};

/// First stream of the workers' generators; the load's have other numbers.
const WORKER_STREAMS: u64 = 1 << 32;
/// First stream of the generators by which workers choose what to keep in their journals.
const JOURNAL_STREAMS: u64 = 1 << 33;

/// Numbers of workers that compute nodes of one index have in turn.
const WORKERS_OF_ALL_NODES: usize = MAX_COMPUTE_NODES * MAX_WORKERS;

/// Think times are cut at ten times their mean (clause 5.2.5.4).
const MAX_THINK: f64 = 10.0;

/// Longest sleep before a thinking worker looks whether the run is over.
const NAP: Duration = Duration::from_millis(200);

/// What the workers of a run share.
pub(super) struct Control {
    /// Set when the time is over, or a worker has failed.
    pub(super) stop: AtomicBool,
    measurements: Mutex<Measurements>,
    journal: Mutex<Journal>,
    began: Duration,
    think: bool,
}

impl Control {
    /// Of a run that begins now, by the environment's clock.
    pub(super) fn new(config: &Config, began: Duration) -> Result<Self, TpccError> {
        let (measurements, journal) = (Mutex::new(Measurements::new()?), Mutex::default());
        let stop = AtomicBool::new(false);
        Ok(Self { stop, measurements, journal, began, think: config.think })
    }

    /// What all workers that are over have measured.
    pub(super) fn take_measurements(&self) -> Result<Measurements, TpccError> {
        Ok(std::mem::replace(&mut *self.measurements.lock(), Measurements::new()?))
    }

    /// What all workers that are over have committed.
    pub(super) fn take_journal(&self) -> Journal {
        std::mem::take(&mut *self.journal.lock())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// One worker of one compute node.
pub(super) struct Worker {
    node: Arc<Node>,
    writer: i32,
    source: InputSource,
    recorder: Recorder,
}

/// How a transaction ended.
#[derive(Default)]
struct Outcome {
    rolled_back: bool,
    skipped: u64,
    /// A page that it needs is lost.
    lost: bool,
}

impl Worker {
    /// The worker of this number of a node that is the so-manieth of its index, from 1.
    pub(super) fn new(config: &Config, node: Arc<Node>, incarnation: u32, number: usize) -> Self {
        let index = node.engine.node().index();
        // The same for no two workers of a pool, whatever numbers of workers its processes run.
        let ordinal = (index * MAX_WORKERS + number) as u64;
        let random = Random::stream(config.seed, WORKER_STREAMS + ordinal);
        let constants = NuConstants::of_run(config.seed, &config.scale);
        let warehouses = config.warehouses.cast_signed();
        let source = InputSource::new(random, constants, warehouses, config.homes_of(index));
        let workers = config.workers * config.compute_nodes;
        let recorder =
            Recorder::new(workers, Random::stream(config.seed, JOURNAL_STREAMS + ordinal));
        Self { node, writer: writer(ordinal, incarnation), source, recorder }
    }

    /// Runs transactions until the control says stop.
    pub(super) async fn run(mut self, control: &Control) -> Result<(), TpccError> {
        let node = Arc::clone(&self.node);
        let env = node.engine.env();
        let session = Session::new(&node.db, node.tables, self.writer);
        let mut measured = Measurements::new()?;
        let mut deck = Deck::new();
        while !control.stopped() {
            let kind = deck.draw(&mut self.source.random);
            if control.think {
                pause(env, kind.keying_seconds(), control).await;
                if control.stopped() {
                    break;
                }
            }
            let attempts = AtomicU64::new(0);
            let started = env.now();
            let outcome = match self.transact(&session, kind, started, &attempts).await {
                // All that it had changed is as it was, and its latches are free.
                Err(error) if error.lost_page().is_some() => {
                    Outcome { lost: true, ..Outcome::default() }
                }
                outcome => outcome?,
            };
            let latency = env.now().saturating_sub(started);
            if control.stopped() {
                break;
            }
            if outcome.lost {
                if let Some(stats) = measured.kind_mut(kind) {
                    stats.lost += 1;
                }
                yield_now().await;
                continue;
            }
            measured.count_at(env.now().saturating_sub(control.began));
            if let Some(stats) = measured.kind_mut(kind) {
                stats.complete(latency, attempts.into_inner());
                stats.rolled_back += u64::from(outcome.rolled_back);
                stats.skipped += outcome.skipped;
            }
            if control.think {
                let factor = (-self.source.random.fraction().ln()).min(MAX_THINK);
                pause(env, factor * kind.think_seconds(), control).await;
            } else {
                yield_now().await;
            }
        }
        control.journal.lock().add(self.recorder.finish());
        control.measurements.lock().add(&measured)
    }

    async fn transact(
        &mut self,
        session: &Session<'_>,
        kind: Kind,
        started: Duration,
        attempts: &AtomicU64,
    ) -> Result<Outcome, TpccError> {
        let env = session.db.engine().env();
        let now = i64::try_from(started.as_micros()).unwrap_or(i64::MAX);
        let count = || attempts.fetch_add(1, Ordering::Relaxed);
        let mut outcome = Outcome::default();
        let failed = |error| TpccError::of_retry(kind.title(), error);
        match kind {
            Kind::NewOrder => {
                let input = self.source.new_order();
                let attempt = || {
                    count();
                    new_order(session, &input, now)
                };
                let output = retry(env, &PATIENCE, attempt).await.map_err(failed)?;
                outcome.rolled_back = output.order.is_none();
                if let Some(order) = output.order {
                    let NewOrderInput { warehouse, district, ref lines, .. } = input;
                    let (lines, amount) = (lines.len() as i32, output.amount);
                    let entry = Entry::Order { warehouse, district, order, lines, amount };
                    self.recorder.note(entry);
                }
            }
            Kind::Payment => {
                let input = self.source.payment();
                let attempt = || {
                    count();
                    payment(session, &input, now)
                };
                let output = retry(env, &PATIENCE, attempt).await.map_err(failed)?;
                let PaymentInput { warehouse, district, amount, .. } = input;
                let (writer, sequence) = (self.writer, output.sequence);
                let entry = Entry::Payment { warehouse, writer, district, sequence, amount };
                self.recorder.note(entry);
            }
            Kind::OrderStatus => {
                let input = self.source.order_status();
                let attempt = || {
                    count();
                    order_status(session, &input)
                };
                retry(env, &PATIENCE, attempt).await.map_err(failed)?;
            }
            Kind::Delivery => {
                let input = self.source.delivery();
                (outcome.skipped, outcome.lost) = deliver(session, &input, now, attempts).await?;
            }
            Kind::StockLevel => {
                let input = self.source.stock_level();
                let progress = StockLevelProgress::default();
                let attempt = || {
                    count();
                    stock_level(session, &input, &progress)
                };
                retry(env, &PATIENCE, attempt).await.map_err(failed)?;
            }
        }
        Ok(outcome)
    }
}

/// The number of a worker among all that ever work on the database: the same for no two of them. The loader's
/// rows have number 0.
fn writer(ordinal: u64, incarnation: u32) -> i32 {
    let before = u64::from(incarnation.saturating_sub(1)) * WORKERS_OF_ALL_NODES as u64;
    i32::try_from(before + ordinal + 1).unwrap_or(i32::MAX)
}

/// Delivers in all ten districts; returns how many had nothing to deliver, and whether some could not be
/// delivered in because of lost pages.
async fn deliver(
    session: &Session<'_>,
    input: &DeliveryInput,
    now: i64,
    attempts: &AtomicU64,
) -> Result<(u64, bool), TpccError> {
    let env = session.db.engine().env();
    let (mut skipped, mut lost) = (0, false);
    // The first attempt at each further district is no retry.
    let further = u64::from(DISTRICTS.unsigned_abs()) - 1;
    for district in 1..=DISTRICTS {
        let attempt = || {
            attempts.fetch_add(1, Ordering::Relaxed);
            deliver_district(session, input, district, now)
        };
        let output = retry(env, &PATIENCE, attempt).await;
        match output.map_err(|error| TpccError::of_retry("Delivery", error)) {
            Ok(output) => skipped += u64::from(output.order.is_none()),
            Err(error) if error.lost_page().is_some() => lost = true,
            Err(error) => return Err(error),
        }
    }
    attempts.fetch_sub(further, Ordering::Relaxed);
    Ok((skipped, lost))
}

/// Sleeps, but not beyond the end of the run.
async fn pause(env: &Env, seconds: f64, control: &Control) {
    let end = env.now() + Duration::from_secs_f64(seconds);
    loop {
        let left = end.saturating_sub(env.now());
        if left.is_zero() || control.stopped() {
            return;
        }
        env.sleep(left.min(NAP)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_workers_have_one_number() {
        let last = (WORKERS_OF_ALL_NODES - 1) as u64;
        assert_eq!((writer(0, 1), writer(last, 1)), (1, WORKERS_OF_ALL_NODES as i32));
        assert_eq!(writer(0, 2), writer(last, 1) + 1);
        assert_eq!(writer(0, 0), 1, "in a pool of one process nobody counts");
    }
}
