//! The random values of the specification: uniform and non-uniform numbers, strings, last names.
//!
//! Every part of the load and every worker of a run has a generator of its own, made from the seed
//! and a stream number ([`Random::stream`]): what is loaded does not depend on which thread or
//! node loads it. Strings are written into buffers on the caller's stack.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use selkie_fabric::env::SplitMix;

use crate::scale::Scale;

/// The ten syllables of clause 4.3.2.3.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Letters of an alphanumeric string (clause 4.3.2.2). A power of two, so that a letter is six
/// bits.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Constant A of NURand for last names, with a thousand of them (clause 2.1.6).
const A_LAST: u32 = 255;
/// The same for customers, with 3,000 of them a district.
const A_CUSTOMER: u32 = 1023;
/// The same for items, with 100,000 of them.
const A_ITEM: u32 = 8191;

/// A text of at most `N` bytes on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// The empty text.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Appends as much of `text` as fits, in whole characters.
    #[must_use]
    pub fn with(mut self, text: &str) -> Self {
        self.push(text);
        self
    }

    /// Appends as much of `text` as fits, in whole characters.
    pub fn push(&mut self, text: &str) {
        let mut end = text.len().min(N - self.len);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let fits = text.get(..end).unwrap_or_default();
        if let Some(target) = self.bytes.get_mut(self.len..self.len + fits.len()) {
            target.copy_from_slice(fits.as_bytes());
            self.len += fits.len();
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl<const N: usize> std::fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text);
        Ok(())
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> std::ops::Deref for Text<N> {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

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
        low.wrapping_add_unsigned(u32::try_from(offset).unwrap_or(0))
    }

    /// The same for amounts.
    pub fn amount(&mut self, low: i64, high: i64) -> i64 {
        debug_assert!(low <= high, "an empty range: {low}..={high}");
        let span = u128::from(high.abs_diff(low)) + 1;
        let offset = (u128::from(self.0.next_u64()) * span) >> 64;
        low.wrapping_add_unsigned(u64::try_from(offset).unwrap_or(0))
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
        i32::try_from(i64::from(low) + offset).unwrap_or(high)
    }

    /// An alphanumeric string of `low` to `high` letters (clause 4.3.2.2).
    pub fn letters<const N: usize>(&mut self, low: usize, high: usize) -> Text<N> {
        self.string(low, high, |bits| LETTERS.get(bits as usize % 64).copied().unwrap_or(b'A'))
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
        let bound = |len: usize| i32::try_from(len.min(N)).unwrap_or(0);
        let len = usize::try_from(self.uniform(bound(low), bound(high))).unwrap_or(0);
        let mut text = Text { bytes: [0; N], len };
        if let Some(bytes) = text.bytes.get_mut(..len) {
            for chunk in bytes.chunks_mut(8) {
                let random = self.0.next_u64().to_le_bytes();
                for (byte, bits) in chunk.iter_mut().zip(random) {
                    *byte = letter(bits);
                }
            }
        }
        text
    }

    /// A zip code: four digits and 11111 (clause 4.3.2.7).
    pub fn zip(&mut self) -> Text<9> {
        self.digits::<9>(4, 4).with("11111")
    }

    /// Item and stock data: 26 to 50 letters, ORIGINAL somewhere in 10 % of them (clause 4.3.3.1).
    pub fn data_with_original(&mut self) -> Text<50> {
        let mut text: Text<50> = self.letters(26, 50);
        if self.percent(10) {
            let last = i32::try_from(text.len - ORIGINAL.len()).unwrap_or(0);
            let at = usize::try_from(self.uniform(0, last)).unwrap_or(0);
            if let Some(place) = text.bytes.get_mut(at..at + ORIGINAL.len()) {
                place.copy_from_slice(ORIGINAL.as_bytes());
            }
        }
        text
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
            let at = self.uniform(0, i32::try_from(last).unwrap_or(i32::MAX));
            items.swap(last, usize::try_from(at).unwrap_or(0));
        }
    }
}

/// What 10 % of items and stocks carry in their data.
pub const ORIGINAL: &str = "ORIGINAL";

/// The last name with this number, 0 to 999 (clause 4.3.2.3). At most 15 letters.
#[must_use]
pub fn last_name(number: i32) -> Text<16> {
    let digit = |power: i32| usize::try_from(number / power % 10).unwrap_or(0);
    let syllable = |power: i32| SYLLABLES.get(digit(power)).copied().unwrap_or_default();
    Text::new().with(syllable(100)).with(syllable(10)).with(syllable(1))
}

/// The constants of NURand, chosen once for the load and once for a run (clause 2.1.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NuConstants {
    a_last: u32,
    a_customer: u32,
    a_item: u32,
    c_last: u32,
    c_customer: u32,
    c_item: u32,
    last_names: i32,
    customers: i32,
    items: i32,
}

impl NuConstants {
    /// The constants used while loading.
    #[must_use]
    pub fn of_load(seed: u64, scale: &Scale) -> Self {
        let mut random = Random::stream(seed, LOAD_CONSTANTS);
        let last_names = scale.last_names();
        let a_last = scaled_a(A_LAST, 1000, last_names);
        let a_customer = scaled_a(A_CUSTOMER, 3000, scale.customers_per_district);
        let a_item = scaled_a(A_ITEM, 100_000, scale.items);
        let mut draw = |a: u32| random.uniform(0, a.cast_signed()).unsigned_abs();
        Self {
            a_last,
            a_customer,
            a_item,
            c_last: draw(a_last),
            c_customer: draw(a_customer),
            c_item: draw(a_item),
            last_names,
            customers: scale.customers_per_district,
            items: scale.items,
        }
    }

