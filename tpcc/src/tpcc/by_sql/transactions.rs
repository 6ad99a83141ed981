//! What each of the five does with its statements. Inputs, outputs and the order of accesses are
//! those of the native ones as far as SQL lets them be.

use std::fmt::Write;

use super::SqlStatement;
use crate::connection::{SqlConnection, SqlRow, SqlValue};
use crate::error::{TpccError, missing};
use crate::tpcc::input::{
    CustomerBy, DeliveryInput, LineInput, NewOrderInput, OrderStatusInput, PaymentInput,
    StockLevelInput,
};
use crate::tpcc::transactions::BAD_CREDIT;

/// Orders that StockLevel looks at.
const ORDERS: i32 = 20;

/// A statement of a connection, with values of any kinds of numbers and texts.
macro_rules! sql {
    ($connection:expr, $statement:ident $(($of:expr))? $(, $value:expr)* $(,)?) => {
        $connection.run(&SqlStatement::$statement $(($of))?, &[$(SqlValue::from($value)),*])
    };
}

impl From<i32> for SqlValue {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<i64> for SqlValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for SqlValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// Ends the transaction of a connection: with a commit if all went well and it is to last.
async fn ended<T>(
    connection: &dyn SqlConnection,
    done: Result<(T, bool), TpccError>,
) -> Result<T, TpccError> {
    match done {
        Ok((output, true)) => sql!(connection, Commit).await.map(|_| output),
        Ok((output, false)) => sql!(connection, Rollback).await.map(|_| output),
        Err(error) => {
            // Why it failed says more than why that could not be rolled back.
            let _ = sql!(connection, Rollback).await;
            Err(error)
        }
    }
}

/// Enters an order. Its number and the sum of the lines' amounts; `None` if it was rolled back
/// because of an unused item.
pub(crate) async fn new_order(
    connection: &dyn SqlConnection,
    input: &NewOrderInput,
    now: i64,
) -> Result<Option<(i32, i64)>, TpccError> {
    sql!(connection, Begin).await?;
    let done = enter_order(connection, input, now).await;
    ended(connection, done.map(|order| (order, order.is_some()))).await
}

async fn enter_order(
    connection: &dyn SqlConnection,
    input: &NewOrderInput,
    now: i64,
) -> Result<Option<(i32, i64)>, TpccError> {
    let (home, district, customer) = (input.warehouse, input.district, input.customer);
    let rows = sql!(connection, Customer, home, district, customer).await?;
    first(rows).ok_or_else(|| missing("customer", (home, district, customer)))?;
    let mut lines = Vec::with_capacity(input.lines.len());
    for line in &input.lines {
        let rows = sql!(connection, Item, line.item).await?;
        // An unused item adds nothing and condemns the order.
        let Some(item) = first(rows) else { continue };
        let amount = int(&item, 0)? * i64::from(line.quantity);
        lines.push((*line, amount, take_stock(connection, input, line).await?));
    }
    let rows = sql!(connection, TakeOrderNumber, home, district).await?;
    let taken = first(rows).ok_or_else(|| missing("district", (home, district)))?;
    let order = i32::try_from(int(&taken, 0)?).unwrap_or(i32::MAX);
    let all_local = input.lines.iter().all(|line| line.supply_warehouse == home);
    let (count, all_local) = (count(input.lines.len()), i32::from(all_local));
    sql!(connection, InsertOrder, home, district, order, customer, now, count, all_local).await?;
    sql!(connection, InsertNewOrder, home, district, order).await?;
    let mut sum = 0;
    for (number, (line, amount, dist_info)) in (1..).zip(&lines) {
        let LineInput { item, supply_warehouse, quantity } = *line;
        let (amount, dist_info) = (*amount, dist_info.as_str());
        sql!(
            connection,
            InsertLine,
            home,
            district,
            order,
            number,
            item,
            supply_warehouse,
            quantity,
            amount,
            dist_info
        )
        .await?;
        sum += amount;
    }
    let rows = sql!(connection, WarehouseTax, home).await?;
    first(rows).ok_or_else(|| missing("warehouse", home))?;
    Ok((lines.len() == input.lines.len()).then_some((order, sum)))
}

/// Takes a line's item from stock: the text of the stock for the order's district.
async fn take_stock(
    connection: &dyn SqlConnection,
    input: &NewOrderInput,
    line: &LineInput,
) -> Result<String, TpccError> {
    let district = u8::try_from(input.district).unwrap_or(u8::MAX);
    let remote = i32::from(line.supply_warehouse != input.warehouse);
    let (warehouse, item) = (line.supply_warehouse, line.item);
    let taken =
        sql!(connection, TakeStock(district), warehouse, item, line.quantity, remote).await?;
    let taken = first(taken).ok_or_else(|| missing("stock", (warehouse, item)))?;
    Ok(text(&taken, 0)?.to_owned())
}

/// Books a payment, with the key of its row of HISTORY.
pub(crate) async fn payment(
    connection: &dyn SqlConnection,
    input: &PaymentInput,
    history: (i32, i64),
    now: i64,
) -> Result<(), TpccError> {
    sql!(connection, Begin).await?;
    let done = pay(connection, input, history, now).await;
    ended(connection, done.map(|()| ((), true))).await
}

async fn pay(
    connection: &dyn SqlConnection,
    input: &PaymentInput,
    (writer, sequence): (i32, i64),
    now: i64,
) -> Result<(), TpccError> {
    let (warehouse, district, amount) = (input.warehouse, input.district, input.amount);
    let (of_warehouse, of_district) = (input.customer_warehouse, input.customer_district);
    let customer = customer_id(connection, of_warehouse, of_district, &input.customer).await?;
    let rows = sql!(connection, PayCustomer, of_warehouse, of_district, customer, amount).await?;
    let paid = first(rows).ok_or_else(|| missing("customer", (of_warehouse, of_district)))?;
    if text(&paid, 0)? == BAD_CREDIT {
        let mut note = String::new();
        let (cents, rest) = (amount / 100, amount % 100);
        // Writing to a text cannot fail.
        let _ = write!(
            note,
            "{customer} {of_district} {of_warehouse} {district} {warehouse} {cents}.{rest:02}|"
        );
        let note = note.as_str();
        sql!(connection, NoteCustomer, of_warehouse, of_district, customer, note).await?;
    }
    let rows = sql!(connection, PayDistrict, warehouse, district, amount).await?;
    let of_the_district = first(rows).ok_or_else(|| missing("district", (warehouse, district)))?;
    let rows = sql!(connection, PayWarehouse, warehouse, amount).await?;
    let of_the_warehouse = first(rows).ok_or_else(|| missing("warehouse", warehouse))?;
    let data = format!("{}    {}", text(&of_the_warehouse, 0)?, text(&of_the_district, 0)?);
    sql!(
        connection,
        InsertHistory,
        warehouse,
        writer,
        sequence,
        district,
        of_warehouse,
        of_district,
        customer,
        now,
        amount,
        data.as_str()
    )
    .await?;
    Ok(())
}

/// The number of a customer; of those of one last name the one in the middle, rounded up.
async fn customer_id(
    connection: &dyn SqlConnection,
    warehouse: i32,
    district: i32,
    customer: &CustomerBy,
) -> Result<i32, TpccError> {
    let last = match customer {
        CustomerBy::Id(id) => return Ok(*id),
        CustomerBy::LastName(last) => last.as_str(),
    };
    let rows = sql!(connection, CustomersByName, warehouse, district, last).await?;
    let middle = rows.len().div_ceil(2).checked_sub(1).and_then(|at| rows.get(at));
    let middle = middle.ok_or_else(|| missing("customer", (warehouse, district, last)))?;
    Ok(i32::try_from(int(middle, 0)?).unwrap_or(i32::MAX))
}

/// Looks up a customer's last order. How many lines it has.
pub(crate) async fn order_status(
    connection: &dyn SqlConnection,
    input: &OrderStatusInput,
) -> Result<usize, TpccError> {
    sql!(connection, BeginReading).await?;
    let done = look_up_order(connection, input).await;
    ended(connection, done.map(|lines| (lines, true))).await
}

async fn look_up_order(
    connection: &dyn SqlConnection,
    input: &OrderStatusInput,
) -> Result<usize, TpccError> {
    let (warehouse, district) = (input.warehouse, input.district);
    let customer = customer_id(connection, warehouse, district, &input.customer).await?;
    let rows = sql!(connection, CustomerBalance, warehouse, district, customer).await?;
    first(rows).ok_or_else(|| missing("customer", (warehouse, district, customer)))?;
    let rows = sql!(connection, LastOrder, warehouse, district, customer).await?;
    let Some(order) = first(rows) else { return Ok(0) };
    let order = int(&order, 0)?;
    Ok(sql!(connection, OrderLines, warehouse, district, order).await?.len())
}

/// Delivers the oldest order of one district; whether it had one.
pub(crate) async fn deliver_district(
    connection: &dyn SqlConnection,
    input: &DeliveryInput,
    district: i32,
    now: i64,
) -> Result<bool, TpccError> {
    sql!(connection, Begin).await?;
    let done = deliver(connection, input, district, now).await;
    ended(connection, done.map(|had_one| (had_one, true))).await
}

async fn deliver(
    connection: &dyn SqlConnection,
    input: &DeliveryInput,
    district: i32,
    now: i64,
) -> Result<bool, TpccError> {
    let (warehouse, carrier) = (input.warehouse, input.carrier);
    let rows = sql!(connection, OldestOrder, warehouse, district).await?;
    let Some(oldest) = first(rows) else { return Ok(false) };
    let order = int(&oldest, 0)?;
    sql!(connection, DeleteNewOrder, warehouse, district, order).await?;
    let rows = sql!(connection, DeliverOrder, warehouse, district, order, carrier).await?;
    let delivered = first(rows).ok_or_else(|| missing("orders", (warehouse, district, order)))?;
    let lines = sql!(connection, DeliverLines, warehouse, district, order, now).await?;
    let amounts = lines.iter().map(|line| int(line, 0));
    let amount = amounts.sum::<Result<i64, TpccError>>()?;
    let customer = int(&delivered, 0)?;
    sql!(connection, DeliverCustomer, warehouse, district, customer, amount).await?;
    Ok(true)
}

/// How many items of the district's last orders run short.
pub(crate) async fn stock_level(
    connection: &dyn SqlConnection,
    input: &StockLevelInput,
) -> Result<i64, TpccError> {
    sql!(connection, BeginReadCommitted).await?;
    let done = low_stock(connection, input).await;
    ended(connection, done.map(|count| (count, true))).await
}

async fn low_stock(
    connection: &dyn SqlConnection,
    input: &StockLevelInput,
) -> Result<i64, TpccError> {
    let (warehouse, district) = (input.warehouse, input.district);
    let rows = sql!(connection, NextOrderNumber, warehouse, district).await?;
    let next = first(rows).ok_or_else(|| missing("district", (warehouse, district)))?;
    let next = int(&next, 0)?;
    let (oldest, threshold) = (next - i64::from(ORDERS), input.threshold);
    let rows = sql!(connection, LowStock, warehouse, district, oldest, next, threshold).await?;
    first(rows).map_or(Ok(0), |row| int(&row, 0))
}

fn first(rows: Vec<SqlRow>) -> Option<SqlRow> {
    rows.into_iter().next()
}

fn int(row: &SqlRow, at: usize) -> Result<i64, TpccError> {
    match row.get(at) {
        Some(SqlValue::Int(value)) => Ok(*value),
        other => Err(unexpected("a number", at, other)),
    }
}

fn text(row: &SqlRow, at: usize) -> Result<&str, TpccError> {
    match row.get(at) {
        Some(SqlValue::Text(value)) => Ok(value),
        other => Err(unexpected("a text", at, other)),
    }
}

fn unexpected(wanted: &str, at: usize, found: Option<&SqlValue>) -> TpccError {
    let message = format!("column {at} of a row has {found:?}, where {wanted} was expected");
    TpccError::Sql { state: "XX000".to_owned(), message }
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
