//! Orders that rows have without a sort: those of the keys by which tables are read.

use std::sync::Arc;

use super::expr::Expr;
use super::node::{Access, JoinKind, KeyExpr, Plan, Scan, SortKey};
use crate::catalogue::TableDef;

/// Has the plan give its rows in this order without a sort, if it can: a table is read from the
/// other end, or by another key if `is_limited`, as only the first rows are needed then. Whether
/// it does.
#[recursive::recursive]
pub(super) fn gives_order(plan: &mut Plan, keys: &[SortKey], is_limited: bool) -> bool {
    match plan {
        Plan::One | Plan::Nothing { .. } => true,
        Plan::Scan(scan) => scan_gives(scan, keys, is_limited),
        Plan::Filter { input, .. } => gives_order(input, keys, is_limited),
        Plan::Apply { input, .. } => {
            is_of(keys, input.width()) && gives_order(input, keys, is_limited)
        }
        Plan::Project { input, exprs } => {
            let passed = |key: &SortKey| match &key.expr {
                Expr::Column(at) => {
                    exprs.get(*at).map(|expr| SortKey { expr: expr.clone(), ..key.clone() })
                }
                _ => None,
            };
            let keys: Option<Vec<SortKey>> = keys.iter().map(passed).collect();
            keys.is_some_and(|keys| gives_order(input, &keys, is_limited))
        }
        // Rows of the left come one after the other, each with its partners.
        Plan::Join(join) => {
            let is_led_by_left = match join.kind {
                JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti => true,
                JoinKind::Right | JoinKind::Full => false,
            };
            let gives = is_led_by_left
                && is_of(keys, join.left_width)
                && gives_order(&mut join.left, keys, is_limited);
            join.keeps_order |= gives;
            gives
        }
        _ => false,
    }
}

/// Whether all keys are over the first `width` columns.
fn is_of(keys: &[SortKey], width: usize) -> bool {
    keys.iter().all(|key| key.expr.columns().iter().all(|column| *column < width))
}

fn scan_gives(scan: &mut Arc<Scan>, keys: &[SortKey], is_limited: bool) -> bool {
    let Access::Range { index: own, prefix, low, high, .. } = &scan.access else { return false };
    let is_bounded = low.is_some() || high.is_some();
    // By another key it may take longer to find a row, and a filter may leave out all that comes
    // first of a whole table.
    let is_worth_it = match own {
        Some(_) => true,
        None => is_limited && (scan.access.is_keyed() || scan.filter.is_none()),
    };
    let others = std::iter::once(None).chain((0..scan.table.indexes.len()).map(Some));
    let others = others.filter(|index| is_worth_it && index != own);
    let found = std::iter::once(*own).chain(others).find_map(|index| {
        let prefix = prefix_by(&scan.table, (*own, prefix), index, is_bounded)?;
        let descending = direction(&scan.table, index, prefix.len(), is_bounded, keys)?;
        let (low, high) = (low.clone(), high.clone());
        Some(Access::Range { index, prefix, low, high, descending })
    });
    let Some(access) = found else { return false };
    Arc::make_mut(scan).access = access;
    true
}

/// The values that `prefix` gives the first columns of the key `own`, as they are for another key
/// whose first columns are the same. If the next column is bounded, it is the same too.
fn prefix_by(
    table: &TableDef,
    (own, prefix): (Option<usize>, &[KeyExpr]),
    index: Option<usize>,
    is_bounded: bool,
) -> Option<Vec<KeyExpr>> {
    let ((own, _), (columns, _)) = (table.key(own)?, table.key(index)?);
    if is_bounded && own.get(prefix.len()) != columns.get(prefix.len()) {
        return None;
    }
    let value_of = |column| own.iter().zip(prefix).find(|(own, _)| *own == column);
    let values: Option<Vec<_>> = columns.iter().take(prefix.len()).map(value_of).collect();
    let values = values.filter(|values| values.len() == prefix.len())?;
    Some(values.into_iter().map(|(_, value)| value.clone()).collect())
}

/// Whether a key whose first `bound` columns have one value each is to be read from its end for
/// this order; `None` if it does not have it. `is_bounded` says that the next column is never NULL.
fn direction(
    table: &TableDef,
    index: Option<usize>,
    bound: usize,
    is_bounded: bool,
    keys: &[SortKey],
) -> Option<bool> {
    let (columns, orders) = table.key(index)?;
    let is_unique = index.is_none_or(|at| table.indexes.get(at).is_some_and(|own| own.unique));
    let is_nullable = |column: usize| table.columns.get(column).is_none_or(|own| own.nullable);
    let mut next = bound;
    let mut turned = None;
    for key in keys {
        let Expr::Column(column) = key.expr else { return None };
        // It has one value, or has told the rows apart already.
        if columns.iter().take(next).any(|before| *before == column) {
            continue;
        }
        // Keys have arrays in another order than they are compared in.
        if table.columns.get(column).is_none_or(|own| own.ty.is_array) {
            return None;
        }
        let Some(own) = columns.get(next) else {
            // No two rows are left that it could tell apart.
            let is_exact = is_unique && !columns.iter().copied().skip(bound).any(is_nullable);
            return is_exact.then_some(turned.unwrap_or(false));
        };
        let order = orders.get(next).copied().unwrap_or_default();
        let is_turned = key.descending != order.descending;
        let has_null = is_nullable(column) && !(is_bounded && next == bound);
        let is_null_there = (key.nulls_first == order.nulls_last) == is_turned;
        if *own != column
            || has_null && !is_null_there
            || turned.is_some_and(|turned| turned != is_turned)
        {
            return None;
        }
        turned = Some(is_turned);
        next += 1;
    }
    Some(turned.unwrap_or(false))
}
