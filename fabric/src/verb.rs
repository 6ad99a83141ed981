//! The five verbs, and chains of them: the operations on the memory of another node.

use std::fmt;

use smallvec::SmallVec;

use crate::access::Access;
use crate::buf::Buf;
use crate::error::FabricError;
use crate::id::RemoteAddr;

/// Verbs a chain holds without a heap allocation.
pub const INLINE_VERBS: usize = 3;

/// One one-sided operation on the memory of the peer at the other end of a queue pair.
///
/// Payload lengths are those of the buffers. Values are little-endian in memory.
#[derive(Debug)]
pub enum Verb {
    /// Copy remote memory at `at` into `into`.
    Read {
        /// Where to read.
        at: RemoteAddr,
        /// Filled by the verb.
        into: Buf,
    },
    /// Copy `from` to remote memory at `at`.
    Write {
        /// Where to write.
        at: RemoteAddr,
        /// What to write.
        from: Buf,
    },
    /// A [`Verb::Write`] after which the region's doorbell is rung.
    WriteWithDoorbell {
        /// Where to write.
        at: RemoteAddr,
        /// What to write.
        from: Buf,
    },
    /// Set the word at `at` to `desired` if it is `expected`, atomically.
    CompareAndSwap {
        /// The word.
        at: RemoteAddr,
        /// The value it must have.
        expected: u64,
        /// The value it then gets.
        desired: u64,
        /// Filled by the verb: the value found. It equals `expected` exactly if the verb swapped.
        old: Option<u64>,
    },
    /// Add `delta` to the word at `at`, wrapping around, atomically.
    FetchAndAdd {
        /// The word.
        at: RemoteAddr,
        /// What to add; to subtract `n`, add `n.wrapping_neg()`.
        delta: u64,
        /// Filled by the verb: the value before.
        old: Option<u64>,
    },
}

impl Verb {
    /// A read of `into.len()` bytes.
    pub fn read(at: RemoteAddr, into: Buf) -> Self {
        Self::Read { at, into }
    }

    /// A write of `from.len()` bytes.
    pub fn write(at: RemoteAddr, from: Buf) -> Self {
        Self::Write { at, from }
    }

    /// A write of `from.len()` bytes that rings the region's doorbell.
    pub fn write_with_doorbell(at: RemoteAddr, from: Buf) -> Self {
        Self::WriteWithDoorbell { at, from }
    }

    /// A compare-and-swap that has not executed.
    pub fn compare_and_swap(at: RemoteAddr, expected: u64, desired: u64) -> Self {
        Self::CompareAndSwap { at, expected, desired, old: None }
    }

    /// A fetch-and-add that has not executed.
    pub fn fetch_and_add(at: RemoteAddr, delta: u64) -> Self {
        Self::FetchAndAdd { at, delta, old: None }
    }

    /// Where the verb acts.
    pub fn at(&self) -> RemoteAddr {
        match self {
            Self::Read { at, .. }
            | Self::Write { at, .. }
            | Self::WriteWithDoorbell { at, .. }
            | Self::CompareAndSwap { at, .. }
            | Self::FetchAndAdd { at, .. } => *at,
        }
    }

    /// The kind of access.
    pub fn access(&self) -> Access {
        match self {
            Self::Read { .. } => Access::Read,
            Self::Write { .. } | Self::WriteWithDoorbell { .. } => Access::Write,
            Self::CompareAndSwap { .. } | Self::FetchAndAdd { .. } => Access::Atomic,
        }
    }

    /// The value that an executed atomic found; `None` for an atomic that has not executed, and for
    /// the other verbs. Where the verb must have executed, [`Verb::old_value`] says so.
    pub fn old(&self) -> Option<u64> {
        match self {
            Self::CompareAndSwap { old, .. } | Self::FetchAndAdd { old, .. } => *old,
            _ => None,
        }
    }

    /// The value that an executed atomic found.
    ///
    /// # Panics
    /// If the verb is no atomic, or has not executed.
    #[track_caller]
    pub fn old_value(&self) -> u64 {
        match self.old() {
            Some(old) => old,
            None => panic!("no executed atomic: {self:?}"),
        }
    }

