//! Which columns of its rows a plan is asked for, so that reads of tables leave out the others.

use std::sync::Arc;

use super::expr::Expr;
use super::node::{AggregateCall, Join, JoinKind, Plan, Scan, SortKey};

/// Columns of the rows of a plan.
#[derive(Clone)]
enum Columns {
    All,
    /// `true` for those that are asked for; those behind the last are not.
    Some(Vec<bool>),
}

impl Columns {
    const fn none() -> Self {
        Self::Some(Vec::new())
    }

    fn has(&self, column: usize) -> bool {
        match self {
            Self::All => true,
            Self::Some(asked) => asked.get(column).copied().unwrap_or(false),
        }
    }

    fn add(&mut self, column: usize) {
        if let Self::Some(asked) = self {
            if asked.len() <= column {
                asked.resize(column + 1, false);
            }
            asked.iter_mut().skip(column).take(1).for_each(|own| *own = true);
        }
    }

    /// With those that expressions over the rows read.
    fn with<'e>(mut self, exprs: impl IntoIterator<Item = &'e Expr>) -> Self {
        for expr in exprs {
            expr.columns().into_iter().for_each(|column| self.add(column));
        }
        self
    }

    /// Those from one on, counted from there.
    fn from(&self, first: usize) -> Self {
        match self {
            Self::All => Self::All,
            Self::Some(asked) => Self::Some(asked.iter().skip(first).copied().collect()),
        }
    }
}

/// Says at each read of a table which columns are needed, of a plan all of whose columns are.
pub(super) fn need_all(plan: &mut Plan) {
    need(plan, Columns::All);
}

#[recursive::recursive]
fn need(plan: &mut Plan, asked: Columns) {
    match plan {
        Plan::Scan(scan) => {
            let asked = asked.with(&scan.filter);
            // Rows that are changed or locked are so as a whole.
            let is_whole = scan.for_update || matches!(asked, Columns::All);
            if !is_whole {
                let needed = (0..scan.table.columns.len()).map(|at| asked.has(at)).collect();
                Arc::make_mut(scan).needed = needed;
            }
        }
        Plan::Filter { input, condition } => need(input, asked.with([&*condition])),
        Plan::Project { input, exprs } => need(input, Columns::none().with(exprs.iter())),
        Plan::Sort { input, keys, .. } => {
            need(input, asked.with(keys.iter().map(|SortKey { expr, .. }| expr)));
        }
        Plan::Limit { input, .. } | Plan::Measured { input, .. } => need(input, asked),
        Plan::Distinct { input, keys, .. } => need(input, asked.with(&*keys)),
        Plan::Aggregate { input, keys, calls } | Plan::Grouped { input, keys, calls } => {
            let calls = calls.iter().flat_map(exprs_of);
            need(input, Columns::none().with(keys.iter().chain(calls)));
        }
        Plan::Join(join) => need_of_join(join, asked),
        Plan::Merge(merge) => need_of_join(&mut merge.join, asked),
        // What a subquery reads of the rows of its input may be anywhere in it.
        Plan::Apply { input, query, .. } => {
            need(input, Columns::All);
            need_all(query);
        }
        Plan::Window { input, .. } => need(input, Columns::All),
        Plan::Set { left, right, .. } => {
            need_all(left);
            need_all(right);
        }
        Plan::Recursive { first, next, .. } => {
            need_all(first);
            need_all(next);
        }
        Plan::Lock(lock) => need_all(&mut lock.input),
        // Those of `changes` were told when they were made.
        Plan::Together { main, .. } => need_all(main),
        Plan::Insert(insert) => need_all(&mut insert.source),
        Plan::Modify(modify) => need_all(&mut modify.source),
        Plan::One
        | Plan::Nothing { .. }
        | Plan::Values { .. }
        | Plan::CopyIn { .. }
        | Plan::Rows { .. }
        | Plan::Working { .. }
        | Plan::Sequence(_)
        | Plan::Advisory(_)
        // It was told when it was made.
        | Plan::Shared { .. } => {}
    }
}

/// The expressions of a call, over the rows of its input.
fn exprs_of(call: &AggregateCall) -> impl Iterator<Item = &Expr> {
    let order = call.order.iter().map(|SortKey { expr, .. }| expr);
    call.arguments.iter().chain(&call.filter).chain(order)
}

fn need_of_join(join: &mut Join, asked: Columns) {
    let asked = match join.kind {
        // It gives the columns of the left only.
        JoinKind::Semi | JoinKind::Anti => match asked {
            Columns::All => Columns::Some(vec![true; join.left_width]),
            asked => asked,
        },
        _ => asked,
    };
    let asked = asked.with(&join.condition);
    let (of_left, of_right) =
        (join.equal.iter().map(|(left, _)| left), join.equal.iter().map(|(_, right)| right));
    let right = asked.from(join.left_width).with(of_right);
    let mut left = asked.with(of_left);
    if join.is_lateral {
        left = match &join.right {
            Plan::Scan(scan) => outer_columns(scan).into_iter().fold(left, |mut left, column| {
                left.add(column);
                left
            }),
            // It may read the row of the left anywhere.
            _ => Columns::All,
        };
    }
    need(&mut join.left, left);
    need(&mut join.right, right);
}

/// The columns of the innermost outer row that a read of a table uses.
fn outer_columns(scan: &Scan) -> Vec<usize> {
    let mut columns = Vec::new();
    let mut visit = |expr: &Expr| {
        if let Expr::Outer { level: 0, column } = expr {
            columns.push(*column);
        }
    };
    scan.access.each_expr(&mut |own| own.visit(&mut visit));
    scan.filter.iter().for_each(|own| own.visit(&mut visit));
    columns
}
