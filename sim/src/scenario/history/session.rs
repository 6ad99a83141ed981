//! A session runs one transaction after the other. It draws each step.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::{Env, SplitMix};
use selkie_txn::{AbortCause, Database, Savepoint, Txn, TxnError};

use super::access::Access;
use super::journal::{Journal, Mark, Notes};
use super::lists::Lists;
use super::load::HistoryLoad;
use super::registers::{GROUPS, Registers};
use crate::check::serial::Status;
use crate::error::SimError;

/// Transactions that a session begins.
const TRANSACTIONS: usize = 40;
/// Longest pause of a session that has made its transactions and goes on, nanoseconds.
const LINGER_NS: u64 = 800_000;
/// Steps of a transaction, at most.
const STEPS: u64 = 5;
/// Registers beside each other that are deleted together, at most.
const CLEARED: usize = 5;
/// Lists; few, so that they grow.
const LISTS: u64 = 3;
/// Values of a session. No two sessions share one.
const VALUES: u64 = 1_000_000;
/// Longest a session waits after a conflict.
const BACK_OFF_NS: u64 = 40_000;
/// The hottest pages of a node, of which some are evicted.
const HOTTEST: usize = 20;
/// Longest pause of a transaction after a step. One step in three has one.
const THINKING_NS: u64 = 15_000;
/// Attempts of the last reader.
const READ_ALL_ATTEMPTS: usize = 1_000;

pub(super) struct Session {
    db: Database,
    registers: Registers,
    lists: Lists,
    env: Env,
    /// By which operations of all nodes are ordered.
    clock: Env,
    /// When it may stop, if it has made its transactions.
    until: Duration,
    journal: Arc<Journal>,
    number: usize,
    random: SplitMix,
    keys: u64,
    evicts: bool,
}

/// How an attempt ended that met at most conflicts.
enum AttemptEnd {
    Committed,
    RolledBack,
}

/// The task of a transaction.
#[derive(Clone, Copy)]
enum SessionTask {
    /// Reads and writes.
    Any,
    /// Reads only.
    Read,
    /// Reads of everything.
    ReadAll,
}

/// Numbers that no other write of the run uses.
struct Values {
    next: u64,
}

