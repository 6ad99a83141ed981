//! A client that changes tables while the sessions work with them: it builds indexes of the
//! registers and drops them, adds, changes, renames and drops columns, empties the table of the
//! registers, and creates, fills and drops another table.
//!
//! What the sessions read and write is the same in every definition, so their history is judged as
//! without it. A session that used an old definition must be run again. What shows if one is not:
//! an index that was built meanwhile lacks an entry, or has one too many; a column has a value of
//! an earlier one, or a NULL that it must not have.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::{Env, SplitMix};
use selkie_txn::{
    AbortCause, ColumnType, Database, Direction, Index, KeyRange, NewIndex, Source, Table,
    TableSchema, Txn, TxnError,
};

use super::access::Access;
use super::column_changes::{self, FIRST_COLUMN};
use super::ending::end;
use super::holds::Holds;
use super::journal::{Journal, Notes};
use super::registers::Registers;
use super::values::{Values, changed_by};
use crate::error::{SimError, ensure};

/// Changes that are made at least.
const CHANGES: usize = 6;
/// Longest pause before one, nanoseconds.
const PAUSE_NS: u64 = 300_000;
/// Attempts of one change.
const ATTEMPTS: usize = 200;
/// Rows of the other table.
const ROWS: i64 = 40;
/// The index that comes and goes, and the table.
const INDEX: &str = "extra";
const OTHER: &str = "other";
/// Columns of a register.
const NOTE: usize = 3;

pub(super) struct SchemaChanges {
    pub(super) db: Database,
    pub(super) env: Env,
    /// By which it ends, if it has made its changes.
    pub(super) clock: Env,
    pub(super) until: Duration,
    pub(super) random: SplitMix,
    /// What it does with registers is part of the history, as what its number says.
    pub(super) journal: Arc<Journal>,
    pub(super) holds: Arc<Holds>,
    pub(super) number: usize,
    pub(super) keys: u64,
}

/// One change, which is a transaction, or several.
#[derive(Clone, Copy)]
enum SchemaChange {
    BuildIndex,
    DropIndex,
    /// Count what an index has.
    Compare(Index),
    RenameColumn,
    CreateTable,
    DropTable,
    /// Add, drop or change a column that the sessions write, but do not judge.
    Columns,
    /// Look at what these columns have.
    CheckColumns,
}

impl SchemaChanges {
    /// Changes tables until the sessions end; returns how many changes were committed.
    ///
    /// # Errors
    /// Those of a session; [`SimError::Broken`] if an index disagrees with its table.
    pub(super) async fn run(self) -> Result<u64, SimError> {
        let registers = self.db.table("register")?;
        let (mut done, mut made, mut values) = (0, 0, Values::of(self.number));
        while made < CHANGES || self.clock.now() < self.until {
            made += 1;
            self.pause(PAUSE_NS).await;
            if self.random.below(12) == 0 {
                done += u64::from(self.truncate(&mut values).await?);
            }
            let change = match self.random.below(14) {
                0..=2 => SchemaChange::BuildIndex,
                3 => SchemaChange::DropIndex,
                4 | 5 => SchemaChange::RenameColumn,
                6 => SchemaChange::CreateTable,
                7 => SchemaChange::DropTable,
                _ => SchemaChange::Columns,
            };
            done += u64::from(self.again(registers, change).await?);
            self.again(registers, SchemaChange::CheckColumns).await?;
        }
        Ok(done)
    }

    /// Makes a change, again after a conflict; whether it was made.
    async fn again(&self, registers: Table, change: SchemaChange) -> Result<bool, SimError> {
        for _ in 0..ATTEMPTS {
            match self.attempt(registers, change).await {
                Ok(()) => return Ok(true),
                // There is such a table or index already, or none.
                Err(SimError::Txn(TxnError::Schema(_))) => return Ok(false),
                Err(SimError::Txn(error)) if error.is_retryable() => {
                    // As for sessions.
                    if error.abort_cause() == Some(AbortCause::Timeout) {
                        return Err(SimError::NoProgress(error.to_string()));
                    }
                }
                Err(error) => return Err(error),
            }
            self.pause(PAUSE_NS / 10).await;
        }
        Ok(false)
    }

