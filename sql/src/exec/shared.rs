//! Common table expressions: run once, and recursive ones.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::build::build;
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::kept_rows::{KeptReader, KeptRows};
use super::memory::{MemoryUse, row_bytes};
use super::row_key::{KeySet, RowKey};
use super::row_queue::RowQueue;
use super::walk::shared_to_forget;
use crate::error::SqlResult;
use crate::plan::Plan;

/// The rows of a common table expression, which the first reader runs.
pub(crate) struct Shared {
    number: usize,
    plan: Arc<Plan>,
    reader: Option<KeptReader>,
}

impl Shared {
    pub(crate) fn new(number: usize, plan: Arc<Plan>) -> Self {
        Self { number, plan, reader: None }
    }
}

impl Operator for Shared {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if self.reader.is_none() {
                let known = context.shared.complete.get(&self.number).cloned();
                let rows = match known {
                    Some(rows) => rows,
                    None => {
                        // Rows that it changes are not those of the statement's own change.
                        let affected = context.affected;
                        let rows =
                            RowQueue::filled(&mut build(&self.plan), context).await?.keep()?;
                        context.affected = affected;
                        context.shared.complete.insert(self.number, Arc::clone(&rows));
                        rows
                    }
                };
                self.reader = Some(KeptReader::new(rows));
            }
            context.breathe(BATCH_ROWS).await;
            self.reader.as_mut().map_or(Ok(None), KeptReader::batch)
        })
    }
}

/// The rows of the round before of a recursion.
pub(crate) struct Working {
    number: usize,
    reader: Option<KeptReader>,
}

impl Working {
    pub(crate) fn new(number: usize) -> Self {
        Self { number, reader: None }
    }
}

impl Operator for Working {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            context.breathe(BATCH_ROWS).await;
            if self.reader.is_none() {
                let round = context.shared.working.get(&self.number);
                self.reader = round.map(|round| KeptReader::new(Arc::clone(round)));
            }
            self.reader.as_mut().map_or(Ok(None), KeptReader::batch)
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
    /// The rows so far, if none is to come twice: as in PostgreSQL they have to fit into memory.
    seen: Option<KeySet>,
    used: MemoryUse,
    /// The last round, and what of it has not been given yet.
    round: Arc<KeptRows>,
    rest: KeptReader,
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
            rest: KeptReader::new(Arc::default()),
            forget: shared_to_forget(next),
        }
    }

    /// The rows of a round that are new.
    async fn gather(
        &mut self,
        mut input: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Arc<KeptRows>> {
        let mut round = RowQueue::default();
        while let Some(batch) = input.next(context).await? {
            for row in batch {
                if let Some(seen) = &mut self.seen {
                    if !seen.insert(RowKey(row.clone())) {
                        continue;
                    }
                    self.used.add(row_bytes(&row), context.limits)?;
                }
                round.push(row, context.limits)?;
            }
        }
        round.keep()
    }

    async fn run_round(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        self.round = match self.first.take() {
            Some(first) => self.gather(first, context).await?,
            None if self.round.is_empty() => return Ok(()),
            None => {
                for number in &self.forget {
                    context.shared.complete.remove(number);
                }
                let enclosing = context.shared.working.insert(self.number, Arc::clone(&self.round));
                let rows = self.gather(build(&self.next), context).await;
                match enclosing {
                    Some(rows) => context.shared.working.insert(self.number, rows),
                    None => context.shared.working.remove(&self.number),
                };
                rows?
            }
        };
        self.rest = KeptReader::new(Arc::clone(&self.round));
        Ok(())
    }
}

impl Operator for Recursive {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(batch) = self.rest.batch()? {
                return Ok(Some(batch));
            }
            self.run_round(context).await?;
            self.rest.batch()
        })
    }
}
