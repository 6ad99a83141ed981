//! What a sequence is, and which values come next: arithmetic alone.

use crate::catalogue::definition::max_name_bytes;
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_builder::RowBuilder;
use crate::encoding::row_layout::RowLayout;
use crate::encoding::row_ref::RowRef;
use crate::sequences::blocks::Block;
use crate::sequences::error::{MAX_SEQUENCE_BLOCK, SequenceError};

/// Values that a node takes at a time, unless said otherwise.
const DEFAULT_BLOCK: u32 = 64;

/// A sequence, as it is created.
///
/// ```
/// use selkie_txn::SequenceSchema;
///
/// let orders = SequenceSchema::new("order_id");
/// assert_eq!((orders.start, orders.increment, orders.max), (1, 1, i64::MAX));
/// let from_ten = SequenceSchema { start: 10, max: 10, ..SequenceSchema::descending("t") };
/// assert!(from_ten.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceSchema {
    /// Its name.
    pub name: String,
    /// Its first value.
    pub start: i64,
    /// From one value to the next; below 0 the values descend.
    pub increment: i64,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// Whether it begins again at its other bound when it has reached one. Then values come more
    /// than once.
    pub cycles: bool,
    /// Values that a node takes at a time, 1 to [`MAX_SEQUENCE_BLOCK`]. Of larger blocks more are
    /// left out when a node ends, and values of several nodes are further apart.
    pub block: u32,
}

impl SequenceSchema {
    /// From 1 upwards.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cycles: false,
            block: DEFAULT_BLOCK,
        }
    }

    /// From -1 downwards.
    pub fn descending(name: impl Into<String>) -> Self {
        Self { start: -1, increment: -1, min: i64::MIN, max: -1, ..Self::new(name) }
    }

    /// # Errors
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), SequenceError> {
        let Self { start, increment, min, max, block, .. } = *self;
        let name = || self.name.clone();
        if increment == 0 {
            return Err(SequenceError::NoIncrement { name: name() });
        }
        if min >= max {
            return Err(SequenceError::Bounds { name: name(), min, max });
        }
        if !(1..=MAX_SEQUENCE_BLOCK).contains(&block) {
            return Err(SequenceError::Block { name: name(), block });
        }
        self.check_value(start)
    }

    /// Checks what depends on the size of pages.
    pub(crate) fn check_name(&self, page_bytes: usize) -> Result<(), SequenceError> {
        let allowed = max_name_bytes(page_bytes);
        if (1..=allowed).contains(&self.name.len()) {
            return Ok(());
        }
        Err(SequenceError::NameBytes { name: self.name.clone(), allowed })
    }

    pub(crate) fn check_value(&self, value: i64) -> Result<(), SequenceError> {
        let Self { min, max, .. } = *self;
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(SequenceError::OutOfBounds { name: self.name.clone(), value, min, max })
    }

    /// The bounds in the order in which its values come.
    fn ends(&self) -> (i64, i64) {
        if self.increment > 0 { (self.min, self.max) } else { (self.max, self.min) }
    }

    /// The next values, up to `most` and one at least, and how far the sequence is then.
    pub(crate) fn take(
        &self,
        taken: ValuesTaken,
        most: u32,
    ) -> Result<(Block, ValuesTaken), SequenceError> {
        let (first_of_all, last_of_all) = self.ends();
        let step = i128::from(self.increment);
        let next = match taken {
            ValuesTaken::UpTo(last) => {
                let next = i128::from(last) + step;
                let bounds = i128::from(self.min)..=i128::from(self.max);
                match i64::try_from(next).ok().filter(|_| bounds.contains(&next)) {
                    Some(next) => next,
                    None if self.cycles => first_of_all,
                    None => {
                        let name = self.name.clone();
                        return Err(SequenceError::Exhausted { name, last: last_of_all });
                    }
                }
            }
            ValuesTaken::Before(next) => next,
        };
        let beyond = (i128::from(last_of_all) - i128::from(next)) / step;
        let more = u32::try_from(beyond).unwrap_or(u32::MAX).min(most.saturating_sub(1));
        // Between the bounds, as there are so many left.
        let last = i128::from(next) + i128::from(more) * step;
        let last = i64::try_from(last).unwrap_or(last_of_all);
        Ok((Block { first: next, more, increment: self.increment }, ValuesTaken::UpTo(last)))
    }
}

/// How far a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValuesTaken {
    /// The next value is this one.
    Before(i64),
    /// This is the last value that was taken.
    UpTo(i64),
}

impl ValuesTaken {
    pub(crate) const IS_TAKEN: usize = 2;
    pub(crate) const VALUE: usize = 1;

    pub(crate) fn new(value: i64, is_taken: bool) -> Self {
        if is_taken { Self::UpTo(value) } else { Self::Before(value) }
    }

    /// The value, and whether it is taken.
    pub(crate) fn parts(self) -> (i64, bool) {
        match self {
            Self::Before(value) => (value, false),
            Self::UpTo(value) => (value, true),
        }
    }

    pub(crate) fn row(self, layout: &RowLayout, identity: i64) -> Result<Vec<u8>, NamedRowError> {
        let (value, is_taken) = self.parts();
        let mut row = RowBuilder::new(layout);
        let row = row.i64(identity).i64(value).bool(is_taken).finish()?;
        Ok(row.as_bytes().to_vec())
    }

