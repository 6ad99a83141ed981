//! The random values that only TPC-C has: its constants of NURand, last names, zip codes and data.

use crate::tpcc::scale::Scale;
use crate::workload::{Random, Text};

/// The ten syllables of clause 4.3.2.3.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Constant A of NURand for last names, with a thousand of them (clause 2.1.6).
const A_LAST: u32 = 255;
/// The same for customers, with 3,000 of them a district.
const A_CUSTOMER: u32 = 1023;
/// The same for items, with 100,000 of them.
const A_ITEM: u32 = 8191;

/// What 10 % of items and stocks carry in their data.
pub const ORIGINAL: &str = "ORIGINAL";

/// The last name with this number (clause 4.3.2.3). At most 15 letters.
///
/// # Panics
/// If the number is not 0 to 999.
#[must_use]
#[expect(clippy::indexing_slicing, reason = "a digit is one of ten, as there are syllables")]
pub fn last_name(number: i32) -> Text<16> {
    assert!((0..1000).contains(&number), "there are 1,000 last names, not number {number}");
    let syllable = |power: i32| SYLLABLES[(number / power % 10) as usize];
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
#[expect(clippy::expect_used, reason = "a share of less than 32 bits has no more")]
fn scaled_a(a: u32, standard: i32, scaled: i32) -> u32 {
    let share =
        u64::from(a) * u64::from(scaled.unsigned_abs()) / u64::from(standard.unsigned_abs());
    let scaled = (share + 1).next_power_of_two() - 1;
    u32::try_from(scaled).expect("A has 32 bits")
}

impl Random {
    /// A zip code: four digits and 11111 (clause 4.3.2.7).
    pub fn zip(&mut self) -> Text<9> {
        self.digits::<9>(4, 4).with("11111")
    }

    /// Item and stock data: 26 to 50 letters, ORIGINAL somewhere in 10 % of them (clause 4.3.3.1).
    pub fn data_with_original(&mut self) -> Text<50> {
        let mut text: Text<50> = self.letters(26, 50);
        if self.percent(10) {
            let last = text.len() - ORIGINAL.len();
            text.overwrite(self.position(0, last), ORIGINAL);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn zip_codes_and_data_are_the_specifications() {
        let mut random = Random::stream(5, 1);
        let mut original = 0;
        for _ in 0..2_000 {
            let zip = random.zip();
            assert!(zip.len() == 9 && zip.ends_with("11111"));
            let data = random.data_with_original();
            assert!((26..=50).contains(&data.len()));
            original += usize::from(data.contains(ORIGINAL));
        }
        assert!((140..260).contains(&original), "{original}");
    }
}
