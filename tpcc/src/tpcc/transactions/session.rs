//! What a worker keeps from one transaction to the next.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_txn::{Database, RowBuilder, TxnError};

use crate::tpcc::schema::Tables;

/// One worker's place at a database.
pub struct Session<'db> {
    pub(crate) db: &'db Database,
    pub(crate) tables: Tables,
    /// Number of the worker, unique among all nodes: part of the key of its HISTORY rows.
    writer: i32,
    next_history: AtomicI64,
    /// Processor time of an access to a row, in virtual time.
    access: Duration,
    /// Row builders with the memory they have; taken by an attempt and put back.
    rows: Mutex<Option<Rows<'db>>>,
}

/// A builder for each table that transactions insert into.
pub(crate) struct Rows<'db> {
    pub(crate) history: RowBuilder<'db>,
    pub(crate) new_order: RowBuilder<'db>,
    pub(crate) orders: RowBuilder<'db>,
    pub(crate) order_line: RowBuilder<'db>,
}

impl<'db> Session<'db> {
    /// A session for the worker with this number: 1 or above, used by no other worker of any node
    /// for as long as the database lives.
    #[must_use]
    pub fn new(db: &'db Database, tables: Tables, writer: i32) -> Self {
        let (next_history, rows) = (AtomicI64::new(0), Mutex::new(None));
        Self { db, tables, writer, next_history, access: Duration::ZERO, rows }
    }

    /// The same with so much processor time for each access to a row, where time is virtual; in
    /// real time the work takes what it takes.
    #[must_use]
    pub(crate) fn with_access_time(self, access: Duration) -> Self {
        Self { access, ..self }
    }

    /// Accounts for the processor's work on so many rows, which a transaction does while it holds
    /// its latches.
    pub(crate) async fn work(&self, rows: u32) {
        if !self.access.is_zero() {
            self.db.engine().env().spend(self.access * rows).await;
        }
    }

    /// The primary key of the next HISTORY row: this worker's number and a sequence number. Gaps do
    /// not matter.
    pub(crate) fn history_key(&self) -> (i32, i64) {
        (self.writer, self.next_history.fetch_add(1, Ordering::Relaxed))
    }

    /// The builders; new ones if they are in use.
    pub(crate) fn take_rows(&self) -> Result<Rows<'db>, TxnError> {
        if let Some(rows) = self.rows.lock().take() {
            return Ok(rows);
        }
        Ok(Rows {
            history: self.db.row(self.tables.history)?,
            new_order: self.db.row(self.tables.new_order)?,
            orders: self.db.row(self.tables.orders)?,
            order_line: self.db.row(self.tables.order_line)?,
        })
    }

    /// Gives the builders back for the next transaction.
    pub(crate) fn put_rows(&self, rows: Rows<'db>) {
        *self.rows.lock() = Some(rows);
    }
}
