//! How large a database is: the cardinalities of clause 1.2, and what they take in bytes.

use serde::Serialize;

/// Districts of a warehouse (clause 1.2).
pub const DISTRICTS: i32 = 10;

/// Fewest order lines of an order (clause 2.4.1.3).
pub const MIN_LINES: i32 = 5;

/// Most order lines of an order.
pub const MAX_LINES: i32 = 15;

/// Rows to begin with. The specification knows [`Scale::STANDARD`] only; smaller ones are for
/// tests, and their results are no TPC-C figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Items in all, and stock rows of each warehouse.
    pub items: i32,
    /// Customers, and initial orders, of each district.
    pub customers_per_district: i32,
    /// Initial orders of each district that are not delivered yet: the last ones.
    pub new_orders_per_district: i32,
}

impl Scale {
    /// The cardinalities of clause 4.3.3.1.
    pub const STANDARD: Self =
        Self { items: 100_000, customers_per_district: 3_000, new_orders_per_district: 900 };

    /// Largest allowed divisor: what remains still lets every transaction do its work.
    pub const MAX_DIVISOR: u32 = 100;

    /// The standard cardinalities divided by `divisor`, which is brought into `1..=MAX_DIVISOR`.
    #[must_use]
    pub fn divided_by(divisor: u32) -> Self {
        let divisor = divisor.clamp(1, Self::MAX_DIVISOR).cast_signed();
        let standard = Self::STANDARD;
        Self {
            items: standard.items / divisor,
            customers_per_district: standard.customers_per_district / divisor,
            new_orders_per_district: standard.new_orders_per_district / divisor,
        }
    }

    /// Whether these are the specification's cardinalities.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        *self == Self::STANDARD
    }

    /// Different last names: a third of the customers of a district, 1,000 by the standard.
    #[must_use]
    pub fn last_names(&self) -> i32 {
        (self.customers_per_district / 3).clamp(1, 1000)
    }

    /// The first order of a district that is not delivered.
    #[must_use]
    pub fn first_undelivered(&self) -> i32 {
        self.customers_per_district - self.new_orders_per_district + 1
    }

    /// Rows loaded for `warehouses` warehouses, order lines by their average of ten an order.
    #[must_use]
    pub fn rows(&self, warehouses: u32) -> u64 {
        let (items, customers) = (positive(self.items), positive(self.customers_per_district));
        let per_district =
            1 + customers * (1 + 1 + 1 + 1 + 10) + positive(self.new_orders_per_district);
        items + u64::from(warehouses) * (1 + items + positive(DISTRICTS) * per_district)
    }

    /// Bytes of pages that `warehouses` freshly loaded warehouses take, about.
    #[must_use]
    pub fn database_bytes(&self, warehouses: u32) -> u64 {
        let (items, customers) = (positive(self.items), positive(self.customers_per_district));
        let district = HOT_ROW_BYTES
            + customers * (CUSTOMER_BYTES + ORDER_BYTES)
            + positive(self.new_orders_per_district) * NEW_ORDER_BYTES;
        let warehouse = HOT_ROW_BYTES + items * STOCK_BYTES + positive(DISTRICTS) * district;
        items * ITEM_BYTES + u64::from(warehouses) * warehouse
    }
}

/// Bytes of pages that a second of run may add, about: at 40,000 transactions a second, 45 % of
/// them an order of ten lines on pages half full, 43 % a history row.
pub(crate) const GROWTH_BYTES_PER_SECOND: u64 = 18_000 * 2 * ORDER_BYTES + 17_200 * 128;

// Bytes in pages, slack included, measured after loads at 2 KiB pages. Where nodes load side by
// side pages are less full than where one loads alone; these are between the two (see the test
// `trees_are_sound_after_a_load_and_sizes_as_estimated`).
/// A row of a table with one row a page.
const HOT_ROW_BYTES: u64 = 2_048;
/// An item.
const ITEM_BYTES: u64 = 115;
/// A stock row.
const STOCK_BYTES: u64 = 500;
/// A customer with its data, its entry in the index by name and its first history row.
const CUSTOMER_BYTES: u64 = 1_060;
/// An order, its entry in the index by customer, and ten lines.
const ORDER_BYTES: u64 = 1_360;
/// A new-order row.
const NEW_ORDER_BYTES: u64 = 40;

fn positive(count: i32) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_cardinalities() {
        // Clause 1.2.1: a warehouse has about 500,000 rows, 100,000 items come once.
        let scale = Scale::STANDARD;
        assert_eq!(scale.rows(1), 100_000 + 1 + 100_000 + 10 + 30_000 * 14 + 9_000);
        assert_eq!((scale.last_names(), scale.first_undelivered()), (1000, 2101));
        assert!(scale.is_standard() && Scale::divided_by(1).is_standard());
    }

    #[test]
    fn smallest_scale_still_has_every_kind_of_row() {
        let scale = Scale::divided_by(u32::MAX);
        assert_eq!(scale.items, 1000);
        assert_eq!((scale.customers_per_district, scale.new_orders_per_district), (30, 9));
        assert_eq!((scale.last_names(), scale.first_undelivered()), (10, 22));
        assert!(scale.items > MAX_LINES && !scale.is_standard());
    }
}
