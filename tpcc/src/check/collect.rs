//! Reading the tables into facts.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_txn::{Direction, Isolation, KeyRange, RowRef, Table, TxnError, key, retry};

use super::facts::{CustomerFacts, DistrictFacts, Facts, OrderFacts};
use crate::cluster::Node;
use crate::columns::{
    customer as c, district as d, history as h, new_order as no, order_line as ol, orders as o,
    warehouse as w,
};
use crate::error::TpccError;
use crate::progress::Progress;
use crate::tasks::{PATIENCE, join_all};

/// Reads every table the conditions speak about once. The nodes share the warehouses.
///
/// # Errors
/// What the database reports.
pub async fn collect(
    nodes: &[Arc<Node>],
    warehouses: i32,
    tasks_per_node: usize,
    progress: &Arc<dyn Progress>,
) -> Result<Facts, TpccError> {
    progress.begin("check", u64::try_from(warehouses).unwrap_or(0));
    let next = Arc::new(Mutex::new(1..=warehouses));
    let all = Arc::new(Mutex::new(Facts::default()));
    let mut tasks = Vec::new();
    for node in nodes.iter().flat_map(|node| std::iter::repeat_n(node, tasks_per_node)) {
        let (node, next, all) = (Arc::clone(node), Arc::clone(&next), Arc::clone(&all));
        let progress = Arc::clone(progress);
        tasks.push(async move {
            loop {
                let Some(warehouse) = next.lock().next() else { return Ok(()) };
                let facts = collect_warehouse(&node, warehouse).await?;
                all.lock().merge(facts);
                progress.advance(1);
            }
        });
    }
    let env = nodes.first().map(|node| node.engine.env().clone());
    if let Some(env) = env {
        join_all(&env, "check", tasks).await?;
    }
    progress.end();
    let facts = std::mem::take(&mut *all.lock());
    Ok(facts)
}

/// All rows of one warehouse. Each table is read again from its beginning after a conflict.
async fn collect_warehouse(node: &Node, warehouse: i32) -> Result<Facts, TpccError> {
    let tables = node.tables;
    let mut facts = Facts::default();
    let readers: [(Table, Reader); 7] = [
        (tables.warehouse, read_warehouse),
        (tables.district, read_district),
        (tables.customer, read_customer),
        (tables.history, read_history),
        (tables.orders, read_order),
        (tables.new_order, read_new_order),
        (tables.order_line, read_line),
    ];
    for (table, reader) in readers {
        let read = || read_table(node, table, warehouse, reader);
        let part = retry(node.engine.env(), &PATIENCE, read).await;
        facts.merge(part.map_err(|error| TpccError::of_retry("check", error))?);
    }
    Ok(facts)
}

type Reader = fn(&mut Facts, RowRef<'_>) -> Result<(), TxnError>;

async fn read_table(
    node: &Node,
    table: Table,
    warehouse: i32,
    reader: Reader,
) -> Result<Facts, TpccError> {
    let mut facts = Facts::default();
    // Nobody writes, so reading leaf by leaf sees one state; holding every leaf would need a cache as
    // large as the table.
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let range = KeyRange::prefix(&key![warehouse]);
    txn.scan(table, &range, Direction::Forward, |row| {
        facts.rows += 1;
        reader(&mut facts, row)?;
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    txn.commit().await?;
    Ok(facts)
}

fn read_warehouse(facts: &mut Facts, row: RowRef<'_>) -> Result<(), TxnError> {
    facts.warehouses.insert(row.i32(w::W_ID)?, row.i64(w::W_YTD)?);
    Ok(())
}

fn read_district(facts: &mut Facts, row: RowRef<'_>) -> Result<(), TxnError> {
    let key = (row.i32(d::D_W_ID)?, row.i32(d::D_ID)?);
    let (ytd, next_order) = (row.i64(d::D_YTD)?, row.i32(d::D_NEXT_O_ID)?);
    facts.districts.insert(key, DistrictFacts { ytd, next_order });
    Ok(())
}

fn read_customer(facts: &mut Facts, row: RowRef<'_>) -> Result<(), TxnError> {
    let key = (row.i32(c::C_W_ID)?, row.i32(c::C_D_ID)?, row.i32(c::C_ID)?);
    let customer = CustomerFacts {
        balance: row.i64(c::C_BALANCE)?,
        ytd_payment: row.i64(c::C_YTD_PAYMENT)?,
        deliveries: row.i32(c::C_DELIVERY_CNT)?,
    };
    facts.customers.insert(key, customer);
    Ok(())
}

fn read_history(facts: &mut Facts, row: RowRef<'_>) -> Result<(), TxnError> {
    let amount = row.i64(h::H_AMOUNT)?;
    let district = (row.i32(h::H_W_ID)?, row.i32(h::H_D_ID)?);
    let customer = (row.i32(h::H_C_W_ID)?, row.i32(h::H_C_D_ID)?, row.i32(h::H_C_ID)?);
    *facts.paid_in_district.entry(district).or_default() += amount;
    *facts.paid_by_customer.entry(customer).or_default() += amount;
    Ok(())
}

fn read_order(facts: &mut Facts, row: RowRef<'_>) -> Result<(), TxnError> {
    let key = (row.i32(o::O_W_ID)?, row.i32(o::O_D_ID)?, row.i32(o::O_ID)?);
    let order = OrderFacts {
        customer: row.i32(o::O_C_ID)?,
        delivered: !row.is_null(o::O_CARRIER_ID)?,
        lines: row.i32(o::O_OL_CNT)?,
    };
    facts.orders.insert(key, order);
    Ok(())
}

fn read_new_order(facts: &mut Facts, row: RowRef<'_>) -> Result<(), TxnError> {
    let key = (row.i32(no::NO_W_ID)?, row.i32(no::NO_D_ID)?, row.i32(no::NO_O_ID)?);
    facts.new_orders.insert(key, ());
    Ok(())
}

fn read_line(facts: &mut Facts, row: RowRef<'_>) -> Result<(), TxnError> {
    let key = (row.i32(ol::OL_W_ID)?, row.i32(ol::OL_D_ID)?, row.i32(ol::OL_O_ID)?);
    let delivered = !row.is_null(ol::OL_DELIVERY_D)?;
    let amount = row.i64(ol::OL_AMOUNT)?;
    let lines = facts.lines.entry(key).or_default();
    lines.count += 1;
    if delivered {
        lines.delivered += 1;
        lines.delivered_amount += amount;
    }
    Ok(())
}
