//! The values of expressions, with the three-valued logic of SQL.

use std::sync::Arc;

use super::memory::datum_bytes;
use super::row_key::is_same;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{CallContext, MAX_BYTES, Resolved, too_long};
use crate::plan::{Branch, Expr, Quantifier};
use crate::types::limits::check_count;
use crate::types::{Array, Datum, Record, SqlType, cast, order};

/// What expressions are evaluated in.
pub(crate) struct EvalContext<'a> {
    pub(crate) call: &'a CallContext<'a>,
    pub(crate) parameters: &'a [Datum],
    /// Rows of enclosing queries, the innermost last.
    pub(crate) outer: &'a [Vec<Datum>],
}

/// The value of an expression over a row. The depth of expressions is bounded by the parser.
#[recursive::recursive]
pub(crate) fn eval(expr: &Expr, row: &[Datum], context: &EvalContext<'_>) -> SqlResult<Datum> {
    match expr {
        Expr::Const(value) => Ok(value.clone()),
        Expr::Param(number) => parameter(*number, context),
        Expr::Column(column) => row.get(*column).cloned().ok_or_else(|| no_column(*column)),
        Expr::Outer { level, column } => outer_column(*level, *column, context),
        Expr::Call { function, arguments, comparison: _ } => {
            call_with(function, arguments, row, context)
        }
        Expr::Cast { operand, from, to, context: kind } => {
            let value = eval(operand, row, context)?;
            if value.is_null() {
                return Ok(value);
            }
            context.call.interrupts.after(steps_of(&value))?;
            let value = cast::cast(value, *from, *to, *kind, context.call.settings)?;
            check_size(&value, context)?;
            Ok(value)
        }
        Expr::And(all) => junction(all, false, row, context),
        Expr::Or(all) => junction(all, true, row, context),
        Expr::Not(operand) => Ok(match eval(operand, row, context)? {
            Datum::Bool(value) => Datum::Bool(!value),
            other => other,
        }),
        Expr::IsNull { operand, negated } => {
            Ok(Datum::Bool(is_null(&eval(operand, row, context)?, *negated)))
        }
        Expr::IsBool { operand, value, negated } => {
            let is = matches!(eval(operand, row, context)?, Datum::Bool(own) if own == *value);
            Ok(Datum::Bool(is != *negated))
        }
        Expr::IsDistinct { left, right, negated } => {
            let (left, right) = (eval(left, row, context)?, eval(right, row, context)?);
            Ok(Datum::Bool(is_same(&left, &right) == *negated))
        }
        Expr::Case { branches, otherwise } => case(branches, otherwise.as_deref(), row, context),
        Expr::Coalesce(all) => coalesce(all, row, context),
        Expr::Extreme { operands, greatest } => extreme(operands, *greatest, row, context),
        Expr::InList { operand, list, equal, negated } => {
            in_list((operand, list), equal, *negated, row, context)
        }
        Expr::Quantified { operand, operator, array, quantifier } => {
            let operand = eval(operand, row, context)?;
            let array = eval(array, row, context)?;
            quantified(&operand, operator, &array, *quantifier, context)
        }
        Expr::Array { elements, element } => {
            let values = elements.iter().map(|expr| eval(expr, row, context));
            make_array(values.collect::<SqlResult<_>>()?, *element)
        }
        Expr::Element { array, indexes } => {
            let array = eval(array, row, context)?;
            let indexes = indexes.iter().map(|expr| eval(expr, row, context));
            element(&array, &indexes.collect::<SqlResult<Vec<_>>>()?)
        }
        Expr::Row { values, fields } => {
            let values = values.iter().map(|expr| eval(expr, row, context));
            let (values, fields) = (values.collect::<SqlResult<_>>()?, Arc::clone(fields));
            Ok(Datum::Record(Arc::new(Record { values, fields })))
        }
    }
}

fn no_column(column: usize) -> SqlError {
    SqlError::internal(format!("an expression reads column {column}, which its row does not have"))
}

fn parameter(number: usize, context: &EvalContext<'_>) -> SqlResult<Datum> {
    context.parameters.get(number).cloned().ok_or_else(|| {
        let message = format!("there is no parameter ${}", number.saturating_add(1));
        SqlError::new(SqlState::UNDEFINED_PARAMETER, message)
    })
}