impl Values {
    fn take(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Session {
    pub(super) fn open(
        db: Database,
        (env, clock, until): (Env, Env, Duration),
        journal: &Arc<Journal>,
        number: usize,
        random: SplitMix,
        load: HistoryLoad,
    ) -> Result<Self, SimError> {
        let (registers, lists) = (Registers::of(&db)?, Lists::of(&db)?);
        let journal = Arc::clone(journal);
        let HistoryLoad { keys, evicts, .. } = load;
        Ok(Self { db, registers, lists, env, clock, until, journal, number, random, keys, evicts })
    }

    /// Runs the session; returns how many transactions were committed.
    ///
    /// # Errors
    /// The error of a transaction, unless it is a conflict; [`SimError::NoProgress`] if one waits
    /// in vain.
    pub(super) async fn run(self) -> Result<u64, SimError> {
        let mut values = Values { next: (self.number as u64 + 1) * VALUES };
        let mut committed = 0;
        let mut made = 0;
        while made < TRANSACTIONS || self.clock.now() < self.until {
            if made >= TRANSACTIONS {
                self.wait(LINGER_NS).await;
            }
            made += 1;
            let task = if self.random.below(4) == 0 { SessionTask::Read } else { SessionTask::Any };
            match self.attempt(task, &mut values).await? {
                AttemptEnd::Committed => committed += 1,
                AttemptEnd::RolledBack => self.wait(BACK_OFF_NS).await,
            }
            if self.evicts && self.random.below(2) == 0 {
                self.evict().await?;
            }
        }
        Ok(committed)
    }

    /// Reads everything in one transaction, after the other sessions have ended.
    ///
    /// # Errors
    /// As [`Session::run`]; [`SimError::NoProgress`].
    pub(super) async fn read_all(self) -> Result<(), SimError> {
        let mut values = Values { next: 0 };
        for _ in 0..READ_ALL_ATTEMPTS {
            if let AttemptEnd::Committed = self.attempt(SessionTask::ReadAll, &mut values).await? {
                return Ok(());
            }
            self.wait(BACK_OFF_NS).await;
        }
        Err(SimError::NoProgress(format!("{READ_ALL_ATTEMPTS} attempts to read all")))
    }

    async fn attempt(
        &self,
        task: SessionTask,
        values: &mut Values,
    ) -> Result<AttemptEnd, SimError> {
        let invoked = self.now();
        let (mut txn, mut notes) = (self.begin(task), Notes::default());
        let random = &self.random;
        let mut access = Access { db: &self.db, txn: &mut txn, notes: &mut notes, random };
        let acted = self.act(&mut access, task, values).await;
        let (ops, claims) = notes.into_parts();
        // Before the commit: others may see its writes before this session learns the outcome.
        let entry = self.journal.add(self.number, invoked, ops);
        let changes_its_mind = matches!(task, SessionTask::Any) && self.random.below(16) == 0;
        let ended = match acted {
            Ok(()) if changes_its_mind => {
                txn.rollback().await;
                self.journal.end(entry, self.now(), Status::Aborted);
                return Ok(AttemptEnd::RolledBack);
            }
            Ok(()) => txn.commit().await,
            Err(error) => {
                drop(txn);
                Err(error)
            }
        };
        match ended {
            Ok(()) => {
                self.journal.end(entry, self.now(), Status::Committed);
                self.journal.add_claims(claims);
                Ok(AttemptEnd::Committed)
            }
            Err(error) if error.is_retryable() => {
                self.journal.end(entry, self.now(), Status::Aborted);
                match error.abort_cause() {
                    // The holder of a page does not give it up: a retry would fail as well.
                    Some(AbortCause::Timeout) => Err(SimError::NoProgress(error.to_string())),
                    _ => Ok(AttemptEnd::RolledBack),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Every other session reads with read-only transactions.
    fn begin(&self, task: SessionTask) -> Txn<'_> {
        match task {
            SessionTask::Read if self.number.is_multiple_of(2) => self.db.begin_to_read(),
            SessionTask::Any | SessionTask::Read | SessionTask::ReadAll => self.db.begin(),
        }
    }

    async fn act(
        &self,
        access: &mut Access<'_, '_>,
        task: SessionTask,
        values: &mut Values,
    ) -> Result<(), TxnError> {
        if let SessionTask::ReadAll = task {
            for list in 0..LISTS {
                self.lists.read(access, list).await?;
            }
            return self.registers.scan(access, 0, self.keys - 1).await;
        }
        let mut savepoint = None;
        for _ in 0..=self.random.below(STEPS) {
            match task {
                SessionTask::Any if self.random.below(2) == 0 => {
                    self.go_back_or_on(access, &mut savepoint)?;
                    self.change(access, values).await?;
                }
                _ => self.look(access).await?,
            }
            if self.random.below(3) == 0 {
                self.wait(THINKING_NS).await;
            }
        }
        Ok(())
    }

    /// Sets a savepoint now and then, or rolls back to it.
    fn go_back_or_on(
        &self,
        access: &mut Access<'_, '_>,
        savepoint: &mut Option<(Savepoint, Mark)>,
    ) -> Result<(), TxnError> {
        match (self.random.below(4), *savepoint) {
            (0, _) => *savepoint = Some((access.txn.savepoint()?, access.notes.mark())),
            (1 | 2, Some((place, mark))) => {
                access.txn.rollback_to(place)?;
                access.notes.take_back(mark);
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes something.
    async fn change(
        &self,
        access: &mut Access<'_, '_>,
        values: &mut Values,
    ) -> Result<(), TxnError> {
        let (key, value) = (self.random.below(self.keys), values.take());
        match self.random.below(8) {
            0..=3 => {
                let blind = self.random.below(8) == 0;
                self.registers.write(access, key, value, blind).await
            }
            4 => self.registers.delete(access, key, value).await,
            5 => {
                // Enough to empty a leaf, which the tree then frees.
                for key in (key..self.keys).take(CLEARED) {
                    self.registers.delete(access, key, values.take()).await?;
                }
                Ok(())
            }
            _ => self.lists.append(access, self.random.below(LISTS), value).await,
        }
    }

    /// Reads something.
    async fn look(&self, access: &mut Access<'_, '_>) -> Result<(), TxnError> {
        let key = self.random.below(self.keys);
        match self.random.below(24) {
            0..=8 => self.registers.read(access, key).await,
            9..=13 => {
                let high = (key + self.random.below(6)).min(self.keys - 1);
                self.registers.scan(access, key, high).await
            }
            14..=16 => {
                let (group, resolve) = (self.random.below(GROUPS), self.random.below(4) == 0);
                self.registers.scan_group(access, group, self.keys, resolve).await
            }
            // Seldom: a full scan conflicts with all writers.
            17 => self.registers.scan(access, 0, self.keys - 1).await,
            18 => self.registers.scan_groups(access, self.keys).await,
            19 => self.registers.scan_keys(access, self.keys).await,
            _ => self.lists.read(access, self.random.below(LISTS)).await,
        }
    }

    /// Evicts one of the hottest pages of the node, as a full cache would.
    async fn evict(&self) -> Result<(), SimError> {
        let engine = self.db.engine();
        let pages = engine.hottest(HOTTEST);
        let chosen = self.random.below(HOTTEST as u64) as usize;
        if let Some(page) = pages.get(chosen) {
            engine.evict(page.addr).await?;
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos() as u64
    }

    /// Waits for a random time.
    async fn wait(&self, most_ns: u64) {
        self.env.sleep(Duration::from_nanos(self.random.below(most_ns))).await;
    }
}
