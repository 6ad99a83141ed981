//! Runs plans.
//!
//! [`build`] makes an [`Operator`] of each node of a plan. An operator gives its rows in batches
//! and pulls those of its inputs when it needs them, so that a LIMIT ends all work below it. It
//! owns what it needs: a portal keeps it between the requests of its client, and each call gets
//! the transaction, the parameters and the rows of enclosing queries in an [`ExecContext`].
//!
//! A subquery, or the right side of a lateral join, is built and run anew for each row that it
//! depends on, which is the innermost of the outer rows meanwhile. Operators that keep rows count
//! the bytes. Beyond [`MemoryLimits`] they go on in temporary files; what cannot gives an error.
//!
//! | file | duty |
//! |---|---|
//! | `context.rs`, `batch.rs`, `memory.rs`, `row_key.rs` | what operators share |
//! | `sort.rs` | ORDER BY |
//! | `fill.rs`, `entry_sort.rs` | tables that are written anew |
//! | `row_queue.rs`, `kept_rows.rs`, `partitions.rs` | rows beyond what memory takes |
//! | `row_store.rs` | rows of cursors |
//! | `aggregate_rest.rs` | groups beyond it |
//! | `spill.rs`, `spill_value.rs` | their files |
//! | `eval.rs` | values of expressions |
//! | `build.rs` | from plans to operators |
//! | `scan.rs`, `scan_target.rs`, `key_value.rs`, `stored_row.rs` | reads of tables |
//! | `insert.rs`, `modify.rs`, `row_write.rs`, `lock.rs` | changes and locks |
//! | `together.rs`, `insert_together.rs` | changes of one statement that do not see each other |
//! | `references/` | FOREIGN KEY constraints |
//! | `txn_error.rs` | errors of transactions as errors of SQL |
//! | others | an operator each |

mod advisory;
mod aggregate;
mod aggregate_ordered;
mod aggregate_rest;
mod append;
mod apply;
mod basic;
mod batch;
mod build;
mod context;
mod copy_in;
mod count;
mod entry_sort;
mod eval;
mod fill;
mod insert;
mod insert_together;
mod join;
mod join_aside;
mod join_side;
mod kept_rows;
mod key_value;
mod lock;
mod measured;
mod memory;
mod merge_join;
mod modify;
mod number_rows;
mod partitions;
mod references;
mod row_key;
mod row_queue;
mod row_store;
mod row_write;
mod scan;
mod scan_target;
mod sequence;
mod set;
mod set_counted;
mod shared;
mod sort;
mod spill;
mod spill_value;
mod stored_row;
#[cfg(test)]
mod tests;
mod together;
mod txn_error;
mod window;
mod window_call;
mod window_frame;

use crate::plan::walk;

pub(crate) use advisory::{AdvisoryContext, SessionLocks};
pub(crate) use batch::Batch;
pub(crate) use build::build;
pub(crate) use context::{CopiedRows, Counts, ExecContext, Operator, Row, SharedRows};
pub(crate) use fill::fill_table;
pub(crate) use memory::{MemoryLimits, WORK_MEMORY_BYTES, row_bytes};
pub(crate) use references::{
    DeferredMark, DeferredReferences, PendingReferences, RelationCache, check_rows, settle_deferred,
};
pub(crate) use row_store::{RowStore, RowWriter, StoreMemory};
pub(crate) use sequence::SequenceMemory;
pub(crate) use spill::TempFiles;
pub(crate) use txn_error::{from_txn, read_only_error};
