//! Sums of products by tables of nibbles, in vectors of 32 bytes: a byte's product is the sum of
//! its low nibble's and its high nibble's, and `PSHUFB` looks up 32 nibbles at once.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::lanes::{Lanes, Mode, Task, coefficient};
use super::portable;
use super::tables::NIBBLES;
use crate::matrix::Row;
use crate::split::{SplitSink, SplitSource};

/// Bytes of a vector.
const VECTOR: usize = 32;

/// Vectors of each output that are summed together.
const TOGETHER: usize = 2;

/// Says that the CPU has AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Avx2> {
        is_x86_feature_detected!("avx2").then_some(Avx2(()))
    }
}

impl Lanes for Avx2 {
    #[inline]
    unsafe fn group<const M: usize, I: SplitSource, O: SplitSink>(
        self,
        task: &Task<'_, I>,
        rows: [&Row; M],
        outputs: &mut [O; M],
    ) {
        // SAFETY: there is a value of this type only if `detect` saw the feature.
        // The lengths are as the caller says.
        unsafe { sum(task, rows, outputs) }
    }
}

/// # Safety
///
/// Every input and output has `task.length` bytes.
#[target_feature(enable = "avx2")]
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
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn block<const M: usize, const U: usize, I: SplitSource, O: SplitSink>(
    at: usize,
    task: &Task<'_, I>,
    rows: &[&Row; M],
    outputs: &mut [O; M],
) {
    let nibble = _mm256_set1_epi8(0x0F);
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
        let mut low = [_mm256_setzero_si256(); U];
        let mut high = [_mm256_setzero_si256(); U];
        for (place, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
            let from = input.bytes().as_ptr().wrapping_add(at + place * VECTOR);
            // SAFETY: within the input, says the caller.
            let bytes = unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) };
            *low = _mm256_and_si256(bytes, nibble);
            *high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
        }
        for (row, sums) in rows.iter().zip(&mut sums) {
            let [of_low, of_high] = NIBBLES.of(coefficient(row, number));
            let (of_low, of_high) = (table(of_low), table(of_high));
            for (sum, (low, high)) in sums.iter_mut().zip(low.iter().zip(&high)) {
                let product = _mm256_xor_si256(
                    _mm256_shuffle_epi8(of_low, *low),
                    _mm256_shuffle_epi8(of_high, *high),
                );
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

/// A table in both halves of a vector.
#[target_feature(enable = "avx2")]
#[inline]
fn table(entries: &[u8; 16]) -> __m256i {
    // SAFETY: these are 16 bytes.
    let half = unsafe { _mm_loadu_si128(entries.as_ptr().cast::<__m128i>()) };
    _mm256_broadcastsi128_si256(half)
}
