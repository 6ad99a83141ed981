//! What can go wrong in a driver's run.

use selkie_btree::TreeError;
use selkie_engine::{EngineError, GAddr};
use selkie_fabric::env::TaskError;
use selkie_fabric::{FabricError, PeerId};
use selkie_pool::PoolError;
use selkie_txn::partition::PartitionError;
use selkie_txn::{AbortCause, NamedRowError, RetryError, TxnError};

use crate::figures::units::{bytes, count};

/// Error of a load, a run or a check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TpccError {
    /// A value is outside what is allowed. Nothing was started.
    #[error("{key} = {value}: {allowed}")]
    Config {
        /// The key.
        key: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The pool has no room left.
    #[error("pool full: used {} of {}, needs about {}", bytes(*.used), bytes(*.capacity), bytes(*.needed))]
    PoolFull {
        /// Bytes of pages given out.
        used: u64,
        /// Bytes of pages the pool has.
        capacity: u64,
        /// Bytes that the database and its growth are estimated to take.
        needed: u64,
    },
    /// A load has ended before all was loaded.
    #[error("{why}; the load had got to {} of {} keys", count(*.loaded), count(*.keys))]
    LoadStopped {
        /// Keys that were loaded.
        loaded: u64,
        /// Keys that were to be loaded.
        keys: u64,
        /// What has ended it.
        why: Box<TpccError>,
    },
    /// The pool has no room for a new database beside the one that is there. Nothing was changed.
    #[error(
        "no room for a new database beside the one that is there: it needs about {}, and {} of {} are free. What is there \
         gives its memory back only when the pool is destroyed: add memory nodes, or make the pool again",
        bytes(*.needed), bytes(.capacity.saturating_sub(*.used)), bytes(*.capacity)
    )]
    NoRoomToReload {
        /// Bytes of pages given out.
        used: u64,
        /// Bytes of pages the pool has.
        capacity: u64,
        /// Bytes that the new database is estimated to take.
        needed: u64,
    },
    /// A driver that loaded the database is gone, or ended before it was done: what is in the pool
    /// is a part of one.
    #[error(
        "the load of the database was broken off, and a part of it is there: load it again with --reload"
    )]
    LoadCutShort,
    /// It was asked to end before there was a result.
    #[error("interrupted before there was a result")]
    Interrupted,
    /// Others work on the database that was to be replaced.
    #[error("{}: it cannot be replaced now", others_work(*.drivers))]
    DatabaseInUse {
        /// How many.
        drivers: usize,
    },
    /// Other drivers show that they live, and do not end what they do.
    #[error(
        "{} been in the way for {} s, and not ended {what}; look what hangs there (`selkie top` shows what the nodes of the \
         pool do), and end it",
        others_have(*.drivers), count(*.waited_s)
    )]
    PhaseHangs {
        /// How many.
        drivers: usize,
        /// What they are waited for to end.
        what: &'static str,
        /// For how long none of them has, seconds.
        waited_s: u64,
    },
    /// Another driver has replaced the database while this one was about to use it.
    #[error("another driver replaces the database: start again")]
    DatabaseReplaced,
    /// The compute node has been started so often that no worker's number is left for the rows of
    /// History.
    #[error(
        "the compute node has been started {incarnation} times: no number is left for its workers; load a new pool"
    )]
    WriterNumbersExhausted {
        /// The incarnation of the compute node.
        incarnation: u32,
    },
    /// A label that drivers leave for each other in the pool cannot be understood.
    #[error("label {name} of the pool: {what}")]
    Label {
        /// The label.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A file of committed transactions cannot be written or read.
    #[error("{}: {source}", path.display())]
    Commits {
        /// The file.
        path: std::path::PathBuf,
        /// What was met.
        source: std::io::Error,
    },
    /// A statement of SQL has failed.
    #[error("{message} (SQLSTATE {state})")]
    Sql {
        /// Its code, as PostgreSQL's.
        state: String,
        /// What happened.
        message: String,
    },
    /// A row that must exist does not.
    #[error("{table}: no row {key}")]
    Missing {
        /// The table.
        table: &'static str,
        /// Its key.
        key: String,
    },
    /// A balance is too large for its column.
    #[error("a balance of {balance} cents cannot hold {added} more")]
    Overflow {
        /// The balance.
        balance: i64,
        /// What was to be added.
        added: i64,
    },
    /// The pool could not be started.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// An engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A transaction failed.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// A transaction across partitions failed in another than its own.
    #[error(transparent)]
    Partition(PartitionError),
    /// What another partition asked or answered cannot be understood.
    #[error("a message of another partition is damaged")]
    DamagedMessage,
    /// A tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Every attempt at a transaction met a conflict.
    #[error("{what}: gave up after {attempts} attempts: {last}")]
    Exhausted {
        /// What was attempted.
        what: &'static str,
        /// Attempts made.
        attempts: u32,
        /// The last error.
        last: Box<TpccError>,
    },
    /// The threads could not be started.
    #[error("threads: {0}")]
    Threads(#[from] std::io::Error),
    /// A task panicked or was lost.
    #[error("task: {0}")]
    Task(#[from] TaskError),
    /// The micro-benchmark's counters do not say what its workers wrote.
    #[error("{written} writes were made, the pages count {counted}: writes were lost or doubled")]
    Lost {
        /// Writes that workers made.
        written: u64,
        /// Writes that the pages have seen.
        counted: u64,
    },
    /// A simulated run hung, or one of its tasks panicked.
    #[error("simulation: {0}")]
    Stuck(String),
    /// A histogram refused its bounds.
    #[error("histogram: {0}")]
    Histogram(String),
}

/// The error for a row that every consistent database has.
pub(crate) fn missing(table: &'static str, key: impl std::fmt::Debug) -> TpccError {
    TpccError::Missing { table, key: format!("{key:?}") }
}

fn others_work(drivers: usize) -> String {
    match drivers {
        1 => "another driver works on the database".to_owned(),
        more => format!("{more} other drivers work on the database"),
    }
}

fn others_have(drivers: usize) -> String {
    match drivers {
        1 => "another driver has".to_owned(),
        more => format!("{more} other drivers have"),
    }
}

impl TpccError {
    pub(crate) fn commits(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Commits { path: path.to_owned(), source }
    }

    /// Whether the same work may well succeed when done again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Txn(error) => error.is_retryable(),
            Self::Partition(error) => error.is_retryable(),
            Self::Tree(error) => error.is_retryable(),
            Self::Engine(error) => error.is_retryable(),
            Self::Exhausted { .. } => true,
            _ => false,
        }
    }

    /// The page that a dead node took with it, if that is what is wrong.
    #[must_use]
    pub fn lost_page(&self) -> Option<GAddr> {
        match self.of_engine() {
            Some(EngineError::PageLost { addr, .. }) => Some(*addr),
            _ => None,
        }
    }

    /// The node that is dead, if that is what is wrong: another one, or that which met the error.
    #[must_use]
    pub fn dead_peer(&self) -> Option<PeerId> {
        match (self, self.of_engine()) {
            (Self::Fabric(FabricError::PeerDead { peer }), _)
            | (_, Some(EngineError::Fabric(FabricError::PeerDead { peer }))) => Some(*peer),
            _ => None,
        }
    }

    /// Whether the pool was destroyed.
    #[must_use]
    pub fn is_pool_destroyed(&self) -> bool {
        matches!(self.of_engine(), Some(EngineError::PoolDestroyed))
    }

    /// Whether it is the end of this driver's nodes, or of memory that they use: they cannot give
    /// up all that they hold.
    #[must_use]
    pub fn ends_service(&self) -> bool {
        self.dead_peer().is_some() || matches!(self.of_engine(), Some(EngineError::Expelled { .. }))
    }

    fn of_engine(&self) -> Option<&EngineError> {
        match self {
            Self::Engine(error)
            | Self::Tree(TreeError::Engine(error))
            | Self::Txn(TxnError::Engine(error) | TxnError::Tree(TreeError::Engine(error))) => {
                Some(error)
            }
            _ => None,
        }
    }

    /// Names what was given up.
    #[must_use]
    pub fn of_retry(what: &'static str, error: RetryError<Self>) -> Self {
        match error {
            RetryError::Exhausted { attempts, last, .. } => {
                Self::Exhausted { what, attempts, last: Box::new(last) }
            }
            other => other.into_inner(),
        }
    }

    /// A full pool as [`TpccError::PoolFull`], with what would be `needed`; all else as it is.
    #[must_use]
    pub fn or_pool_full(self, needed: u64) -> Self {
        match self.of_engine() {
            Some(&EngineError::PoolFull { used, capacity }) => {
                Self::PoolFull { used, capacity, needed: needed.max(used) }
            }
            _ => self,
        }
    }

    /// A full pool with how far a load had got; all else as it is.
    #[must_use]
    pub fn or_load_stopped(self, loaded: u64, keys: u64) -> Self {
        match self {
            Self::PoolFull { .. } => Self::LoadStopped { loaded, keys, why: Box::new(self) },
            other => other,
        }
    }
}

