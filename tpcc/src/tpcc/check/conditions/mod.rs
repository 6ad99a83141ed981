//! The twelve conditions, each a function over the facts.
//!
//! ```text
//! orders, payments    the conditions, by what they speak about
//! sums                sums that several of them need
//! findings            what is found about one condition, and about all
//! judge               all of them together
//! ```

mod findings;
mod judge;
mod orders;
mod payments;
mod sums;

pub use findings::{BrokenCondition, Judgement};
pub use judge::{CONDITIONS, check, judge};
