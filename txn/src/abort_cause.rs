//! Why transactions are rolled back.

/// Why a transaction was rolled back: the key of the abort statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbortCause {
    /// Another transaction, here or on another node, holds a leaf that was needed, or may still
    /// read a freed page that was.
    Conflict,
    /// A leaf already held shared was needed exclusively, and others hold it too.
    UpgradeConflict,
    /// What was read was changed since.
    Stale,
    /// A later transaction was at a leaf before this one.
    TooLate,
    /// The image of a leaf that a snapshot needs is gone.
    SnapshotTooOld,
    /// The log of the node had no room for changes.
    LogFull,
    /// Large transactions hold as many leaves as they may.
    CacheFull,
    /// The transaction is larger than the memory of the node or the log allows.
    TooLarge,
    /// A page or an answer did not come in time.
    Timeout,
    /// The caller rolled back, or dropped the transaction.
    Requested,
    /// Transactions waited for each other's row locks, and this one gave up.
    Deadlock,
    /// A row lock was not had in time.
    LockTimeout,
    /// The client of a session did nothing for too long.
    IdleTimeout,
    /// A future was dropped in the middle of a change.
    Interrupted,
    /// Anything else: a full pool, a dead peer, a damaged page.
    Failure,
}

impl AbortCause {
    /// All causes, in the order of their statistics.
    pub const ALL: [Self; 15] = [
        Self::Conflict,
        Self::UpgradeConflict,
        Self::Stale,
        Self::TooLate,
        Self::SnapshotTooOld,
        Self::LogFull,
        Self::CacheFull,
        Self::TooLarge,
        Self::Timeout,
        Self::Requested,
        Self::Deadlock,
        Self::LockTimeout,
        Self::IdleTimeout,
        Self::Interrupted,
        Self::Failure,
    ];

    /// A short name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::UpgradeConflict => "upgrade_conflict",
            Self::Stale => "stale",
            Self::TooLate => "too_late",
            Self::SnapshotTooOld => "snapshot_too_old",
            Self::LogFull => "log_full",
            Self::CacheFull => "cache_full",
            Self::TooLarge => "too_large",
            Self::Timeout => "timeout",
            Self::Requested => "requested",
            Self::Deadlock => "deadlock",
            Self::LockTimeout => "lock_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::Interrupted => "interrupted",
            Self::Failure => "failure",
        }
    }

    /// Whether the same transaction may well succeed when run again.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Conflict
            | Self::UpgradeConflict
            | Self::Stale
            | Self::TooLate
            | Self::SnapshotTooOld
            | Self::LogFull
            | Self::CacheFull
            | Self::Deadlock
            | Self::LockTimeout
            | Self::IdleTimeout
            | Self::Timeout => true,
            Self::TooLarge | Self::Requested | Self::Interrupted | Self::Failure => false,
        }
    }
}
