//! Arguments of groups that memory has no room for.
//!
//! What a call gathers for its groups may grow with each row. Once memory is full, the arguments
//! that would add to it are sorted instead, in temporary files: by the numbers of their groups, and
//! within one as the call wants them. When all rows were read, each group gets those that are left
//! for it, and is given and forgotten before the next gets its own.

use std::sync::Arc;

use super::context::{ExecContext, Row};
use super::memory::MemoryLimits;
use super::row_key::RowKey;
use super::sort::{KeyedRow, Sorted, Sorter};
use crate::error::SqlResult;
use crate::plan::{AggregateCall, Expr, SortKey};
use crate::types::Datum;

/// What has become of the arguments of a row.
#[must_use]
pub(super) enum Added {
    /// They are added, or not wanted.
    Done,
    /// They are added, and there is no room for more.
    Full,
    /// There is no room for them: with the values of ORDER BY.
    Left(KeyedRow),
}

/// What is left for the groups that are being gathered.
#[derive(Default)]
pub(super) struct Rest {
    /// Of each call that is full.
    calls: Vec<Option<RestOfCall>>,
}

/// What is left of a call.
struct RestOfCall {
    /// Until all is there.
    sorter: Option<Sorter>,
    sorted: Option<Sorted>,
    /// The next of the sorted.
    next: Option<KeyedRow>,
    /// Of DISTINCT, the group and the arguments that were given last.
    last: Option<(i64, RowKey)>,
    is_distinct: bool,
    /// How many values of ORDER BY there are.
    width: usize,
}

impl Rest {
    /// None yet, of so many calls.
    pub(super) fn new(calls: usize) -> Self {
        Self { calls: (0..calls).map(|_| None).collect() }
    }

    /// Whether a call has room for no more.
    pub(super) fn is_full(&self, at: usize) -> bool {
        self.calls.get(at).is_some_and(Option::is_some)
    }

    /// Notes what has become of the arguments of a call for a group.
    pub(super) fn note(
        &mut self,
        (at, call): (usize, &AggregateCall),
        number: usize,
        added: Added,
        limits: &MemoryLimits,
    ) -> SqlResult<()> {
        let left = match added {
            Added::Done => return Ok(()),
            Added::Full => None,
            Added::Left(left) => Some(left),
        };
        let Some(place) = self.calls.get_mut(at) else { return Ok(()) };
        let rest = place.get_or_insert_with(|| RestOfCall::new(call, limits));
        match left {
            Some(left) => rest.push(number, left),
            None => Ok(()),
        }
    }

    /// All rows were read.
    pub(super) fn sort(&mut self) -> SqlResult<()> {
        self.calls.iter_mut().flatten().try_for_each(RestOfCall::sort)
    }

    /// The next arguments of a call that are left for a group. Groups have to be asked for in the
    /// order of their numbers.
    pub(super) async fn next(
        &mut self,
        at: usize,
        number: usize,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<KeyedRow>> {
        let Some(Some(rest)) = self.calls.get_mut(at) else { return Ok(None) };
        context.breathe(1).await;
        rest.next(number_of(number))
    }
}

fn number_of(group: usize) -> i64 {
    i64::try_from(group).unwrap_or(i64::MAX)
}

impl RestOfCall {
    fn new(call: &AggregateCall, limits: &MemoryLimits) -> Self {
        // Only what tells in which direction a key goes is looked at.
        let ascending = || SortKey { expr: Expr::Column(0), descending: false, nulls_first: false };
        let mut keys = vec![ascending()];
        keys.extend(call.order.iter().cloned());
        if call.is_distinct {
            keys.extend(call.arguments.iter().map(|_| ascending()));
        }
        Self {
            sorter: Some(Sorter::new(&Arc::from(keys), limits)),
            sorted: None,
            next: None,
            last: None,
            is_distinct: call.is_distinct,
            width: call.order.len(),
        }
    }

    fn push(&mut self, number: usize, left: KeyedRow) -> SqlResult<()> {
        let mut keys = Row::with_capacity(1 + left.keys.len());
        keys.push(Datum::I64(number_of(number)));
        keys.extend(left.keys);
        if self.is_distinct {
            keys.extend(left.row.iter().cloned());
        }
        match &mut self.sorter {
            Some(sorter) => sorter.push(KeyedRow { keys, row: left.row }),
            None => Ok(()),
        }
    }

    fn sort(&mut self) -> SqlResult<()> {
        let Some(sorter) = self.sorter.take() else { return Ok(()) };
        let mut sorted = sorter.finish()?;
        self.next = sorted.next()?;
        self.sorted = Some(sorted);
        Ok(())
    }

    fn next(&mut self, number: i64) -> SqlResult<Option<KeyedRow>> {
        loop {
            let is_own = |own: &KeyedRow| match own.keys.first() {
                Some(Datum::I64(group)) => *group == number,
                _ => false,
            };
            let Some(own) = self.next.take_if(|own| is_own(own)) else { return Ok(None) };
            self.next = match &mut self.sorted {
                Some(sorted) => sorted.next()?,
                None => None,
            };
            if self.is_distinct {
                let key = (number, RowKey(own.row.clone()));
                if self.last.as_ref() == Some(&key) {
                    continue;
                }
                self.last = Some(key);
            }
            let keys = own.keys.into_iter().skip(1).take(self.width).collect();
            return Ok(Some(KeyedRow { keys, row: own.row }));
        }
    }
}
