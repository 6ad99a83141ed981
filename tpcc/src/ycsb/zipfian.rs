//! Zipfian ranks, by the method of Gray et al., "Quickly Generating Billion-Record Synthetic
//! Databases" (SIGMOD 1994), and how YCSB 0.17 scatters them over the records.
//!
//! Rank i, from 0, has a share of 1 / (i + 1)^θ. The two most frequent ranks are drawn exactly; for
//! the others the sum of the shares is taken for its integral. θ is below 1: the method divides by
//! 1 - θ.
//!
//! YCSB draws ranks of 10^10 items, whatever the number of records, and takes the FNV hash of a
//! rank, modulo the records, for the record. So the skew does not depend on how many records there
//! are, and popular records are not neighbours.

/// Items that ranks are drawn of before they are scattered.
pub(super) const SCATTERED_ITEMS: u64 = 10_000_000_000;
/// The sum of the shares of those for θ = 0.99, as YCSB has it.
const ZETA_OF_USUAL: f64 = 26.469_028_201_783_02;
/// θ of YCSB.
pub(super) const USUAL_THETA: f64 = 0.99;
/// Terms that are added up one by one; behind them the sum is taken from its integral.
const EXACT_TERMS: u64 = 10_000;

/// Draws ranks.
#[derive(Clone, Debug)]
pub(super) struct Zipfian {
    items: u64,
    theta: f64,
    /// Sum of the shares.
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Of so many items, 1 at least; θ is above 0 and below 1.
    pub(super) fn new(items: u64, theta: f64) -> Self {
        Self::with_zeta(items, theta, zeta(items, theta))
    }

    /// The ranks that are scattered. YCSB counts one item more than its constant says.
    pub(super) fn scattered(theta: f64) -> Self {
        let items = SCATTERED_ITEMS + 1;
        if theta.to_bits() == USUAL_THETA.to_bits() {
            return Self::with_zeta(items, theta, ZETA_OF_USUAL);
        }
        Self::new(items, theta)
    }

    fn with_zeta(items: u64, theta: f64, zeta: f64) -> Self {
        let first_two = 1.0 + 0.5_f64.powf(theta);
        let rest = 1.0 - (2.0 / items as f64).powf(1.0 - theta);
        // With two items there is no rest, and the quotient is of no use.
        let eta = if items > 2 { rest / (1.0 - first_two / zeta) } else { 0.0 };
        Self { items, theta, zeta, eta }
    }

    /// The same for a number of items that has grown.
    pub(super) fn grow(&mut self, items: u64) {
        if items > self.items {
            let more = sum(self.items + 1, items, self.theta);
            *self = Self::with_zeta(items, self.theta, self.zeta + more);
        }
    }

    /// The rank for a uniform number, at least 0 and below 1.
    pub(super) fn rank(&self, uniform: f64) -> u64 {
        let share = uniform * self.zeta;
        if share < 1.0 {
            return 0;
        }
        let rank = if share < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            let power = (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
            (self.items as f64 * power) as u64
        };
        rank.min(self.items.saturating_sub(1))
    }
}

/// Sum of 1 / i^θ for i from 1 to `items`.
fn zeta(items: u64, theta: f64) -> f64 {
    sum(1, items, theta)
}

