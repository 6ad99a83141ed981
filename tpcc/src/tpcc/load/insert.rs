//! Inserting the rows of a job, some dozens a transaction.

use std::ops::Range;
use std::sync::Arc;

use selkie_txn::{RowBuilder, Table, Txn, retry};

use super::jobs::LoadJob;
use super::rows::RowGenerator;
use crate::error::TpccError;
use crate::run::pieces::batches;
use crate::run::retries::LOADING;
use crate::run::{Progress, advance};
use crate::tpcc::nodes::TpccNode;
use crate::tpcc::scale::DISTRICTS;

/// Items, or stock rows, in a transaction.
const ROWS: i32 = 64;
/// Customers in a transaction: four rows each, one of them anywhere in the index by name.
const CUSTOMERS: i32 = 24;
/// Orders in a transaction: twelve rows each, one of them anywhere in the index by customer.
const ORDERS: i32 = 12;

/// Inserts rows through one compute node.
pub(super) struct Loader {
    pub(super) node: Arc<TpccNode>,
    pub(super) plan: Arc<RowGenerator>,
    pub(super) progress: Arc<dyn Progress>,
}

impl Loader {
    /// Does a job.
    pub(super) async fn run(&self, job: LoadJob) -> Result<(), TpccError> {
        let env = self.node.engine.env();
        let failed = |error| TpccError::of_retry("load", error);
        match job {
            LoadJob::Items(items) => {
                for batch in batches(items, ROWS) {
                    retry(env, &LOADING, || self.items(batch.clone())).await.map_err(failed)?;
                    self.count(batch.len())?;
                }
            }
            LoadJob::Warehouse(warehouse) => {
                retry(env, &LOADING, || self.warehouse(warehouse)).await.map_err(failed)?;
                self.count(1 + DISTRICTS.unsigned_abs() as usize)?;
            }
            LoadJob::Stock(warehouse, items) => {
                for batch in batches(items, ROWS) {
                    let insert = || self.stock(warehouse, batch.clone());
                    retry(env, &LOADING, insert).await.map_err(failed)?;
                    self.count(batch.len())?;
                }
            }
            LoadJob::Customers(warehouse, district) => {
                for batch in batches(self.customer_numbers(), CUSTOMERS) {
                    let insert = || self.customers((warehouse, district), batch.clone());
                    retry(env, &LOADING, insert).await.map_err(failed)?;
                    self.count(3 * batch.len())?;
                }
            }
            LoadJob::Orders(warehouse, district) => {
                let customers = self.plan.ordering_customers(warehouse, district);
                for batch in batches(self.customer_numbers(), ORDERS) {
                    let insert = || self.orders((warehouse, district), batch.clone(), &customers);
                    retry(env, &LOADING, insert).await.map_err(failed)?;
                    let undelivered =
                        batch.end - self.plan.scale.first_undelivered().max(batch.start);
                    let undelivered = usize::try_from(undelivered).unwrap_or(0);
                    self.count(11 * batch.len() + undelivered)?;
                }
            }
        }
        Ok(())
    }

    fn count(&self, rows: usize) -> Result<(), TpccError> {
        advance(&*self.progress, rows as u64)
    }

    /// Numbers of the customers of a district, and of its initial orders.
    fn customer_numbers(&self) -> Range<i32> {
        1..self.plan.scale.customers_per_district + 1
    }

    fn begin(&self) -> Txn<'_> {
        self.node.db.begin()
    }

    fn builder(&self, table: Table) -> Result<RowBuilder<'_>, TpccError> {
        Ok(self.node.db.row(table)?)
    }

    async fn items(&self, items: Range<i32>) -> Result<(), TpccError> {
        let table = self.node.tables.item;
        let (mut txn, mut row) = (self.begin(), self.builder(table)?);
        for item in items {
            self.plan.item(&mut row, item);
            txn.insert(table, row.finish()?).await?;
        }
        Ok(txn.commit().await?)
    }

    async fn warehouse(&self, warehouse: i32) -> Result<(), TpccError> {
        let tables = &self.node.tables;
        let mut txn = self.begin();
        let mut row = self.builder(tables.warehouse)?;
        self.plan.warehouse(&mut row, warehouse);
        txn.insert(tables.warehouse, row.finish()?).await?;
        let mut row = self.builder(tables.district)?;
        for district in 1..=DISTRICTS {
            self.plan.district(&mut row, warehouse, district);
            txn.insert(tables.district, row.finish()?).await?;
        }
        Ok(txn.commit().await?)
    }

    async fn stock(&self, warehouse: i32, items: Range<i32>) -> Result<(), TpccError> {
        let table = self.node.tables.stock;
        let (mut txn, mut row) = (self.begin(), self.builder(table)?);
        for item in items {
            self.plan.stock(&mut row, warehouse, item);
            txn.insert(table, row.finish()?).await?;
        }
        Ok(txn.commit().await?)
    }

    async fn customers(
        &self,
        (warehouse, district): (i32, i32),
        customers: Range<i32>,
    ) -> Result<(), TpccError> {
        let tables = &self.node.tables;
        let mut txn = self.begin();
        let mut row = self.builder(tables.customer)?;
        let mut data = self.builder(tables.customer_data)?;
        let mut history = self.builder(tables.history)?;
        for customer in customers {
            let rows = (&mut row, &mut data, &mut history);
            self.plan.customer(rows, (warehouse, district, customer));
            txn.insert(tables.customer, row.finish()?).await?;
            txn.insert(tables.customer_data, data.finish()?).await?;
            txn.insert(tables.history, history.finish()?).await?;
        }
        Ok(txn.commit().await?)
    }

    async fn orders(
        &self,
        (warehouse, district): (i32, i32),
        numbers: Range<i32>,
        customers: &[i32],
    ) -> Result<(), TpccError> {
        let tables = &self.node.tables;
        let mut txn = self.begin();
        let mut row = self.builder(tables.orders)?;
        let mut line = self.builder(tables.order_line)?;
        let mut new_order = self.builder(tables.new_order)?;
        for number in numbers {
            let position = usize::try_from(number - 1).unwrap_or(0);
            let customer = customers.get(position).copied().unwrap_or(number);
            let mut order = self.plan.order(&mut row, (warehouse, district, number), customer);
            txn.insert(tables.orders, row.finish()?).await?;
            if !order.delivered {
                new_order.clear();
                new_order.i32(warehouse).i32(district).i32(number);
                txn.insert(tables.new_order, new_order.finish()?).await?;
            }
            for number in 1..=order.lines {
                self.plan.line(&mut line, &mut order, number);
                txn.insert(tables.order_line, line.finish()?).await?;
            }
        }
        Ok(txn.commit().await?)
    }
}
