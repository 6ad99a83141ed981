//! How concurrent transactions are isolated: the protocols, and what each requires of an operation.
//!
//! * [`TwoPhase`](Protocol::TwoPhase). A read latches a leaf to the end of the transaction. A
//!   change is made in place, and its leaf is latched exclusively to the end. The operation itself
//!   finds a conflict: another transaction holds the leaf.
//! * [`Timestamp`](Protocol::Timestamp). A read latches a leaf briefly, and leaves its timestamp
//!   there. Changes are deferred to commit. A transaction finds a conflict when it reads or changes
//!   a leaf after a later transaction did.
//! * [`Optimistic`](Protocol::Optimistic). A read latches a leaf briefly, and records its sequence
//!   number. Changes are deferred to commit. Commit, or a later read, finds a conflict: the leaf
//!   has another sequence number.
//! * [`Snapshot`](Protocol::Snapshot). As the optimistic protocol, but what is recorded are rows
//!   and ranges, and what conflicts are changes of these
//!   ([`row_reads`](crate::protocol::row_reads)). Commit waits for the latches of the leaves that
//!   it changes. Transactions that only read see the state of one point in time, for which others
//!   keep images of the leaves that they change: no change is a conflict for them
//!   ([`view`](crate::protocol::view)).
//!
//! All are serializable, without phantoms: the first three work on leaves, and a read of a leaf
//! also reads the gaps between its keys. An optimistic read waits while another transaction has the
//! leaf latched exclusively: briefly if that one is optimistic, to its end if it is two-phase
//! locked. The reader holds no latch meanwhile that another could wait for; but a task whose own
//! two-phase locked transaction holds that leaf would wait for itself until the request times out.
//!
//! Two-phase locked and optimistic transactions may be mixed on one database. An optimistic
//! transaction that commits holds every leaf it changes latched exclusively while it validates its
//! reads, and validation fails if another transaction holds one of those leaves exclusively: at
//! that point it is a two-phase locked transaction that has all of its latches. So a transaction
//! that only reads uses the optimistic protocol also where others lock
//! ([`Database::begin_to_read`](crate::Database::begin_to_read)). Timestamp ordering
//! ([`timestamp_order`](crate::protocol::timestamp_order)) relies on all transactions leaving their
//! stamps, and snapshots on all keeping images: a database is created for one of these two, or for
//! the other two, and its catalogue says which ([`DatabaseSchema`](crate::DatabaseSchema)).
//!
//! An operation asks the [`ProtocolRules`] of its transaction and does not know protocols.

use std::fmt;
use std::str::FromStr;

/// How the transactions of a [`Database`](crate::Database) handle are isolated from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Two-phase locking without waiting (2PL no-wait). A transaction that holds as many leaves as
    /// [it may](crate::Database::set_latched_reads) keeps no more of those that it only reads:
    /// commit validates them, as for [`Optimistic`](Self::Optimistic), and until then it may see
    /// rows of different states.
    TwoPhase,
    /// Timestamp ordering, after Bernstein and Goodman (basic TO), of a database that was created
    /// for it.
    Timestamp,
    /// Optimistic concurrency control with validation at the end, after Kung and Robinson (OCC).
    Optimistic,
    /// Snapshots for transactions that only read; optimistic control of rows and ranges for those
    /// that write. Of a database that was created for it, as each is that names no other protocol.
    #[default]
    Snapshot,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 4] =
        [Protocol::TwoPhase, Protocol::Timestamp, Protocol::Optimistic, Protocol::Snapshot];

    /// Its name on command lines and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::TwoPhase => "2pl",
            Protocol::Timestamp => "to",
            Protocol::Optimistic => "occ",
            Protocol::Snapshot => "snapshot",
        }
    }

    /// What it requires of operations.
    pub(crate) fn rules(self) -> &'static dyn ProtocolRules {
        match self {
            Protocol::TwoPhase => &TwoPhaseRules,
            Protocol::Timestamp => &TimestampRules,
            Protocol::Optimistic => &OptimisticRules,
            Protocol::Snapshot => &SnapshotRules,
        }
    }

    /// Whether transactions of both protocols may run on one database.
    #[must_use]
    pub fn goes_with(self, other: Protocol) -> bool {
        let left_in_leaves = |protocol: Protocol| match protocol {
            Protocol::TwoPhase | Protocol::Optimistic => None,
            Protocol::Timestamp | Protocol::Snapshot => Some(protocol),
        };
        left_in_leaves(self) == left_in_leaves(other)
    }
}

