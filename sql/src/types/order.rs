//! The order of values, and hashes that agree with it.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::datum::{Array, Datum};
use super::json::{self, Node, Value};
use super::numeric;

/// The order of two values that are not NULL and of one type, as PostgreSQL sorts them: NaN is
/// greatest and equal to itself, -0 is 0, intervals go by their length, texts by their bytes. In
/// arrays and rows NULL is equal to itself and greater than all else, as it is here.
#[must_use]
pub fn compare(a: &Datum, b: &Datum) -> Ordering {
    match (a, b) {
        (Datum::Null, Datum::Null) => Ordering::Equal,
        (Datum::Null, _) => Ordering::Greater,
        (_, Datum::Null) => Ordering::Less,
        (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
        (Datum::I32(a), Datum::I32(b)) | (Datum::Date(a), Datum::Date(b)) => a.cmp(b),
        (Datum::I64(a), Datum::I64(b))
        | (Datum::Time(a), Datum::Time(b))
        | (Datum::Timestamp(a), Datum::Timestamp(b)) => a.cmp(b),
        (Datum::F64(a), Datum::F64(b)) => compare_floats(*a, *b),
        (Datum::Numeric(a), Datum::Numeric(b)) => match (a, b) {
            (Some(a), Some(b)) => numeric::compare(a, b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        },
        (Datum::Text(a), Datum::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Datum::Bytes(a), Datum::Bytes(b)) => a.cmp(b),
        (Datum::Json(a), Datum::Json(b)) => compare_json(a, b),
        (Datum::Interval(a), Datum::Interval(b)) => a.length_us().cmp(&b.length_us()),
        (Datum::Uuid(a), Datum::Uuid(b)) => a.cmp(b),
        (Datum::Array(a), Datum::Array(b)) => compare_arrays(a, b),
        (Datum::Record(a), Datum::Record(b)) => compare_lists(&a.values, &b.values),
        (a, b) => match (whole(a), whole(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => match (float(a), float(b)) {
                (Some(a), Some(b)) => compare_floats(a, b),
                _ => rank(a).cmp(&rank(b)),
            },
        },
    }
}

const fn whole(value: &Datum) -> Option<i64> {
    match value {
        Datum::I16(value) => Some(*value as i64),
        Datum::I32(value) => Some(*value as i64),
        Datum::I64(value) => Some(*value),
        _ => None,
    }
}

const fn float(value: &Datum) -> Option<f64> {
    match value {
        Datum::F32(value) => Some(*value as f64),
        Datum::F64(value) => Some(*value),
        _ => None,
    }
}

/// Of values of different types, so that even these have an order.
const fn rank(value: &Datum) -> u8 {
    match value {
        Datum::Bool(_) => 0,
        Datum::I16(_) | Datum::I32(_) | Datum::I64(_) => 1,
        Datum::F32(_) | Datum::F64(_) => 2,
        Datum::Numeric(_) => 3,
        Datum::Text(_) => 4,
        Datum::Bytes(_) => 5,
        Datum::Json(_) => 6,
        Datum::Date(_) => 7,
        Datum::Time(_) => 8,
        Datum::Timestamp(_) => 9,
        Datum::Interval(_) => 10,
        Datum::Uuid(_) => 11,
        Datum::Array(_) => 12,
        Datum::Record(_) => 13,
        Datum::Null => 14,
    }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn compare_json(a: &str, b: &str) -> Ordering {
    // An empty array is below all else, if it is the whole document.
    let is_other = |document: &str| document != "[]";
    if !is_other(a) || !is_other(b) {
        return is_other(a).cmp(&is_other(b));
    }
    match (json::parse(a), json::parse(b)) {
        (Ok(a_node), Ok(b_node)) => json::compare(a, &a_node, b, &b_node),
        _ => a.cmp(b),
    }
}

fn compare_lists(a: &[Datum], b: &[Datum]) -> Ordering {
    let mut pairs = a.iter().zip(b).map(|(a, b)| compare(a, b));
    pairs.find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn compare_arrays(a: &Array, b: &Array) -> Ordering {
    let dimensions = || a.dimensions.len().cmp(&b.dimensions.len());
    compare_lists(&a.elements, &b.elements)
        .then_with(dimensions)
        .then_with(|| a.dimensions.cmp(&b.dimensions))
}

/// Feeds a value to a hasher: values that [`compare`] as equal feed it the same.
pub fn hash(value: &Datum, hasher: &mut impl Hasher) {
    match value {
        Datum::Null => 0u8.hash(hasher),
        Datum::Bool(value) => value.hash(hasher),
        Datum::I16(value) => i64::from(*value).hash(hasher),
        Datum::I32(value) => i64::from(*value).hash(hasher),
        Datum::I64(value) | Datum::Time(value) | Datum::Timestamp(value) => value.hash(hasher),
        Datum::F32(value) => hash_float(f64::from(*value), hasher),
        Datum::F64(value) => hash_float(*value, hasher),
        Datum::Numeric(None) => 1u8.hash(hasher),
        Datum::Numeric(Some(value)) => value.normalized().as_bigint_and_exponent().hash(hasher),
        Datum::Text(value) => value.hash(hasher),
        Datum::Bytes(value) => value.hash(hasher),
        Datum::Json(value) => match json::parse(value) {
            Ok(node) => hash_json(value, &node, hasher),
            Err(_) => value.hash(hasher),
        },
        Datum::Date(value) => value.hash(hasher),
        Datum::Interval(value) => value.length_us().hash(hasher),
        Datum::Uuid(value) => value.hash(hasher),
        Datum::Array(array) => array.elements.iter().for_each(|value| hash(value, hasher)),
        Datum::Record(own) => own.values.iter().for_each(|value| hash(value, hasher)),
    }
}

fn hash_float(value: f64, hasher: &mut impl Hasher) {
    let one_of_equals = match value {
        _ if value.is_nan() => f64::NAN,
        _ if value == 0.0 => 0.0,
        _ => value,
    };
    one_of_equals.to_bits().hash(hasher);
}

fn hash_json(text: &str, node: &Node, hasher: &mut impl Hasher) {
    node.type_name().hash(hasher);
    match &node.value {
        Value::Null => {}
        Value::Bool(value) => value.hash(hasher),
        Value::String(value) => value.hash(hasher),
        Value::Number => {
            if let Some(Ok(Some(number))) = numeric::parse(node.text(text)) {
                number.normalized().as_bigint_and_exponent().hash(hasher);
            }
        }
        Value::Array(nodes) => nodes.iter().for_each(|node| hash_json(text, node, hasher)),
        Value::Object(members) => {
            let members =
                json::ordered_members(members.iter().map(|(key, node)| (key.clone(), node)));
            for (key, node) in members {
                key.hash(hasher);
                hash_json(text, node, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::settings::FormatSettings;
    use crate::types::sql_type::{Scalar, SqlType};
    use crate::types::text_format::from_text;
    use std::collections::hash_map::DefaultHasher;

    fn hash_of(value: &Datum) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash(value, &mut hasher);
        hasher.finish()
    }

    #[test]
    fn values_are_ordered_and_equal_ones_hash_the_same() {
        let read = |text: &str, ty| from_text(text, ty, &FormatSettings::default()).unwrap();
        // Each list goes up; what stands in one entry is equal.
        let lists: [(SqlType, &[&[&str]]); 8] = [
            (SqlType::NUMERIC, &[&["-5"], &["0", "0.00"], &["1.5", "1.50"], &["10"], &["NaN"]]),
            (SqlType::FLOAT8, &[&["-Infinity"], &["-0", "0"], &["1"], &["Infinity"], &["NaN"]]),
            (SqlType::INTERVAL, &[&["29 days"], &["1 mon", "30 days", "720 hours"], &["1 year"]]),
            (SqlType::new(Scalar::Char), &[&["a", "a  "], &["ab"], &["b"]]),
            (SqlType::TEXT, &[&[""], &["A"], &["a"], &["a "], &["é"]]),
            (
                SqlType::array(Scalar::Int4),
                &[&["{}"], &["{1,2}"], &["{1,2,0}"], &["{1,NULL}"], &["{2}"]],
            ),
            (SqlType::JSONB, &[&["null"], &["\"b\""], &["1", "1.0"], &["true"], &["[1]"], &["{}"]]),
            (SqlType::DATE, &[&["-infinity"], &["2000-01-01"], &["infinity"]]),
        ];
        for (ty, list) in lists {
            for (i, a) in list.iter().enumerate() {
                for (j, b) in list.iter().enumerate() {
                    for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (a, b))) {
                        let (x, y) = (read(a, ty), read(b, ty));
                        assert_eq!(compare(&x, &y), i.cmp(&j), "{a} and {b}");
                        assert!(i != j || hash_of(&x) == hash_of(&y), "{a} and {b}");
                    }
                }
            }
        }
    }
}
