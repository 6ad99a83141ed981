//! The facts that the conditions judge, collected from the tables.

use std::collections::BTreeMap;

use super::unread::Unread;

/// A district: warehouse and number.
pub(crate) type DistrictKey = (i32, i32);
/// A customer: warehouse, district and number.
pub(crate) type CustomerKey = (i32, i32, i32);
/// An order: warehouse, district and number.
pub(crate) type OrderKey = (i32, i32, i32);

/// A row of DISTRICT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DistrictFacts {
    pub(crate) ytd: i64,
    pub(crate) next_order: i32,
}

/// A row of CUSTOMER.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CustomerFacts {
    pub(crate) balance: i64,
    pub(crate) ytd_payment: i64,
    pub(crate) deliveries: i32,
}

/// A row of ORDER.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderFacts {
    pub(crate) customer: i32,
    pub(crate) delivered: bool,
    pub(crate) lines: i32,
}

/// The rows of ORDER-LINE of one order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineFacts {
    pub(crate) count: i32,
    pub(crate) delivered: i32,
    /// Sum of the amounts of the delivered ones.
    pub(crate) delivered_amount: i64,
}

/// The facts of all warehouses, or of some.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `W_YTD`.
    pub(crate) warehouses: BTreeMap<i32, i64>,
    pub(crate) districts: BTreeMap<DistrictKey, DistrictFacts>,
    pub(crate) customers: BTreeMap<CustomerKey, CustomerFacts>,
    /// Sum of `H_AMOUNT` by the district where it was paid.
    pub(crate) paid_in_district: BTreeMap<DistrictKey, i64>,
    /// Sum of `H_AMOUNT` by customer.
    pub(crate) paid_by_customer: BTreeMap<CustomerKey, i64>,
    pub(crate) orders: BTreeMap<OrderKey, OrderFacts>,
    /// Rows of NEW-ORDER.
    pub(crate) new_orders: BTreeMap<OrderKey, ()>,
    pub(crate) lines: BTreeMap<OrderKey, LineFacts>,
    /// Rows read.
    pub(crate) rows: u64,
    /// What could not be read.
    pub(crate) unread: Unread,
}

impl Facts {
    /// Rows that were read.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Lost pages that the check met.
    #[must_use]
    pub fn lost_pages(&self) -> usize {
        self.unread.pages()
    }

    /// Adds the facts of other tables or warehouses. Payments of one customer may be in both.
    pub(crate) fn merge(&mut self, other: Self) {
        unite(&mut self.warehouses, other.warehouses);
        unite(&mut self.districts, other.districts);
        unite(&mut self.customers, other.customers);
        unite(&mut self.orders, other.orders);
        unite(&mut self.new_orders, other.new_orders);
        unite(&mut self.lines, other.lines);
        add(&mut self.paid_in_district, other.paid_in_district);
        add(&mut self.paid_by_customer, other.paid_by_customer);
        self.rows += other.rows;
        self.unread.merge(other.unread);
    }
}

/// The union of maps with different keys, at the price of the smaller one.
fn unite<K: Ord, V>(into: &mut BTreeMap<K, V>, mut from: BTreeMap<K, V>) {
    if from.len() > into.len() {
        std::mem::swap(into, &mut from);
    }
    into.extend(from);
}

/// The same for sums: equal keys are added up.
fn add<K: Ord>(into: &mut BTreeMap<K, i64>, mut from: BTreeMap<K, i64>) {
    if from.len() > into.len() {
        std::mem::swap(into, &mut from);
    }
    for (key, amount) in from {
        *into.entry(key).or_default() += amount;
    }
}