    /// Tries once to remove all rows of the registers; whether they were.
    async fn truncate(&self, values: &mut Values) -> Result<bool, SimError> {
        let now = || self.clock.now().as_nanos() as u64;
        let (invoked, registers) = (now(), Registers::of(&self.db)?);
        let (mut txn, mut notes) = (self.db.begin(), Notes::default());
        let holder = self.holds.begin(self.db.engine().node().index());
        let mut access =
            Access { db: &self.db, txn: &mut txn, notes: &mut notes, random: &self.random };
        let emptied = registers.truncate(&mut access, self.keys, values).await;
        let (ops, _) = notes.into_parts();
        let changes = changed_by(&ops);
        let entry = self.journal.add(self.number, invoked, ops);
        let note = |status| self.journal.end(entry, now(), status);
        Ok(end((txn, emptied), (holder, changes), note).await?.is_none())
    }

    async fn attempt(&self, registers: Table, change: SchemaChange) -> Result<(), SimError> {
        let db = &self.db;
        match change {
            SchemaChange::BuildIndex => {
                let new = match self.random.below(3) {
                    0 => NewIndex::new(INDEX, ["version"]).unique(),
                    // Another node may drop it before the index is begun.
                    1 => {
                        let columns = db.begin_to_read().schema(registers).await?.columns;
                        let first = columns.get(FIRST_COLUMN).map_or("none", |column| &column.name);
                        NewIndex::new(INDEX, [first, "version"])
                    }
                    _ => NewIndex::new(INDEX, ["note", "version"]),
                };
                let index = db.create_index(registers, new).await?;
                return Box::pin(self.attempt(registers, SchemaChange::Compare(index))).await;
            }
            SchemaChange::Compare(index) => {
                let mut txn = db.begin_to_read();
                let rows = count(&mut txn, registers.into()).await?;
                let entries = count(&mut txn, index.into()).await?;
                txn.commit().await?;
                return ensure(rows == entries, || {
                    format!("an index has {entries} entries of {rows} rows")
                });
            }
            SchemaChange::CheckColumns => return column_changes::check(db, registers).await,
            _ => {}
        }
        let mut txn = db.begin();
        match change {
            SchemaChange::DropIndex => txn.drop_index(registers, INDEX).await?,
            SchemaChange::RenameColumn => {
                let schema = txn.schema(registers).await?;
                let name = format!("note_{}", self.random.below(1_000_000));
                if let Some(column) = schema.columns.get(NOTE) {
                    txn.rename_column(registers, &column.name, &name).await?;
                }
            }
            SchemaChange::CreateTable => {
                let schema = TableSchema::new(OTHER)
                    .column("id", ColumnType::I64)
                    .primary_key([0])
                    .max_rows_per_page(3);
                let other = txn.create_table(schema).await?;
                txn.commit().await?;
                db.refresh().await?;
                txn = db.begin();
                for id in 0..ROWS {
                    let mut row = db.row(other)?;
                    txn.insert(other, row.i64(id).finish().map_err(TxnError::from)?).await?;
                }
            }
            SchemaChange::DropTable => {
                let other = txn.table(OTHER).await?;
                txn.drop_table(other).await?;
            }
            SchemaChange::Columns => {
                column_changes::change(&mut txn, registers, &self.random).await?;
            }
            SchemaChange::BuildIndex | SchemaChange::Compare(_) | SchemaChange::CheckColumns => {}
        }
        Ok(txn.commit().await?)
    }

    async fn pause(&self, longest: u64) {
        self.env.sleep(Duration::from_nanos(self.random.below(longest))).await;
    }
}

async fn count(txn: &mut Txn<'_>, source: Source) -> Result<usize, TxnError> {
    let mut rows = 0;
    txn.scan(source, &KeyRange::all(), Direction::Forward, |_| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    Ok(rows)
}
