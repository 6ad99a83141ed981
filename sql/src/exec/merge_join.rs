//! Joins of sides that come in the order of what has to be equal.
//!
//! Of the right side the rows of one key are kept, the *group*; the left is read row by row. A row
//! of the left whose key is before that of the group has no partner, one whose key is the same goes
//! through the group, and one that is behind ends it. A key with NULL is equal to nothing, wherever
//! such rows come. When a side ends whose rows are needed for any to be given, the other is not
//! read on.

use std::cmp::Ordering;

use selkie_fabric::BoxFuture;

use super::build::build;
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryUse, row_bytes};
use super::row_key::{RowKey, compare_with_nulls, key_of};
use crate::error::{SqlError, SqlResult};
use crate::plan::{Expr, JoinKind, Merge, MergeKey};
use crate::types::Datum;

/// A side, with the key of each of its rows.
struct Side {
    input: BoxOperator,
    keys: Vec<Expr>,
    batch: std::vec::IntoIter<Row>,
    /// A row that was looked at, and is the next.
    ahead: Option<(RowKey, Row)>,
    /// The last key without NULL.
    last: Option<RowKey>,
}

impl Side {
    fn new(input: BoxOperator, keys: Vec<Expr>) -> Self {
        Self { input, keys, batch: Vec::new().into_iter(), ahead: None, last: None }
    }

    async fn next(
        &mut self,
        order: &[MergeKey],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<(RowKey, Row)>> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        let row = loop {
            if let Some(row) = self.batch.next() {
                break row;
            }
            match self.input.next(context).await? {
                Some(batch) => self.batch = batch.into_iter(),
                None => return Ok(None),
            }
        };
        let key = key_of(&self.keys, &row, context)?;
        if !key.has_null() {
            if self.last.as_ref().is_some_and(|last| compare(last, &key, order).is_gt()) {
                return Err(SqlError::internal("a side of a merge join is not in order"));
            }
            self.last = Some(key.clone());
        }
        Ok(Some((key, row)))
    }
}

