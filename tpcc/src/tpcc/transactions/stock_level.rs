//! StockLevel: items of the district's last twenty orders that run short (clause 2.8.2.2).
//!
//! Runs at read committed, as clause 2.8.2.3 allows: latches of reads are released one by one, so
//! its some two hundred stock pages do not stand in the way of orders.

use std::ops::ControlFlow;

use parking_lot::Mutex;
use selkie_txn::{Direction, Isolation, KeyRange, Txn, key};
use smallvec::SmallVec;

use super::session::Session;
use crate::error::{TpccError, missing};
use crate::tpcc::columns::{district as d, order_line as ol, stock as s};
use crate::tpcc::input::StockLevelInput;
use crate::tpcc::scale::MAX_LINES;

/// Orders looked at.
const ORDERS: i32 = 20;

/// Items of twenty orders, on the stack.
type Items = SmallVec<[i32; (ORDERS * MAX_LINES) as usize]>;

/// What the terminal shows (clause 2.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockLevelOutput {
    /// Different items with less than the threshold in stock.
    pub low_stock: usize,
    /// Different items looked at.
    pub items: usize,
}

/// How far a StockLevel has come: an attempt that meets a conflict leaves it to the next. At read
/// committed nothing read before has to stay as it was, so nothing has to be read twice.
#[derive(Debug, Default)]
pub struct StockLevelProgress(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// The items not looked at yet; `None` before the orders were read.
    items: Option<Items>,
    output: StockLevelOutput,
}

/// Counts items that run short, going on where `progress` stands.
///
/// # Errors
/// A retryable one on a conflict; else what the database reports, or [`TpccError::Missing`].
pub async fn stock_level(
    session: &Session<'_>,
    input: &StockLevelInput,
    progress: &StockLevelProgress,
) -> Result<StockLevelOutput, TpccError> {
    let mut txn = session.db.begin_with(Isolation::ReadCommitted);
    let mut counted = std::mem::take(&mut *progress.0.lock());
    let result = count(session, &mut txn, input, &mut counted).await;
    let output = counted.output;
    *progress.0.lock() = counted;
    result?;
    txn.commit().await?;
    Ok(output)
}

async fn count(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    input: &StockLevelInput,
    counted: &mut Counted,
) -> Result<(), TpccError> {
    let warehouse = input.warehouse;
    let mut items = match counted.items.take() {
        Some(items) => items,
        None => {
            let items = recent_items(session, txn, input).await?;
            counted.output = StockLevelOutput { low_stock: 0, items: items.len() };
            items
        }
    };
    while let Some(&item) = items.last() {
        let row = match txn.get(session.tables.stock, &key![warehouse, item]).await {
            Ok(row) => row.ok_or_else(|| missing("stock", (warehouse, item)))?,
            Err(error) => {
                counted.items = Some(items);
                return Err(error.into());
            }
        };
        counted.output.low_stock += usize::from(row.i32(s::S_QUANTITY)? < input.threshold);
        items.pop();
        session.work(1).await;
    }
    Ok(())
}

/// The different items of the district's last orders.
async fn recent_items(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    input: &StockLevelInput,
) -> Result<Items, TpccError> {
    let (tables, warehouse, district) = (&session.tables, input.warehouse, input.district);
    let row = txn.get(tables.district, &key![warehouse, district]).await?;
    let row = row.ok_or_else(|| missing("district", (warehouse, district)))?;
    let next = row.i32(d::D_NEXT_O_ID)?;
    let mut items = Items::new();
    let (oldest, end) = (key![warehouse, district, next - ORDERS], key![warehouse, district, next]);
    let orders = KeyRange::half_open(&oldest, &end);
    txn.scan(tables.order_line, &orders, Direction::Forward, |row| {
        items.push(row.i32(ol::OL_I_ID)?);
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    session.work(1 + u32::try_from(items.len()).unwrap_or(u32::MAX)).await;
    items.sort_unstable();
    items.dedup();
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_orders_fit_the_stack() {
        assert_eq!(Items::new().inline_size(), 300);
    }
}
