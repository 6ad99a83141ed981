//! The nine tables of clause 1.3, their keys and indexes.
//!
//! Types: identifiers are `I32`; money is `I64` in cents; rates (tax, discount) are `I64` in
//! ten-thousandths; points in time are `I64` in microseconds since the environment began; fixed and
//! variable text is text of at most its length.
//!
//! Where a choice was open:
//! * Columns of the primary key come first, most significant first. Order does not matter to the
//!   specification (clause 1.3.1).
//! * CUSTOMER is partitioned vertically, which clause 1.4 allows: `C_DATA`, three quarters of the
//!   row and needed for customers with bad credit only, is a table `customer_data` of its own under
//!   the same key. In one piece the largest row (719 bytes with its key) would exceed what a tree
//!   guarantees to fit a 2 KiB page (652 bytes).
//! * HISTORY has no primary key by the specification. Here it has `(H_W_ID, H_WRITER, H_SEQUENCE)`:
//!   every worker of a run (and the loader) numbers its own rows, so rows are appended, and
//!   workers, wherever they run, never meet on a page to add one.
//! * WAREHOUSE and DISTRICT keep one row a page: a page is the unit of locking, and a tenth of all
//!   transactions of a warehouse update each of its rows.
//! * Two secondary indexes: customers by name, orders by customer.

use selkie_txn::partition::ledger;
use selkie_txn::{ColumnType, Database, Index, Table, TableSchema, TxnError};

use crate::cluster::TableSet;
use crate::cluster::page_fit::{Misfit, misfit_of};
use crate::tpcc::columns::{
    customer as c, customer_data as cd, district as d, history as h, item as i, new_order as no,
    order_line as ol, orders as o, stock as s, warehouse as w,
};

/// Bytes of `C_DATA` at most.
pub const C_DATA_BYTES: usize = 500;

const I32: ColumnType = ColumnType::I32;
const I64: ColumnType = ColumnType::I64;

const fn text(bytes: u32) -> ColumnType {
    ColumnType::Text(bytes)
}

/// The tables to create a database with.
#[must_use]
pub fn schemas() -> Vec<TableSchema> {
    vec![
        warehouse(),
        district(),
        customer(),
        customer_data(),
        history(),
        new_order(),
        orders(),
        order_line(),
        item(),
        stock(),
    ]
}

fn address(schema: TableSchema, prefix: &str) -> TableSchema {
    let name = |column: &str| format!("{prefix}_{column}");
    schema
        .column(name("street_1"), text(20))
        .column(name("street_2"), text(20))
        .column(name("city"), text(20))
        .column(name("state"), text(2))
        .column(name("zip"), text(9))
}

fn warehouse() -> TableSchema {
    let schema = TableSchema::new("warehouse").column("w_id", I32).column("w_name", text(10));
    address(schema, "w")
        .column("w_tax", I64)
        .column("w_ytd", I64)
        .primary_key([w::W_ID])
        .max_rows_per_page(1)
}

fn district() -> TableSchema {
    let schema = TableSchema::new("district")
        .column("d_w_id", I32)
        .column("d_id", I32)
        .column("d_name", text(10));
    address(schema, "d")
        .column("d_tax", I64)
        .column("d_ytd", I64)
        .column("d_next_o_id", I32)
        .primary_key([d::D_W_ID, d::D_ID])
        .max_rows_per_page(1)
}

fn customer() -> TableSchema {
    let schema = TableSchema::new("customer")
        .column("c_w_id", I32)
        .column("c_d_id", I32)
        .column("c_id", I32)
        .column("c_first", text(16))
        .column("c_middle", text(2))
        .column("c_last", text(16));
    address(schema, "c")
        .column("c_phone", text(16))
        .column("c_since", I64)
        .column("c_credit", text(2))
        .column("c_credit_lim", I64)
        .column("c_discount", I64)
        .column("c_balance", I64)
        .column("c_ytd_payment", I64)
        .column("c_payment_cnt", I32)
        .column("c_delivery_cnt", I32)
        .primary_key([c::C_W_ID, c::C_D_ID, c::C_ID])
        .unique_index(CUSTOMER_BY_NAME, [c::C_W_ID, c::C_D_ID, c::C_LAST, c::C_FIRST, c::C_ID])
}

fn customer_data() -> TableSchema {
    TableSchema::new("customer_data")
        .column("cd_w_id", I32)
        .column("cd_d_id", I32)
        .column("cd_c_id", I32)
        .column("c_data", text(500))
        .primary_key([cd::CD_W_ID, cd::CD_D_ID, cd::CD_C_ID])
}

