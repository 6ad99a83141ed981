//! The database of a pool that SQL is run on.

use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use selkie::{Database, OpenError, PoolOptions};

use crate::options::values;

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
    /// Memory of an embedded pool, as 512M [default: 512M; 1G if it is kept in a directory, or
    /// twice as much as its pages take]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
}

/// Memory of a pool that ends with the process.
const MEMORY: u64 = 512 << 20;

impl PoolArguments {
    /// Whether nothing of the database outlives this process.
    pub(crate) fn ends_with_process(&self) -> bool {
        self.pool == "embedded:"
    }

    /// Joins the pool, and opens its database; one that has none gets one.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) async fn open(&self) -> Result<Database, OpenError> {
        let options = PoolOptions::new().cache_bytes(self.cache).overflow_bytes(self.overflow);
        let memory = self.memory.or_else(|| self.ends_with_process().then_some(MEMORY));
        let options = memory.map_or(options.clone(), |bytes| options.memory_bytes(bytes));
        // All that was kept is read, which may take a while.
        let kept = self.pool.strip_prefix("embedded:").filter(|directory| !directory.is_empty());
        let bar = kept.map(|directory| {
            let bar = ProgressBar::new_spinner().with_message(format!("opening {directory}"));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let opened = options.open_sql_database(&self.pool).await;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(opened?.database().clone())
    }
}
