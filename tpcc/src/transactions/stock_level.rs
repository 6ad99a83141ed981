//! StockLevel: items of the district's last twenty orders that run short (clause 2.8.2.2).
//!
//! Runs at read committed, as clause 2.8.2.3 allows: latches of reads are released one by one, so its
//! some two hundred stock pages do not stand in the way of orders.

use std::ops::ControlFlow;

use selkie_txn::{Direction, Isolation, KeyRange, key};
use smallvec::SmallVec;

use super::session::{Session, missing};
use crate::columns::{district as d, order_line as ol, stock as s};
use crate::error::TpccError;
use crate::input::StockLevelInput;
use crate::scale::MAX_LINES;

/// Orders looked at.
const ORDERS: i32 = 20;

/// Items of twenty orders, on the stack.
type Items = SmallVec<[i32; (ORDERS * MAX_LINES) as usize]>;

/// What the terminal shows (clause 2.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevelOutput {
    /// Different items with less than the threshold in stock.
    pub low_stock: usize,
    /// Different items looked at.
    pub items: usize,
}

/// Counts items that run short.
///
/// # Errors
/// A retryable one on a conflict; else what the database reports, or [`TpccError::Missing`].
pub async fn stock_level(
    session: &Session<'_>,
    input: &StockLevelInput,
) -> Result<StockLevelOutput, TpccError> {
    let (tables, warehouse, district) = (&session.tables, input.warehouse, input.district);
    let mut txn = session.db.begin_with(Isolation::ReadCommitted);
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
    items.sort_unstable();
    items.dedup();

    let mut low_stock = 0;
    for &item in &items {
        let row = txn.get(tables.stock, &key![warehouse, item]).await?;
        let row = row.ok_or_else(|| missing("stock", (warehouse, item)))?;
        low_stock += usize::from(row.i32(s::S_QUANTITY)? < input.threshold);
    }
    txn.commit().await?;
    Ok(StockLevelOutput { low_stock, items: items.len() })
}
