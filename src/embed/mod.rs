//! The short way in for a program that embeds the engine: [`Pool::open`] and [`Database::open`].
//!
//! Both take the URL of a pool, start what a compute node needs (worker threads, fabric, engine)
//! with good defaults, and are closed with one call:
//!
//! | URL | pool |
//! | --- | --- |
//! | `embedded:` | one of this process's own, in its memory; it ends with the process |
//! | `NAME`, `shm:NAME` | one that processes of this host share, made by `selkie pool create` |
//! | `tcp:HOST:PORT,...` | one that hosts share, by the addresses of some of its memory nodes |
//! | `etcd:HOST:PORT,.../NAME` | the same by name, with the feature `etcd` |
//!
//! The layers below stay in reach: [`Pool::env`], [`Pool::fabric`], [`Pool::pool`] and
//! [`Pool::engine`] return what a program would otherwise have started itself.
//!
//! Futures of this crate run on any executor, as all that they wait for happens on threads of the
//! pool. A program without an executor uses [`block_on`].
//!
//! # Dropping without closing
//!
//! Close a pool with [`Pool::close`] or [`Database::close`]: the node then writes its pages home and
//! leaves the pool. A pool that is dropped with all its clones, but not closed, ends as if its
//! process had died: nothing hangs and no memory is unsafe, but pages that only this node had
//! changed are lost unless it had a log ([`PoolOptions::durability`]), and the other nodes first
//! have to notice its death and recover from it.

mod block_on;
mod database;
mod error;
mod options;
mod pool;
mod runtime;

pub use block_on::block_on;
pub use database::Database;
pub use error::OpenError;
pub use options::{Durability, PoolOptions};
pub use pool::Pool;
