//! Common table expressions: run once, and recursive ones.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::build::build;
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row, take_batch};
use super::memory::{MemoryUse, drain, row_bytes};
use super::row_key::{KeySet, RowKey};
use super::walk::shared_to_forget;
use crate::error::SqlResult;
use crate::plan::Plan;

/// Gives rows that others have, too.
#[derive(Debug, Default)]
struct Reader {
    rows: Option<Arc<Vec<Row>>>,
    next: usize,
}

impl Reader {
    fn batch(&mut self) -> Option<Vec<Row>> {
        let rest = self.rows.as_ref()?.get(self.next..)?;
        let batch: Vec<Row> = rest.iter().take(BATCH_ROWS).cloned().collect();
        self.next += batch.len();
        (!batch.is_empty()).then_some(batch)
    }
}

/// The rows of a common table expression, which the first reader runs.
pub(crate) struct Shared {
    number: usize,
    plan: Arc<Plan>,
    reader: Reader,
}

impl Shared {
    pub(crate) fn new(number: usize, plan: Arc<Plan>) -> Self {
        Self { number, plan, reader: Reader::default() }
    }
}

impl Operator for Shared {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if self.reader.rows.is_none() {
                let known = context.shared.complete.get(&self.number).cloned();
                let rows = match known {
                    Some(rows) => rows,
                    None => {
                        let rows = Arc::new(drain(&mut build(&self.plan), context).await?);
                        context.shared.complete.insert(self.number, Arc::clone(&rows));
                        rows
                    }
                };
                self.reader.rows = Some(rows);
            }
            context.breathe(BATCH_ROWS).await;
            Ok(self.reader.batch())
        })
    }
}

/// The rows of the round before of a recursion.
pub(crate) struct Working {
    number: usize,
    reader: Reader,
}

impl Working {
    pub(crate) fn new(number: usize) -> Self {
        Self { number, reader: Reader::default() }
    }
}

impl Operator for Working {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            context.breathe(BATCH_ROWS).await;
            let rows = &mut self.reader.rows;
            *rows = rows.take().or_else(|| context.shared.working.get(&self.number).cloned());
            Ok(self.reader.batch())
        })
    }
}

/// A recursive common table expression. A round is run when the rows of the round before have been
/// given, so that a LIMIT ends a recursion that has no end.
pub(crate) struct Recursive {
    number: usize,
    /// Until it has been run.
    first: Option<BoxOperator>,
    next: Box<Plan>,
    /// The rows so far, if none is to come twice.
    seen: Option<KeySet>,
    used: MemoryUse,
    /// The last round, and what of it has not been given yet.
    round: Arc<Vec<Row>>,
    rest: std::vec::IntoIter<Row>,
    forget: Vec<usize>,
}

impl Recursive {
    pub(crate) fn new(number: usize, first: &Plan, next: &Plan, all: bool) -> Self {
        Self {
            number,
            first: Some(build(first)),
            next: Box::new(next.clone()),
            seen: (!all).then(KeySet::default),
            used: MemoryUse::default(),
            round: Arc::default(),
            rest: Vec::new().into_iter(),
            forget: shared_to_forget(next),
        }
    }

    async fn run_round(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        let mut rows = match &mut self.first {
            Some(first) => {
                let rows = drain(first, context).await?;
                self.first = None;
                rows
            }
            None if self.round.is_empty() => return Ok(()),
            None => {
                for number in &self.forget {
                    context.shared.complete.remove(number);
                }
                let enclosing = context.shared.working.insert(self.number, Arc::clone(&self.round));
                let rows = drain(&mut build(&self.next), context).await;
                match enclosing {
                    Some(rows) => context.shared.working.insert(self.number, rows),
                    None => context.shared.working.remove(&self.number),
                };
                rows?
            }
        };
        if let Some(seen) = &mut self.seen {
            let before = seen.len();
            rows.retain(|row| seen.insert(RowKey(row.clone())));
            if seen.len() > before {
                self.used.add(rows.iter().map(|row| row_bytes(row)).sum(), context.limits)?;
            }
        }
        self.round = Arc::new(rows);
        self.rest = self.round.as_ref().clone().into_iter();
        Ok(())
    }
}

impl Operator for Recursive {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(batch) = take_batch(&mut self.rest) {
                return Ok(Some(batch));
            }
            self.run_round(context).await?;
            Ok(take_batch(&mut self.rest))
        })
    }
}
