//! Timestamp ordering: transactions take place in the order of their timestamps, and whoever comes
//! too late for that runs again (Bernstein and Goodman 1981, "basic" timestamp ordering).
//!
//! Each leaf carries the stamps of the latest transactions that have read and changed it
//! ([`Stamps`]), in its page: so they go where the page goes, they are logged and recovered as it
//! is, and they hold for all keys of its range, those that are not there as well. A transaction has
//! a stamp from its first access on (`clock.rs`), and goes by two rules:
//!
//! | | if | then | else |
//! |---|---|---|---|
//! | reads a leaf | nobody later has changed it | it is read by this one at least | too late |
//! | changes a leaf | nobody later has read or changed it | it is changed by this one | too late |
//!
//! A leaf is latched for the moment in which it is looked at, stamped and copied; changes are kept
//! aside until commit (as of optimistic transactions, `overlay.rs`), and made with all the leaves
//! that change latched:
//!
//! ```text
//! latch every leaf that is to change, exclusively, waiting for none
//!  -> nobody later has read or changed any of them: the transaction takes place here
//!  -> change the leaves -> stamp them -> let go
//! ```
//!
//! # Why that is serializable
//!
//! Of two transactions that touch the same leaf, one to change it, the later one does so after the
//! earlier one. If the earlier one reads what the later has changed, or changes what it has read or
//! changed, it is too late: both stamps only grow, as each is the greater of what it was and the
//! transaction's own. So every conflict goes from the earlier to the later stamp, and there is no
//! circle. Nobody sees what is not committed, so nobody has to be undone for another. As all reads
//! are right when they are made, nothing is looked at again, and what a program finds was there
//! together. A transaction that begins when another has ended is later
//! ([`Clock`](crate::clock::Clock)): what is equivalent to the history is the order in which things
//! happened.
//!
//! A key moves from one leaf to another by a split, and where an empty leaf is given back. The tree
//! copies the stamps to both halves, and takes the later ones of both, under the latches by which
//! it makes the change: a key's stamps do not go back. The leaf that a transaction changes may be
//! another than the one it has read, and has the stamps of that one at least. A transaction's own
//! stamp is no later than itself.
//!
//! # Latches
//!
//! To stamp a leaf takes its exclusive latch, for which a reader waits. So a reader holds nothing
//! that another could wait for while it waits: it goes on with copies of leaves, and finds the next
//! one by the fence of the last. It holds as well no leaf that is not to be stamped, as those who
//! wait to stamp one are in the way of others that want to share it. Whoever commits holds leaves,
//! and only tries to get others.
//!
//! # With a log
//!
//! A stamp that is lost with its node lets others go before a transaction that has ended. So commit
//! waits until the log is durable for stamps that were read by, too, also where nothing was
//! changed.
//!
//! # What is not done
//!
//! Reads of [`ReadCommitted`](crate::Isolation::ReadCommitted) that are not for update leave no
//! stamps, and look at none. A change that comes too late is never left out because a later one
//! overwrites it: leaves are not overwritten as a whole. Nobody else's rules know of stamps: a
//! database in which there are any has no other transactions.

use selkie_btree::{LeafView, Stamp, Stamps, TreeError, leaf_stamp};
use selkie_engine::{EngineError, ExclusiveGuard, GAddr, change_together};

use crate::clock::LAST;
use crate::error::TxnError;
use crate::held::{Latch, Shown};
use crate::latch::Mode;
use crate::protocol::Reads;
use crate::transaction::Txn;

/// A transaction that is later has been there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooLate;

/// What a leaf's stamps become when it is read at a place in the order; `None` if they stay.
fn read_at(stamps: Stamps, at: Stamp) -> Result<Option<Stamps>, TooLate> {
    if stamps.write > at {
        return Err(TooLate);
    }
    Ok((stamps.read < at).then_some(Stamps { read: at, ..stamps }))
}

/// What they become when it is changed.
fn change_at(stamps: Stamps, at: Stamp) -> Result<Stamps, TooLate> {
    if stamps.read > at || stamps.write > at {
        return Err(TooLate);
    }
    Ok(Stamps { write: at, ..stamps })
}

impl<'db> Txn<'db> {
    /// Whether what is read in this mode takes its place in the order of all transactions.
    pub(crate) fn orders(&self, mode: Mode) -> bool {
        // What is to be changed by what it was must not have been changed by others, whatever the
        // isolation.
        let matters = self.is_serializable() || mode == Mode::Exclusive;
        self.control().reads() == Reads::Stamped && self.only_reads() && matters
    }

