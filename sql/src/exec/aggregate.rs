//! GROUP BY and aggregate functions, by hashing. Groups come in the order of their first rows, as
//! long as all are in memory.
//!
//! When the groups take half of the memory, the rows of new groups are put aside, divided by their
//! keys, and grouped later. The other half is for groups that grow.

use selkie_fabric::BoxFuture;

use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryLimits, MemoryUse, row_bytes};
use super::partitions::{Partition, Partitions, can_divide};
use super::row_key::{KeyMap, KeySet, RowKey, compare_keys, key_of, sort_values};
use super::sort::KeyedRow;
use crate::error::SqlResult;
use crate::functions::Accumulator;
use crate::plan::{AggregateCall, Expr};
use crate::types::Datum;

/// Bytes of an entry of a hash table beside its key.
const ENTRY_BYTES: usize = 32;

/// What one call has gathered for one group.
pub(super) struct CallState {
    accumulator: Box<dyn Accumulator>,
    /// Arguments that have been added, if none is to count twice.
    seen: Option<KeySet>,
    /// Arguments that wait for the others of the group, to be added in order.
    waiting: Vec<KeyedRow>,
}

impl CallState {
    fn new(call: &AggregateCall) -> Self {
        Self {
            accumulator: (call.function.new)(),
            seen: call.is_distinct.then(KeySet::default),
            waiting: Vec::new(),
        }
    }

    /// Adds the arguments of a row.
    pub(super) fn add(
        &mut self,
        call: &AggregateCall,
        row: &[Datum],
        used: &mut MemoryUse,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        if !context.holds(call.filter.as_ref(), row)? {
            return Ok(());
        }
        let arguments = context.eval_all(&call.arguments, row)?;
        if call.function.is_strict && arguments.iter().any(Datum::is_null) {
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            let bytes = row_bytes(&arguments) + ENTRY_BYTES;
            if !seen.insert(RowKey(arguments.clone())) {
                return Ok(());
            }
            used.add(bytes, context.limits)?;
        }
        if call.order.is_empty() {
            let before = self.accumulator.bytes();
            self.accumulator.add(&arguments)?;
            return used.add(self.accumulator.bytes().saturating_sub(before), context.limits);
        }
        let keys = sort_values(&call.order, row, context)?;
        used.add(row_bytes(&arguments) + row_bytes(&keys), context.limits)?;
        self.waiting.push(KeyedRow { keys, row: arguments });
        Ok(())
    }

    pub(super) fn finish(&mut self, call: &AggregateCall) -> SqlResult<Datum> {
        self.waiting.sort_by(|left, right| compare_keys(&left.keys, &right.keys, &call.order));
        for waiting in self.waiting.drain(..) {
            self.accumulator.add(&waiting.row)?;
        }
        self.accumulator.finish()
    }
}

/// What the calls begin with for a group of this key.
pub(super) fn begin_calls(
    calls: &[AggregateCall],
    key: &[Datum],
    used: &mut MemoryUse,
    limits: MemoryLimits,
) -> SqlResult<Vec<CallState>> {
    let states: Vec<CallState> = calls.iter().map(CallState::new).collect();
    let bytes = states.iter().map(|state| state.accumulator.bytes()).sum::<usize>();
    let of_states = states.len() * size_of::<CallState>();
    used.add(2 * row_bytes(key) + ENTRY_BYTES + bytes + of_states, limits)?;
    Ok(states)
}

/// Aggregates of groups.
pub(crate) struct Aggregate {
    /// Until it has been read.
    input: Option<BoxOperator>,
    keys: Vec<Expr>,
    calls: Vec<AggregateCall>,
    groups: Vec<(Row, Vec<CallState>)>,
    next: usize,
    /// Rows of other groups.
    aside: Vec<Partition>,
}

/// Rows that are being grouped.
#[derive(Default)]
struct Grouping {
    /// Of each key its group.
    numbers: KeyMap<usize>,
    used: MemoryUse,
    /// How often the rows were divided.
    division: u32,
    aside: Option<Partitions>,
}