/// Sum of 1 / i^θ from the first to the last. Many terms far from 1 are taken from the integral, by
/// the formula of Euler and Maclaurin: what is left out is below 10^-15 of the sum.
fn sum(first: u64, last: u64, theta: f64) -> f64 {
    let exact = last.min(first.saturating_add(EXACT_TERMS).max(EXACT_TERMS));
    let term = |i: u64| (i as f64).powf(-theta);
    let begin: f64 = (first..=exact).map(term).sum();
    if exact >= last {
        return begin;
    }
    let (low, high) = (exact as f64, last as f64);
    let integral = (high.powf(1.0 - theta) - low.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (term(last) - term(exact)) / 2.0;
    let slopes = theta / 12.0 * (low.powf(-theta - 1.0) - high.powf(-theta - 1.0));
    begin + integral + ends + slopes
}

/// The record, of so many, that a rank falls on.
pub(super) fn scatter(rank: u64, records: u64) -> u64 {
    fnv_hash(rank) % records.max(1)
}

/// The 64-bit FNV-1a hash of a number's bytes, least first, without its sign, as YCSB has it.
fn fnv_hash(value: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = value
        .to_le_bytes()
        .iter()
        .fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    // The absolute value, that of the least number being itself, which is no record.
    hash.cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    fn plain_sum(items: u64, theta: f64) -> f64 {
        (1..=items).map(|i| (i as f64).powf(-theta)).sum()
    }

    #[test]
    fn long_sums_are_those_of_their_terms() {
        for theta in [0.01, 0.5, 0.9, 0.99, 0.999] {
            for items in [1, 2, 10_000, 10_001, 1_000_000] {
                let (quick, plain) = (zeta(items, theta), plain_sum(items, theta));
                assert!((quick / plain - 1.0).abs() < 1e-11, "{items} {theta}: {quick} {plain}");
            }
        }
        // YCSB has it by adding up all terms.
        assert!((zeta(SCATTERED_ITEMS, USUAL_THETA) - ZETA_OF_USUAL).abs() < 1e-6);
    }

    #[test]
    fn a_sum_that_has_grown_is_that_of_all() {
        let mut grown = Zipfian::new(5, 0.99);
        for items in [6, 100, 90_000, 1_000_000] {
            grown.grow(items);
            let new = Zipfian::new(items, 0.99);
            assert!((grown.zeta / new.zeta - 1.0).abs() < 1e-11, "{items}");
            assert!((grown.eta / new.eta - 1.0).abs() < 1e-9, "{items}");
        }
        grown.grow(10);
        assert_eq!(grown.items, 1_000_000, "it never shrinks");
    }

    /// Worked out by the formulas of YCSB 0.17 in another language.
    #[test]
    fn ranks_and_records_are_those_of_ycsb() {
        let hashes = [0, 1, 2, 1_000, SCATTERED_ITEMS].map(fnv_hash);
        assert_eq!(
            hashes,
            [
                6_284_781_860_667_377_211,
                8_517_097_267_634_966_620,
                1_820_151_046_732_198_393,
                5_952_875_239_596_136_740,
                1_201_321_332_300_452_516,
            ]
        );
        let zipfian = Zipfian::scattered(USUAL_THETA);
        for (uniform, rank, of_thousand, of_million) in [
            (0.0, 0, 211, 377_211),
            (0.03, 0, 211, 377_211),
            (0.0378, 1, 620, 966_620),
            (0.05, 1, 620, 966_620),
            (0.0569, 2, 393, 198_393),
            (0.1, 6, 587, 995_587),
            (0.25, 296, 614, 933_614),
            (0.5, 134_552, 260, 280_260),
            (0.75, 42_924_421, 439, 210_439),
            (0.9, 1_170_869_537, 670, 781_670),
        ] {
            let found = zipfian.rank(uniform);
            // The last digits of powers of 100 differ by the library of the machine.
            assert!(found.abs_diff(rank) <= rank / 1_000_000_000, "{uniform}: {found}, not {rank}");
            let records = (scatter(rank, 1_000), scatter(rank, 1_000_000));
            assert_eq!(records, (of_thousand, of_million), "{uniform}");
        }
    }

    /// Moments of what is drawn, against those of the shares.
    #[test]
    fn ranks_have_the_shares_of_the_distribution() {
        const DRAWS: u32 = 400_000;
        for theta in [0.5, 0.99] {
            let (zipfian, mut random) = (Zipfian::new(1_000, theta), Random::stream(3, 3));
            let (mut counts, mut sum) = (vec![0_u32; 1_000], 0.0);
            for _ in 0..DRAWS {
                let rank = zipfian.rank(random.unit());
                counts[rank as usize] += 1;
                sum += rank as f64;
            }
            let (draws, shares) = (f64::from(DRAWS), plain_sum(1_000, theta));
            let expected = |rank: usize| draws * ((rank + 1) as f64).powf(-theta) / shares;
            for rank in [0, 1] {
                let deviation = (f64::from(counts[rank]) - expected(rank)) / expected(rank).sqrt();
                assert!(deviation.abs() < 5.0, "{theta}, rank {rank}: {deviation}");
            }
            let head: u32 = counts.iter().take(100).sum();
            let of_head: f64 = (0..100).map(expected).sum();
            assert!((f64::from(head) / of_head - 1.0).abs() < 0.03, "{theta}: {head} {of_head}");
            let mean = (0..1_000).map(|rank| rank as f64 * expected(rank)).sum::<f64>() / draws;
            assert!((sum / draws / mean - 1.0).abs() < 0.05, "{theta}: {} {mean}", sum / draws);
        }
    }

    #[test]
    fn few_items_are_all_that_is_drawn() {
        for items in 1..6 {
            let (zipfian, mut random) = (Zipfian::new(items, 0.99), Random::stream(1, items));
            let mut seen = vec![false; items as usize];
            (0..10_000).for_each(|_| seen[zipfian.rank(random.unit()) as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{items}: {seen:?}");
            assert!(zipfian.rank(1.0 - f64::EPSILON) < items);
        }
    }
}
