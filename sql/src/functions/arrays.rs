//! Functions of arrays.

use std::sync::Arc;

use super::CallContext;
use super::arguments::{argument, array, text, whole};
use super::signature::{Body, Table, Types};
use super::strings::check_length;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::limits::check_count;
use crate::types::order::compare;
use crate::types::text_format::to_string;
use crate::types::{Array, Datum, Scalar};

/// An array of one dimension.
pub(super) fn of_elements(element: Scalar, elements: Vec<Datum>) -> Datum {
    let dimensions = if elements.is_empty() { Vec::new() } else { vec![(elements.len(), 1)] };
    Datum::Array(Arc::new(Array { element, dimensions, elements }))
}

/// An array of texts.
pub(super) fn text_array(elements: Vec<Datum>) -> Datum {
    of_elements(Scalar::Text, elements)
}

/// The parts of a text between delimiters, or its characters if the delimiter is NULL. A part that
/// is `null` becomes NULL.
pub(super) fn split(
    value: &str,
    delimiter: Option<&str>,
    null: Option<&str>,
) -> SqlResult<Vec<Datum>> {
    let mut parts = Vec::new();
    let mut add = |part: &str| -> SqlResult<()> {
        check_count(parts.len())?;
        parts.push(if Some(part) == null { Datum::Null } else { Datum::text(part) });
        Ok(())
    };
    match delimiter {
        _ if value.is_empty() => {}
        None => value.chars().try_for_each(|c| add(c.encode_utf8(&mut [0; 4])))?,
        Some("") => add(value)?,
        Some(delimiter) => value.split(delimiter).try_for_each(add)?,
    }
    Ok(parts)
}

fn optional_array(values: &[Datum], at: usize) -> SqlResult<Option<&Arc<Array>>> {
    if argument(values, at).is_null() { Ok(None) } else { array(values, at).map(Some) }
}

fn length(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The length and the first index of a dimension, counted from 1.
fn dimension(values: &[Datum]) -> SqlResult<Option<(usize, i32)>> {
    let array = array(values, 0)?;
    let at = usize::try_from(whole(values, 1)?).ok().and_then(|at| at.checked_sub(1));
    Ok(at.and_then(|at| array.dimensions.get(at).copied()))
}

fn incompatible() -> SqlError {
    // PostgreSQL's code is 2202E, which is one of invalid parameters of arrays.
    SqlError::new(SqlState::INVALID_PARAMETER, "cannot concatenate incompatible arrays")
}

/// One array behind another. NULL counts as an empty array.
fn concatenate(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (a, b) = (optional_array(values, 0)?, optional_array(values, 1)?);
    let (a, b) = match (a, b) {
        (None, None) => return Ok(Datum::Null),
        (Some(one), None) | (None, Some(one)) => return Ok(Datum::Array(Arc::clone(one))),
        (Some(empty), Some(other)) | (Some(other), Some(empty)) if empty.dimensions.is_empty() => {
            return Ok(Datum::Array(Arc::clone(other)));
        }
        (Some(a), Some(b)) => (a, b),
    };
    let lengths = |dimensions: &[(usize, i32)]| -> Vec<usize> {
        dimensions.iter().map(|(length, _)| *length).collect()
    };
    let (a_lengths, b_lengths) = (lengths(&a.dimensions), lengths(&b.dimensions));
    let mut dimensions;
    if a_lengths.len() == b_lengths.len() && a_lengths.get(1..) == b_lengths.get(1..) {
        dimensions = a.dimensions.clone();
        let more = b_lengths.first().copied().unwrap_or(0);
        if let Some(first) = dimensions.first_mut() {
            first.0 += more;
        }
    } else if a_lengths.get(1..) == Some(&b_lengths) {
        dimensions = a.dimensions.clone();
        if let Some(first) = dimensions.first_mut() {
            first.0 += 1;
        }
    } else if b_lengths.get(1..) == Some(&a_lengths) {
        dimensions = b.dimensions.clone();
        if let Some(first) = dimensions.first_mut() {
            first.0 += 1;
        }
    } else {
        return Err(incompatible());
    }
    check_count(a.elements.len().saturating_add(b.elements.len()).saturating_sub(1))?;
    let elements = a.elements.iter().chain(&b.elements).cloned().collect();
    Ok(Datum::Array(Arc::new(Array { element: a.element, dimensions, elements })))
}

/// An array with one more element at an end.
fn extended(
    types: &Types,
    existing: Option<&Arc<Array>>,
    value: &Datum,
    at_end: bool,
) -> SqlResult<Datum> {
    let Some(array) = existing.filter(|array| !array.dimensions.is_empty()) else {
        return Ok(of_elements(types.returns.scalar, vec![value.clone()]));
    };
    let &[(count, first)] = array.dimensions.as_slice() else {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            "argument must be empty or one-dimensional array",
        ));
    };
    check_count(count)?;
    let mut elements = Vec::with_capacity(count + 1);
    if !at_end {
        elements.push(value.clone());
    }
    elements.extend(array.elements.iter().cloned());
    if at_end {
        elements.push(value.clone());
    }
    let dimensions = vec![(count + 1, first)];
    Ok(Datum::Array(Arc::new(Array { element: array.element, dimensions, elements })))
}

