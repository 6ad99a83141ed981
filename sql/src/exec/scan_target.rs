//! Which keys a scan reads.
//!
//! A bound of a column is a bound of its key, the lower one where the column is ascending and the
//! upper one where it is descending. NULLs are at one end of the keys, and are within no bounds: at
//! an end without a bound, the key of NULL is one.

use std::cmp::Ordering;
use std::ops::Bound;

use selkie_txn::{Direction, KeyBuf, KeyRange, Source};

use super::context::ExecContext;
use super::key_value::{Place, place};
use super::stored_row::{encode_key, types_of};
use super::txn_error::from_txn;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult};
use crate::plan::{self, Access, Expr, KeyBound, KeyItem};
use crate::types::{Datum, SqlType, order};

/// What a scan reads.
pub(crate) struct Target {
    pub(crate) source: Source,
    pub(crate) keys: Keys,
    pub(crate) direction: Direction,
    /// Bounds that are not within the keys.
    pub(crate) checks: Vec<BoundCheck>,
}

/// Keys that are read.
pub(crate) enum Keys {
    /// Rows by their primary keys, in order.
    Points(Vec<KeyBuf>),
    /// The only row of each range.
    Single(Vec<KeyRange>),
    Ranges(Vec<KeyRange>),
}

/// A bound whose value is none that a row can have, so that it has no key.
pub(crate) struct BoundCheck {
    column: usize,
    value: Datum,
    is_low: bool,
}

impl BoundCheck {
    /// The column that it is about.
    pub(crate) fn column(&self) -> usize {
        self.column
    }

    /// Whether a row is within.
    pub(crate) fn holds(&self, row: &[Datum]) -> bool {
        let Some(own) = row.get(self.column).filter(|own| !own.is_null()) else { return false };
        let wanted = if self.is_low { Ordering::Greater } else { Ordering::Less };
        order::compare(own, &self.value) == wanted
    }
}

/// What a scan reads, with the expressions of its access evaluated.
pub(crate) async fn target_of(
    scan: &plan::Scan,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Target> {
    let table = &*scan.table;
    let index = match &scan.access {
        Access::Range { index, .. } | Access::Each { index, .. } => *index,
    };
    let failed = |error| from_txn(error, Some(table));
    let source: Source = match index.map(|at| table.indexes.get(at)) {
        // That the transaction has used the table makes its keys known.
        None => {
            context.txn.row(table.table).await.map_err(failed)?;
            table.table.into()
        }
        Some(Some(index)) => {
            context.txn.index(table.table, &index.name).await.map_err(failed)?.into()
        }
        Some(None) => return Err(SqlError::internal("a plan uses an index that is not there")),
    };
    let is_unique = index.is_none_or(|at| table.indexes.get(at).is_some_and(|own| own.unique));
    let (columns, orders) = table.key(index).unwrap_or_default();
    let finder =
        Finder { table, source, columns, types: types_of(table, columns), index, is_unique };
    let mut checks = Vec::new();
    let (keys, descending) = match &scan.access {
        Access::Each { prefix, values, suffix, .. } => {
            (finder.each(prefix, values, suffix, context)?, false)
        }
        Access::Range { prefix, low, high, descending, .. } => {
            let is_descending = orders.get(prefix.len()).copied().unwrap_or_default().descending;
            let nulls_last = orders.get(prefix.len()).copied().unwrap_or_default().nulls_last;
            let bounds =
                Bounds { low: low.as_ref(), high: high.as_ref(), is_descending, nulls_last };
            (finder.range(prefix, bounds, &mut checks, context)?, *descending)
        }
    };
    let direction = if descending { Direction::Reverse } else { Direction::Forward };
    Ok(Target { source, keys, direction, checks })
}

/// The columns of a key.
struct Finder<'s> {
    table: &'s TableDef,
    source: Source,
    columns: &'s [usize],
    types: Vec<SqlType>,
    index: Option<usize>,
    is_unique: bool,
}

/// Bounds of the column behind a prefix, and how that is ordered.
struct Bounds<'s> {
    low: Option<&'s KeyBound>,
    high: Option<&'s KeyBound>,
    is_descending: bool,
    nulls_last: bool,
}

