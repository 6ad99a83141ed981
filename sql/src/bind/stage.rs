//! A clause of a query while it is bound: its scope, its subqueries, and its aggregates.

use super::scope::Scope;
use crate::plan::{AggregateCall, ApplyKind, Expr, Plan, Typed};

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
    /// The keys, as they were written and bound.
    pub(super) keys: Vec<(sqlparser::ast::Expr, Typed)>,
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
    /// Columns of the input, before those of subqueries; of groups it is known at the end only.
    pub(super) width: usize,
}

/// Columns of subqueries of a clause with groups are numbered from here on until the number of its
/// aggregates is known.
pub(super) const PENDING: usize = usize::MAX / 2;

impl<'s> Stage<'s> {
    pub(super) fn new(scope: &'s Scope<'s>, clause: &'static str) -> Self {
        Self { scope, clause, applies: Vec::new(), grouping: None, width: scope.width }
    }

    /// Adds a subquery; returns the expression of what it gives.
    pub(super) fn apply(&mut self, query: Plan, kind: ApplyKind, is_correlated: bool) -> Expr {
        let at = if self.grouping.is_some() { PENDING } else { self.width };
        self.applies.push(PendingApply { query, kind, is_correlated });
        Expr::Column(at + self.applies.len() - 1)
    }
}

/// The plan that gives what the subqueries of a clause give behind the columns of its input.
pub(super) fn with_applies(input: Plan, applies: Vec<PendingApply>) -> Plan {
    applies.into_iter().fold(input, |input, PendingApply { query, kind, is_correlated }| {
        Plan::Apply { input: Box::new(input), query: Box::new(query), kind, is_correlated }
    })
}

/// Numbers the columns of subqueries behind `width` columns of the input.
pub(super) fn settle(expr: &mut Expr, width: usize) {
    expr.visit_mut(&mut |own| {
        if let Expr::Column(column) = own
            && *column >= PENDING
        {
            *column = *column - PENDING + width;
        }
    });
}
