//! Timestamp ordering: transactions take place in the order of their timestamps, and a transaction
//! that arrives too late for that order is run again (Bernstein and Goodman 1981, "basic" timestamp
//! ordering).
//!
//! Each leaf page carries the stamps of the latest transactions that have read and changed it
//! ([`Stamps`]). So the stamps travel with the page, they are logged and recovered with it, and
//! they hold for all keys of its range, also for keys that have no row. A transaction draws a stamp
//! from the [`clock`](crate::protocol::clock) at its first access, and follows two rules:
//!
//! | | if | then | else |
//! |---|---|---|---|
//! | reads a leaf | no later one changed it | its read stamp is at least this one | too late |
//! | changes a leaf | no later one read or changed it | its write stamp is this one | too late |
//!
//! A read latches a leaf, checks and stamps it, copies it, and releases the latch. Changes are
//! deferred to commit (in the [`WriteSet`](crate::protocol::write_set::WriteSet), as those of
//! optimistic transactions). Commit makes them with all the leaves that change latched:
//!
//! ```text
//! latch every leaf that is to change, exclusively, waiting for none
//!  -> check that no later transaction has read or changed any of them: this one takes place here
//!  -> change the leaves -> stamp them -> release them
//! ```
//!
//! # Why that is serializable
//!
//! Take two transactions that touch the same leaf, one of them to change it. The later one touches
//! it after the earlier one: if the earlier one reads what the later has changed, or changes what
//! it has read or changed, it is too late, as both stamps only grow (each becomes the greater of
//! what it was and the transaction's own). So every conflict goes from the earlier to the later
//! stamp, and there is no circle. No transaction sees what is not committed, so none has to be
//! rolled back for another. As all reads are right when they are made, nothing is validated later,
//! and a program only sees rows that were there together. A transaction that begins when another
//! has ended is later ([`Clock`]): the equivalent serial order is the order in which things
//! happened.
//!
//! A key moves from one leaf to another by a split, and where two leaves are merged. The tree
//! copies the stamps to both halves, and takes the later stamps of both, under the latches by which
//! it makes the change: a key's stamps do not go back. The leaf that a transaction changes may be
//! another than the one it has read, and has at least the stamps of that one. A transaction's own
//! stamp is no later than itself.
//!
//! # Latches
//!
//! To stamp a leaf takes its exclusive latch, which a reader waits for. So a reader holds nothing
//! that another could wait for while it waits: it continues with copies of leaves, and finds the
//! next one by the fence of the last. It holds no leaf that need not be stamped either, as
//! transactions that wait to stamp a leaf block others that want to share it. A transaction that
//! commits holds leaves, and only tries to latch further ones.
//!
//! # With a log
//!
//! A stamp that is lost with its node would let another transaction go before one that has ended.
//! So commit waits until the log is durable for the stamps of its reads, too, also where nothing
//! was changed.
//!
//! # What is not done
//!
//! Reads of [`ReadCommitted`](crate::Isolation::ReadCommitted) that are not for update leave no
//! stamps, and check none. A change that comes too late is never left out because a later one
//! overwrites it (Thomas' write rule): leaves are not overwritten as a whole. The rules of the
//! other protocols ignore stamps: a database in which there are stamps has no other transactions.

use selkie_btree::{LeafView, Stamp, Stamps, TreeError, leaf_stamp};
use selkie_engine::log::Lsn;
use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr, change_together};

use crate::error::TxnError;
use crate::protocol::clock::{Clock, LAST_STAMP};
use crate::protocol::leaf_latch::{LeafImage, LeafLatch};
use crate::protocol::lock_set::LockSet;

/// A later transaction has read or changed the leaf before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooLate;

/// A leaf's stamps after a read at `stamp`; `None` if they do not change.
fn stamps_after_read(stamps: Stamps, stamp: Stamp) -> Result<Option<Stamps>, TooLate> {
    if stamps.write > stamp {
        return Err(TooLate);
    }
    Ok((stamps.read < stamp).then_some(Stamps { read: stamp, ..stamps }))
}

/// A leaf's stamps after a change at `stamp`.
fn stamps_after_write(stamps: Stamps, stamp: Stamp) -> Result<Stamps, TooLate> {
    if stamps.read > stamp || stamps.write > stamp {
        return Err(TooLate);
    }
    Ok(Stamps { write: stamp, ..stamps })
}

/// One transaction's place in the order of all, and the rules applied with it.
pub(crate) struct TimestampOrder<'db> {
    engine: &'db Engine,
    clock: &'db Clock,
    /// `None` before the first access.
    stamp: Option<Stamp>,
}

impl<'db> TimestampOrder<'db> {
    pub(crate) fn new(engine: &'db Engine, clock: &'db Clock) -> Self {
        Self::at(engine, clock, None)
    }

    /// Of a transaction that has drawn this stamp, if any.
    pub(crate) fn at(engine: &'db Engine, clock: &'db Clock, stamp: Option<Stamp>) -> Self {
        Self { engine, clock, stamp }
    }

    /// The transaction's stamp, if it has drawn one.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// The transaction's stamp. The first call draws it: one round trip.
    pub(crate) async fn draw(&mut self) -> Result<Stamp, TxnError> {
        if let Some(stamp) = self.stamp {
            return Ok(stamp);
        }
        let stamp = self.clock.draw(self.engine).await?;
        self.stamp = Some(stamp);
        Ok(stamp)
    }

