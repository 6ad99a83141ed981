//! Row locks in the transactions of a session.
//!
//! *Transactions that rely on locks.* They read committed rows, or a snapshot, so nothing of what
//! they read is validated at commit: that it stays as it was is due to the locks alone. In the
//! history such a transaction is strictly serializable all the same, as it reads and writes only
//! registers that it has locked: row and tombstone, in any order, which makes deadlocks.
//!
//! *Statements.* What it reads before its locks is of one state, and not of that of its commit: in
//! the history a statement is a transaction of its own, which only reads.
//!
//! *Others* lock a register now and then before they read it, and are validated as ever; their
//! locks keep others from committing, and so do those of transactions that insist.
//!
//! Waits end in any way: with the lock, in vain, too late, as a deadlock, or as the future is
//! dropped. So do transactions. One that is dropped with its node leaves its locks to the others.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use selkie_txn::{Isolation, KeyRange, LockOutcome, LockWait, TxnError, key};

use super::access::Access;
use super::holds::{Holder, Locked};
use super::journal::{Notes, Statements};
use super::load::PATIENCE;
use super::registers::{GROUPS, Member, Registers, tombstone_of, version_of};
use super::session::Session;
use super::values::Values;
use crate::check::serial::{Op, Status};

/// Longest wait of one that is in a hurry, nanoseconds.
const HURRY_NS: u64 = 2_000_000;
/// Registers that one transaction locks, at most.
const LOCKS: u64 = 3;
/// Reads of a statement, at most.
const READS: u64 = 3;
/// Longest time for which a transaction keeps what it has locked while it thinks, nanoseconds.
const HOLDING_NS: u64 = 60_000;

/// What became of a wish to lock a register.
enum Locking {
    /// Row and tombstone.
    Held,
    /// One of them, or none.
    NotHeld,
}

impl Session {
    /// The isolation of a transaction that relies on locks.
    pub(super) fn isolation(&self) -> Isolation {
        match self.random.below(3) {
            0 => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        }
    }

    /// How long a transaction waits for locks.
    pub(super) fn lock_timeout(&self) -> Duration {
        match self.random.below(4) {
            0 => Duration::from_nanos(1 + self.random.below(HURRY_NS)),
            _ => PATIENCE,
        }
    }

    fn lock_wait(&self) -> LockWait {
        match self.random.below(6) {
            0 => LockWait::NoWait,
            1 => LockWait::SkipLocked,
            _ => LockWait::Wait,
        }
    }

    /// What a transaction does that relies on locks.
    pub(super) async fn act_by_locks(
        &self,
        access: &mut Access<'_, '_>,
        holder: &mut Holder,
        (most, statements): (u64, &mut Statements),
        values: &mut Values,
    ) -> Result<(), TxnError> {
        for _ in 0..self.random.below(most + 1) {
            holder.steps();
            self.statement(access, statements).await?;
        }
        let mut keys = BTreeSet::new();
        for _ in 0..=self.random.below(LOCKS) {
            holder.steps();
            if self.random.below(6) == 0 {
                self.take_from_group(access, holder, &mut keys).await?;
            } else {
                let key = self.random.below(self.keys);
                if let Locking::Held = self.lock(access, holder, key).await? {
                    keys.insert(key);
                }
            }
            self.hold_on().await;
        }
        for key in keys {
            holder.steps();
            // A row is built for the columns of the table that it is inserted in.
            access.txn.begin_statement()?;
            match self.random.below(4) {
                0 => self.registers.read(access, key).await?,
                1 => self.registers.delete(access, key, values.take()).await?,
                _ => self.registers.write(access, key, values.take(), false).await?,
            }
            access.txn.end_statement();
            self.hold_on().await;
        }
        holder.steps();
        Ok(())
    }

    /// Reads some in one state.
    async fn statement(
        &self,
        access: &mut Access<'_, '_>,
        statements: &mut Statements,
    ) -> Result<(), TxnError> {
        let (invoked, mut notes) = (self.now(), Notes::default());
        access.txn.begin_statement()?;
        let Access { db, txn, random, .. } = access;
        let mut inner = Access { db, txn, notes: &mut notes, random };
        for _ in 0..=self.random.below(READS) {
            self.look(&mut inner).await?;
            self.hold_on().await;
        }
        inner.txn.end_statement();
        let (ops, claims) = notes.into_parts();
        claims.into_iter().for_each(|claim| access.notes.claim(claim));
        let entry = self.journal.add(self.number, invoked, ops);
        statements.push((entry, self.now()));
        Ok(())
    }

    /// Says how the statements of a transaction have ended: with it.
    pub(super) fn end_statements(&self, statements: &Statements, status: Status) {
        for (entry, ended) in statements {
            self.journal.end(*entry, *ended, status);
        }
    }