fn append(types: &Types, values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    extended(types, optional_array(values, 0)?, argument(values, 1), true)
}

fn prepend(types: &Types, values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    extended(types, optional_array(values, 1)?, argument(values, 0), false)
}

fn same(a: &Datum, b: &Datum) -> bool {
    compare(a, b).is_eq()
}

/// Steps that a comparison of two elements takes, about.
const COMPARISON_STEPS: usize = 8;

/// Whether a value is an element of an array; NULL is of none.
fn has(array: &Array, value: &Datum, context: &CallContext<'_>) -> SqlResult<bool> {
    context.interrupts.after(array.elements.len().saturating_mul(COMPARISON_STEPS))?;
    Ok(!value.is_null() && array.elements.iter().any(|other| same(value, other)))
}

/// Whether each element of one array is in the other.
fn contains(whole: &Array, part: &Array, context: &CallContext<'_>) -> SqlResult<Datum> {
    for value in &part.elements {
        if !has(whole, value, context)? {
            return Ok(Datum::Bool(false));
        }
    }
    Ok(Datum::Bool(true))
}

/// Whether an element of one array is in the other.
fn overlap(left: &Array, right: &Array, context: &CallContext<'_>) -> SqlResult<Datum> {
    for value in &left.elements {
        if has(right, value, context)? {
            return Ok(Datum::Bool(true));
        }
    }
    Ok(Datum::Bool(false))
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    table.add("||", "lax anyarray anyarray -> anyarray", concatenate);
    table.add_typed("||", "lax anyarray anynonarray -> anyarray", append);
    table.add_typed("||", "lax anynonarray anyarray -> anyarray", prepend);
    let signature = "anyarray anyarray -> bool";
    table.add("@>", signature, |v, context| contains(array(v, 0)?, array(v, 1)?, context));
    table.add("<@", signature, |v, context| contains(array(v, 1)?, array(v, 0)?, context));
    table.add("&&", signature, |v, context| overlap(array(v, 0)?, array(v, 1)?, context));
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    table.add("array_cat", "lax anyarray anyarray -> anyarray", concatenate);
    table.add_typed("array_append", "lax anyarray anynonarray -> anyarray", append);
    table.add_typed("array_prepend", "lax anynonarray anyarray -> anyarray", prepend);
    table.add("array_length", "anyarray int4 -> int4", |v, _| {
        Ok(dimension(v)?.map_or(Datum::Null, |(count, _)| Datum::I32(length(count))))
    });
    table.add("array_lower", "anyarray int4 -> int4", |v, _| {
        Ok(dimension(v)?.map_or(Datum::Null, |(_, first)| Datum::I32(first)))
    });
    table.add("array_upper", "anyarray int4 -> int4", |v, _| {
        let last = |(count, first): (usize, i32)| first.saturating_add(length(count) - 1);
        Ok(dimension(v)?.map_or(Datum::Null, |found| Datum::I32(last(found))))
    });
    table.add("array_ndims", "anyarray -> int4", |v, _| {
        let count = array(v, 0)?.dimensions.len();
        Ok(if count == 0 { Datum::Null } else { Datum::I32(length(count)) })
    });
    table.add("array_dims", "anyarray -> text", |v, _| {
        let dimensions = &array(v, 0)?.dimensions;
        let shown = |&(count, first): &(usize, i32)| {
            format!("[{first}:{}]", i64::from(first) + count as i64 - 1)
        };
        let all: String = dimensions.iter().map(shown).collect();
        Ok(if all.is_empty() { Datum::Null } else { Datum::text(all) })
    });
    table.add("cardinality", "anyarray -> int4", |v, _| {
        Ok(Datum::I32(length(array(v, 0)?.elements.len())))
    });
    for signature in ["lax anyarray anynonarray -> int4", "lax anyarray anynonarray int4 -> int4"] {
        table.add("array_position", signature, position);
    }
    table.add("array_positions", "lax anyarray anynonarray -> int4[]", |v, _| {
        let Some(array) = optional_array(v, 0)? else { return Ok(Datum::Null) };
        let wanted = argument(v, 1);
        let found = array.elements.iter().zip(1..).filter(|(value, _)| same(value, wanted));
        Ok(of_elements(Scalar::Int4, found.map(|(_, at)| Datum::I32(at)).collect()))
    });
    table.add("array_remove", "lax anyarray anynonarray -> anyarray", |v, _| {
        let Some(array) = optional_array(v, 0)? else { return Ok(Datum::Null) };
        if array.dimensions.len() > 1 {
            return Err(SqlError::unsupported("removing elements from multidimensional arrays"));
        }
        let wanted = argument(v, 1);
        let kept = array.elements.iter().filter(|value| !same(value, wanted)).cloned().collect();
        Ok(of_elements(array.element, kept))
    });
    table.add("array_replace", "lax anyarray anynonarray anynonarray -> anyarray", |v, _| {
        let Some(array) = optional_array(v, 0)? else { return Ok(Datum::Null) };
        let (from, to) = (argument(v, 1), argument(v, 2));
        let replaced = |value: &Datum| if same(value, from) { to.clone() } else { value.clone() };
        let elements = array.elements.iter().map(replaced).collect();
        let dimensions = array.dimensions.clone();
        Ok(Datum::Array(Arc::new(Array { element: array.element, dimensions, elements })))
    });
    register_texts(table);
}

