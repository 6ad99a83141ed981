//! A session: one transaction after the other, each drawn step by step.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::{Env, SplitMix};
use selkie_txn::{AbortCause, Database, Savepoint, Txn, TxnError};

use super::Load;
use super::access::Access;
use super::journal::{Journal, Mark, Notes};
use super::lists::Lists;
use super::registers::{GROUPS, Registers};
use crate::check::serial::Status;
use crate::error::SimError;

/// Transactions that a session begins.
const TRANSACTIONS: usize = 40;
/// Steps of a transaction, at most.
const STEPS: u64 = 5;
/// Registers beside each other that are deleted together, at most.
const CLEARED: usize = 5;
/// Lists; few, so that they grow.
const LISTS: u64 = 3;
/// Values of a session, of which no other one uses any.
const VALUES: u64 = 1_000_000;
/// Longest a session waits after a conflict.
const BACK_OFF_NS: u64 = 40_000;
/// Pages of a node that are given up now and then.
const HOTTEST: usize = 20;
/// Longest a transaction stands still after a step, which one in three does.
const THINKING_NS: u64 = 15_000;
/// How often the last reader tries.
const READ_ALL_ATTEMPTS: usize = 1_000;

pub(super) struct Session {
    db: Database,
    registers: Registers,
    lists: Lists,
    env: Env,
    journal: Arc<Journal>,
    number: usize,
    random: SplitMix,
    keys: u64,
    evicts: bool,
}

/// How a transaction went that met nothing but conflicts.
enum Attempt {
    Committed,
    RolledBack,
}

/// What a transaction is to do.
#[derive(Clone, Copy)]
enum Task {
    /// Anything.
    Any,
    /// Anything that changes nothing.
    Read,
    /// All there is to be read.
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
        env: Env,
        journal: &Arc<Journal>,
        number: usize,
        random: SplitMix,
        load: Load,
    ) -> Result<Self, SimError> {
        let (registers, lists) = (Registers::of(&db)?, Lists::of(&db)?);
        let journal = Arc::clone(journal);
        let Load { keys, evicts, .. } = load;
        Ok(Self { db, registers, lists, env, journal, number, random, keys, evicts })
    }

    /// Runs the session; returns how many transactions were committed.
    ///
    /// # Errors
    /// What a transaction ends in other than a conflict; [`SimError::NoProgress`] if one waits in
    /// vain.
    pub(super) async fn run(self) -> Result<u64, SimError> {
        let mut values = Values { next: (self.number as u64 + 1) * VALUES };
        let mut committed = 0;
        for _ in 0..TRANSACTIONS {
            let task = if self.random.below(4) == 0 { Task::Read } else { Task::Any };
            match self.attempt(task, &mut values).await? {
                Attempt::Committed => committed += 1,
                Attempt::RolledBack => self.wait(BACK_OFF_NS).await,
            }
            if self.evicts && self.random.below(2) == 0 {
                self.evict().await?;
            }
        }
        Ok(committed)
    }

    /// Reads all there is, in one transaction, when the others have ended.
    ///
    /// # Errors
    /// As [`Session::run`]; [`SimError::NoProgress`].
    pub(super) async fn read_all(self) -> Result<(), SimError> {
        let mut values = Values { next: 0 };
        for _ in 0..READ_ALL_ATTEMPTS {
            if let Attempt::Committed = self.attempt(Task::ReadAll, &mut values).await? {
                return Ok(());
            }
            self.wait(BACK_OFF_NS).await;
        }
        Err(SimError::NoProgress(format!("{READ_ALL_ATTEMPTS} attempts to read all")))
    }

    async fn attempt(&self, task: Task, values: &mut Values) -> Result<Attempt, SimError> {
        let invoked = self.now();
        let (mut txn, mut notes) = (self.begin(task), Notes::default());
        let random = &self.random;
        let mut access = Access { db: &self.db, txn: &mut txn, notes: &mut notes, random };
        let acted = self.act(&mut access, task, values).await;
        let (ops, claims) = notes.into_parts();
        // Before it commits: others may see what it did before this session is told.
        let entry = self.journal.add(self.number, invoked, ops);
        let changes_its_mind = matches!(task, Task::Any) && self.random.below(16) == 0;
        let ended = match acted {
            Ok(()) if changes_its_mind => {
                txn.rollback().await;
                self.journal.end(entry, self.now(), Status::Aborted);
                return Ok(Attempt::RolledBack);
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
                Ok(Attempt::Committed)
            }
            Err(error) if error.is_retryable() => {
                self.journal.end(entry, self.now(), Status::Aborted);
                match error.abort_cause() {
                    // Whoever has a page does not give it: it is not to be had before long.
                    Some(AbortCause::Timeout) => Err(SimError::NoProgress(error.to_string())),
                    _ => Ok(Attempt::RolledBack),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Every other session reads with transactions that can do nothing else.
    fn begin(&self, task: Task) -> Txn<'_> {
        match task {
            Task::Read if self.number.is_multiple_of(2) => self.db.begin_to_read(),
            Task::Any | Task::Read | Task::ReadAll => self.db.begin(),
        }
    }

    async fn act(
        &self,
        access: &mut Access<'_, '_>,
        task: Task,
        values: &mut Values,
    ) -> Result<(), TxnError> {
        if let Task::ReadAll = task {
            for list in 0..LISTS {
                self.lists.read(access, list).await?;
            }
            return self.registers.scan(access, 0, self.keys - 1).await;
        }
        let mut savepoint = None;
        for _ in 0..=self.random.below(STEPS) {
            match task {
                Task::Any if self.random.below(2) == 0 => {
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

    /// Makes a savepoint now and then, and goes back to it.
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
                // So many that a leaf may become empty, which the tree gives back.
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
            // Seldom, as what reads all is in the way of all.
            17 => self.registers.scan(access, 0, self.keys - 1).await,
            18 => self.registers.scan_groups(access, self.keys).await,
            19 => self.registers.scan_keys(access, self.keys).await,
            _ => self.lists.read(access, self.random.below(LISTS)).await,
        }
    }

    /// Has the node give up one of the pages that it misses most, as if there were many others.
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
        self.env.now().as_nanos() as u64
    }

    /// Waits for a while.
    async fn wait(&self, most_ns: u64) {
        self.env.sleep(Duration::from_nanos(self.random.below(most_ns))).await;
    }
}
