//! Errors of the codec.

use crate::kernel::name::Kernel;
use crate::split_set::MAX_SPLITS;

/// Error of the codec. A call that returns one has written nothing.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// There is no code of this shape.
    #[error("no code of {data}+{parity} splits: at least 1 of data, {MAX_SPLITS} in all at most")]
    Shape {
        /// Data splits.
        data: usize,
        /// Parity splits.
        parity: usize,
    },
    /// The CPU lacks the instructions of the kernel.
    #[error("this CPU cannot run the kernel {kernel}")]
    KernelUnavailable {
        /// The kernel.
        kernel: Kernel,
    },
    /// The count of data splits or of parity splits is wrong.
    #[error("{given} {which} splits where the code has {expected}")]
    Count {
        /// `data` or `parity`.
        which: &'static str,
        /// The count of the code.
        expected: usize,
        /// The count in the call.
        given: usize,
    },
    /// Splits have no bytes.
    #[error("splits of no bytes")]
    Empty,
    /// Splits differ in length.
    #[error("a split of {given} bytes among splits of {expected}")]
    Length {
        /// Bytes of the first split.
        expected: usize,
        /// Bytes of a split that differs.
        given: usize,
    },
    /// There is no split of this number.
    #[error("no split {index}: the code has {splits}")]
    Index {
        /// The number.
        index: usize,
        /// The count of splits of that kind.
        splits: usize,
    },
    /// A split is given twice, or is both present and missing.
    #[error("split {index} twice")]
    Repeated {
        /// Its number.
        index: usize,
    },
    /// More splits are needed for this.
    #[error("{given} splits where {needed} are needed")]
    TooFew {
        /// The count that is needed.
        needed: usize,
        /// The count in the call.
        given: usize,
    },
    /// The splits do not belong together, and more of them are wrong than can be found.
    #[error("more than {most} of {given} splits are wrong")]
    TooManyWrong {
        /// The most wrong splits that can be found.
        most: usize,
        /// The count of splits in the call.
        given: usize,
    },
    /// The crate behind [`Reference`](crate::Reference) refused arguments that the checks have
    /// passed.
    #[error("reed-solomon-erasure: {0}")]
    Reference(reed_solomon_erasure::Error),
}

impl CodecError {
    /// Whether the same may succeed with more splits.
    pub fn is_retryable(&self) -> bool {
        matches!(self, CodecError::TooFew { .. } | CodecError::TooManyWrong { .. })
    }
}
