//! GROUP BY of rows of which those of a group come one behind the other: a group is given as soon
//! as the next one begins, and only one is kept.

use selkie_fabric::BoxFuture;

use super::aggregate::{CallState, begin_calls};
use super::aggregate_rest::Rest;
use super::batch::Batch;
use super::context::{BoxOperator, ExecContext, Operator, Row};
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
    /// What memory has no room for.
    rest: Rest,
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
    fn add(&mut self, row: &[Datum], context: &ExecContext<'_, '_>) -> SqlResult<Option<Group>> {
        let key = key_of(&self.keys, row, context)?;
        let complete = self.group.take_if(|group| group.key != key);
        let group = match &mut self.group {
            Some(group) => group,
            none => {
                let mut used = MemoryUse::default();
                let calls = begin_calls(&self.calls, &key.0, &mut used, context.limits)?;
                none.insert(Group { key, calls, used, rest: Rest::new(self.calls.len()) })
            }
        };
        for (call, state) in self.calls.iter().enumerate().zip(&mut group.calls) {
            let is_full = group.rest.is_full(call.0);
            let added = state.add(call.1, row, is_full, &mut group.used, context)?;
            group.rest.note(call, 0, added, context.limits)?;
        }
        Ok(complete)
    }

    async fn finish(
        calls: &[AggregateCall],
        mut group: Group,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Row> {
        let mut row = group.key.0;
        group.rest.sort()?;
        for (call, mut state) in calls.iter().enumerate().zip(group.calls) {
            row.push(state.finish(call, 0, &mut group.rest, context).await?);
        }
        Ok(row)
    }

    async fn some(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let mut groups = Batch::default();
        while groups.has_room() {
            if let Some(row) = self.batch.next() {
                if let Some(group) = self.add(&row, context)? {
                    groups.push(Self::finish(&self.calls, group, context).await?);
                }
            } else if let Some(batch) = self.input.next(context).await? {
                self.batch = batch.into_iter();
            } else {
                if let Some(last) = self.group.take() {
                    groups.push(Self::finish(&self.calls, last, context).await?);
                }
                break;
            }
        }
        Ok(groups.finish())
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
