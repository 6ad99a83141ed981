//! Rows that come in the order of the keys of their tables, where more than a sort is saved by
//! that: groups that are complete when the next one begins, and sides of a join that are merged.

use super::expr::Expr;
use super::node::{Join, JoinKind, Plan, SortKey};
use super::scan_order::{Wanted, arrange_scan};

/// Has the plan give its rows as is wanted without a sort, if it can. Returns in which order the
/// columns come that are to be together, as far as they have more than one value.
#[recursive::recursive]
pub(super) fn arrange(plan: &mut Plan, wanted: &Wanted) -> Option<Vec<SortKey>> {
    match plan {
        Plan::One | Plan::Nothing { .. } => Some(Vec::new()),
        Plan::Scan(scan) => arrange_scan(scan, wanted),
        Plan::Filter { input, .. } => arrange(input, wanted),
        Plan::Apply { input, .. } => {
            if is_of(wanted, input.width()) {
                arrange(input, wanted)
            } else {
                None
            }
        }
        Plan::Project { input, exprs } => {
            let order = arrange(input, &through(wanted, exprs)?)?;
            Some(outward(order, exprs, &wanted.together))
        }
        Plan::Join(join) => {
            let order = arrange_left(join, wanted)?;
            join.keeps_order = true;
            Some(order)
        }
        Plan::Merge(merge) => arrange_left(&mut merge.join, wanted),
        Plan::Sort { keys, .. } => of_sorted(keys, wanted),
        Plan::Grouped { input, keys, .. } => {
            let order = arrange(input, &through(wanted, keys)?)?;
            Some(outward(order, keys, &wanted.together))
        }
        Plan::Distinct { input, is_sorted: true, .. } => arrange(input, wanted),
        Plan::Aggregate { keys, .. } if keys.is_empty() => Some(Vec::new()),
        Plan::Aggregate { keys, .. } => {
            let keys = keys.clone();
            let Wanted { keys: lead, together, .. } = through(wanted, &keys)?;
            let order = group(plan, lead.clone())?;
            let order = starting_with(&together, &lead, order)?;
            Some(outward(order, &keys, &wanted.together))
        }
        Plan::Distinct { is_sorted: false, .. } => {
            let order = group(plan, wanted.keys.clone())?;
            starting_with(&wanted.together, &wanted.keys, order)
        }
        _ => None,
    }
}

/// Has groups, or rows that are to be different, come one behind the other, and sorted by `lead`,
/// which is over the rows of the input. Returns in which order the others of their columns come.
pub(super) fn group(plan: &mut Plan, lead: Vec<SortKey>) -> Option<Vec<SortKey>> {
    let (Plan::Aggregate { input, keys, .. } | Plan::Distinct { input, keys, .. }) = plan else {
        return None;
    };
    let columns: Option<Vec<usize>> = keys.iter().map(column_of).collect();
    let columns = columns.filter(|columns| !columns.is_empty())?;
    let order = arrange(input, &Wanted { keys: lead, ..Wanted::grouped(columns) })?;
    if let Plan::Distinct { is_sorted, .. } = plan {
        *is_sorted = true;
    } else if let Plan::Aggregate { input, keys, calls } = std::mem::replace(plan, Plan::One) {
        *plan = Plan::Grouped { input, keys, calls };
    }
    Some(order)
}

/// The columns of the left of a join stay in their order.
fn arrange_left(join: &mut Join, wanted: &Wanted) -> Option<Vec<SortKey>> {
    let is_led_by_left = match join.kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti => true,
        JoinKind::Right | JoinKind::Full => false,
    };
    if !is_led_by_left || !is_of(wanted, join.left_width) {
        return None;
    }
    arrange(&mut join.left, wanted)
}

/// Whether all is over the first `width` columns.
fn is_of(wanted: &Wanted, width: usize) -> bool {
    let mut keys = wanted.keys.iter().flat_map(|key| key.expr.columns());
    keys.all(|column| column < width) && wanted.together.iter().all(|column| *column < width)
}

pub(super) const fn column_of(expr: &Expr) -> Option<usize> {
    if let Expr::Column(column) = expr { Some(*column) } else { None }
}

/// The same over the rows that these expressions are over.
fn through(wanted: &Wanted, exprs: &[Expr]) -> Option<Wanted> {
    let inner = |key: &SortKey| {
        let expr = exprs.get(column_of(&key.expr)?)?.clone();
        Some(SortKey { expr, ..key.clone() })
    };
    let keys: Option<Vec<SortKey>> = wanted.keys.iter().map(inner).collect();
    let column = |at: &usize| exprs.get(*at).and_then(column_of);
    let together: Option<Vec<usize>> = wanted.together.iter().map(column).collect();
    Some(Wanted { keys: keys?, together: together?, is_limited: wanted.is_limited })
}

/// An order of columns of the input as one of those of these expressions that are named.
fn outward(order: Vec<SortKey>, exprs: &[Expr], named: &[usize]) -> Vec<SortKey> {
    let outer = |key: SortKey| {
        let column = column_of(&key.expr)?;
        let is_it = |at: &&usize| exprs.get(**at).and_then(column_of) == Some(column);
        let at = named.iter().find(is_it)?;
        Some(SortKey { expr: Expr::Column(*at), ..key })
    };
    order.into_iter().filter_map(outer).collect()
}

/// The beginning of an order that has these columns, but for those that are in what it comes
/// behind; `None` if others are among them.
fn starting_with(columns: &[usize], lead: &[SortKey], order: Vec<SortKey>) -> Option<Vec<SortKey>> {
    let is_named = |key: &SortKey| column_of(&key.expr).is_some_and(|own| columns.contains(&own));
    let first: Vec<SortKey> = order.into_iter().take_while(is_named).collect();
    let has =
        |column: &usize| lead.iter().chain(&first).any(|key| column_of(&key.expr) == Some(*column));
    columns.iter().all(has).then_some(first)
}

/// What rows that are sorted give.
fn of_sorted(own: &[SortKey], wanted: &Wanted) -> Option<Vec<SortKey>> {
    let mut next = 0;
    let has_told = |next: usize, column: usize| {
        own.iter().take(next).any(|key| column_of(&key.expr) == Some(column))
    };
    for key in &wanted.keys {
        let column = column_of(&key.expr)?;
        if has_told(next, column) {
            continue;
        }
        let found = own.get(next).filter(|own| column_of(&own.expr) == Some(column))?;
        if (found.descending, found.nulls_first) != (key.descending, key.nulls_first) {
            return None;
        }
        next += 1;
    }
    let (mut left, mut together) = (wanted.together.clone(), Vec::new());
    left.retain(|column| !has_told(next, *column));
    while !left.is_empty() {
        let found = own.get(next)?;
        let column = column_of(&found.expr).filter(|column| left.contains(column))?;
        left.retain(|other| *other != column);
        together.push(found.clone());
        next += 1;
    }
    Some(together)
}
