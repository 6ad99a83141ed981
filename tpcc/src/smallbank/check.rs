//! What must hold after the run.

use std::ops::Range;

use selkie_txn::{Table, TxnError, key};

use super::config::Config;
use super::ledger::{Account, BalanceLedger};
use super::rows::{Balances, name};
use super::schema::{BALANCE, CUSTOMER, NAME, OWNER, Tables};
use crate::benchmark::{Findings, Sequence, range_of, scan};
use crate::cluster::Node;
use crate::error::TpccError;

const NAMES: &str = "every customer is there under one name and no other is";
const ROWS: &str = "every customer has one savings and one checking account and no other has";
const BALANCES: &str =
    "a balance is what was loaded and what committed transactions have added to it";
const COVERED: &str = "no savings account is overdrawn";
const SUM: &str = "the sum of all balances is that of the loaded ones and of what came in";

/// Sums of the check.
const FOUND: &str = "cents_found";
const LOADED: &str = "cents_loaded";
const CAME_IN: &str = "cents_came_in";

/// Looks at the rows of these customers.
pub(super) async fn check(
    config: &Config,
    node: &Node<Tables>,
    ledger: &BalanceLedger,
    customers: Range<i32>,
) -> Result<Findings, TpccError> {
    let mut found = Findings::default();
    check_names(config, node, &customers, &mut found).await?;
    let tables = &node.tables;
    let loaded = |customer| Balances::loaded(config.setup.seed, customer);
    for (title, table, of_savings) in
        [("savings", tables.savings, true), ("checking", tables.checking, false)]
    {
        let balances = read_balances(config, node, (title, table), &customers, &mut found).await?;
        for (customer, balance) in customers.clone().zip(balances) {
            let (loaded, account) = if of_savings {
                (loaded(customer).savings, Account::Savings(customer))
            } else {
                (loaded(customer).checking, Account::Checking(customer))
            };
            found.add(LOADED, loaded);
            let Some(balance) = balance else {
                found.expect(false, ROWS, || format!("{title} of {customer} is missing"));
                continue;
            };
            found.expect(!of_savings || balance >= 0, COVERED, || {
                format!("{title} of {customer}: {balance} cents")
            });
            let expected = loaded.wrapping_add(ledger.sum(account));
            found.expect(balance == expected, BALANCES, || {
                format!("{title} of {customer}: {balance}, not {expected} cents")
            });
        }
    }
    Ok(found)
}

async fn check_names(
    config: &Config,
    node: &Node<Tables>,
    customers: &Range<i32>,
    found: &mut Findings,
) -> Result<(), TpccError> {
    let range = range_of(customers, config.customers(), |customer| key![name(customer).as_str()]);
    // In the order of the names, which is that of the numbers.
    let mut expected = Sequence::new("customer", NAMES, customers.clone());
    let mut rows = 0;
    let read = scan(node, node.tables.account, &range, |row| {
        let (text, customer) = (row.text(NAME)?, row.i32(CUSTOMER)?);
        rows += 1;
        let fits = expected.meet(|next| next.cmp(&customer), found);
        found.expect(fits && text == name(customer).as_str(), NAMES, || {
            format!("{text} is customer {customer}")
        });
        Ok(())
    });
    read.await?;
    expected.finish(found);
    found.add("accounts", rows);
    Ok(())
}

/// The balances of these customers, where there is one.
async fn read_balances(
    config: &Config,
    node: &Node<Tables>,
    (title, table): (&'static str, Table),
    customers: &Range<i32>,
    found: &mut Findings,
) -> Result<Vec<Option<i64>>, TpccError> {
    let mut read =
        ReadBalances { title, first: customers.start, balances: vec![None; customers.len()] };
    let range = range_of(customers, config.customers(), |customer| key![customer]);
    let scanned = scan(node, table, &range, |row| -> Result<(), TxnError> {
        read.note(row.i32(OWNER)?, row.i64(BALANCE)?, found);
        Ok(())
    });
    scanned.await?;
    Ok(read.balances)
}

/// What was read of a table's balances.
struct ReadBalances {
    title: &'static str,
    /// Whose balance comes first.
    first: i32,
    balances: Vec<Option<i64>>,
}

impl ReadBalances {
    fn note(&mut self, customer: i32, balance: i64, found: &mut Findings) {
        let title = self.title;
        found.add(title, 1);
        found.add(FOUND, balance);
        let at = customer.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(place) = at.and_then(|at| self.balances.get_mut(at)) else {
            found.expect(false, ROWS, || format!("{title} of {customer}, which does not exist"));
            return;
        };
        let before = place.replace(balance);
        found.expect(before.is_none(), ROWS, || format!("{title} of {customer} is there twice"));
    }
}

/// Judges the sum.
pub(super) fn judge(ledger: &BalanceLedger, found: &mut Findings) {
    found.add(CAME_IN, ledger.came_in());
    let (loaded, balance) = (found.total(LOADED), found.total(FOUND));
    let expected = loaded.wrapping_add(ledger.came_in());
    found.expect(balance == expected, SUM, || {
        format!("{balance} cents, not {loaded} + {} = {expected}", ledger.came_in())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_once() {
        let mut found = Findings::default();
        let mut read = ReadBalances { title: "savings", first: 5, balances: vec![None; 3] };
        for (customer, balance) in [(5, 10), (6, -20), (7, 30)] {
            read.note(customer, balance, &mut found);
        }
        assert!(found.hold());
        assert_eq!(read.balances, [Some(10), Some(-20), Some(30)]);
        for customer in [6, 4, 8, i32::MIN] {
            read.note(customer, 1, &mut found);
        }
        let broken: Vec<_> = found.violations().map(ToString::to_string).collect();
        assert_eq!(broken.len(), 1, "{broken:?}");
        assert!(broken[0].contains("4 offending, as savings of 6 is there twice; savings of 4, "));
        assert_eq!((found.total("savings"), found.total(FOUND)), (7, 24));
    }
}
