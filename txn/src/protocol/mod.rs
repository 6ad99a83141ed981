//! Concurrency control: what each protocol requires, and the state that it keeps for a transaction.
//!
//! | file | concept | used by |
//! |---|---|---|
//! | [`choice`] | [`Protocol`], and the rules that a protocol gives to operations | all |
//! | [`leaf_latch`] | a latched leaf page, or a copy of one | all |
//! | [`lock_set`] | the leaves whose latches a transaction holds to its end | 2PL; all at commit |
//! | [`undo_log`] | changes made in held leaves, and how to undo them | 2PL; all at commit |
//! | [`write_set`] | changes deferred to commit | TO, OCC, snapshots |
//! | [`read_set`] | leaves that were read, with the page sequence numbers they had | OCC |
//! | [`recent_leaves`] | leaves that were read last, where the next keys may be | snapshots |
//! | [`row_reads`] | rows and ranges that were read, with digests | snapshots |
//! | [`view`] | the state that a transaction reads | snapshots |
//! | [`timestamp_order`] | the rules of timestamp ordering | TO |
//! | [`clock`] | the source of timestamps | TO |
//!
//! Each type owns its state and has its methods beside it. None of them knows the transaction or
//! the database that uses it.

pub(crate) mod choice;
pub(crate) mod clock;
pub(crate) mod leaf_latch;
pub(crate) mod lock_set;
pub(crate) mod per_tree;
pub(crate) mod read_set;
pub(crate) mod recent_leaves;
pub(crate) mod row_reads;
pub(crate) mod timestamp_order;
pub(crate) mod undo_log;
pub(crate) mod view;
pub(crate) mod write_set;

pub use choice::{Isolation, Protocol, UnknownProtocol};
