//! What a kernel computes: a matrix times splits, some outputs at a time.

use crate::check;
use crate::error::CodecError;
use crate::matrix::Row;
use crate::split::{SplitSink, SplitSource};
use crate::split_set::MAX_SPLITS;

/// Whether a product replaces an output or is added to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// The product replaces the output.
    Set,
    /// The product is added to the output.
    Add,
}

/// What is the same for all outputs.
pub(super) struct Task<'a, I> {
    /// Bytes that every input has, and every output: the kernels rely on it.
    pub(super) length: usize,
    pub(super) rows: &'a [Row],
    pub(super) inputs: &'a [I],
    pub(super) mode: Mode,
}

/// A kernel, which computes `M` outputs at once.
pub(super) trait Lanes: Copy {
    /// # Safety
    ///
    /// Every input and output has `task.length` bytes.
    unsafe fn group<const M: usize, I: SplitSource, O: SplitSink>(
        self,
        task: &Task<'_, I>,
        rows: [&Row; M],
        outputs: &mut [O; M],
    );
}

/// Each output becomes, or gets added, the sum of all inputs times coefficients: those at the
/// inputs' numbers in the row at the output's number.
///
/// # Errors
///
/// As of [`check::lengths`].
#[inline]
pub(super) fn multiply<L: Lanes, I: SplitSource, O: SplitSink>(
    lanes: L,
    rows: &[Row],
    inputs: &[I],
    outputs: &mut [O],
    mode: Mode,
) -> Result<(), CodecError> {
    let length = check::lengths(inputs, outputs)?;
    in_groups(lanes, Task { length, rows, inputs, mode }, outputs);
    Ok(())
}

/// Four outputs at a time: their sums and what they need fit into the registers of every kernel.
#[inline]
fn in_groups<L: Lanes, I: SplitSource, O: SplitSink>(
    lanes: L,
    task: Task<'_, I>,
    outputs: &mut [O],
) {
    let (fours, rest) = outputs.as_chunks_mut::<4>();
    let mut position = 0;
    for four in fours {
        one_group(lanes, &task, position, four);
        position += 4;
    }
    if let Some(three) = rest.first_chunk_mut::<3>() {
        one_group(lanes, &task, position, three);
    } else if let Some(two) = rest.first_chunk_mut::<2>() {
        one_group(lanes, &task, position, two);
    } else if let Some(one) = rest.first_chunk_mut::<1>() {
        one_group(lanes, &task, position, one);
    }
}

#[inline]
#[expect(clippy::indexing_slicing, reason = "the codec has checked the numbers of all outputs")]
fn one_group<const M: usize, L: Lanes, I: SplitSource, O: SplitSink>(
    lanes: L,
    task: &Task<'_, I>,
    position: usize,
    outputs: &mut [O; M],
) {
    static ZEROS: Row = [0; MAX_SPLITS];
    let mut rows = [&ZEROS; M];
    for (place, (row, output)) in rows.iter_mut().zip(outputs.iter()).enumerate() {
        *row = &task.rows[output.number(position + place)];
    }
    // SAFETY: `multiply`, which alone makes tasks, has checked the length of all inputs and
    // outputs; these are slices, and their lengths do not change.
    unsafe { lanes.group(task, rows, outputs) }
}

/// The coefficient of the input of this number.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "the codec has checked the numbers of all inputs")]
pub(super) fn coefficient(row: &Row, number: usize) -> u8 {
    row[number]
}
