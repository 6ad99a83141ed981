//! Why a sequence is refused, or gives no value.

/// Most values of a [sequence](crate::SequenceSchema) that a node takes at a time.
pub const MAX_SEQUENCE_BLOCK: u32 = 1 << 20;

/// Why a sequence is refused, or gives no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// There is no sequence of that name.
    #[error("there is no sequence {name}")]
    NoSuchSequence {
        /// The name.
        name: String,
    },
    /// There is one of that name.
    #[error("there is a sequence {name} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// A name that is empty or too long.
    #[error("sequence {name}: its name has {} bytes (allowed: 1 to {allowed})", .name.len())]
    NameBytes {
        /// The name.
        name: String,
        /// Most bytes.
        allowed: usize,
    },
    /// It would never go on.
    #[error("sequence {name}: an increment of 0 (allowed: any other)")]
    NoIncrement {
        /// The sequence.
        name: String,
    },
    /// There is no room between its bounds.
    #[error("sequence {name}: the least value {min} is not below the greatest, {max}")]
    Bounds {
        /// The sequence.
        name: String,
        /// Its least value.
        min: i64,
        /// Its greatest value.
        max: i64,
    },
    /// Its first value, or the one that it is set to, is beyond its bounds.
    #[error("sequence {name}: {value} is not between its bounds {min} and {max}")]
    OutOfBounds {
        /// The sequence.
        name: String,
        /// The value.
        value: i64,
        /// Its least value.
        min: i64,
        /// Its greatest value.
        max: i64,
    },
    /// A node cannot take so many values at a time.
    #[error("sequence {name}: blocks of {block} values (allowed: 1 to {MAX_SEQUENCE_BLOCK})")]
    Block {
        /// The sequence.
        name: String,
        /// The size of a block.
        block: u32,
    },
    /// All values are taken, and it does not begin again.
    #[error("sequence {name} has no more values: its last one is {last}")]
    Exhausted {
        /// The sequence.
        name: String,
        /// The bound that it has reached.
        last: i64,
    },
    /// It was changed or dropped since the transaction read its definition. Run the transaction
    /// again.
    #[error("sequence {name} was changed since the transaction has read its definition")]
    Changed {
        /// The sequence.
        name: String,
    },
}
