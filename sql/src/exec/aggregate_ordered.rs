//! GROUP BY of rows of which those of a group come one behind the other: a group is given as soon
//! as the next one begins, and only one is kept.

use selkie_fabric::BoxFuture;

use super::aggregate::{CallState, begin_calls};
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::memory::MemoryUse;
use super::row_key::{RowKey, key_of};
use crate::error::SqlResult;
use crate::plan::{AggregateCall, Expr};
use crate::types::Datum;

/// A group that is not complete.
struct Group {
    key: RowKey,
    calls: Vec<CallState>,
    used: MemoryUse,
}

/// Aggregates of groups, in the order in which they come.
pub(crate) struct OrderedAggregate {
    input: BoxOperator,
    keys: Vec<Expr>,
    calls: Vec<AggregateCall>,
    batch: std::vec::IntoIter<Row>,
    group: Option<Group>,
}

impl OrderedAggregate {
    pub(crate) fn new(input: BoxOperator, keys: Vec<Expr>, calls: Vec<AggregateCall>) -> Self {
        Self { input, keys, calls, batch: Vec::new().into_iter(), group: None }
    }

    /// Adds a row to its group. The group before, if that is complete.
    fn add(&mut self, row: &[Datum], context: &ExecContext<'_, '_>) -> SqlResult<Option<Row>> {
        let key = key_of(&self.keys, row, context)?;
        let complete = match self.group.take_if(|group| group.key != key) {
            Some(group) => Some(self.finish(group)?),
            None => None,
        };
        let group = match &mut self.group {
            Some(group) => group,
            none => {
                let mut used = MemoryUse::default();
                let calls = begin_calls(&self.calls, &key.0, &mut used, context.limits)?;
                none.insert(Group { key, calls, used })
            }
        };
        for (state, call) in group.calls.iter_mut().zip(&self.calls) {
            state.add(call, row, &mut group.used, context)?;
        }
        Ok(complete)
    }

    fn finish(&self, group: Group) -> SqlResult<Row> {
        let mut row = group.key.0;
        for (mut state, call) in group.calls.into_iter().zip(&self.calls) {
            row.push(state.finish(call)?);
        }
        Ok(row)
    }

    async fn some(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let mut groups = Vec::new();
        while groups.len() < BATCH_ROWS {
            if let Some(row) = self.batch.next() {
                groups.extend(self.add(&row, context)?);
            } else if let Some(batch) = self.input.next(context).await? {
                self.batch = batch.into_iter();
            } else {
                if let Some(last) = self.group.take() {
                    groups.push(self.finish(last)?);
                }
                break;
            }
        }
        Ok((!groups.is_empty()).then_some(groups))
    }
}

impl Operator for OrderedAggregate {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(self.some(context))
    }
}
