//! Sets of the splits of a page.

/// Splits of a page, data and parity together, at most.
pub const MAX_SPLITS: usize = 12;

/// A set of splits: bit i stands for split i.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SplitSet(u16);

const _: () = assert!(MAX_SPLITS <= u16::BITS as usize);

impl SplitSet {
    pub(crate) fn from_bits(bits: u16) -> SplitSet {
        SplitSet(bits)
    }

    /// All splits of numbers below `count`, which is at most [`MAX_SPLITS`].
    pub(crate) fn below(count: usize) -> SplitSet {
        SplitSet(1u16.wrapping_shl(count as u32) - 1)
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn contains(self, index: usize) -> bool {
        index < MAX_SPLITS && self.0 >> index & 1 == 1
    }

    /// Puts split `index` (below [`MAX_SPLITS`]) in and says whether it was not there.
    pub(crate) fn insert(&mut self, index: usize) -> bool {
        let before = self.0;
        self.0 |= 1u16.wrapping_shl(index as u32);
        self.0 != before
    }

    /// Their numbers, ascending.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_SPLITS).filter(move |index| self.contains(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
