//! Long lists of conditions. `a OR b OR c ...` is parsed as a tree that is as deep as the list is
//! long: `((a OR b) OR c) ...`. OR and AND are associative, also where something is NULL, so a long
//! list can be a tree that is nowhere deep, of the same conditions in the same order.

use std::mem;
use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, Expr, Statement, Value, VisitMut, VisitorMut};

/// Longest part of a list that stays as it was parsed.
pub(crate) const MAX_LEFT_DEEP: usize = 16;

/// Makes trees of long lists less deep.
pub(crate) fn balance(statements: &mut [Statement]) {
    for statement in statements {
        let _ = statement.visit(&mut Balance);
    }
}

struct Balance;

impl VisitorMut for Balance {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if length(expr) > 2 * MAX_LEFT_DEEP {
            balance_list(expr);
        }
        ControlFlow::Continue(())
    }
}

/// How many conditions the list has that an expression is.
fn length(expr: &Expr) -> usize {
    let Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } = expr else {
        return 1;
    };
    let (mut rest, mut length) = (expr, 1);
    while let Expr::BinaryOp { left, op: own, .. } = rest
        && own == op
    {
        (rest, length) = (&**left, length + 1);
    }
    length
}

fn balance_list(expr: &mut Expr) {
    let Expr::BinaryOp { op, .. } = expr else { return };
    let op = op.clone();
    let mut rest = mem::replace(expr, Expr::value(Value::Null));
    let mut conditions = Vec::new();
    loop {
        match rest {
            Expr::BinaryOp { left, op: own, right } if own == op => {
                conditions.push(*right);
                rest = *left;
            }
            first => {
                conditions.push(first);
                break;
            }
        }
    }
    conditions.reverse();
    if let Some(joined) = join(conditions, &op) {
        *expr = joined;
    }
}

/// One expression of conditions, of which there is one at least.
fn join(mut conditions: Vec<Expr>, op: &BinaryOperator) -> Option<Expr> {
    let both = |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    };
    if conditions.len() <= MAX_LEFT_DEEP {
        return conditions.into_iter().reduce(both);
    }
    let right = conditions.split_off(conditions.len() / 2);
    Some(both(join(conditions, op)?, join(right, op)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 1,
        }
    }

    /// The greatest depth of the expressions of a text, and what it is as text again.
    fn parsed(sql: &str) -> (usize, String) {
        struct Deepest(usize);
        impl VisitorMut for Deepest {
            type Break = ();
            fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
                self.0 = self.0.max(depth(expr));
                ControlFlow::Continue(())
            }
        }
        let mut statements = parse(sql).unwrap();
        let mut deepest = Deepest(0);
        for own in &mut statements {
            let _ = own.visit(&mut deepest);
        }
        (deepest.0, statements.first().unwrap().to_string())
    }

    #[test]
    fn long_lists_are_not_deep_and_stay_as_they_were_written() {
        for length in [1, 2, 32, 64, 65, 100, 1_000, 9_000] {
            for word in [" AND ", " OR "] {
                let conditions: Vec<_> = (0..length).map(|at| format!("a > {at}")).collect();
                let sql = format!("SELECT * FROM t WHERE {}", conditions.join(word));
                let (depth, text) = parsed(&sql);
                assert_eq!(text, sql);
                assert!(depth <= 2 * MAX_LEFT_DEEP + 2, "{depth} of {length}");
            }
        }
    }

    #[test]
    fn lists_within_lists_are_balanced_too() {
        let inner = vec!["b AND c"; 60].join(" AND ");
        let sql = format!("SELECT 1 WHERE {}", vec![&*inner; 80].join(" OR "));
        let (depth, text) = parsed(&sql);
        assert_eq!(text, sql);
        assert!(depth <= 4 * MAX_LEFT_DEEP, "{depth}");
    }
}
