//! Engines with logs: a change is durable before it leaves its node, and logs redo lost pages.

mod cluster;
mod copies;
mod cut;
mod damage;
mod durability;
mod merging;
mod redo;
mod still;
mod unreachable;
pub(crate) mod valve;
