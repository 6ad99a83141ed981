//! `SplitMix`: a small seeded generator that any number of threads may draw from without a lock.
//!
//! The SplitMix64 sequence (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
//! 2014): a counter stepped by the golden ratio, and a mix of its bits. One atomic add a number.
//! Good for back-off jitter and fault plans, not for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A seeded sequence of uniformly distributed numbers.
#[derive(Debug)]
pub struct SplitMix {
    state: AtomicU64,
}

impl SplitMix {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// A sequence of its own for part number `stream` of something that has one seed.
    pub fn of_stream(seed: u64, stream: u64) -> Self {
        Self::new(mix(seed ^ mix(stream.wrapping_add(STEP))))
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// The next number, reduced to `0..bound`; 0 if `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        // Multiply and keep the high half: no division, and a bias far below what is noticed here.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_sequence() {
        // Reference values of SplitMix64 for seed 1234567.
        let random = SplitMix::new(1_234_567);
        let first = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bounded_numbers_cover_their_range_and_streams_differ() {
        let random = SplitMix::new(1);
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (50..150).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_ne!(SplitMix::of_stream(1, 0).next_u64(), SplitMix::of_stream(1, 1).next_u64());
    }
}
