//! Objects of JSON that are made of arrays of texts, and arrays as JSON of several lines.

use super::CallContext;
use super::arguments::{array, boolean};
use super::documents::{of_text, print_json};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{Array, Datum, json};

fn uneven(message: &str) -> SqlError {
    SqlError::new(SqlState::ARRAY_SUBSCRIPT, message)
}

/// An object with these members.
fn object<'a>(
    types: &Types,
    members: impl Iterator<Item = (&'a Datum, &'a Datum)>,
) -> SqlResult<Datum> {
    let mut out = String::from("{");
    for (at, (key, value)) in members.enumerate() {
        out.push_str(if at > 0 { ", " } else { "" });
        let Datum::Text(key) = key else {
            let message = "null value not allowed for object key";
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
        };
        json::print_string(key, &mut out);
        out.push_str(" : ");
        match value {
            Datum::Text(value) => json::print_string(value, &mut out),
            _ => out.push_str("null"),
        }
    }
    out.push('}');
    of_text(types, out)
}

/// Keys and values one behind the other, or in pairs.
fn of_pairs(types: &Types, values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let all = array(values, 0)?;
    match all.dimensions.as_slice() {
        [] => {}
        [(count, _)] if count % 2 == 1 => {
            return Err(uneven("array must have even number of elements"));
        }
        [_] | [_, (2, _)] => {}
        [_, _] => return Err(uneven("array must have two columns")),
        _ => return Err(uneven("wrong number of array subscripts")),
    }
    object(types, all.elements.as_chunks::<2>().0.iter().map(|[key, value]| (key, value)))
}

/// Keys, and their values.
fn of_arrays(types: &Types, values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (keys, values) = (array(values, 0)?, array(values, 1)?);
    let is_deep = |own: &Array| own.dimensions.len() > 1;
    if is_deep(keys) || is_deep(values) {
        return Err(uneven("wrong number of array subscripts"));
    }
    if keys.elements.len() != values.elements.len() {
        return Err(uneven("mismatched array dimensions"));
    }
    object(types, keys.elements.iter().zip(&values.elements))
}

/// An array as JSON, each element on a line of its own if that is asked for.
fn array_in_lines(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let (array, settings) = (array(values, 0)?, context.settings);
    let mut out = String::new();
    if !boolean(values, 1)? {
        let whole = Datum::Array(std::sync::Arc::clone(array));
        print_json(&whole, types.argument(0), settings, &mut out);
        return Ok(Datum::Json(out.into()));
    }
    let (count, inner) = match array.dimensions.split_first() {
        Some((&(count, _), inner)) => (count, inner.to_vec()),
        None => (0, Vec::new()),
    };
    let each: usize = inner.iter().map(|(count, _)| *count).product();
    out.push('[');
    for (at, elements) in array.elements.chunks(each.max(1)).take(count).enumerate() {
        out.push_str(if at > 0 { ",\n " } else { "" });
        match elements {
            [element] if inner.is_empty() => {
                print_json(element, types.argument(0).element(), settings, &mut out);
            }
            elements => {
                let (dimensions, elements) = (inner.clone(), elements.to_vec());
                let part = Array { element: array.element, dimensions, elements };
                print_json(&Datum::Array(part.into()), types.argument(0), settings, &mut out);
            }
        }
    }
    out.push(']');
    Ok(Datum::Json(out.into()))
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for (name, of_one, of_two) in [
        ("json_object", "text[] -> json", "text[] text[] -> json"),
        ("jsonb_object", "text[] -> jsonb", "text[] text[] -> jsonb"),
    ] {
        table.add_typed(name, of_one, of_pairs);
        table.add_typed(name, of_two, of_arrays);
    }
    table.add_typed("array_to_json", "stable anyarray bool -> json", array_in_lines);
}
