//! The three tables: customers by name, and a savings and a checking account for each.

use selkie_txn::{ColumnType, Database, Table, TableSchema, TxnError};

use crate::cluster::TableSet;

/// Position of the name in `account`.
pub(super) const NAME: usize = 0;
/// Position of the customer's number in `account`.
pub(super) const CUSTOMER: usize = 1;
/// Position of the customer's number in `savings` and `checking`.
pub(super) const OWNER: usize = 0;
/// Position of the balance in `savings` and `checking`, in cents.
pub const BALANCE: usize = 1;

/// Bytes of a name at most.
const NAME_BYTES: u32 = 32;

/// The tables, resolved once.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// Customers by name.
    pub account: Table,
    /// Savings accounts by customer.
    pub savings: Table,
    /// Checking accounts by customer.
    pub checking: Table,
}

impl TableSet for Tables {
    fn schemas() -> Vec<TableSchema> {
        let balances = |name| {
            TableSchema::new(name)
                .column("customer_id", ColumnType::I32)
                .column("balance", ColumnType::I64)
                .primary_key([OWNER])
        };
        let account = TableSchema::new("account")
            .column("name", ColumnType::Text(NAME_BYTES))
            .column("customer_id", ColumnType::I32)
            .primary_key([NAME]);
        vec![account, balances("savings"), balances("checking")]
    }

    fn resolve(db: &Database) -> Result<Self, TxnError> {
        Ok(Self {
            account: db.table("account")?,
            savings: db.table("savings")?,
            checking: db.table("checking")?,
        })
    }
}