    /// The transaction's place in the order. Its first access decides on that: one round trip.
    pub(crate) async fn place(&mut self) -> Result<Stamp, TxnError> {
        if let Some(stamp) = self.stamp {
            return Ok(stamp);
        }
        let stamp = self.db.clock.draw(&self.db.engine).await?;
        self.stamp = Some(stamp);
        Ok(stamp)
    }

    /// Latches a leaf to be read at a place in the order: exclusively, unless it is seen that it
    /// need not be stamped.
    pub(crate) async fn latch_at(&self, addr: GAddr, at: Stamp) -> Result<Latch<'db>, EngineError> {
        let engine = &self.db.engine;
        if let Some(guard) = engine.shared_hit(addr) {
            let stamped = LeafView::new(&guard).map(|leaf| self.read_rule(leaf.stamps(), at));
            if !matches!(stamped, Ok(Ok(Some(_)))) {
                return Ok(Latch::Shared(guard));
            }
        }
        engine.exclusive(addr).await.map(Latch::Exclusive)
    }

    /// Reads a leaf that was latched for it: stamps it, and copies it.
    pub(crate) fn read_ordered(
        &mut self,
        latch: Latch<'db>,
        at: Stamp,
    ) -> Result<Shown<'db>, TxnError> {
        let addr = latch.addr();
        let stamps = stamps_of(latch.bytes(), addr)?;
        let stamped = self.read_rule(stamps, at).map_err(|TooLate| self.too_late(addr, stamps))?;
        let (lsn, copy) = match (stamped, latch) {
            (Some(stamps), Latch::Exclusive(mut guard)) => {
                leaf_stamp(&mut guard, stamps);
                change_together([&mut guard]);
                (guard.lsn(), Shown::copy_of(&guard))
            }
            (_, Latch::Exclusive(guard)) => (guard.lsn(), Shown::copy_of(&guard)),
            (_, Latch::Shared(guard)) => (guard.lsn(), Shown::copy_of(&guard)),
        };
        self.work.reads.rely_on(lsn);
        Ok(copy)
    }

    /// Fails if a later transaction has read or changed one of the leaves that are held to be
    /// changed.
    pub(crate) fn check_order(&self) -> Result<(), TxnError> {
        // Who has not read anything has nothing to change.
        let Some(at) = self.stamp else { return Ok(()) };
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::UncheckedOrder {
            return Ok(());
        }
        for (_, guard) in self.work.held.exclusive() {
            let stamps = stamps_of(guard, guard.addr())?;
            change_at(stamps, at).map_err(|TooLate| self.too_late(guard.addr(), stamps))?;
        }
        Ok(())
    }

    /// Stamps the leaves that were changed: all that are held, also those that came of splits.
    pub(crate) fn stamp_changes(&mut self) -> Result<(), TxnError> {
        let Some(at) = self.stamp else { return Ok(()) };
        let stamp = |guard: &mut ExclusiveGuard<'db>| {
            let stamps = stamps_of(guard, guard.addr())?;
            leaf_stamp(guard, Stamps { write: at, ..stamps });
            Ok(())
        };
        self.work.held.exclusive_mut_all().try_for_each(stamp)
    }

    #[cfg_attr(not(feature = "planted"), expect(clippy::unused_self, reason = "a bug is a node's"))]
    fn read_rule(&self, stamps: Stamps, at: Stamp) -> Result<Option<Stamps>, TooLate> {
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::ReadStampsGoBack {
            return read_at(Stamps { read: Stamp::default(), ..stamps }, at);
        }
        read_at(stamps, at)
    }

    fn too_late(&self, leaf: GAddr, stamps: Stamps) -> TxnError {
        self.db.clock.meet(stamps.read.max(stamps.write));
        TxnError::TooLate { leaf }
    }
}

fn stamps_of(leaf: &[u8], addr: GAddr) -> Result<Stamps, TreeError> {
    let stamps = LeafView::new(leaf).map_err(|error| error.at(addr))?.stamps();
    if stamps.read.max(stamps.write) > LAST {
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
            assert_eq!(read_at(before, own), reads, "{before:?} read at {at}");
            let changes = match () {
                () if read.max(write) > at => Err(TooLate),
                () => Ok(stamps(read, at)),
            };
            assert_eq!(change_at(before, own), changes, "{before:?} changed at {at}");
            // Neither goes back.
            for after in [reads.ok().flatten(), changes.ok()].into_iter().flatten() {
                assert!(after.read >= before.read && after.write >= before.write);
            }
        }
    }
}
