//! Joins: by hashing where values have to be equal, else by trying all pairs.
//!
//! The right side is read first and kept, with a chain of its rows for each key. Then each row of
//! the left goes through its chain, or through all rows. A lateral right side is run anew for each
//! row of the left.
//!
//! When memory does not take the right side, the rows of both sides are divided by their keys into
//! temporary files, and those of a file of each side are joined at a time (`join_aside.rs`).

use selkie_fabric::BoxFuture;

use super::build::build;
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::join_aside::{Aside, number_row, ordered};
use super::join_side::{JoinSide, Place};
use super::memory::drain;
use super::partitions::{Partitions, can_divide};
use super::row_key::{RowKey, is_same, key_of};
use super::sort::{KeyedRow, Sorted};
use super::walk::shared_to_forget;
use crate::error::SqlResult;
use crate::plan::{self, Expr, JoinKind, Plan};
use crate::types::Datum;

/// The right side before it is read.
enum RightPlan {
    /// Read once.
    Once(Option<BoxOperator>),
    /// Run for each row of the left; with the common table expressions that depend on that.
    Lateral { plan: Box<Plan>, forget: Vec<usize> },
}

/// A row of the left that goes through its candidates.
struct Current {
    /// Its columns; behind them those of a candidate while that is looked at.
    row: Row,
    /// Its place in the order, if it was put aside and that is kept.
    number: Option<Datum>,
    has_partner: bool,
    place: Place,
}

/// A join that runs.
pub(crate) struct Join {
    left: BoxOperator,
    right: RightPlan,
    left_width: usize,
    right_width: usize,
    kind: JoinKind,
    left_keys: Vec<Expr>,
    right_keys: Vec<Expr>,
    condition: Option<Expr>,
    side: JoinSide,
    batch: std::vec::IntoIter<Row>,
    current: Option<Current>,
    is_left_done: bool,
    /// Where the rows of the right that have no partner are given from.
    next_single: usize,
    /// Whether the rows of the left have to come in their order.
    keeps_order: bool,
    /// Rows of both sides that memory does not take.
    aside: Option<Aside>,
    /// What they gave, where the order is kept.
    ordered: Option<Sorted>,
}

impl Join {
    pub(crate) fn new(join: &plan::Join) -> Self {
        let right = if join.is_lateral {
            let forget = shared_to_forget(&join.right);
            RightPlan::Lateral { plan: Box::new(join.right.clone()), forget }
        } else {
            RightPlan::Once(Some(build(&join.right)))
        };
        let (left_keys, right_keys) = join.equal.iter().cloned().unzip();
        Self {
            left: build(&join.left),
            right,
            left_width: join.left_width,
            right_width: join.right_width,
            kind: join.kind,
            left_keys,
            right_keys,
            condition: join.condition.clone(),
            side: JoinSide::default(),
            batch: Vec::new().into_iter(),
            current: None,
            is_left_done: false,
            next_single: 0,
            keeps_order: join.keeps_order,
            aside: None,
            ordered: None,
        }
    }

    fn is_lateral(&self) -> bool {
        matches!(self.right, RightPlan::Lateral { .. })
    }

    /// Whether rows of the right that have no partner are given.
    fn gives_single_right(&self) -> bool {
        matches!(self.kind, JoinKind::Right | JoinKind::Full) && !self.is_lateral()
    }

    /// Reads the right side, if it is read once, and the left too if memory does not take it.
    async fn read_right(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        let RightPlan::Once(right) = &mut self.right else { return Ok(()) };
        let Some(mut right) = right.take() else { return Ok(()) };
        let mut aside = None;
        while let Some(batch) = right.next(context).await? {
            for row in batch {
                if self.right_keys.is_empty() {
                    self.side.push(row, context.limits)?;
                } else {
                    let key = key_of(&self.right_keys, &row, context)?;
                    self.add_right(key, row, (&mut aside, 0), context)?;
                }
            }
        }
        if let Some(right) = aside {
            let left = Box::pin(self.divide_left(context)).await?;
            self.aside = Some(Aside::of(right, left)?);
            self.is_left_done = true;
            return Ok(());
        }
        self.is_left_done = self.side.is_empty() && self.needs_right();
        Ok(())
    }