    /// The constants of a run after that load. C for last names differs from the load's by 65 to
    /// 119, but not by 96 or 112 (clause 2.1.6.1).
    #[must_use]
    pub fn of_run(seed: u64, scale: &Scale) -> Self {
        let load = Self::of_load(seed, scale);
        let mut random = Random::stream(seed, RUN_CONSTANTS);
        let c_customer = random.uniform(0, load.a_customer.cast_signed()).unsigned_abs();
        let c_item = random.uniform(0, load.a_item.cast_signed()).unsigned_abs();
        let mut c_last = load.c_last;
        // A scaled-down A may leave no constant so far away; then any does.
        for _ in 0..CONSTANT_DRAWS {
            c_last = random.uniform(0, load.a_last.cast_signed()).unsigned_abs();
            let delta = c_last.abs_diff(load.c_last);
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                break;
            }
        }
        Self { c_last, c_customer, c_item, ..load }
    }

    /// A customer's last name.
    pub fn last_name(&self, random: &mut Random) -> Text<16> {
        let high = self.last_names - 1;
        last_name(random.non_uniform(self.a_last, self.c_last, 0, high))
    }

    /// A customer's number.
    pub fn customer(&self, random: &mut Random) -> i32 {
        random.non_uniform(self.a_customer, self.c_customer, 1, self.customers)
    }

    /// An item's number.
    pub fn item(&self, random: &mut Random) -> i32 {
        random.non_uniform(self.a_item, self.c_item, 1, self.items)
    }
}

/// Draws of the run's constant before any is taken: about a third of them succeed.
const CONSTANT_DRAWS: u32 = 1000;
/// Streams of the seed for the constants; the other streams are named in `load` and `worker`.
const LOAD_CONSTANTS: u64 = 1;
const RUN_CONSTANTS: u64 = 2;

/// A for a scaled-down range: the same share of it, rounded up to a power of two less one.
fn scaled_a(a: u32, standard: i32, scaled: i32) -> u32 {
    let share =
        u64::from(a) * u64::from(scaled.unsigned_abs()) / u64::from(standard.unsigned_abs());
    u32::try_from((share + 1).next_power_of_two() - 1).unwrap_or(a)
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
    fn last_names_are_the_specifications() {
        // The example of clause 4.3.2.3.
        assert_eq!(&*last_name(371), "PRICALLYOUGHT");
        assert_eq!(&*last_name(40), "BARPRESBAR");
        assert_eq!(&*last_name(777), "CALLYCALLYCALLY");
    }

    #[test]
    fn non_uniform_numbers_stay_in_range_and_prefer_some() {
        let constants = NuConstants::of_run(3, &Scale::STANDARD);
        let mut random = Random::stream(3, 9);
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[usize::try_from(constants.customer(&mut random)).unwrap()] += 1;
            assert!((1..=100_000).contains(&constants.item(&mut random)));
        }
        assert_eq!(counts[0], 0);
        // Uniform, the most frequent of 3,000 would come up about 140 times.
        assert!(*counts.iter().max().unwrap() > 400, "{:?}", counts.iter().max());
        assert!(counts.iter().skip(1).filter(|&&count| count > 0).count() > 2_000);
    }

    #[test]
    fn constants_keep_the_distance_of_clause_2_1_6_1() {
        for seed in 0..200 {
            let load = NuConstants::of_load(seed, &Scale::STANDARD);
            let run = NuConstants::of_run(seed, &Scale::STANDARD);
            let delta = load.c_last.abs_diff(run.c_last);
            assert!((65..=119).contains(&delta) && ![96, 112].contains(&delta), "{delta}");
            assert_eq!((run.a_last, run.a_customer, run.a_item), (255, 1023, 8191));
        }
        assert_eq!(scaled_a(1023, 3000, 30), 15);
        assert_eq!(scaled_a(255, 1000, 1), 0);
    }

    #[test]
    fn strings_have_their_lengths_and_letters() {
        let mut random = Random::stream(5, 1);
        let mut lengths = std::collections::HashSet::new();
        let mut original = 0;
        for _ in 0..2_000 {
            let text: Text<24> = random.letters(14, 24);
            assert!(text.bytes().all(|b| LETTERS.contains(&b)));
            lengths.insert(text.len());
            assert!(random.digits::<16>(16, 16).bytes().all(|b| b.is_ascii_digit()));
            let zip = random.zip();
            assert!(zip.len() == 9 && zip.ends_with("11111"));
            let data = random.data_with_original();
            assert!((26..=50).contains(&data.len()));
            original += usize::from(data.contains(ORIGINAL));
        }
        assert_eq!(lengths.len(), 11);
        assert!((140..260).contains(&original), "{original}");
    }

    #[test]
    fn permutations_hold_every_number_once() {
        let mut numbers = Random::stream(8, 8).permutation(300);
        assert_ne!(numbers, (1..=300).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=300).collect::<Vec<_>>());
    }

    #[test]
    fn texts_take_what_fits() {
        assert_eq!(&*Text::<5>::new().with("abc").with("defg"), "abcde");
        assert_eq!(&*Text::<5>::new().with("abcd\u{e9}"), "abcd");
    }
}
