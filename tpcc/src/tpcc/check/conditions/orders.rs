//! Conditions on orders, their lines, and the districts' order numbers: 2 to 7 and 11.

use super::findings::ConditionFindings;
use super::sums::Sums;
use crate::tpcc::check::facts::Facts;
use crate::tpcc::check::unread::CheckedTable;
use crate::tpcc::scale::Scale;

/// Clause 3.3.2.2: `D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)` for each district; the last part
/// only if it has new orders.
pub(super) fn condition_2(facts: &Facts, sums: &Sums) -> ConditionFindings {
    let mut findings = ConditionFindings::new(2, "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)");
    for (key, district) in &facts.districts {
        if !findings
            .judges(facts.unread.are_whole(&[CheckedTable::Orders, CheckedTable::NewOrder], *key))
        {
            continue;
        }
        let sums = sums.districts.get(key).copied().unwrap_or_default();
        let (last, orders, new) = (district.next_order - 1, sums.max_order, sums.max_new_order);
        let holds = last == orders && (sums.new_orders == 0 || last == new);
        findings.expect(holds, || format!("district {key:?}: {last}, {orders} and {new}"));
    }
    findings
}

/// Clause 3.3.2.3: `max(NO_O_ID) - min(NO_O_ID) + 1 =` rows of NEW-ORDER, for each district that
/// has some.
pub(super) fn condition_3(facts: &Facts, sums: &Sums) -> ConditionFindings {
    let mut findings =
        ConditionFindings::new(3, "max(NO_O_ID) - min(NO_O_ID) + 1 = count(NEW-ORDER)");
    for (key, sums) in sums.districts.iter().filter(|(_, sums)| sums.new_orders > 0) {
        if !findings.judges(facts.unread.are_whole(&[CheckedTable::NewOrder], *key)) {
            continue;
        }
        let (low, high, rows) = (sums.min_new_order, sums.max_new_order, sums.new_orders);
        let holds = i64::from(high) - i64::from(low) + 1 == rows;
        findings.expect(holds, || format!("district {key:?}: {low} to {high}, {rows} rows"));
    }
    findings
}

/// Clause 3.3.2.4: `sum(O_OL_CNT) =` rows of ORDER-LINE, for each district.
pub(super) fn condition_4(facts: &Facts, sums: &Sums) -> ConditionFindings {
    let mut findings = ConditionFindings::new(4, "sum(O_OL_CNT) = count(ORDER-LINE)");
    for key in facts.districts.keys() {
        if !findings
            .judges(facts.unread.are_whole(&[CheckedTable::Orders, CheckedTable::OrderLine], *key))
        {
            continue;
        }
        let sums = sums.districts.get(key).copied().unwrap_or_default();
        let (wanted, rows) = (sums.order_lines_wanted, sums.lines);
        findings.expect(wanted == rows, || format!("district {key:?}: {wanted} and {rows}"));
    }
    findings
}

/// Clause 3.3.2.5: an order has no carrier if and only if it has a row in NEW-ORDER.
pub(super) fn condition_5(facts: &Facts) -> ConditionFindings {
    let mut findings =
        ConditionFindings::new(5, "O_CARRIER_ID is null if and only if a NEW-ORDER row exists");
    for (key, order) in &facts.orders {
        if !findings.judges(!facts.unread.hides(CheckedTable::NewOrder, *key)) {
            continue;
        }
        let is_new = facts.new_orders.contains_key(key);
        let carrier = if order.delivered { "carrier" } else { "no carrier" };
        let row = if is_new { "a row" } else { "no row" };
        findings.expect(order.delivered != is_new, || format!("order {key:?}: {carrier}, {row}"));
    }
    findings
}

/// Clause 3.3.2.6: `O_OL_CNT =` rows of ORDER-LINE, for each order.
pub(super) fn condition_6(facts: &Facts) -> ConditionFindings {
    let mut findings = ConditionFindings::new(6, "O_OL_CNT = count(ORDER-LINE) of the order");
    for (key, order) in &facts.orders {
        if !findings.judges(!facts.unread.hides(CheckedTable::OrderLine, *key)) {
            continue;
        }
        let rows = facts.lines.get(key).map_or(0, |lines| lines.count);
        let wanted = order.lines;
        findings.expect(wanted == rows, || format!("order {key:?}: {wanted} and {rows}"));
    }
    findings
}

/// Clause 3.3.2.7: a line has no delivery date if and only if its order has no carrier. A line
/// without an order breaks it too.
pub(super) fn condition_7(facts: &Facts) -> ConditionFindings {
    let mut findings =
        ConditionFindings::new(7, "OL_DELIVERY_D is null if and only if O_CARRIER_ID is null");
    for (key, lines) in &facts.lines {
        let hidden = [CheckedTable::Orders, CheckedTable::OrderLine]
            .map(|part| facts.unread.hides(part, *key));
        if !findings.judges(!hidden.contains(&true)) {
            continue;
        }
        let order = facts.orders.get(key);
        let wanted = order.map(|order| if order.delivered { lines.count } else { 0 });
        let (delivered, count) = (lines.delivered, lines.count);
        findings.expect(wanted == Some(delivered), || {
            let order = match order {
                None => "which does not exist",
                Some(order) if order.delivered => "delivered",
                Some(_) => "not delivered",
            };
            format!("order {key:?}, {order}: {delivered} of {count} lines delivered")
        });
    }
    findings
}

/// Clause 3.3.2.11: rows of ORDER less rows of NEW-ORDER are 2,100 initially, and one more for each
/// delivery since (see the module's front page), for each district.
pub(super) fn condition_11(facts: &Facts, sums: &Sums, scale: &Scale) -> ConditionFindings {
    let mut findings = ConditionFindings::new(
        11,
        "count(ORDER) - count(NEW-ORDER) = initially delivered + deliveries",
    );
    let initially = i64::from(scale.customers_per_district - scale.new_orders_per_district);
    for key in facts.districts.keys() {
        let parts = [CheckedTable::Orders, CheckedTable::NewOrder, CheckedTable::Customer];
        if !findings.judges(facts.unread.are_whole(&parts, *key)) {
            continue;
        }
        let sums = sums.districts.get(key).copied().unwrap_or_default();
        let (orders, new, deliveries) = (sums.orders, sums.new_orders, sums.deliveries);
        findings.expect(orders - new == initially + deliveries, || {
            format!("district {key:?}: {orders} - {new} and {initially} + {deliveries}")
        });
    }
    findings
}
