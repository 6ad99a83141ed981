//! How many rows could not be read, as far as other rows tell.

use super::facts::{Facts, OrderKey};
use super::unread::CheckedTable;
use crate::tpcc::scale::{DISTRICTS, MIN_LINES, Scale};

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
    let tables = CheckedTable::ALL.into_iter();
    let tables = tables.filter(|table| unread.gaps_of(*table).next().is_some());
    tables
        .map(|table| UnreadRows { table: table.name(), at_least: at_least(facts, scale, table) })
        .collect()
}

fn at_least(facts: &Facts, scale: &Scale, part: CheckedTable) -> Option<u64> {
    let mut rows = 0;
    for ((warehouse, district), gaps) in facts.unread.gaps_of(part) {
        let last = match part {
            CheckedTable::Warehouse => i32::MAX,
            CheckedTable::District => DISTRICTS,
            CheckedTable::Customer => scale.customers_per_district,
            CheckedTable::Orders | CheckedTable::OrderLine => {
                last_order(facts, warehouse, district)
            }
            // What is missing there nothing else tells.
            CheckedTable::History | CheckedTable::NewOrder => return None,
        };
        for (first, end) in gaps {
            let (first, end) = ((*first).max(1), (*end).min(last));
            rows += match part {
                CheckedTable::OrderLine => (first..=end)
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
        unread.add_gap(CheckedTable::Warehouse, (3, 0), (3, 3));
        unread.add_gap(CheckedTable::Customer, (1, 2), (25, i32::MAX));
        unread.add_gap(CheckedTable::Orders, (1, 1), (39, i32::MAX));
        // Its district's row is gone too: order 7 is the last that anything tells of.
        unread.add_gap(CheckedTable::Orders, (1, 2), (3, 4));
        unread.add_gap(CheckedTable::Orders, (1, 2), (8, i32::MAX));
        unread.add_gap(CheckedTable::OrderLine, (1, 1), (38, 39));
        unread.add_gap(CheckedTable::History, (1, 0), (17, 17));
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
        assert!(facts.unread.hides(CheckedTable::OrderLine, (1, 1, 38)));
        assert!(!facts.unread.hides(CheckedTable::OrderLine, (1, 1, 40)));
        assert!(facts.unread.is_whole(CheckedTable::OrderLine, 1, 2));
    }
}
