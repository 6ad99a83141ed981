//! Reading a sample of a table, and keeping what it says.

use std::ops::ControlFlow;

use selkie_btree::{Direction, Tree, TreeError};
use selkie_engine::Engine;
use selkie_fabric::env::{Env, yield_now};

use crate::access::walk::Walk;
use crate::access::walk_state::WalkState;
use crate::catalogue::column_type::ColumnType;
use crate::catalogue::definition::{STATISTICS, piece_bytes};
use crate::catalogue::error::CatalogueError;
use crate::catalogue::handles::Table;
use crate::encoding::key::KeyBuf;
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_builder::RowBuilder;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::statistics::estimate::{SampledColumn, rounded};
use crate::statistics::table_statistics::{TableStatistics, value_bytes};
use crate::transaction::database::Database;
use crate::transaction::retry::{RetryError, RetryPolicy, retry};
use crate::transaction::txn::Txn;

/// Rows that are looked at to tell how many there are.
const ROWS_TO_COUNT: usize = 2_000;

/// How much of a table is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnalyzeOptions {
    /// Rows to look at, at least as many as the leaves have in which they are.
    pub sample_rows: usize,
}

impl Default for AnalyzeOptions {
    /// 30,000 rows.
    fn default() -> Self {
        Self { sample_rows: 30_000 }
    }
}

/// Between which keys a leaf lies.
struct LeafRange {
    low: Box<[u8]>,
    high: Option<Box<[u8]>>,
}

/// Some leaves of a tree, each as likely as the other.
struct DrawnLeaves {
    /// In an order that is drawn as well.
    leaves: Vec<LeafRange>,
    /// How many there are in all.
    in_tree: u64,
}

/// The leaves all of whose rows were looked at.
#[derive(Default)]
struct WholeLeaves {
    leaves: u64,
    rows: u64,
}

impl Database {
    /// Finds out what the rows of a table are like, from a sample, and keeps that in the catalogue
    /// in place of what was found before. Reads all inner pages above the leaves, and about as many
    /// leaves as have the rows to look at, at one snapshot: it waits for no transaction and delays
    /// none.
    ///
    /// # Errors
    /// [`CatalogueError::FixedTables`] in a database that is not for
    /// [`Protocol::Snapshot`](crate::Protocol::Snapshot); [`TxnError::Schema`] if there is no such
    /// table; what the engine reports.
    pub async fn analyze(
        &self,
        table: Table,
        options: AnalyzeOptions,
    ) -> Result<TableStatistics, TxnError> {
        let (env, policy) = (self.engine().env(), RetryPolicy::default());
        let found = retry(env, &policy, || async {
            let mut txn = self.begin_to_read();
            let found = txn.sample(table, options).await?;
            txn.commit().await?;
            Ok::<_, TxnError>(found)
        });
        let found = found.await.map_err(RetryError::into_inner)?;
        let kept = retry(env, &policy, || async {
            let mut txn = self.begin();
            txn.keep_statistics(table, &found).await?;
            txn.commit().await
        });
        kept.await.map_err(RetryError::into_inner)?;
        Ok(found)
    }

    /// About how many rows a table has, by how many leaves its tree has and the rows of some of
    /// them. Keeps nothing.
    ///
    /// # Errors
    /// As [`analyze`](Self::analyze).
    pub async fn estimated_rows(&self, table: Table) -> Result<u64, TxnError> {
        let (env, policy) = (self.engine().env(), RetryPolicy::default());
        let found = retry(env, &policy, || async {
            let mut txn = self.begin_to_read();
            let found = txn.sample(table, AnalyzeOptions { sample_rows: ROWS_TO_COUNT }).await?;
            txn.commit().await?;
            Ok::<_, TxnError>(found.rows)
        });
        found.await.map_err(RetryError::into_inner)
    }

    /// What [`analyze`](Self::analyze) has found of a table last; `None` if it was not analyzed.
    /// One round trip, and one for each page of the catalogue that is not cached.
    ///
    /// # Errors
    /// As [`analyze`](Self::analyze).
    pub async fn statistics(&self, table: Table) -> Result<Option<TableStatistics>, TxnError> {
        let mut txn = self.begin_to_read();
        let found = txn.kept_statistics(table).await?;
        txn.commit().await?;
        Ok(found)
    }
}

