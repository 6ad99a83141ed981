//! The sign of a power: PostgreSQL's sign binds closer than `^`, the parser's does not.

use sqlparser::ast::{BinaryOperator, Expr as Ast, UnaryOperator};

/// `-a ^ b` as `(-a) ^ b`; `None` if a sign stands before something else.
pub(super) fn power_of_sign(op: &UnaryOperator, operand: &Ast) -> Option<Ast> {
    let is_sign = matches!(op, UnaryOperator::Minus | UnaryOperator::Plus);
    let is_power = matches!(operand, Ast::BinaryOp { op: BinaryOperator::PGExp, .. });
    if !is_sign || !is_power {
        return None;
    }
    let mut power = operand.clone();
    let mut base = &mut power;
    // The first of a chain has the sign.
    while let Ast::BinaryOp { left, op: BinaryOperator::PGExp, .. } = base {
        base = &mut **left;
    }
    let signed = Ast::UnaryOp { op: *op, expr: Box::new(base.clone()) };
    *base = signed;
    Some(power)
}
