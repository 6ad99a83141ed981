//! The memory nodes of a simulated cluster: all of one process, or each of its own.

use std::sync::Arc;

use parking_lot::RwLock;
use selkie_fabric::env::Env;
use selkie_fabric::{Fabric, LocalRegion};
use selkie_memnode::monitor::MonitorConfig;
use selkie_memnode::{EmbeddedPool, MemoryServer};
use selkie_pool::control::ControlPlane;
use selkie_pool::{FailureDomain, Pool, PoolError};

use super::plane::SimPlane;

/// The memory nodes of a cluster, and its pool as an observer sees it.
pub(crate) enum SimMemory {
    /// All of one process.
    OneProcess(Arc<EmbeddedPool>),
    /// Each of its own.
    Processes {
        /// As the observer sees it.
        pool: Arc<Pool>,
        /// By index.
        servers: RwLock<Vec<Arc<MemoryServer>>>,
        /// The control plane, which is apart from them.
        plane: Arc<SimPlane>,
    },
}

impl From<Arc<EmbeddedPool>> for SimMemory {
    fn from(embedded: Arc<EmbeddedPool>) -> Self {
        Self::OneProcess(embedded)
    }
}

impl SimMemory {
    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        match self {
            Self::OneProcess(embedded) => embedded.pool(),
            Self::Processes { pool, .. } => pool,
        }
    }

    /// The control plane, if that is apart.
    pub(crate) fn plane(&self) -> Option<&Arc<SimPlane>> {
        match self {
            Self::OneProcess(_) => None,
            Self::Processes { plane, .. } => Some(plane),
        }
    }

    /// The memory of each node, by index.
    pub(crate) fn regions(&self) -> Vec<Arc<dyn LocalRegion>> {
        match self {
            Self::OneProcess(embedded) => {
                embedded.memory_nodes().iter().map(|node| Arc::clone(node.region())).collect()
            }
            Self::Processes { servers, .. } => {
                servers.read().iter().map(|server| Arc::clone(server.node().region())).collect()
            }
        }
    }

    /// The memory of one node.
    pub(crate) fn region(&self, node: usize) -> Option<Arc<dyn LocalRegion>> {
        match self {
            Self::OneProcess(embedded) => {
                embedded.memory_nodes().get(node).map(|node| Arc::clone(node.region()))
            }
            Self::Processes { servers, .. } => {
                servers.read().get(node).map(|server| Arc::clone(server.node().region()))
            }
        }
    }

    /// Has a memory node look after the memory of its host.
    pub(crate) fn start_monitor(&self, node: usize, env: &Env, config: MonitorConfig) {
        match self {
            Self::OneProcess(embedded) => embedded.start_monitor(node, env, config),
            Self::Processes { servers, .. } => {
                if let Some(server) = servers.read().get(node) {
                    server.start_monitor(env, config);
                }
            }
        }
    }

    /// Has one more memory node join a coded pool, in a process of its own if the others are: that
    /// of `host`, with its way to the plane. `env` is that of the node.
    pub(crate) async fn grow(
        &self,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        bytes: u64,
        (host, way): (u64, Option<Arc<dyn ControlPlane>>),
    ) -> Result<(), PoolError> {
        match (self, way) {
            (Self::Processes { servers, .. }, Some(way)) => {
                let server = MemoryServer::join(fabric, way, env, host, bytes).await?;
                server.follow(env);
                servers.write().push(server);
                Ok(())
            }
            (Self::OneProcess(embedded), _) => {
                embedded.grow(fabric, env, bytes, FailureDomain::ALONE).await.map(drop)
            }
            (Self::Processes { .. }, None) => Ok(()),
        }
    }
}
