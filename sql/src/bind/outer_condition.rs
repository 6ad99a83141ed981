//! Subqueries in the condition of an outer join.
//!
//! A subquery is a column behind those of a row ([`Plan::Apply`]), so the pairs have to be there
//! before the condition can be looked at: the pairs that pass are found by an inner join. The rows
//! of a side that is filled up are numbered and kept, and joined with the pairs by their number:
//!
//! ```text
//! pairs:  filter(condition, applies(left x right))      with the numbers of their rows
//! LEFT:   left LEFT JOIN pairs                          by the number of the left row
//! RIGHT:  pairs RIGHT JOIN right                        by the number of the right row
//! FULL:   (left LEFT JOIN pairs) FULL JOIN right        one after the other
//! ```

use std::sync::Arc;

use super::Binder;
use super::stage::{PendingApply, with_applies};
use crate::error::SqlResult;
use crate::plan::{Expr, Frame, Join, JoinKind, Plan, Reuse, Typed, WindowCall};
use crate::types::{Datum, SqlType};

/// The columns that stand between those of both sides and those of subqueries: the numbers of the
/// rows.
pub(super) const NUMBERS: usize = 2;

/// A plan, and how many columns it gives.
type Side = (Plan, usize);

impl Binder<'_> {
    /// An outer join whose condition is over the columns of both sides, [`NUMBERS`] more, and those
    /// of these subqueries.
    pub(super) fn outer_join(
        &mut self,
        (left, right): (Side, Side),
        (kind, is_lateral): (JoinKind, bool),
        applies: Vec<PendingApply>,
        condition: Expr,
    ) -> SqlResult<Plan> {
        let (left_width, right_width) = (left.1, right.1);
        let both = left_width + right_width;
        let (left_kept, left) = self.kept(left, matches!(kind, JoinKind::Left | JoinKind::Full));
        let (right_kept, right) =
            self.kept(right, matches!(kind, JoinKind::Right | JoinKind::Full));
        let behind = left.1;
        // Left columns, right columns, the number of the left row, that of the right row.
        let numbers = [
            left_kept.as_ref().map_or(Expr::Const(Datum::Null), |_| Expr::Column(left_width)),
            right_kept
                .as_ref()
                .map_or(Expr::Const(Datum::Null), |_| Expr::Column(behind + right_width)),
        ];
        let columns = (0..left_width).chain(behind..behind + right_width).map(Expr::Column);
        let exprs = columns.chain(numbers).collect();
        let input = Box::new(joined(left, right, JoinKind::Inner, None, is_lateral));
        let input = Box::new(with_applies(Plan::Project { input, exprs }, applies));
        let input = Box::new(Plan::Filter { input, condition });
        let mut pairs = Plan::Project { input, exprs: columns_of(0..both + NUMBERS) };
        if let Some(left) = left_kept {
            // Columns and number of the left row, then those of the pair.
            let number = left_width + 1 + both;
            let equal = self.equal_numbers(left_width, number)?;
            let input = Box::new(joined(
                (left, left_width + 1),
                (pairs, both + NUMBERS),
                JoinKind::Left,
                Some(equal),
                false,
            ));
            let first = 2 * left_width + 1;
            let columns = (0..left_width).chain(first..first + right_width);
            let exprs = columns.chain(number..number + NUMBERS).map(Expr::Column).collect();
            pairs = Plan::Project { input, exprs };
        }
        let mut first = left_width;
        if let Some(right) = right_kept {
            let equal = self.equal_numbers(both + 1, both + NUMBERS + right_width)?;
            let kind = if kind == JoinKind::Full { JoinKind::Full } else { JoinKind::Right };
            let (pair, own) = ((pairs, both + NUMBERS), (right, right_width + 1));
            pairs = joined(pair, own, kind, Some(equal), false);
            first = both + NUMBERS;
        }
        let columns = (0..left_width).chain(first..first + right_width);
        let exprs = columns.map(Expr::Column).collect();
        Ok(Plan::Project { input: Box::new(pairs), exprs })
    }

    /// A side whose rows are read twice, with their number behind them, if it is kept; and what is
    /// read first.
    fn kept(&mut self, side: Side, is_kept: bool) -> (Option<Plan>, Side) {
        if !is_kept {
            return (None, side);
        }
        let (plan, width) = side;
        let call = WindowCall {
            aggregate: None,
            name: "row_number".to_owned(),
            arguments: Vec::new(),
            filter: None,
            partition: Vec::new(),
            order: Vec::new(),
            frame: Frame::default(),
        };
        let plan = Plan::Window { input: Box::new(plan), calls: vec![call] };
        let number = self.shared;
        self.shared += 1;
        let plan = Plan::Shared { number, plan: Arc::new(plan), reuse: Reuse::Always };
        (Some(plan.clone()), (plan, width + 1))
    }

    fn equal_numbers(&mut self, left: usize, right: usize) -> SqlResult<Expr> {
        let number = |at| Typed::new(Expr::Column(at), SqlType::INT8);
        Ok(self.operator("=", Some(number(left)), number(right))?.expr)
    }
}

fn columns_of(columns: std::ops::Range<usize>) -> Arc<[Expr]> {
    columns.map(Expr::Column).collect()
}

/// A join of both sides.
pub(super) fn joined(
    (left, left_width): Side,
    (right, right_width): Side,
    kind: JoinKind,
    condition: Option<Expr>,
    is_lateral: bool,
) -> Plan {
    Plan::Join(Box::new(Join {
        left,
        right,
        left_width,
        right_width,
        kind,
        equal: Vec::new(),
        condition,
        is_lateral,
        keeps_order: false,
    }))
}
