//! What the codec refuses.

use crate::kernel::name::Kernel;
use crate::split_set::MAX_SPLITS;

/// Error of the codec. Nothing was written where one is returned.
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
    /// The CPU does not have what the kernel is made of.
    #[error("this CPU cannot run the kernel {kernel}")]
    KernelUnavailable {
        /// The kernel.
        kernel: Kernel,
    },
    /// Not all data splits, or not all parity splits, or more.
    #[error("{given} {which} splits where the code has {expected}")]
    Count {
        /// `data` or `parity`.
        which: &'static str,
        /// As many as the code has.
        expected: usize,
        /// As many as came.
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
        /// Bytes of one that differs.
        given: usize,
    },
    /// There is no split of this number.
    #[error("no split {index}: the code has {splits}")]
    Index {
        /// The number.
        index: usize,
        /// As many as there are of that kind.
        splits: usize,
    },
    /// A split came twice, or is both at hand and missing.
    #[error("split {index} twice")]
    Repeated {
        /// Its number.
        index: usize,
    },
    /// More splits are needed for this.
    #[error("{given} splits where {needed} are needed")]
    TooFew {
        /// As many as are needed.
        needed: usize,
        /// As many as came.
        given: usize,
    },
    /// The splits do not belong together, and more of them are wrong than can be found.
    #[error("more than {most} of {given} splits are wrong")]
    TooManyWrong {
        /// As many as could have been found.
        most: usize,
        /// As many splits as came.
        given: usize,
    },
    /// The crate behind [`Reference`](crate::Reference) refused what was found in order.
    #[error("reed-solomon-erasure: {0}")]
    Reference(reed_solomon_erasure::Error),
}

impl CodecError {
    /// Whether the same may succeed with more splits.
    pub fn is_retryable(&self) -> bool {
        matches!(self, CodecError::TooFew { .. } | CodecError::TooManyWrong { .. })
    }
}
