//! The generator of random values: numbers, strings, permutations.
//!
//! Every part of the load and every worker of a run has a generator of its own, made from the seed
//! and a stream number ([`Random::stream`]): what is loaded does not depend on which thread or
//! node loads it. Strings are written into buffers on the caller's stack.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use selkie_fabric::env::SplitMix;

use super::text::Text;

/// Letters of an alphanumeric string (clause 4.3.2.2). A power of two, so that a letter is six
/// bits.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A generator of random values.
#[derive(Clone, Debug)]
pub struct Random(SmallRng);

impl Random {
    /// The generator for one stream of a seed; streams are independent of each other.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self(SmallRng::seed_from_u64(SplitMix::of_stream(seed, stream).next_u64()))
    }

    /// A number from `low` to `high`, both included.
    pub fn uniform(&mut self, low: i32, high: i32) -> i32 {
        debug_assert!(low <= high, "an empty range: {low}..={high}");
        let span = u64::from(high.abs_diff(low)) + 1;
        // The high half of the product is uniform below the span.
        let offset = (u64::from(self.0.next_u32()) * span) >> 32;
        // It is below a span of at most 2^32.
        low.wrapping_add_unsigned(offset as u32)
    }

    /// The same for lengths and positions; it draws as much as [`Random::uniform`].
    #[expect(clippy::expect_used, reason = "nothing has 2^31 elements here")]
    pub(crate) fn position(&mut self, low: usize, high: usize) -> usize {
        let bound = |bound: usize| i32::try_from(bound).expect("a position has 31 bits");
        // It is at least `low`, which is not negative.
        self.uniform(bound(low), bound(high)) as usize
    }

    /// The same for amounts.
    pub fn amount(&mut self, low: i64, high: i64) -> i64 {
        debug_assert!(low <= high, "an empty range: {low}..={high}");
        let span = u128::from(high.abs_diff(low)) + 1;
        let offset = (u128::from(self.0.next_u64()) * span) >> 64;
        // It is below a span of at most 2^64.
        low.wrapping_add_unsigned(offset as u64)
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is uniform below the bound.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number at least 0 and below 1, with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: i32) -> bool {
        self.uniform(1, 100) <= percent
    }

    /// A number above 0 and at most 1, for the exponential think times.
    pub fn fraction(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }

    /// NURand(A, low, high) of clause 2.1.6 with the constant `c`.
    pub fn non_uniform(&mut self, a: u32, c: u32, low: i32, high: i32) -> i32 {
        let wide = self.uniform(0, a.cast_signed()) | self.uniform(low, high);
        let span = i64::from(high) - i64::from(low) + 1;
        let offset = (i64::from(wide) + i64::from(c)) % span;
        // It is at most `high`.
        (i64::from(low) + offset) as i32
    }

    /// An alphanumeric string of `low` to `high` letters (clause 4.3.2.2).
    #[expect(clippy::indexing_slicing, reason = "a remainder is below the divisor")]
    pub fn letters<const N: usize>(&mut self, low: usize, high: usize) -> Text<N> {
        self.string(low, high, |bits| LETTERS[usize::from(bits) % LETTERS.len()])
    }

    /// A string of `low` to `high` digits.
    pub fn digits<const N: usize>(&mut self, low: usize, high: usize) -> Text<N> {
        // 256 is no multiple of ten: the digits 0 to 5 are drawn 4 % more often, which nothing
        // sees.
        self.string(low, high, |bits| b'0' + bits % 10)
    }

    /// A string of `count` capitals.
    pub fn capitals<const N: usize>(&mut self, count: usize) -> Text<N> {
        // 256 is no multiple of 26: some letters are drawn a tenth more often, which nothing sees.
        self.string(count, count, |bits| b'A' + bits % 26)
    }

    fn string<const N: usize>(
        &mut self,
        low: usize,
        high: usize,
        letter: impl Fn(u8) -> u8,
    ) -> Text<N> {
        let len = self.position(low, high);
        Text::of_ascii(len, |bytes| {
            for chunk in bytes.chunks_mut(8) {
                let random = self.0.next_u64().to_le_bytes();
                for (byte, bits) in chunk.iter_mut().zip(random) {
                    *byte = letter(bits);
                }
            }
        })
    }

    /// The numbers 1 to `count` in random order.
    pub fn permutation(&mut self, count: i32) -> Vec<i32> {
        let mut numbers: Vec<i32> = (1..=count).collect();
        self.shuffle(&mut numbers);
        numbers
    }

    /// Puts a slice into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.position(0, last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn uniform_numbers_reach_both_ends_and_no_further() {
        let mut random = Random::stream(1, 7);
        let mut counts = HashMap::new();
        for _ in 0..12_000 {
            *counts.entry(random.uniform(-2, 3)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.iter().all(|(n, c)| (-2..=3).contains(n) && (1_600..2_400).contains(c)));
        assert!((0..1000).all(|_| (5..=9).contains(&random.amount(5, 9))));
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut random = Random::stream(seed, stream);
            [(); 4].map(|()| random.uniform(0, i32::MAX))
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn strings_have_their_lengths_and_letters() {
        let mut random = Random::stream(5, 1);
        let mut lengths = std::collections::HashSet::new();
        for _ in 0..2_000 {
            let text: Text<24> = random.letters(14, 24);
            assert!(text.bytes().all(|b| LETTERS.contains(&b)));
            lengths.insert(text.len());
            assert!(random.digits::<16>(16, 16).bytes().all(|b| b.is_ascii_digit()));
        }
        assert_eq!(lengths.len(), 11);
    }

    #[test]
    fn permutations_hold_every_number_once() {
        let mut numbers = Random::stream(8, 8).permutation(300);
        assert_ne!(numbers, (1..=300).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=300).collect::<Vec<_>>());
    }
}
