//! A worker: draws a transaction, runs it until it completes, and does so again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::{Env, yield_now};
use selkie_txn::retry;

use super::measure::Measurements;
use crate::cluster::Node;
use crate::config::{Config, MAX_WORKERS};
use crate::error::TpccError;
use crate::input::{DeliveryInput, InputSource};
use crate::kind::{Deck, Kind};
use crate::random::{NuConstants, Random};
use crate::scale::DISTRICTS;
use crate::tasks::PATIENCE;
use crate::transactions::{
    Session, StockLevelProgress, deliver_district, new_order, order_status, payment, stock_level,
};

/// First stream of the workers' generators; the load's have other numbers.
const WORKER_STREAMS: u64 = 1 << 32;

/// Think times are cut at ten times their mean (clause 5.2.5.4).
const MAX_THINK: f64 = 10.0;

/// Longest sleep before a thinking worker looks whether the run is over.
const NAP: Duration = Duration::from_millis(200);

/// What the workers of a run share.
pub(super) struct Control {
    /// Set when the time is over, or a worker has failed.
    pub(super) stop: AtomicBool,
    measurements: Mutex<Measurements>,
    think: bool,
}

impl Control {
    pub(super) fn new(config: &Config) -> Result<Self, TpccError> {
        let measurements = Mutex::new(Measurements::new()?);
        Ok(Self { stop: AtomicBool::new(false), measurements, think: config.think })
    }

    /// What all workers that are over have measured.
    pub(super) fn take_measurements(&self) -> Result<Measurements, TpccError> {
        Ok(std::mem::replace(&mut *self.measurements.lock(), Measurements::new()?))
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
}

/// How a transaction ended.
#[derive(Default)]
struct Outcome {
    rolled_back: bool,
    skipped: u64,
}

impl Worker {
    pub(super) fn new(config: &Config, node: Arc<Node>, number: usize) -> Self {
        let index = node.engine.node().index();
        // The same for no two workers of a pool, whatever numbers of workers its processes run.
        let ordinal = (index * MAX_WORKERS + number) as u64;
        let random = Random::stream(config.seed, WORKER_STREAMS + ordinal);
        let constants = NuConstants::of_run(config.seed, &config.scale);
        let warehouses = config.warehouses.cast_signed();
        let source = InputSource::new(random, constants, warehouses, config.homes_of(index));
        // The loader's rows have number 0.
        let writer = i32::try_from(ordinal + 1).unwrap_or(i32::MAX);
        Self { node, writer, source }
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
            let outcome = self.transact(&session, kind, started, &attempts).await?;
            let latency = env.now().saturating_sub(started);
            if control.stopped() {
                break;
            }
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
            }
            Kind::Payment => {
                let input = self.source.payment();
                let attempt = || {
                    count();
                    payment(session, &input, now)
                };
                retry(env, &PATIENCE, attempt).await.map_err(failed)?;
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
                outcome.skipped = deliver(session, &input, now, attempts).await?;
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

/// Delivers in all ten districts; returns how many had nothing to deliver.
async fn deliver(
    session: &Session<'_>,
    input: &DeliveryInput,
    now: i64,
    attempts: &AtomicU64,
) -> Result<u64, TpccError> {
    let env = session.db.engine().env();
    let mut skipped = 0;
    // The first attempt at each further district is no retry.
    let further = u64::from(DISTRICTS.unsigned_abs()) - 1;
    for district in 1..=DISTRICTS {
        let attempt = || {
            attempts.fetch_add(1, Ordering::Relaxed);
            deliver_district(session, input, district, now)
        };
        let output = retry(env, &PATIENCE, attempt).await;
        let output = output.map_err(|error| TpccError::of_retry("Delivery", error))?;
        skipped += u64::from(output.order.is_none());
    }
    attempts.fetch_sub(further, Ordering::Relaxed);
    Ok(skipped)
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
