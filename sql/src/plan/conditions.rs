//! Conditions taken apart and put together.

use super::expr::{Comparison, Expr};
use crate::types::Datum;

/// The parts of a condition that all have to hold.
pub(super) fn conjuncts(condition: Expr, all: &mut Vec<Expr>) {
    match condition {
        Expr::And(parts) => parts.into_iter().for_each(|part| conjuncts(part, all)),
        Expr::Const(Datum::Bool(true)) => {}
        condition => all.push(condition),
    }
}

pub(super) fn all_of(mut conditions: Vec<Expr>) -> Option<Expr> {
    match conditions.len() {
        0 => None,
        1 => conditions.pop(),
        _ => Some(Expr::And(conditions)),
    }
}

/// Moves columns by so many places to the left.
pub(super) fn shifted(mut expr: Expr, by: usize) -> Expr {
    expr.visit_mut(&mut |own| {
        if let Expr::Column(column) = own {
            *column -= by;
        }
    });
    expr
}

/// The sides of an equation of something of the left with something of the right.
pub(super) fn equal_sides(condition: &Expr, left_width: usize) -> Option<(Expr, Expr)> {
    let Expr::Call { arguments, comparison: Some(Comparison::Equal), .. } = condition else {
        return None;
    };
    let [first, second] = &**arguments else { return None };
    let is_left = |own: &Expr| {
        let columns = own.columns();
        !columns.is_empty() && columns.iter().all(|column| *column < left_width)
    };
    let is_right = |own: &Expr| {
        let columns = own.columns();
        !columns.is_empty() && columns.iter().all(|column| *column >= left_width)
    };
    match () {
        () if is_left(first) && is_right(second) => {
            Some((first.clone(), shifted(second.clone(), left_width)))
        }
        () if is_right(first) && is_left(second) => {
            Some((second.clone(), shifted(first.clone(), left_width)))
        }
        () => None,
    }
}
