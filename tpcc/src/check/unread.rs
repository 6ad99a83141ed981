//! What a check could not read, because nodes that died took the pages with them.
//!
//! A page is either as the last transaction that changed it left it, or it is lost: what is not
//! committed is on pages that the dead node held, and those are lost. So whatever a condition says
//! about rows that can all be read must hold; where a row that it speaks about may be on a lost
//! page, it is not judged.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Facts, OrderKey};
use crate::scale::{DISTRICTS, MIN_LINES, Scale};

/// The tables that conditions speak about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Warehouse,
    District,
    Customer,
    History,
    Orders,
    NewOrder,
    OrderLine,
}

impl Part {
    pub(crate) const ALL: [Self; 7] = [
        Self::Warehouse,
        Self::District,
        Self::Customer,
        Self::History,
        Self::Orders,
        Self::NewOrder,
        Self::OrderLine,
    ];

    /// The table's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Warehouse => "warehouse",
            Self::District => "district",
            Self::Customer => "customer",
            Self::History => "history",
            Self::Orders => "orders",
            Self::NewOrder => "new_order",
            Self::OrderLine => "order_line",
        }
    }
}

/// Numbers from the first to the last.
pub(crate) type Gap = (i32, i32);

/// The keys that are on lost pages, and the pages.
///
/// A key is that of the row but for WAREHOUSE, DISTRICT and HISTORY, where the district is 0: the
/// number is then that of the warehouse, of the district, and of the writer; and for ORDER-LINE,
/// where it is the order's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    gaps: BTreeMap<(Part, i32, i32), Vec<Gap>>,
    pages: BTreeSet<u64>,
}

impl Unread {
    pub(crate) fn add_page(&mut self, page: u64) {
        self.pages.insert(page);
    }

    pub(crate) fn add_gap(&mut self, part: Part, (warehouse, district): (i32, i32), gap: Gap) {
        self.gaps.entry((part, warehouse, district)).or_default().push(gap);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.pages.extend(other.pages);
        for (key, gaps) in other.gaps {
            self.gaps.entry(key).or_default().extend(gaps);
        }
    }

    /// Lost pages that were met.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn gaps(&self, part: Part, warehouse: i32, district: i32) -> &[Gap] {
        self.gaps.get(&(part, warehouse, district)).map_or(&[], Vec::as_slice)
    }

    /// Whether all rows of a table that belong to a district (or, with 0, a warehouse) were read.
    pub(crate) fn is_whole(&self, part: Part, warehouse: i32, district: i32) -> bool {
        self.gaps(part, warehouse, district).is_empty()
    }

    /// Whether the row, or some of the rows, of this number may be on a lost page.
    pub(crate) fn hides(&self, part: Part, (warehouse, district, number): OrderKey) -> bool {
        let mut gaps = self.gaps(part, warehouse, district).iter();
        gaps.any(|(first, last)| (*first..=*last).contains(&number))
    }

    /// Whether every payment of every customer was read.
    pub(crate) fn has_all_payments(&self) -> bool {
        !self.gaps.keys().any(|(part, ..)| *part == Part::History)
    }
}

/// Rows of a table that exist, as others tell, but were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadRows {
    /// The table.
    pub table: &'static str,
    /// How many at least; `None` if nothing that was read tells.
    pub at_least: Option<u64>,
}

/// How much of each table is not readable; tables that are whole are left out.
#[must_use]
pub fn unread_rows(facts: &Facts, scale: &Scale) -> Vec<UnreadRows> {
    let unread = &facts.unread;
    let parts = Part::ALL.into_iter();
    let parts = parts.filter(|part| unread.gaps.keys().any(|(other, ..)| other == part));
    parts
        .map(|part| UnreadRows { table: part.name(), at_least: at_least(facts, scale, part) })
        .collect()
}

