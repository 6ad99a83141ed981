//! The parts of a partition, and the requests that it executes for others.

use std::future::Future;

use crate::catalogue::handles::Table;
use crate::transaction::database::Database;
use crate::transaction::retry::Retryable;
use crate::transaction::txn::Txn;

/// The requests that a partition executes for others.
pub trait Procedures: Send + Sync + 'static {
    /// Why a request was not executed.
    type Error: Retryable + std::error::Error + Send + 'static;

    /// Executes a request in a transaction, which may have executed others before. An error rolls
    /// it back.
    ///
    /// # Errors
    /// What the request fails with. Whether it is retryable the coordinator is told, too.
    fn execute(
        &self,
        txn: &mut Txn<'_>,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Self::Error>> + Send;
}

/// What a partition is made of.
pub struct Member<P> {
    /// The database on its node; two-phase locked.
    pub db: Database,
    /// Its own [`ledger`](super::ledger).
    pub ledger: Table,
    /// What it does for others.
    pub procedures: P,
}
