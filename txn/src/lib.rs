//! Tables, indexes and serializable transactions over the shared pool.
//!
//! A [`Database`] is a set of tables that every compute node of a pool may open and change at the
//! same time. A table is a B-link tree whose leaves hold the rows in the order of the primary key;
//! each secondary index is a tree of its own. A catalogue, which begins in the superblock, has the
//! schemas and the roots. A [`Txn`] reads and changes rows of any table, serializably, by the
//! [`Protocol`] that its database was created for. Unless another was named, that is
//! [`Protocol::Snapshot`]: rows and ranges conflict, who only reads sees a snapshot, rows may be
//! locked, and a [`Session`] keeps a transaction for as long as its client thinks. The others are
//! those of the papers: two-phase locking without waiting, with the latches of leaf pages as locks,
//! which the pool's coherence protocol makes valid across nodes; optimistic; or timestamp ordering.
//!
//! Where tables may change, which is in databases for [`Protocol::Snapshot`], transactions create
//! and drop tables, indexes and columns like rows. A column that is added or dropped rewrites no
//! row: a row says in which layout it was written, and the definition of its table what that has.
//!
//! Rows are read by their keys, one ([`Txn::get`]) or many at a time ([`Txn::get_many`]), and in
//! ranges of a table or an index: shown to a closure ([`Txn::scan`]), or pulled by a [`Cursor`],
//! which lives between the other operations of its transaction. Pages ahead are fetched early.
//!
//! | folder | duty |
//! |---|---|
//! | `catalogue/` | schemas, the stored catalogue, resolved tables |
//! | `encoding/` | rows and [keys](mod@key), byte by byte |
//! | `protocol/` | [`Protocol`]s: lock set, read set, write set, undo log, timestamps |
//! | `transaction/` | [`Database`], [`Session`], [`Txn`], commit, savepoints, [retry](retry()) |
//! | `access/` | leaves, walks, reads and changes of rows, [`Cursor`]s |
//! | `sequences/` | [sequences](SequenceSchema): numbers that no two transactions get |
//! | `statistics/` | [what the values of a table are like](TableStatistics), from a sample |
//! | `locks/` | locks of rows that wait, in a tree of their own |
//! | `ddl/` | changes of tables: create, drop, alter, indexes |
//! | [`partition`] | partitions and two-phase commit, a baseline |
//!
//! Each folder may use the folders above it, and all may use `error.rs` and `stats.rs`.
//! `transaction/` and `access/` share the type [`Txn`]: `transaction/txn.rs` has its state, and
//! operations and commit are built on that.
//!
//! # Example
//!
//! Two compute nodes on one pool: the first creates a bank, the second moves money.
//!
//! ```
//! # use std::sync::Arc;
//! # use selkie_engine::{ComputeId, Engine, EngineConfig};
//! # use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
//! # use selkie_memnode::EmbeddedPool;
//! # use selkie_pool::{Coding, PoolConfig};
//! use selkie_txn::{ColumnType, Database, RetryPolicy, TableSchema, TxnError, key, retry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = RealRuntime::new(2)?;
//! # let env = runtime.env();
//! # let fabric: Arc<dyn Fabric> = MemFabric::new();
//! # let memory = EmbeddedPool::start(&fabric, PoolConfig {
//! #     memory_nodes: 2, bytes_per_node: 16 << 20, gcl_bytes: 2048, range_bytes: 4 << 20,
//! #     max_compute_nodes: 2, coding: Coding::PLAIN, log_bytes: 0,
//! # }).unwrap();
//! # runtime.block_on(async {
//! # let (id_0, id_1) = (ComputeId::new(0).unwrap(), ComputeId::new(1).unwrap());
//! let node_0 = Engine::start(memory.pool(), &fabric, &env, id_0, EngineConfig::default()).await?;
//! let node_1 = Engine::start(memory.pool(), &fabric, &env, id_1, EngineConfig::default()).await?;
//!
//! let account = TableSchema::new("account")
//!     .column("id", ColumnType::I32)
//!     .column("owner", ColumnType::Text(20))
//!     .column("balance", ColumnType::I64)
//!     .primary_key([0])
//!     .index("by_owner", [1]);
//! let db = Database::create(&node_0, vec![account]).await?;
//! let table = db.table("account")?;
//! let mut txn = db.begin();
//! for (id, owner) in [(1, "ada"), (2, "grace")] {
//!     txn.insert(table, db.row(table)?.i32(id).text(owner).i64(100).finish()?).await?;
//! }
//! txn.commit().await?;
//!
//! let db = Database::open(&node_1).await?;
//! retry(&env, &RetryPolicy::default(), || async {
//!     let mut txn = db.begin();
//!     txn.update(table, &key![1], |row| Ok(row.set_i64(2, row.i64(2)? - 30)?)).await?;
//!     txn.update(table, &key![2], |row| Ok(row.set_i64(2, row.i64(2)? + 30)?)).await?;
//!     txn.commit().await
//! })
//! .await?;
//!
//! let mut txn = db.begin();
//! let by_owner = db.index("account", "by_owner")?;
//! let row = txn.first(by_owner, &selkie_txn::KeyRange::prefix(&key!["grace"])).await?;
//! assert_eq!(row.ok_or("no such owner")?.i64(2)?, 130);
//! txn.commit().await?;
//! # node_0.close().await?;
//! # node_1.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })
//! # }
//! ```
#![forbid(unsafe_code)]

mod abort_cause;
mod access;
mod bulk_load_error;
mod catalogue;
mod ddl;
mod encoding;
mod error;
mod error_text;
mod locks;
pub mod partition;
mod protocol;
mod sequences;
mod statistics;
mod stats;
mod transaction;

pub use access::cursor::{Cursor, RowIter, Rows};
pub use access::whole_row::WholeRow;
pub use catalogue::{
    CatalogueError, Column, ColumnType, DatabaseSchema, DefaultValue, Index, IndexSchema, KeyOrder,
    MAX_COLUMN_BYTES, MAX_COLUMNS, MAX_DECIMAL_DIGITS, NewIndex, SchemaError, Source, Table,
    TableSchema,
};
pub use ddl::DefinitionId;
pub use encoding::{
    Decimal, DecimalError, DecimalRef, Interval, KeyBuf, KeyPart, KeyRange, MAX_TIME_US,
    NamedRowError, RowBuilder, RowError, RowMut, RowRef, Value, key,
};
pub use error::{AbortCause, BulkLoadError, LongestValue, TxnError};
pub use locks::advisory::{AdvisoryLocks, AdvisoryMode, AdvisoryName};
pub use locks::row_locks::{LOCK_TIMEOUT, LockOutcome, LockWait};
pub use protocol::{Isolation, Protocol, UnknownProtocol};
pub use selkie_btree::{Direction, is_unlinked, written_at};
pub use selkie_engine::EngineError;
pub use sequences::{MAX_SEQUENCE_BLOCK, SequenceError, SequenceSchema};
pub use statistics::{AnalyzeOptions, ColumnStatistics, CommonValue, TableStatistics};
pub use stats::{AbortCounts, TxnStats};
pub use transaction::{
    BulkLoad, BulkLoadOptions, Database, EntryBuffer, RetryError, RetryPolicy, Retryable,
    Savepoint, Session, SessionLimits, TableFill, TreeFill, Txn, retry, retry_numbered,
};
