//! Reading the tables into facts.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_txn::{Direction, Isolation, KeyBuf, KeyRange, RowRef, Table, TxnError, retry};

use super::facts::{CustomerFacts, DistrictFacts, Facts, OrderFacts};
use super::unread::CheckedTable;
use crate::error::TpccError;
use crate::run::pieces::{Pieces, in_pieces};
use crate::run::retries::PATIENCE;
use crate::run::{Progress, advance};
use crate::tpcc::columns::{
    customer as c, district as d, history as h, new_order as no, order_line as ol, orders as o,
    warehouse as w,
};
use crate::tpcc::nodes::TpccNode;
use crate::tpcc::partitioned::home_of;
use crate::tpcc::scale::DISTRICTS;

/// Reads every table the conditions speak about once, but for what is on pages that dead nodes took
/// with them. The nodes share the warehouses.
///
/// # Errors
/// What the database reports.
pub fn collect<'a>(
    nodes: &'a [Arc<TpccNode>],
    warehouses: i32,
    tasks_per_node: usize,
    progress: &'a Arc<dyn Progress>,
) -> BoxFuture<'a, Result<Facts, TpccError>> {
    Box::pin(async move {
        progress.begin("check", u64::try_from(warehouses).unwrap_or(0));
        let all = Arc::new(Mutex::new(Facts::default()));
        let (sum, told) = (Arc::clone(&all), Arc::clone(progress));
        let pieces = Pieces { numbers: 1..warehouses.saturating_add(1), size: 1, tasks_per_node };
        let all_nodes: Arc<[Arc<TpccNode>]> = nodes.into();
        let collected = in_pieces(nodes, "check", pieces, progress, move |node, piece| {
            let (sum, told, nodes) = (Arc::clone(&sum), Arc::clone(&told), Arc::clone(&all_nodes));
            async move {
                for warehouse in piece {
                    let node = home_of(&nodes, &node, (warehouse, warehouses));
                    let facts = collect_warehouse(node, warehouse).await?;
                    sum.lock().merge(facts);
                    advance(&*told, 1)?;
                }
                Ok(())
            }
        });
        collected.await?;
        progress.end();
        let facts = std::mem::take(&mut *all.lock());
        Ok(facts)
    })
}

/// All rows of one warehouse that can be read. Each table is read again from its beginning after a
/// conflict.
async fn collect_warehouse(node: &TpccNode, warehouse: i32) -> Result<Facts, TpccError> {
    let mut facts = Facts::default();
    for part in CheckedTable::ALL {
        let source = Source::of(part, node);
        match source.read(node, &[warehouse]).await? {
            (read, None) => facts.merge(read),
            (_, Some(_)) => facts.merge(source.read_around(node, warehouse).await?),
        }
    }
    Ok(facts)
}

