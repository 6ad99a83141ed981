//! Executes verbs on the memory of a node. All backends that execute verbs in this process use it.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::node::{MemRegion, Node};
use super::words::Words;
use crate::buf::WORD_BYTES;
use crate::error::FabricError;
use crate::id::RemoteAddr;
use crate::verb::Verb;

/// Executes a verb on the memory of `target`, without ringing a doorbell. Returns its region.
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
            *old = Some(Words::compare_and_swap(word(region, at)?, *expected, *desired));
        }
        Verb::FetchAndAdd { delta, old, .. } => {
            *old = Some(Words::fetch_and_add(word(region, at)?, *delta));
        }
    }
    Ok(region)
}

/// Executes the words `part` of a read or a write. The bounds of the whole verb are checked.
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

#[inline]
fn words(region: &MemRegion, at: RemoteAddr, count: usize) -> Result<&[AtomicU64], FabricError> {
    let out_of_bounds = || FabricError::OutOfBounds {
        at,
        bytes: (count * WORD_BYTES) as u64,
        region_bytes: region.bytes() as u64,
    };
    region.words(at.offset, count).ok_or_else(out_of_bounds)
}

#[inline]
fn word(region: &MemRegion, at: RemoteAddr) -> Result<&AtomicU64, FabricError> {
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
