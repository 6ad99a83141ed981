//! Sums of products by bit matrices, in vectors of 64 bytes: `GF2P8AFFINEQB` multiplies each byte
//! by the matrix of a coefficient. What is left of a length is loaded and stored under a mask.

use std::arch::x86_64::{
    __m512i, __mmask64, _mm512_gf2p8affine_epi64_epi8, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_xor_si512,
};

use super::lanes::{Lanes, Mode, Task, coefficient};
use super::tables::MATRICES;
use crate::matrix::Row;
use crate::split::{SplitSink, SplitSource};

/// Bytes of a vector.
const VECTOR: usize = 64;

/// Vectors of each output that are summed together: with four outputs 16 of the 32 registers.
const TOGETHER: usize = 4;

/// All bytes of a vector.
const ALL: __mmask64 = __mmask64::MAX;

/// Says that the CPU has GFNI and AVX-512 with bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gfni512(());

impl Gfni512 {
    pub(super) fn detect() -> Option<Gfni512> {
        let has = is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw");
        has.then_some(Gfni512(()))
    }
}

impl Lanes for Gfni512 {
    #[inline]
    unsafe fn group<const M: usize, I: SplitSource, O: SplitSink>(
        self,
        task: &Task<'_, I>,
        rows: [&Row; M],
        outputs: &mut [O; M],
    ) {
        // SAFETY: there is a value of this type only if `detect` saw the features.
        // The lengths are as the caller says.
        unsafe { sum(task, rows, outputs) }
    }
}

/// # Safety
///
/// Every input and output has `task.length` bytes.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn sum<const M: usize, I: SplitSource, O: SplitSink>(
    task: &Task<'_, I>,
    rows: [&Row; M],
    outputs: &mut [O; M],
) {
    let length = task.length;
    let mut at = 0;
    while length - at >= TOGETHER * VECTOR {
        // SAFETY: so many bytes of `length` follow `at`.
        unsafe { block::<M, TOGETHER, I, O>(at, ALL, task, &rows, outputs) };
        at += TOGETHER * VECTOR;
    }
    while length - at >= VECTOR {
        // SAFETY: as above.
        unsafe { block::<M, 1, I, O>(at, ALL, task, &rows, outputs) };
        at += VECTOR;
    }
    if at < length {
        let mask = (1 << (length - at)) - 1;
        // SAFETY: the mask has a bit for each of the bytes that follow `at`, which are fewer than
        // 64.
        unsafe { block::<M, 1, I, O>(at, mask, task, &rows, outputs) };
    }
}

/// `U` vectors of each output, and of each vector the bytes in `mask`.
///
/// # Safety
///
/// In every input and output there are `U` vectors from byte `at` on, but for the bytes not in
/// `mask`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn block<const M: usize, const U: usize, I: SplitSource, O: SplitSink>(
    at: usize,
    mask: __mmask64,
    task: &Task<'_, I>,
    rows: &[&Row; M],
    outputs: &mut [O; M],
) {
    let mut sums = [[_mm512_setzero_si512(); U]; M];
    if task.mode == Mode::Add {
        for (sums, output) in sums.iter_mut().zip(outputs.iter_mut()) {
            for (place, sum) in sums.iter_mut().enumerate() {
                let from = output.bytes_mut().as_ptr().wrapping_add(at + place * VECTOR);
                // SAFETY: within the output, says the caller; no byte is read that the mask has
                // not.
                *sum = unsafe { _mm512_maskz_loadu_epi8(mask, from.cast::<i8>()) };
            }
        }
    }
    let (pairs, last) = task.inputs.as_chunks::<2>();
    for (pair, inputs) in pairs.iter().enumerate() {
        // SAFETY: as the caller says.
        unsafe { add(&mut sums, at, mask, rows, inputs, 2 * pair) };
    }
    if let Some(inputs) = last.first_chunk::<1>() {
        // SAFETY: as the caller says.
        unsafe { add(&mut sums, at, mask, rows, inputs, 2 * pairs.len()) };
    }
    for (sums, output) in sums.iter().zip(outputs.iter_mut()) {
        for (place, sum) in sums.iter().enumerate() {
            let to = output.bytes_mut().as_mut_ptr().wrapping_add(at + place * VECTOR);
            // SAFETY: within the output, says the caller; no byte is written that the mask has not.
            unsafe { _mm512_mask_storeu_epi8(to.cast::<i8>(), mask, *sum) };
        }
    }
}

/// Adds the products of `N` inputs, the first of which has this position. Of two at once, the sum
/// and both products are added by one instruction.
///
/// # Safety
///
/// As of [`block`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn add<const M: usize, const U: usize, const N: usize, I: SplitSource>(
    sums: &mut [[__m512i; U]; M],
    at: usize,
    mask: __mmask64,
    rows: &[&Row; M],
    inputs: &[I; N],
    position: usize,
) {
    let mut vectors = [[_mm512_setzero_si512(); N]; U];
    for (place, vectors) in vectors.iter_mut().enumerate() {
        for (vector, input) in vectors.iter_mut().zip(inputs) {
            let from = input.bytes().as_ptr().wrapping_add(at + place * VECTOR);
            // SAFETY: within the input, says the caller; no byte is read that the mask has not.
            *vector = unsafe { _mm512_maskz_loadu_epi8(mask, from.cast::<i8>()) };
        }
    }
    for (row, sums) in rows.iter().zip(sums) {
        let mut matrices = [_mm512_setzero_si512(); N];
        for (offset, (matrix, input)) in matrices.iter_mut().zip(inputs).enumerate() {
            let number = input.number(position + offset);
            *matrix = _mm512_set1_epi64(MATRICES.of(coefficient(row, number)).cast_signed());
        }
        for (sum, vectors) in sums.iter_mut().zip(&vectors) {
            for (vector, matrix) in vectors.iter().zip(&matrices) {
                let product = _mm512_gf2p8affine_epi64_epi8::<0>(*vector, *matrix);
                *sum = _mm512_xor_si512(*sum, product);
            }
        }
    }
}
