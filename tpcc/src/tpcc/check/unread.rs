//! What a check could not read, because nodes that died took the pages with them.
//!
//! A page is either as the last transaction that changed it left it, or it is lost: what is not
//! committed is on pages that the dead node held, and those are lost. So whatever a condition says
//! about rows that can all be read must hold; where a row that it speaks about may be on a lost
//! page, it is not judged.

use std::collections::{BTreeMap, BTreeSet};

/// The tables that conditions speak about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CheckedTable {
    Warehouse,
    District,
    Customer,
    History,
    Orders,
    NewOrder,
    OrderLine,
}

impl CheckedTable {
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
    gaps: BTreeMap<(CheckedTable, i32, i32), Vec<Gap>>,
    pages: BTreeSet<u64>,
}

impl Unread {
    pub(crate) fn add_page(&mut self, page: u64) {
        self.pages.insert(page);
    }

    pub(crate) fn add_gap(
        &mut self,
        part: CheckedTable,
        (warehouse, district): (i32, i32),
        gap: Gap,
    ) {
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

    pub(crate) fn gaps(&self, part: CheckedTable, warehouse: i32, district: i32) -> &[Gap] {
        self.gaps.get(&(part, warehouse, district)).map_or(&[], Vec::as_slice)
    }

    /// Whether all rows of a table that belong to a district (or, with 0, a warehouse) were read.
    pub(crate) fn is_whole(&self, part: CheckedTable, warehouse: i32, district: i32) -> bool {
        self.gaps(part, warehouse, district).is_empty()
    }

    /// Whether all rows of a district in these tables were read.
    pub(crate) fn are_whole(&self, tables: &[CheckedTable], district: (i32, i32)) -> bool {
        tables.iter().all(|table| self.is_whole(*table, district.0, district.1))
    }

    /// Whether the row, or some of the rows, of this number may be on a lost page.
    pub(crate) fn hides(
        &self,
        part: CheckedTable,
        (warehouse, district, number): (i32, i32, i32),
    ) -> bool {
        let mut gaps = self.gaps(part, warehouse, district).iter();
        gaps.any(|(first, last)| (*first..=*last).contains(&number))
    }

    /// The gaps of a table, by warehouse and district.
    pub(crate) fn gaps_of(
        &self,
        table: CheckedTable,
    ) -> impl Iterator<Item = ((i32, i32), &[Gap])> {
        let own = self.gaps.iter().filter(move |((other, ..), _)| *other == table);
        own.map(|(&(_, warehouse, district), gaps)| ((warehouse, district), gaps.as_slice()))
    }

    /// Whether every payment of every customer was read.
    pub(crate) fn has_all_payments(&self) -> bool {
        !self.gaps.keys().any(|(part, ..)| *part == CheckedTable::History)
    }
}
