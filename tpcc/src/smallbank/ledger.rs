//! The ledger: sums of what committed transactions added to balances.

use std::sync::atomic::{AtomicI64, Ordering};

use smallvec::SmallVec;

use crate::benchmark::ChangeSums;

/// An account of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    Savings(i32),
    Checking(i32),
}

/// What a committed transaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommittedChanges {
    /// What it added to balances.
    pub(super) changes: SmallVec<[(Account, i64); 3]>,
    /// What came into the bank by it, as its input says.
    pub(super) came_in: i64,
}

/// What committed transactions did; 16 bytes a customer.
#[derive(Debug)]
pub struct BalanceLedger {
    /// To each balance: two cells a customer.
    balances: ChangeSums,
    /// To the bank as a whole, in cents: by what was entered, not by what was found.
    came_in: AtomicI64,
}

impl BalanceLedger {
    pub(super) fn new(accounts: u32) -> Self {
        Self { balances: ChangeSums::new(2 * accounts as usize), came_in: AtomicI64::new(0) }
    }

    pub(super) fn note(&self, done: &CommittedChanges) {
        for (account, difference) in &done.changes {
            self.balances.note(existing_cell(*account), *difference);
        }
        self.came_in.fetch_add(done.came_in, Ordering::Relaxed);
    }

    /// What committed transactions have added to a balance.
    pub(super) fn sum(&self, account: Account) -> i64 {
        self.balances.sum(existing_cell(account))
    }

    /// What committed transactions have added to all balances together, in cents.
    #[must_use]
    pub fn came_in(&self) -> i64 {
        self.came_in.load(Ordering::Relaxed)
    }
}

/// The cell of a balance's sum.
#[expect(clippy::expect_used, reason = "a dropped change would hide a lost update")]
fn existing_cell(account: Account) -> usize {
    cell(account).expect("customers are numbered from 1")
}

/// The cell of a balance's sum, if there is such an account.
fn cell(account: Account) -> Option<usize> {
    let (customer, at) = match account {
        Account::Savings(customer) => (customer, 0),
        Account::Checking(customer) => (customer, 1),
    };
    Some(2 * usize::try_from(customer.checked_sub(1)?).ok()? + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_accounts_share_a_cell() {
        let cells = (1..4).flat_map(|customer| {
            [cell(Account::Savings(customer)), cell(Account::Checking(customer))]
        });
        assert_eq!(cells.collect::<Vec<_>>(), (0..6).map(Some).collect::<Vec<_>>());
        assert_eq!(cell(Account::Savings(0)), None);
        assert_eq!(cell(Account::Checking(i32::MIN)), None);
    }
}
