//! How transactions are kept apart: the choices, and what each means for an operation.
//!
//! | | reads | changes | conflicts are met |
//! |---|---|---|---|
//! | [`TwoPhase`](Protocol::TwoPhase) | latch a leaf to the end | in place, the leaf latched exclusively to the end | by the operation: somebody holds the leaf |
//! | [`Timestamp`](Protocol::Timestamp) | latch a leaf for a moment, and leave their timestamp there | are kept aside until commit | by whoever comes to a leaf at which a later transaction has been |
//! | [`Optimistic`](Protocol::Optimistic) | latch a leaf for a moment, and remember its sequence number | are kept aside until commit | by commit, or a later read: the leaf is another by then |
//!
//! All are serializable, phantoms included, as all go by leaves: what is not in a leaf is as much
//! read as what is. An optimistic read waits while another has the leaf latched exclusively, a
//! moment if that is optimistic, to its end if it is two-phase locked. It holds nothing meanwhile
//! that anybody waits for; but a task with a two-phase locked transaction of its own on that leaf
//! would wait for itself until the request times out.
//!
//! Two-phase locked and optimistic transactions may be mixed on one database. An optimistic
//! transaction that commits holds every leaf it changes latched exclusively while it looks whether
//! what it has read is as it was, and for that nobody may hold those leaves exclusively either: it
//! is a two-phase locked transaction that has all of its latches at that moment. So a transaction
//! that only reads goes by the optimistic protocol also where others lock
//! ([`Database::begin_to_read`](crate::Database::begin_to_read)). Those that go by timestamps
//! (`stamps.rs`) rely on all others leaving theirs: a database is made for them, or for the others,
//! and says so ([`DatabaseSchema`](crate::DatabaseSchema)).
//!
//! To operations a protocol is the answers that its [`Control`] gives; how these are carried out is
//! in `latch.rs` (a leaf is read), `write.rs` and `deferred.rs` (it is to change), `apply.rs`
//! (commit).

use std::fmt;
use std::str::FromStr;

/// How the transactions of a [`Database`](crate::Database) handle are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Two-phase locking without waiting (2PL no-wait).
    #[default]
    TwoPhase,
    /// Timestamp ordering, after Bernstein and Goodman (basic TO), of a database that is made for
    /// it.
    Timestamp,
    /// Optimistic concurrency control with validation at the end, after Kung and Robinson (OCC).
    Optimistic,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::TwoPhase, Protocol::Timestamp, Protocol::Optimistic];

    /// What it is called on command lines and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::TwoPhase => "2pl",
            Protocol::Timestamp => "to",
            Protocol::Optimistic => "occ",
        }
    }

    /// What it has transactions do.
    pub(crate) fn control(self) -> &'static dyn Control {
        match self {
            Protocol::TwoPhase => &TwoPhase,
            Protocol::Timestamp => &Timestamp,
            Protocol::Optimistic => &Optimistic,
        }
    }

    /// Whether transactions may be kept apart in either way on one database.
    #[must_use]
    pub fn goes_with(self, other: Protocol) -> bool {
        let stamps = |protocol: Protocol| protocol.control().reads() == Reads::Stamped;
        stamps(self) == stamps(other)
    }
}

/// What a protocol has transactions do: all that differs between protocols, for operations, which
/// are the same.
pub(crate) trait Control: Sync {
    /// What becomes of a leaf that is only read.
    fn reads(&self) -> Reads;

    /// When changes are made.
    fn changes(&self) -> Changes;

    /// What those go by that only read, beside others of this one.
    fn for_reading(&self) -> Protocol;
}

/// What becomes of a leaf that a transaction only reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reads {
    /// It stays latched to the end.
    Latched,
    /// Its sequence number is remembered, and has to be the same at commit.
    Noted,
    /// It is left the transaction's timestamp.
    Stamped,
}

/// When the changes of a transaction are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changes {
    /// By the operation, in a leaf that stays latched exclusively to the end.
    InPlace,
    /// By commit; until then they are kept aside.
    Aside,
}

/// Two-phase locking without waiting.
struct TwoPhase;
/// Timestamp ordering.
struct Timestamp;
/// Optimistic concurrency control.
struct Optimistic;

impl Control for TwoPhase {
    fn reads(&self) -> Reads {
        Reads::Latched
    }

    fn changes(&self) -> Changes {
        Changes::InPlace
    }

    fn for_reading(&self) -> Protocol {
        Protocol::Optimistic
    }
}

impl Control for Timestamp {
    fn reads(&self) -> Reads {
        Reads::Stamped
    }

    fn changes(&self) -> Changes {
        Changes::Aside
    }

    fn for_reading(&self) -> Protocol {
        Protocol::Timestamp
    }
}

impl Control for Optimistic {
    fn reads(&self) -> Reads {
        Reads::Noted
    }

    fn changes(&self) -> Changes {
        Changes::Aside
    }

    fn for_reading(&self) -> Protocol {
        Protocol::Optimistic
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
    fn protocols_go_by_their_names() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse(), Ok(protocol));
        }
        let unknown = "2PL".parse::<Protocol>().unwrap_err().to_string();
        assert_eq!(unknown, "there is no protocol \"2PL\"; there are 2pl, to, occ");
    }
}
