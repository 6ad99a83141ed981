//! Pools that several processes share, by their URLs.
//!
//! ```no_run
//! use selkie::pool::{PoolUrl, SharedPool};
//!
//! # async fn example(env: &selkie::fabric::Env) -> Result<(), Box<dyn std::error::Error>> {
//! let PoolUrl::Shared(name) = "shm:demo".parse()? else { return Ok(()) };
//! let shared = SharedPool::at(&name);
//! let (fabric, pool) = shared.open(env).await?;
//! println!("{} memory nodes", pool.descriptor().memory_nodes.len());
//! # let _ = fabric;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::getuid;

use crate::fabric::shm::ShmFabric;
use crate::fabric::{Env, Fabric, FabricError, PeerId};
use crate::memnode::control::{ControlError, ControlPlane, FilePlane, Timing};
use crate::memnode::{self, Lent, Pool, PoolConfig, PoolError};

/// Most characters of a pool's name.
const MAX_NAME: usize = 64;
/// Where memory that processes share lies.
const SHARED_MEMORY: &str = "/dev/shm";
/// Name of the fabric.
const FABRIC: &str = "shm";
/// How long memory nodes that have not joined are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Name of a pool: letters, digits, `-` and `_`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolName(String);

impl FromStr for PoolName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed) {
            return Ok(Self(name.to_owned()));
        }
        Err(format!("a pool's name is 1 to {MAX_NAME} letters, digits, `-` or `_`"))
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolUrl {
    /// `embedded:`, one of the process's own.
    Embedded,
    /// `shm:NAME`, shared by the processes of this host.
    Shared(PoolName),
}

impl FromStr for PoolUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        match url.split_once(':') {
            Some(("embedded", "")) => Ok(Self::Embedded),
            Some(("shm", name)) => name.parse().map(Self::Shared),
            _ => Err("a pool is `embedded:` or `shm:NAME`".to_owned()),
        }
    }
}

impl fmt::Display for PoolUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded:"),
            Self::Shared(name) => write!(f, "shm:{name}"),
        }
    }
}

/// Why a shared pool cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedPoolError {
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A memory node is gone, and with it a part of the pool.
    #[error("memory node {node} of the pool is dead: what it held is lost; destroy the pool")]
    MemoryLost {
        /// Its index.
        node: usize,
    },
    /// Nodes still use the pool.
    #[error("{what} of the pool lives; stop it first, or use --force")]
    InUse {
        /// A node.
        what: String,
    },
    /// The pool's directory cannot be removed.
    #[error("{path}: {source}")]
    Directory {
        /// The directory.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl From<ControlError> for SharedPoolError {
    fn from(error: ControlError) -> Self {
        Self::Pool(error.into())
    }
}

/// A pool shared by the processes of this host, of which there may or may not be one.
pub struct SharedPool {
    directory: PathBuf,
    plane: Arc<FilePlane>,
}

impl SharedPool {
    /// The pool of that name of the calling user.
    #[must_use]
    pub fn at(name: &PoolName) -> Self {
        let directory = format!("{SHARED_MEMORY}/selkie-{}-{name}", getuid().as_raw());
        let directory = PathBuf::from(directory);
        let plane = Arc::new(FilePlane::at(&directory));
        Self { directory, plane }
    }

    /// Where its files are.
    #[must_use]
    pub fn directory(&self) -> &PathBuf {
        &self.directory
    }

    /// Its control plane.
    #[must_use]
    pub fn plane(&self) -> &dyn ControlPlane {
        &*self.plane
    }

    /// Makes the pool. `config.bytes_per_node` is only checked: each memory node brings what it has.
    ///
    /// # Errors
    /// If there is one of the name, or a field is out of range.
    pub async fn create(
        &self,
        env: &Env,
        config: &PoolConfig,
        timing: Timing,
    ) -> Result<(), SharedPoolError> {
        Ok(memnode::create(&*self.plane, config, FABRIC, timing, random(env)).await?)
    }

    /// Joins it as a memory node that lends `bytes` bytes for as long as the node is kept.
    ///
    /// # Errors
    /// If there is no such pool, all its memory nodes have joined, or the host has not so much memory.
    pub async fn lend(&self, env: &Env, bytes: u64) -> Result<Arc<Lent>, SharedPoolError> {
        let fabric = self.fabric().await?;
        let plane = Arc::clone(&self.plane) as Arc<dyn ControlPlane>;
        let lent = Lent::join(&fabric, plane, env, random(env), bytes).await?;
        lent.follow(env);
        Ok(lent)
    }

