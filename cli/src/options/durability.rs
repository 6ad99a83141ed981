//! Options of drivers that say what is to outlive a compute node.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use selkie_tpcc::{Durability, TpccError};

#[derive(Args)]
pub(crate) struct DurabilityArguments {
    /// When a transaction is said to be committed: it is in the pool (`none`); its changes are in a
    /// log, in memory of memory nodes (`memory`), or in files (`disk`), from which they are made
    /// again if its compute node dies
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "none")]
    durability: Level,
    /// Directory of the logs, for `disk`, or an object store, as `file:///var/logs`, and with the
    /// feature `cloud` `s3://BUCKET/LOGS`, `gs://`, `az://` or `https://`: all compute nodes of the
    /// pool have to reach it
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// How long the log of a compute node may become, MiB, before whoever writes has to wait
    /// [default: 64 in memory, 4096 in files; in a shared pool what that was made with]
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
    /// What they ask for.
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

    /// Whether a length is asked for.
    pub(crate) fn says_length(&self) -> bool {
        self.log_mb.is_some()
    }

    /// Whether logs are to be in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.durability == Level::Memory
    }
}
