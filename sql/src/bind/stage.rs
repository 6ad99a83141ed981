//! A clause of a query while it is bound: its scope, its subqueries, and its aggregates.

use super::groups::GroupKey;
use super::scope::Scope;
use super::{Binder, refuse};
use crate::error::SqlResult;
use crate::plan::{AggregateCall, ApplyKind, Expr, Plan, Typed, WindowCall};

/// A subquery of an expression: it will be a column behind those of the input.
pub(super) struct PendingApply {
    pub(super) query: Plan,
    pub(super) kind: ApplyKind,
    pub(super) is_correlated: bool,
}

/// The groups of a query.
pub(super) struct Grouping<'s> {
    /// What aggregates and keys are over.
    pub(super) input: &'s Scope<'s>,
    pub(super) keys: Vec<GroupKey>,
    /// Which of the keys each list has, if there are several lists: the last key is in none then.
    pub(super) sets: Option<Vec<Vec<usize>>>,
    /// Columns of their input, before those of subqueries.
    pub(super) width: usize,
    /// Subqueries in the arguments of aggregates.
    pub(super) applies: Vec<PendingApply>,
    /// The calls of aggregates so far, as they were written.
    pub(super) calls: Vec<(sqlparser::ast::Function, AggregateCall, crate::types::SqlType)>,
}

/// A clause while it is bound.
pub(super) struct Stage<'s> {
    pub(super) scope: &'s Scope<'s>,
    /// What the clause is called in errors.
    pub(super) clause: &'static str,
    pub(super) applies: Vec<PendingApply>,
    /// Set where aggregates may stand.
    pub(super) grouping: Option<Grouping<'s>>,
    /// The calls of window functions, where they may stand.
    pub(super) windows: Option<Vec<WindowCall>>,
    /// Those of WINDOW.
    pub(super) named_windows: Vec<sqlparser::ast::NamedWindowDefinition>,
    /// Columns of the input, before those of subqueries; of groups it is known at the end only.
    pub(super) width: usize,
}

/// Columns of subqueries of a clause with groups are numbered from here on until the number of its
/// aggregates is known.
const PENDING: usize = usize::MAX / 4;

/// As [`PENDING`], for the columns of window functions, which are behind those of subqueries.
pub(super) const WINDOWS: usize = usize::MAX / 2;

/// As [`PENDING`], for the columns of a subquery that are compared: they are behind those of the
/// subqueries before it.
pub(super) const COMPARED: usize = usize::MAX / 4 * 3;

impl<'s> Stage<'s> {
    pub(super) fn new(scope: &'s Scope<'s>, clause: &'static str) -> Self {
        let (applies, grouping, windows, width) = (Vec::new(), None, None, scope.width);
        let named_windows = Vec::new();
        Self { scope, clause, applies, grouping, windows, named_windows, width }
    }

    /// Whether it has neither groups nor windows.
    pub(super) fn is_plain(&self) -> bool {
        self.grouping.is_none() && self.windows.as_ref().is_none_or(Vec::is_empty)
    }

    /// How many columns are before those of subqueries, and how many with them, now that all of the
    /// clause is bound.
    pub(super) fn settled(&self) -> (usize, usize) {
        let of_groups = |own: &Grouping<'_>| own.keys.len() + own.calls.len();
        let width = self.grouping.as_ref().map_or(self.width, of_groups);
        (width, width + self.applies.len())
    }

    /// Adds a subquery; returns the expression of what it gives.
    pub(super) fn apply(&mut self, query: Plan, kind: ApplyKind, is_correlated: bool) -> Expr {
        let at = if self.grouping.is_some() { PENDING } else { self.width };
        self.applies.push(PendingApply { query, kind, is_correlated });
        Expr::Column(at + self.applies.len() - 1)
    }
}

impl Binder<'_> {
    /// An operand that stands in an expression more than once: if it may differ each time that it
    /// is evaluated, it becomes a column that is evaluated once for each row.
    pub(super) fn once(&mut self, operand: Typed, stage: &mut Stage<'_>) -> SqlResult<Typed> {
        if !operand.expr.is_volatile() {
            return Ok(operand);
        }
        let Typed { mut expr, ty } = operand;
        let is_pending = expr.columns().into_iter().any(|column| column >= PENDING);
        refuse(is_pending, "a volatile function of a subquery or window here")?;
        // Seen from there, the row is the innermost outer one.
        expr.visit_mut(&mut |own| match own {
            Expr::Outer { level, .. } => *level += 1,
            Expr::Column(column) => *own = Expr::Outer { level: 0, column: *column },
            _ => {}
        });
        let query = Plan::Project { input: Box::new(Plan::One), exprs: [expr].into() };
        Ok(Typed::new(stage.apply(query, ApplyKind::Scalar, true), ty))
    }
}

/// Numbers the columns that subqueries of a clause are compared with, and their own, behind `width`
/// columns of the input.
pub(super) fn settle_compared(applies: &mut [PendingApply], width: usize) {
    for (number, apply) in applies.iter_mut().enumerate() {
        if let ApplyKind::Compare { comparison, .. } = &mut apply.kind {
            settle(comparison, width, width + number);
        }
    }
}

/// The plan that gives what the subqueries of a clause give behind the columns of its input.
pub(super) fn with_applies(input: Plan, applies: Vec<PendingApply>) -> Plan {
    applies.into_iter().fold(input, |input, PendingApply { query, kind, is_correlated }| {
        Plan::Apply { input: Box::new(input), query: Box::new(query), kind, is_correlated }
    })
}

/// Numbers the columns of subqueries behind `width` columns of the input, and those of window
/// functions, or those that are compared, behind `applied`.
pub(super) fn settle(expr: &mut Expr, width: usize, applied: usize) {
    expr.visit_mut(&mut |own| {
        if let Expr::Column(column) = own {
            *column = match *column {
                at @ COMPARED.. => at - COMPARED + applied,
                at @ WINDOWS.. => at - WINDOWS + applied,
                at @ PENDING.. => at - PENDING + width,
                at => at,
            };
        }
    });
}
