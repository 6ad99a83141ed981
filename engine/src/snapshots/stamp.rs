//! The place of a transaction in the order of all, as a number of the pool's clock.

/// A transaction's place in the order of all; zero is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(u64);

impl Stamp {
    /// The stamp of that number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}