fn position(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let Some(array) = optional_array(values, 0)? else { return Ok(Datum::Null) };
    if array.dimensions.len() > 1 {
        return Err(SqlError::unsupported("searching for elements in multidimensional arrays"));
    }
    let first = array.dimensions.first().map_or(1, |(_, first)| *first);
    let start = match argument(values, 2) {
        Datum::Null => first,
        _ => i32::try_from(whole(values, 2)?).unwrap_or(i32::MAX),
    };
    let wanted = argument(values, 1);
    let mut indexed = array.elements.iter().zip(first..);
    let found = indexed.find(|(value, at)| *at >= start && same(value, wanted));
    Ok(found.map_or(Datum::Null, |(_, at)| Datum::I32(at)))
}

fn register_texts(table: &mut Table<Body>) {
    for signature in ["lax text text -> text[]", "lax text text text -> text[]"] {
        table.add("string_to_array", signature, |v, _| {
            let optional = |at| match argument(v, at) {
                Datum::Null => Ok(None),
                _ => text(v, at).map(Some),
            };
            let Some(value) = optional(0)? else { return Ok(Datum::Null) };
            split(value, optional(1)?, optional(2)?).map(text_array)
        });
    }
    for signature in ["lax stable anyarray text -> text", "lax stable anyarray text text -> text"] {
        table.add_typed("array_to_string", signature, |types, v, context| {
            if argument(v, 0).is_null() || argument(v, 1).is_null() {
                return Ok(Datum::Null);
            }
            let null = match argument(v, 2) {
                Datum::Null => None,
                _ => Some(text(v, 2)?.to_owned()),
            };
            let element = types.argument(0).element();
            let shown = |value: &Datum| match value {
                Datum::Null => null.clone(),
                value => Some(to_string(value, element, context.settings)),
            };
            let (array, between) = (array(v, 0)?, text(v, 1)?);
            let mut out: Option<String> = None;
            for part in array.elements.iter().filter_map(shown) {
                let length = out.as_ref().map_or(0, String::len).saturating_add(between.len());
                check_length(length, part.len())?;
                context.interrupts.after(part.len())?;
                match &mut out {
                    Some(out) => out.extend([between, &part]),
                    none => *none = Some(part),
                }
            }
            Ok(Datum::text(out.unwrap_or_default()))
        });
    }
}
