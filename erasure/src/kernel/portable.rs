//! Sums of products in 64-bit words of eight bytes each, for any CPU; compilers make vectors of it.
//!
//! By Horner's rule: from the highest bit of the coefficients to the lowest, the sum is doubled,
//! and the inputs whose coefficient has that bit are added. So a sum takes eight doublings, however
//! many inputs it has. No table is read.

use super::lanes::{Lanes, Mode, Task, coefficient};
use crate::field::POLYNOMIAL;
use crate::matrix::Row;
use crate::split::{SplitSink, SplitSource};
use crate::split_set::MAX_SPLITS;

/// Bytes that are computed together.
const BLOCK: usize = 128;

/// A block as words, whose byte order does not matter.
type Block = [u64; BLOCK / 8];

/// A byte in each byte of a word.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The kernel for any CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Lanes for Portable {
    unsafe fn group<const M: usize, I: SplitSource, O: SplitSink>(
        self,
        task: &Task<'_, I>,
        rows: [&Row; M],
        outputs: &mut [O; M],
    ) {
        sum_from(0, task, &rows, outputs);
    }
}

/// The bytes from `start` on. The last block may be a part of one. Every input and output has
/// `task.length` bytes, and there are at most [`MAX_SPLITS`] inputs.
#[expect(clippy::indexing_slicing, reason = "the caller has checked lengths and counts")]
pub(super) fn sum_from<const M: usize, I: SplitSource, O: SplitSink>(
    start: usize,
    task: &Task<'_, I>,
    rows: &[&Row; M],
    outputs: &mut [O; M],
) {
    for at in (start..task.length).step_by(BLOCK) {
        let until = task.length.min(at + BLOCK);
        let mut blocks = [(0, Block::default()); MAX_SPLITS];
        for (position, (block, input)) in blocks.iter_mut().zip(task.inputs).enumerate() {
            let bytes = &input.bytes()[at..until];
            *block = (input.number(position), load(bytes));
        }
        let blocks = &blocks[..task.inputs.len()];
        for (row, output) in rows.iter().zip(outputs.iter_mut()) {
            let output = &mut output.bytes_mut()[at..until];
            let mut sum = dot(row, blocks);
            if task.mode == Mode::Add {
                add(&mut sum, &load(output));
            }
            store(&sum, output);
        }
    }
}

/// The sum of numbered blocks times the coefficients at their numbers.
fn dot(row: &Row, blocks: &[(usize, Block)]) -> Block {
    let mut sum = Block::default();
    for bit in (0..8).rev() {
        sum.iter_mut().for_each(|word| *word = double(*word));
        for (number, block) in blocks {
            if coefficient(row, *number) >> bit & 1 == 1 {
                add(&mut sum, block);
            }
        }
    }
    sum
}

fn add(sum: &mut Block, block: &Block) {
    for (word, other) in sum.iter_mut().zip(block) {
        *word ^= other;
    }
}

/// Each byte times x.
fn double(word: u64) -> u64 {
    let high = word & each(0x80);
    // 0x7F in the bytes whose highest bit was set; no byte borrows from another.
    let carried = high - (high >> 7);
    ((word ^ high) << 1) ^ (carried & each(POLYNOMIAL))
}

/// The bytes as a block, followed by zeros.
fn load(bytes: &[u8]) -> Block {
    let mut block = Block::default();
    let (words, rest) = bytes.as_chunks::<8>();
    for (word, bytes) in block.iter_mut().zip(words) {
        *word = u64::from_ne_bytes(*bytes);
    }
    if let Some(word) = block.get_mut(words.len()) {
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        *word = u64::from_ne_bytes(last);
    }
    block
}

/// As much of a block as there is place for.
fn store(block: &Block, bytes: &mut [u8]) {
    for (word, bytes) in block.iter().zip(bytes.chunks_mut(8)) {
        bytes.iter_mut().zip(word.to_ne_bytes()).for_each(|(to, from)| *to = from);
    }
}
