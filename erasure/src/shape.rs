//! How many splits a code has.

use std::fmt;

use crate::error::CodecError;
use crate::split_set::MAX_SPLITS;

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
}
