//! What operators share while a statement runs, and what an operator is.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_fabric::env::{Env, yield_now};
use selkie_txn::Txn;

use super::advisory::AdvisoryContext;
use super::eval::{EvalContext, eval};
use super::kept_rows::KeptRows;
use super::memory::MemoryLimits;
use super::references::{DeferredReferences, PendingReferences, RelationCache};
use super::sequence::SequenceMemory;
use super::together::Gathered;
use super::txn_error::read_only_error;
use crate::client::Client;
use crate::error::SqlResult;
use crate::explain::Counted;
use crate::functions::CallContext;
use crate::plan::Expr;
use crate::roles::Authority;
use crate::schemas::SearchPath;
use crate::types::Datum;

/// The values of a row.
pub(crate) type Row = Vec<Datum>;

/// Most rows of a batch.
pub(crate) const BATCH_ROWS: usize = 256;

/// What a statement runs in.
pub(crate) struct ExecContext<'x, 'db> {
    pub(crate) txn: &'x mut Txn<'db>,
    pub(crate) call: CallContext<'x>,
    pub(crate) parameters: &'x [Datum],
    /// By which it waits; `None` in tests of plans that do not.
    pub(crate) env: Option<&'x Env>,
    /// Who sends the data of COPY.
    pub(crate) client: Option<&'x dyn Client>,
    /// Values of sequences that the session has had.
    pub(crate) sequences: &'x SequenceMemory,
    /// Where names are looked for that are known when it runs.
    pub(crate) path: &'x SearchPath,
    /// Tables that constraints name.
    pub(crate) relations: &'x RelationCache,
    /// What constraints of the changes so far have to look at.
    pub(crate) references: PendingReferences,
    /// What they look at when the transaction commits.
    pub(crate) deferred: &'x Mutex<DeferredReferences>,
    pub(crate) advisory: AdvisoryContext<'x>,
    /// The role that the statement runs as; `None` if it may do everything.
    pub(crate) authority: Option<&'x Authority>,
    pub(crate) limits: &'x MemoryLimits,
    /// Whether the statement is alone in its transaction.
    pub(crate) is_alone: bool,
    /// Whether the transaction only reads.
    pub(crate) read_only: bool,
    /// Rows of enclosing queries, the innermost last.
    pub(crate) outer: Vec<Row>,
    pub(crate) shared: SharedRows,
    /// Rows that were inserted, changed or deleted.
    pub(crate) affected: u64,
    /// What the nodes of a plan did that is measured.
    pub(crate) counts: Counts,
    /// Where the rows of COPY are from that were read last.
    pub(crate) copied: CopiedRows,
    /// The changes that are made in the end, of a statement with several; `None` if a change is
    /// made at once.
    pub(crate) gathered: Option<Gathered>,
    /// Rows that were looked at since others could last run.
    pub(crate) unbroken: usize,
}

/// Where rows are from that COPY has read.
#[derive(Default)]
pub(crate) struct CopiedRows {
    /// The table, as the statement calls it.
    pub(crate) table: String,
    /// The line of each row of the last batch.
    pub(crate) lines: Vec<u64>,
}

impl CopiedRows {
    /// Where a row of a batch of so many rows is from; `None` if it is not known.
    pub(crate) fn place(&self, at: usize, rows: usize) -> Option<String> {
        // Else a condition has left some out.
        let line = self.lines.get(at).filter(|_| self.lines.len() == rows)?;
        Some(format!("COPY {}, line {line}", self.table))
    }
}

/// What nodes did, by their numbers.
#[derive(Default)]
pub(crate) struct Counts {
    /// By which their time is taken.
    pub(crate) env: Option<Env>,
    pub(crate) nodes: Vec<Counted>,
}

/// Rows that are looked at before others may run: what waits for a statement has to see a deadline
/// or a signal, and the node's own tasks have to run.
const UNBROKEN_ROWS: usize = 16_384;

/// Rows of common table expressions, by their numbers. A portal that is read in parts keeps them
/// from one part to the next.
#[derive(Debug, Default)]
pub(crate) struct SharedRows {
    /// Of those that have run.
    pub(crate) complete: HashMap<usize, Arc<KeptRows>, RandomState>,
    /// Of the round before, of those that are recursive and run.
    pub(crate) working: HashMap<usize, Arc<KeptRows>, RandomState>,
}

impl<'x> ExecContext<'x, '_> {
    /// What expressions are evaluated in.
    pub(crate) fn expressions(&self) -> EvalContext<'_> {
        EvalContext { call: &self.call, parameters: self.parameters, outer: &self.outer }
    }

    /// An error of what changes or locks something, in a transaction that only reads.
    pub(crate) fn check_writes(&self, what: &str) -> SqlResult<()> {
        if self.read_only { Err(read_only_error(what)) } else { Ok(()) }
    }

    /// Lets others run, if so many rows more make it time for that.
    pub(crate) async fn breathe(&mut self, rows: usize) {
        self.unbroken = self.unbroken.saturating_add(rows);
        if self.call.interrupts.take_turn() || self.unbroken >= UNBROKEN_ROWS {
            self.unbroken = 0;
            yield_now().await;
        }
    }

    /// The value of an expression over a row.
    pub(crate) fn eval(&self, expr: &Expr, row: &[Datum]) -> SqlResult<Datum> {
        self.call.large_values.forget();
        eval(expr, row, &self.expressions())
    }

    /// The values of expressions over a row.
    pub(crate) fn eval_all(&self, exprs: &[Expr], row: &[Datum]) -> SqlResult<Row> {
        self.call.large_values.forget();
        let context = self.expressions();
        exprs.iter().map(|expr| eval(expr, row, &context)).collect()
    }

    /// Whether a condition is true for a row; one that is not there is.
    pub(crate) fn holds(&self, condition: Option<&Expr>, row: &[Datum]) -> SqlResult<bool> {
        let Some(condition) = condition else { return Ok(true) };
        Ok(matches!(self.eval(condition, row)?, Datum::Bool(true)))
    }
}

/// A node of a plan that runs. It owns what it needs, so that it may be kept while its client does
/// something else; each call is given the context anew.
pub(crate) trait Operator: Send {
    /// The next rows: at least one and at most [`BATCH_ROWS`]; `None` after the last, and in later
    /// calls.
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>>;
}

/// An operator that runs a plan.
pub(crate) type BoxOperator = Box<dyn Operator>;