impl From<NamedRowError> for TpccError {
    fn from(error: NamedRowError) -> Self {
        Self::Txn(error.into())
    }
}

impl From<PartitionError> for TpccError {
    fn from(error: PartitionError) -> Self {
        match error {
            PartitionError::Txn(error) => error.into(),
            other => Self::Partition(other),
        }
    }
}

impl selkie_txn::Retryable for TpccError {
    fn retry_cause(&self) -> Option<AbortCause> {
        match self {
            // Writers have waited for room as long as the engine allows, and what was committed
            // meanwhile is not known to last.
            _ if matches!(self.of_engine(), Some(EngineError::Log(_))) => None,
            Self::Txn(error) => error.retry_cause(),
            Self::Partition(error) => error.retry_cause(),
            Self::Sql { state, .. } if state == "40001" => Some(AbortCause::Stale),
            Self::Sql { state, .. } if state == "40P01" => Some(AbortCause::Deadlock),
            _ if self.is_retryable() => Some(AbortCause::Timeout),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPELLED: EngineError = EngineError::Expelled {
        silent_for: std::time::Duration::from_millis(2_600),
        lease: std::time::Duration::from_secs(2),
    };

    /// The engine has waited for it for as long as it may.
    #[test]
    fn a_log_that_cannot_be_written_ends_a_driver() {
        let full = || {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            EngineError::Log(selkie_engine::log::LogError::new("write", "the log", source))
        };
        for error in [TpccError::from(full()), selkie_txn::TxnError::from(full()).into()] {
            assert!(selkie_txn::Retryable::retry_cause(&error).is_none(), "{error}");
        }
        let busy = TpccError::from(EngineError::Busy { addr: GAddr::from_u64(4096) });
        assert!(selkie_txn::Retryable::retry_cause(&busy).is_some());
    }

    #[test]
    fn lost_pages_are_recognised_wherever_they_were_met() {
        let addr = GAddr::from_u64(4096);
        let lost = || EngineError::PageLost { addr, node: Some(3) };
        for error in [
            TpccError::from(lost()),
            TxnError::from(lost()).into(),
            TreeError::from(lost()).into(),
            TxnError::from(TreeError::from(lost())).into(),
        ] {
            assert_eq!(error.lost_page(), Some(addr), "{error}");
            assert!(!error.is_retryable());
        }
        assert_eq!(TpccError::from(EXPELLED).lost_page(), None);
        assert_eq!(TpccError::LoadCutShort.lost_page(), None);
    }

    #[test]
    fn the_end_of_service_is_recognised() {
        let dead = || FabricError::PeerDead { peer: PeerId::memory(1) };
        let errors = [TpccError::from(dead()), TxnError::from(EngineError::from(dead())).into()];
        for error in errors {
            assert_eq!(error.dead_peer(), Some(PeerId::memory(1)), "{error}");
            assert!(error.ends_service());
        }
        assert!(TpccError::from(EXPELLED).ends_service());
        let says = EXPELLED.to_string();
        assert!(says.contains("for 2.6 s it could not show that it lives"), "{says}");
        assert!(says.contains("2 s; ") && says.contains("`selkie pool create --lease`"), "{says}");
        let lost = EngineError::PageLost { addr: GAddr::from_u64(4096), node: Some(3) };
        assert!(!TpccError::from(lost).ends_service() && !TpccError::LoadCutShort.ends_service());
    }

    #[test]
    fn a_full_pool_says_what_is_needed() {
        let engine = EngineError::PoolFull { used: 60 << 20, capacity: 64 << 20 };
        let error = TpccError::from(TxnError::from(engine.clone())).or_pool_full(200 << 20);
        assert_eq!(
            error.to_string(),
            "pool full: used 60.0 MiB of 64.0 MiB, needs about 200.0 MiB"
        );
        assert!(!error.is_retryable());
        let stopped = error.or_load_stopped(1_234, 100_000).to_string();
        let told = "needs about 200.0 MiB; the load had got to 1,234 of 100,000 keys";
        assert!(stopped.starts_with("pool full: used ") && stopped.ends_with(told), "{stopped}");
        let error =
            TpccError::NoRoomToReload { used: 60 << 20, capacity: 64 << 20, needed: 200 << 20 };
        let said = error.to_string();
        assert!(said.contains("needs about 200.0 MiB, and 4.0 MiB of 64.0 MiB are free"), "{said}");
        let error = TpccError::from(engine).or_pool_full(0);
        assert!(matches!(error, TpccError::PoolFull { needed, .. } if needed == 60 << 20));
    }
}
