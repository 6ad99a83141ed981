//! What is loaded: each customer's rows, from seed and number.

use std::fmt::Write;
use std::ops::Range;

use super::schema::Tables;
use crate::benchmark::LOAD_STREAMS;
use crate::cluster::Node;
use crate::error::TpccError;
use crate::workload::{Random, Text};

/// Least and largest balance loaded, in cents: 10,000 and 50,000 dollars.
const BALANCES: (i64, i64) = (1_000_000, 5_000_000);

/// Balances in cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Balances {
    pub(super) savings: i64,
    pub(super) checking: i64,
}

impl Balances {
    /// Those loaded for a customer.
    pub(super) fn loaded(seed: u64, customer: i32) -> Self {
        let mut random = Random::stream(seed, LOAD_STREAMS + u64::from(customer.unsigned_abs()));
        let mut draw = || random.amount(BALANCES.0, BALANCES.1);
        Self { savings: draw(), checking: draw() }
    }
}

/// A customer's name. Names are in the order of the numbers.
pub(super) fn name(customer: i32) -> Text<20> {
    let mut name = Text::new();
    // It fits.
    let _ = write!(name, "customer{customer:010}");
    name
}

/// Inserts the rows of these customers in one transaction.
pub(super) async fn insert(
    node: &Node<Tables>,
    seed: u64,
    customers: Range<i32>,
) -> Result<u64, TpccError> {
    let tables = node.tables;
    let mut txn = node.db.begin();
    let mut account = node.db.row(tables.account)?;
    let mut balance = node.db.row(tables.savings)?;
    let mut checking = node.db.row(tables.checking)?;
    let mut rows = 0;
    for customer in customers {
        let loaded = Balances::loaded(seed, customer);
        account.clear();
        account.text(&name(customer)).i32(customer);
        txn.insert(tables.account, account.finish()?).await?;
        balance.clear();
        balance.i32(customer).i64(loaded.savings);
        txn.insert(tables.savings, balance.finish()?).await?;
        checking.clear();
        checking.i32(customer).i64(loaded.checking);
        txn.insert(tables.checking, checking.finish()?).await?;
        rows += 3;
    }
    txn.commit().await?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_numbers_and_balances_repeat() {
        assert_eq!(&*name(17), "customer0000000017");
        assert!(*name(9) < *name(10) && name(i32::MAX).len() == 18);
        let loaded: Vec<_> = (1..200).map(|customer| Balances::loaded(5, customer)).collect();
        let dollars = loaded.iter().flat_map(|b| [b.savings / 100, b.checking / 100]);
        assert!(dollars.clone().all(|balance| (10_000..=50_000).contains(&balance)));
        assert!(dollars.clone().min() < Some(11_000) && dollars.max() > Some(49_000));
        assert_eq!(loaded[6], Balances::loaded(5, 7));
        assert_ne!(loaded[6], Balances::loaded(6, 7));
        assert!(loaded.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
