//! What clients did to a page and saw of it: the record by which the page is judged.

use crate::check::linear::Operation;

/// What a page saw.
#[derive(Default)]
pub(super) struct PageRecord {
    pub(super) operations: Vec<Operation>,
    /// Attempts to get the right to change it.
    pub(super) attempts: Vec<WriteAttempt>,
    /// The largest value that an acknowledged operation has seen or made.
    pub(super) acknowledged: u64,
    /// A client learned that it is lost.
    pub(super) lost: bool,
    /// A client learned that it is damaged.
    pub(super) damaged: bool,
}

#[derive(Clone, Copy)]
pub(super) struct WriteAttempt {
    pub(super) node: usize,
    /// `None` if the outcome is unknown.
    pub(super) ended: Option<u64>,
}