impl<'db> Txn<'db> {
    fn open_statistics(&mut self) -> Result<(), TxnError> {
        self.open_read()?;
        match self.db.directory.changing() {
            Some(_) => Ok(()),
            None => Err(CatalogueError::FixedTables.into()),
        }
    }

    async fn sample(
        &mut self,
        table: Table,
        options: AnalyzeOptions,
    ) -> Result<TableStatistics, TxnError> {
        self.open_statistics()?;
        let info = self.table_info(table).await?;
        let most = options.sample_rows.max(1);
        let engine = &self.db.engine;
        let drawn = draw_leaves(engine, &info.primary.tree, most).await;
        let DrawnLeaves { leaves, in_tree } =
            self.close_read(drawn.map_err(TxnError::from)).await?;
        let types: Vec<ColumnType> = info.schema.columns.iter().map(|column| column.ty).collect();
        let mut columns: Vec<SampledColumn> = Vec::new();
        columns.resize_with(types.len(), SampledColumn::default);
        let (mut rows, mut row_bytes, most) = (0_u64, 0_u64, most as u64);
        let mut whole = WholeLeaves::default();
        for leaf in leaves {
            if rows >= most {
                break;
            }
            let range = match &leaf.high {
                Some(high) => KeyRange::half_open(&leaf.low, high),
                None => KeyRange::from(&leaf.low),
            };
            let mut in_leaf = 0;
            let sample = |row: RowRef<'_>| {
                in_leaf += 1;
                if rows >= most {
                    // What has no separators yet counts as one leaf, and may be most of a tree: it
                    // is counted if nothing else tells how many rows there are.
                    let is_needed = whole.leaves == 0;
                    return Ok(if is_needed {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    });
                }
                (rows, row_bytes) = (rows + 1, row_bytes + row.as_bytes().len() as u64);
                for ((column, sampled), ty) in (0..).zip(&mut columns).zip(&types) {
                    let Some(bytes) = row.value_bytes(column)? else {
                        sampled.add_null();
                        continue;
                    };
                    // A value that is stored apart is not read for that.
                    let value = match row.is_moved(column)? {
                        true => None,
                        false => Some(value_bytes(*ty, row.value(column)?)?),
                    };
                    sampled.add(value, bytes);
                }
                Ok(ControlFlow::Continue(()))
            };
            let is_whole = self.scan_separators(table, &range, sample).await?;
            if is_whole {
                whole.leaves += 1;
                whole.rows += in_leaf;
            }
            yield_now().await;
        }
        let in_table = whole.rows as f64 * in_tree as f64 / (whole.leaves as f64).max(1.0);
        let in_table = (in_table.round() as u64).max(rows);
        let names = info.schema.columns.iter().map(|column| column.name.as_str());
        let columns = columns.into_iter().zip(names);
        Ok(TableStatistics {
            rows: in_table,
            leaves: in_tree,
            sampled_rows: rows,
            row_bytes: rounded(row_bytes as f64 / (rows as f64).max(1.0)),
            columns: columns.map(|(of, name)| of.estimate(name, rows, in_table)).collect(),
        })
    }

    /// As [`scan`](Self::scan) of a table, between separators of its tree, which are no whole keys.
    /// Whether it has come to the end.
    async fn scan_separators<F>(
        &mut self,
        table: Table,
        range: &KeyRange,
        mut visit: F,
    ) -> Result<bool, TxnError>
    where
        F: FnMut(RowRef<'_>) -> Result<ControlFlow<()>, TxnError> + Send,
    {
        self.open_read()?;
        let info = self.table_info(table).await?;
        let mut is_whole = true;
        let mut visit = |row: RowRef<'_>| visit(row).inspect(|flow| is_whole = flow.is_continue());
        let mut entry = std::mem::take(&mut self.work.entry);
        let (index, shared) = (&info.primary, LatchMode::Shared);
        let mut walk =
            Walk::new(index, range, Direction::Forward, shared, WalkState::at_beginning(range));
        let scanned =
            self.walk_rows(info, index, &mut walk, shared, &mut visit, &mut entry).await.map(drop);
        // An error is looked into with no leaf latched.
        drop(walk);
        self.work.entry = entry;
        self.close_read(scanned).await?;
        Ok(is_whole)
    }

    async fn keep_statistics(
        &mut self,
        table: Table,
        statistics: &TableStatistics,
    ) -> Result<(), TxnError> {
        self.open_statistics()?;
        // Fails if the table is gone meanwhile.
        self.table_info(table).await?;
        let mark = self.begin_change();
        let kept = Box::pin(self.write_statistics(table, statistics)).await;
        self.close_change(mark, kept).await
    }

    async fn write_statistics(
        &mut self,
        table: Table,
        statistics: &TableStatistics,
    ) -> Result<(), TxnError> {
        self.delete_statistics(table).await?;
        let (info, number) = (self.system_table(STATISTICS), table.catalogue_number());
        let document = serde_json::to_vec(statistics).map_err(CatalogueError::from)?;
        let pieces = document.chunks(piece_bytes(self.db.engine.page_bytes()));
        for (piece, bytes) in (0..).zip(pieces) {
            let mut row = RowBuilder::new(&info.layout);
            let row = row.i64(number).i32(piece).bytes(bytes).finish()?;
            self.insert_row(info, row).await?;
        }
        Ok(())
    }

    /// Deletes what is known of a table.
    pub(crate) async fn delete_statistics(&mut self, table: Table) -> Result<(), TxnError> {
        let (info, number) = (self.system_table(STATISTICS), table.catalogue_number());
        let pieces = self.pieces_of_statistics(table).await?.1;
        let mut buffer = Vec::new();
        for piece in 0..pieces {
            self.delete_row(info, &KeyBuf::new().i64(number).i32(piece), &mut buffer).await?;
        }
        Ok(())
    }

    /// The document with what is known of a table, and in how many pieces it is.
    async fn pieces_of_statistics(&mut self, table: Table) -> Result<(Vec<u8>, i32), TxnError> {
        let (info, key) = (self.system_table(STATISTICS), table.catalogue_key());
        let (mut document, mut pieces) = (Vec::new(), 0);
        let mut take = |row: RowRef<'_>| {
            document.extend_from_slice(row.bytes(2)?);
            pieces += 1;
            Ok(ControlFlow::Continue(()))
        };
        let (range, forward, mut entry) = (KeyRange::prefix(&key), Direction::Forward, Vec::new());
        self.scan_rows(info, &info.primary, &range, forward, &mut take, &mut entry).await?;
        self.work.last_read = None;
        Ok((document, pieces))
    }

    async fn kept_statistics(&mut self, table: Table) -> Result<Option<TableStatistics>, TxnError> {
        self.open_statistics()?;
        self.table_info(table).await?;
        let read = Box::pin(self.pieces_of_statistics(table)).await;
        let (document, pieces) = self.close_read(read).await?;
        if pieces == 0 {
            return Ok(None);
        }
        let found = serde_json::from_slice(&document);
        Ok(Some(found.map_err(CatalogueError::from)?))
    }
}

