//! Partitions and two-phase commit: the baseline that shared pages are compared with (SELCC
//! §7.3.2).
//!
//! A partition is a compute node with tables that no other node touches, so none of their pages
//! ever travels. An operation of a transaction on another partition is sent there as a *request*,
//! and that node executes it in a transaction of its own, two-phase locked. Whether all of them
//! commit is decided in two rounds:
//!
//! ```text
//! coordinator                         participant
//!   |---- Execute(request) ----------->|  begins a transaction, executes the request
//!   |<--- Answer(bytes) ---------------|  (Refused, may be retried, or Failed: rolled back)
//!   |   ... executes its own part
//!   |---- Prepare -------------------->|  record `prepared` with the requests: forced
//!   |<--- VoteYes ---------------------|  all latches stay; from here on it may not decide alone
//!   |  record `committed` in the same
//!   |  log record as its own changes:
//!   |  forced; this is the decision
//!   |---- Commit --------------------->|  its changes and `committed`, one log record: forced
//!   |<--- Acknowledged ----------------|
//! ```
//! *Forced* means that the next message is not sent before the node's redo log is durable; on nodes
//! without a log nothing is forced. If anything fails before the decision, the coordinator sends
//! `Abort` to all participants and records nothing: a transaction without a decision was aborted
//! (presumed abort).
//!
//! *Records* are rows of a ledger, a table that each partition has, so they are in the redo log as
//! all rows are (`ledger`). There is one row for each worker of each coordinator, on a page of its
//! own: a worker has one transaction at a time, and ends it in all partitions, so no transaction
//! blocks a record. A participant has the page of its record latched before it votes: what is left
//! to do then, releasing latches, cannot fail.
//!
//! *Cancellation.* A coordinator that is dropped before its decision aborts; one that is dropped
//! later leaves it to a task to end the transaction in all partitions.
//!
//! *What is not done.* A node does not resolve its prepared transactions after a crash: the ledger
//! has what it would need to ask, and a participant that receives no decision keeps its latches.
//! All partitions are in one process, where they find each other's mailboxes. This is a fair
//! baseline, not a system to operate.
//!
//! *Files.* `coordinator` and `participant` are the two sides of the protocol, over the `state` of
//! a partition; `mail` hands messages to them; `node` is the handle.

mod coordinator;
mod error;
mod inbox;
mod ledger;
mod mail;
mod member;
mod message;
mod node;
mod participant;
mod state;

pub use coordinator::DistributedTxn;
pub use error::PartitionError;
pub use ledger::{MAX_REQUEST_BYTES, ledger};
pub use member::{Member, Procedures};
pub use node::Partition;
