//! The side of a join that is kept: its rows, chained by their keys.

use std::collections::hash_map::Entry;

use super::context::Row;
use super::memory::{MemoryLimits, MemoryUse, row_bytes};
use super::row_key::{KeyMap, RowKey};
use crate::error::SqlResult;
use crate::types::Datum;

/// The end of a chain.
const END: usize = usize::MAX;

/// The rows of one side.
#[derive(Default)]
pub(crate) struct JoinSide {
    rows: Vec<Row>,
    /// Of each row the next with the same key.
    next: Vec<usize>,
    has_partner: Vec<bool>,
    /// The first and the last row of each key. Keys with a NULL, which is equal to nothing, are
    /// not there.
    chains: KeyMap<(usize, usize)>,
    used: MemoryUse,
}

/// How far a row of the other side has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Through all rows, at this one.
    All(usize),
    /// Through a chain, at this one.
    Chain(usize),
}

impl JoinSide {
    pub(crate) fn of_rows((rows, used): (Vec<Row>, MemoryUse)) -> Self {
        let has_partner = vec![false; rows.len()];
        Self { rows, has_partner, used, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether memory takes one more row.
    pub(crate) fn has_room(&mut self, row: &[Datum], key: &RowKey, limits: &MemoryLimits) -> bool {
        let bytes = row_bytes(row) + row_bytes(&key.0) + 2 * size_of::<usize>() + 1;
        self.used.has_room(bytes, limits)
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    pub(crate) fn push(&mut self, row: Row, limits: &MemoryLimits) -> SqlResult<()> {
        self.used.add(row_bytes(&row) + 1, limits)?;
        self.rows.push(row);
        self.has_partner.push(false);
        Ok(())
    }

    pub(crate) fn push_with_key(
        &mut self,
        row: Row,
        key: RowKey,
        limits: &MemoryLimits,
    ) -> SqlResult<()> {
        let at = self.rows.len();
        let key_bytes = row_bytes(&key.0);
        self.push(row, limits)?;
        self.next.push(END);
        if key.has_null() {
            return Ok(());
        }
        match self.chains.entry(key) {
            Entry::Occupied(mut chain) => {
                let (_, last) = chain.get_mut();
                if let Some(next) = self.next.get_mut(*last) {
                    *next = at;
                }
                *last = at;
                Ok(())
            }
            Entry::Vacant(chain) => {
                chain.insert((at, at));
                self.used.add(key_bytes + 2 * size_of::<usize>(), limits)
            }
        }
    }

    /// Where the rows of a key begin.
    pub(crate) fn find(&self, key: &RowKey) -> Place {
        let chain = (!key.has_null()).then(|| self.chains.get(key)).flatten();
        Place::Chain(chain.map_or(END, |(first, _)| *first))
    }

    /// The row at a place, which goes on to the next.
    pub(crate) fn step(&self, place: &mut Place) -> Option<usize> {
        match place {
            Place::All(at) => {
                let here = *at;
                *at += 1;
                (here < self.rows.len()).then_some(here)
            }
            Place::Chain(at) => {
                let here = *at;
                *at = *self.next.get(here)?;
                Some(here)
            }
        }
    }

    pub(crate) fn row(&self, at: usize) -> &[Datum] {
        self.rows.get(at).map_or(&[], |row| row)
    }

    /// Notes that a row has a partner.
    pub(crate) fn mark(&mut self, at: usize) {
        if let Some(has_partner) = self.has_partner.get_mut(at) {
            *has_partner = true;
        }
    }

    /// The next row that has no partner, from `next` on, which goes behind it.
    pub(crate) fn next_unmarked(&self, next: &mut usize) -> Option<usize> {
        let rest = self.has_partner.get(*next..)?;
        let at = *next + rest.iter().position(|has_partner| !has_partner)?;
        *next = at + 1;
        Some(at)
    }
}
