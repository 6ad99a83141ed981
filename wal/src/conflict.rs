//! Why the records of logs do not make a page.

use selkie_pool::GAddr;

/// Logs that do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeConflict {
    /// A change is in no log that later ones build upon.
    #[error("page {addr}: the change after number {has} is in no log, but that after {next} is")]
    Gap {
        /// The page.
        addr: GAddr,
        /// Its number after the last change that was found.
        has: u64,
        /// The number that the next change begins with.
        next: u64,
    },
    /// Two logs tell different changes of the same page.
    #[error("page {addr}: two logs have a change after number {psn}")]
    Fork {
        /// The page.
        addr: GAddr,
        /// Its number before either of them.
        psn: u64,
    },
}