/// Draws up to `most` leaves of a tree.
async fn draw_leaves(engine: &Engine, tree: &Tree, most: usize) -> Result<DrawnLeaves, TreeError> {
    let env: &Env = engine.env();
    let (mut leaves, mut in_tree): (Vec<LeafRange>, u64) = (Vec::new(), 0);
    let mut from: Box<[u8]> = Box::default();
    loop {
        let found = tree.leaves_from(engine, &from).await?;
        let mut ends: Vec<Option<Box<[u8]>>> =
            found.begin.iter().skip(1).cloned().map(Some).collect();
        ends.push(found.end.clone());
        for (low, high) in found.begin.into_iter().zip(ends) {
            let leaf = LeafRange { low, high };
            in_tree += 1;
            // Each of those so far is among the drawn ones with the same chance, in any place.
            let at = below(env, in_tree);
            if leaves.len() < most {
                leaves.push(leaf);
                let last = leaves.len() - 1;
                leaves.swap(at.min(last as u64) as usize, last);
            } else if let Some(other) = usize::try_from(at).ok().and_then(|at| leaves.get_mut(at)) {
                *other = leaf;
            }
        }
        match found.end {
            Some(end) => from = end,
            None => return Ok(DrawnLeaves { leaves, in_tree }),
        }
        yield_now().await;
    }
}

/// A random number below a bound.
fn below(env: &Env, bound: u64) -> u64 {
    ((u128::from(bound) * u128::from(env.random_u64())) >> 64) as u64
}
