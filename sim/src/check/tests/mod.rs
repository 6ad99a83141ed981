//! Cases by hand: every anomaly, with its nearest harmless neighbour.

mod linear;
pub(super) mod parse;
mod serial;