/// The order of keys of both sides.
fn compare(left: &RowKey, right: &RowKey, order: &[MergeKey]) -> Ordering {
    let pairs = left.0.iter().zip(&right.0).zip(order);
    let orders = pairs.map(|((left, right), key)| {
        compare_with_nulls(left, right, key.descending, key.nulls_first)
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

/// The rows of the right of one key.
struct Group {
    key: RowKey,
    rows: Vec<Row>,
    has_partner: Vec<bool>,
    used: MemoryUse,
    /// From where rows without a partner are given, when the left is behind it.
    next_single: Option<usize>,
}

/// A row of the left that goes through the group.
struct Current {
    /// Its columns; behind them those of a candidate while that is looked at.
    row: Row,
    next: usize,
    has_partner: bool,
}

/// A merge join that runs.
pub(crate) struct MergeJoin {
    left: Side,
    right: Side,
    left_width: usize,
    right_width: usize,
    kind: JoinKind,
    order: Vec<MergeKey>,
    condition: Option<Expr>,
    group: Option<Group>,
    current: Option<Current>,
    is_left_done: bool,
    is_right_done: bool,
}

impl MergeJoin {
    pub(crate) fn new(merge: &Merge) -> Self {
        let Merge { join, keys } = merge;
        let (left_keys, right_keys) = join.equal.iter().cloned().unzip();
        Self {
            left: Side::new(build(&join.left), left_keys),
            right: Side::new(build(&join.right), right_keys),
            left_width: join.left_width,
            right_width: join.right_width,
            kind: join.kind,
            order: keys.clone(),
            condition: join.condition.clone(),
            group: None,
            current: None,
            is_left_done: false,
            is_right_done: false,
        }
    }

    /// Whether rows of the right that have no partner are given.
    fn gives_single_right(&self) -> bool {
        matches!(self.kind, JoinKind::Right | JoinKind::Full)
    }

    /// Whether one partner is enough to know what is given.
    fn needs_one_partner(&self) -> bool {
        matches!(self.kind, JoinKind::Semi | JoinKind::Anti)
    }

    /// A row of the left that has no partner.
    fn give_single_left(&self, mut row: Row, out: &mut Vec<Row>) {
        match self.kind {
            JoinKind::Left | JoinKind::Full => {
                row.resize(self.left_width + self.right_width, Datum::Null);
                out.push(row);
            }
            JoinKind::Anti => out.push(row),
            JoinKind::Inner | JoinKind::Right | JoinKind::Semi => {}
        }
    }

    /// A row of the right that has no partner.
    fn give_single_right(&self, row: Row, out: &mut Vec<Row>) {
        if self.gives_single_right() {
            let mut whole = vec![Datum::Null; self.left_width];
            whole.extend(row);
            out.push(whole);
        }
    }

    /// Reads the next rows of the right: those of a key, or one that is equal to nothing.
    async fn next_group(
        &mut self,
        out: &mut Vec<Row>,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let Some((key, row)) = self.right.next(&self.order, context).await? else {
            self.is_right_done = true;
            return Ok(());
        };
        context.breathe(1).await;
        if key.has_null() {
            self.give_single_right(row, out);
            return Ok(());
        }
        let is_one_enough = self.needs_one_partner() && self.condition.is_none();
        let (has_partner, mut used) = (vec![false], MemoryUse::default());
        used.add(row_bytes(&row) + 1, context.limits)?;
        let mut group = Group { key, rows: vec![row], has_partner, used, next_single: None };
        loop {
            let Some((key, row)) = self.right.next(&self.order, context).await? else {
                self.is_right_done = true;
                break;
            };
            if key != group.key {
                self.right.ahead = Some((key, row));
                break;
            }
            context.breathe(1).await;
            if !is_one_enough {
                group.used.add(row_bytes(&row) + 1, context.limits)?;
                group.rows.push(row);
                group.has_partner.push(false);
            }
        }
        self.group = Some(group);
        Ok(())
    }

    /// Goes on by a row or a group; `false` if there are none.
    async fn step(
        &mut self,
        out: &mut Vec<Row>,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<bool> {
        if self.is_left_done {
            return self.rest_of_right(out, context).await;
        }
        if self.group.is_none() && !self.is_right_done {
            self.next_group(out, context).await?;
            return Ok(true);
        }
        if self.group.is_none() && !self.gives_without_right() {
            self.is_left_done = true;
            return Ok(true);
        }
        let Some((key, row)) = self.left.next(&self.order, context).await? else {
            self.is_left_done = true;
            return Ok(true);
        };
        context.breathe(1).await;
        let order = match &self.group {
            Some(group) if !key.has_null() => compare(&key, &group.key, &self.order),
            _ => Ordering::Less,
        };
        match order {
            Ordering::Less => self.give_single_left(row, out),
            Ordering::Equal => self.current = Some(Current { row, next: 0, has_partner: false }),
            Ordering::Greater => {
                self.left.ahead = Some((key, row));
                self.end_group();
            }
        }
        Ok(true)
    }

    /// Whether anything is given when the right has ended.
    fn gives_without_right(&self) -> bool {
        matches!(self.kind, JoinKind::Left | JoinKind::Full | JoinKind::Anti)
    }

    /// Goes on when the left has ended; `false` if nothing is left to be given.
    async fn rest_of_right(
        &mut self,
        out: &mut Vec<Row>,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<bool> {
        if !self.gives_single_right() {
            return Ok(false);
        }
        if self.group.is_some() {
            self.end_group();
            return Ok(true);
        }
        if self.is_right_done {
            return Ok(false);
        }
        let Some((_, row)) = self.right.next(&self.order, context).await? else {
            self.is_right_done = true;
            return Ok(false);
        };
        context.breathe(1).await;
        self.give_single_right(row, out);
        Ok(true)
    }

    /// The left is behind the group.
    fn end_group(&mut self) {
        match &mut self.group {
            Some(group) if matches!(self.kind, JoinKind::Right | JoinKind::Full) => {
                group.next_single = Some(0);
            }
            group => *group = None,
        }
    }

    /// Gives rows of a group that has ended, as many as the batch takes.
    fn give_rest_of_group(&mut self, out: &mut Vec<Row>) {
        let Some(mut group) = self.group.take() else { return };
        let mut at = group.next_single.unwrap_or_default();
        while let Some(row) = group.rows.get_mut(at) {
            if out.len() >= BATCH_ROWS {
                group.next_single = Some(at);
                self.group = Some(group);
                return;
            }
            if group.has_partner.get(at) == Some(&false) {
                self.give_single_right(std::mem::take(row), out);
            }
            at += 1;
        }
    }

    /// Takes the current row further through the group, until it is done or the batch is full.
    fn go_through(
        &mut self,
        mut current: Current,
        out: &mut Vec<Row>,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let needs_one = self.needs_one_partner();
        let Some(group) = &mut self.group else { return Ok(()) };
        while let Some(row) = group.rows.get(current.next) {
            if out.len() >= BATCH_ROWS {
                self.current = Some(current);
                return Ok(());
            }
            current.row.extend_from_slice(row);
            let is_pair = context.holds(self.condition.as_ref(), &current.row)?;
            if is_pair && !needs_one {
                out.push(current.row.clone());
            }
            current.row.truncate(self.left_width);
            if is_pair {
                current.has_partner = true;
                if let Some(has_partner) = group.has_partner.get_mut(current.next) {
                    *has_partner = true;
                }
                if needs_one {
                    break;
                }
            }
            current.next += 1;
        }
        match (self.kind, current.has_partner) {
            (JoinKind::Semi, true) => out.push(current.row),
            (_, true) => {}
            (_, false) => self.give_single_left(current.row, out),
        }
        Ok(())
    }

    async fn some(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let mut out = Vec::new();
        while out.len() < BATCH_ROWS {
            if let Some(current) = self.current.take() {
                let rows = self.group.as_ref().map_or(0, |group| group.rows.len());
                context.breathe(rows.min(BATCH_ROWS)).await;
                self.go_through(current, &mut out, context)?;
            } else if self.group.as_ref().is_some_and(|group| group.next_single.is_some()) {
                self.give_rest_of_group(&mut out);
            } else if !self.step(&mut out, context).await? {
                break;
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }
}

impl Operator for MergeJoin {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(self.some(context))
    }
}
