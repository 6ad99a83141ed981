//! `min` and `max` of a column that a key begins with: one end of the key has the value.

use std::sync::Arc;

use super::cover::is_covered;
use super::expr::Expr;
use super::node::{Access, AggregateCall, Join, JoinKind, KeyBound, Plan, Scan};
use super::scan_order::prefix_by;
use crate::types::Datum;

/// Most calls of a query that are read so: each is a read for itself.
const MOST_CALLS: usize = 4;

/// Has an aggregation that only asks for least and greatest values read the ends of keys.
pub(super) fn read_ends(plan: &mut Plan) {
    let Plan::Aggregate { input, keys, calls } = plan else { return };
    if !keys.is_empty() || calls.is_empty() || calls.len() > MOST_CALLS {
        return;
    }
    let ends: Option<Vec<Plan>> = calls.iter().map(|call| end_of(input, call)).collect();
    let Some(ends) = ends else { return };
    let all = ends.into_iter().zip(std::mem::take(calls)).map(|(input, call)| Plan::Aggregate {
        input: Box::new(input),
        keys: Vec::new(),
        calls: vec![call],
    });
    if let Some(beside) = all.reduce(beside) {
        *plan = beside;
    }
}

/// The columns of both, of which each has one row.
fn beside(left: Plan, right: Plan) -> Plan {
    let (left_width, right_width) = (left.width(), right.width());
    Plan::Join(Box::new(Join {
        left,
        right,
        left_width,
        right_width,
        kind: JoinKind::Inner,
        equal: Vec::new(),
        condition: None,
        is_lateral: false,
        keeps_order: false,
    }))
}

/// The row of the input that has the value of a call, as a plan.
fn end_of(input: &Plan, call: &AggregateCall) -> Option<Plan> {
    let greatest = match &*call.function.name {
        "min" => false,
        "max" => true,
        _ => return None,
    };
    let [Expr::Column(column)] = &*call.arguments else { return None };
    if call.filter.is_some() {
        return None;
    }
    let mut input = input.clone();
    let (scan, column) = scan_of_column(&mut input, *column)?;
    read_end(Arc::make_mut(scan), column, greatest)?;
    let limit = Some(Expr::Const(Datum::I64(1)));
    Some(Plan::Limit { input: Box::new(input), limit, offset: None })
}

/// The table that a column is of, and which one it is there.
#[recursive::recursive]
fn scan_of_column(plan: &mut Plan, column: usize) -> Option<(&mut Arc<Scan>, usize)> {
    match plan {
        Plan::Scan(scan) => Some((scan, column)),
        Plan::Project { input, exprs } => match exprs.get(column)? {
            Expr::Column(column) => scan_of_column(input, *column),
            _ => None,
        },
        _ => None,
    }
}

/// Has a table read by a key that has the least value of the column first, or the greatest, and no
/// NULLs.
fn read_end(scan: &mut Scan, column: usize, greatest: bool) -> Option<()> {
    let Access::Range { index: own, prefix, low, high, .. } = &scan.access else { return None };
    let (table, is_bounded) = (&scan.table, low.is_some() || high.is_some());
    let filter = scan.filter.as_ref();
    if scan.is_ordered || scan.for_update || filter.is_some_and(Expr::is_volatile) {
        return None;
    }
    let is_nullable = table.columns.get(column).filter(|own| !own.ty.is_array)?.nullable;
    let others = std::iter::once(None).chain((0..table.indexes.len()).map(Some));
    // Where a filter leaves out rows, more of them may be looked at than one.
    let others =
        others.filter(|index| index != own && (filter.is_none() || is_covered(scan, *index)));
    let (index, prefix, order) = std::iter::once(*own).chain(others).find_map(|index| {
        let prefix = prefix_by(table, (*own, prefix), index, is_bounded)?;
        let (columns, orders) = table.key(index)?;
        let order = orders.get(prefix.len()).copied().unwrap_or_default();
        (columns.get(prefix.len()) == Some(&column)).then_some((index, prefix, order))
    })?;
    let (mut low, high) = (low.clone(), high.clone());
    if is_nullable && !is_bounded {
        low = Some(KeyBound::NOT_NULL);
    }
    let descending = greatest != order.descending;
    scan.access = Access::Range { index, prefix, low, high, descending };
    scan.is_ordered = true;
    Some(())
}