fn at_least(facts: &Facts, scale: &Scale, part: Part) -> Option<u64> {
    let unread = &facts.unread;
    let mut rows = 0;
    for (&(_, warehouse, district), gaps) in
        unread.gaps.iter().filter(|((other, ..), _)| *other == part)
    {
        let last = match part {
            Part::Warehouse => i32::MAX,
            Part::District => DISTRICTS,
            Part::Customer => scale.customers_per_district,
            Part::Orders | Part::OrderLine => last_order(facts, warehouse, district),
            // What is missing there nothing else tells.
            Part::History | Part::NewOrder => return None,
        };
        for (first, end) in gaps {
            let (first, end) = ((*first).max(1), (*end).min(last));
            rows += match part {
                Part::OrderLine => (first..=end)
                    .map(|order| lines_not_read(facts, (warehouse, district, order)))
                    .sum(),
                _ => u64::try_from(i64::from(end) - i64::from(first) + 1).unwrap_or(0),
            };
        }
    }
    Some(rows)
}

/// The last order of a district, or the last of which anything is left.
fn last_order(facts: &Facts, warehouse: i32, district: i32) -> i32 {
    if let Some(row) = facts.districts.get(&(warehouse, district)) {
        return row.next_order - 1;
    }
    let range = (warehouse, district, i32::MIN)..=(warehouse, district, i32::MAX);
    let last = [
        facts.orders.range(range.clone()).next_back().map(|(key, _)| key.2),
        facts.new_orders.range(range.clone()).next_back().map(|(key, ())| key.2),
        facts.lines.range(range).next_back().map(|(key, _)| key.2),
    ];
    last.into_iter().flatten().max().unwrap_or(0)
}

fn lines_not_read(facts: &Facts, order: OrderKey) -> u64 {
    let read = facts.lines.get(&order).map_or(0, |lines| lines.count);
    let wanted = facts.orders.get(&order).map_or(MIN_LINES, |order| order.lines);
    u64::try_from(wanted - read).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::facts::{DistrictFacts, LineFacts, OrderFacts};
    use super::*;

    #[test]
    fn rows_that_others_tell_of_are_counted() {
        let scale = Scale { items: 10, customers_per_district: 30, new_orders_per_district: 9 };
        let mut facts = Facts::default();
        facts.districts.insert((1, 1), DistrictFacts { ytd: 0, next_order: 41 });
        let order = OrderFacts { customer: 1, delivered: false, lines: 12 };
        facts.orders.insert((1, 1, 38), order);
        facts.orders.insert((1, 2, 7), order);
        facts.lines.insert((1, 1, 38), LineFacts { count: 4, ..LineFacts::default() });
        assert_eq!(unread_rows(&facts, &scale), []);

        let unread = &mut facts.unread;
        unread.add_gap(Part::Warehouse, (3, 0), (3, 3));
        unread.add_gap(Part::Customer, (1, 2), (25, i32::MAX));
        unread.add_gap(Part::Orders, (1, 1), (39, i32::MAX));
        // Its district's row is gone too: order 7 is the last that anything tells of.
        unread.add_gap(Part::Orders, (1, 2), (3, 4));
        unread.add_gap(Part::Orders, (1, 2), (8, i32::MAX));
        unread.add_gap(Part::OrderLine, (1, 1), (38, 39));
        unread.add_gap(Part::History, (1, 0), (17, 17));
        let rows: Vec<_> =
            unread_rows(&facts, &scale).iter().map(|rows| (rows.table, rows.at_least)).collect();
        let expected = [
            ("warehouse", Some(1)),
            ("customer", Some(6)),
            ("history", None),
            ("orders", Some(2 + 2)),
            // Eight of order 38, and at least five of order 39.
            ("order_line", Some(8 + 5)),
        ];
        assert_eq!(rows, expected);
        assert!(!facts.unread.has_all_payments());
        assert!(facts.unread.hides(Part::OrderLine, (1, 1, 38)));
        assert!(!facts.unread.hides(Part::OrderLine, (1, 1, 40)));
        assert!(facts.unread.is_whole(Part::OrderLine, 1, 2));
    }
}
