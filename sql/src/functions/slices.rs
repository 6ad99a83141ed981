//! Slices of arrays.

use std::sync::Arc;

use super::arguments::argument;
use crate::error::SqlResult;
use crate::types::{Array, Datum};

/// The part of an array within bounds. `values` are the array and its bounds, of which `given` says
/// for each dimension whether the lower and the upper one is there. The indexes of what is given
/// begin with 1; outside of the array there is nothing.
pub(crate) fn slice(values: &[Datum], given: &[(bool, bool)]) -> SqlResult<Datum> {
    let Datum::Array(array) = argument(values, 0) else { return Ok(Datum::Null) };
    let mut bounds = values.iter().skip(1).map(|value| match value {
        Datum::I32(value) => i64::from(*value),
        _ => 0,
    });
    let element = array.element;
    let empty = || Array { element, dimensions: Vec::new(), elements: Vec::new() };
    if given.len() > array.dimensions.len() {
        return Ok(Datum::Array(Arc::new(empty())));
    }
    // Of each dimension, where the part begins and how long it is.
    let mut parts = Vec::with_capacity(array.dimensions.len());
    for (at, &(length, first)) in array.dimensions.iter().enumerate() {
        let (has_low, has_high) = given.get(at).copied().unwrap_or_default();
        let (first, length) = (i64::from(first), i64::try_from(length).unwrap_or(i64::MAX));
        let low = if has_low { bounds.next().unwrap_or(first) } else { first };
        let last = first.saturating_add(length).saturating_sub(1);
        let high = if has_high { bounds.next().unwrap_or(last) } else { last };
        let (low, high) = (low.max(first), high.min(last));
        let count = usize::try_from(high.saturating_sub(low).saturating_add(1)).unwrap_or(0);
        if count == 0 {
            return Ok(Datum::Array(Arc::new(empty())));
        }
        parts.push((usize::try_from(low.saturating_sub(first)).unwrap_or(0), count));
    }
    let mut elements = Vec::new();
    take(&array.elements, &array.dimensions, &parts, &mut elements);
    let dimensions = parts.into_iter().map(|(_, count)| (count, 1)).collect();
    Ok(Datum::Array(Arc::new(Array { element, dimensions, elements })))
}

/// Appends the elements of the parts of dimensions, of which the first is the outermost.
fn take(
    elements: &[Datum],
    dimensions: &[(usize, i32)],
    parts: &[(usize, usize)],
    out: &mut Vec<Datum>,
) {
    let (Some(((_, _), inner)), Some((&(start, count), rest))) =
        (dimensions.split_first(), parts.split_first())
    else {
        return;
    };
    if inner.is_empty() {
        out.extend(elements.iter().skip(start).take(count).cloned());
        return;
    }
    let width = inner.iter().map(|own| own.0).product::<usize>();
    for at in start..start + count {
        let row = at.saturating_mul(width);
        take(elements.get(row..row + width).unwrap_or_default(), inner, rest, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::text_format::{from_text, to_string};
    use crate::types::{FormatSettings, Scalar, SqlType};

    #[test]
    fn slices_are_those_of_postgresql() {
        let (ty, settings) = (SqlType::array(Scalar::Int4), FormatSettings::default());
        let both = (true, true);
        for (text, bounds, given, expected) in [
            ("{1,2,3,4}", vec![2, 3], vec![both], "{2,3}"),
            ("{1,2,3,4}", vec![3], vec![(true, false)], "{3,4}"),
            ("{1,2,3,4}", vec![2], vec![(false, true)], "{1,2}"),
            ("{1,2,3,4}", vec![3, 2], vec![both], "{}"),
            ("{1,2,3,4}", vec![-5, 99], vec![both], "{1,2,3,4}"),
            ("[0:2]={1,2,3}", vec![1, 2], vec![both], "{2,3}"),
            ("{{1,2},{3,4}}", vec![2, 2], vec![both], "{{3,4}}"),
            ("{{1,2},{3,4}}", vec![1, 2, 2, 2], vec![both, both], "{{2},{4}}"),
            ("{1,2}", vec![1, 1, 1, 1], vec![both, both], "{}"),
        ] {
            let mut values = vec![from_text(text, ty, &settings).unwrap()];
            values.extend(bounds.into_iter().map(Datum::I32));
            let found = slice(&values, &given).unwrap();
            assert_eq!(to_string(&found, ty, &settings), expected, "{text} {given:?}");
        }
    }
}