type Reader = fn(&mut Facts, RowRef<'_>) -> Result<(), TxnError>;

/// A table, and what is taken from its rows.
#[derive(Clone, Copy)]
struct Source {
    part: CheckedTable,
    table: Table,
    reader: Reader,
}

/// Where reading met a lost page.
struct Met {
    page: u64,
    /// The number asked for, in the last row before.
    last: Option<i32>,
}

impl Source {
    fn of(part: CheckedTable, node: &TpccNode) -> Self {
        let tables = node.tables;
        let (table, reader): (Table, Reader) = match part {
            CheckedTable::Warehouse => (tables.warehouse, read_warehouse),
            CheckedTable::District => (tables.district, read_district),
            CheckedTable::Customer => (tables.customer, read_customer),
            CheckedTable::History => (tables.history, read_history),
            CheckedTable::Orders => (tables.orders, read_order),
            CheckedTable::NewOrder => (tables.new_order, read_new_order),
            CheckedTable::OrderLine => (tables.order_line, read_line),
        };
        Self { part, table, reader }
    }

    /// Reads the rows whose keys begin with these columns.
    async fn read(
        &self,
        node: &TpccNode,
        prefix: &[i32],
    ) -> Result<(Facts, Option<Met>), TpccError> {
        let key = encode(prefix);
        self.read_range(node, &KeyRange::prefix(&key), None).await
    }

    /// Reads a range up to its end, or up to a lost page. `column` is that of [`Met::last`].
    async fn read_range(
        &self,
        node: &TpccNode,
        range: &KeyRange,
        column: Option<usize>,
    ) -> Result<(Facts, Option<Met>), TpccError> {
        let read = || self.read_once(node, range, column);
        let part = retry(node.engine.env(), &PATIENCE, read).await;
        part.map_err(|error| TpccError::of_retry("check", error))
    }

    async fn read_once(
        &self,
        node: &TpccNode,
        range: &KeyRange,
        column: Option<usize>,
    ) -> Result<(Facts, Option<Met>), TpccError> {
        let mut facts = Facts::default();
        let mut last = None;
        // No transaction writes, so reading leaf by leaf sees one state; holding every leaf would
        // need a cache as large as the table.
        let mut txn = node.db.begin_with(Isolation::ReadCommitted);
        let scanned = txn.scan(self.table, range, Direction::Forward, |row| {
            facts.rows += 1;
            (self.reader)(&mut facts, row)?;
            if let Some(column) = column {
                last = Some(row.i32(column)?);
            }
            Ok(ControlFlow::Continue(()))
        });
        match scanned.await.map_err(TpccError::from) {
            Ok(()) => txn.commit().await?,
            Err(error) => {
                let Some(page) = error.lost_page() else { return Err(error) };
                return Ok((facts, Some(Met { page: page.to_u64(), last })));
            }
        }
        Ok((facts, None))
    }

    /// Reads what is not on lost pages, and notes what is.
    async fn read_around(&self, node: &TpccNode, warehouse: i32) -> Result<Facts, TpccError> {
        let mut facts = Facts::default();
        match self.part {
            CheckedTable::Warehouse => {
                let (read, met) = self.read(node, &[warehouse]).await?;
                facts.merge(read);
                if let Some(met) = met {
                    facts.unread.add_page(met.page);
                    facts.unread.add_gap(self.part, (warehouse, 0), (warehouse, warehouse));
                }
            }
            CheckedTable::District | CheckedTable::History => {
                self.read_pieces(node, &[warehouse], &mut facts).await?;
            }
            CheckedTable::Customer
            | CheckedTable::Orders
            | CheckedTable::NewOrder
            | CheckedTable::OrderLine => {
                for district in 1..=DISTRICTS {
                    self.read_pieces(node, &[warehouse, district], &mut facts).await?;
                }
            }
        }
        Ok(facts)
    }

    /// Reads the rows that begin with `prefix`, and continues after each lost page. Which numbers
    /// are on the page is found by bisection, as they are neighbours: about thirty looks a page,
    /// not one a row.
    async fn read_pieces(
        &self,
        node: &TpccNode,
        prefix: &[i32],
        facts: &mut Facts,
    ) -> Result<(), TpccError> {
        let owner = (prefix.first().copied().unwrap_or(0), prefix.get(1).copied().unwrap_or(0));
        let whole = |number: i32| encode(&[prefix, &[number]].concat());
        let mut from = 0;
        loop {
            let range = KeyRange::between(&whole(from), &whole(i32::MAX));
            let (read, met) = self.read_range(node, &range, Some(prefix.len())).await?;
            facts.merge(read);
            let Some(Met { page, last }) = met else { return Ok(()) };
            facts.unread.add_page(page);
            let first = match last {
                None => from,
                // More rows of this number may follow.
                Some(last) if self.has_many_rows_a_number() => last,
                Some(last) => last.saturating_add(1),
            };
            let (mut low, mut high) = (first, i32::MAX);
            while low < high {
                let middle = low + (high - low) / 2 + 1;
                let (_, met) = self.read(node, &[prefix, &[middle]].concat()).await?;
                if met.is_some_and(|met| met.page == page) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            facts.unread.add_gap(self.part, owner, (first, low));
            let Some(next) = low.checked_add(1) else { return Ok(()) };
            from = next;
        }
    }

    fn has_many_rows_a_number(&self) -> bool {
        matches!(self.part, CheckedTable::History | CheckedTable::OrderLine)
    }
}

fn encode(columns: &[i32]) -> KeyBuf {
    columns.iter().fold(KeyBuf::new(), |key, column| key.i32(*column))
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
