//! The leaves that a transaction has read and does not hold, and whether they are unchanged since:
//! the read set of optimistic concurrency control, and of two-phase locked transactions that read
//! more leaves than they may keep latched.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use selkie_engine::log::Lsn;
use selkie_engine::{Engine, GAddr};

use crate::error::TxnError;
use crate::protocol::lock_set::{AddrHasher, LockSet};

/// A read set of up to so many leaves is validated as a whole whenever another leaf is read; of a
/// larger one, so many leaves in turn, if they are cached. Commit validates all.
const VALIDATED_AT_ONCE: usize = 64;

/// What was read: each leaf with its page sequence number.
#[derive(Default)]
pub(crate) struct ReadSet {
    leaves: Vec<(GAddr, u64)>,
    by_addr: HashMap<u64, u64, BuildHasherDefault<AddrHasher>>,
    /// Up to where the node's log has to be durable before the caller may rely on what was read.
    lsn: Lsn,
    /// Where the next validation begins.
    next: usize,
}

impl ReadSet {
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// What was read is reliable only when the log is durable up to here.
    pub(crate) fn rely_on(&mut self, lsn: Lsn) {
        self.lsn = self.lsn.max(lsn);
    }

    /// Adds a leaf that was read, whose latch is still held. Validates leaves that were read before
    /// first, so that the transaction never sees pages of different states.
    ///
    /// # Errors
    /// `Stale`; `Conflict` if another transaction has one of the leaves latched: it may have
    /// changed the leaf.
    pub(crate) async fn add(
        &mut self,
        engine: &Engine,
        locks: &LockSet<'_>,
        addr: GAddr,
        psn: u64,
        lsn: Lsn,
    ) -> Result<(), TxnError> {
        self.rely_on(lsn);
        match self.psn_of(addr) {
            Some(before) if before == psn => return Ok(()),
            Some(_) => return Err(TxnError::Stale { leaf: addr }),
            None => {}
        }
        if self.leaves.len() <= VALIDATED_AT_ONCE {
            self.validate(engine, locks, 0).await?;
        } else {
            self.validate_cached(engine, locks)?;
        }
        self.insert(addr, psn);
        Ok(())
    }

    /// Fails unless every leaf that was read is unchanged. Of a large set, `ahead` leaves are
    /// fetched at a time.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) async fn validate(
        &self,
        engine: &Engine,
        locks: &LockSet<'_>,
        ahead: usize,
    ) -> Result<(), TxnError> {
        let ahead = if self.leaves.len() > VALIDATED_AT_ONCE { ahead } else { 0 };
        let mut pages = Vec::with_capacity(ahead);
        let at_once = if ahead > 0 { ahead } else { usize::MAX };
        for some in self.leaves.chunks(at_once) {
            if ahead > 0 {
                pages.clear();
                pages.extend(some.iter().map(|(addr, _)| *addr));
                engine.prefetch_all(&pages);
            }
            for (addr, psn) in some {
                let now = match psn_if_here(engine, locks, *addr) {
                    Some(now) => now,
                    None => engine.try_shared(*addr).await?.psn(),
                };
                unchanged(*addr, *psn, now)?;
            }
        }
        Ok(())
    }

    /// Fails if one of the leaves next in turn is cached and has changed. Fetches none: a
    /// transaction that reads more leaves than the cache holds would fetch each of them many times.
    fn validate_cached(&mut self, engine: &Engine, locks: &LockSet<'_>) -> Result<(), TxnError> {
        for _ in 0..VALIDATED_AT_ONCE {
            let Some((addr, psn)) = self.next() else { return Ok(()) };
            if let Some(now) = psn_if_here(engine, locks, addr) {
                unchanged(addr, psn, now)?;
            }
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
        self.by_addr.clear();
        (self.next, self.lsn) = (0, 0);
    }

    fn psn_of(&self, addr: GAddr) -> Option<u64> {
        self.by_addr.get(&addr.to_u64()).copied()
    }

    fn insert(&mut self, addr: GAddr, psn: u64) {
        self.by_addr.insert(addr.to_u64(), psn);
        self.leaves.push((addr, psn));
    }

    /// The leaf to be validated next, in turn.
    fn next(&mut self) -> Option<(GAddr, u64)> {
        let at = if self.next < self.leaves.len() { self.next } else { 0 };
        self.next = at + 1;
        self.leaves.get(at).copied()
    }
}

/// The page sequence number of a leaf that is held or cached.
pub(crate) fn psn_if_here(engine: &Engine, locks: &LockSet<'_>, addr: GAddr) -> Option<u64> {
    match locks.position(addr) {
        Some(held) => Some(locks.latch(held).psn()),
        None => engine.psn_if_cached(addr),
    }
}

fn unchanged(leaf: GAddr, before: u64, now: u64) -> Result<(), TxnError> {
    if before == now { Ok(()) } else { Err(TxnError::Stale { leaf }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_validated_in_turn() {
        let mut reads = ReadSet::default();
        let all = [8, 16, 24].map(GAddr::from_u64);
        assert_eq!((reads.psn_of(all[0]), reads.next()), (None, None));
        for addr in all {
            reads.insert(addr, 3);
            // As many as there are, each of them once.
            let mut turns: Vec<_> = (0..reads.leaves.len()).filter_map(|_| reads.next()).collect();
            turns.sort_unstable_by_key(|(addr, _)| addr.to_u64());
            assert_eq!(turns, reads.leaves);
        }
        assert_eq!(reads.psn_of(all[1]), Some(3));
        reads.clear();
        assert_eq!((reads.psn_of(all[1]), reads.next()), (None, None));
    }
}
