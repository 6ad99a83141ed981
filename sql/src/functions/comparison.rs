//! Comparisons.

use std::cmp::Ordering;

use super::CallContext;
use super::arguments::argument;
use super::signature::{Body, Table};
use crate::error::SqlResult;
use crate::types::Datum;
use crate::types::order::compare;

/// The types that can be compared, each with itself or with one of its kind.
const COMPARED: [&str; 28] = [
    "bool bool -> bool",
    "int2 int2 -> bool",
    "int4 int4 -> bool",
    "int8 int8 -> bool",
    "int2 int4 -> bool",
    "int4 int2 -> bool",
    "int2 int8 -> bool",
    "int8 int2 -> bool",
    "int4 int8 -> bool",
    "int8 int4 -> bool",
    "float4 float4 -> bool",
    "float8 float8 -> bool",
    "float4 float8 -> bool",
    "float8 float4 -> bool",
    "numeric numeric -> bool",
    "text text -> bool",
    "bpchar bpchar -> bool",
    "bytea bytea -> bool",
    "date date -> bool",
    "time time -> bool",
    "timestamp timestamp -> bool",
    "timestamptz timestamptz -> bool",
    "interval interval -> bool",
    "uuid uuid -> bool",
    "jsonb jsonb -> bool",
    "oid oid -> bool",
    "record record -> bool",
    "anyarray anyarray -> bool",
];

type Plain = fn(&[Datum], &CallContext<'_>) -> SqlResult<Datum>;

fn order(values: &[Datum]) -> Ordering {
    compare(argument(values, 0), argument(values, 1))
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    let operators: [(&'static str, Plain); 6] = [
        ("=", |values, _| Ok(Datum::Bool(order(values).is_eq()))),
        ("<>", |values, _| Ok(Datum::Bool(order(values).is_ne()))),
        ("<", |values, _| Ok(Datum::Bool(order(values).is_lt()))),
        ("<=", |values, _| Ok(Datum::Bool(order(values).is_le()))),
        (">", |values, _| Ok(Datum::Bool(order(values).is_gt()))),
        (">=", |values, _| Ok(Datum::Bool(order(values).is_ge()))),
    ];
    for (name, body) in operators {
        for signature in COMPARED {
            table.add(name, signature, body);
        }
    }
}