impl Aggregate {
    pub(crate) fn new(input: BoxOperator, keys: Vec<Expr>, calls: Vec<AggregateCall>) -> Self {
        Self { input: Some(input), keys, calls, groups: Vec::new(), next: 0, aside: Vec::new() }
    }

    fn begin_group(
        &mut self,
        key: Row,
        used: &mut MemoryUse,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<usize> {
        let states = begin_calls(&self.calls, &key, used, context.limits)?;
        self.groups.push((key, states));
        Ok(self.groups.len() - 1)
    }

    async fn read(
        &mut self,
        mut input: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let mut grouping = Grouping::default();
        if self.keys.is_empty() {
            self.begin_group(Vec::new(), &mut grouping.used, context)?;
        }
        while let Some(batch) = input.next(context).await? {
            for row in batch {
                if self.keys.is_empty() {
                    self.add(0, &row, &mut grouping.used, context)?;
                } else {
                    let key = key_of(&self.keys, &row, context)?;
                    self.add_by_key(key, row, &mut grouping, context)?;
                }
            }
        }
        self.put_aside(grouping)
    }

    /// Groups rows that were put aside.
    async fn read_aside(
        &mut self,
        mut partition: Partition,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        (self.groups, self.next) = (Vec::new(), 0);
        let mut grouping = Grouping { division: partition.division, ..Grouping::default() };
        while let Some(KeyedRow { keys, row }) = partition.rows.next()? {
            context.breathe(1).await;
            self.add_by_key(RowKey(keys), row, &mut grouping, context)?;
        }
        self.put_aside(grouping)
    }

    fn put_aside(&mut self, grouping: Grouping) -> SqlResult<()> {
        if let Some(aside) = grouping.aside {
            self.aside.extend(aside.finish()?.into_iter().flatten());
        }
        Ok(())
    }

    /// Adds a row to its group, or puts it aside.
    fn add_by_key(
        &mut self,
        key: RowKey,
        row: Row,
        grouping: &mut Grouping,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let number = match grouping.numbers.get(&key) {
            Some(number) => *number,
            None => {
                let limits = context.limits;
                let is_much = grouping.used.bytes() > limits.operator_bytes / 2;
                if is_much && grouping.aside.is_none() && can_divide(grouping.division, limits) {
                    grouping.aside = Some(Partitions::new(grouping.division));
                }
                if let Some(aside) = &mut grouping.aside {
                    return aside.push(&KeyedRow { keys: key.0, row }, limits);
                }
                let number = self.begin_group(key.0.clone(), &mut grouping.used, context)?;
                grouping.numbers.insert(key, number);
                number
            }
        };
        self.add(number, &row, &mut grouping.used, context)
    }

    /// Adds a row to a group.
    fn add(
        &mut self,
        number: usize,
        row: &[Datum],
        used: &mut MemoryUse,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let Some((_, states)) = self.groups.get_mut(number) else { return Ok(()) };
        let mut states = states.iter_mut().zip(&self.calls);
        states.try_for_each(|(state, call)| state.add(call, row, used, context))
    }

    fn batch(&mut self) -> SqlResult<Option<Vec<Row>>> {
        let mut batch = Vec::new();
        for (key, states) in self.groups.iter_mut().skip(self.next).take(BATCH_ROWS) {
            let mut row = std::mem::take(key);
            for (state, call) in states.iter_mut().zip(&self.calls) {
                row.push(state.finish(call)?);
            }
            states.clear();
            batch.push(row);
        }
        self.next += batch.len();
        Ok((!batch.is_empty()).then_some(batch))
    }
}

impl Operator for Aggregate {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(input) = self.input.take() {
                self.read(input, context).await?;
            }
            loop {
                if let Some(batch) = self.batch()? {
                    return Ok(Some(batch));
                }
                let Some(partition) = self.aside.pop() else { return Ok(None) };
                self.read_aside(partition, context).await?;
            }
        })
    }
}