/// What transactions see of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// As if transactions ran one after the other. Under [`Protocol::TwoPhase`] every latch is held
    /// to the end, also those of reads; under [`Protocol::Optimistic`] a transaction does not
    /// commit if others have changed what it has read; under [`Protocol::Timestamp`] a transaction
    /// that has read a leaf makes earlier ones fail that would change it; under
    /// [`Protocol::Snapshot`] it does not commit if others have changed rows or ranges that it has
    /// read.
    #[default]
    Serializable,
    /// Snapshot isolation, of [`Protocol::Snapshot`] alone: the transaction reads the state of one
    /// point in time, and does not commit if others have changed what it changes since. It may
    /// commit where they have changed what it only read (write skew).
    RepeatableRead,
    /// Only committed data, but another read may find other data: the latches of reads are released
    /// when the next operation begins, those of changes are held to the end. Under
    /// [`Protocol::Optimistic`] reads are not validated, and under [`Protocol::Timestamp`] they
    /// leave no timestamp, except reads that changes depend on and reads for update. Under
    /// [`Protocol::Snapshot`] each operation reads a snapshot of its own (a read by primary key,
    /// what is current), and what changes depend on has to be the same at commit.
    ReadCommitted,
}

/// What a protocol requires of operations: all that differs between protocols. The operations
/// themselves are the same.
pub(crate) trait ProtocolRules: Sync {
    /// What happens to a leaf that is only read.
    fn reads(&self) -> ReadRule;

    /// When changes are made.
    fn writes(&self) -> WriteRule;

    /// The protocol of transactions that only read, beside others of this one.
    fn for_reading(&self) -> Protocol;
}

/// What happens to a leaf that a transaction only reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadRule {
    /// It stays latched to the end.
    HoldLatch,
    /// Its sequence number is recorded, and has to be the same at commit.
    RecordPsn,
    /// The transaction leaves its timestamp in the leaf.
    Stamp,
    /// The rows and ranges read there are recorded, and have to be the same at commit.
    RecordRows,
}

/// When the changes of a transaction are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteRule {
    /// By the operation, in a leaf that stays latched exclusively to the end.
    InPlace,
    /// By commit; until then they are kept in the write set.
    Deferred,
}

/// Two-phase locking without waiting.
struct TwoPhaseRules;
/// Timestamp ordering.
struct TimestampRules;
/// Optimistic concurrency control.
struct OptimisticRules;
/// Optimistic concurrency control of rows, and snapshots.
struct SnapshotRules;

impl ProtocolRules for TwoPhaseRules {
    fn reads(&self) -> ReadRule {
        ReadRule::HoldLatch
    }

    fn writes(&self) -> WriteRule {
        WriteRule::InPlace
    }

    fn for_reading(&self) -> Protocol {
        Protocol::Optimistic
    }
}

impl ProtocolRules for TimestampRules {
    fn reads(&self) -> ReadRule {
        ReadRule::Stamp
    }

    fn writes(&self) -> WriteRule {
        WriteRule::Deferred
    }

    fn for_reading(&self) -> Protocol {
        Protocol::Timestamp
    }
}

impl ProtocolRules for OptimisticRules {
    fn reads(&self) -> ReadRule {
        ReadRule::RecordPsn
    }

    fn writes(&self) -> WriteRule {
        WriteRule::Deferred
    }

    fn for_reading(&self) -> Protocol {
        Protocol::Optimistic
    }
}

impl ProtocolRules for SnapshotRules {
    fn reads(&self) -> ReadRule {
        ReadRule::RecordRows
    }

    fn writes(&self) -> WriteRule {
        WriteRule::Deferred
    }

    fn for_reading(&self) -> Protocol {
        Protocol::Snapshot
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No protocol has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no protocol {name:?}; there are {all}", name = .0, all = Protocol::ALL.map(Protocol::name).join(", "))]
pub struct UnknownProtocol(pub String);

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        let found = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
        found.ok_or_else(|| UnknownProtocol(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_parsed_from_their_names() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse(), Ok(protocol));
        }
        let unknown = "2PL".parse::<Protocol>().unwrap_err().to_string();
        assert_eq!(unknown, "there is no protocol \"2PL\"; there are 2pl, to, occ, snapshot");
    }
}
