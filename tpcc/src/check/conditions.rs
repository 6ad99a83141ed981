//! Each condition as a function over the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::facts::{CustomerKey, DistrictKey, Facts};
use super::unread::Part;
use crate::scale::Scale;

/// Offending keys named in a report.
const EXAMPLES: usize = 3;

/// How many conditions there are.
pub const CONDITIONS: u8 = 12;

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// Its number, 1 to 12: clause 3.3.2.*number*.
    pub condition: u8,
    /// What must hold.
    pub rule: &'static str,
    /// Keys for which it does not.
    pub offences: u64,
    /// The first of them, with the values found.
    pub examples: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, rule, offences, examples } = self;
        write!(f, "condition {condition} (clause 3.3.2.{condition}): {rule}: ")?;
        write!(f, "{offences} offending, first {}", examples.join("; "))
    }
}

/// What can be said about the conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Those that do not hold.
    pub broken: Vec<Broken>,
    /// Conditions that are not judged for all that they speak about, as rows are on lost pages; for
    /// how many of the warehouses, districts, customers or orders that were read.
    pub unjudged: Vec<(u8, u64)>,
    /// How many conditions are judged for something.
    pub judged: usize,
}

/// What is found about one condition while it is checked.
struct Findings {
    broken: Broken,
    judged: u64,
    unjudged: u64,
}

impl Findings {
    fn new(condition: u8, rule: &'static str) -> Self {
        let broken = Broken { condition, rule, offences: 0, examples: Vec::new() };
        Self { broken, judged: 0, unjudged: 0 }
    }

    /// Notes an offence unless `holds`.
    fn expect(&mut self, holds: bool, example: impl FnOnce() -> String) {
        if !holds {
            self.broken.offences += 1;
            if self.broken.examples.len() < EXAMPLES {
                self.broken.examples.push(example());
            }
        }
    }

    /// Whether to judge something of which everything was read, or not; both are counted.
    fn judges(&mut self, readable: bool) -> bool {
        self.judged += u64::from(readable);
        self.unjudged += u64::from(!readable);
        readable
    }
}

