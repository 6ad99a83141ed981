//! A large transaction beside the load of a bank: thousands of rows in one go, in a table of their
//! own, which is committed, rolled back, dropped, or refused because the cache, the log or the pool
//! has no room. Afterwards the table has all of the rows or none, and takes another one.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_btree::TreeError;
use selkie_engine::EngineError;
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::Controls;
use selkie_txn::{
    AbortCause, ColumnType, Database, Direction, KeyRange, Table, TableSchema, TxnError,
};

use super::random::drawn;
use crate::error::{SimError, ensure};

/// Stream of the seed that draws whether there is a large transaction, how large, and its end.
const BULK_STREAM: u64 = 43;
/// One run in so many has a large transaction.
const ONE_IN: u64 = 10;
/// Its rows: the largest are rare, as they take long.
const ROWS: [u64; 8] = [60, 200, 500, 1_000, 2_000, 2_000, 5_000, 20_000];
/// How often it is tried, while other transactions are in its way.
const ATTEMPTS: u32 = 20;
/// Rows between two pauses, in which others have a turn.
const ROWS_A_TURN: u64 = 50;

/// What became of the transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BulkEnd {
    /// It is not known whether it is there.
    Open,
    Committed,
    /// It was rolled back, refused, or never begun.
    Undone,
}

/// How the transaction is to end, unless it is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Intent {
    Commit,
    RollBack,
    Drop,
}

/// A large transaction.
#[derive(Clone)]
pub(super) struct Bulk {
    rows: u64,
    intent: Intent,
    /// Keys are inserted in ascending order, and not in a random one.
    ascends: bool,
    /// All leaves that it changes leave the cache, beyond the first 64.
    leaves_cache: bool,
    end: Arc<Mutex<BulkEnd>>,
}

impl Bulk {
    /// What the seed draws.
    pub(super) fn of(seed: u64) -> Option<Self> {
        let random = SplitMix::of_stream(seed, BULK_STREAM);
        if random.below(ONE_IN) != 0 {
            return None;
        }
        let rows = *drawn(seed, BULK_STREAM + 1, &ROWS);
        let intent = match random.below(4) {
            0 => Intent::RollBack,
            1 => Intent::Drop,
            _ => Intent::Commit,
        };
        let (ascends, leaves_cache) = (random.below(2) == 0, random.below(2) == 0);
        let end = Arc::new(Mutex::new(BulkEnd::Undone));
        Some(Self { rows, intent, ascends, leaves_cache, end })
    }

    /// Its table.
    pub(super) fn table() -> TableSchema {
        TableSchema::new("bulk")
            .column("id", ColumnType::I64)
            .column("note", ColumnType::Text(100))
            .primary_key([0])
    }

    /// Makes the transaction; returns its rows.
    pub(super) async fn run(
        self,
        db: Arc<Database>,
        env: Env,
        controls: Controls,
    ) -> Result<u64, SimError> {
        let table = db.table("bulk")?;
        if self.leaves_cache {
            db.set_cached_leaves(0);
        }
        for _ in 0..ATTEMPTS {
            *self.end.lock() = BulkEnd::Open;
            match self.attempt(&db, table, &env).await {
                Ok(end) => {
                    *self.end.lock() = end;
                    return Ok(self.rows);
                }
                Err(error) if is_refusal(&error) => {
                    if is_pool_full(&error) {
                        controls.note(POOL_IS_FULL);
                    }
                    *self.end.lock() = BulkEnd::Undone;
                    return Ok(0);
                }
                Err(error) if error.is_retryable() => {
                    *self.end.lock() = BulkEnd::Undone;
                    env.sleep(Duration::from_micros(200)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }

    async fn attempt(&self, db: &Database, table: Table, env: &Env) -> Result<BulkEnd, TxnError> {
        let mut txn = db.begin();
        for number in 0..self.rows {
            // An odd factor goes through all remainders of a power of two.
            let ascending = number.cast_signed();
            let id = if self.ascends {
                ascending
            } else {
                (number.wrapping_mul(0x9e37_79b9) % (1 << 32)).cast_signed()
            };
            let mut row = db.row(table)?;
            row.i64(id).text(NOTE);
            txn.insert(table, row.finish()?).await?;
            if number % ROWS_A_TURN == 0 {
                env.yield_now().await;
            }
        }
        match self.intent {
            Intent::Commit => txn.commit().await.map(|()| BulkEnd::Committed),
            Intent::RollBack => {
                txn.rollback().await;
                Ok(BulkEnd::Undone)
            }
            Intent::Drop => {
                drop(txn);
                Ok(BulkEnd::Undone)
            }
        }
    }

    /// Checks that all rows are there or none, as far as that is known, and adds one.
    pub(super) async fn check(&self, db: &Database) -> Result<(), SimError> {
        let table = db.table("bulk")?;
        let end = *self.end.lock();
        let mut found = 0;
        let mut txn = db.begin();
        txn.scan(table, &KeyRange::all(), Direction::Forward, |_| {
            found += 1;
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        txn.commit().await?;
        let is_right = match end {
            BulkEnd::Open => found == 0 || found == self.rows,
            BulkEnd::Committed => found == self.rows,
            BulkEnd::Undone => found == 0,
        };
        ensure(is_right, || {
            format!("a transaction of {} rows, {end:?}, has left {found}", self.rows)
        })?;
        let mut txn = db.begin();
        let mut row = db.row(table)?;
        row.i64(-1).text("one more");
        txn.insert(table, row.finish().map_err(TxnError::from)?).await?;
        match txn.commit().await {
            // Freed pages may not be reusable yet.
            Err(TxnError::Engine(EngineError::FreedInUse)) => Ok(()),
            Err(error) if !is_pool_full(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// What the event log says when a client finds the pool full.
const POOL_IS_FULL: &str = "the pool is full";

/// What a row says beside its key.
const NOTE: &str =
    "one of many rows of one transaction, of as many bytes as rows of tables often have";

/// Whether a transaction was refused because there is no room for one as large.
fn is_refusal(error: &TxnError) -> bool {
    // Some are refused one operation, which would leave the transaction as it was.
    let is_too_large =
        matches!(error, TxnError::WriteSetTooLarge { .. } | TxnError::TooMuchMemory { .. });
    error.abort_cause() == Some(AbortCause::TooLarge) || is_too_large || is_pool_full(error)
}

/// Whether the pool has no room.
pub(super) fn is_pool_full(error: &TxnError) -> bool {
    matches!(
        error,
        TxnError::Engine(EngineError::PoolFull { .. })
            | TxnError::Tree(TreeError::Engine(EngineError::PoolFull { .. }))
    )
}
