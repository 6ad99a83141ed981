//! The matrices of all reconstructions of a code.
//!
//! Which splits are at hand when a page is wanted is chance: late binding takes the first k that
//! come. There are at most C(12, 6) = 924 such patterns; so the matrices of all are computed when a
//! codec is made and stay as they are: a look-up is two loads and takes no lock. It takes 8 KiB for
//! 8+2 and 141 KiB for 6+6, the most. A cache filled on demand would save the time of making a
//! codec, and take synchronisation in every reconstruction.

use crate::error::CodecError;
use crate::matrix::{Row, generator, invert, times};
use crate::shape::Shape;
use crate::split_set::SplitSet;

/// Marks sets of splits that are not k.
const NONE: u16 = u16::MAX;

/// For each k splits at hand, the rows of all splits.
#[derive(Debug)]
pub(crate) struct Patterns {
    splits: usize,
    /// The place of each set's rows, in units of `splits` rows, or [`NONE`]; by the set's bits.
    places: Box<[u16]>,
    rows: Box<[Row]>,
}

impl Patterns {
    pub(crate) fn new(shape: Shape) -> Result<Patterns, CodecError> {
        let singular = CodecError::Shape { data: shape.data(), parity: shape.parity() };
        let generator = generator(shape).ok_or(singular)?;
        let (mut places, mut rows) = (Vec::new(), Vec::new());
        let mut found = 0;
        for bits in 0..1u16 << shape.splits() {
            let set = SplitSet::from_bits(bits);
            if set.len() != shape.data() {
                places.push(NONE);
                continue;
            }
            places.push(found);
            found += 1;
            let numbered = generator.iter().enumerate();
            let at_hand = numbered.filter(|(split, _)| set.contains(*split)).map(|(_, row)| *row);
            let decode = invert(&at_hand.collect::<Vec<Row>>()).ok_or(singular)?;
            rows.extend(generator.iter().map(|row| spread(&times(row, &decode), set)));
        }
        Ok(Patterns { splits: shape.splits(), places: places.into(), rows: rows.into() })
    }

    /// The rows of all splits, whose coefficients stand at the numbers of the splits of `at_hand`,
    /// and are zero elsewhere; none if `at_hand` is not of k splits.
    #[inline]
    pub(crate) fn rows(&self, at_hand: SplitSet) -> Option<&[Row]> {
        let place = *self.places.get(usize::from(at_hand.bits()))?;
        let start = usize::from(place) * self.splits;
        self.rows.get(start..start + self.splits).filter(|_| place != NONE)
    }
}

/// Puts the coefficients of a row, which are for the splits of `set` in turn, where the splits'
/// numbers are.
fn spread(row: &Row, set: SplitSet) -> Row {
    let mut spread = Row::default();
    for (split, coefficient) in set.iter().zip(row) {
        spread.iter_mut().skip(split).take(1).for_each(|entry| *entry = *coefficient);
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sets_of_k_have_rows() {
        let patterns = Patterns::new(Shape::new(3, 2).unwrap()).unwrap();
        let with_rows = (0..=u16::MAX).filter(|b| patterns.rows(SplitSet::from_bits(*b)).is_some());
        assert_eq!(with_rows.map(u16::count_ones).collect::<Vec<_>>(), [3; 10]);
    }

    #[test]
    fn rows_for_all_data_are_the_generator() {
        let shape = Shape::new(8, 2).unwrap();
        let patterns = Patterns::new(shape).unwrap();
        let generator = generator(shape).unwrap();
        assert_eq!(patterns.rows(SplitSet::from_bits(0xFF)), Some(&generator[..]));
    }

    #[test]
    fn splits_at_hand_are_themselves() {
        let patterns = Patterns::new(Shape::new(3, 3).unwrap()).unwrap();
        let rows = patterns.rows(SplitSet::from_bits(0b10_1001)).unwrap();
        for split in [0, 3, 5] {
            assert!(rows[split].iter().enumerate().all(|(i, c)| *c == u8::from(i == split)));
        }
        assert!(rows[1].iter().enumerate().all(|(i, c)| (*c != 0) == [0, 3, 5].contains(&i)));
    }

    #[test]
    fn codecs_take_no_more_memory_than_the_page_says() {
        let bytes = |k, r| {
            let patterns = Patterns::new(Shape::new(k, r).unwrap()).unwrap();
            size_of_val(&*patterns.places) + size_of_val(&*patterns.rows)
        };
        let most = (1..=12).map(|k| bytes(k, 12 - k)).max();
        assert!(most <= Some(141 << 10), "{most:?}");
        assert!(bytes(8, 2) <= 8 << 10);
    }
}
