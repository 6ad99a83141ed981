//! Transactions from their beginning to their end, and the database handle that begins them.
//!
//! [`database_state`] is what a node keeps of an open database; [`database`] is the caller's
//! handle. A transaction ([`txn`]) has a [`workspace`] with the state of its protocol. [`commit`]
//! ([`commit_rows`] that of snapshots, with [`commit_locks`]) and [`rollback`] end it,
//! [`savepoint`] marks points inside it, [`statement`] parts that see one state, [`cursor_scope`]
//! says which cursors are its own, [`maintenance`] is the work on trees that it leaves behind, and
//! [`retry`](mod@retry) runs a failed one again. A [`session`] owns a client's transactions,
//! [`parked`] between operations, for as long as it may be [`idle`]. [`leaf_budget`] and
//! [`limits`] bound what one transaction may hold. [`bulk_load`] fills an empty table without
//! transactions, and [`attach`] makes what it has built the table's; [`table_fill`] does so
//! in a transaction that has created the table.

mod attach;
mod backlog_bell;
mod bulk_load;
mod commit;
mod commit_bound;
mod commit_locks;
mod commit_rows;
pub(crate) mod cursor_scope;
pub(crate) mod database;
pub(crate) mod database_state;
pub(crate) mod dropped_trees;
mod idle;
mod idle_maintenance;
pub(crate) mod leaf_budget;
mod limits;
pub(crate) mod maintenance;
pub(crate) mod parked;
pub(crate) mod retry;
mod rollback;
pub(crate) mod savepoint;
pub(crate) mod session;
mod statement;
mod table_fill;
pub(crate) mod txn;
pub(crate) mod workspace;

pub use bulk_load::{BulkLoad, BulkLoadOptions};
pub use database::Database;
pub use retry::{RetryError, RetryPolicy, Retryable, retry, retry_numbered};
pub use savepoint::Savepoint;
pub use session::{Session, SessionLimits};
pub use table_fill::{EntryBuffer, TableFill, TreeFill};
pub use txn::Txn;
