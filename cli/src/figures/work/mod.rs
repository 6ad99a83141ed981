//! What is run for a point of a figure.

pub(super) mod balance;
pub(super) mod cluster;
pub(super) mod data_loss;
pub(super) mod experiment;
pub(super) mod latency;
pub(super) mod memory_use;
pub(super) mod node_failure;
pub(super) mod placement;
pub(super) mod quantiles;
pub(super) mod tpcc;

pub(super) use quantiles::Quantiles;
