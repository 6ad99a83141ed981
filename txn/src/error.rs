//! What can go wrong in a transaction, and what that says about trying again.

use std::time::Duration;

use selkie_btree::TreeError;
use selkie_engine::{EngineError, GAddr};

pub use crate::abort_cause::AbortCause;
pub use crate::bulk_load_error::BulkLoadError;
use crate::catalogue::error::CatalogueError;
use crate::catalogue::schema_error::SchemaError;
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_error::RowError;
pub use crate::error_text::LongestValue;
use crate::error_text::{of_longest, of_row, of_table};
use crate::protocol::choice::Protocol;
use crate::sequences::error::SequenceError;

/// An operation of a transaction failed.
///
/// [`Duplicate`](Self::Duplicate), [`NotFound`](Self::NotFound), [`Row`](Self::Row),
/// [`Schema`](Self::Schema), [`Sequence`](Self::Sequence), [`KeyMismatch`](Self::KeyMismatch),
/// [`RowTooLarge`](Self::RowTooLarge), [`KeyTooLong`](Self::KeyTooLong),
/// [`WriteSetTooLarge`](Self::WriteSetTooLarge), [`ValueGone`](Self::ValueGone),
/// [`InvalidCursor`](Self::InvalidCursor), [`ReadOnly`](Self::ReadOnly) and
/// [`NoSavepoint`](Self::NoSavepoint) undo that one operation and leave the transaction usable; so
/// do the three that a [`Session`](crate::Session) has of its own.
/// Every other error has rolled the transaction back when it is returned: its latches are free, and
/// all that is left to do is to drop it and, if [`is_retryable`](Self::is_retryable), to begin
/// again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// Another transaction holds a leaf that is needed; no transaction waits for a lock. Run this
    /// one again.
    #[error("conflict on page {leaf:?}{}", if *.upgrade { " while upgrading" } else { "" })]
    Conflict {
        /// The leaf.
        leaf: GAddr,
        /// It was held shared already.
        upgrade: bool,
    },
    /// Another transaction has changed a leaf since this one read it. Run the transaction again.
    #[error("page {leaf:?} was changed since it was read")]
    Stale {
        /// The leaf.
        leaf: GAddr,
    },
    /// A transaction with a later timestamp has changed a leaf that this one reads, or was at one
    /// that it changes. Run the transaction again: it is given a later one.
    #[error("too late: a later transaction was at page {leaf:?}")]
    TooLate {
        /// The leaf.
        leaf: GAddr,
    },
    /// The transaction reads at a snapshot, and the image of a leaf as it was then is gone: the
    /// node that kept it has ended, or had no room for more. Run the transaction again: its
    /// snapshot is later.
    #[error(
        "the snapshot is too old: page {leaf:?} has changed since, and its earlier image is gone"
    )]
    SnapshotTooOld {
        /// The leaf.
        leaf: GAddr,
    },
    /// The transaction changes, or reads to change, more leaves than it may keep latched at a time:
    /// half the cache, and what [`overflow_bytes`](selkie_engine::EngineConfig::overflow_bytes)
    /// allows beside it.
    #[error(
        "{}the transaction is too large: it would hold {need} pages latched, and this node allows \
         {limit}, half of its cache and what may be beyond",
        of_table(table)
    )]
    TooManyLeaves {
        /// The table of the leaf that is one too many; empty if it is not known.
        table: String,
        /// Leaves that it would hold at least.
        need: usize,
        /// Most leaves.
        limit: usize,
    },
    /// What it takes to take the changes of the transaction back is more than this node has memory
    /// for: [`overflow_bytes`](selkie_engine::EngineConfig::overflow_bytes), or 64 MiB if that is
    /// less. The operation changed nothing; the transaction may go on, or commit what it has.
    #[error(
        "{}the transaction is too large: its changes would take {} MiB of memory, and this node \
         allows {} MiB",
        of_table(table), need.div_ceil(1 << 20), limit >> 20
    )]
    TooMuchMemory {
        /// The table of the operation that goes beyond; empty if it is not known.
        table: String,
        /// Bytes.
        need: u64,
        /// Most bytes.
        limit: u64,
    },
    /// The changes that are recorded to be made at commit would take more than the node's log takes
    /// in one change, with those of this operation. They are as they were before it: others may
    /// follow, or a part of them be rolled back, and what is there be committed, if the pages that
    /// it changes fit the log.
    #[error(
        "{}the changes of the transaction would take {need} bytes (allowed by the log of this node: \
         {limit})",
        of_table(table)
    )]
    WriteSetTooLarge {
        /// The table of the operation that goes beyond; empty if it is not known.
        table: String,
        /// Bytes that the changes would take at least.
        need: u64,
        /// Bytes that the log takes in one change.
        limit: u64,
    },
    /// Other large transactions hold most of the leaves that may be latched at a time. Run the
    /// transaction again.
    #[error("{}large transactions hold the {limit} pages that this node allows", of_table(table))]
    CacheFull {
        /// The table of the leaf that was to be latched; empty if it is not known.
        table: String,
        /// Most leaves.
        limit: usize,
    },
    /// All timestamps of the pool are used up.
    #[error("there are no timestamps left in this pool: the last is {last}")]
    OutOfTimestamps {
        /// The last one there is.
        last: u64,
    },
    /// A row with this key is there already.
    #[error("table {table}, {index}: duplicate key ({key})")]
    Duplicate {
        /// The table.
        table: String,
        /// The index, or "primary key".
        index: String,
        /// The columns of the key with their values.
        key: String,
    },
    /// A row takes more than a page has room for, with its long values stored apart from it where
    /// that is possible.
    #[error(
        "table {table}: the row takes {bytes} bytes (allowed: {limit} at this page size, with a key \
         of {key_bytes} bytes){}",
        of_longest(longest)
    )]
    RowTooLarge {
        /// The table.
        table: String,
        /// Bytes that the row would take.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
        /// Bytes of its key.
        key_bytes: usize,
        /// The value that takes most of it.
        longest: Option<Box<LongestValue>>,
    },
    /// The key of a row, or its key in an index, is too long.
    #[error(
        "table {table}, {index}: the key takes {bytes} bytes (allowed: {limit} at this page size){}",
        of_longest(longest)
    )]
    KeyTooLong {
        /// The table.
        table: String,
        /// The index, or "primary key".
        index: String,
        /// Bytes of the key.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
        /// The value that takes most of it.
        longest: Option<Box<LongestValue>>,
    },
    /// A value that is stored apart from its row was replaced or deleted since the row was read, by
    /// an earlier operation. Only under [`ReadCommitted`](crate::Isolation::ReadCommitted): read
    /// the row again.
    #[error("table {table}: the value was replaced or deleted since its row was read")]
    ValueGone {
        /// The table.
        table: String,
    },
    /// There is no row to update or delete.
    #[error("table {table}: no row with this key ({key})")]
    NotFound {
        /// The table.
        table: String,
        /// The columns of the key with their values.
        key: String,
    },
    /// The bytes given are not a key of this table or index: too few or too many parts, or other
    /// types.
    #[error("table {table}, {index}: the key given has another shape: {key} is not of ({columns})")]
    KeyMismatch {
        /// The table.
        table: String,
        /// The index, or "primary key".
        index: String,
        /// The bytes given, at most 64 of them, or how many values were.
        key: String,
        /// The columns of a key, with their types.
        columns: Box<str>,
    },
    /// A cursor is not one of the transaction that it is used with: it was opened in another, or
    /// after a savepoint that the transaction has gone back to.
    #[error(
        "table {table}, {index}: the cursor is of another transaction, or of a part of this one \
         that was rolled back"
    )]
    InvalidCursor {
        /// The table.
        table: String,
        /// The index, or "primary key".
        index: String,
    },
    /// Something was to be changed, or locked for that, in a transaction that only reads
    /// ([`Database::begin_to_read`](crate::Database::begin_to_read)).
    #[error("this transaction only reads: nothing can be changed or read for update in it")]
    ReadOnly,
    /// A savepoint that this transaction does not have, or not any more.
    #[error(
        "there is no such savepoint in this transaction: it was released, or an earlier one was gone back to"
    )]
    NoSavepoint,
    /// A column was misused, or a stored row is damaged: with the names of table and column, and
    /// the value that was refused. [`RowError::UnknownLayout`] has rolled back: run the transaction
    /// again.
    #[error(transparent)]
    Row(#[from] NamedRowError),
    /// A row given to one table was made for another, or before the columns of this one were
    /// changed.
    #[error("table {table}: the row was built for another table, or for other columns")]
    ForeignRow {
        /// The table.
        table: String,
    },
    /// A table or index that is not there, or cannot be.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A sequence that is not there, cannot be, or has no more values.
    /// [`SequenceError::Changed`] has rolled back: run the transaction again.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The catalogue is missing, damaged or there already.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// An index and its table disagree.
    #[error("table {table}: index {index} disagrees with the rows")]
    Inconsistent {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The transaction was rolled back by an earlier error, or because a future was dropped
    /// half-way.
    #[error("the transaction was rolled back: {}", .cause.name())]
    RolledBack {
        /// Why.
        cause: AbortCause,
    },
    /// An operation, or the whole transaction, took longer than the session allows.
    #[error("the {what} took longer than {limit:?}, which the session allows")]
    DeadlineExceeded {
        /// "operation" or "transaction".
        what: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// A commit was given up by its caller while it waited for rows that others have locked
    /// ([`Session::commit_until`](crate::Session::commit_until)).
    #[error("the commit was given up while it waited for rows that others have locked")]
    CommitStopped,
    /// The client of a session did nothing in its transaction for longer than the session
    /// [allows](crate::SessionLimits::idle): it was rolled back then. Run it again.
    #[error("the transaction was rolled back after idling for {idled:?} (allowed: {limit:?})")]
    IdleTooLong {
        /// How long it may idle.
        limit: Duration,
        /// How long it did.
        idled: Duration,
    },
    /// Transactions waited for each other's row locks in a circle, and this one, the youngest of
    /// them, gave up. Run it again.
    #[error(
        "{}transactions wait for each other's row locks: this one was rolled back",
        of_row(table, key)
    )]
    Deadlock {
        /// The table of the row that it waited for.
        table: String,
        /// The columns of the row's key with their values; empty if it was all rows.
        key: String,
    },
    /// A row lock was not had in the time that the transaction allows.
    #[error("{}a row lock was waited for in vain for {waited:?}", of_row(table, key))]
    LockTimeout {
        /// How long.
        waited: Duration,
        /// The table of the row.
        table: String,
        /// The columns of the row's key with their values; empty if it was all rows, or any.
        key: String,
    },
    /// A row is locked by another transaction, and this one was not to wait.
    #[error("table {table}: the row is locked by another transaction ({key})")]
    RowLocked {
        /// The table.
        table: String,
        /// The columns of the row's key with their values.
        key: String,
    },
    /// Rows are locked under the protocol snapshot only.
    #[error("rows can be locked under the protocol snapshot only, in databases created for it")]
    NoRowLocks,
    /// A session was to begin a transaction, and is in one.
    #[error("there is a transaction in progress in this session")]
    InTransaction,
    /// A session was to use a transaction, and is in none.
    #[error("there is no transaction in progress in this session")]
    NoTransaction,
    /// Transactions of this protocol hold latches between their operations.
    #[error(
        "there are no sessions under the protocol {protocol}: it keeps pages latched between \
         operations; to, occ and snapshot do not"
    )]
    NoSessions {
        /// The protocol of the handle.
        protocol: Protocol,
    },
    /// The transaction has committed, others may have seen it, and it is not known whether it will
    /// last: the log of its node could not be written in time, or the node may have been declared
    /// dead before. It is not to be run again.
    #[error("committed, but it is not known whether that lasts: {source}")]
    Undetermined {
        /// Why.
        source: EngineError,
    },
    /// A leaf kept moving, or a split gave no room, for so many attempts in a row.
    #[error("no leaf for the key in tree {root:?} after {attempts} attempts")]
    NoStableLeaf {
        /// Root of the tree.
        root: GAddr,
        /// The bound that was reached.
        attempts: u32,
    },
    /// A load of a table failed, and has left nothing behind.
    #[error(transparent)]
    BulkLoad(#[from] BulkLoadError),
    /// The engine failed.
    #[error(transparent)]
    Engine(EngineError),
    /// The tree failed.
    #[error(transparent)]
    Tree(TreeError),
}

