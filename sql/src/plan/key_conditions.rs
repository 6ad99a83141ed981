//! What conditions say of the columns of a table, as far as keys can be made of it.
//!
//! A condition bounds a column if it compares it with a value that is known before a row is read.
//! The column may stand below a cast that keeps its order and makes no two values one, as those to
//! wider numbers do: the value then is of that other type, and the executor finds the value of the
//! column that it is, or those that it is between.
//!
//! Other conditions only bound the column from afar: `LIKE 'abc%'` leaves the texts that begin
//! like this, and a comparison with a moment leaves days. Those bound the key, and stay what a row
//! has to pass.

use super::access::is_key_expr;
use super::expr::{Comparison, Expr, Quantifier};
use super::node::{KeyBound, KeyExpr, KeyItem};
use crate::catalogue::TableDef;
use crate::functions::{like_end, like_parts_of_key, like_start, moment_bound};
use crate::types::cast::CastContext;
use crate::types::{Datum, Scalar, SqlType};

/// What conditions say of a column; with each the position of the condition, if nothing of it is
/// left to be looked at.
#[derive(Default)]
pub(super) struct ColumnConditions {
    /// Its value.
    pub(super) equal: Option<(KeyExpr, Option<usize>)>,
    pub(super) low: Option<(KeyBound, Option<usize>)>,
    pub(super) high: Option<(KeyBound, Option<usize>)>,
    /// One of these values.
    pub(super) one_of: Option<(Vec<KeyItem>, Option<usize>)>,
}

/// What conditions say of each column of a table.
pub(super) fn known_columns(table: &TableDef, conditions: &[Expr]) -> Vec<ColumnConditions> {
    let mut known: Vec<ColumnConditions> =
        table.columns.iter().map(|_| ColumnConditions::default()).collect();
    for (at, condition) in conditions.iter().enumerate() {
        if let Expr::Call { arguments, comparison: Some(comparison), .. } = condition
            && let [first, second] = &**arguments
        {
            let turned = comparison.turned();
            for (side, value, comparison) in [(first, second, *comparison), (second, first, turned)]
            {
                if is_key_expr(value) {
                    compared(table, &mut known, (side, value, comparison), at);
                }
            }
        } else if let Expr::Call { function, arguments, .. } = condition
            && &*function.name == "~~"
            && let [text, pattern] = &**arguments
        {
            like(table, &mut known, text, pattern);
        } else if let Some((column, values)) = one_of(table, condition)
            && let Some(own) = known.get_mut(column)
            && own.one_of.is_none()
        {
            own.one_of = Some((values, Some(at)));
        }
    }
    known
}

/// Notes a comparison with a value that is known.
fn compared(
    table: &TableDef,
    known: &mut [ColumnConditions],
    (side, value, comparison): (&Expr, &Expr, Comparison),
    at: usize,
) {
    let Some(column) = key_column(table, side) else {
        return compared_moment(known, side, (value, comparison));
    };
    let is_array = table.columns.get(column).is_none_or(|own| own.ty.is_array);
    // Keys have arrays in another order than they are compared in.
    if is_array && comparison != Comparison::Equal {
        return;
    }
    let Some(own) = known.get_mut(column) else { return };
    let bound = |inclusive| Some((KeyBound::new(value.clone(), inclusive), Some(at)));
    match comparison {
        Comparison::Equal if own.equal.is_none() => own.equal = Some((value.clone(), Some(at))),
        Comparison::Greater if own.low.is_none() => own.low = bound(false),
        Comparison::GreaterEqual if own.low.is_none() => own.low = bound(true),
        Comparison::Less if own.high.is_none() => own.high = bound(false),
        Comparison::LessEqual if own.high.is_none() => own.high = bound(true),
        _ => {}
    }
}

/// The column that an expression is, or is a faithful cast of.
pub(super) fn key_column(table: &TableDef, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(column) => {
            let ty = table.columns.get(*column)?.ty;
            has_one_key(ty).then_some(*column)
        }
        Expr::Cast { operand, from, to, context: _ } => match &**operand {
            Expr::Column(column) if keeps_order(*from, *to) => Some(*column),
            _ => None,
        },
        _ => None,
    }
}

/// Whether values that are equal have the same key. Keys have arrays as they are stored: elements
/// of these types may be equal and not the same, as 1.0 and 1.00.
const fn has_one_key(ty: SqlType) -> bool {
    !ty.is_array
        || !matches!(
            ty.scalar,
            Scalar::Float4
                | Scalar::Float8
                | Scalar::Numeric
                | Scalar::Interval
                | Scalar::Json
                | Scalar::Jsonb
        )
}

/// Whether a cast of any value of a column succeeds, keeps the order, and makes no two one.
pub(super) const fn keeps_order(from: SqlType, to: SqlType) -> bool {
    use Scalar::{Float4, Float8, Int2, Int4, Int8, Numeric};
    !from.is_array
        && !to.is_array
        && to.modifier < 0
        && matches!(
            (from.scalar, to.scalar),
            (Int2, Int4 | Int8 | Float4 | Float8 | Numeric)
                | (Int4, Int8 | Float8 | Numeric)
                | (Int8, Numeric)
                | (Float4, Float8)
        )
}

