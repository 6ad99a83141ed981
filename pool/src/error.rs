//! Errors of the pool: bad configuration, fabric failures while starting, registry refusals.

use crate::compute_index::ComputeIndex;
use crate::control::ControlError;
use crate::document::MAX_RANGES;
use crate::units;
use selkie_fabric::{FabricError, PeerId};
use thiserror::Error;

/// Why the pool could not be started, or refused a compute node.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A memory node's directory cannot be entered.
    #[error("memory node {memory_node} does not exist, or has a directory already")]
    Directory {
        /// The memory node.
        memory_node: usize,
    },
    /// A field of the configuration is out of bounds.
    #[error("{key} = {value} is not allowed: {allowed}")]
    Config {
        /// Field of [`crate::PoolConfig`], or argument of a control plane.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// Compute nodes have been in the pool.
    #[error(
        "compute nodes have used the pool: pages are put into one that no compute node has used"
    )]
    Used,
    /// The host has less memory than a memory node is to lend.
    #[error(
        "memory node {node}: {} of memory are to be lent, and {} are free on this host: lend less",
        units::bytes(*.bytes),
        units::bytes(*.free)
    )]
    HostMemory {
        /// Index of the memory node.
        node: usize,
        /// Bytes to lend.
        bytes: u64,
        /// Bytes that can be had without swapping, and within the limits of the process.
        free: u64,
    },
    /// A memory node could not join the fabric or register its region.
    #[error("memory node {node}: {source}")]
    MemoryNode {
        /// Index of the memory node.
        node: usize,
        /// What the fabric said.
        source: FabricError,
    },
    /// The compute node's index is beyond what the pool was started for.
    #[error("compute node {node} is beyond the pool's limit of {limit} compute nodes")]
    UnknownCompute {
        /// The index refused.
        node: ComputeIndex,
        /// Compute nodes this pool allows; indexes are below it.
        limit: usize,
    },
    /// A compute node of this index is registered already.
    #[error("compute node {node} is registered already")]
    DuplicateCompute {
        /// The index refused.
        node: ComputeIndex,
    },
    /// A compute node of this index died: the index may still be in latch words.
    #[error("compute node {node} died: its index is not used again")]
    DeadCompute {
        /// The index refused.
        node: ComputeIndex,
    },
    /// All compute indexes are in use.
    #[error(
        "{}{}",
        taken(*limit),
        by_whom(*lost, *dead)
    )]
    Full {
        /// Compute nodes this pool allows.
        limit: usize,
        /// Places of nodes that died and are still to be recovered from.
        lost: usize,
        /// Places that nodes which died and were recovered from still have.
        dead: usize,
    },
    /// Nodes that died have all indexes, also those of nodes that only recover.
    #[error(
        "the pool's {limit} places for compute nodes are those of nodes that died, and no place is left for a node that          recovers from them: what was committed is in logs on disk (`selkie recover`) and in backups; a pool that is made          with a smaller --max-compute-nodes keeps places for that"
    )]
    NoSpareIndex {
        /// Compute nodes this pool allows.
        limit: usize,
    },
    /// A recovery is not over within its bound.
    #[error(
        "the recovery from compute nodes {nodes:?}, which died, is not over after {} s: memory nodes or logs that it needs          do not answer (`selkie pool status`)", waited.as_secs()
    )]
    Unrecovered {
        /// The nodes.
        nodes: Vec<u16>,
        /// How long it has been waited for.
        waited: std::time::Duration,
    },
    /// The control plane failed.
    #[error("control plane: {source}")]
    Control {
        /// What it said.
        #[from]
        source: ControlError,
    },
    /// The fabric cannot do what a change of the pool asks for.
    #[error("{node}: {source}")]
    Fabric {
        /// The node concerned.
        node: PeerId,
        /// What the fabric said.
        source: FabricError,
    },
    /// The pool's nodes meet on another fabric.
    #[error("the pool uses fabric {pool}, not {asked}")]
    OtherFabric {
        /// What the pool was made for.
        pool: String,
        /// What was asked for.
        asked: String,
    },
    /// The pool is not complete yet.
    #[error("{joined} of {nodes} memory nodes have joined the pool")]
    Incomplete {
        /// Memory nodes that are there.
        joined: usize,
        /// Memory nodes there are to be.
        nodes: usize,
    },
    /// A memory node cannot leave its pool.
    #[error("mem{node} cannot leave: {why}")]
    CannotLeave {
        /// Its index.
        node: usize,
        /// Why not.
        why: String,
    },
    /// A node cannot be given up.
    #[error("{node} cannot be given up: {why}")]
    NotForgivable {
        /// The node.
        node: PeerId,
        /// Why not.
        why: String,
    },
    /// There is no place for another memory node.
    #[error("memory node {node} is not wanted: {why}")]
    MemoryNodeRefused {
        /// Its index.
        node: usize,
        /// Why not.
        why: String,
    },
    /// A coded pool has more memory than it could use.
    #[error(
        "there is memory for more than {} ranges of {}, the most a pool can have: make it with larger ranges, --range {} \
         or more",
        units::count(MAX_RANGES as u64), units::bytes(*range_bytes), units::as_option(*enough)
    )]
    TooManyRanges {
        /// Bytes of the pool's ranges.
        range_bytes: u64,
        /// Of which bytes they would have to be.
        enough: u64,
    },
    /// No range of a coded pool can be placed.
    #[error(
        "a range of coding {coding} needs memory nodes with a free slab in {needed} failure domains; of {living} living \
         memory nodes {with_room} have one, in {domains} domains"
    )]
    NoPlaceForRange {
        /// How pages are kept.
        coding: String,
        /// Domains that are needed.
        needed: usize,
        /// Memory nodes that live and stay.
        living: usize,
        /// Those of them that have a free slab.
        with_room: usize,
        /// Domains that those are of.
        domains: usize,
    },
    /// A node has not taken note of a change in time: it hangs, or is gone.
    #[error("{node} has not taken note of a change of the pool within {}", units::seconds(*waited))]
    Unresponsive {
        /// The node.
        node: PeerId,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// Others changed the pool's state again and again.
    #[error("the pool's state could not be changed in {attempts} attempts")]
    Contended {
        /// How often it was tried.
        attempts: usize,
    },
    /// Latch words of a memory node are being made anew, and that does not end.
    #[error(
        "the headers of mem{memory} are being made anew: no node can come in before that is over"
    )]
    Rebuilding {
        /// The memory node.
        memory: u16,
    },
    /// A compute node looks for lines that nothing leads to.
    #[error("{by} repairs the pool: no node can come in before that is over")]
    UnderRepair {
        /// The node.
        by: ComputeIndex,
    },
    /// Compute nodes are in the pool, or died and have left something in it.
    #[error(
        "compute nodes {} are in the pool, or pages are lost with them: a repair needs it for itself (end them, or \
         give up what is lost: `selkie pool forgive`)",
        names(.nodes)
    )]
    InUse {
        /// Their indexes.
        nodes: Vec<ComputeIndex>,
    },
    /// No compute node of this index is registered.
    #[error("compute node {node} is not registered")]
    NotRegistered {
        /// The index asked for.
        node: ComputeIndex,
    },
}

