//! Joins of sides that come in the order of what has to be equal: they are merged, so that neither
//! is kept in memory, and where one ends the other need not be read on.

use super::arrange::{arrange, column_of};
use super::expr::Expr;
use super::key_conditions::keeps_order;
use super::node::{Join, Merge, MergeKey, Plan, SortKey};
use super::scan_order::Wanted;

/// Has a join merge its sides, if both can be read in one order.
pub(super) fn merge(plan: &mut Plan) {
    let Plan::Join(join) = plan else { return };
    if join.is_lateral || join.equal.is_empty() {
        return;
    }
    let Some(merge) = merged(join, false).or_else(|| merged(join, true)) else { return };
    *plan = Plan::Merge(Box::new(merge));
}

/// The join with its sides in the order that the left has, or the right if that is first.
fn merged(join: &Join, is_right_first: bool) -> Option<Merge> {
    let turned = |(left, right): (usize, usize)| match is_right_first {
        true => (right, left),
        false => (left, right),
    };
    let columns = |(left, right)| Some(turned((ordering(left)?, ordering(right)?)));
    let pairs: Option<Vec<(usize, usize)>> =
        join.equal.iter().map(|(left, right)| columns((left, right))).collect();
    let (pairs, mut join) = (pairs?, join.clone());
    let Join { left, right, .. } = &mut join;
    let (first, second) = if is_right_first { (right, left) } else { (left, right) };
    let wanted = Wanted::grouped(pairs.iter().map(|(first, _)| *first).collect());
    let order = order_of_pairs(&pairs, &arrange(first, &wanted)?);
    let keys = order.iter().filter_map(|(at, key)| {
        let expr = Expr::Column(pairs.get(*at)?.1);
        Some(SortKey { expr, descending: key.descending, nulls_first: key.nulls_first })
    });
    arrange(second, &Wanted { keys: keys.collect(), ..Wanted::default() })?;
    join.equal = order.iter().filter_map(|(at, _)| join.equal.get(*at).cloned()).collect();
    let keys = order.into_iter().map(|(_, key)| key).collect();
    Some(Merge { join, keys })
}

/// The pairs in the order that the first of each of them has. Those that are not named there have
/// one value, or one for each value of the others: they come last.
fn order_of_pairs(pairs: &[(usize, usize)], order: &[SortKey]) -> Vec<(usize, MergeKey)> {
    let place = |column: usize| order.iter().position(|key| column_of(&key.expr) == Some(column));
    let key = |place: Option<usize>| match place.and_then(|place| order.get(place)) {
        Some(SortKey { descending, nulls_first, .. }) => {
            MergeKey { descending: *descending, nulls_first: *nulls_first }
        }
        None => MergeKey { descending: false, nulls_first: false },
    };
    let places = pairs.iter().enumerate().map(|(at, (first, _))| (place(*first), at));
    let mut places: Vec<(Option<usize>, usize)> = places.collect();
    places.sort_by_key(|(place, at)| (place.is_none(), *place, *at));
    places.into_iter().map(|(place, at)| (at, key(place))).collect()
}

/// The column whose order is that of an expression.
fn ordering(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Cast { operand, from, to, .. } if keeps_order(*from, *to) => column_of(operand),
        expr => column_of(expr),
    }
}
