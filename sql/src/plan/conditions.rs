//! Conditions taken apart and put together.

use super::expr::{Comparison, Expr};
use super::key_conditions::keeps_order;
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

/// Whether a condition has a value for any row, and the same for rows that are equal: it is made of
/// comparisons.
pub(super) fn only_compares(condition: &Expr) -> bool {
    let mut only = true;
    condition.visit(&mut |own| {
        only = only
            && match own {
                Expr::Const(_)
                | Expr::Param(_)
                | Expr::Column(_)
                | Expr::Outer { .. }
                | Expr::And(_)
                | Expr::Or(_)
                | Expr::Not(_)
                | Expr::IsNull { .. }
                | Expr::IsBool { .. }
                | Expr::IsDistinct { .. } => true,
                Expr::Call { comparison, .. } => comparison.is_some(),
                Expr::InList { equal, .. } => Comparison::of(equal) == Some(Comparison::Equal),
                Expr::Cast { from, to, .. } => keeps_order(*from, *to),
                _ => false,
            };
    });
    only
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