fn outer_column(level: usize, column: usize, context: &EvalContext<'_>) -> SqlResult<Datum> {
    let at = context.outer.len().checked_sub(level.saturating_add(1));
    let row = at.and_then(|at| context.outer.get(at));
    row.and_then(|row| row.get(column)).cloned().ok_or_else(|| no_column(column))
}

/// A strict function is not called with NULL.
fn call_with(
    function: &Resolved,
    arguments: &[Expr],
    row: &[Datum],
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let value = eval(argument, row, context)?;
        if function.is_strict && value.is_null() {
            return Ok(Datum::Null);
        }
        values.push(value);
    }
    call(function, &values, context)
}

fn case(
    branches: &[Branch],
    otherwise: Option<&Expr>,
    row: &[Datum],
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    for Branch { condition, result } in branches {
        if matches!(eval(condition, row, context)?, Datum::Bool(true)) {
            return eval(result, row, context);
        }
    }
    otherwise.map_or(Ok(Datum::Null), |expr| eval(expr, row, context))
}

fn coalesce(all: &[Expr], row: &[Datum], context: &EvalContext<'_>) -> SqlResult<Datum> {
    for expr in all {
        let value = eval(expr, row, context)?;
        if !value.is_null() {
            return Ok(value);
        }
    }
    Ok(Datum::Null)
}

/// Steps that a look at an element of an array takes, about.
const ELEMENT_STEPS: usize = 8;

/// Functions count steps that are more than a pass over their arguments.
fn call(function: &Resolved, values: &[Datum], context: &EvalContext<'_>) -> SqlResult<Datum> {
    let steps = values.iter().fold(1_usize, |sum, value| sum.saturating_add(steps_of(value)));
    context.call.interrupts.after(steps)?;
    let value = (function.eval)(values, context.call)?;
    check_size(&value, context)?;
    Ok(value)
}

/// Steps that a pass over a value takes.
fn steps_of(value: &Datum) -> usize {
    match value {
        Datum::Array(array) => array.elements.len().saturating_mul(ELEMENT_STEPS),
        other => text_bytes(other),
    }
}

