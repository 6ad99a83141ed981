//! Joins: by hashing where values have to be equal, else by trying all pairs.
//!
//! The right side is read first and kept, with a chain of its rows for each key. Then each row of
//! the left goes through its chain, or through all rows. A lateral right side is run anew for each
//! row of the left.

use selkie_fabric::BoxFuture;

use super::build::build;
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::join_side::{JoinSide, Place};
use super::memory::drain;
use super::row_key::{is_same, key_of};
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
        }
    }

    fn is_lateral(&self) -> bool {
        matches!(self.right, RightPlan::Lateral { .. })
    }

    /// Whether rows of the right that have no partner are given.
    fn gives_single_right(&self) -> bool {
        matches!(self.kind, JoinKind::Right | JoinKind::Full) && !self.is_lateral()
    }

    /// Reads the right side, if it is read once.
    async fn read_right(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        let RightPlan::Once(right) = &mut self.right else { return Ok(()) };
        let Some(mut right) = right.take() else { return Ok(()) };
        while let Some(batch) = right.next(context).await? {
            for row in batch {
                if self.right_keys.is_empty() {
                    self.side.push(row, context.limits)?;
                } else {
                    let key = key_of(&self.right_keys, &row, context)?;
                    self.side.push_with_key(row, key, context.limits)?;
                }
            }
        }
        // Nothing can be given then: the left side need not be read.
        let needs_right = matches!(self.kind, JoinKind::Inner | JoinKind::Semi | JoinKind::Right);
        self.is_left_done = self.side.is_empty() && needs_right;
        Ok(())
    }

    /// Begins with the next row of the left; `false` if there is none.
    async fn next_left(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<bool> {
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
        self.current = Some(Current { row, has_partner: false, place });
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

    async fn batch(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        self.read_right(context).await?;
        let mut out = Vec::new();
        while out.len() < BATCH_ROWS && !self.is_left_done {
            if let Some(current) = self.current.take() {
                self.go_through(current, &mut out, context)?;
            } else if !self.next_left(context).await? {
                self.is_left_done = true;
            }
        }
        if self.is_left_done && self.gives_single_right() {
            self.give_single(&mut out);
        }
        Ok((!out.is_empty()).then_some(out))
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
