//! The result of a run: as JSON, and as tables for people.
//!
//! * `tpmc`: NewOrder transactions completed a minute. The one in a hundred that is rolled back
//!   because of an unused item is completed work and counts (clause 5.4.2 with 2.4.1.4); a
//!   transaction counts once however often conflicts made it start again. Without think times
//!   (`--think`) and with a run of less than two hours it is a measure of this engine and no result
//!   the specification would accept.
//! * `tps`: transactions of all five types completed a second, rolled-back ones included.
//! * The quotients `*_per_txn` are counters of all compute nodes during the run over the number of
//!   these transactions: attempts that ended in a conflict, eviction and messages between nodes
//!   included.
//! * `lost`: a transaction that needs a page which a dead node took with it is rolled back, counted
//!   and given up; it is in no other figure but the aborts.
//! * `latency_us`: from the first attempt to the end of the last, Delivery from its first district
//!   to its tenth.

mod json;
mod result;
mod table;

pub(crate) use result::CheckResult;
pub use result::Report;
