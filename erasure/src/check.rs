//! The checks that every codec makes of its arguments, before it writes anything.

use crate::error::CodecError;
use crate::shape::Shape;
use crate::split::{SplitSink, SplitSource};
use crate::split_set::SplitSet;

/// Checks the counts of splits of an encoding.
pub(crate) fn encode(shape: Shape, data: usize, parity: usize) -> Result<(), CodecError> {
    count("data", shape.data(), data)?;
    count("parity", shape.parity(), parity)
}

/// Checks the number of the updated data split and the count of parity splits.
pub(crate) fn update(shape: Shape, index: usize, parity: usize) -> Result<(), CodecError> {
    if index >= shape.data() {
        return Err(CodecError::Index { index, splits: shape.data() });
    }
    count("parity", shape.parity(), parity)
}

/// Checks the numbers of present and missing splits; returns the first k present ones.
#[inline]
pub(crate) fn splits(
    shape: Shape,
    present: &[(usize, &[u8])],
    missing: &[(usize, &mut [u8])],
) -> Result<SplitSet, CodecError> {
    let (first, surplus) = present.split_at_checked(shape.data()).unwrap_or((present, &[]));
    let mut seen = SplitSet::default();
    for (index, _) in first {
        admit(shape, &mut seen, *index)?;
    }
    let used = seen;
    for (index, _) in surplus {
        admit(shape, &mut seen, *index)?;
    }
    for (index, _) in missing {
        admit(shape, &mut seen, *index)?;
    }
    enough(shape.data(), present.len())?;
    Ok(used)
}

/// Checks that there are as many splits as needed.
pub(crate) fn enough(needed: usize, given: usize) -> Result<(), CodecError> {
    if given >= needed { Ok(()) } else { Err(CodecError::TooFew { needed, given }) }
}

/// The length that all splits have. Kernels rely on it.
#[inline]
pub(crate) fn lengths<I: SplitSource, O: SplitSink>(
    inputs: &[I],
    outputs: &[O],
) -> Result<usize, CodecError> {
    let expected = inputs.first().map_or(0, |split| split.bytes().len());
    let difference = inputs.iter().fold(0, |found, split| found | (split.bytes().len() ^ expected));
    let difference =
        outputs.iter().fold(difference, |found, split| found | (split.length() ^ expected));
    if difference != 0 || expected == 0 {
        return Err(bad_lengths(inputs, outputs, expected));
    }
    Ok(expected)
}

#[cold]
fn bad_lengths<I: SplitSource, O: SplitSink>(
    inputs: &[I],
    outputs: &[O],
    expected: usize,
) -> CodecError {
    let inputs = inputs.iter().map(|split| split.bytes().len());
    let mut all = inputs.chain(outputs.iter().map(SplitSink::length));
    match all.find(|length| *length != expected) {
        Some(given) if expected > 0 => CodecError::Length { expected, given },
        _ => CodecError::Empty,
    }
}

#[inline(always)]
fn admit(shape: Shape, seen: &mut SplitSet, index: usize) -> Result<(), CodecError> {
    if index >= shape.splits() {
        return Err(CodecError::Index { index, splits: shape.splits() });
    }
    if seen.insert(index) { Ok(()) } else { Err(CodecError::Repeated { index }) }
}

#[inline(always)]
fn count(which: &'static str, expected: usize, given: usize) -> Result<(), CodecError> {
    if given == expected { Ok(()) } else { Err(CodecError::Count { which, expected, given }) }
}
