//! TPC-C on a partitioned database: each warehouse belongs to a compute node, which has tables of
//! its own for its warehouses, and what a transaction needs of another node's it asks that node for
//! (see [`selkie_txn::partition`]).
//!
//! Of the five transactions two go beyond the home warehouse: NewOrder, whose lines may be supplied
//! by others, and Payment, whose customer may belong to another. The items, which no transaction
//! changes, are in one table that all nodes cache.
//!
//! What goes elsewhere goes first, a request to each node that is involved, at the same time: its
//! latches are held for longer then, but no latch at home is held while messages are on their way.
//! `route` is the worker's side of it, `procedures` that of the other node, and `request` has the
//! bytes.

mod procedures;
mod request;
mod route;

pub(crate) use procedures::PartitionProcedures;
pub(crate) use route::{PartitionRoute, connect, home_of};
