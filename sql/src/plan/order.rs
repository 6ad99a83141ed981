//! Orders that rows have without a sort: those of the keys by which tables are read.

use super::expr::Expr;
use super::node::{JoinKind, Plan, SortKey};
use super::scan_order::{Wanted, arrange_scan};

/// Has the plan give its rows in this order without a sort, if it can: a table is read from the
/// other end, or by another key if `is_limited`, as only the first rows are needed then. Whether
/// it does.
#[recursive::recursive]
pub(super) fn gives_order(plan: &mut Plan, keys: &[SortKey], is_limited: bool) -> bool {
    match plan {
        Plan::One | Plan::Nothing { .. } => true,
        Plan::Scan(scan) => arrange_scan(scan, &Wanted::sorted(keys, is_limited)).is_some(),
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
