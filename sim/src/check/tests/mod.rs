//! Cases by hand: every anomaly, with its nearest harmless neighbour.

mod linear;
mod parse;
mod serial;
