//! Arrays that are made of one value, and arrays that are cut.

use std::sync::Arc;

use super::arguments::{argument, array, whole};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{Array, Datum, Scalar};

/// Most dimensions of an array.
const MAX_DIMENSIONS: usize = 6;
/// Most elements of an array that is filled: they are made at once, of some 32 bytes each.
const MAX_FILLED: usize = 1 << 22;

fn subscript_error(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::ARRAY_SUBSCRIPT, message)
}

/// Numbers for each dimension, of an array of one dimension without NULL.
fn numbers(values: &[Datum], at: usize, what: &str) -> SqlResult<Vec<i64>> {
    if argument(values, at).is_null() {
        let message = "dimension array or low bound array cannot be null";
        return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    }
    let given = array(values, at)?;
    if given.dimensions.len() > 1 {
        let detail = format!("{what} array must be one dimensional.");
        return Err(subscript_error("wrong number of array subscripts").detail(detail));
    }
    let null =
        || SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null");
    let number = |at| match given.elements.get(at) {
        Some(Datum::Null) => Err(null()),
        _ => whole(&given.elements, at),
    };
    (0..given.elements.len()).map(number).collect()
}

/// An array with a value at each place.
fn filled(types: &Types, values: &[Datum]) -> SqlResult<Datum> {
    let lengths = numbers(values, 1, "Dimension")?;
    let firsts = match values.len() {
        0..=2 => vec![1; lengths.len()],
        _ => numbers(values, 2, "Low bound")?,
    };
    if lengths.len() > MAX_DIMENSIONS {
        let message = format!(
            "number of array dimensions ({}) exceeds the maximum allowed ({MAX_DIMENSIONS})",
            lengths.len()
        );
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    if firsts.len() != lengths.len() {
        let detail = "Low bound array has different size than dimensions array.";
        return Err(subscript_error("wrong number of array subscripts").detail(detail));
    }
    let too_large = || {
        let message = format!("array size exceeds the maximum allowed ({MAX_FILLED})");
        SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
    };
    let (mut dimensions, mut count) = (Vec::new(), 1usize);
    for (length, first) in lengths.into_iter().zip(firsts) {
        let length = usize::try_from(length).map_err(|_| too_large())?;
        let first = i32::try_from(first).map_err(|_| too_large())?;
        count = count.checked_mul(length).filter(|all| *all <= MAX_FILLED).ok_or_else(too_large)?;
        dimensions.push((length, first));
    }
    if dimensions.is_empty() || count == 0 {
        (dimensions, count) = (Vec::new(), 0);
    }
    let element = types.returns.scalar;
    let elements = vec![argument(values, 0).clone(); count];
    Ok(Datum::Array(Arc::new(Array { element, dimensions, elements })))
}

/// An array without its last elements, in its first dimension.
fn trimmed(values: &[Datum]) -> SqlResult<Datum> {
    let (given, count) = (array(values, 0)?, whole(values, 1)?);
    let (length, rest) = match given.dimensions.split_first() {
        Some((&(length, _), rest)) => (length, rest),
        None => (0, &[][..]),
    };
    let kept = usize::try_from(count).ok().and_then(|count| length.checked_sub(count));
    let Some(kept) = kept else {
        let message = format!("number of elements to trim must be between 0 and {length}");
        return Err(subscript_error(message));
    };
    let each: usize = rest.iter().map(|(length, _)| *length).product();
    let elements: Vec<Datum> = given.elements.iter().take(kept * each).cloned().collect();
    // As of a slice, its numbers begin with 1.
    let all = std::iter::once(kept).chain(rest.iter().map(|(length, _)| *length));
    let dimensions =
        if elements.is_empty() { Vec::new() } else { all.map(|own| (own, 1)).collect() };
    let element: Scalar = given.element;
    Ok(Datum::Array(Arc::new(Array { element, dimensions, elements })))
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for signature in
        ["lax anynonarray int4[] -> anyarray", "lax anynonarray int4[] int4[] -> anyarray"]
    {
        table.add_typed("array_fill", signature, |types, v, _| filled(types, v));
    }
    table.add("trim_array", "anyarray int4 -> anyarray", |v, _| trimmed(v));
}
