//! Transactions of every kind on a few keys: see [`super::Scenario::History`].
//!
//! Sessions on all nodes read, write, delete and scan *registers*, and append to and read *lists*.
//! Each attempt is a transaction of one history (`journal.rs`), which must be strictly
//! serializable.
//!
//! *Every version is unique, also that of an absent row.* A history tells which write a read saw
//! only if every version has a value of its own. An absent row has no value: it was never inserted,
//! or it was deleted at an unknown time. So a delete leaves a *tombstone* in a second table, and a
//! reader that finds no row reads the tombstone (`registers.rs`). A scan reads both tables. It so
//! observes one version of each key in its range, present or absent. Only deletes write tombstones:
//! an insert into a scanned range conflicts with the scan only by the gap.
//!
//! *Four protocols*, by the option or the seed. Some seeds mix locking and optimistic sessions. All
//! protocols promise real-time order: two-phase locking holds all locks at commit, optimistic
//! transactions validate while they hold all pages that they change, a timestamp is later than all
//! timestamps before it, and a snapshot has every commit that ended before it began.
//!
//! *Tables change* in every other run with snapshots (`schema_changes.rs`).
//!
//! *Nodes may die*, in one plan of eight. A survivor reads what was committed, or gets an error. So
//! the history up to that error is judged as well. A transaction that was committing at a dead node
//! has an unknown outcome.

mod access;
mod column_changes;
mod ending;
mod holds;
mod journal;
mod lists;
mod load;
mod lock_ring;
mod locking;
mod registers;
mod run;
mod schema_changes;
mod session;
mod values;

pub use self::run::{RecordedHistory, history};
pub(super) use self::run::{run, strictly_serializable};
