//! Finding a customer by last name (clauses 2.5.2.2 and 2.6.2.2).

use std::ops::ControlFlow;

use selkie_txn::{Direction, KeyBuf, KeyRange, Txn, TxnError, key};
use smallvec::SmallVec;

use super::session::Session;
use crate::error::{TpccError, missing};
use crate::tpcc::input::CustomerBy;

/// A customer's primary key, encoded: three 32-bit columns.
type CustomerKey = [u8; 12];

/// Customers of one name kept on the stack; three on average.
const INLINE: usize = 16;

/// The primary key of a customer named by number or by last name. Of the n who bear the name,
/// sorted by first name (the index is), it is the one at position n/2 rounded up.
pub(super) async fn customer_key(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    warehouse: i32,
    district: i32,
    customer: &CustomerBy,
) -> Result<KeyBuf, TpccError> {
    let last = match customer {
        CustomerBy::Id(id) => return Ok(key![warehouse, district, *id]),
        CustomerBy::LastName(last) => last.as_str(),
    };
    let range = KeyRange::prefix(&key![warehouse, district, last]);
    let mut keys: SmallVec<[CustomerKey; INLINE]> = SmallVec::new();
    let collect = |primary: &[u8]| {
        let inconsistent = |_| TxnError::Inconsistent {
            table: "customer".to_owned(),
            index: "customer_by_name".to_owned(),
        };
        keys.push(CustomerKey::try_from(primary).map_err(inconsistent)?);
        Ok::<_, TxnError>(ControlFlow::Continue(()))
    };
    txn.scan_keys(session.tables.customer_by_name, &range, Direction::Forward, collect).await?;
    session.work(u32::try_from(keys.len()).unwrap_or(u32::MAX)).await;
    match middle(&keys) {
        Some(key) => Ok(KeyBuf::from_encoded(key)),
        None => Err(missing("customer", (warehouse, district, last))),
    }
}

/// The one at position n/2 rounded up, counted from 1.
fn middle<T>(all: &[T]) -> Option<&T> {
    all.get(all.len().div_ceil(2).checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::middle;

    #[test]
    fn the_middle_is_rounded_up() {
        assert_eq!(middle::<i32>(&[]), None);
        assert_eq!(middle(&[1]), Some(&1));
        assert_eq!(middle(&[1, 2]), Some(&1));
        assert_eq!(middle(&[1, 2, 3]), Some(&2));
        assert_eq!(middle(&[1, 2, 3, 4]), Some(&2));
        assert_eq!(middle(&[1, 2, 3, 4, 5]), Some(&3));
    }
}
