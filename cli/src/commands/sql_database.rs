//! The database of a pool that SQL is run on.

use clap::Args;
use selkie::engine::EngineError;
use selkie::fabric::RealRuntime;
use selkie::{Database, OpenError, PoolOptions};

use crate::options::values;
use crate::support::activity::Activity;
use crate::support::signals::{Interrupt, Interrupted};

/// Which pool, and how it is joined.
#[derive(Args)]
pub(crate) struct PoolArguments {
    /// The pool, as NAME, shm:NAME or tcp:HOST:PORT,...; embedded: is a new one in this process,
    /// which ends with it, and embedded:DIR one that is kept in a directory
    #[arg(long, value_name = "URL", default_value = "embedded:")]
    pub(crate) pool: String,
    /// Cache of this node, as 64M
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "64M")]
    cache: u64,
    /// Most memory beside the cache, as 16G, for pages that large transactions have changed; one
    /// that needs more is refused
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "4G")]
    overflow: u64,
    /// Most memory, as 1G, for pages as they were before changes, which statements read that began
    /// earlier; one whose pages are gone ends as "snapshot too old"
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "64M")]
    images: u64,
    /// Memory of an embedded pool, as 512M [default: 512M; 1G if it is kept in a directory, or
    /// twice as much as its pages take]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
}

/// Memory of a pool that ends with the process.
const MEMORY: u64 = 512 << 20;

/// The error of the work on a database; that its pool was destroyed says more than what it met
/// because of that.
pub(crate) fn or_destroyed<T, E: From<EngineError>>(
    database: &Database,
    done: Result<T, E>,
) -> Result<T, E> {
    match done {
        Err(_) if selkie::block_on(database.pool().pool().is_destroyed()) => {
            Err(EngineError::PoolDestroyed.into())
        }
        done => done,
    }
}

/// Why the database is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpened {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system gives no threads.
    #[error(transparent)]
    Threads(#[from] std::io::Error),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl PoolArguments {
    /// Whether nothing of the database outlives this process.
    pub(crate) fn ends_with_process(&self) -> bool {
        self.pool == "embedded:"
    }

    /// Joins the pool, and opens its database; one that has none gets one. Blocks the calling
    /// thread. A signal ends that.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub(crate) fn open(&self, interrupt: &Interrupt) -> Result<Database, NotOpened> {
        let options = PoolOptions::new().cache_bytes(self.cache).overflow_bytes(self.overflow);
        let options = options.image_bytes(self.images);
        let memory = self.memory.or_else(|| self.ends_with_process().then_some(MEMORY));
        let options = memory.map_or(options.clone(), |bytes| options.memory_bytes(bytes));
        // All that was kept is read, which may take a while.
        let kept = self.pool.strip_prefix("embedded:").filter(|directory| !directory.is_empty());
        let opening = |directory: &str| Activity::begin(&format!("opening {directory}"));
        let shown = kept.map(opening).transpose()?;
        // Only its clock is used: a pool has threads of its own.
        let clock = RealRuntime::new(1)?;
        let opened = options.open_sql_database(&self.pool);
        // Not on the threads of the clock, as those of a pool end with what is dropped.
        let opened = selkie::block_on(interrupt.or_end_soon(&clock.env(), opened));
        drop(shown);
        let opened = opened?;
        if opened.is_err() {
            interrupt.check()?;
        }
        let database = opened?.database().clone();
        if let Err(interrupted) = interrupt.check() {
            // That it was asked to end says more than why it cannot leave.
            let _ = selkie::block_on(database.close());
            return Err(interrupted.into());
        }
        Ok(database)
    }
}
