//! GROUP BY and aggregate functions, by hashing. Groups come in the order of their first rows, as
//! long as all are in memory.
//!
//! When the groups take half of the memory, the rows of new groups are put aside, divided by their
//! keys, and grouped later. The other half is for groups that grow; what they would grow beyond it
//! is put aside too ([`Rest`]).

use selkie_fabric::BoxFuture;

use super::aggregate_rest::{Added, Rest};
use super::batch::Batch;
use super::context::{BoxOperator, ExecContext, Operator, Row};
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

/// About what a group takes beside its key, and for each of its calls.
const GROUP_BYTES: usize = 1 << 10;
const CALL_BYTES: usize = 256;

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

    /// Adds the arguments of a row. Once the call is full, they are given back if they would take
    /// memory.
    pub(super) fn add(
        &mut self,
        call: &AggregateCall,
        row: &[Datum],
        is_full: bool,
        used: &mut MemoryUse,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<Added> {
        if !context.holds(call.filter.as_ref(), row)? {
            return Ok(Added::Done);
        }
        let arguments = context.eval_all(&call.arguments, row)?;
        if call.function.is_strict && arguments.iter().any(Datum::is_null) {
            return Ok(Added::Done);
        }
        let limits = context.limits;
        let can_spill = limits.spill_bytes > 0;
        let arguments = RowKey(arguments);
        if self.seen.as_ref().is_some_and(|seen| seen.contains(&arguments)) {
            return Ok(Added::Done);
        }
        let keys = sort_values(&call.order, row, context)?;
        if self.seen.is_none() && call.order.is_empty() {
            if is_full {
                return Ok(Added::Left(KeyedRow { keys, row: arguments.0 }));
            }
            return self.gather(&arguments.0, used, limits);
        }
        let mut bytes = row_bytes(&arguments.0) + row_bytes(&keys);
        if self.seen.is_some() && !call.order.is_empty() {
            bytes += row_bytes(&arguments.0) + ENTRY_BYTES;
        }
        if is_full || can_spill && !used.has_room(bytes, limits) {
            return Ok(Added::Left(KeyedRow { keys, row: arguments.0 }));
        }
        used.add(bytes, limits)?;
        if let Some(seen) = &mut self.seen {
            seen.insert(arguments.clone());
        }
        if call.order.is_empty() {
            return self.gather(&arguments.0, used, limits);
        }
        self.waiting.push(KeyedRow { keys, row: arguments.0 });
        Ok(Added::Done)
    }

    /// Gathers arguments, and counts what they add to the memory.
    fn gather(
        &mut self,
        arguments: &[Datum],
        used: &mut MemoryUse,
        limits: &MemoryLimits,
    ) -> SqlResult<Added> {
        let before = self.accumulator.bytes();
        self.accumulator.add(arguments)?;
        let grown = self.accumulator.bytes().saturating_sub(before);
        if grown > 0 && limits.spill_bytes > 0 && !used.has_room(grown, limits) {
            return Ok(Added::Full);
        }
        used.add(grown, limits)?;
        Ok(Added::Done)
    }

    /// The value of the call numbered `at` for the group of a number, with what is left for that.
    pub(super) async fn finish(
        &mut self,
        (at, call): (usize, &AggregateCall),
        number: usize,
        rest: &mut Rest,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Datum> {
        self.waiting.sort_by(|left, right| compare_keys(&left.keys, &right.keys, &call.order));
        let mut waiting = std::mem::take(&mut self.waiting).into_iter().peekable();
        let (mut used, mut taken) = (MemoryUse::default(), self.accumulator.bytes());
        while let Some(left) = rest.next(at, number, context).await? {
            let is_before =
                |own: &KeyedRow| compare_keys(&own.keys, &left.keys, &call.order).is_le();
            // Those that memory took came first.
            while let Some(own) = waiting.next_if(is_before) {
                self.accumulator.add(&own.row)?;
            }
            self.accumulator.add(&left.row)?;
            // One value may be larger than what an operator keeps.
            let bytes = self.accumulator.bytes();
            used.add_unbounded(bytes.saturating_sub(taken), context.limits)?;
            taken = bytes.max(taken);
        }
        for own in waiting {
            self.accumulator.add(&own.row)?;
        }
        self.accumulator.finish()
    }
}

/// What the calls begin with for a group of this key.
pub(super) fn begin_calls(
    calls: &[AggregateCall],
    key: &[Datum],
    used: &mut MemoryUse,
    limits: &MemoryLimits,
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
    /// What the groups take, and what is left for them.
    used: MemoryUse,
    rest: Rest,
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
        let (groups, rest) = (Vec::new(), Rest::new(calls.len()));
        let (next, used, aside) = (0, MemoryUse::default(), Vec::new());
        Self { input: Some(input), keys, calls, groups, next, used, rest, aside }
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
        (self.used, self.rest) = (MemoryUse::default(), Rest::new(self.calls.len()));
        let mut grouping = Grouping { division: partition.division, ..Grouping::default() };
        while let Some(KeyedRow { keys, row }) = partition.rows.next()? {
            context.breathe(1).await;
            self.add_by_key(RowKey(keys), row, &mut grouping, context)?;
        }
        self.put_aside(grouping)
    }

    fn put_aside(&mut self, grouping: Grouping) -> SqlResult<()> {
        self.used = grouping.used;
        self.rest.sort()?;
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
                let group_bytes =
                    2 * row_bytes(&key.0) + GROUP_BYTES + self.calls.len() * CALL_BYTES;
                let is_much = grouping.used.bytes() > limits.operator_bytes / 2
                    || !grouping.used.has_room(group_bytes, limits);
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
        for ((at, call), state) in self.calls.iter().enumerate().zip(states) {
            let added = state.add(call, row, self.rest.is_full(at), used, context)?;
            self.rest.note((at, call), number, added, context.limits)?;
        }
        Ok(())
    }

    async fn batch(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let mut batch = Batch::default();
        while batch.has_room()
            && let Some((key, states)) = self.groups.get_mut(self.next)
        {
            let (mut row, states) = (std::mem::take(key), std::mem::take(states));
            for (call, mut state) in self.calls.iter().enumerate().zip(states) {
                row.push(state.finish(call, self.next, &mut self.rest, context).await?);
            }
            batch.push(row);
            self.next += 1;
        }
        Ok(batch.finish())
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
                if let Some(batch) = self.batch(context).await? {
                    return Ok(Some(batch));
                }
                let Some(partition) = self.aside.pop() else { return Ok(None) };
                self.read_aside(partition, context).await?;
            }
        })
    }
}
