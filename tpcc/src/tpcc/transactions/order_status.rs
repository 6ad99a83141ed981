//! OrderStatus: a customer's last order with its lines (clause 2.6.2.2). Reads only.

use std::ops::ControlFlow;

use selkie_txn::{Direction, KeyRange, key};

use super::by_name::customer_key;
use super::session::Session;
use crate::error::{TpccError, missing};
use crate::tpcc::columns::{customer as c, order_line as ol, orders as o};
use crate::tpcc::input::OrderStatusInput;

/// What the terminal shows (clause 2.6.3), in sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatusOutput {
    /// The customer.
    pub customer: i32,
    /// The customer's balance, cents.
    pub balance: i64,
    /// The last order, `None` if there is none.
    pub order: Option<i32>,
    /// The carrier, if it is delivered.
    pub carrier: Option<i32>,
    /// Its lines.
    pub lines: i32,
    /// Lines delivered.
    pub delivered_lines: i32,
    /// The sum of the lines' amounts, cents.
    pub amount: i64,
}

/// Looks up a customer's last order.
///
/// # Errors
/// A retryable one on a conflict; else what the database reports, or [`TpccError::Missing`].
pub async fn order_status(
    session: &Session<'_>,
    input: &OrderStatusInput,
) -> Result<OrderStatusOutput, TpccError> {
    let (tables, warehouse, district) = (&session.tables, input.warehouse, input.district);
    let mut txn = session.db.begin();
    let key = customer_key(session, &mut txn, warehouse, district, &input.customer).await?;
    let row = txn.get(tables.customer, &key).await?;
    let row = row.ok_or_else(|| missing("customer", (warehouse, district, &input.customer)))?;
    let mut output = OrderStatusOutput {
        customer: row.i32(c::C_ID)?,
        balance: row.i64(c::C_BALANCE)?,
        order: None,
        carrier: None,
        lines: 0,
        delivered_lines: 0,
        amount: 0,
    };
    session.work(1).await;
    let orders = KeyRange::prefix(&key![warehouse, district, output.customer]);
    if let Some(row) = txn.last(tables.orders_by_customer, &orders).await? {
        let order = row.i32(o::O_ID)?;
        output.order = Some(order);
        if !row.is_null(o::O_CARRIER_ID)? {
            output.carrier = Some(row.i32(o::O_CARRIER_ID)?);
        }
        let lines = KeyRange::prefix(&key![warehouse, district, order]);
        txn.scan(tables.order_line, &lines, Direction::Forward, |row| {
            output.lines += 1;
            output.delivered_lines += i32::from(!row.is_null(ol::OL_DELIVERY_D)?);
            output.amount += row.i64(ol::OL_AMOUNT)?;
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        session.work(1 + output.lines.unsigned_abs()).await;
    }
    txn.commit().await?;
    Ok(output)
}
