//! Options of drivers for the durability of commits.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use selkie::engine::log::free_bytes;
use selkie_tpcc::{Durability, TpccError, units};

const MIB: u64 = 1 << 20;

#[derive(Args)]
pub(crate) struct DurabilityArguments {
    /// What a commit waits for: nothing (`none`), a log in the memory of memory nodes (`memory`),
    /// or a log in files (`disk`). From a log the pages of a compute node are recovered if it dies
    /// [default: in a shared pool `memory`, in a pool of this process `none`]
    #[arg(long, value_enum, value_name = "LEVEL")]
    durability: Option<Level>,
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
    /// The durability in a pool of this process: nothing outlives it, so that a log in its memory
    /// would protect nothing.
    pub(crate) fn in_own_pool(&self) -> Result<Durability, TpccError> {
        Ok(self.asked()?.unwrap_or(Durability::None))
    }

    /// The durability in a shared pool with so many bytes for the log of each compute node.
    ///
    /// # Errors
    /// [`TpccError::Config`] if the log would be in memory and there is no room: to run without a
    /// log has to be asked for.
    pub(crate) fn in_shared_pool(&self, log_bytes: u64) -> Result<Durability, TpccError> {
        match self.asked()? {
            Some(asked @ (Durability::None | Durability::Disk { .. })) => Ok(asked),
            Some(Durability::Memory { .. }) | None if log_bytes > 0 => {
                Ok(Durability::Memory { log_mib: (log_bytes / MIB).max(1) })
            }
            asked => {
                let value = asked.map_or("", |_| "memory");
                let allowed = "must be none, or disk with --log-dir: the pool was made without room for logs in \
                    memory (pool create --log-size)";
                refused("durability", value.to_owned(), allowed)
            }
        }
    }

    fn asked(&self) -> Result<Option<Durability>, TpccError> {
        match (self.durability, &self.log_dir) {
            (Some(Level::Disk), None) => {
                refused("log-dir", String::new(), "is needed for --durability disk")
            }
            (None | Some(Level::None | Level::Memory), Some(log)) => {
                refused("log-dir", log.display().to_string(), "is of --durability disk")
            }
            (level @ (None | Some(Level::None)), None) => match self.log_mb {
                Some(mb) => refused("log-mb", mb.to_string(), "needs --durability memory or disk"),
                None => Ok(level.map(|_| Durability::None)),
            },
            (Some(Level::Memory), None) => {
                let log_mib = self.log_mb.unwrap_or(Durability::MEMORY_LOG_MIB);
                Ok(Some(Durability::Memory { log_mib }))
            }
            (Some(Level::Disk), Some(log)) => {
                let log_mib = self.log_mb.unwrap_or(Durability::DISK_LOG_MIB);
                Ok(Some(Durability::Disk { place: log.clone(), log_mib }))
            }
        }
    }

    /// Says that the directory of the logs has less room than those of so many compute nodes may
    /// take: it would be full before they are truncated.
    pub(crate) fn warn_of_room(&self, nodes: usize) {
        let Ok(Some(asked @ Durability::Disk { .. })) = self.asked() else { return };
        let Durability::Disk { place, log_mib } = &asked else { return };
        let most = asked.capacity().saturating_mul(nodes as u64);
        // Where that cannot be known, the run finds out.
        let Ok(Some(free)) = free_bytes(place) else { return };
        if free < most {
            let (place, free, most) = (place.display(), units::bytes(free), units::bytes(most));
            let nodes = units::plural(nodes as u64, "compute node");
            tracing::warn!(
                "{place} has {free} free, and the logs of {nodes} may take {most} (--log-mb {log_mib}): with \
                 a lower --log-mb they are truncated before it is full"
            );
        }
    }

    /// Whether a capacity is given.
    pub(crate) fn says_length(&self) -> bool {
        self.log_mb.is_some()
    }

    /// Whether logs are asked for in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.durability == Some(Level::Memory)
    }
}

fn refused<T>(key: &'static str, value: String, allowed: &str) -> Result<T, TpccError> {
    Err(TpccError::Config { key, value, allowed: allowed.to_owned() })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        durability: DurabilityArguments,
    }

    fn of(arguments: &[&str]) -> DurabilityArguments {
        CommandLine::parse_from([&["selkie"], arguments].concat()).durability
    }

    #[test]
    fn a_shared_pool_has_logs_in_memory_unless_they_are_declined() {
        let shared = |arguments: &[&str], bytes| of(arguments).in_shared_pool(bytes);
        let memory = Durability::Memory { log_mib: 8 };
        assert_eq!(shared(&[], 8 << 20).unwrap(), memory);
        assert_eq!(shared(&["--durability", "memory"], 8 << 20).unwrap(), memory);
        assert_eq!(shared(&["--durability", "none"], 8 << 20).unwrap(), Durability::None);
        assert_eq!(shared(&["--durability", "none"], 0).unwrap(), Durability::None);
        let disk = ["--durability", "disk", "--log-dir", "logs"];
        assert!(matches!(shared(&disk, 0), Ok(Durability::Disk { .. })));
        for arguments in [&[][..], &["--durability", "memory"]] {
            let error = shared(arguments, 0).unwrap_err().to_string();
            assert!(error.contains("made without room for logs"), "{error}");
        }
        assert_eq!(of(&[]).in_own_pool().unwrap(), Durability::None);
        let long = ["--durability", "memory", "--log-mb", "3"];
        assert_eq!(of(&long).in_own_pool().unwrap(), Durability::Memory { log_mib: 3 });
    }
}
