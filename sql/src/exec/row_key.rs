//! Rows as keys of hash tables, and the order of rows.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;

use super::context::{ExecContext, Row};
use crate::error::SqlResult;
use crate::plan::{Expr, SortKey};
use crate::types::{Datum, order};

/// Values that are equal if they are so by the order of their types; NULL is equal to NULL.
#[derive(Clone, Debug)]
pub(crate) struct RowKey(pub(crate) Row);

pub(crate) type KeyMap<T> = HashMap<RowKey, T, RandomState>;
pub(crate) type KeySet = HashSet<RowKey, RandomState>;

impl RowKey {
    pub(crate) fn has_null(&self) -> bool {
        self.0.iter().any(Datum::is_null)
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| is_same(a, b))
    }
}

impl Eq for RowKey {}

impl Hash for RowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_values(&self.0, state);
    }
}

/// Adds to a hash what tells keys apart.
pub(crate) fn hash_values(values: &[Datum], state: &mut impl Hasher) {
    for datum in values {
        if datum.is_null() {
            state.write_u8(0);
        } else {
            order::hash(datum, state);
        }
    }
}

/// Whether values are equal; NULL is equal to NULL.
pub(crate) fn is_same(left: &Datum, right: &Datum) -> bool {
    match (left.is_null(), right.is_null()) {
        (false, false) => order::compare(left, right).is_eq(),
        (left, right) => left == right,
    }
}

/// The order of values with the place of NULLs.
pub(crate) fn compare_with_nulls(
    left: &Datum,
    right: &Datum,
    descending: bool,
    nulls_first: bool,
) -> Ordering {
    match (left.is_null(), right.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) if nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) if nulls_first => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if descending => order::compare(right, left),
        (false, false) => order::compare(left, right),
    }
}

/// The order of rows by the values of sort keys.
pub(crate) fn compare_keys(left: &[Datum], right: &[Datum], keys: &[SortKey]) -> Ordering {
    let pairs = left.iter().zip(right).zip(keys);
    pairs
        .map(|((left, right), key)| {
            compare_with_nulls(left, right, key.descending, key.nulls_first)
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// The values of sort keys for a row.
pub(crate) fn sort_values(
    keys: &[SortKey],
    row: &[Datum],
    context: &ExecContext<'_, '_>,
) -> SqlResult<Row> {
    keys.iter().map(|key| context.eval(&key.expr, row)).collect()
}

/// The values of expressions for a row, as a key.
pub(crate) fn key_of(
    exprs: &[Expr],
    row: &[Datum],
    context: &ExecContext<'_, '_>,
) -> SqlResult<RowKey> {
    Ok(RowKey(context.eval_all(exprs, row)?))
}
