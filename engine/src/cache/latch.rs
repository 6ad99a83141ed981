//! The local latch of a frame: one 64-bit word that a hit acquires with a single atomic.
//!
//! ```text
//! bit 63        32 31      21  20   19   18   17   16  15          0
//!     +-----------+----------+----+----+----+----+----+-------------+
//!     | version   | unused   | RF | PE | WB | RB | WR | readers: 16 |
//!     +-----------+----------+----+----+----+----+----+-------------+
//! ```
//! WR: an exclusive holder. RB, WB: the line's coherence state allows reading, writing. PE:
//! there is a waiter (a local task or a deferred request), so releases take the slow path. RF: used
//! since the clock hand last passed. version: count of exclusive releases and of seals.
//!
//! RB, WB and PE change only under the lock of the line's shard; taking both permissions away
//! ([`FrameLatch::seal`]) keeps new users out while the coherence machine makes a step, and tells
//! exactly which holders are still in.

use crate::coherence::machine::LocalUse;
use crate::sync::{AtomicU64, Ordering};

const READERS: u64 = 0xFFFF;
const ONE_READER: u64 = 1;
const WRITER: u64 = 1 << 16;
const READABLE: u64 = 1 << 17;
const WRITABLE: u64 = 1 << 18;
const PENDING: u64 = 1 << 19;
const REFERENCED: u64 = 1 << 20;
const ONE_VERSION: u64 = 1 << 32;

/// Shared holders a frame can have at once. One below the field, so that a full count never
/// carries.
pub(crate) const MAX_READERS: u64 = READERS - 1;

/// What the coherence state and the waiters demand of the latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permissions {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) pending: bool,
}

/// The latch word.
#[derive(Debug, Default)]
pub(crate) struct FrameLatch(AtomicU64);

/// What a release found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Released {
    /// There is no waiter.
    Quiet,
    /// There is a waiter and the latch may have become free: take the slow path.
    Notify,
}

