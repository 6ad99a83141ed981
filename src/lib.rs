//! Selkie: a multi-primary storage engine over disaggregated memory.
//!
//! Many compute nodes cache, read and write the same pages of one memory pool; a coherence protocol
//! keeps the caches consistent; memory nodes only serve one-sided reads, writes and atomics.
//!
//! # A database by its URL
//!
//! [`Database`] and [`Pool`] are the short way in: they start the parts of a compute node, and one
//! call closes them. [`PoolOptions`] changes the defaults, and [`block_on`] serves synchronous
//! code.
//!
//! | URL | pool |
//! | --- | --- |
//! | `embedded:` | a new pool in the memory of this process; it ends with the process |
//! | `embedded:DIR` | a pool in the memory of this process, kept in a directory: see below |
//! | `NAME`, `shm:NAME` | a pool that processes of this host share, made by `selkie pool create` |
//! | `tcp:HOST:PORT,...` | a pool that hosts share, by the addresses of some of its memory nodes |
//! | `etcd:HOST:PORT,.../NAME` | the same by its name, with the feature `etcd` |
//!
//! ```
//! use selkie::Database;
//! use selkie::txn::{ColumnType, TableSchema, key};
//!
//! # selkie::block_on(async {
//! let account = TableSchema::new("account")
//!     .column("id", ColumnType::I32)
//!     .column("cents", ColumnType::I64)
//!     .primary_key([0]);
//! let db = Database::open_or_create("embedded:", vec![account]).await?;
//! let account = db.table("account")?;
//! let mut txn = db.begin();
//! txn.insert(account, db.row(account)?.i32(7).i64(1_000).finish()?).await?;
//! txn.commit().await?;
//!
//! let mut txn = db.begin();
//! let found = txn.get(account, &key![7]).await?.ok_or("no such account")?;
//! assert_eq!(found.i64(1)?, 1_000);
//! txn.commit().await?;
//! db.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Futures of this crate run on any executor: the threads of the pool do the work that they wait
//! for.
//!
//! # A database in a directory
//!
//! `embedded:DIR` is for one process on one machine: what has committed is in a log in that
//! directory, made durable by `fdatasync`, and the next process that opens it finds all of that,
//! however the last one ended. It reads the logs then, and writes all pages to new ones. Pages are
//! in memory as in any pool ([`PoolOptions::memory_bytes`]). One process at a time has it open.
//!
//! # Dropping without closing
//!
//! [`Pool::close`] and [`Database::close`] write the pages of the node home and leave the pool. A
//! pool that is dropped with all its clones, but not closed, ends as if its process had died. That
//! is safe: nothing hangs, and no memory in use is freed. But pages that only this node had changed
//! are lost unless the node had a log ([`PoolOptions::durability`]), as it has in a shared pool by
//! default, and the other nodes must first detect its death and recover from it.
//!
//! # The layers
//!
//! This crate re-exports the layers below, each with its own documentation:
//!
//! ```text
//! txn        tables, indexes, transactions         selkie_txn
//! btree      B-link tree over pages                selkie_btree
//! engine     buffer pool, coherence, recovery      selkie_engine
//! memnode    what a memory node runs               selkie_memnode
//! pool       layout, control plane, membership     selkie_pool
//! channels   messages between compute nodes        selkie_channels
//! fabric     one-sided verbs, clock, tasks         selkie_fabric
//! ```
//! [`shared`] makes and opens pools that processes share, and [`report`] has the reports of nodes.
//!
//! Two compute nodes in one process on the same data, from the layers:
//! ```
//! use std::sync::Arc;
//! use selkie::engine::{ComputeId, Engine, EngineConfig};
//! use selkie::fabric::{Fabric, MemFabric, RealRuntime};
//! use selkie::memnode::EmbeddedPool;
//! use selkie::pool::{Coding, PoolConfig};
//! use selkie::txn::{ColumnType, Database, TableSchema, key};
//!
//! let runtime = RealRuntime::new(2)?;
//! let env = runtime.env();
//! runtime.block_on(async move {
//!     let fabric: Arc<dyn Fabric> = MemFabric::new();
//!     let memory = EmbeddedPool::start(&fabric, PoolConfig {
//!         memory_nodes: 3,
//!         bytes_per_node: 32 << 20,
//!         gcl_bytes: 2048,
//!         range_bytes: 1 << 20,
//!         max_compute_nodes: 2,
//!         coding: Coding::PLAIN,
//!         log_bytes: 0,
//!     })?;
//!     let start = |index| {
//!         let id = ComputeId::new(index).ok_or("no such node");
//!         let config = EngineConfig { cache_bytes: 8 << 20, ..EngineConfig::default() };
//!         let (pool, fabric, env) = (memory.pool(), &fabric, &env);
//!         async move {
//!             let engine = Engine::start(pool, fabric, env, id?, config).await?;
//!             Ok::<_, Box<dyn std::error::Error>>(engine)
//!         }
//!     };
//!     let (first, second) = (start(0).await?, start(1).await?);
//!
//!     // One node creates the database and writes, ...
//!     let account = TableSchema::new("account")
//!         .column("id", ColumnType::I32)
//!         .column("cents", ColumnType::I64)
//!         .primary_key([0]);
//!     let db = Database::create(&first, vec![account]).await?;
//!     let account = db.table("account")?;
//!     let mut row = db.row(account)?;
//!     let mut txn = db.begin();
//!     txn.insert(account, row.i32(7).i64(1_000).finish()?).await?;
//!     txn.commit().await?;
//!
//!     // ... the other reads what it wrote.
//!     let db = Database::open(&second).await?;
//!     let mut txn = db.begin();
//!     let found = txn.get(db.table("account")?, &key![7]).await?.ok_or("no such account")?;
//!     assert_eq!(found.i64(1)?, 1_000);
//!     drop(txn);
//!     first.close().await?;
//!     second.close().await?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod embed;
pub mod report;
pub mod shared;
#[cfg(feature = "sql")]
pub mod sql;

pub use embed::{DataDirectoryError, Database, Durability, OpenError, Pool, PoolOptions, block_on};

#[cfg(feature = "sql")]
pub use sql::SqlDatabase;

pub use selkie_btree as btree;
pub use selkie_channels as channels;
pub use selkie_engine as engine;
pub use selkie_fabric as fabric;
pub use selkie_memnode as memnode;
pub use selkie_pool as pool;
pub use selkie_txn as txn;

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
