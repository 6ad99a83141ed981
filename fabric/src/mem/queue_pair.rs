//! The queue pair of the `mem` fabric: executes verbs inside `post`.
//!
//! Posting order is execution order because `post` returns after the last verb. The fast path
//! allocates nothing and takes no lock; only a failed chain allocates, for its error.

use std::ops::Range;
use std::sync::Arc;

use crate::api::QueuePair;
use crate::buf::WORD_BYTES;
use crate::completion::Completion;
use crate::error::FabricError;
use crate::id::{PeerId, RemoteAddr};
use crate::mem::fabric::Stay;
use crate::mem::node::{MemRegion, Node};
use crate::mem::words::Words;
use crate::verb::{Chain, Verb};

pub(crate) struct MemQueuePair {
    owner: Arc<Node>,
    _stay: Arc<Stay>,
    target: Arc<Node>,
}

impl MemQueuePair {
    pub(crate) fn new(owner: Arc<Node>, stay: Arc<Stay>, target: Arc<Node>) -> Self {
        Self { owner, _stay: stay, target }
    }

    #[inline]
    fn execute(&self, verb: &mut Verb) -> Result<(), FabricError> {
        self.target.check_alive()?;
        self.owner.check_alive()?;
        let region = apply(&self.target, verb)?;
        if matches!(verb, Verb::WriteWithDoorbell { .. }) {
            region.doorbell().ring();
        }
        Ok(())
    }
}

/// Executes a verb on the memory of `target`, but for ringing. The region it acted on.
#[inline]
pub(crate) fn apply<'t>(target: &'t Node, verb: &mut Verb) -> Result<&'t MemRegion, FabricError> {
    let at = verb.at();
    let region = aligned_region(target, at)?;
    match verb {
        Verb::Read { into, .. } => read(region, at, into.words_mut())?,
        Verb::Write { from, .. } | Verb::WriteWithDoorbell { from, .. } => {
            write(region, at, from.words())?;
        }
        Verb::CompareAndSwap { expected, desired, old, .. } => {
            *old = Words::compare_and_swap(word(region, at)?, *expected, *desired);
        }
        Verb::FetchAndAdd { delta, old, .. } => {
            *old = Words::fetch_and_add(word(region, at)?, *delta);
        }
    }
    Ok(region)
}

/// Executes the words `part` of a read or a write that is checked as a whole.
pub(crate) fn apply_words(
    target: &Node,
    verb: &mut Verb,
    part: Range<usize>,
) -> Result<(), FabricError> {
    let at = verb.at();
    let region = aligned_region(target, at)?;
    match verb {
        Verb::Read { into, .. } => {
            let from = words(region, at, into.words().len())?;
            if let (Some(from), Some(into)) =
                (from.get(part.clone()), into.words_mut().get_mut(part))
            {
                Words::copy_out(from, into);
            }
        }
        Verb::Write { from, .. } | Verb::WriteWithDoorbell { from, .. } => {
            let to = words(region, at, from.words().len())?;
            if let (Some(to), Some(from)) = (to.get(part.clone()), from.words().get(part)) {
                Words::copy_in(to, from);
            }
        }
        Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. } => {}
    }
    Ok(())
}

#[inline]
fn aligned_region(target: &Node, at: RemoteAddr) -> Result<&MemRegion, FabricError> {
    let region = target.region(at)?;
    if at.offset.is_multiple_of(WORD_BYTES as u64) {
        Ok(region)
    } else {
        Err(FabricError::Misaligned { at })
    }
}

impl QueuePair for MemQueuePair {
    fn peer(&self) -> PeerId {
        self.target.id()
    }

    fn post(&self, mut chain: Chain) -> Completion {
        let _executes = self.owner.executes();
        let mut executed = 0;
        let mut failure = None;
        for verb in &mut chain.verbs {
            match self.execute(verb) {
                Ok(()) => executed += 1,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        match failure {
            None => Completion::ready(Ok(chain)),
            Some(error) => Completion::failed(chain, executed, error),
        }
    }
}

type Word = std::sync::atomic::AtomicU64;

#[inline]
fn words(region: &MemRegion, at: RemoteAddr, count: usize) -> Result<&[Word], FabricError> {
    let out_of_bounds = || FabricError::OutOfBounds {
        at,
        bytes: (count * WORD_BYTES) as u64,
        region_bytes: region.bytes() as u64,
    };
    region.words(at.offset, count).ok_or_else(out_of_bounds)
}

#[inline]
fn word(region: &MemRegion, at: RemoteAddr) -> Result<&Word, FabricError> {
    match words(region, at, 1)? {
        [word, ..] => Ok(word),
        [] => Err(FabricError::Misaligned { at }),
    }
}

#[inline]
fn read(region: &MemRegion, at: RemoteAddr, into: &mut [u64]) -> Result<(), FabricError> {
    match (words(region, at, into.len())?, into) {
        ([word], [value]) => *value = Words::load(word),
        (from, into) => Words::copy_out(from, into),
    }
    Ok(())
}

#[inline]
fn write(region: &MemRegion, at: RemoteAddr, from: &[u64]) -> Result<(), FabricError> {
    match (words(region, at, from.len())?, from) {
        ([word], [value]) => Words::store(word, *value),
        (to, from) => Words::copy_in(to, from),
    }
    Ok(())
}
