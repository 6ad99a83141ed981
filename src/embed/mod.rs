//! The short way in for a program that embeds the engine: [`Pool::open`] and [`Database::open`].
//!
//! Both take the URL of a pool, start what a compute node needs (worker threads, fabric, engine),
//! and are closed with one call. The crate's front page has the URLs, and what a drop without a
//! close means.
//!
//! Contents: `options` (what differs from the defaults), `runtime` (the worker threads),
//! `data_directory` (what an embedded pool is kept in), `pool`, `database`, `block_on` (an executor
//! for synchronous callers), `error`.

mod block_on;
mod data_directory;
mod database;
mod error;
mod options;
mod pool;
mod runtime;

pub use block_on::block_on;
pub use data_directory::DataDirectoryError;
pub use database::Database;
pub use error::OpenError;
pub use options::{Durability, PoolOptions};
pub use pool::Pool;