    /// The payload; `None` for an atomic.
    pub fn buf(&self) -> Option<&Buf> {
        match self {
            Self::Read { into: buf, .. }
            | Self::Write { from: buf, .. }
            | Self::WriteWithDoorbell { from: buf, .. } => Some(buf),
            _ => None,
        }
    }

    /// Takes the payload out; `None` for an atomic.
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Read { into: buf, .. }
            | Self::Write { from: buf, .. }
            | Self::WriteWithDoorbell { from: buf, .. } => Some(buf),
            _ => None,
        }
    }
}

/// Verbs that are posted together to one peer: they execute in this order, with one round trip and
/// one completion.
///
/// A chain is ordered, not atomic: verbs of other queue pairs may execute between its verbs. Up to
/// [`INLINE_VERBS`] verbs need no allocation.
#[derive(Debug, Default)]
pub struct Chain {
    /// The verbs, in order of execution.
    pub verbs: SmallVec<[Verb; INLINE_VERBS]>,
}

impl Chain {
    /// A chain without verbs.
    pub fn new() -> Self {
        Self { verbs: SmallVec::new() }
    }

    /// Adds a verb at the end.
    pub fn push(&mut self, verb: Verb) {
        self.verbs.push(verb);
    }

    /// The value that the atomic at `index` found; `None` if there is no such verb, it is no
    /// atomic, or it has not executed. Where it must have executed, [`Chain::old_value`] says so.
    pub fn old(&self, index: usize) -> Option<u64> {
        self.verbs.get(index).and_then(Verb::old)
    }

    /// The value that the executed atomic at `index` found.
    ///
    /// # Panics
    /// If there is no such verb, it is no atomic, or it has not executed.
    #[track_caller]
    pub fn old_value(&self, index: usize) -> u64 {
        match self.verbs.get(index) {
            Some(verb) => verb.old_value(),
            None => panic!("verb {index} of a chain of {}", self.verbs.len()),
        }
    }

    /// The payload of the verb at `index`; `None` if there is no such verb or it is an atomic.
    pub fn buf(&self, index: usize) -> Option<&Buf> {
        self.verbs.get(index).and_then(Verb::buf)
    }
}

impl<const N: usize> From<[Verb; N]> for Chain {
    #[inline]
    fn from(verbs: [Verb; N]) -> Self {
        Self { verbs: SmallVec::from_iter(verbs) }
    }
}

impl From<Verb> for Chain {
    fn from(verb: Verb) -> Self {
        Self::from([verb])
    }
}

/// The outcome of a chain: the chain with its results, or the error that stopped it.
pub type ChainResult = Result<Chain, Box<ChainError>>;

/// A chain that stopped. The verbs before [`ChainError::executed`] are done, the verb at that index
/// failed with [`ChainError::error`], and the later ones were not executed.
#[derive(Debug, thiserror::Error)]
pub struct ChainError {
    /// The chain, so that no buffer is lost.
    pub chain: Chain,
    /// How many verbs are known to have executed. After a peer's death more may have.
    pub executed: usize,
    /// Why the next one failed.
    #[source]
    pub error: FabricError,
}

impl ChainError {
    /// Whether posting the rest of the chain again may succeed.
    pub fn is_retryable(&self) -> bool {
        self.error.is_retryable()
    }
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chain stopped after {} of {} verbs", self.executed, self.chain.verbs.len())
    }
}

// A chain is moved by value through every layer, so its size is part of the cost of a post.
const _: () = assert!(size_of::<Verb>() <= 56);
const _: () = assert!(size_of::<Chain>() <= 184);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RegionKey;

    const AT: RemoteAddr = RemoteAddr::new(RegionKey::from_raw(1), 8);

    #[test]
    fn an_atomic_has_an_old_value_once_it_has_executed() {
        let executed = Verb::FetchAndAdd { at: AT, delta: 1, old: Some(0) };
        let chain = Chain::from([Verb::compare_and_swap(AT, 0, 1), executed]);
        assert_eq!([chain.old(0), chain.old(1), chain.old(2)], [None, Some(0), None]);
        assert_eq!(chain.old_value(1), 0);
    }

    #[test]
    #[should_panic(expected = "no executed atomic")]
    fn the_old_value_of_an_atomic_that_has_not_executed_panics() {
        Chain::from(Verb::compare_and_swap(AT, 0, 1)).old_value(0);
    }
}