fn history() -> TableSchema {
    TableSchema::new("history")
        .column("h_w_id", I32)
        .column("h_writer", I32)
        .column("h_sequence", I64)
        .column("h_d_id", I32)
        .column("h_c_w_id", I32)
        .column("h_c_d_id", I32)
        .column("h_c_id", I32)
        .column("h_date", I64)
        .column("h_amount", I64)
        .column("h_data", text(24))
        .primary_key([h::H_W_ID, h::H_WRITER, h::H_SEQUENCE])
}

fn new_order() -> TableSchema {
    TableSchema::new("new_order")
        .column("no_w_id", I32)
        .column("no_d_id", I32)
        .column("no_o_id", I32)
        .primary_key([no::NO_W_ID, no::NO_D_ID, no::NO_O_ID])
}

fn orders() -> TableSchema {
    TableSchema::new("orders")
        .column("o_w_id", I32)
        .column("o_d_id", I32)
        .column("o_id", I32)
        .column("o_c_id", I32)
        .column("o_entry_d", I64)
        .nullable_column("o_carrier_id", I32)
        .column("o_ol_cnt", I32)
        .column("o_all_local", I32)
        .primary_key([o::O_W_ID, o::O_D_ID, o::O_ID])
        .unique_index(ORDERS_BY_CUSTOMER, [o::O_W_ID, o::O_D_ID, o::O_C_ID, o::O_ID])
}

fn order_line() -> TableSchema {
    TableSchema::new("order_line")
        .column("ol_w_id", I32)
        .column("ol_d_id", I32)
        .column("ol_o_id", I32)
        .column("ol_number", I32)
        .column("ol_i_id", I32)
        .column("ol_supply_w_id", I32)
        .nullable_column("ol_delivery_d", I64)
        .column("ol_quantity", I32)
        .column("ol_amount", I64)
        .column("ol_dist_info", text(24))
        .primary_key([ol::OL_W_ID, ol::OL_D_ID, ol::OL_O_ID, ol::OL_NUMBER])
}

fn item() -> TableSchema {
    TableSchema::new(ITEM)
        .column("i_id", I32)
        .column("i_im_id", I32)
        .column("i_name", text(24))
        .column("i_price", I64)
        .column("i_data", text(50))
        .primary_key([i::I_ID])
}

fn stock() -> TableSchema {
    let mut schema = TableSchema::new("stock")
        .column("s_w_id", I32)
        .column("s_i_id", I32)
        .column("s_quantity", I32);
    for district in 1..=10 {
        schema = schema.column(format!("s_dist_{district:02}"), text(24));
    }
    schema
        .column("s_ytd", I64)
        .column("s_order_cnt", I32)
        .column("s_remote_cnt", I32)
        .column("s_data", text(50))
        .primary_key([s::S_W_ID, s::S_I_ID])
}

const CUSTOMER_BY_NAME: &str = "customer_by_name";
const ORDERS_BY_CUSTOMER: &str = "orders_by_customer";

/// The tables and indexes of an open database, resolved once.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// WAREHOUSE.
    pub warehouse: Table,
    /// DISTRICT.
    pub district: Table,
    /// CUSTOMER without `C_DATA`.
    pub customer: Table,
    /// `C_DATA` of CUSTOMER.
    pub customer_data: Table,
    /// HISTORY.
    pub history: Table,
    /// NEW-ORDER.
    pub new_order: Table,
    /// ORDER.
    pub orders: Table,
    /// ORDER-LINE.
    pub order_line: Table,
    /// ITEM.
    pub item: Table,
    /// STOCK.
    pub stock: Table,
    /// CUSTOMER by warehouse, district, last name, first name and number.
    pub customer_by_name: Index,
    /// ORDER by warehouse, district, customer and number.
    pub orders_by_customer: Index,
    /// Records of two-phase commit, where each node has tables of its own.
    pub ledger: Option<Table>,
}

impl TableSet for Tables {
    fn schemas() -> Vec<TableSchema> {
        schemas()
    }

    fn resolve(db: &Database) -> Result<Self, TxnError> {
        Self::resolve(db)
    }

    fn divided_schemas(nodes: usize) -> Vec<TableSchema> {
        let own = schemas().into_iter().filter(|schema| schema.name != ITEM);
        let own: Vec<_> = own.chain([ledger(LEDGER)]).collect();
        let of_node = |node| {
            own.iter().map(move |schema| {
                let name = own_name(&schema.name, node);
                TableSchema { name, ..schema.clone() }
            })
        };
        (0..nodes).flat_map(of_node).chain([item()]).collect()
    }

