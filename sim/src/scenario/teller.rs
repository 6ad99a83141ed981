//! A client of the bank: transfers, audits, new accounts, and the record of what it did and saw.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_btree::TreeError;
use selkie_engine::EngineError;
use selkie_fabric::env::{Env, SplitMix};
use selkie_txn::{
    Database, Direction, KeyRange, RetryError, RetryPolicy, Table, TxnError, key, retry,
};

use super::accounts::{ACCOUNTS, BALANCE, DEPOSIT, History, SPACING, VERSION};
use super::bulk::is_pool_full;
use crate::check::serial::{Op, Status, Transaction};
use crate::error::SimError;

/// Longest pause of a teller that has made its transactions and goes on.
const LINGER_NS: u64 = 800_000;

/// The log of a node that finds its disk full is tried again after a while; so often a step is,
/// too, after so long.
const PATIENCE: u32 = 20;
const PATIENT_FOR: Duration = Duration::from_millis(50);

/// A client of the bank.
pub(super) struct Teller {
    pub(super) client: usize,
    pub(super) db: Arc<Database>,
    pub(super) table: Table,
    pub(super) env: Env,
    /// By which operations of all nodes are ordered.
    pub(super) clock: Env,
    pub(super) epoch: Duration,
    pub(super) steps: u64,
    pub(super) until: Duration,
    /// Whether the pool may be full.
    pub(super) may_be_full: bool,
    /// Whether its log may be full for about as long as a commit waits.
    pub(super) log_may_be_late: bool,
    pub(super) history: History,
    pub(super) random: SplitMix,
    pub(super) versions: AtomicU64,
    /// What an audit found wrong.
    pub(super) broken: Mutex<Option<String>>,
}

/// A transaction. It is in the history from its beginning, as its node may die before its end.
pub(super) struct TellerAttempt {
    history: History,
    number: usize,
}

impl TellerAttempt {
    pub(super) fn begin(teller: &Teller) -> Self {
        let (process, invoked) = (teller.client, teller.now());
        let (returned, status, ops) = (None, Status::Unknown, Vec::new());
        let history = Arc::clone(&teller.history);
        let mut all = history.lock();
        let number = all.len();
        all.push(Transaction { process, invoked, returned, status, ops });
        drop(all);
        Self { history, number }
    }

    fn note(&self, op: Op) {
        if let Some(own) = self.history.lock().get_mut(self.number) {
            own.ops.push(op);
        }
    }

    /// Conflicts roll back exactly; whatever else ends an attempt leaves it open.
    pub(super) fn end(self, result: &Result<(), TxnError>, now: u64) {
        let status = match result {
            Ok(()) => Status::Committed,
            Err(error) if error.abort_cause().is_some() => Status::Aborted,
            Err(_) => return,
        };
        if let Some(own) = self.history.lock().get_mut(self.number) {
            (own.status, own.returned) = (status, Some(now));
        }
    }
}

/// Whether the log of the teller's node could not be written, which passes.
fn is_of_log(error: &TxnError) -> bool {
    matches!(error, TxnError::Engine(EngineError::Log(_)))
        || matches!(error, TxnError::Tree(TreeError::Engine(EngineError::Log(_))))
}

impl Teller {
    /// Makes the transactions; how many there were.
    pub(super) async fn run(self) -> Result<u64, SimError> {
        let policy = RetryPolicy { attempts: 400, ..RetryPolicy::default() };
        let mut patience = PATIENCE;
        let mut step = 0;
        while step < self.steps || self.clock.now() < self.until {
            if step >= self.steps {
                self.env.sleep(Duration::from_nanos(self.random.below(LINGER_NS))).await;
            }
            step += 1;
            let kind = self.random.below(10);
            let accounts = [self.account(), self.account()];
            loop {
                let met_log = AtomicBool::new(false);
                let attempt = || async {
                    let result = self.attempt(kind, accounts).await;
                    met_log.fetch_or(result.as_ref().is_err_and(is_of_log), Ordering::Relaxed);
                    result
                };
                let result = retry(&self.env, &policy, attempt).await;
                if let Some(claim) = self.broken.lock().take() {
                    return Err(SimError::Broken(claim));
                }
                match result {
                    Ok(()) => break,
                    // Not known to last, and not to be run again.
                    Err(RetryError::Final(TxnError::Undetermined {
                        source: EngineError::Log(_),
                    })) => break,
                    // It could be written again just before the wait was over.
                    Err(RetryError::Final(TxnError::Undetermined {
                        source: EngineError::LogTimeout { .. },
                    })) if self.log_may_be_late => break,
                    // Such an error comes at once and counts as a timeout. The last attempt may
                    // wait for a page that cannot leave this node before its log is written.
                    Err(RetryError::Exhausted { .. })
                        if met_log.load(Ordering::Relaxed) && patience > 0 =>
                    {
                        patience -= 1;
                        self.env.sleep(PATIENT_FOR).await;
                    }
                    // Refused, and undone.
                    Err(RetryError::Final(error)) if self.may_be_full && is_pool_full(&error) => {
                        break;
                    }
                    Err(RetryError::Final(error)) => return Err(error.into()),
                    Err(error) => return Err(SimError::NoProgress(error.to_string())),
                }
            }
        }
        Ok(step)
    }

