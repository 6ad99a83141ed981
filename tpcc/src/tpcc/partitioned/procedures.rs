//! What a partition does for others.

use std::time::Duration;

use selkie_txn::partition::Procedures;
use selkie_txn::{Database, Txn};

use super::request::{PartitionRequest, encode_paid, encode_stock_taken};
use crate::error::TpccError;
use crate::tpcc::schema::Tables;
use crate::tpcc::transactions::{Session, pay, take_stock};

/// `H_WRITER` of no worker: a remote part adds no HISTORY row.
const NO_WRITER: i32 = 0;

/// A partition of TPC-C.
pub(crate) struct PartitionProcedures {
    db: Database,
    tables: Tables,
    /// Processor time of an access to a row, in virtual time.
    access: Duration,
}

impl PartitionProcedures {
    pub(super) fn new(db: Database, tables: Tables, access: Duration) -> Self {
        Self { db, tables, access }
    }
}

impl Procedures for PartitionProcedures {
    type Error = TpccError;

    async fn execute(&self, txn: &mut Txn<'_>, request: &[u8]) -> Result<Vec<u8>, TpccError> {
        let session = Session::new(&self.db, self.tables, NO_WRITER).with_access_time(self.access);
        match PartitionRequest::decode(request)? {
            PartitionRequest::Pay(input) => Ok(encode_paid(&pay(&session, txn, &input).await?)),
            PartitionRequest::TakeStock { district, lines } => {
                let mut all = Vec::new();
                for line in lines {
                    // The caller is at home in another partition.
                    let taken = take_stock(&session, txn, &line.input(), (district, true)).await?;
                    encode_stock_taken(&taken, &mut all);
                }
                Ok(all)
            }
        }
    }
}
