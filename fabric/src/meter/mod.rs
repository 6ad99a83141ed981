//! Decorator `meter`: counts what each node asks of the network.
//!
//! Contents: `counters` (cheap to raise, summed when read), `fabric` (the decorator).

mod counters;
mod fabric;

pub use counters::MeterSnapshot;
pub use fabric::Meter;