    /// Latches a leaf to be read at `stamp`: exclusively, unless the cached page shows that its
    /// stamps will not change.
    pub(crate) async fn latch(
        &self,
        addr: GAddr,
        stamp: Stamp,
    ) -> Result<LeafLatch<'db>, EngineError> {
        if let Some(guard) = self.engine.shared_hit(addr) {
            let after = LeafView::new(&guard).map(|leaf| self.read_rule(leaf.stamps(), stamp));
            if !matches!(after, Ok(Ok(Some(_)))) {
                return Ok(LeafLatch::Shared(guard));
            }
        }
        self.engine.exclusive(addr).await.map(LeafLatch::Exclusive)
    }

    /// Reads a leaf that [`latch`](Self::latch) latched: stamps it, and copies it. Returns as well
    /// up to where the log has to be durable before the caller may rely on the copy.
    pub(crate) fn read(
        &self,
        latch: LeafLatch<'db>,
        stamp: Stamp,
    ) -> Result<(LeafImage<'db>, Lsn), TxnError> {
        let addr = latch.addr();
        let stamps = stamps_of(latch.bytes(), addr)?;
        let after = self.read_rule(stamps, stamp).map_err(|TooLate| self.too_late(addr, stamps))?;
        Ok(match (after, latch) {
            (Some(stamps), LeafLatch::Exclusive(mut guard)) => {
                leaf_stamp(&mut guard, stamps);
                change_together([&mut guard]);
                (LeafImage::copy_of(&guard), guard.lsn())
            }
            (_, LeafLatch::Exclusive(guard)) => (LeafImage::copy_of(&guard), guard.lsn()),
            (_, LeafLatch::Shared(guard)) => (LeafImage::copy_of(&guard), guard.lsn()),
        })
    }

    /// Fails if a later transaction has read or changed one of the leaves that are held to be
    /// changed.
    pub(crate) fn check_writes(&self, locks: &LockSet<'_>) -> Result<(), TxnError> {
        // A transaction without a stamp has read nothing, so it changes nothing; one of another
        // protocol never draws a stamp.
        let Some(stamp) = self.stamp else { return Ok(()) };
        #[cfg(feature = "planted")]
        if self.engine.planted() == selkie_engine::Planted::UncheckedOrder {
            return Ok(());
        }
        for (_, guard) in locks.exclusive() {
            let stamps = stamps_of(guard, guard.addr())?;
            stamps_after_write(stamps, stamp)
                .map_err(|TooLate| self.too_late(guard.addr(), stamps))?;
        }
        Ok(())
    }

    /// Stamps the leaves that were changed: all that are held, also those that splits have made.
    pub(crate) fn stamp_writes(&self, locks: &mut LockSet<'_>) -> Result<(), TxnError> {
        let Some(stamp) = self.stamp else { return Ok(()) };
        let write = |guard: &mut ExclusiveGuard<'_>| {
            let stamps = stamps_of(guard, guard.addr())?;
            leaf_stamp(guard, Stamps { write: stamp, ..stamps });
            Ok(())
        };
        locks.exclusive_mut_all().try_for_each(write)
    }

    #[cfg_attr(not(feature = "planted"), expect(clippy::unused_self, reason = "a bug is a node's"))]
    fn read_rule(&self, stamps: Stamps, stamp: Stamp) -> Result<Option<Stamps>, TooLate> {
        #[cfg(feature = "planted")]
        if self.engine.planted() == selkie_engine::Planted::ReadStampsGoBack {
            return stamps_after_read(Stamps { read: Stamp::default(), ..stamps }, stamp);
        }
        stamps_after_read(stamps, stamp)
    }

    fn too_late(&self, leaf: GAddr, stamps: Stamps) -> TxnError {
        self.clock.observe(stamps.read.max(stamps.write));
        TxnError::TooLate { leaf }
    }
}

fn stamps_of(leaf: &[u8], addr: GAddr) -> Result<Stamps, TreeError> {
    let stamps = LeafView::new(leaf).map_err(|error| error.at(addr))?.stamps();
    if stamps.read.max(stamps.write) > LAST_STAMP {
        return Err(TreeError::Corrupt { addr, what: "a timestamp that was never given" });
    }
    Ok(stamps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(read: u64, write: u64) -> Stamps {
        Stamps { read: Stamp::new(read), write: Stamp::new(write) }
    }

    /// Every order of three stamps, ties included.
    #[test]
    fn the_rules_hold_for_every_order_of_stamps() {
        for (read, write, at) in (0..27).map(|n| (n / 9, n / 3 % 3, n % 3)) {
            let (before, own) = (stamps(read, write), Stamp::new(at));
            let reads = match () {
                () if write > at => Err(TooLate),
                () if read >= at => Ok(None),
                () => Ok(Some(stamps(at, write))),
            };
            assert_eq!(stamps_after_read(before, own), reads, "{before:?} read at {at}");
            let changes = match () {
                () if read.max(write) > at => Err(TooLate),
                () => Ok(stamps(read, at)),
            };
            assert_eq!(stamps_after_write(before, own), changes, "{before:?} changed at {at}");
            // Neither goes back.
            for after in [reads.ok().flatten(), changes.ok()].into_iter().flatten() {
                assert!(after.read >= before.read && after.write >= before.write);
            }
        }
    }
}