    /// Locks a register and reads it.
    async fn lock(
        &self,
        access: &mut Access<'_, '_>,
        holder: &mut Holder,
        key: u64,
    ) -> Result<Locking, TxnError> {
        let wait = self.lock_wait();
        if self.random.below(8) > 0 {
            return self.registers.lock(access, holder, key, wait).await;
        }
        // One that loses its patience in the middle of a wait.
        let most = Duration::from_nanos(self.random.below(HURRY_NS / 4));
        let locking = self.registers.lock(access, holder, key, wait);
        match self.until(most, locking).await {
            Some(locked) => locked,
            None => Ok(Locking::NotHeld),
        }
    }

    /// What a future gives, unless that takes longer.
    async fn until<T>(&self, most: Duration, future: impl Future<Output = T>) -> Option<T> {
        let (mut future, mut timer) = (pin!(future), pin!(self.env.sleep(most)));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Takes registers of a group that nobody has locked, as from a queue of work.
    async fn take_from_group(
        &self,
        access: &mut Access<'_, '_>,
        holder: &mut Holder,
        keys: &mut BTreeSet<u64>,
    ) -> Result<(), TxnError> {
        let (group, most) = (self.random.below(GROUPS), 1 + self.random.below(2) as usize);
        self.registers.take(access, holder, group, most, keys).await
    }

    async fn hold_on(&self) {
        if self.random.below(3) == 0 {
            self.wait(HOLDING_NS).await;
        }
    }

    /// Reads a register, which it locks before if that is possible.
    pub(super) async fn read_locked(
        &self,
        access: &mut Access<'_, '_>,
        holder: &mut Holder,
        key: u64,
    ) -> Result<(), TxnError> {
        match self.registers.lock(access, holder, key, self.lock_wait()).await? {
            Locking::Held => Ok(()),
            Locking::NotHeld => self.registers.read(access, key).await,
        }
    }
}

impl Registers {
    /// Locks row and tombstone, and reads the register then.
    async fn lock(
        &self,
        access: &mut Access<'_, '_>,
        holder: &mut Holder,
        key: u64,
        wait: LockWait,
    ) -> Result<Locking, TxnError> {
        let id = key![key.cast_signed()];
        let version = match access.txn.get_locked(self.rows, &id, wait).await {
            Ok(Some(row)) => {
                let version = version_of(row)?;
                holder.has(Locked::Row(key));
                Some(version)
            }
            Err(TxnError::RowLocked { .. }) => return Ok(Locking::NotHeld),
            Err(error) => return Err(error),
            // It is not there, or locked by others.
            Ok(None) => match access.txn.lock_row(self.rows, &id, wait).await? {
                LockOutcome::Held => {
                    holder.has(Locked::Row(key));
                    let row = access.txn.get_locked(self.rows, &id, wait).await?;
                    row.map(version_of).transpose()?
                }
                LockOutcome::NotAvailable => return Ok(Locking::NotHeld),
            },
        };
        match access.txn.lock_row(self.tombstones, &id, wait).await? {
            LockOutcome::Held => holder.has(Locked::Tombstone(key)),
            LockOutcome::NotAvailable => return Ok(Locking::NotHeld),
        }
        let version = match version {
            Some(version) => Some(version),
            None => self.tombstone_locked(access, key).await?,
        };
        access.notes.read(key, version);
        Ok(Locking::Held)
    }

    async fn tombstone_locked(
        &self,
        access: &mut Access<'_, '_>,
        key: u64,
    ) -> Result<Option<u64>, TxnError> {
        let id = key![key.cast_signed()];
        let row = access.txn.get_locked(self.tombstones, &id, LockWait::Wait).await?;
        row.map(tombstone_of).transpose()
    }

    /// Locks up to `most` rows of a group that are not locked yet, found by the index.
    async fn take(
        &self,
        access: &mut Access<'_, '_>,
        holder: &mut Holder,
        group: u64,
        most: usize,
        keys: &mut BTreeSet<u64>,
    ) -> Result<(), TxnError> {
        let (range, direction) = (KeyRange::prefix(&key![group.cast_signed()]), access.direction());
        let mut cursor = access.txn.cursor(self.by_group, range, direction)?;
        for _ in 0..most {
            let next = access.txn.next_locked(&mut cursor, LockWait::SkipLocked).await?;
            let Some(row) = next else { break };
            let Member { group: found, id: key, version } = Member::of(row)?;
            if found != group {
                let claim = format!("row {key} of group {found} was taken from group {group}");
                access.notes.claim(claim);
            }
            holder.has(Locked::Row(key));
            access.notes.add(Op::Read { key, value: Some(version) });
            let id = key![key.cast_signed()];
            match access.txn.lock_row(self.tombstones, &id, LockWait::Wait).await? {
                LockOutcome::Held => holder.has(Locked::Tombstone(key)),
                LockOutcome::NotAvailable => continue,
            }
            keys.insert(key);
        }
        Ok(())
    }
}
