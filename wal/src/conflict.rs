//! Conflicts between the records of several logs.

use selkie_pool::GAddr;

/// Logs that contradict each other or lack changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeConflict {
    /// Later changes build upon a change that is in no log.
    #[error("page {addr}: the change after number {has} is in no log, but that after {next} is")]
    Gap {
        /// The page.
        addr: GAddr,
        /// Its sequence number after the last change that was found.
        has: u64,
        /// The sequence number that the next change begins with.
        next: u64,
    },
    /// Two logs have different changes of the same state of a page.
    #[error("page {addr}: two logs have a change after number {psn}")]
    Fork {
        /// The page.
        addr: GAddr,
        /// Its sequence number before either of them.
        psn: u64,
    },
}
