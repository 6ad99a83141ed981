//! A session runs one transaction after the other. It draws each step.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::{Env, SplitMix};
use selkie_txn::{AbortCause, Database, Isolation, Savepoint, Txn, TxnError};

use super::access::Access;
use super::ending::end;
use super::holds::{Holder, Holds};
use super::journal::{Journal, Mark, Notes, Statements};
use super::lists::Lists;
use super::load::{HistoryLoad, PATIENCE};
use super::registers::{GROUPS, Registers};
use super::values::{Values, changed_by};
use crate::check::serial::Status;
use crate::error::SimError;

/// Transactions that a session begins.
const TRANSACTIONS: usize = 40;
/// Longest pause of a session that has made its transactions and goes on, nanoseconds.
const LINGER_NS: u64 = 800_000;
/// Steps of a transaction, at most.
const STEPS: u64 = 5;
/// Statements of a transaction that locks, at most. One that has a single snapshot has one.
const STATEMENTS: u64 = 2;
/// Registers beside each other that are deleted together, at most.
const CLEARED: usize = 5;
/// Lists; few, so that they grow.
const LISTS: u64 = 3;
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
    pub(super) registers: Registers,
    lists: Lists,
    pub(super) env: Env,
    /// By which operations of all nodes are ordered.
    clock: Env,
    /// When it may stop, if it has made its transactions.
    until: Duration,
    pub(super) journal: Arc<Journal>,
    /// Where its row locks are noted.
    holds: Arc<Holds>,
    locks: bool,
    pub(super) number: usize,
    pub(super) random: SplitMix,
    pub(super) keys: u64,
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
    /// Reads and writes what it has locked.
    Locked(Isolation),
    /// Reads only.
    Read,
    /// Reads of everything.
    ReadAll,
}

impl Session {
    pub(super) fn open(
        db: Database,
        (env, clock, until): (Env, Env, Duration),
        (journal, holds): (&Arc<Journal>, &Arc<Holds>),
        number: usize,
        random: SplitMix,
        load: HistoryLoad,
    ) -> Result<Self, SimError> {
        let (registers, lists) = (Registers::of(&db)?, Lists::of(&db)?);
        let (journal, holds) = (Arc::clone(journal), Arc::clone(holds));
        let HistoryLoad { keys, evicts, locks, .. } = load;
        Ok(Self {
            db,
            registers,
            lists,
            env,
            clock,
            until,
            journal,
            holds,
            locks,
            number,
            random,
            keys,
            evicts,
        })
    }

    /// Runs the session; returns how many transactions were committed.
    ///
    /// # Errors
    /// The error of a transaction, unless it is a conflict; [`SimError::NoProgress`] if one waits
    /// in vain.
    pub(super) async fn run(self) -> Result<u64, SimError> {
        let mut values = Values::of(self.number);
        let mut committed = 0;
        let mut made = 0;
        while made < TRANSACTIONS || self.clock.now() < self.until {
            if made >= TRANSACTIONS {
                self.wait(LINGER_NS).await;
            }
            made += 1;
            let task = match self.random.below(4) {
                0 => SessionTask::Read,
                _ if self.locks && self.random.below(3) == 0 => {
                    SessionTask::Locked(self.isolation())
                }
                _ => SessionTask::Any,
            };
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
        let mut values = Values::none();
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
        let mut invoked = self.now();
        let (mut txn, mut notes) = (self.begin(task)?, Notes::default());
        let is_patient = !self.locks || self.sets_lock_timeout(&mut txn);
        let mut holder = self.holds.begin(self.db.engine().node().index());
        let mut statements = Statements::new();
        let random = &self.random;
        let mut access = Access { db: &self.db, txn: &mut txn, notes: &mut notes, random };
        let acted = match task {
            SessionTask::Locked(isolation) => {
                let most = if isolation == Isolation::RepeatableRead { 1 } else { STATEMENTS };
                let (holder, statements) = (&mut holder, &mut statements);
                self.act_by_locks(&mut access, holder, (most, statements), values).await
            }
            _ => self.act(&mut access, &mut holder, task, values).await,
        };
        if let Some((_, ended)) = statements.last() {
            // What it has locked it has read after its statements.
            invoked = *ended;
        }
        let (ops, claims) = notes.into_parts();
        let changes = changed_by(&ops);
        // Before the commit: others may see its writes before this session learns the outcome.
        let entry = self.journal.add(self.number, invoked, ops);
        let may_write = matches!(task, SessionTask::Any | SessionTask::Locked(_));
        let changes_its_mind = may_write && self.random.below(16) == 0;
        let note = |status| {
            self.journal.end(entry, self.now(), status);
            self.end_statements(&statements, status);
        };
        if changes_its_mind && acted.is_ok() {
            holder.ends(true);
            txn.rollback().await;
            note(Status::Aborted);
            return Ok(AttemptEnd::RolledBack);
        }
        match end((txn, acted), (holder, changes), note).await? {
            None => {
                self.journal.add_claims(claims);
                Ok(AttemptEnd::Committed)
            }
            // The holder of a row lock does not give it up.
            Some(error) if is_patient && error.abort_cause() == Some(AbortCause::LockTimeout) => {
                Err(SimError::NoProgress(error.to_string()))
            }
            Some(_) => Ok(AttemptEnd::RolledBack),
        }
    }

    /// Every other session reads with read-only transactions.
    fn begin(&self, task: SessionTask) -> Result<Txn<'_>, TxnError> {
        Ok(match task {
            SessionTask::Read if self.number.is_multiple_of(2) => self.db.begin_to_read(),
            SessionTask::Locked(isolation) => self.db.begin_with(isolation),
            SessionTask::Any if self.locks && self.random.below(16) == 0 => {
                let mut txn = self.db.begin();
                txn.insist()?;
                txn
            }
            SessionTask::Any | SessionTask::Read | SessionTask::ReadAll => self.db.begin(),
        })
    }

    /// Sets how long a transaction waits for a lock; whether that is long enough to get it.
    fn sets_lock_timeout(&self, txn: &mut Txn<'_>) -> bool {
        let timeout = self.lock_timeout();
        txn.set_lock_timeout(timeout);
        timeout == PATIENCE
    }

    async fn act(
        &self,
        access: &mut Access<'_, '_>,
        holder: &mut Holder,
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
            holder.steps();
            match task {
                SessionTask::Any if self.locks && self.random.below(6) == 0 => {
                    let key = self.random.below(self.keys);
                    self.read_locked(access, holder, key).await?;
                }
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
        holder.steps();
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
    pub(super) async fn look(&self, access: &mut Access<'_, '_>) -> Result<(), TxnError> {
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

    pub(super) fn now(&self) -> u64 {
        self.clock.now().as_nanos() as u64
    }

    /// Waits for a random time.
    pub(super) async fn wait(&self, most_ns: u64) {
        self.env.sleep(Duration::from_nanos(self.random.below(most_ns))).await;
    }
}