impl TxnError {
    /// Whether the same transaction may well succeed when run again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.abort_cause().is_some_and(AbortCause::is_retryable)
    }

    /// The error of the engine that this one is, if it is one.
    #[must_use]
    pub fn engine_error(&self) -> Option<&EngineError> {
        match self {
            Self::Engine(error) | Self::Tree(TreeError::Engine(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether the node serves nothing more ([`EngineError::ends_node`]): another node of the pool
    /// may run the transaction.
    #[must_use]
    pub fn ends_node(&self) -> bool {
        self.engine_error().is_some_and(EngineError::ends_node)
    }

    /// Whether a page could not be allocated because freed ones are still in use.
    pub(crate) fn is_freed_in_use(&self) -> bool {
        matches!(
            self,
            Self::Engine(EngineError::FreedInUse)
                | Self::Tree(TreeError::Engine(EngineError::FreedInUse))
        )
    }

    /// Why the transaction was rolled back, `None` if it was not.
    #[must_use]
    pub fn abort_cause(&self) -> Option<AbortCause> {
        Some(match self {
            Self::Conflict { upgrade: false, .. } => AbortCause::Conflict,
            Self::Conflict { upgrade: true, .. } => AbortCause::UpgradeConflict,
            Self::Stale { .. }
            | Self::Row(NamedRowError { error: RowError::UnknownLayout { .. }, .. })
            | Self::Sequence(SequenceError::Changed { .. }) => AbortCause::Stale,
            Self::TooLate { .. } => AbortCause::TooLate,
            Self::SnapshotTooOld { .. } => AbortCause::SnapshotTooOld,
            Self::RolledBack { cause } => *cause,
            Self::Engine(EngineError::Busy { .. } | EngineError::FreedInUse)
            | Self::Tree(TreeError::Engine(EngineError::Busy { .. } | EngineError::FreedInUse)) => {
                AbortCause::Conflict
            }
            Self::Engine(EngineError::LogFull)
            | Self::Tree(TreeError::Engine(EngineError::LogFull)) => AbortCause::LogFull,
            Self::TooManyLeaves { .. }
            | Self::Engine(EngineError::ChangeTooLarge { .. })
            | Self::Tree(TreeError::Engine(EngineError::ChangeTooLarge { .. })) => {
                AbortCause::TooLarge
            }
            Self::CacheFull { .. } => AbortCause::CacheFull,
            Self::Deadlock { .. } => AbortCause::Deadlock,
            Self::LockTimeout { .. } => AbortCause::LockTimeout,
            Self::IdleTooLong { .. } => AbortCause::IdleTimeout,
            Self::DeadlineExceeded { .. } | Self::CommitStopped => AbortCause::Interrupted,
            Self::Engine(error) if error.is_retryable() => AbortCause::Timeout,
            Self::Tree(error) if error.is_retryable() => AbortCause::Timeout,
            Self::NoStableLeaf { .. } => AbortCause::Timeout,
            Self::Engine(_)
            | Self::Tree(_)
            | Self::Catalogue(_)
            | Self::Inconsistent { .. }
            | Self::OutOfTimestamps { .. } => AbortCause::Failure,
            Self::Duplicate { .. }
            | Self::NotFound { .. }
            | Self::RowTooLarge { .. }
            | Self::KeyTooLong { .. }
            | Self::TooMuchMemory { .. }
            | Self::WriteSetTooLarge { .. }
            | Self::ValueGone { .. }
            | Self::ReadOnly
            | Self::NoSavepoint
            | Self::RowLocked { .. }
            | Self::NoRowLocks
            | Self::InTransaction
            | Self::NoTransaction
            | Self::NoSessions { .. }
            | Self::Undetermined { .. }
            | Self::KeyMismatch { .. }
            | Self::InvalidCursor { .. }
            | Self::Row(_)
            | Self::ForeignRow { .. }
            | Self::BulkLoad(_)
            | Self::Sequence(_)
            | Self::Schema(_) => return None,
        })
    }
}

impl From<EngineError> for TxnError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Busy { addr } => Self::Conflict { leaf: addr, upgrade: false },
            other => Self::Engine(other),
        }
    }
}

/// Of a row of which is not known of what table it is.
impl From<RowError> for TxnError {
    fn from(error: RowError) -> Self {
        Self::Row(NamedRowError::unnamed(error))
    }
}

impl From<TreeError> for TxnError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Engine(error) => error.into(),
            other => Self::Tree(other),
        }
    }
}