    fn resolve_divided(db: &Database, node: usize) -> Result<Self, TxnError> {
        let ledger = Some(db.table(&own_name(LEDGER, node))?);
        let tables = Self::resolve_named(db, |name| {
            if name == ITEM { name.to_owned() } else { own_name(name, node) }
        })?;
        Ok(Self { ledger, ..tables })
    }
}

const ITEM: &str = "item";
const LEDGER: &str = "two_phase_commit";

/// The name of a table that a node has for itself.
fn own_name(table: &str, node: usize) -> String {
    format!("{table}@{node}")
}

impl Tables {
    /// Looks every table up by its name. No round trip.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the database is not one created with [`schemas`].
    pub fn resolve(db: &Database) -> Result<Self, TxnError> {
        Self::resolve_named(db, str::to_owned)
    }

    /// The same by the names that tables have there.
    fn resolve_named(db: &Database, name_of: impl Fn(&str) -> String) -> Result<Self, TxnError> {
        let table = |name| db.table(&name_of(name));
        Ok(Self {
            warehouse: table("warehouse")?,
            district: table("district")?,
            customer: table("customer")?,
            customer_data: table("customer_data")?,
            history: table("history")?,
            new_order: table("new_order")?,
            orders: table("orders")?,
            order_line: table("order_line")?,
            item: table(ITEM)?,
            stock: table("stock")?,
            customer_by_name: db.index(&name_of("customer"), CUSTOMER_BY_NAME)?,
            orders_by_customer: db.index(&name_of("orders"), ORDERS_BY_CUSTOMER)?,
            ledger: None,
        })
    }
}

/// The table of TPC-C with the largest entry that does not fit the page of a cache line of
/// `gcl_bytes`, if there is one.
#[must_use]
pub fn misfit(gcl_bytes: usize) -> Option<Misfit> {
    misfit_of(&schemas(), gcl_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &str, column: usize) -> String {
        let schemas = schemas();
        let schema = schemas.iter().find(|schema| schema.name == table).unwrap();
        schema.columns[column].name.clone()
    }

    #[test]
    fn columns_are_where_the_constants_say() {
        // The last column of every table, and one whose place is used without its neighbours.
        assert_eq!(name("warehouse", w::W_YTD), "w_ytd");
        assert_eq!(name("district", d::D_NEXT_O_ID), "d_next_o_id");
        assert_eq!(name("customer", c::C_DELIVERY_CNT), "c_delivery_cnt");
        assert_eq!(name("customer", c::C_LAST), "c_last");
        assert_eq!(name("customer_data", cd::C_DATA), "c_data");
        assert_eq!(name("history", h::H_DATA), "h_data");
        assert_eq!(name("new_order", no::NO_O_ID), "no_o_id");
        assert_eq!(name("orders", o::O_ALL_LOCAL), "o_all_local");
        assert_eq!(name("order_line", ol::OL_DIST_INFO), "ol_dist_info");
        assert_eq!(name("item", i::I_DATA), "i_data");
        assert_eq!(name("stock", s::S_DIST_10), "s_dist_10");
        assert_eq!(name("stock", s::S_DATA), "s_data");
    }

    #[test]
    fn every_table_is_valid_and_has_its_columns() {
        let columns: Vec<_> = schemas()
            .iter()
            .map(|schema| {
                schema.validate().unwrap();
                (schema.name.clone(), schema.columns.len())
            })
            .collect();
        let expected = [
            ("warehouse", 9),
            ("district", 11),
            ("customer", 20),
            ("customer_data", 4),
            ("history", 10),
            ("new_order", 3),
            ("orders", 8),
            ("order_line", 10),
            ("item", 5),
            ("stock", 17),
        ];
        assert_eq!(columns, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn every_node_has_tables_of_its_own_but_for_the_items() {
        let names: Vec<_> =
            Tables::divided_schemas(3).into_iter().map(|schema| schema.name).collect();
        assert_eq!(names.len(), 3 * 10 + 1);
        for (at, name) in names.iter().enumerate() {
            let is_own = *name == "item" || name.ends_with(&format!("@{}", at / 10));
            assert!(is_own, "{at} {name}");
        }
        assert_eq!(misfit_of(&Tables::divided_schemas(1), 2048), None);
    }

    #[test]
    fn one_kilobyte_pages_are_the_smallest_that_fit() {
        assert_eq!(misfit(1024), None);
        assert_eq!(misfit(8192), None);
        let misfit = misfit(512).unwrap();
        assert_eq!((misfit.table.as_str(), misfit.bytes), ("customer_data", 12 + 2 + 500 + 12));
    }
}
