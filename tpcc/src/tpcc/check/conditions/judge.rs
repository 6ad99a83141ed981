//! All conditions together.

use super::findings::{BrokenCondition, ConditionFindings, Judgement};
use super::orders::{
    condition_2, condition_3, condition_4, condition_5, condition_6, condition_7, condition_11,
};
use super::payments::{condition_1, condition_8, condition_9, condition_10, condition_12};
use super::sums::Sums;
use crate::tpcc::check::facts::Facts;
use crate::tpcc::scale::Scale;

/// How many conditions there are.
pub const CONDITIONS: u8 = 12;

/// Checks all conditions; returns those that do not hold.
#[must_use]
pub fn check(facts: &Facts, scale: &Scale) -> Vec<BrokenCondition> {
    judge(facts, scale).broken
}

/// Checks all conditions.
#[must_use]
pub fn judge(facts: &Facts, scale: &Scale) -> Judgement {
    let sums = Sums::of(facts);
    let all = [
        condition_1(facts),
        condition_2(facts, &sums),
        condition_3(facts, &sums),
        condition_4(facts, &sums),
        condition_5(facts),
        condition_6(facts),
        condition_7(facts),
        condition_8(facts),
        condition_9(facts),
        condition_10(facts, &sums),
        condition_11(facts, &sums, scale),
        condition_12(facts, &sums),
    ];
    let mut judgement = Judgement::default();
    for ConditionFindings { broken, judged, unjudged } in all {
        judgement.judged += usize::from(judged > 0);
        if unjudged > 0 {
            judgement.unjudged.push((broken.condition, unjudged));
        }
        if broken.offences > 0 {
            judgement.broken.push(broken);
        }
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::check::facts::{CustomerFacts, DistrictFacts, LineFacts, OrderFacts};
    use crate::tpcc::check::unread::CheckedTable;

    const KEY: crate::tpcc::check::facts::DistrictKey = (1, 1);

    /// One district: order 1 of customer 1 delivered, order 2 of customer 2 not.
    fn facts() -> (Facts, Scale) {
        let scale = Scale { items: 10, customers_per_district: 2, new_orders_per_district: 1 };
        let mut facts = Facts::default();
        facts.warehouses.insert(1, 3000);
        facts.districts.insert(KEY, DistrictFacts { ytd: 3000, next_order: 3 });
        facts.paid_in_district.insert(KEY, 3000);
        for (id, paid, delivered) in [(1, 1000, 500), (2, 2000, 0)] {
            facts.customers.insert(
                (1, 1, id),
                CustomerFacts { balance: delivered - paid, ytd_payment: paid, deliveries: 0 },
            );
            facts.paid_by_customer.insert((1, 1, id), paid);
            let is_delivered = delivered > 0;
            facts
                .orders
                .insert((1, 1, id), OrderFacts { customer: id, delivered: is_delivered, lines: 5 });
            facts.lines.insert(
                (1, 1, id),
                LineFacts {
                    count: 5,
                    delivered: if is_delivered { 5 } else { 0 },
                    delivered_amount: delivered,
                },
            );
        }
        facts.new_orders.insert((1, 1, 2), ());
        (facts, scale)
    }

    fn broken(change: impl FnOnce(&mut Facts)) -> Vec<u8> {
        let (mut facts, scale) = facts();
        change(&mut facts);
        check(&facts, &scale).iter().map(|broken| broken.condition).collect()
    }

    #[test]
    fn each_condition_sees_its_violation() {
        assert_eq!(broken(|_| ()), [0; 0]);
        assert_eq!(broken(|f| *f.warehouses.get_mut(&1).unwrap() += 1), [1, 8]);
        assert_eq!(broken(|f| f.districts.get_mut(&KEY).unwrap().ytd += 1), [1, 9]);
        assert_eq!(broken(|f| f.districts.get_mut(&KEY).unwrap().next_order += 1), [2]);
        assert_eq!(broken(|f| _ = f.new_orders.insert((1, 1, 0), ())), [3, 11]);
        assert_eq!(broken(|f| f.orders.get_mut(&(1, 1, 1)).unwrap().lines += 1), [4, 6]);
        assert_eq!(broken(|f| f.orders.get_mut(&(1, 1, 1)).unwrap().delivered = false), [5, 7]);
        assert_eq!(broken(|f| f.lines.get_mut(&(1, 1, 2)).unwrap().delivered = 1), [7]);
        assert_eq!(broken(|f| *f.paid_in_district.get_mut(&KEY).unwrap() += 1), [8, 9]);
        assert_eq!(broken(|f| *f.paid_by_customer.get_mut(&(1, 1, 1)).unwrap() += 1), [10]);
        assert_eq!(broken(|f| f.customers.get_mut(&(1, 1, 1)).unwrap().deliveries = 1), [11]);
        assert_eq!(broken(|f| f.customers.get_mut(&(1, 1, 1)).unwrap().ytd_payment += 1), [12]);
        assert_eq!(broken(|f| f.customers.get_mut(&(1, 1, 1)).unwrap().balance += 1), [10, 12]);
    }

    /// Conditions broken and not judged after rows were lost, with whatever the conditions say
    /// about them.
    fn lost(change: impl FnOnce(&mut Facts)) -> (Vec<u8>, Vec<(u8, u64)>) {
        let (mut facts, scale) = facts();
        change(&mut facts);
        let Judgement { broken, unjudged, .. } = judge(&facts, &scale);
        (broken.iter().map(|broken| broken.condition).collect(), unjudged)
    }

    #[test]
    fn what_may_be_on_a_lost_page_is_not_judged_and_the_rest_is() {
        let none = Vec::new;
        let warehouse = lost(|f| {
            f.warehouses.clear();
            f.unread.add_gap(CheckedTable::Warehouse, (1, 0), (1, 1));
        });
        assert_eq!(warehouse, (none(), vec![(8, 1)]));
        let district = lost(|f| {
            f.districts.clear();
            f.unread.add_gap(CheckedTable::District, (1, 0), (1, 1));
        });
        assert_eq!(district, (none(), vec![(1, 1), (9, 1)]));
        let history = lost(|f| {
            f.paid_in_district.insert(KEY, 1000);
            f.paid_by_customer.remove(&(1, 1, 2));
            f.unread.add_gap(CheckedTable::History, (1, 0), (17, 20));
        });
        assert_eq!(history, (none(), vec![(8, 1), (9, 1), (10, 2)]));
        let orders = lost(|f| {
            f.orders.remove(&(1, 1, 2));
            f.unread.add_gap(CheckedTable::Orders, KEY, (2, i32::MAX));
        });
        let unjudged = vec![(2, 1), (4, 1), (7, 1), (10, 2), (11, 1), (12, 2)];
        assert_eq!(orders, (none(), unjudged));
        let new_orders = lost(|f| {
            f.new_orders.clear();
            f.unread.add_gap(CheckedTable::NewOrder, KEY, (2, 2));
        });
        assert_eq!(new_orders, (none(), vec![(2, 1), (5, 1), (11, 1)]));
        let lines = lost(|f| {
            f.lines.get_mut(&(1, 1, 2)).unwrap().count = 3;
            f.unread.add_gap(CheckedTable::OrderLine, KEY, (2, 2));
        });
        assert_eq!(lines, (none(), vec![(4, 1), (6, 1), (7, 1), (10, 2), (12, 2)]));
        let customers = lost(|f| {
            f.customers.remove(&(1, 1, 2));
            f.unread.add_gap(CheckedTable::Customer, KEY, (2, 2));
        });
        assert_eq!(customers, (none(), vec![(11, 1)]));
        // A gap elsewhere excuses nothing.
        let elsewhere = lost(|f| {
            f.lines.get_mut(&(1, 1, 2)).unwrap().count = 3;
            f.unread.add_gap(CheckedTable::OrderLine, (1, 2), (2, 2));
            f.unread.add_gap(CheckedTable::Orders, (2, 1), (2, 2));
        });
        assert_eq!(elsewhere, (vec![4, 6], Vec::new()));
    }

    #[test]
    fn how_many_conditions_are_judged_at_all_is_counted() {
        let (mut facts, scale) = facts();
        assert_eq!(judge(&facts, &scale).judged, usize::from(CONDITIONS));
        facts.unread.add_gap(CheckedTable::History, (1, 0), (17, 20));
        assert_eq!(judge(&facts, &scale).judged, usize::from(CONDITIONS) - 3);
        for part in CheckedTable::ALL {
            facts.unread.add_gap(part, (1, 0), (i32::MIN, i32::MAX));
            facts.unread.add_gap(part, KEY, (i32::MIN, i32::MAX));
        }
        assert_eq!(judge(&facts, &scale).judged, 0);
        assert_eq!(judge(&Facts::default(), &scale).judged, 0, "nothing was read");
    }

    #[test]
    fn rows_without_a_parent_are_seen() {
        let orphan = LineFacts { count: 1, delivered: 0, delivered_amount: 0 };
        assert_eq!(broken(|f| _ = f.lines.insert((1, 1, 9), orphan)), [4, 7]);
        assert_eq!(broken(|f| _ = f.paid_in_district.insert((1, 2), 5)), [8, 9]);
        assert_eq!(broken(|f| _ = f.paid_in_district.insert((2, 1), 5)), [8, 9]);
    }

    #[test]
    fn few_of_many_offences_are_named() {
        let (mut facts, scale) = facts();
        for id in 10..20 {
            facts
                .customers
                .insert((1, 1, id), CustomerFacts { balance: 1, ytd_payment: -1, deliveries: 0 });
        }
        let broken = check(&facts, &scale);
        assert_eq!((broken.len(), broken[0].offences, broken[0].examples.len()), (1, 10, 3));
        let text = broken[0].to_string();
        assert!(text.starts_with("condition 10 (clause 3.3.2.10): C_BALANCE"), "{text}");
        assert!(text.contains("10 offending, first customer (1, 1, 10): 1, 0 and 0;"), "{text}");
    }
}