    pub(crate) fn read(row: RowRef<'_>) -> Result<Self, NamedRowError> {
        Ok(Self::new(row.i64(Self::VALUE)?, row.bool(Self::IS_TAKEN)?))
    }
}

/// A sequence as it is stored, but for how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredSequence {
    pub(crate) schema: SequenceSchema,
    /// A random number, which no other definition of it or of another has.
    pub(crate) identity: i64,
}

impl StoredSequence {
    pub(crate) fn row(&self, layout: &RowLayout) -> Result<Vec<u8>, NamedRowError> {
        let SequenceSchema { name, start, increment, min, max, cycles, block } = &self.schema;
        let mut row = RowBuilder::new(layout);
        row.text(name).i64(self.identity).i64(*start).i64(*increment).i64(*min).i64(*max);
        let row = row.bool(*cycles).i64((*block).into()).finish()?;
        Ok(row.as_bytes().to_vec())
    }

    pub(crate) fn read(row: RowRef<'_>) -> Result<Self, NamedRowError> {
        let schema = SequenceSchema {
            name: row.text(0)?.to_owned(),
            start: row.i64(2)?,
            increment: row.i64(3)?,
            min: row.i64(4)?,
            max: row.i64(5)?,
            cycles: row.bool(6)?,
            // One that is none is not taken for a block of another size.
            block: u32::try_from(row.i64(7)?).unwrap_or(1),
        };
        Ok(Self { schema, identity: row.i64(1)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(schema: &SequenceSchema, most: u32, up_to: usize) -> (Vec<i64>, bool) {
        let (mut taken, mut values) = (ValuesTaken::Before(schema.start), Vec::new());
        while values.len() < up_to {
            let Ok((block, after)) = schema.take(taken, most) else { return (values, true) };
            assert!(block.more < most);
            let blocks = std::iter::successors(Some(block), |block| block.rest());
            values.extend(blocks.map(|block| block.first));
            assert_eq!(after, ValuesTaken::UpTo(*values.last().unwrap()));
            taken = after;
        }
        values.truncate(up_to);
        (values, false)
    }

    #[test]
    fn a_sequence_ends_at_its_bound_or_begins_again() {
        let to_ten = SequenceSchema { start: 3, max: 10, increment: 3, ..SequenceSchema::new("s") };
        assert_eq!(all(&to_ten, 2, 100), (vec![3, 6, 9], true));
        let around = SequenceSchema { cycles: true, ..to_ten.clone() };
        assert_eq!(all(&around, 2, 8), (vec![3, 6, 9, 1, 4, 7, 10, 1], false));
        let down = SequenceSchema { min: -4, ..SequenceSchema::descending("s") };
        assert_eq!(all(&down, 3, 9), (vec![-1, -2, -3, -4], true));
        let last = SequenceSchema { start: i64::MAX - 1, ..SequenceSchema::new("s") };
        assert_eq!(all(&last, 64, 9), (vec![i64::MAX - 1, i64::MAX], true));
        let wide = SequenceSchema {
            start: i64::MIN,
            min: i64::MIN,
            increment: i64::MAX,
            ..SequenceSchema::new("s")
        };
        assert_eq!(all(&wide, 64, 9), (vec![i64::MIN, -1, i64::MAX - 1], true));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let good = || SequenceSchema::new("s");
        let said = |schema: SequenceSchema| schema.validate().unwrap_err().to_string();
        assert!(good().validate().is_ok() && SequenceSchema::descending("s").validate().is_ok());
        assert!(said(SequenceSchema { increment: 0, ..good() }).contains("an increment of 0"));
        assert!(said(SequenceSchema { min: 5, max: 5, ..good() }).contains("5 is not below"));
        assert!(said(SequenceSchema { start: 0, ..good() }).contains("0 is not between"));
        assert!(said(SequenceSchema { block: 0, ..good() }).contains("blocks of 0 values"));
        let block = MAX_SEQUENCE_BLOCK + 1;
        assert!(said(SequenceSchema { block, ..good() }).contains("allowed: 1 to 1048576"));
    }

    proptest! {
        #[test]
        fn values_are_the_same_whatever_the_size_of_blocks(
            start in any::<i64>(), increment in any::<i64>(), bounds in any::<(i64, i64)>(),
            small in any::<bool>(), cycles in any::<bool>(), block in 1u32..20,
        ) {
            let shrink = |value: i64| if small { value % 50 } else { value };
            let (min, max) = (shrink(bounds.0.min(bounds.1)), shrink(bounds.0.max(bounds.1)));
            let (start, increment) = (shrink(start), shrink(increment));
            let schema = SequenceSchema {
                start, increment, min, max, cycles, ..SequenceSchema::new("s")
            };
            prop_assume!(schema.validate().is_ok());
            let (values, ended) = all(&schema, block, 100);
            prop_assert_eq!((values.clone(), ended), all(&schema, 1, 100));
            prop_assert!(values.iter().all(|value| (min..=max).contains(value)));
            prop_assert_eq!(values.first(), Some(&start));
            prop_assert!(!(cycles && ended));
        }
    }
}
