//! Locks of numbers that applications choose, which mean what these agree on. They are no part of a
//! transaction: an owner holds them until it gives them back, is dropped, or dies with its node.
//!
//! A number is a name in the lock tree as a row is, with a root that no tree has; no leaf is marked
//! for it. A lock may be shared: a request says so in its ticket, and holds the lock if all before
//! it in the queue are shared, too. So one that is not waits for those before it, and those that
//! come after it wait for it, whatever they are. As many may share a lock as a queue has room for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::TxnError;
use crate::locks::entry::{LockName, LockRequest, Owner};
use crate::locks::lock_table::LockTable;
use crate::locks::row_locks::{LockOutcome, LockWait, QueuePlace};

/// What is locked: numbers of 64 bits are other names than pairs of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdvisoryName {
    /// A number.
    Number(i64),
    /// Two numbers.
    Pair(i32, i32),
}

/// Whether others may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdvisoryMode {
    /// Nobody else.
    Exclusive,
    /// Others that share it.
    Shared,
}

/// The advisory locks of one owner, which has each of them once. What it holds is given back by a
/// task of the node when this is dropped.
pub struct AdvisoryLocks {
    table: Arc<LockTable>,
    owner: Owner,
    held: BTreeMap<LockName, QueuePlace>,
}

impl AdvisoryName {
    fn lock_name(self) -> LockName {
        match self {
            Self::Number(number) => LockName::advisory(0, number.cast_unsigned()),
            Self::Pair(first, second) => {
                let (first, second) = (first.cast_unsigned(), second.cast_unsigned());
                LockName::advisory(1, u64::from(first) << u32::BITS | u64::from(second))
            }
        }
    }
}

impl AdvisoryLocks {
    pub(crate) fn new(table: &Arc<LockTable>, owner: Owner) -> Self {
        Self { table: Arc::clone(table), owner, held: BTreeMap::new() }
    }

    /// Whether it holds a lock.
    #[must_use]
    pub fn holds(&self, name: AdvisoryName) -> bool {
        self.held.contains_key(&name.lock_name())
    }

    /// Locks a name, waiting for at most so long. No round trip if the page of the lock is cached.
    /// Cancel safe: a future that is dropped has no place in the queue. Nothing is to be done for a
    /// lock that it has in this mode or alone. What it shares it does not get alone
    /// ([`LockOutcome::NotAvailable`], also for one that would wait): two that share it would wait
    /// for each other.
    ///
    /// # Errors
    /// [`TxnError::Deadlock`] and [`TxnError::LockTimeout`], both without names, which leave the
    /// other locks as they are; and what the lock tree reports.
    pub async fn lock(
        &mut self,
        name: AdvisoryName,
        mode: AdvisoryMode,
        wait: LockWait,
        timeout: Duration,
    ) -> Result<LockOutcome, TxnError> {
        let name = name.lock_name();
        if let Some(own) = self.held.get(&name) {
            return Ok(match mode == AdvisoryMode::Exclusive && own.is_shared() {
                true => LockOutcome::NotAvailable,
                false => LockOutcome::Held,
            });
        }
        let number = self.table.next_number();
        let request = match mode {
            AdvisoryMode::Exclusive => LockRequest::exclusive(self.owner, number),
            AdvisoryMode::Shared => LockRequest::shared(self.owner, number),
        };
        let mut place = QueuePlace::new(&self.table, name, request);
        let outcome = place.taken(wait, timeout, || {}).await;
        match outcome {
            Ok(LockOutcome::Held) => {
                // No await between: it is noted here or there.
                self.held.insert(name, place.withdrawn().await);
            }
            _ => place.left().await,
        }
        outcome
    }

    /// Lets others share a lock that it holds for itself alone.
    ///
    /// # Errors
    /// What the lock tree reports.
    pub async fn share(&mut self, name: AdvisoryName) -> Result<(), TxnError> {
        let name = name.lock_name();
        if let Some(place) = self.held.get_mut(&name) {
            place.share().await?;
        }
        Ok(())
    }

    /// Gives locks back, as far as it holds them. It has none of them from the first poll on: a
    /// future that is dropped leaves the rest to a task.
    pub async fn unlock(&mut self, names: impl IntoIterator<Item = AdvisoryName>) {
        for place in self.removed(names) {
            place.left().await;
        }
    }

    /// As [`unlock`](Self::unlock), by tasks of the node.
    pub fn unlock_later(&mut self, names: impl IntoIterator<Item = AdvisoryName>) {
        drop(self.removed(names));
    }

    fn removed(&mut self, names: impl IntoIterator<Item = AdvisoryName>) -> Vec<QueuePlace> {
        names.into_iter().filter_map(|name| self.held.remove(&name.lock_name())).collect()
    }
}
