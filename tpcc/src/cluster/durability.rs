//! What is to outlive a compute node, and what it takes.

use std::fmt;
use std::path::PathBuf;

use selkie_engine::EngineError;
use selkie_engine::log::{LogTo, first_bytes, free_bytes, open_store};
use selkie_pool::layout::LOG_BYTES;

use super::bounds::{refused, within};
use super::network::Network;
use crate::error::TpccError;
use crate::figures::units::{bytes, plural};

const MIB: u64 = 1 << 20;

/// When a commit lasts, and where the log is kept that makes it so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// As long as the compute nodes that have its pages: there is no log.
    #[default]
    None,
    /// As long as the pool's memory: the log of each compute node is in memory of r + 1 memory
    /// nodes.
    Memory {
        /// How long a log may become, MiB.
        log_mib: u64,
    },
    /// The log of each compute node is in files below a directory, or in an object store.
    Disk {
        /// The directory, which all compute nodes reach, or what has `://` in it: the URL of an
        /// object store.
        place: PathBuf,
        /// How long a log may become, MiB.
        log_mib: u64,
    },
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacity = bytes(self.capacity());
        match self {
            Self::None => f.write_str("none: there is no log"),
            Self::Memory { .. } => write!(f, "memory: a log of {capacity} a compute node"),
            Self::Disk { place, .. } => {
                write!(f, "disk: a log of {capacity} a compute node in {}", place.display())
            }
        }
    }
}

impl Durability {
    /// Length of a log in memory, MiB, unless another is asked for.
    pub const MEMORY_LOG_MIB: u64 = 64;
    /// Length of a log in files, MiB, unless another is asked for.
    pub const DISK_LOG_MIB: u64 = 4096;

    pub(crate) fn validate(&self, network: &Network) -> Result<(), TpccError> {
        let most = LOG_BYTES.end() / MIB;
        match self {
            Self::None => Ok(()),
            Self::Memory { log_mib } => within("log-mb", *log_mib, 1, most),
            Self::Disk { log_mib, .. } => {
                if matches!(network, Network::Simulated(_)) {
                    let allowed =
                        "must be none or memory in virtual time, in which files take none";
                    return Err(refused("durability", "disk", allowed.to_owned()));
                }
                within("log-mb", *log_mib, 1, most)
            }
        }
    }

    /// As it is written.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Memory { .. } => "memory",
            Self::Disk { .. } => "disk",
        }
    }

    /// How long a log may become, bytes; 0 if there is none.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Memory { log_mib } | Self::Disk { log_mib, .. } => *log_mib * MIB,
        }
    }

    /// Bytes for the log of each compute node at each memory node of a pool that is made for this.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        match self {
            Self::Memory { log_mib } => log_mib * MIB,
            Self::None | Self::Disk { .. } => 0,
        }
    }

    /// Refuses a directory that has no room for the logs of so many compute nodes, which write so
    /// many bytes at once. Before anything is made there.
    ///
    /// # Errors
    /// [`TpccError::Config`], [`TpccError::Engine`] if the system does not say how much is free.
    pub(crate) fn check_room(&self, nodes: usize, load_bytes: u64) -> Result<(), TpccError> {
        let Self::Disk { place, log_mib } = self else { return Ok(()) };
        let Some(free) = free_bytes(place).map_err(EngineError::Log)? else { return Ok(()) };
        let first = first_bytes(log_mib * MIB).saturating_mul(nodes as u64);
        let needed = first.saturating_add(load_bytes);
        if free >= needed {
            return Ok(());
        }
        let (first, load) = (bytes(first), bytes(load_bytes));
        let nodes = plural(nodes as u64, "compute node");
        let allowed = format!(
            "has {} free, and {} are needed: {first} for the logs of {nodes} when they begin (less with a lower --log-mb), and {load} \
             for what is loaded; nothing was started",
            bytes(free),
            bytes(needed)
        );
        Err(refused("log-dir", place.display(), allowed))
    }

    /// Where engines keep their logs.
    ///
    /// # Errors
    /// [`TpccError::Engine`] if nothing can be written there, or it is a URL that names no store.
    pub fn log(&self) -> Result<Option<LogTo>, TpccError> {
        match self {
            Self::None => Ok(None),
            Self::Memory { .. } => Ok(Some(LogTo::Memory)),
            Self::Disk { place, log_mib } => {
                let logs = open_store(place, log_mib * MIB).map_err(EngineError::Log)?;
                Ok(Some(LogTo::Store(logs)))
            }
        }
    }
}
