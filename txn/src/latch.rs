//! Finding and latching the leaf for a key.

use selkie_btree::{LeafView, Stamp, Whereabouts};
use selkie_engine::{EngineError, GAddr, SharedGuard};

use crate::error::TxnError;
use crate::held::{Latch, Shown};
use crate::protocol::Reads;
use crate::structure::IndexInfo;
use crate::transaction::Txn;

/// How often a leaf is located anew after it was split, emptied or given back under our eyes.
pub(crate) const LOCATE_ATTEMPTS: u32 = 16;

/// How many right links are followed after one descent: splits whose separators are not posted yet,
/// also the many that one large transaction may have made itself.
pub(crate) const RIGHT_HOPS: u32 = 4096;

/// How a leaf is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// A latched leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// Held to the end of the transaction.
    Held(usize),
    /// Held until the next operation (in `Work::transient`).
    Transient,
}

/// A key's leaf and its place there: where it is, or where it would be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) leaf: Leaf,
    pub(crate) slot: Result<usize, usize>,
}

/// A held leaf and a key's place there.
type HeldPlace = (usize, Result<usize, usize>);

/// A leaf just latched, or held before.
pub(crate) enum Taken<'db> {
    Held(usize),
    Fresh(Latch<'db>),
    /// To be read at a place in the order of all transactions.
    Ordered(Latch<'db>, Stamp),
}

impl<'db> Txn<'db> {
    /// Latches the leaf that holds `key` or the gap where it would be.
    ///
    /// First the leaves of the tree that were used last are asked: transactions come back to a leaf
    /// much more often than not, and that saves the descent.
    pub(crate) async fn find(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        mode: Mode,
    ) -> Result<Found, TxnError> {
        // What was shown has been looked at: whoever waits for a leaf holds none that is not held
        // to the end.
        self.work.transient = None;
        if let Some((held, slot)) = self.find_recent(index, key)? {
            self.ensure(held, mode).await?;
            return Ok(Found { leaf: Leaf::Held(held), slot });
        }
        let engine = &self.db.engine;
        for _ in 0..LOCATE_ATTEMPTS {
            // Pages named by a page read under the pin are not used for something else meanwhile.
            let _pin = engine.pin();
            let mut addr = index.tree.locate(engine, key).await?;
            for _ in 0..RIGHT_HOPS {
                let taken = self.take(addr, mode).await?;
                match LeafView::new(self.taken_bytes(&taken))?.where_is(key)? {
                    #[cfg(feature = "planted")]
                    Whereabouts::Here(slot @ Err(_)) if self.leaves_gaps(mode) => {
                        return Ok(Found { leaf: self.show(taken), slot });
                    }
                    Whereabouts::Here(slot) => {
                        let leaf = self.keep(index, addr, taken, mode).await?;
                        return Ok(Found { leaf, slot });
                    }
                    Whereabouts::Right(next) => addr = next,
                    Whereabouts::Elsewhere => break,
                }
            }
        }
        Err(restless(index))
    }

    /// Looks for `key` in the leaves of the tree that were latched last.
    fn find_recent(&self, index: &IndexInfo, key: &[u8]) -> Result<Option<HeldPlace>, TxnError> {
        for held in self.work.held.recent(index.number) {
            if let Whereabouts::Here(slot) = LeafView::new(self.held_bytes(held))?.where_is(key)? {
                return Ok(Some((held, slot)));
            }
        }
        Ok(None)
    }

    /// The leaf at `addr`: as it is held, or freshly latched. Waits for no latch, or holds none.
    pub(crate) async fn take(&mut self, addr: GAddr, mode: Mode) -> Result<Taken<'db>, TxnError> {
        if let Some(held) = self.work.held.position(addr) {
            return Ok(Taken::Held(held));
        }
        if self.orders(mode) {
            let at = self.place().await?;
            return Ok(Taken::Ordered(self.latch_at(addr, at).await?, at));
        }
        let engine = &self.db.engine;
        let latch = match mode {
            // Nothing is held that others could wait for.
            _ if self.only_reads() => engine.shared(addr).await.map(Latch::Shared),
            Mode::Shared => engine.try_shared(addr).await.map(Latch::Shared),
            Mode::Exclusive => engine.try_exclusive(addr).await.map(Latch::Exclusive),
        };
        Ok(Taken::Fresh(latch?))
    }

    /// Keeps a latched leaf as long as the isolation asks for.
    pub(crate) async fn keep(
        &mut self,
        index: &IndexInfo,
        addr: GAddr,
        taken: Taken<'db>,
        mode: Mode,
    ) -> Result<Leaf, TxnError> {
        match taken {
            Taken::Held(held) => {
                self.ensure(held, mode).await?;
                Ok(Leaf::Held(held))
            }
            Taken::Fresh(Latch::Shared(guard)) if self.only_reads() => {
                // What is to be changed by what it was must not have been changed by others,
                // whatever the isolation.
                if self.is_serializable() || mode == Mode::Exclusive {
                    self.note_read(addr, guard.psn(), guard.lsn()).await?;
                }
                self.work.reads.rely_on(guard.lsn());
                self.work.transient = Some(match self.control().reads() {
                    Reads::Stamped => Shown::copy_of(&guard),
                    Reads::Latched | Reads::Noted => Shown::Latched(guard),
                });
                Ok(Leaf::Transient)
            }
            Taken::Fresh(Latch::Shared(guard)) if !self.holds_reads() => {
                self.work.reads.rely_on(guard.lsn());
                self.work.transient = Some(Shown::Latched(guard));
                Ok(Leaf::Transient)
            }
            Taken::Ordered(latch, at) => {
                self.work.transient = Some(self.read_ordered(latch, at)?);
                Ok(Leaf::Transient)
            }
            Taken::Fresh(latch) => Ok(Leaf::Held(self.work.held.add(index.number, addr, latch))),
        }
    }

    /// Whether a leaf that was only read stays latched to the end.
    fn holds_reads(&self) -> bool {
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::EarlyUnlock {
            return false;
        }
        self.is_serializable()
    }

    /// Whether a planted bug takes a gap that is read for nothing to be guarded.
    #[cfg(feature = "planted")]
    fn leaves_gaps(&self, mode: Mode) -> bool {
        mode == Mode::Shared && self.db.engine.planted() == selkie_engine::Planted::UnguardedGaps
    }

    /// Keeps a copy of a leaf until the next operation, and nothing else of it.
    #[cfg(feature = "planted")]
    fn show(&mut self, taken: Taken<'db>) -> Leaf {
        match taken {
            Taken::Held(held) => Leaf::Held(held),
            Taken::Fresh(latch) | Taken::Ordered(latch, _) => {
                self.work.transient = Some(Shown::copy_of(latch.bytes()));
                Leaf::Transient
            }
        }
    }

    /// Makes sure that a held leaf is held exclusively, if that is the mode.
    async fn ensure(&mut self, held: usize, mode: Mode) -> Result<(), TxnError> {
        if mode == Mode::Shared || matches!(self.work.held.latch(held), Some(Latch::Exclusive(_))) {
            return Ok(());
        }
        let Some(Latch::Shared(guard)) = self.work.held.take(held) else { return Ok(()) };
        self.upgrade(held, guard).await
    }

    /// Upgrades a held leaf. Its shared latch travels with the future: if that is dropped the latch
    /// is gone, and with it the right to rely on what was read; hence the mark.
    async fn upgrade(&mut self, held: usize, guard: SharedGuard<'db>) -> Result<(), TxnError> {
        let before = self.open_critical();
        let upgraded = guard.try_upgrade().await;
        self.close_critical(before);
        match upgraded {
            Ok(guard) => {
                self.work.held.put_back(held, Latch::Exclusive(guard));
                Ok(())
            }
            Err((guard, error)) => {
                self.work.held.put_back(held, Latch::Shared(guard));
                Err(match error {
                    EngineError::Busy { addr } => TxnError::Conflict { leaf: addr, upgrade: true },
                    other => other.into(),
                })
            }
        }
    }

    pub(crate) fn taken_bytes<'a>(&'a self, taken: &'a Taken<'db>) -> &'a [u8] {
        match taken {
            Taken::Held(held) => self.held_bytes(*held),
            Taken::Fresh(latch) | Taken::Ordered(latch, _) => latch.bytes(),
        }
    }

    /// The bytes of a latched leaf.
    pub(crate) fn leaf_bytes(&self, leaf: Leaf) -> &[u8] {
        match leaf {
            Leaf::Held(held) => self.held_bytes(held),
            Leaf::Transient => self.work.transient.as_deref().unwrap_or_default(),
        }
    }

    /// The bytes of a held leaf; none (which no leaf view accepts) if there is no such leaf.
    pub(crate) fn held_bytes(&self, held: usize) -> &[u8] {
        self.work.held.bytes(held).unwrap_or_default()
    }
}

pub(crate) fn restless(index: &IndexInfo) -> TxnError {
    TxnError::Restless { root: index.tree.root(), attempts: LOCATE_ATTEMPTS }
}