/// The type that the values are of which a side of an equation has; `None` if it is no column that
/// a key can be found by.
pub(super) fn key_type(table: &TableDef, expr: &Expr) -> Option<SqlType> {
    let column = key_column(table, expr)?;
    match expr {
        Expr::Cast { to, .. } => Some(*to),
        _ => table.columns.get(column).map(|own| own.ty),
    }
}

/// Notes a comparison of the moment that a column is with one that is known. The zone of the
/// session, and when it changes its offset, may make two moments one: all of it is looked at again.
fn compared_moment(
    known: &mut [ColumnConditions],
    side: &Expr,
    (value, comparison): (&Expr, Comparison),
) {
    use Scalar::{Date, Timestamp, TimestampTz};
    let Expr::Cast { operand, from, to, context: CastContext::Implicit } = side else { return };
    let Expr::Column(column) = **operand else { return };
    let is_moment = matches!(
        (from.scalar, to.scalar),
        (Date, Timestamp | TimestampTz) | (Timestamp, TimestampTz)
    );
    if !is_moment || from.is_array || to.is_array {
        return;
    }
    let Some(own) = known.get_mut(column) else { return };
    let bound = |is_low| {
        let (function, arguments) = (moment_bound(*to, *from, is_low), vec![value.clone()]);
        let value = Expr::Call { function: Box::new(function), arguments, comparison: None };
        Some((KeyBound { value, inclusive: true, is_open_if_null: true }, None))
    };
    let is_below = matches!(comparison, Comparison::Less | Comparison::LessEqual);
    let is_above = matches!(comparison, Comparison::Greater | Comparison::GreaterEqual);
    if !is_below && own.low.is_none() {
        own.low = bound(true);
    }
    if !is_above && own.high.is_none() {
        own.high = bound(false);
    }
}

/// Notes that a text begins like a pattern.
fn like(table: &TableDef, known: &mut [ColumnConditions], text: &Expr, pattern: &Expr) {
    let Some(column) = key_column(table, text).filter(|_| is_key_expr(pattern)) else { return };
    let Some(own) = known.get_mut(column) else { return };
    let call = |function| {
        let (function, arguments) = (Box::new(function), vec![pattern.clone()]);
        Expr::Call { function, arguments, comparison: None }
    };
    let (start, end) = match pattern {
        Expr::Const(Datum::Text(pattern)) => {
            let parts = like_parts_of_key(pattern);
            if parts.is_whole && own.equal.is_none() {
                own.equal = Some((Expr::Const(Datum::text(parts.start)), None));
                return;
            }
            // It may begin with anything.
            let Some(end) = parts.end else { return };
            (Expr::Const(Datum::text(parts.start)), Expr::Const(Datum::text(end)))
        }
        Expr::Const(_) => return,
        _ => (call(like_start()), call(like_end())),
    };
    if own.low.is_none() && own.high.is_none() {
        own.low = Some((KeyBound::new(start, true), None));
        own.high = Some((KeyBound { value: end, inclusive: false, is_open_if_null: true }, None));
    }
}

/// The values of which a column has to be one for a condition to be true, if that is all of it.
fn one_of(table: &TableDef, condition: &Expr) -> Option<(usize, Vec<KeyItem>)> {
    match condition {
        Expr::Call { arguments, comparison: Some(Comparison::Equal), .. } => {
            let [first, second] = &**arguments else { return None };
            let found = |side, value| key_column(table, side).filter(|_| is_key_expr(value));
            let (column, value) = match found(first, second) {
                Some(column) => (column, second),
                None => (found(second, first)?, first),
            };
            Some((column, vec![KeyItem::One(value.clone())]))
        }
        Expr::InList { operand, list, equal, negated: false } => {
            let column = key_column(table, operand)?;
            let is_known =
                Comparison::of(equal) == Some(Comparison::Equal) && list.iter().all(is_key_expr);
            is_known.then(|| (column, list.iter().cloned().map(KeyItem::One).collect()))
        }
        Expr::Quantified { operand, operator, array, quantifier: Quantifier::Any } => {
            let column = key_column(table, operand)?;
            let is_known =
                Comparison::of(operator) == Some(Comparison::Equal) && is_key_expr(array);
            is_known.then(|| (column, vec![KeyItem::Elements((**array).clone())]))
        }
        Expr::Or(parts) => {
            let mut all: Option<(usize, Vec<KeyItem>)> = None;
            for part in parts {
                let (column, values) = one_of(table, part)?;
                match &mut all {
                    None => all = Some((column, values)),
                    Some((own, all)) if *own == column => all.extend(values),
                    Some(_) => return None,
                }
            }
            all
        }
        _ => None,
    }
}
