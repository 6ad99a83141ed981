//! Delivery: delivers the oldest undelivered order of each district (clause 2.7.4.2).
//!
//! One database transaction a district: clause 2.7.4 leaves open how many of the ten are delivered
//! in one, and a small one holds its latches a tenth of the time. The worker goes through all ten
//! districts; a district without undelivered orders is skipped and counted. It runs at once instead
//! of from a queue.

use selkie_txn::{KeyRange, Txn, key};

use super::new_order::line_key;
use super::session::Session;
use crate::error::TpccError;
use crate::tpcc::columns::{customer as c, new_order as no, order_line as ol, orders as o};
use crate::tpcc::input::DeliveryInput;

/// What happened in one district.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryOutput {
    /// The order delivered, `None` if the district had none.
    pub order: Option<i32>,
    /// Its amount, cents.
    pub amount: i64,
}

/// Delivers the oldest order of one district.
///
/// # Errors
/// A retryable one on a conflict; else what the database reports, or [`TpccError::Missing`].
pub async fn deliver_district(
    session: &Session<'_>,
    input: &DeliveryInput,
    district: i32,
    now: i64,
) -> Result<DeliveryOutput, TpccError> {
    let (tables, warehouse) = (&session.tables, input.warehouse);
    let mut txn = session.db.begin();
    let undelivered = KeyRange::prefix(&key![warehouse, district]);
    let Some(oldest) = txn.first_for_update(tables.new_order, &undelivered).await? else {
        txn.commit().await?;
        return Ok(DeliveryOutput { order: None, amount: 0 });
    };
    let order = oldest.i32(no::NO_O_ID)?;
    let order_key = key![warehouse, district, order];
    txn.delete(tables.new_order, &order_key).await?;
    let carrier = input.carrier;
    let (customer, lines) = txn
        .update(tables.orders, &order_key, |row| {
            row.set_i32(o::O_CARRIER_ID, carrier)?;
            Ok((row.i32(o::O_C_ID)?, row.i32(o::O_OL_CNT)?))
        })
        .await?;
    session.work(3).await;
    let amount = deliver_lines(session, &mut txn, (warehouse, district, order), lines, now).await?;
    txn.update(tables.customer, &key![warehouse, district, customer], |row| {
        row.set_i64(c::C_BALANCE, row.i64(c::C_BALANCE)? + amount)?;
        row.set_i32(c::C_DELIVERY_CNT, row.i32(c::C_DELIVERY_CNT)? + 1)?;
        Ok(())
    })
    .await?;
    session.work(1).await;
    txn.commit().await?;
    Ok(DeliveryOutput { order: Some(order), amount })
}

/// Marks an order's lines as delivered; returns the sum of their amounts.
async fn deliver_lines(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    (warehouse, district, order): (i32, i32, i32),
    lines: i32,
    now: i64,
) -> Result<i64, TpccError> {
    let mut amount = 0;
    for number in 1..=lines {
        let key = line_key(warehouse, district, order, number);
        amount += txn
            .update(session.tables.order_line, &key, |row| {
                row.set_i64(ol::OL_DELIVERY_D, now)?;
                Ok(row.i64(ol::OL_AMOUNT)?)
            })
            .await?;
        session.work(1).await;
    }
    Ok(amount)
}
