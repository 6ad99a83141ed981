//! How many splits a code has, and sets of them.

use std::fmt;

use super::CodecError;

/// Splits of a page, data and parity together, at most.
pub const MAX_SPLITS: usize = 12;

/// How many data and parity splits a code has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    data: u8,
    parity: u8,
}

impl Shape {
    /// A code of this many data splits (at least one) and parity splits.
    pub fn new(data: usize, parity: usize) -> Result<Shape, CodecError> {
        match (u8::try_from(data), u8::try_from(parity)) {
            (Ok(d @ 1..), Ok(p)) if data + parity <= MAX_SPLITS => Ok(Shape { data: d, parity: p }),
            _ => Err(CodecError::Shape { data, parity }),
        }
    }

    /// Data splits, k.
    pub fn data(self) -> usize {
        self.data.into()
    }

    /// Parity splits, r.
    pub fn parity(self) -> usize {
        self.parity.into()
    }

    /// All splits, k + r.
    pub fn splits(self) -> usize {
        self.data() + self.parity()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

/// A set of splits: bit i stands for split i.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct SplitSet(u16);

const _: () = assert!(MAX_SPLITS <= u16::BITS as usize);

impl SplitSet {
    pub(super) fn from_bits(bits: u16) -> SplitSet {
        SplitSet(bits)
    }

    /// All splits of numbers below `count`, which is at most [`MAX_SPLITS`].
    pub(super) fn below(count: usize) -> SplitSet {
        SplitSet(1u16.wrapping_shl(count as u32) - 1)
    }

    pub(super) fn bits(self) -> u16 {
        self.0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn contains(self, index: usize) -> bool {
        index < MAX_SPLITS && self.0 >> index & 1 == 1
    }

    /// Puts split `index` (below [`MAX_SPLITS`]) in and says whether it was not there.
    pub(super) fn insert(&mut self, index: usize) -> bool {
        let before = self.0;
        self.0 |= 1u16.wrapping_shl(index as u32);
        self.0 != before
    }

    /// Their numbers, ascending.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_SPLITS).filter(move |index| self.contains(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_data_and_no_more_than_twelve_splits() {
        for (data, parity) in [(0, 0), (0, 3), (13, 0), (12, 1), (1, 12), (257, 0), (1, usize::MAX)]
        {
            assert_eq!(Shape::new(data, parity), Err(CodecError::Shape { data, parity }));
        }
        for (data, parity) in [(1, 0), (12, 0), (1, 11), (8, 2)] {
            let shape = Shape::new(data, parity).unwrap();
            assert_eq!(
                (shape.data(), shape.parity(), shape.splits()),
                (data, parity, data + parity)
            );
        }
        assert_eq!(Shape::new(8, 2).unwrap().to_string(), "8+2");
    }

    #[test]
    fn sets_have_their_members() {
        for bits in 0..1u16 << MAX_SPLITS {
            let mut set = SplitSet::default();
            let members: Vec<usize> = (0..MAX_SPLITS).filter(|i| bits >> i & 1 == 1).collect();
            assert!(members.iter().all(|i| set.insert(*i)));
            assert!(members.iter().all(|i| !set.insert(*i)));
            assert_eq!((set.bits(), set.len()), (bits, members.len()));
            assert!(set.iter().eq(members.iter().copied()));
        }
    }
}