/// Checks all conditions; returns those that do not hold.
#[must_use]
pub fn check(facts: &Facts, scale: &Scale) -> Vec<Broken> {
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
    for Findings { broken, judged, unjudged } in all {
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

/// Sums that several conditions need.
struct Sums {
    districts: BTreeMap<DistrictKey, DistrictSums>,
    /// Sum of the delivered lines' amounts of a customer's orders.
    delivered: BTreeMap<CustomerKey, i64>,
}

#[derive(Clone, Copy, Default)]
struct DistrictSums {
    orders: i64,
    max_order: i32,
    order_lines_wanted: i64,
    lines: i64,
    new_orders: i64,
    min_new_order: i32,
    max_new_order: i32,
    deliveries: i64,
}

impl Sums {
    fn of(facts: &Facts) -> Self {
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

/// Whether all rows of a district in these tables were read.
fn reads(facts: &Facts, (warehouse, district): DistrictKey, parts: &[Part]) -> bool {
    parts.iter().all(|part| facts.unread.is_whole(*part, warehouse, district))
}

/// Clause 3.3.2.1: `W_YTD = sum(D_YTD)` for each warehouse.
fn condition_1(facts: &Facts) -> Findings {
    let mut findings = Findings::new(1, "W_YTD = sum(D_YTD)");
    let mut sums: BTreeMap<i32, i64> = BTreeMap::new();
    for (&(w, _), district) in &facts.districts {
        *sums.entry(w).or_default() += district.ytd;
    }
    for (w, ytd) in &facts.warehouses {
        if !findings.judges(facts.unread.is_whole(Part::District, *w, 0)) {
            continue;
        }
        let sum = sums.get(w).copied().unwrap_or(0);
        findings.expect(*ytd == sum, || format!("warehouse {w}: {ytd} and {sum}"));
    }
    findings
}

/// Clause 3.3.2.2: `D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)` for each district; the last part
/// only if it has new orders.
fn condition_2(facts: &Facts, sums: &Sums) -> Findings {
    let mut findings = Findings::new(2, "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)");
    for (key, district) in &facts.districts {
        if !findings.judges(reads(facts, *key, &[Part::Orders, Part::NewOrder])) {
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
fn condition_3(facts: &Facts, sums: &Sums) -> Findings {
    let mut findings = Findings::new(3, "max(NO_O_ID) - min(NO_O_ID) + 1 = count(NEW-ORDER)");
    for (key, sums) in sums.districts.iter().filter(|(_, sums)| sums.new_orders > 0) {
        if !findings.judges(reads(facts, *key, &[Part::NewOrder])) {
            continue;
        }
        let (low, high, rows) = (sums.min_new_order, sums.max_new_order, sums.new_orders);
        let holds = i64::from(high) - i64::from(low) + 1 == rows;
        findings.expect(holds, || format!("district {key:?}: {low} to {high}, {rows} rows"));
    }
    findings
}

/// Clause 3.3.2.4: `sum(O_OL_CNT) =` rows of ORDER-LINE, for each district.
fn condition_4(facts: &Facts, sums: &Sums) -> Findings {
    let mut findings = Findings::new(4, "sum(O_OL_CNT) = count(ORDER-LINE)");
    for key in facts.districts.keys() {
        if !findings.judges(reads(facts, *key, &[Part::Orders, Part::OrderLine])) {
            continue;
        }
        let sums = sums.districts.get(key).copied().unwrap_or_default();
        let (wanted, rows) = (sums.order_lines_wanted, sums.lines);
        findings.expect(wanted == rows, || format!("district {key:?}: {wanted} and {rows}"));
    }
    findings
}

/// Clause 3.3.2.5: an order has no carrier if and only if it has a row in NEW-ORDER.
fn condition_5(facts: &Facts) -> Findings {
    let mut findings =
        Findings::new(5, "O_CARRIER_ID is null if and only if a NEW-ORDER row exists");
    for (key, order) in &facts.orders {
        if !findings.judges(!facts.unread.hides(Part::NewOrder, *key)) {
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
fn condition_6(facts: &Facts) -> Findings {
    let mut findings = Findings::new(6, "O_OL_CNT = count(ORDER-LINE) of the order");
    for (key, order) in &facts.orders {
        if !findings.judges(!facts.unread.hides(Part::OrderLine, *key)) {
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
fn condition_7(facts: &Facts) -> Findings {
    let mut findings =
        Findings::new(7, "OL_DELIVERY_D is null if and only if O_CARRIER_ID is null");
    for (key, lines) in &facts.lines {
        let hidden = [Part::Orders, Part::OrderLine].map(|part| facts.unread.hides(part, *key));
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

/// Clause 3.3.2.8: `W_YTD = sum(H_AMOUNT)` for each warehouse.
fn condition_8(facts: &Facts) -> Findings {
    let mut findings = Findings::new(8, "W_YTD = sum(H_AMOUNT)");
    let mut paid: BTreeMap<i32, i64> = facts.warehouses.keys().map(|&w| (w, 0)).collect();
    for (&(w, _), amount) in &facts.paid_in_district {
        *paid.entry(w).or_default() += amount;
    }
    for (w, paid) in paid {
        let parts = [Part::Warehouse, Part::History];
        if !findings.judges(parts.into_iter().all(|part| facts.unread.is_whole(part, w, 0))) {
            continue;
        }
        let ytd = facts.warehouses.get(&w).copied();
        findings.expect(ytd == Some(paid), || format!("warehouse {w}: {ytd:?} and {paid}"));
    }
    findings
}

/// Clause 3.3.2.9: `D_YTD = sum(H_AMOUNT)` for each district.
fn condition_9(facts: &Facts) -> Findings {
    let mut findings = Findings::new(9, "D_YTD = sum(H_AMOUNT)");
    let keys: BTreeSet<DistrictKey> =
        facts.districts.keys().chain(facts.paid_in_district.keys()).copied().collect();
    for key in keys {
        let (w, d) = key;
        let row = !facts.unread.hides(Part::District, (w, 0, d));
        if !findings.judges(row && facts.unread.is_whole(Part::History, w, 0)) {
            continue;
        }
        let ytd = facts.districts.get(&key).map(|district| district.ytd);
        let paid = facts.paid_in_district.get(&key).copied().unwrap_or(0);
        findings.expect(ytd == Some(paid), || format!("district {key:?}: {ytd:?} and {paid}"));
    }
    findings
}

/// Clause 3.3.2.10: `C_BALANCE = sum(OL_AMOUNT) - sum(H_AMOUNT)` for each customer, over delivered
/// lines.
fn condition_10(facts: &Facts, sums: &Sums) -> Findings {
    let mut findings = Findings::new(10, "C_BALANCE = sum(delivered OL_AMOUNT) - sum(H_AMOUNT)");
    let payments = facts.unread.has_all_payments();
    for (key, customer) in &facts.customers {
        let orders = reads(facts, (key.0, key.1), &[Part::Orders, Part::OrderLine]);
        if !findings.judges(payments && orders) {
            continue;
        }
        let delivered = sums.delivered.get(key).copied().unwrap_or(0);
        let paid = facts.paid_by_customer.get(key).copied().unwrap_or(0);
        let balance = customer.balance;
        findings.expect(balance == delivered - paid, || {
            format!("customer {key:?}: {balance}, {delivered} and {paid}")
        });
    }
    findings
}

/// Clause 3.3.2.11: rows of ORDER less rows of NEW-ORDER are 2,100 initially, and one more for each
/// delivery since (see the module's front page), for each district.
fn condition_11(facts: &Facts, sums: &Sums, scale: &Scale) -> Findings {
    let mut findings =
        Findings::new(11, "count(ORDER) - count(NEW-ORDER) = initially delivered + deliveries");
    let initially = i64::from(scale.customers_per_district - scale.new_orders_per_district);
    for key in facts.districts.keys() {
        let parts = [Part::Orders, Part::NewOrder, Part::Customer];
        if !findings.judges(reads(facts, *key, &parts)) {
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

/// Clause 3.3.2.12: `C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT)` for each customer, over delivered
/// lines.
fn condition_12(facts: &Facts, sums: &Sums) -> Findings {
    let mut findings = Findings::new(12, "C_BALANCE + C_YTD_PAYMENT = sum(delivered OL_AMOUNT)");
    for (key, customer) in &facts.customers {
        if !findings.judges(reads(facts, (key.0, key.1), &[Part::Orders, Part::OrderLine])) {
            continue;
        }
        let delivered = sums.delivered.get(key).copied().unwrap_or(0);
        let (balance, paid) = (customer.balance, customer.ytd_payment);
        findings.expect(balance + paid == delivered, || {
            format!("customer {key:?}: {balance} + {paid} and {delivered}")
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::facts::{CustomerFacts, DistrictFacts, LineFacts, OrderFacts};
    use super::*;

    const KEY: DistrictKey = (1, 1);

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
            f.unread.add_gap(Part::Warehouse, (1, 0), (1, 1));
        });
        assert_eq!(warehouse, (none(), vec![(8, 1)]));
        let district = lost(|f| {
            f.districts.clear();
            f.unread.add_gap(Part::District, (1, 0), (1, 1));
        });
        assert_eq!(district, (none(), vec![(1, 1), (9, 1)]));
        let history = lost(|f| {
            f.paid_in_district.insert(KEY, 1000);
            f.paid_by_customer.remove(&(1, 1, 2));
            f.unread.add_gap(Part::History, (1, 0), (17, 20));
        });
        assert_eq!(history, (none(), vec![(8, 1), (9, 1), (10, 2)]));
        let orders = lost(|f| {
            f.orders.remove(&(1, 1, 2));
            f.unread.add_gap(Part::Orders, KEY, (2, i32::MAX));
        });
        let unjudged = vec![(2, 1), (4, 1), (7, 1), (10, 2), (11, 1), (12, 2)];
        assert_eq!(orders, (none(), unjudged));
        let new_orders = lost(|f| {
            f.new_orders.clear();
            f.unread.add_gap(Part::NewOrder, KEY, (2, 2));
        });
        assert_eq!(new_orders, (none(), vec![(2, 1), (5, 1), (11, 1)]));
        let lines = lost(|f| {
            f.lines.get_mut(&(1, 1, 2)).unwrap().count = 3;
            f.unread.add_gap(Part::OrderLine, KEY, (2, 2));
        });
        assert_eq!(lines, (none(), vec![(4, 1), (6, 1), (7, 1), (10, 2), (12, 2)]));
        let customers = lost(|f| {
            f.customers.remove(&(1, 1, 2));
            f.unread.add_gap(Part::Customer, KEY, (2, 2));
        });
        assert_eq!(customers, (none(), vec![(11, 1)]));
        // A gap elsewhere excuses nothing.
        let elsewhere = lost(|f| {
            f.lines.get_mut(&(1, 1, 2)).unwrap().count = 3;
            f.unread.add_gap(Part::OrderLine, (1, 2), (2, 2));
            f.unread.add_gap(Part::Orders, (2, 1), (2, 2));
        });
        assert_eq!(elsewhere, (vec![4, 6], Vec::new()));
    }

    #[test]
    fn how_many_conditions_are_judged_at_all_is_counted() {
        let (mut facts, scale) = facts();
        assert_eq!(judge(&facts, &scale).judged, usize::from(CONDITIONS));
        facts.unread.add_gap(Part::History, (1, 0), (17, 20));
        assert_eq!(judge(&facts, &scale).judged, usize::from(CONDITIONS) - 3);
        for part in Part::ALL {
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