/// The names of compute nodes.
fn names(nodes: &[ComputeIndex]) -> String {
    nodes.iter().map(|node| format!("cn{node}")).collect::<Vec<_>>().join(", ")
}

impl PoolError {
    /// True if the same call may succeed later without a change by the caller.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::MemoryNode { source, .. } => source.is_retryable(),
            Self::Fabric { source, .. } => source.is_retryable(),
            Self::Control { source } => source.is_retryable(),
            Self::Incomplete { .. }
            | Self::HostMemory { .. }
            | Self::Contended { .. }
            | Self::Unrecovered { .. }
            | Self::Rebuilding { .. }
            | Self::UnderRepair { .. } => true,
            _ => false,
        }
    }

    /// Whether the role of this process does not allow it. Another process may do it.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Control { source: ControlError::Denied { .. } })
    }
}

/// What is said of the places that dead nodes have.
fn taken(limit: usize) -> String {
    match limit {
        1 => "the pool's only place for a compute node is taken".to_owned(),
        _ => format!("the pool's {limit} places for compute nodes are taken"),
    }
}

fn by_whom(lost: usize, dead: usize) -> String {
    if lost + dead == 0 {
        return ": end a process that has one, or make a pool for more with `selkie pool create --max-compute-nodes`".to_owned();
    }
    let mut said = String::new();
    if lost > 0 {
        said += &format!(
            ", {lost} of them by nodes that died and are still to be recovered from: nodes in the pool do that, or the next \
             one that comes in to write"
        );
    }
    if dead > 0 {
        said += &format!(
            ", {dead} of them by dead nodes whose pages their logs may bring back: start a node that reaches the logs, or \
             give the pages up with `selkie pool forgive`"
        );
    }
    said
}
