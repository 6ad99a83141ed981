//! Orders in which tables are read: those of their keys.

use std::sync::Arc;

use selkie_txn::KeyOrder;

use super::cover::is_covered;
use super::expr::Expr;
use super::node::{Access, KeyExpr, Scan, SortKey};
use crate::catalogue::TableDef;

/// How rows are asked to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// They are sorted by these.
    pub(super) keys: Vec<SortKey>,
    /// Of those that agree in these keys, rows that agree in these columns come one behind the
    /// other.
    pub(super) together: Vec<usize>,
    /// Whether only the first rows are needed.
    pub(super) is_limited: bool,
}

impl Wanted {
    /// An order.
    pub(super) fn sorted(keys: &[SortKey], is_limited: bool) -> Self {
        Self { keys: keys.to_vec(), together: Vec::new(), is_limited }
    }

    /// Groups of rows that agree in these columns.
    pub(super) fn grouped(columns: Vec<usize>) -> Self {
        Self { together: columns, ..Self::default() }
    }
}

/// Has a table read so that its rows come as is wanted, if one of its keys gives that: from the
/// other end, or by another key if that leads to few rows or its entries do. Returns in which order
/// the columns come that are to be together; `None` if no key gives it.
pub(super) fn arrange_scan(scan: &mut Arc<Scan>, wanted: &Wanted) -> Option<Vec<SortKey>> {
    let Access::Range { index: own, prefix, low, high, descending } = &scan.access else {
        return None;
    };
    let is_bounded = low.is_some() || high.is_some();
    // By another key it may take longer to find a row, and a filter may leave out all that comes
    // first of a whole table.
    let leads_to_few = match own {
        Some(_) => true,
        None => wanted.is_limited && (scan.access.is_keyed() || scan.filter.is_none()),
    };
    let others = std::iter::once(None).chain((0..scan.table.indexes.len()).map(Some));
    let others = others.filter(|index| {
        !scan.is_ordered && index != own && (leads_to_few || is_covered(scan, *index))
    });
    // Those that tell all themselves are best.
    let mut others: Vec<Option<usize>> = others.collect();
    others.sort_by_key(|index| !is_covered(scan, *index));
    let found = std::iter::once(*own).chain(others).find_map(|index| {
        let prefix = prefix_by(&scan.table, (*own, prefix), index, is_bounded)?;
        let key = KeyRead {
            table: &scan.table,
            index,
            bound: prefix.len(),
            is_bounded,
            turned: scan.is_ordered.then_some(*descending),
        };
        let Found { descending, together } = key.gives(wanted)?;
        let (low, high) = (low.clone(), high.clone());
        Some((Access::Range { index, prefix, low, high, descending }, together))
    });
    let (access, together) = found?;
    let scan = Arc::make_mut(scan);
    scan.access = access;
    scan.is_ordered = true;
    Some(together)
}

/// The values that `prefix` gives the first columns of the key `own`, as they are for another key
/// whose first columns are the same. If the next column is bounded, it is the same too.
pub(super) fn prefix_by(
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

/// The columns of a key, and of an index behind them those of the primary key: that ends the
/// entries whose other columns are the same.
pub(super) fn all_columns(
    table: &TableDef,
    index: Option<usize>,
) -> Option<(Vec<usize>, Vec<KeyOrder>)> {
    let (columns, orders) = table.key(index)?;
    let (primary, primary_orders) = table.key(None)?;
    let order_of = |orders: &[KeyOrder], at| orders.get(at).copied().unwrap_or_default();
    let own = columns.iter().enumerate().map(|(at, column)| (*column, order_of(orders, at)));
    let behind = primary.iter().enumerate();
    let behind = behind.map(|(at, column)| (*column, order_of(primary_orders, at)));
    let behind = behind.filter(|(column, _)| !columns.contains(column));
    Some(own.chain(behind).unzip())
}

/// A read of a key.
struct KeyRead<'t> {
    table: &'t TableDef,
    index: Option<usize>,
    /// The first columns, which have one value each.
    bound: usize,
    /// Whether the next column is never NULL.
    is_bounded: bool,
    /// From which end it is read, if that is known.
    turned: Option<bool>,
}

/// How a key gives what is wanted.
struct Found {
    descending: bool,
    together: Vec<SortKey>,
}

impl KeyRead<'_> {
    /// How it is to be read to give what is wanted; `None` if it does not.
    fn gives(&self, wanted: &Wanted) -> Option<Found> {
        let (columns, orders) = all_columns(self.table, self.index)?;
        let is_nullable =
            |column: usize| self.table.columns.get(column).is_none_or(|own| own.nullable);
        let order_of = |at: usize| orders.get(at).copied().unwrap_or_default();
        let has_told =
            |next: usize, column: usize| columns.iter().take(next).any(|before| *before == column);
        let (mut next, mut turned) = (self.bound, self.turned);
        for key in &wanted.keys {
            let Expr::Column(column) = key.expr else { return None };
            // It has one value, or has told the rows apart already.
            if has_told(next, column) {
                continue;
            }
            self.check_type(column)?;
            let Some(own) = columns.get(next).filter(|_| !self.is_told_by(next)) else {
                // No two rows are left that it could tell apart.
                let (descending, together) = (turned.unwrap_or(false), Vec::new());
                return Some(Found { descending, together });
            };
            let order = order_of(next);
            let is_turned = key.descending != order.descending;
            let has_null = is_nullable(column) && !(self.is_bounded && next == self.bound);
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
        let mut left = wanted.together.clone();
        left.retain(|column| !has_told(next, *column));
        let (descending, mut together) = (turned.unwrap_or(false), Vec::new());
        while !left.is_empty() {
            let Some(own) = columns.get(next).filter(|_| !self.is_told_by(next)) else { break };
            self.check_type(*own)?;
            if !left.contains(own) {
                return None;
            }
            left.retain(|column| column != own);
            let order = order_of(next);
            together.push(SortKey {
                expr: Expr::Column(*own),
                descending: order.descending != descending,
                nulls_first: order.nulls_last == descending,
            });
            next += 1;
        }
        Some(Found { descending, together })
    }

    /// Whether the first columns of the key tell any two rows apart.
    fn is_told_by(&self, columns: usize) -> bool {
        let is_nullable =
            |column: &usize| self.table.columns.get(*column).is_none_or(|own| own.nullable);
        let index = self.index.map(|at| self.table.indexes.get(at));
        let is_unique = index.is_none_or(|own| own.is_some_and(|own| own.unique));
        let own = self.table.key(self.index).map_or(&[][..], |(columns, _)| columns);
        is_unique && columns >= own.len() && !own.iter().skip(self.bound).any(is_nullable)
    }

    /// Keys have arrays in another order than they are compared in.
    fn check_type(&self, column: usize) -> Option<()> {
        self.table.columns.get(column).filter(|own| !own.ty.is_array).map(drop)
    }
}