fn text_bytes(value: &Datum) -> usize {
    match value {
        Datum::Text(text) | Datum::Json(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

/// What functions make longer by some times at most, they do not look at themselves.
fn check_size(value: &Datum, context: &EvalContext<'_>) -> SqlResult<()> {
    let bytes = match value {
        // Its elements are bounded by their number.
        Datum::Array(_) => datum_bytes(value),
        other => match text_bytes(other) {
            bytes @ 0..=MAX_BYTES => bytes,
            _ => return Err(too_long()),
        },
    };
    context.call.large_values.made(bytes)
}

/// AND and OR: the first operand of value `decisive` decides; NULL if none does and one is NULL.
fn junction(
    operands: &[Expr],
    decisive: bool,
    row: &[Datum],
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    let mut outcome = Datum::Bool(!decisive);
    for operand in operands {
        match eval(operand, row, context)? {
            Datum::Bool(value) if value == decisive => return Ok(Datum::Bool(decisive)),
            Datum::Null => outcome = Datum::Null,
            _ => {}
        }
    }
    Ok(outcome)
}

/// A row is NULL if all of its fields are, and is not NULL if none is: neither may hold.
fn is_null(value: &Datum, negated: bool) -> bool {
    match value {
        Datum::Record(own) => own.values.iter().all(|field| field.is_null() != negated),
        value => value.is_null() != negated,
    }
}

fn extreme(
    operands: &[Expr],
    greatest: bool,
    row: &[Datum],
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    let mut best = Datum::Null;
    for operand in operands {
        let value = eval(operand, row, context)?;
        if value.is_null() {
            continue;
        }
        let is_better = best.is_null() || {
            let order = order::compare(&value, &best);
            if greatest { order.is_gt() } else { order.is_lt() }
        };
        if is_better {
            best = value;
        }
    }
    Ok(best)
}

fn in_list(
    (operand, list): (&Expr, &[Expr]),
    equal: &Resolved,
    negated: bool,
    row: &[Datum],
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    let operand = eval(operand, row, context)?;
    if operand.is_null() && equal.is_strict {
        return Ok(if list.is_empty() { Datum::Bool(negated) } else { Datum::Null });
    }
    let mut outcome = Datum::Bool(negated);
    let mut pair = [operand, Datum::Null];
    for expr in list {
        let value = eval(expr, row, context)?;
        if value.is_null() && equal.is_strict {
            outcome = Datum::Null;
            continue;
        }
        let [_, second] = &mut pair;
        *second = value;
        match call(equal, &pair, context)? {
            Datum::Bool(true) => return Ok(Datum::Bool(!negated)),
            Datum::Null => outcome = Datum::Null,
            _ => {}
        }
    }
    Ok(outcome)
}

/// A NULL array gives NULL, an empty one decides even for a NULL operand.
fn quantified(
    operand: &Datum,
    operator: &Resolved,
    array: &Datum,
    quantifier: Quantifier,
    context: &EvalContext<'_>,
) -> SqlResult<Datum> {
    let Datum::Array(array) = array else { return Ok(Datum::Null) };
    let decisive = quantifier == Quantifier::Any;
    let mut outcome = Datum::Bool(!decisive);
    if array.elements.is_empty() {
        return Ok(outcome);
    }
    if operand.is_null() && operator.is_strict {
        return Ok(Datum::Null);
    }
    let mut pair = [operand.clone(), Datum::Null];
    for element in &array.elements {
        if element.is_null() && operator.is_strict {
            outcome = Datum::Null;
            continue;
        }
        let [_, second] = &mut pair;
        *second = element.clone();
        match call(operator, &pair, context)? {
            Datum::Bool(value) if value == decisive => return Ok(Datum::Bool(decisive)),
            Datum::Null => outcome = Datum::Null,
            _ => {}
        }
    }
    Ok(outcome)
}

/// An array of these elements. Elements that are arrays make one of a dimension more.
pub(crate) fn make_array(elements: Vec<Datum>, element: SqlType) -> SqlResult<Datum> {
    if !element.is_array {
        let dimensions = if elements.is_empty() { Vec::new() } else { vec![(elements.len(), 1)] };
        let array = Array { element: element.scalar, dimensions, elements };
        return Ok(Datum::Array(Arc::new(array)));
    }
    let parts = elements.iter().map(|part| match part {
        Datum::Array(part) => Some(&**part),
        _ => None,
    });
    let mut inner: Option<&[(usize, i32)]> = None;
    let (mut count, mut all) = (0, Vec::new());
    for part in parts {
        let dimensions = part.map_or(&[][..], |part| &part.dimensions);
        if inner.is_some_and(|inner| inner != dimensions) {
            let message = "multidimensional arrays must have array expressions with matching \
                           dimensions";
            return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, message));
        }
        inner = Some(dimensions);
        count += 1;
        check_count(all.len())?;
        all.extend(part.iter().flat_map(|part| part.elements.iter().cloned()));
    }
    let inner = inner.unwrap_or_default();
    let dimensions = if inner.is_empty() {
        Vec::new()
    } else {
        std::iter::once((count, 1)).chain(inner.iter().copied()).collect()
    };
    Ok(Datum::Array(Arc::new(Array { element: element.scalar, dimensions, elements: all })))
}

/// NULL if an index is NULL or outside, or if there are not as many as dimensions.
fn element(array: &Datum, indexes: &[Datum]) -> SqlResult<Datum> {
    let Datum::Array(array) = array else { return Ok(Datum::Null) };
    if array.dimensions.len() != indexes.len() {
        return Ok(Datum::Null);
    }
    let mut at = 0_usize;
    for (index, (length, first)) in indexes.iter().zip(&array.dimensions) {
        let index = match index {
            Datum::I16(index) => i64::from(*index),
            Datum::I32(index) => i64::from(*index),
            Datum::I64(index) => *index,
            _ => return Ok(Datum::Null),
        };
        let offset = index.checked_sub(i64::from(*first)).and_then(|own| usize::try_from(own).ok());
        match offset.filter(|offset| offset < length) {
            Some(offset) => at = at.saturating_mul(*length).saturating_add(offset),
            None => return Ok(Datum::Null),
        }
    }
    Ok(array.elements.get(at).cloned().unwrap_or(Datum::Null))
}
