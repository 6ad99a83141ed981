//! Subqueries that only say whether there is a row, as joins: EXISTS with an equation that names
//! the row outside, and IN.

use super::conditions::{all_of, conjuncts, equal_sides};
use super::expr::{Comparison, Expr};
use super::node::{ApplyKind, Join, JoinKind, Plan};
use crate::types::Datum;

/// The join that does what a subquery does for one of these conditions, which it takes out. It
/// gives the same columns. `None` if there is none.
pub(super) fn semi_join(
    input: &Plan,
    query: &Plan,
    kind: &ApplyKind,
    is_correlated: bool,
    conditions: &mut Vec<Expr>,
) -> Option<Plan> {
    let width = input.width();
    let names_it = |own: &Expr| own.columns().contains(&width);
    if conditions.iter().filter(|own| names_it(own)).count() != 1 {
        return None;
    }
    let at = conditions.iter().position(names_it)?;
    let is_it = |own: &Expr| matches!(own, Expr::Column(column) if *column == width);
    let join = match conditions.get(at)? {
        own if is_it(own) => JoinKind::Semi,
        Expr::Not(own) if is_it(own) => JoinKind::Anti,
        _ => return None,
    };
    let (right, equal) = match kind {
        ApplyKind::Exists if is_correlated => decorrelated(query)?,
        // NOT IN is not true where a value is NULL, which an anti join does not see.
        ApplyKind::Compare { comparison, all: false }
            if !is_correlated && join == JoinKind::Semi =>
        {
            let mut parts = Vec::new();
            conjuncts(comparison.clone(), &mut parts);
            let equal: Option<Vec<_>> = parts.iter().map(|own| equal_sides(own, width)).collect();
            (query.clone(), equal.filter(|equal| !equal.is_empty())?)
        }
        _ => return None,
    };
    conditions.remove(at);
    let (left_width, right_width, left) = (width, right.width(), input.clone());
    let (condition, is_lateral, kind) = (None, false, join);
    let keeps_order = false;
    let join = Join {
        left,
        right,
        left_width,
        right_width,
        kind,
        equal,
        condition,
        is_lateral,
        keeps_order,
    };
    let found = Expr::Const(Datum::Bool(kind == JoinKind::Semi));
    let exprs = (0..width).map(Expr::Column).chain([found]).collect();
    Some(Plan::Project { input: Box::new(Plan::Join(Box::new(join))), exprs })
}

/// A query without what it names of the row outside, and what has to be equal instead: something
/// of that row, and something of its own.
fn decorrelated(query: &Plan) -> Option<(Plan, Vec<(Expr, Expr)>)> {
    let mut plan = query;
    while let Plan::Project { input, .. } | Plan::Sort { input, .. } = plan {
        plan = input;
    }
    let Plan::Filter { input, condition } = plan else { return None };
    if !is_closed(input) {
        return None;
    }
    let (mut parts, mut own, mut equal) = (Vec::new(), Vec::new(), Vec::new());
    conjuncts(condition.clone(), &mut parts);
    for mut part in parts {
        if !names_row_outside(&part) {
            inward(&mut part);
            own.push(part);
            continue;
        }
        let Expr::Call { arguments, comparison: Some(Comparison::Equal), .. } = part else {
            return None;
        };
        let [first, second] = &*arguments else { return None };
        let (outside, inside) =
            if names_row_outside(first) { (first, second) } else { (second, first) };
        if names_row_outside(inside) || !outside.columns().is_empty() {
            return None;
        }
        let (mut outside, mut inside) = (outside.clone(), inside.clone());
        outside.visit_mut(&mut |expr| {
            if let Expr::Outer { level: 0, column } = expr {
                *expr = Expr::Column(*column);
            }
        });
        inward(&mut outside);
        inward(&mut inside);
        equal.push((outside, inside));
    }
    if equal.is_empty() {
        return None;
    }
    let input = (**input).clone();
    let right = match all_of(own) {
        None => input,
        Some(condition) => Plan::Filter { input: Box::new(input), condition },
    };
    Some((right, equal))
}

/// Whether a plan names no row outside.
fn is_closed(plan: &Plan) -> bool {
    match plan {
        Plan::Scan(scan) => scan.filter.is_none() && !scan.access.is_keyed(),
        Plan::Join(join) => {
            let condition = join.condition.as_ref();
            !join.is_lateral
                && is_closed(&join.left)
                && is_closed(&join.right)
                && condition.is_none_or(|own| !names_any_outside(own))
        }
        _ => false,
    }
}

fn names_row_outside(expr: &Expr) -> bool {
    let mut found = false;
    expr.visit(&mut |own| found |= matches!(own, Expr::Outer { level: 0, .. }));
    found
}

fn names_any_outside(expr: &Expr) -> bool {
    let mut found = false;
    expr.visit(&mut |own| found |= matches!(own, Expr::Outer { .. }));
    found
}

/// Rows further out are one level nearer where the subquery is none.
fn inward(expr: &mut Expr) {
    expr.visit_mut(&mut |own| {
        if let Expr::Outer { level, .. } = own {
            *level = level.saturating_sub(1);
        }
    });
}