    async fn attempt(&self, kind: u64, accounts: [u64; 2]) -> Result<(), TxnError> {
        let attempt = TellerAttempt::begin(self);
        let result = match kind {
            0..=5 => self.transfer(&attempt, accounts).await,
            6..=7 => self.audit(&attempt).await,
            8 => self.open_account(&attempt, accounts[0]).await,
            _ => self.look(&attempt, accounts).await,
        };
        attempt.end(&result, self.now());
        result
    }

    fn account(&self) -> u64 {
        self.random.below(ACCOUNTS) * SPACING
    }

    /// A number no other write of the run uses.
    fn version(&self) -> u64 {
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        (self.client as u64 + 1) * 1_000_000 + number
    }

    pub(super) fn now(&self) -> u64 {
        (self.epoch + self.clock.now()).as_nanos() as u64
    }

    async fn transfer(
        &self,
        attempt: &TellerAttempt,
        [from, to]: [u64; 2],
    ) -> Result<(), TxnError> {
        if from == to {
            return Ok(());
        }
        let cents = self.random.below(100).cast_signed();
        let mut txn = self.db.begin();
        for (id, change) in [(from, -cents), (to, cents)] {
            let new = self.version();
            let old = txn
                .update(self.table, &key![id.cast_signed()], |row| {
                    let old = row.i64(VERSION)?;
                    row.set_i64(VERSION, new.cast_signed())?;
                    row.set_i64(BALANCE, row.i64(BALANCE)? + change)?;
                    Ok(old)
                })
                .await?;
            attempt.note(Op::Read { key: id, value: Some(old.cast_unsigned()) });
            attempt.note(Op::Write { key: id, value: new });
            self.dwell().await;
        }
        txn.commit().await
    }

    /// Reads two accounts by key.
    async fn look(&self, attempt: &TellerAttempt, accounts: [u64; 2]) -> Result<(), TxnError> {
        let mut txn = self.db.begin();
        for id in accounts {
            let row = txn.get(self.table, &key![id.cast_signed()]).await?;
            let version = row.map(|row| row.i64(VERSION)).transpose()?;
            attempt.note(Op::Read { key: id, value: version.map(i64::cast_unsigned) });
            self.dwell().await;
        }
        txn.commit().await
    }

    /// Moves half of an account into a new one beside it.
    async fn open_account(&self, attempt: &TellerAttempt, from: u64) -> Result<(), TxnError> {
        let id = from + 1 + self.random.below(SPACING - 1);
        let mut txn = self.db.begin();
        let there = txn.get(self.table, &key![id.cast_signed()]).await?;
        let there = there.map(|row| row.i64(VERSION)).transpose()?;
        attempt.note(Op::Read { key: id, value: there.map(i64::cast_unsigned) });
        if there.is_some() {
            return txn.commit().await;
        }
        let (new, opened) = (self.version(), self.version());
        let (old, half) = txn
            .update(self.table, &key![from.cast_signed()], |row| {
                let (old, balance) = (row.i64(VERSION)?, row.i64(BALANCE)?);
                row.set_i64(VERSION, new.cast_signed())?;
                row.set_i64(BALANCE, balance - balance / 2)?;
                Ok((old, balance / 2))
            })
            .await?;
        attempt.note(Op::Read { key: from, value: Some(old.cast_unsigned()) });
        attempt.note(Op::Write { key: from, value: new });
        let mut row = self.db.row(self.table)?;
        row.i64(id.cast_signed()).i64(opened.cast_signed()).i64(half).text("opened");
        txn.insert(self.table, row.finish()?).await?;
        attempt.note(Op::Write { key: id, value: opened });
        txn.commit().await
    }

    /// Reads all accounts; their sum is what was deposited.
    pub(super) async fn audit(&self, attempt: &TellerAttempt) -> Result<(), TxnError> {
        let mut txn = self.db.begin();
        let (mut sum, mut seen) = (0, Vec::new());
        let direction =
            if self.random.below(2) == 0 { Direction::Forward } else { Direction::Reverse };
        txn.scan(self.table, &KeyRange::all(), direction, |row| {
            sum += row.i64(BALANCE)?;
            seen.push((row.i64(0)?.cast_unsigned(), row.i64(VERSION)?.cast_unsigned()));
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        let expected = ACCOUNTS.cast_signed() * DEPOSIT;
        if sum != expected {
            let accounts = seen.len();
            let claim = format!("an audit found {sum} in {accounts} accounts, not {expected}");
            *self.broken.lock() = Some(claim);
        }
        attempt.note(Op::Scan { low: 0, high: ACCOUNTS * SPACING, seen });
        txn.commit().await
    }

    /// Thinks for a while in the middle of a transaction, now and then.
    async fn dwell(&self) {
        if self.random.below(3) == 0 {
            self.env.sleep(Duration::from_nanos(self.random.below(5_000))).await;
        }
    }
}
