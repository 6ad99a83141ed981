//! FOREIGN KEY constraints while a statement runs.
//!
//! A statement that changes rows notes keys as it goes ([`Tracker`]): values that have to be keys
//! of a parent, and keys that a parent has no more. When its rows are changed, what was noted is
//! settled ([`Pending`]), so that a statement that repairs itself passes. Keys of an INSERT whose
//! parents it does not change are looked up while it runs, and forgotten.
//!
//! An action such as CASCADE is an UPDATE or DELETE of the child. What that notes is put at the end
//! of what is to be settled, and not settled within it: so a cascade is a loop and no recursion,
//! however long it is, and what is checked is what all actions of the statement have left. As in
//! PostgreSQL, a table may be reached on two ways in any order.
//!
//! # Two sessions
//!
//! Who inserts a child has read the key of its parent, and who removes a parent has read that there
//! is no child in a range of keys. Both are recorded whatever the isolation (`Txn::keep_row`,
//! `Txn::keep_range`), and compared when the transaction commits. So of two of which one inserts a
//! child and the other removes its parent the later commit fails with 40001, on any node. Nothing
//! is locked: any number of transactions insert children of a parent, and change what is no key of
//! it.

mod actions;
mod deferred;
mod lookup;
mod pending;
mod relations;
mod tracker;

pub(crate) use deferred::{DeferredMark, DeferredReferences, settle_deferred};
pub(crate) use pending::PendingReferences;
pub(crate) use relations::RelationCache;
pub(crate) use tracker::check_rows;
pub(super) use tracker::{Tracked, Tracker};
