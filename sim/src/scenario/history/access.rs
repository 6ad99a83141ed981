//! One transaction, as the operations on registers and lists have it.

use selkie_fabric::env::SplitMix;
use selkie_txn::{Database, Direction, Txn};

use super::journal::Notes;

/// A transaction under way, with what it works on.
pub(super) struct Access<'t, 'db> {
    pub(super) db: &'db Database,
    pub(super) txn: &'t mut Txn<'db>,
    pub(super) notes: &'t mut Notes,
    pub(super) random: &'t SplitMix,
}

impl Access<'_, '_> {
    pub(super) fn coin(&self) -> bool {
        self.random.below(2) == 0
    }

    pub(super) fn direction(&self) -> Direction {
        if self.coin() { Direction::Forward } else { Direction::Reverse }
    }
}
