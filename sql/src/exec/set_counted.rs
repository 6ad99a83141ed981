//! INTERSECT and EXCEPT: the rows of the right side are counted, then those of the left are given
//! or left out by these counts.
//!
//! When the counts take all of the memory, the rows of both sides are divided by their hashes, and
//! one part after the other is done in the same way.

use std::collections::hash_map::Entry;

use selkie_fabric::BoxFuture;

use super::batch::Batch;
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::join_aside::Aside;
use super::memory::{MemoryUse, row_bytes};
use super::partitions::{Partitions, can_divide};
use super::row_key::{KeyMap, RowKey};
use super::set::Seen;
use super::sort::KeyedRow;
use crate::error::SqlResult;
use crate::types::Datum;

/// Bytes of an entry of the table beside its key.
const ENTRY_BYTES: usize = 32;

/// INTERSECT or EXCEPT.
pub(crate) struct CountedSet {
    is_intersect: bool,
    all: bool,
    left: BoxOperator,
    /// Until it was counted.
    right: Option<BoxOperator>,
    counts: KeyMap<u64>,
    used: MemoryUse,
    /// Of EXCEPT without ALL the rows that were given.
    seen: Seen,
    is_left_done: bool,
    /// What is divided.
    aside: Option<Aside>,
}

impl CountedSet {
    pub(crate) fn new(
        is_intersect: bool,
        all: bool,
        left: BoxOperator,
        right: BoxOperator,
    ) -> Self {
        Self {
            is_intersect,
            all,
            left,
            right: Some(right),
            counts: KeyMap::default(),
            used: MemoryUse::default(),
            seen: Seen::default(),
            is_left_done: false,
            aside: None,
        }
    }

    /// Counts the right side, and divides the left too if memory does not take the counts.
    async fn count_right(
        &mut self,
        mut right: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let mut aside = None;
        while let Some(batch) = right.next(context).await? {
            for row in batch {
                self.count(RowKey(row), 1, (&mut aside, 0), context)?;
            }
        }
        let Some(right) = aside else { return Ok(()) };
        let mut left = Partitions::new(0);
        while let Some(batch) = self.left.next(context).await? {
            for keys in batch {
                left.push(&KeyedRow { keys, row: Row::new() }, context.limits)?;
            }
        }
        self.is_left_done = true;
        self.aside = Some(Aside::of(right, left)?);
        Ok(())
    }

    /// Counts so many rows of a key. When memory does not take it, all counts are divided.
    fn count(
        &mut self,
        key: RowKey,
        rows: u64,
        (aside, division): (&mut Option<Partitions>, u32),
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let limits = context.limits;
        let keyed = |key: RowKey, rows: u64| {
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            KeyedRow { keys: key.0, row: vec![Datum::I64(rows)] }
        };
        if aside.is_none() {
            let bytes = row_bytes(&key.0) + ENTRY_BYTES;
            match self.counts.entry(key) {
                Entry::Occupied(mut known) => {
                    *known.get_mut() += rows;
                    return Ok(());
                }
                Entry::Vacant(free)
                    if self.used.has_room(bytes, limits) || !can_divide(division, limits) =>
                {
                    self.used.add(bytes, limits)?;
                    free.insert(rows);
                    return Ok(());
                }
                Entry::Vacant(free) => {
                    let key = free.into_key();
                    let mut divided = Partitions::new(division);
                    for (key, rows) in std::mem::take(&mut self.counts) {
                        divided.push(&keyed(key, rows), limits)?;
                    }
                    self.used = MemoryUse::default();
                    divided.push(&keyed(key, rows), limits)?;
                    *aside = Some(divided);
                    return Ok(());
                }
            }
        }
        match aside {
            Some(aside) => aside.push(&keyed(key, rows), limits),
            None => Ok(()),
        }
    }

    /// The row, if it is given now. With ALL each row of the right side stands for one of the left.
    fn take(&mut self, row: Row, context: &ExecContext<'_, '_>) -> SqlResult<Option<Row>> {
        let key = RowKey(row);
        let is_in_right = if self.all {
            self.counts.get_mut(&key).is_some_and(|rows| {
                let is_left = *rows > 0;
                *rows = rows.saturating_sub(1);
                is_left
            })
        } else if self.is_intersect {
            // It is given once: the next that is like it is in nothing.
            self.counts.remove(&key).is_some()
        } else {
            self.counts.contains_key(&key)
        };
        if is_in_right != self.is_intersect {
            return Ok(None);
        }
        if self.all || self.is_intersect {
            return Ok(Some(key.0));
        }
        let row = key.0.clone();
        self.seen.insert(key, row, context)
    }

    /// The next rows of the left, of the part that is being done.
    async fn left(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        if !self.is_left_done {
            if let Some(batch) = self.left.next(context).await? {
                return Ok(Some(batch));
            }
            self.is_left_done = true;
        }
        let Some(aside) = &mut self.aside else { return Ok(None) };
        context.breathe(BATCH_ROWS).await;
        let mut batch = Batch::default();
        while batch.has_room()
            && let Some(keyed) = aside.next_left()?
        {
            batch.push(keyed.keys);
        }
        Ok(batch.finish())
    }

    /// Begins with the next part; `false` if there is none.
    async fn next_part(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<bool> {
        let Some(mut aside) = self.aside.take() else { return Ok(false) };
        while let Some(mut pair) = aside.next_pair() {
            (self.counts, self.used) = (KeyMap::default(), MemoryUse::default());
            let mut again = None;
            while let Some(KeyedRow { keys, row }) = pair.next_right()? {
                context.breathe(1).await;
                let rows = match row.first() {
                    Some(Datum::I64(rows)) => rows.unsigned_abs(),
                    _ => 0,
                };
                self.count(RowKey(keys), rows, (&mut again, pair.division), context)?;
            }
            if let Some(right) = again {
                aside.divide(right, &mut pair, context).await?;
                continue;
            }
            // The hash that told the parts apart tells nothing apart within one.
            self.seen.begin(pair.division);
            aside.begin(pair);
            self.aside = Some(aside);
            return Ok(true);
        }
        Ok(false)
    }

    async fn batch(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        if let Some(right) = self.right.take() {
            self.count_right(right, context).await?;
        }
        loop {
            while let Some(batch) = self.left(context).await? {
                let mut kept = Vec::with_capacity(batch.len());
                for row in batch {
                    kept.extend(self.take(row, context)?);
                }
                if !kept.is_empty() {
                    return Ok(Some(kept));
                }
            }
            if let Some(rest) = self.seen.rest(context).await? {
                return Ok(Some(rest));
            }
            if !self.next_part(context).await? {
                return Ok(None);
            }
        }
    }
}

impl Operator for CountedSet {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(self.batch(context))
    }
}
