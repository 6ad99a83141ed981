//! The leaves that a transaction has read and does not hold, and whether they are still as they
//! were.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use selkie_engine::GAddr;
use selkie_engine::log::Lsn;

use crate::error::TxnError;
use crate::held::{AddrHasher, Latch};
use crate::transaction::Txn;

/// Up to so many leaves are all looked at again whenever another one is read; of more, so many at a
/// time, in turn.
const LOOKED_AT: usize = 64;

/// What was read: each leaf with its sequence number.
#[derive(Default)]
pub(crate) struct Reads {
    leaves: Vec<(GAddr, u64)>,
    by_addr: HashMap<u64, u64, BuildHasherDefault<AddrHasher>>,
    /// Up to where the node's log has to be durable before anybody may rely on what was read.
    lsn: Lsn,
    /// Where the next look begins.
    next: usize,
}

impl Reads {
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// What was read is to be relied on when the log is durable up to here.
    pub(crate) fn rely_on(&mut self, lsn: Lsn) {
        self.lsn = self.lsn.max(lsn);
    }

    fn get(&self, addr: GAddr) -> Option<u64> {
        self.by_addr.get(&addr.to_u64()).copied()
    }

    fn add(&mut self, addr: GAddr, psn: u64) {
        self.by_addr.insert(addr.to_u64(), psn);
        self.leaves.push((addr, psn));
    }

    /// The leaf to be looked at next, in turn.
    fn next(&mut self) -> Option<(GAddr, u64)> {
        let at = if self.next < self.leaves.len() { self.next } else { 0 };
        self.next = at + 1;
        self.leaves.get(at).copied()
    }

    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
        self.by_addr.clear();
        (self.next, self.lsn) = (0, 0);
    }
}

impl Txn<'_> {
    /// Notes that a leaf was read, whose latch is still held. First what was read before is looked
    /// at again, so that the transaction never goes by pages that were never there together.
    ///
    /// # Errors
    /// `Stale`; `Conflict` if another has one of them latched, who may have changed it since,
    /// whatever it was before.
    pub(crate) async fn note_read(
        &mut self,
        addr: GAddr,
        psn: u64,
        lsn: Lsn,
    ) -> Result<(), TxnError> {
        self.work.reads.rely_on(lsn);
        match self.work.reads.get(addr) {
            Some(before) if before == psn => return Ok(()),
            Some(_) => return Err(TxnError::Stale { leaf: addr }),
            None => {}
        }
        self.look_again(self.work.reads.leaves.len().min(LOOKED_AT)).await?;
        self.work.reads.add(addr, psn);
        Ok(())
    }

    /// Fails unless all leaves that were read are as they were.
    pub(crate) async fn validate(&mut self) -> Result<(), TxnError> {
        self.look_again(self.work.reads.leaves.len()).await
    }

    /// An error that tells what the data is: true only if what was read was there together. Nothing
    /// is noted where that is so anyway.
    pub(crate) async fn if_as_read(&mut self, error: TxnError) -> TxnError {
        self.validate().await.err().unwrap_or(error)
    }

    /// Looks at so many of the leaves that were read.
    async fn look_again(&mut self, count: usize) -> Result<(), TxnError> {
        for _ in 0..count {
            let Some((addr, psn)) = self.work.reads.next() else { return Ok(()) };
            if !self.is_as_read(addr, psn).await? {
                return Err(TxnError::Stale { leaf: addr });
            }
        }
        Ok(())
    }

    async fn is_as_read(&self, addr: GAddr, psn: u64) -> Result<bool, TxnError> {
        if let Some(held) = self.work.held.position(addr) {
            // Its number is that from before what this transaction changes.
            return Ok(match self.work.held.latch(held) {
                Some(Latch::Exclusive(guard)) => guard.psn() == psn,
                Some(Latch::Shared(guard)) => guard.psn() == psn,
                None => false,
            });
        }
        let engine = &self.db.engine;
        if let Some(now) = engine.psn_if_cached(addr) {
            return Ok(now == psn);
        }
        Ok(engine.try_shared(addr).await?.psn() == psn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_looked_at_in_turn() {
        let mut reads = Reads::default();
        let all = [8, 16, 24].map(GAddr::from_u64);
        assert_eq!((reads.get(all[0]), reads.next()), (None, None));
        for addr in all {
            reads.add(addr, 3);
            // As many as there are, each of them once.
            let mut looked: Vec<_> = (0..reads.leaves.len()).filter_map(|_| reads.next()).collect();
            looked.sort_unstable_by_key(|(addr, _)| addr.to_u64());
            assert_eq!(looked, reads.leaves);
        }
        assert_eq!(reads.get(all[1]), Some(3));
        reads.clear();
        assert_eq!((reads.get(all[1]), reads.next()), (None, None));
    }
}
