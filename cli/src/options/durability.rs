//! Options of drivers for the durability of commits.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use selkie_tpcc::{Durability, TpccError};

#[derive(Args)]
pub(crate) struct DurabilityArguments {
    /// What a commit waits for: nothing (`none`), a log in the memory of memory nodes (`memory`),
    /// or a log in files (`disk`). From a log the pages of a compute node are recovered if it dies
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "none")]
    durability: Level,
    /// Directory of the logs, for `disk`, or the URL of an object store: `file:///var/logs`, and
    /// with the feature `cloud` `s3://BUCKET/LOGS`, `gs://`, `az://` or `https://`. All compute
    /// nodes of the pool must reach it
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Capacity of the log of a compute node in MiB; writers wait while it is full [default: 64 in
    /// memory, 4096 in files; in a shared pool the size that the pool was made with]
    #[arg(long, value_name = "N")]
    log_mb: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// There is no log
    None,
    /// In memory of r + 1 memory nodes
    Memory,
    /// In files
    Disk,
}

impl DurabilityArguments {
    /// The durability that they ask for.
    pub(crate) fn durability(&self) -> Result<Durability, TpccError> {
        let refused = |key, value: String, allowed: &str| {
            Err(TpccError::Config { key, value, allowed: allowed.to_owned() })
        };
        match (self.durability, &self.log_dir) {
            (Level::Disk, None) => {
                refused("log-dir", String::new(), "is needed for --durability disk")
            }
            (Level::None | Level::Memory, Some(log)) => {
                refused("log-dir", log.display().to_string(), "is of --durability disk")
            }
            (Level::None, None) => match self.log_mb {
                Some(mb) => refused("log-mb", mb.to_string(), "needs --durability memory or disk"),
                None => Ok(Durability::None),
            },
            (Level::Memory, None) => {
                let log_mib = self.log_mb.unwrap_or(Durability::MEMORY_LOG_MIB);
                Ok(Durability::Memory { log_mib })
            }
            (Level::Disk, Some(log)) => {
                let log_mib = self.log_mb.unwrap_or(Durability::DISK_LOG_MIB);
                Ok(Durability::Disk { place: log.clone(), log_mib })
            }
        }
    }

    /// Whether a capacity is given.
    pub(crate) fn says_length(&self) -> bool {
        self.log_mb.is_some()
    }

    /// Whether logs are in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.durability == Level::Memory
    }
}
