//! Partitions and two-phase commit: the baseline that shared pages are compared with (SELCC
//! §7.3.2).
//!
//! A partition is a compute node with tables that no other node touches, so none of their pages
//! ever travels. What a transaction needs of another partition is sent there as a *request*, and
//! executed by that node in a transaction of its own, two-phase locked. Whether all of them commit
//! is decided in two rounds:
//!
//! ```text
//! coordinator                         participant
//!   |---- Work(request) -------------->|  begins a transaction, executes the request
//!   |<--- Answer(bytes) ---------------|  (Refused: it was rolled back, and is to be tried again; Failed: not that)
//!   |   ... executes its own part
//!   |---- Prepare -------------------->|  record `prepared` with the requests: forced
//!   |<--- Yes -------------------------|  all latches stay; from here on it may not decide alone
//!   |  record `committed` in the same
//!   |  log record as its own changes:
//!   |  forced; this is the decision
//!   |---- Commit --------------------->|  its changes and record `committed`, one log record: forced
//!   |<--- Done ------------------------|
//! ```
//! *Forced* means that the next message is not sent before the node's redo log is durable; on nodes
//! without a log nothing is. Whatever goes wrong before the decision, the coordinator sends `Abort`
//! to all, of which nothing is recorded: what nobody has decided was aborted (presumed abort).
//!
//! *Records* are rows of a ledger, a table that each partition has, so they are in the redo log as
//! everything is (`ledger`). There is one row for each worker of each coordinator, on a page of its
//! own: a worker has one transaction at a time, and ends it with all that take part, so nobody is
//! in the way of a record. A participant has the page of its record latched before it votes: what
//! is left to do then, letting go of latches, cannot fail.
//!
//! *Cancellation.* A coordinator that is dropped before its decision aborts; one that is dropped
//! later leaves it to a task to end the transaction everywhere.
//!
//! *What is not done.* No node comes back after a death to ask about what it had prepared: the
//! ledger says what would be asked, and a participant that hears nothing any more keeps its
//! latches. All partitions are in one process, where they find each other's mailboxes. As a
//! baseline this is to be fair, not to be operated.

mod across;
mod error;
mod inbox;
mod ledger;
mod member;
mod message;
mod session;

pub use across::Across;
pub use error::PartitionError;
pub use ledger::{MAX_REQUEST_BYTES, ledger};
pub use member::{Member, Partition, Procedures};
