//! NewOrder: enters an order of five to fifteen lines (clause 2.4.2.2).
//!
//! Order of accesses: the stock of lines that other warehouses supply, whose pages may have to come
//! from other nodes, and which is held from then on; the customer; item and stock of each other
//! line; the district's next order number, which the inserts need; the inserts; and last the
//! warehouse's tax rate, so that the hottest row of all is held while nothing else has to be
//! fetched.
//!
//! One in a hundred has an item that does not exist. As clause 2.4.2.3 demands, its whole profile
//! is executed, inserts included, except for the steps of that item, and then rolled back.

use selkie_txn::{KeyBuf, RowMut, Txn, TxnError, key};
use smallvec::SmallVec;

use super::session::{Rows, Session};
use crate::error::{TpccError, missing};
use crate::tpcc::columns::{customer as c, district as d, item as i, stock as s, warehouse as w};
use crate::tpcc::input::{LineInput, NewOrderInput, UNUSED_ITEM};
use crate::tpcc::nurand::ORIGINAL;
use crate::tpcc::scale::MAX_LINES;
use crate::workload::Text;

/// A rate of one: rates are in ten-thousandths.
const ONE: i64 = 10_000;

/// Below this much stock beyond the order, the stock is filled up (clause 2.4.2.2).
const REORDER_MARGIN: i32 = 10;
/// By how much.
const REORDER_QUANTITY: i32 = 91;

/// What the terminal shows (clause 2.4.3).
#[derive(Clone, Copy, Debug)]
pub struct NewOrderOutput {
    /// The order's number, `None` if it was rolled back because of an unused item.
    pub order: Option<i32>,
    /// Cents with discount and taxes.
    pub total: i64,
    /// The sum of the lines' amounts, cents.
    pub amount: i64,
    /// Lines whose item and stock are both marked as original: "brand", else "generic".
    pub brand_lines: usize,
    /// The customer's last name.
    pub customer_last: Text<16>,
    /// The customer's credit, `GC` or `BC`.
    pub customer_credit: Text<2>,
}

/// A line with what the item and its stock add to it.
struct PricedLine {
    input: LineInput,
    amount: i64,
    dist_info: Text<24>,
    brand: bool,
}

/// What a stock row adds to a line.
pub(crate) struct StockTaken {
    /// Its text for the order's district.
    pub(crate) dist_info: Text<24>,
    /// Whether it is marked as original.
    pub(crate) original: bool,
}

/// By line, what was taken from stock elsewhere, `None` if nothing was.
pub(crate) type Supplied = SmallVec<[Option<StockTaken>; MAX_LINES as usize]>;

type PricedLines = SmallVec<[PricedLine; MAX_LINES as usize]>;

/// Enters an order.
///
/// # Errors
/// A retryable one on a conflict; else what the database reports, or [`TpccError::Missing`].
pub async fn new_order(
    session: &Session<'_>,
    input: &NewOrderInput,
    now: i64,
) -> Result<NewOrderOutput, TpccError> {
    let mut rows = session.take_rows()?;
    let mut txn = session.db.begin();
    let supplied = take_elsewhere(session, &mut txn, input).await?;
    let output = enter_order(session, &mut txn, &mut rows, (input, &supplied), now).await?;
    session.put_rows(rows);
    match output.order {
        Some(_) => txn.commit().await?,
        None => txn.rollback().await,
    }
    Ok(output)
}

/// Takes what lines have from other warehouses: those pages may be cached at other nodes, and
/// nothing of the home warehouse, which others wait for, is latched while they come.
async fn take_elsewhere(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    input: &NewOrderInput,
) -> Result<Supplied, TpccError> {
    let mut supplied = Supplied::new();
    for line in &input.lines {
        let elsewhere = line.supply_warehouse != input.warehouse && line.item != UNUSED_ITEM;
        supplied.push(match elsewhere {
            true => Some(take_stock(session, txn, line, (input.district, true)).await?),
            false => None,
        });
    }
    Ok(supplied)
}

/// Enters an order, for which some of the stock was taken already.
pub(crate) async fn enter_order(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    rows: &mut Rows<'_>,
    (input, supplied): (&NewOrderInput, &Supplied),
    now: i64,
) -> Result<NewOrderOutput, TpccError> {
    let (tables, home, district) = (&session.tables, input.warehouse, input.district);
    let customer_key = key![home, district, input.customer];
    let read = [c::C_DISCOUNT, c::C_LAST, c::C_CREDIT];
    let customer = txn.get_columns(tables.customer, &customer_key, &read).await?;
    let customer = customer.ok_or_else(|| missing("customer", (home, district, input.customer)))?;
    let discount = customer.i64(c::C_DISCOUNT)?;
    let customer_last = Text::new().with(customer.text(c::C_LAST)?);
    let customer_credit = Text::new().with(customer.text(c::C_CREDIT)?);

    session.work(1).await;
    let mut lines = PricedLines::new();
    for (line, supplied) in input.lines.iter().zip(supplied) {
        // An unused item adds nothing and condemns the order.
        lines.extend(price(session, txn, input, (*line, supplied.as_ref())).await?);
    }

    let district_key = key![home, district];
    let (order, d_tax) = txn
        .update(tables.district, &district_key, |row| {
            let order = row.i32(d::D_NEXT_O_ID)?;
            row.set_i32(d::D_NEXT_O_ID, order + 1)?;
            Ok((order, row.i64(d::D_TAX)?))
        })
        .await?;
    session.work(1).await;
    insert(session, txn, rows, input, &lines, order, now).await?;
    let warehouse = txn.get_columns(tables.warehouse, &key![home], &[w::W_TAX]).await?;
    let w_tax = warehouse.ok_or_else(|| missing("warehouse", home))?.i64(w::W_TAX)?;
    session.work(1).await;

    let amount: i64 = lines.iter().map(|line| line.amount).sum();
    Ok(NewOrderOutput {
        order: (lines.len() == input.lines.len()).then_some(order),
        amount,
        total: amount * (ONE - discount) * (ONE + w_tax + d_tax) / (ONE * ONE),
        brand_lines: lines.iter().filter(|line| line.brand).count(),
        customer_last,
        customer_credit,
    })
}