    /// Opens it, as soon as all its memory nodes have joined; compute nodes of the process can then be
    /// started in it.
    ///
    /// # Errors
    /// If there is no such pool, memory nodes are still missing after half a minute, or one is dead.
    pub async fn open(&self, env: &Env) -> Result<(Arc<dyn Fabric>, Arc<Pool>), SharedPoolError> {
        let started = env.now();
        self.plane.load().await?;
        let shm = ShmFabric::open(&self.directory)?;
        let pool = loop {
            let plane = Arc::clone(&self.plane) as Arc<dyn ControlPlane>;
            let fabric = Arc::clone(&shm) as Arc<dyn Fabric>;
            match Pool::open(fabric, plane, random(env)).await {
                Err(PoolError::Incomplete { .. }) if env.now() - started < PATIENCE => {
                    env.sleep(self.plane.pace()).await;
                }
                opened => break opened?,
            }
        };
        for (node, memory) in pool.descriptor().memory_nodes.iter().enumerate() {
            if !shm.lives(memory.peer)? {
                return Err(SharedPoolError::MemoryLost { node });
            }
        }
        pool.follow(env);
        Ok((shm, pool))
    }

    /// Which of its nodes live.
    ///
    /// # Errors
    /// If there is no such pool, or its files cannot be read.
    pub async fn living(&self) -> Result<Vec<PeerId>, SharedPoolError> {
        let state = self.plane.load().await?.state;
        let shm = ShmFabric::open(&self.directory)?;
        let memory = state.memory_nodes.iter().flatten().map(|node| node.descriptor.peer);
        let compute = state.compute_nodes.keys().map(|index| PeerId::compute(*index));
        let mut living = Vec::new();
        for peer in memory.chain(compute) {
            if shm.lives(peer)? {
                living.push(peer);
            }
        }
        Ok(living)
    }

    /// Removes it with all it holds. Unless forced only if none of its nodes lives; nodes that live are then
    /// declared dead.
    ///
    /// # Errors
    /// If there is no such pool, it is in use, or its files cannot be removed.
    pub async fn destroy(&self, force: bool) -> Result<(), SharedPoolError> {
        let living = self.living().await;
        match (living, force) {
            (Ok(living), false) => {
                if let Some(peer) = living.first() {
                    return Err(SharedPoolError::InUse { what: peer.to_string() });
                }
            }
            (Ok(living), true) => {
                let shm = ShmFabric::open(&self.directory)?;
                for peer in living {
                    let _everywhere = shm.fence(peer)?;
                }
            }
            // Damage must not make a pool that nobody can get rid of.
            (
                Err(SharedPoolError::Pool(PoolError::Control {
                    source: ControlError::Damaged { .. },
                })),
                true,
            ) => {}
            (Err(error), _) => return Err(error),
        }
        std::fs::remove_dir_all(&self.directory).map_err(|source| SharedPoolError::Directory {
            path: self.directory.display().to_string(),
            source,
        })
    }

    /// The fabric, if there is a pool: what does not exist is not made by looking for it.
    async fn fabric(&self) -> Result<Arc<dyn Fabric>, SharedPoolError> {
        self.plane.load().await?;
        Ok(ShmFabric::open(&self.directory)?)
    }
}

/// Never 0, which stands for a pool within one process.
fn random(env: &Env) -> u64 {
    let process = u64::from(std::process::id());
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = time.map_or(0, |time| time.as_nanos() as u64);
    (env.random_u64() ^ nanoseconds.rotate_left(17) ^ process.rotate_left(40)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_others_refused_with_what_is_allowed() {
        assert_eq!("embedded:".parse(), Ok(PoolUrl::Embedded));
        let shared = PoolUrl::Shared(PoolName("a-1_B".into()));
        assert_eq!("shm:a-1_B".parse(), Ok(shared.clone()));
        assert_eq!(shared.to_string(), "shm:a-1_B");
        for bad in ["", "shm", "embedded:x", "mem:x", "shm:", "shm:../x", "shm:a/b", "shm:a b"] {
            let error = bad.parse::<PoolUrl>().unwrap_err();
            assert!(error.starts_with("a pool"), "{bad}: {error}");
        }
        assert!(format!("shm:{}", "x".repeat(65)).parse::<PoolUrl>().is_err());
    }
}
