//! The set of pieces of a page that differ from its state at home.

use std::ops::Range;

/// Pieces of a page.
pub const PIECES: u32 = u64::BITS;

/// The pieces of a page that differ from its state at home. A page has 64 pieces of the same
/// length; bit i stands for piece i.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Dirty(u64);

impl Dirty {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The whole page.
    pub const ALL: Self = Self(u64::MAX);

    /// The set of pieces with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// One bit for each piece.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether no piece differs.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The pieces of a page of `page` bytes in which bytes of `range` lie.
    #[inline]
    #[must_use]
    pub fn of(range: &Range<usize>, page: usize) -> Self {
        if range.is_empty() {
            return Self::NONE;
        }
        let shift = page.trailing_zeros() - PIECES.trailing_zeros();
        let (first, last) = (range.start >> shift, (range.end - 1) >> shift);
        debug_assert!(last < PIECES as usize, "range beyond the page");
        Self(u64::MAX << first & u64::MAX >> (PIECES as usize - 1 - last))
    }

    /// The pieces of either.
    #[must_use]
    #[inline]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether bytes of `range`, of a page of `page` bytes, may differ.
    pub fn touches(self, range: &Range<usize>, page: usize) -> bool {
        self.0 & Self::of(range, page).0 != 0
    }

    /// The ranges of a page of `page` bytes that may differ, in order. Two ranges with less than
    /// `gap` bytes between them are returned as one.
    pub fn stretches(self, page: usize, gap: usize) -> impl Iterator<Item = Range<usize>> {
        let piece = page / PIECES as usize;
        let mut rest = self.0;
        let mut next = move || {
            let first = (rest != 0).then(|| rest.trailing_zeros())?;
            let length = (rest >> first).trailing_ones();
            // In two steps, as all at once may be too many.
            rest &= (u64::MAX << first << (length - 1)) << 1;
            Some(first as usize * piece..(first + length) as usize * piece)
        };
        let mut ahead = next();
        std::iter::from_fn(move || {
            let mut stretch = ahead.take()?;
            ahead = next();
            while let Some(close) = ahead.take_if(|later| later.start - stretch.end < gap) {
                stretch.end = close.end;
                ahead = next();
            }
            Some(stretch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_what_was_written_and_little_more() {
        for page in [512, 2048, 4096, 8192] {
            let piece = page / 64;
            for (start, end) in
                [(0, 8), (8, 16), (0, page), (page - 8, page), (page / 2 - 8, page / 2 + 8)]
            {
                let mut all = Dirty::of(&(start..end), page).stretches(page, 0);
                let (bounds, more) = (all.next().unwrap(), all.next());
                assert_eq!(more, None);
                assert!(bounds.start <= start && bounds.end >= end, "{page} {start}..{end}");
                assert!(start - bounds.start < piece && bounds.end - end < piece);
            }
            assert_eq!(Dirty::of(&(0..page), page), Dirty::ALL);
            assert_eq!(Dirty::of(&(64..64), page), Dirty::NONE);
            assert_eq!(Dirty::NONE.stretches(page, 0).next(), None);
        }
    }

    #[test]
    fn what_lies_between_two_changes_is_not_touched() {
        let both = Dirty::of(&(0..8), 4096).union(Dirty::of(&(4000..4008), 4096));
        let stretches = |dirty: Dirty, page, gap| {
            let bounds = dirty.stretches(page, gap).map(|stretch| (stretch.start, stretch.end));
            bounds.collect::<Vec<_>>()
        };
        assert_eq!(stretches(both, 4096, 4000), [(0, 4032)]);
        assert_eq!(stretches(both, 4096, 256), [(0, 64), (3968, 4032)]);
        assert_eq!(stretches(Dirty::ALL, 512, 8), [(0, 512)]);
        assert_eq!(stretches(Dirty(1 | 1 << 63), 512, 8), [(0, 8), (504, 512)]);
        assert_eq!(stretches(Dirty(0b110_1110), 512, 8), [(8, 32), (40, 56)]);
        assert_eq!(stretches(Dirty(0b110_1110), 512, 9), [(8, 56)]);
        let splits = [0..512, 512..1024, 3072..3584, 3584..4096];
        assert_eq!(splits.map(|split| both.touches(&split, 4096)), [true, false, false, true]);
    }
}