/// Looks up a line's item and takes it from stock, unless that was done; `None` if there is no such
/// item.
async fn price(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    input: &NewOrderInput,
    (line, supplied): (LineInput, Option<&StockTaken>),
) -> Result<Option<PricedLine>, TpccError> {
    let Some(item) = txn.get(session.tables.item, &key![line.item]).await? else {
        return Ok(None);
    };
    let price = item.i64(i::I_PRICE)?;
    let original = item.text(i::I_DATA)?.contains(ORIGINAL);
    session.work(1).await;
    let own;
    let taken = match supplied {
        Some(taken) => taken,
        None => {
            let remote = line.supply_warehouse != input.warehouse;
            own = take_stock(session, txn, &line, (input.district, remote)).await?;
            &own
        }
    };
    let amount = price * i64::from(line.quantity);
    let (dist_info, brand) = (taken.dist_info, original && taken.original);
    Ok(Some(PricedLine { input: line, amount, dist_info, brand }))
}

/// Takes a line's item from stock, for an order of that district, which may be one of another
/// warehouse.
pub(crate) async fn take_stock(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    line: &LineInput,
    (district, remote): (i32, bool),
) -> Result<StockTaken, TpccError> {
    // A district that is none ends in a column that is none, which the row refuses.
    let dist_column = usize::try_from(district - 1).map_or(usize::MAX, |d| s::S_DIST_01 + d);
    let stock_key = key![line.supply_warehouse, line.item];
    let take = |row: &mut RowMut<'_>| take_from_stock(row, line.quantity, remote, dist_column);
    let (dist_info, original) = txn.update(session.tables.stock, &stock_key, take).await?;
    session.work(1).await;
    Ok(StockTaken { dist_info, original })
}

/// Changes a stock row; returns the district's text and whether the stock is marked as original.
fn take_from_stock(
    row: &mut RowMut<'_>,
    quantity: i32,
    remote: bool,
    dist_column: usize,
) -> Result<(Text<24>, bool), TxnError> {
    let left = row.i32(s::S_QUANTITY)? - quantity;
    let left = if left >= REORDER_MARGIN { left } else { left + REORDER_QUANTITY };
    row.set_i32(s::S_QUANTITY, left)?;
    row.set_i64(s::S_YTD, row.i64(s::S_YTD)? + i64::from(quantity))?;
    row.set_i32(s::S_ORDER_CNT, row.i32(s::S_ORDER_CNT)? + 1)?;
    if remote {
        row.set_i32(s::S_REMOTE_CNT, row.i32(s::S_REMOTE_CNT)? + 1)?;
    }
    let dist_info = Text::new().with(row.text(dist_column)?);
    Ok((dist_info, row.text(s::S_DATA)?.contains(ORIGINAL)))
}

/// Inserts the order, its NEW-ORDER row and its lines.
async fn insert(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    rows: &mut Rows<'_>,
    input: &NewOrderInput,
    lines: &[PricedLine],
    order: i32,
    now: i64,
) -> Result<(), TpccError> {
    let (tables, home, district) = (&session.tables, input.warehouse, input.district);
    let all_local = input.lines.iter().all(|line| line.supply_warehouse == home);
    rows.orders.clear();
    rows.orders.i32(home).i32(district).i32(order).i32(input.customer).i64(now).null();
    rows.orders.i32(count(input.lines.len())).i32(i32::from(all_local));
    txn.insert(tables.orders, rows.orders.finish()?).await?;

    rows.new_order.clear();
    rows.new_order.i32(home).i32(district).i32(order);
    txn.insert(tables.new_order, rows.new_order.finish()?).await?;
    session.work(2).await;

    for (at, line) in lines.iter().enumerate() {
        let row = &mut rows.order_line;
        row.clear();
        row.i32(home).i32(district).i32(order).i32(count(at + 1));
        row.i32(line.input.item).i32(line.input.supply_warehouse).null();
        row.i32(line.input.quantity).i64(line.amount).text(&line.dist_info);
        txn.insert(tables.order_line, row.finish()?).await?;
        session.work(1).await;
    }
    Ok(())
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The primary key of an order line.
pub(super) fn line_key(warehouse: i32, district: i32, order: i32, number: i32) -> KeyBuf {
    key![warehouse, district, order, number]
}
