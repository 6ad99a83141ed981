//! The load of the history scenario, drawn from the seed.

use std::time::Duration;

use crate::scenario::random::drawn;

/// Numbers of registers. With few, all registers are on one leaf.
const KEYS: [u64; 3] = [6, 16, 40];
/// Largest number of registers in a page. With few, leaves split often and become empty.
const ROWS_A_PAGE: [u16; 2] = [3, u16::MAX];

/// How long a transaction waits for a lock that is to be had: longer than any trouble.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// The parameters of the load.
#[derive(Clone, Copy)]
pub(super) struct HistoryLoad {
    /// Number of registers.
    pub(super) keys: u64,
    /// Largest number of registers in a page.
    pub(super) rows_a_page: u16,
    /// Sessions evict pages now and then, though the caches could hold all pages.
    pub(super) evicts: bool,
    /// Sessions lock rows.
    pub(super) locks: bool,
}

impl HistoryLoad {
    /// Draws the load of a seed, in a database that has row locks or not.
    pub(super) fn drawn(seed: u64, has_row_locks: bool) -> Self {
        let keys = *drawn(seed, 13, &KEYS);
        let evicts = *drawn(seed, 14, &[false, true]);
        let rows_a_page = *drawn(seed, 15, &ROWS_A_PAGE);
        let locks = has_row_locks && *drawn(seed, 16, &[true, true, false]);
        Self { keys, rows_a_page, evicts, locks }
    }
}