impl FrameLatch {
    /// Takes the latch shared if the state allows reading and there is no waiter. One atomic.
    #[inline]
    pub(crate) fn try_shared_fast(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & (READABLE | WRITER | PENDING) == READABLE && word & READERS < MAX_READERS {
            let new = (word + ONE_READER) | REFERENCED;
            // Acquire pairs with the Release of unlock_exclusive and of publish: the page's bytes.
            match self.0.compare_exchange_weak(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the latch shared while it is sealed; the caller holds the shard's lock and has seen
    /// that the line may be read.
    pub(crate) fn try_shared_sealed(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & WRITER == 0 && word & READERS < MAX_READERS {
            let new = (word + ONE_READER) | REFERENCED;
            // Acquire pairs with the Release of unlock_exclusive: the page's bytes.
            match self.0.compare_exchange_weak(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the latch exclusively if the state allows writing and there is no waiter. One atomic.
    #[inline]
    pub(crate) fn try_exclusive_fast(&self) -> bool {
        self.try_exclusive(WRITABLE | WRITER | PENDING | READERS, WRITABLE, WRITER)
    }

    /// Takes the latch exclusively while it is sealed; the caller holds the shard's lock and has
    /// seen that the line may be written.
    pub(crate) fn try_exclusive_sealed(&self) -> bool {
        self.try_exclusive(WRITER | READERS, 0, WRITER)
    }

    /// Takes the latch while it is sealed, exclusively or shared, as the two above.
    pub(crate) fn try_sealed(&self, exclusive: bool) -> bool {
        if exclusive { self.try_exclusive_sealed() } else { self.try_shared_sealed() }
    }

    /// Turns the caller's shared latch into an exclusive one if it is the only one; the caller
    /// holds the shard's lock and has seen that the line may be written.
    pub(crate) fn try_upgrade_sealed(&self) -> bool {
        self.try_exclusive(WRITER | READERS, ONE_READER, WRITER - ONE_READER)
    }

    /// Whether more than one shared holder is in.
    pub(crate) fn is_crowded(&self) -> bool {
        self.0.load(Ordering::Relaxed) & READERS > ONE_READER
    }

    #[inline]
    fn try_exclusive(&self, tested: u64, wanted: u64, add: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & tested == wanted {
            // Acquire pairs with the Release of every unlock and of publish: the page's bytes.
            match self.0.compare_exchange_weak(
                word,
                (word + add) | REFERENCED,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Releases a shared latch. One atomic.
    #[inline]
    pub(crate) fn unlock_shared(&self) -> Released {
        // Release pairs with the Acquire of try_exclusive and seal: reads end before a write.
        let old = self.0.fetch_sub(ONE_READER, Ordering::Release);
        debug_assert!(old & READERS > 0, "shared latch released twice");
        if old & PENDING != 0 && old & READERS == ONE_READER {
            Released::Notify
        } else {
            Released::Quiet
        }
    }

    /// Releases an exclusive latch. One atomic.
    #[inline]
    pub(crate) fn unlock_exclusive(&self) -> Released {
        // Release pairs with the Acquire of the next try_*: the bytes written.
        let old = self.0.fetch_add(ONE_VERSION.wrapping_sub(WRITER), Ordering::Release);
        debug_assert!(old & WRITER != 0, "exclusive latch released twice");
        if old & PENDING != 0 { Released::Notify } else { Released::Quiet }
    }

    /// Turns the caller's exclusive latch into a shared one.
    pub(crate) fn downgrade(&self) -> Released {
        let delta = (ONE_VERSION + ONE_READER).wrapping_sub(WRITER);
        // Release pairs with the Acquire of other readers: the bytes written.
        let old = self.0.fetch_add(delta, Ordering::Release);
        debug_assert!(old & WRITER != 0, "downgrade without an exclusive latch");
        if old & PENDING != 0 { Released::Notify } else { Released::Quiet }
    }

    /// Takes both permissions away and returns the holders. No user gets in until
    /// [`Self::publish`].
    pub(crate) fn seal(&self) -> LocalUse {
        // AcqRel: what the holders before did is seen by the step, and stays before it.
        let old = self.0.fetch_and(!(READABLE | WRITABLE), Ordering::AcqRel);
        use_of(old)
    }

    /// Sets the permissions after a step and returns the holders.
    pub(crate) fn publish(&self, to: Permissions) -> LocalUse {
        let mut bits = 0;
        if to.readable {
            bits |= READABLE;
        }
        if to.writable {
            bits |= WRITABLE;
        }
        if to.pending {
            bits |= PENDING;
        }
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let new = (word & !(READABLE | WRITABLE | PENDING)) | bits;
            // Release pairs with the Acquire of try_*: the page that a fetch or grant brought.
            match self.0.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return use_of(word),
                Err(now) => word = now,
            }
        }
    }

    /// The current holders.
    pub(crate) fn in_use(&self) -> LocalUse {
        use_of(self.0.load(Ordering::Acquire))
    }

    /// The permissions in the word: (readable, writable).
    pub(crate) fn permissions(&self) -> (bool, bool) {
        let word = self.0.load(Ordering::Relaxed);
        (word & READABLE != 0, word & WRITABLE != 0)
    }

    /// Gives the frame the second chance of one that was used: it is about to be.
    pub(crate) fn refer(&self) {
        self.0.fetch_or(REFERENCED, Ordering::Relaxed);
    }

    /// Whether the frame is idle and was not used since the last call: the clock's second chance.
    pub(crate) fn second_chance_over(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        if word & (READERS | WRITER | PENDING) != 0 || word & READABLE == 0 {
            return false;
        }
        if word & REFERENCED != 0 {
            self.0.fetch_and(!REFERENCED, Ordering::Relaxed);
            return false;
        }
        true
    }
}

fn use_of(word: u64) -> LocalUse {
    if word & WRITER != 0 {
        LocalUse::Writer
    } else if word & READERS != 0 {
        LocalUse::Readers
    } else {
        LocalUse::Idle
    }
}