    /// Whether nothing can be given without rows of the right side: the left need not be read then.
    fn needs_right(&self) -> bool {
        matches!(self.kind, JoinKind::Inner | JoinKind::Semi | JoinKind::Right)
    }

    /// Keeps a row of the right side. When memory does not take it, all of that side are divided,
    /// of which the rows were divided so often.
    fn add_right(
        &mut self,
        key: RowKey,
        row: Row,
        (aside, division): (&mut Option<Partitions>, u32),
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let limits = context.limits;
        // It is equal to nothing, and no hash would tell such rows apart.
        if key.has_null() && !self.gives_single_right() {
            return Ok(());
        }
        if aside.is_none() {
            if self.side.has_room(&row, &key, limits) || !can_divide(division, limits) {
                return self.side.push_with_key(row, key, limits);
            }
            let mut divided = Partitions::new(division);
            for row in std::mem::take(&mut self.side).into_rows() {
                let keys = key_of(&self.right_keys, &row, context)?.0;
                divided.push(&KeyedRow { keys, row }, limits)?;
            }
            *aside = Some(divided);
        }
        match aside {
            Some(aside) => aside.push(&KeyedRow { keys: key.0, row }, limits),
            None => Ok(()),
        }
    }

    /// Divides all rows of the left.
    async fn divide_left(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Partitions> {
        let mut divided = Partitions::new(0);
        let mut number = 0;
        while let Some(batch) = self.left.next(context).await? {
            for mut row in batch {
                let key = key_of(&self.left_keys, &row, context)?;
                if key.has_null() && self.needs_right() {
                    continue;
                }
                let keys = key.0;
                if self.keeps_order {
                    number_row(&mut row, &mut number);
                }
                divided.push(&KeyedRow { keys, row }, context.limits)?;
            }
        }
        Ok(divided)
    }

    /// Begins with the next rows that were put aside; `false` if there are none.
    async fn next_aside(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<bool> {
        let Some(mut aside) = self.aside.take() else { return Ok(false) };
        while let Some(mut pair) = aside.next_pair() {
            (self.side, self.next_single) = (JoinSide::default(), 0);
            let mut again = None;
            while let Some(KeyedRow { keys, row }) = pair.next_right()? {
                context.breathe(1).await;
                self.add_right(RowKey(keys), row, (&mut again, pair.division), context)?;
            }
            if let Some(right) = again {
                aside.divide(right, &mut pair, context).await?;
                continue;
            }
            self.is_left_done = self.side.is_empty() && self.needs_right();
            aside.begin(pair);
            self.aside = Some(aside);
            return Ok(true);
        }
        Ok(false)
    }

    /// Begins with the next row of the left; `false` if there is none.
    async fn next_left(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<bool> {
        if let Some(aside) = &mut self.aside {
            context.breathe(1).await;
            let Some(KeyedRow { keys, mut row }) = aside.next_left()? else { return Ok(false) };
            let number = if self.keeps_order { row.pop() } else { None };
            let place = self.side.find(&RowKey(keys));
            self.current = Some(Current { row, number, has_partner: false, place });
            return Ok(true);
        }
        let row = loop {
            if let Some(row) = self.batch.next() {
                break row;
            }
            match self.left.next(context).await? {
                Some(batch) => self.batch = batch.into_iter(),
                None => return Ok(false),
            }
        };
        // Where rows are not found by their keys, all of the right are looked at.
        context.breathe(if self.left_keys.is_empty() { self.side.len() } else { 1 }).await;
        let (mut row, mut place) = (row, Place::All(0));
        if let RightPlan::Lateral { plan, forget } = &self.right {
            for number in forget {
                context.shared.complete.remove(number);
            }
            context.outer.push(row);
            let rows = drain(&mut build(plan), context).await;
            row = context.outer.pop().unwrap_or_default();
            self.side = JoinSide::of_rows(rows?);
        } else if !self.left_keys.is_empty() {
            place = self.side.find(&key_of(&self.left_keys, &row, context)?);
        }
        self.current = Some(Current { row, number: None, has_partner: false, place });
        Ok(true)
    }

    /// Whether the pair that is in `row` belongs together.
    fn is_pair(&self, row: &[Datum], context: &ExecContext<'_, '_>) -> SqlResult<bool> {
        if self.is_lateral() && !self.left_keys.is_empty() {
            let (left, right) = row.split_at_checked(self.left_width).unwrap_or_default();
            for (of_left, of_right) in self.left_keys.iter().zip(&self.right_keys) {
                let (a, b) = (context.eval(of_left, left)?, context.eval(of_right, right)?);
                if a.is_null() || b.is_null() || !is_same(&a, &b) {
                    return Ok(false);
                }
            }
        }
        context.holds(self.condition.as_ref(), row)
    }

    /// Takes the current row further, until it is done or the batch is full.
    fn go_through(
        &mut self,
        mut current: Current,
        out: &mut Vec<Row>,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        while let Some(at) = self.side.step(&mut current.place) {
            current.row.extend_from_slice(self.side.row(at));
            let is_pair = self.is_pair(&current.row, context)?;
            if is_pair && !matches!(self.kind, JoinKind::Semi | JoinKind::Anti) {
                out.push(current.row.clone());
            }
            current.row.truncate(self.left_width);
            if !is_pair {
                continue;
            }
            current.has_partner = true;
            self.side.mark(at);
            if matches!(self.kind, JoinKind::Semi | JoinKind::Anti) {
                break;
            }
            if out.len() >= BATCH_ROWS {
                self.current = Some(current);
                return Ok(());
            }
        }
        let Current { mut row, has_partner, .. } = current;
        match (self.kind, has_partner) {
            (JoinKind::Left | JoinKind::Full, false) => {
                row.resize(self.left_width + self.right_width, Datum::Null);
                out.push(row);
            }
            (JoinKind::Semi, true) | (JoinKind::Anti, false) => out.push(row),
            _ => {}
        }
        Ok(())
    }

    /// Rows of the right that have no partner.
    fn give_single(&mut self, out: &mut Vec<Row>) {
        while out.len() < BATCH_ROWS
            && let Some(at) = self.side.next_unmarked(&mut self.next_single)
        {
            let mut row = vec![Datum::Null; self.left_width];
            row.extend_from_slice(self.side.row(at));
            out.push(row);
        }
    }

    /// The next rows, of those that were put aside with their place in the order behind them.
    async fn some(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let mut out = Vec::new();
        loop {
            while out.len() < BATCH_ROWS && !self.is_left_done {
                if let Some(current) = self.current.take() {
                    let (before, number) = (out.len(), current.number.clone());
                    self.go_through(current, &mut out, context)?;
                    if let Some(number) = number {
                        let new = out.iter_mut().skip(before);
                        new.for_each(|row| row.push(number.clone()));
                    }
                } else if !self.next_left(context).await? {
                    self.is_left_done = true;
                }
            }
            if self.is_left_done && self.gives_single_right() {
                self.give_single(&mut out);
            }
            if !out.is_empty() {
                return Ok(Some(out));
            }
            if self.aside.is_none() || !Box::pin(self.next_aside(context)).await? {
                return Ok(None);
            }
        }
    }

    /// All rows, of which the places in the order are known.
    async fn all_in_order(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Sorted> {
        let mut sorter = ordered(context.limits);
        while let Some(batch) = self.some(context).await? {
            for mut row in batch {
                let keys = row.pop().into_iter().collect();
                sorter.push(KeyedRow { keys, row })?;
            }
        }
        sorter.finish()
    }

    async fn batch(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        self.read_right(context).await?;
        if self.aside.is_some() && self.keeps_order && self.ordered.is_none() {
            self.ordered = Some(Box::pin(self.all_in_order(context)).await?);
        }
        match &mut self.ordered {
            Some(ordered) => ordered.batch(),
            None => self.some(context).await,
        }
    }
}

impl Operator for Join {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(self.batch(context))
    }
}
