//! Which state of the database a transaction reads, under
//! [`Protocol::Snapshot`](crate::Protocol::Snapshot).
//!
//! Every commit has a stamp, drawn from the pool's clock while it holds all leaves that it changes,
//! and it leaves the stamp in each of them. The state at a stamp has all commits up to it, and no
//! other.
//!
//! *A snapshot* is a published stamp. A leaf whose stamp is later has been changed since: it links
//! to its image before that change, which has its own stamp and link, and so on. A committing
//! transaction keeps an image only if a snapshot is active that may want it
//! ([`Engine::begin_snapshot`](selkie_engine::Engine::begin_snapshot)). So a reader at a snapshot
//! waits for no writer but while one holds the leaf to commit, and meets no conflict.
//!
//! *One leaf* is of one state whenever it is latched: a commit holds it until it has made all of
//! its changes. So an operation that reads a snapshot of its own, and looks at one leaf only, takes
//! the leaf as it is, and begins none.
//!
//! *The current state* is what serializable transactions read that may write: what they have read
//! has to be current when they commit, so older images are of no use to them. `seen` is a stamp
//! such that all that was read is the state at `seen`. A leaf with a later stamp makes the
//! transaction validate what it has read before; then all of it is the state at that stamp, too,
//! and `seen` moves there. So also such a transaction only ever sees one state. The argument: a
//! commit with a stamp up to `seen` had latched its leaves before the transaction read or validated
//! anything at `seen`. A leaf that can be latched then, and is found unchanged, was changed by no
//! such commit that is still to come.

use selkie_engine::{Snapshot, Stamp};

use crate::protocol::choice::Isolation;

/// The state that a transaction reads.
pub(crate) enum View {
    /// What is current: all that was read is the state at this stamp.
    Current { seen: Stamp },
    /// The state at a snapshot; `None` before the first access.
    At { snapshot: Option<Snapshot>, span: SnapshotSpan },
    /// What is current in the one leaf that this operation reads; later ones are
    /// [`At`](Self::At) a snapshot each.
    OneLeaf,
}

/// For how long a snapshot is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotSpan {
    /// Each operation has one of its own.
    Operation,
    /// All operations of a statement have one.
    Statement,
    Transaction,
}

impl View {
    /// Of a transaction; `latest` is a stamp that was drawn before it began.
    pub(crate) fn new(isolation: Isolation, latest: Stamp) -> Self {
        match isolation {
            Isolation::Serializable => Self::Current { seen: latest },
            Isolation::RepeatableRead => Self::not_yet(SnapshotSpan::Transaction),
            Isolation::ReadCommitted => Self::not_yet(SnapshotSpan::Operation),
        }
    }

    /// Of a transaction that only reads.
    pub(crate) fn read_only() -> Self {
        Self::not_yet(SnapshotSpan::Transaction)
    }

    /// That of a snapshot which the first access begins.
    fn not_yet(span: SnapshotSpan) -> Self {
        Self::At { snapshot: None, span }
    }

    /// Whether older images of leaves are read.
    pub(crate) fn is_snapshot(&self) -> bool {
        matches!(self, Self::At { .. } | Self::OneLeaf)
    }

    /// The stamp at which all that was read is the state, if that may come to be a later one.
    pub(crate) fn seen(&self) -> Option<Stamp> {
        match self {
            Self::Current { seen } => Some(*seen),
            Self::At { .. } | Self::OneLeaf => None,
        }
    }

    /// Whether each operation has a view of its own.
    pub(crate) fn is_of_operation(&self) -> bool {
        matches!(self, Self::At { span: SnapshotSpan::Operation, .. } | Self::OneLeaf)
    }

    /// Begins an operation: it may see a later state than the one before.
    pub(crate) fn open_operation(&mut self) {
        if self.is_of_operation() {
            *self = Self::not_yet(SnapshotSpan::Operation);
        }
    }

    /// The rest of the operation, or of the statement, sees what is there now.
    pub(crate) fn refresh(&mut self) {
        if self.is_of_statement() {
            *self = Self::not_yet(SnapshotSpan::Statement);
        } else {
            self.open_operation();
        }
    }

    /// Whether it is of an operation or of a statement.
    pub(crate) fn is_refreshable(&self) -> bool {
        self.is_of_operation() || self.is_of_statement()
    }

    /// Begins a statement, if not the whole transaction has one view.
    pub(crate) fn open_statement(&mut self) {
        if self.is_of_operation() || self.is_of_statement() {
            *self = Self::not_yet(SnapshotSpan::Statement);
        }
    }

    /// Ends a statement, if there is one.
    pub(crate) fn close_statement(&mut self) {
        if self.is_of_statement() {
            *self = Self::not_yet(SnapshotSpan::Operation);
        }
    }

    /// Whether the whole transaction reads one snapshot.
    pub(crate) fn is_of_transaction(&self) -> bool {
        matches!(self, Self::At { span: SnapshotSpan::Transaction, .. })
    }

    fn is_of_statement(&self) -> bool {
        matches!(self, Self::At { span: SnapshotSpan::Statement, .. })
    }

    /// The operation that was [begun](Self::open_operation) reads one leaf only.
    pub(crate) fn narrow_to_one_leaf(&mut self) {
        if let Self::At { snapshot: None, span: SnapshotSpan::Operation } = self {
            *self = Self::OneLeaf;
        }
    }

    /// The stamp of the snapshot, if there is one yet.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::At { snapshot, .. } => snapshot.as_ref().map(Snapshot::stamp),
            Self::Current { .. } | Self::OneLeaf => None,
        }
    }

    /// Ends the snapshot.
    pub(crate) fn end(&mut self) {
        if let Self::At { snapshot, .. } = self {
            *snapshot = None;
        }
    }
}