impl Finder<'_> {
    fn key(&self, values: &[Datum], context: &ExecContext<'_, '_>) -> SqlResult<Option<KeyBuf>> {
        encode_key(context.txn, self.source, &self.types, values, self.table)
    }

    /// Whole keys, or ranges of those that begin with them.
    fn keys(&self, keys: Vec<KeyBuf>, columns: usize) -> Keys {
        let is_whole = columns == self.columns.len() && self.is_unique;
        if is_whole && self.index.is_none() {
            return Keys::Points(keys);
        }
        let ranges = keys.iter().map(|key| KeyRange::prefix(key)).collect();
        if is_whole { Keys::Single(ranges) } else { Keys::Ranges(ranges) }
    }

    /// The values of columns from `first` on that are equal to these; `None` if no row has them.
    fn equal(
        &self,
        exprs: &[Expr],
        first: usize,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<Option<Vec<Datum>>> {
        let mut values = Vec::with_capacity(exprs.len() + 1);
        for (value, ty) in context.eval_all(exprs, &[])?.into_iter().zip(self.types_from(first)) {
            match place_of(value, *ty) {
                Some(Place::At(value)) => values.push(value),
                _ => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    fn types_from(&self, first: usize) -> &[SqlType] {
        self.types.get(first..).unwrap_or_default()
    }

    fn each(
        &self,
        prefix: &[Expr],
        items: &[KeyItem],
        suffix: &[Expr],
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<Keys> {
        let (at, mut keys) = (prefix.len(), Vec::with_capacity(items.len()));
        let (Some(mut values), Some(behind), [ty, ..]) = (
            self.equal(prefix, 0, context)?,
            self.equal(suffix, at + 1, context)?,
            self.types_from(at),
        ) else {
            return Ok(Keys::Points(keys));
        };
        let mut add = |value: Datum| -> SqlResult<()> {
            if let Some(Place::At(value)) = place_of(value, *ty) {
                values.truncate(at);
                values.push(value);
                values.extend_from_slice(&behind);
                keys.extend(self.key(&values, context)?);
            }
            Ok(())
        };
        for item in items {
            match (item, context.eval(item.expr(), &[])?) {
                (KeyItem::One(_), value) => add(value)?,
                (KeyItem::Elements(_), Datum::Array(array)) => {
                    array.elements.iter().try_for_each(|own| add(own.clone()))?;
                }
                // NULL instead of an array has no element.
                (KeyItem::Elements(_), _) => {}
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(self.keys(keys, at + 1 + suffix.len()))
    }

    fn range(
        &self,
        prefix: &[Expr],
        bounds: Bounds<'_>,
        checks: &mut Vec<BoundCheck>,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<Keys> {
        let nothing = Ok(Keys::Points(Vec::new()));
        let Some(mut values) = self.equal(prefix, 0, context)? else { return nothing };
        let Some(begin) = self.key(&values, context)? else { return nothing };
        if bounds.low.is_none() && bounds.high.is_none() {
            return Ok(self.keys(vec![begin], values.len()));
        }
        let mut ends: [Option<Bound<KeyBuf>>; 2] = [None, None];
        for (bound, is_low) in [(bounds.low, true), (bounds.high, false)] {
            let Some(bound) = bound else { continue };
            let value = context.eval(&bound.value, &[])?;
            let Some(ty) = self.types.get(values.len()) else { return nothing };
            let (value, inclusive) = match place_of(value, *ty) {
                None if bound.is_open_if_null => continue,
                None => return nothing,
                Some(Place::At(value)) => (value, bound.inclusive),
                // What is at the place is below the bound.
                Some(Place::Behind(value)) => (value, !is_low),
                Some(Place::First) if is_low => continue,
                Some(Place::First) => return nothing,
            };
            values.push(value.clone());
            let key = self.key(&values, context)?;
            values.pop();
            let Some(key) = key else {
                let column = self.columns.get(values.len()).copied().unwrap_or(usize::MAX);
                checks.push(BoundCheck { column, value, is_low });
                continue;
            };
            let is_first = is_low != bounds.is_descending;
            let [first, last] = &mut ends;
            let end = if is_first { first } else { last };
            *end = Some(if inclusive { Bound::Included(key) } else { Bound::Excluded(key) });
        }
        values.push(Datum::Null);
        let null = self.key(&values, context)?.map(Bound::Excluded);
        let [first, last] = ends;
        let (of_first, of_last) = if bounds.nulls_last { (None, null) } else { (null, None) };
        let first = first.or(of_first).unwrap_or_else(|| Bound::Included(begin.clone()));
        let last = last.or(of_last).unwrap_or(Bound::Included(begin));
        Ok(Keys::Ranges(vec![KeyRange::new(as_bytes(&first), as_bytes(&last))]))
    }
}

/// The place of a value among those of a type; `None` of NULL.
fn place_of(value: Datum, ty: SqlType) -> Option<Place> {
    (!value.is_null()).then(|| place(value, ty))
}

fn as_bytes(bound: &Bound<KeyBuf>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
