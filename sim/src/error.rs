//! Why a simulated run failed.

use selkie_btree::TreeError;
use selkie_channels::ChannelError;
use selkie_engine::EngineError;
use selkie_engine::log::{MergeError, ReadError};
use selkie_fabric::FabricError;
use selkie_fabric::sim::RunError;
use selkie_pool::PoolError;
use selkie_tpcc::TpccError;
use selkie_txn::TxnError;

/// What went wrong in a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// It hung, or a task panicked.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Something that must hold does not.
    #[error("{0}")]
    Broken(String),
    /// The scenario named a compute node that is not there.
    #[error("there is no compute node {0}")]
    NoSuchNode(usize),
    /// Messages that never came.
    #[error("node {node} has got {received} of {total} messages and nothing more comes")]
    Silent {
        /// The node that waits.
        node: usize,
        /// What it got.
        received: u64,
        /// What was sent to it.
        total: u64,
    },
    /// A client of a node had an error that nothing excuses.
    #[error("a client of compute node {node}: {source}")]
    OnNode {
        /// The node.
        node: usize,
        /// The error.
        source: Box<SimError>,
    },
    /// A transaction was tried again and again in vain.
    #[error("no progress: {0}")]
    NoProgress(String),
    /// More compute nodes than a latch word has room for.
    #[error("{0} compute nodes are more than a latch word has room for")]
    TooManyNodes(usize),
    /// An error no plan without a lost node explains.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// As [`SimError::Engine`].
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// As [`SimError::Engine`].
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// As [`SimError::Engine`].
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// As [`SimError::Engine`].
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// As [`SimError::Engine`].
    #[error(transparent)]
    Tpcc(#[from] TpccError),
    /// A log that cannot be relied on.
    #[error(transparent)]
    ReadLog(#[from] ReadError),
    /// Logs that do not go together.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// As [`SimError::Engine`].
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// Fails the run, saying what was claimed, unless `holds`.
pub(crate) fn ensure(holds: bool, claim: impl FnOnce() -> String) -> Result<(), SimError> {
    if holds { Ok(()) } else { Err(SimError::Broken(claim())) }
}
