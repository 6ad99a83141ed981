//! Sums that several conditions need.

use std::collections::BTreeMap;

use crate::tpcc::check::facts::{CustomerKey, DistrictKey, Facts};

/// Sums that several conditions need.
pub(super) struct Sums {
    pub(super) districts: BTreeMap<DistrictKey, DistrictSums>,
    /// Sum of the delivered lines' amounts of a customer's orders.
    pub(super) delivered: BTreeMap<CustomerKey, i64>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct DistrictSums {
    pub(super) orders: i64,
    pub(super) max_order: i32,
    pub(super) order_lines_wanted: i64,
    pub(super) lines: i64,
    pub(super) new_orders: i64,
    pub(super) min_new_order: i32,
    pub(super) max_new_order: i32,
    pub(super) deliveries: i64,
}

impl Sums {
    pub(super) fn of(facts: &Facts) -> Self {
        let mut districts: BTreeMap<DistrictKey, DistrictSums> =
            facts.districts.keys().map(|&key| (key, DistrictSums::default())).collect();
        let mut delivered: BTreeMap<CustomerKey, i64> = BTreeMap::new();
        for (&(w, d, number), order) in &facts.orders {
            let sums = districts.entry((w, d)).or_default();
            sums.orders += 1;
            sums.max_order = sums.max_order.max(number);
            sums.order_lines_wanted += i64::from(order.lines);
            if let Some(lines) = facts.lines.get(&(w, d, number)) {
                *delivered.entry((w, d, order.customer)).or_default() += lines.delivered_amount;
            }
        }
        for &(w, d, number) in facts.new_orders.keys() {
            let sums = districts.entry((w, d)).or_default();
            let first = sums.new_orders == 0;
            sums.new_orders += 1;
            sums.max_new_order = sums.max_new_order.max(number);
            sums.min_new_order = if first { number } else { sums.min_new_order.min(number) };
        }
        for (&(w, d, _), lines) in &facts.lines {
            districts.entry((w, d)).or_default().lines += i64::from(lines.count);
        }
        for (&(w, d, _), customer) in &facts.customers {
            districts.entry((w, d)).or_default().deliveries += i64::from(customer.deliveries);
        }
        Self { districts, delivered }
    }
}
