//! Sums of products by bit matrices, in vectors of 32 bytes: `GF2P8AFFINEQB` multiplies each byte
//! by the matrix of a coefficient. For CPUs that have GFNI and no AVX-512.

use std::arch::x86_64::{
    __m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::lanes::{Lanes, Mode, Task, coefficient};
use super::portable;
use super::tables::MATRICES;
use crate::matrix::Row;
use crate::split::{SplitSink, SplitSource};

/// Bytes of a vector.
const VECTOR: usize = 32;

/// Vectors of each output that are summed together: with four outputs 8 of the 16 registers.
const TOGETHER: usize = 2;

/// Says that the CPU has GFNI and AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gfni256(());

impl Gfni256 {
    pub(super) fn detect() -> Option<Gfni256> {
        let has = is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2");
        has.then_some(Gfni256(()))
    }
}

impl Lanes for Gfni256 {
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
#[target_feature(enable = "avx2,gfni")]
unsafe fn sum<const M: usize, I: SplitSource, O: SplitSink>(
    task: &Task<'_, I>,
    rows: [&Row; M],
    outputs: &mut [O; M],
) {
    let length = task.length;
    let mut at = 0;
    while length - at >= TOGETHER * VECTOR {
        // SAFETY: so many bytes of `length` follow `at`.
        unsafe { block::<M, TOGETHER, I, O>(at, task, &rows, outputs) };
        at += TOGETHER * VECTOR;
    }
    if length - at >= VECTOR {
        // SAFETY: as above.
        unsafe { block::<M, 1, I, O>(at, task, &rows, outputs) };
        at += VECTOR;
    }
    if at < length {
        portable::sum_from(at, task, &rows, outputs);
    }
}

/// `U` vectors of each output.
///
/// # Safety
///
/// Every input and output has `U` vectors from byte `at` on.
#[target_feature(enable = "avx2,gfni")]
#[inline]
unsafe fn block<const M: usize, const U: usize, I: SplitSource, O: SplitSink>(
    at: usize,
    task: &Task<'_, I>,
    rows: &[&Row; M],
    outputs: &mut [O; M],
) {
    let mut sums = [[_mm256_setzero_si256(); U]; M];
    if task.mode == Mode::Add {
        for (sums, output) in sums.iter_mut().zip(outputs.iter_mut()) {
            for (place, sum) in sums.iter_mut().enumerate() {
                let from = output.bytes_mut().as_ptr().wrapping_add(at + place * VECTOR);
                // SAFETY: within the output, says the caller.
                *sum = unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) };
            }
        }
    }
    for (position, input) in task.inputs.iter().enumerate() {
        let number = input.number(position);
        let mut vectors = [_mm256_setzero_si256(); U];
        for (place, vector) in vectors.iter_mut().enumerate() {
            let from = input.bytes().as_ptr().wrapping_add(at + place * VECTOR);
            // SAFETY: within the input, says the caller.
            *vector = unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) };
        }
        for (row, sums) in rows.iter().zip(&mut sums) {
            let matrix = *MATRICES.of(coefficient(row, number));
            let matrix = _mm256_set1_epi64x(matrix.cast_signed());
            for (sum, vector) in sums.iter_mut().zip(&vectors) {
                let product = _mm256_gf2p8affine_epi64_epi8::<0>(*vector, matrix);
                *sum = _mm256_xor_si256(*sum, product);
            }
        }
    }
    for (sums, output) in sums.iter().zip(outputs.iter_mut()) {
        for (place, sum) in sums.iter().enumerate() {
            let to = output.bytes_mut().as_mut_ptr().wrapping_add(at + place * VECTOR);
            // SAFETY: within the output, says the caller.
            unsafe { _mm256_storeu_si256(to.cast::<__m256i>(), *sum) };
        }
    }
}
