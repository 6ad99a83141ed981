//! What can go wrong between a caller and the pool.

use std::sync::Arc;
use std::time::Duration;

use selkie_channels::ChannelError;
use selkie_erasure::CodecError;
use selkie_fabric::{FabricError, PeerId};
use selkie_pool::control::lateness;
use selkie_pool::{Coding, PoolError, units};

use crate::GAddr;
use crate::coherence::machine::Violation;
use crate::log::LogError;

/// Error of an engine operation.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A `try_` operation met another holder, here or at another compute node.
    #[error("{addr} is latched by another holder")]
    Busy {
        /// The line.
        addr: GAddr,
    },
    /// No memory node has an extent left.
    #[error("pool full: used {used} of {capacity} bytes")]
    PoolFull {
        /// Bytes of page data leased to compute nodes.
        used: u64,
        /// Bytes of page data the pool has.
        capacity: u64,
    },
    /// No memory node has an extent left, and freed pages are not released yet: readers from before
    /// may have their addresses. A caller that holds latches or a pin gives them up: such a reader
    /// may wait for them. Then it may wait itself: see
    /// [`until_freed_is_released`](crate::Engine::until_freed_is_released).
    #[error("pool full, but for freed pages that earlier readers may still use")]
    FreedInUse,
    /// The headers of lines that this node has freed do not say so yet: a repair of leaked lines
    /// would free them twice.
    #[error(
        "waited {} until the headers of {} say that they are free: {}",
        units::seconds(*waited), units::plural(*lines as u64, "freed line"), unmarked(*rebuilt)
    )]
    FreedUnmarked {
        /// Lines that were freed, and are not marked.
        lines: usize,
        /// The memory node whose headers are being made anew, if that is what is waited for.
        rebuilt: Option<u16>,
        /// How long the caller had waited.
        waited: Duration,
    },
    /// The line was held by a compute node that died, and its changes are lost.
    #[error("{addr} is lost: {} held it when it died", holder(*node))]
    PageLost {
        /// The line.
        addr: GAddr,
        /// The dead node, while its log may still bring the page back.
        node: Option<usize>,
    },
    /// Too little of the line's splits is left, or as it was written.
    #[error("{addr} is damaged: too few of its splits are as they were written")]
    PageDamaged {
        /// The line.
        addr: GAddr,
    },
    /// More memory nodes are lost than a page has parity splits.
    #[error("{lost} memory nodes of a page are lost, {parity} may be")]
    TooManyLost {
        /// Memory nodes that did not take their splits.
        lost: usize,
        /// Parity splits of a page.
        parity: usize,
    },
    /// A node of the pool lives, and this node has no way there any more: it gave its membership
    /// up, and the others recover from it.
    #[error("this node cannot reach {peer}, which lives, and serves nothing more")]
    Unreachable {
        /// The node that is not reached.
        peer: PeerId,
    },
    /// A part of a coded range is on no memory node that this node knows yet. No caller gets it:
    /// the rebuild that met it tries again.
    #[error("position {position} of range {range} is on no memory node that this node knows")]
    Unplaced {
        /// The range.
        range: usize,
        /// The position in it.
        position: usize,
    },
    /// The node was started to read only.
    #[error("this node reads only, and changes nothing in the pool")]
    ReadsOnly,
    /// This node was declared dead by the others, or must have been: it did not show in time that
    /// it lives.
    #[error("this node was declared dead by the others, and serves nothing more{}", lateness(*silent_for, *lease))]
    Expelled {
        /// For how long it could not show that it lives.
        silent_for: Duration,
        /// The lease of the pool.
        lease: Duration,
    },
    /// The pool was destroyed while this node was in it.
    #[error("the pool was destroyed")]
    PoolDestroyed,
    /// The node could not make sure that it is still in the pool: what it has read may be old, and
    /// what it has changed lost.
    #[error(
        "waited {} to learn from the control plane that this node is still in the pool: the plane does not answer",
        units::seconds(*waited)
    )]
    LeaseUncertain {
        /// How long the caller has waited.
        waited: Duration,
    },
    /// A latch or an answer did not come within the configured bound.
    #[error("{addr}: gave up after waiting {}", units::seconds(*waited))]
    Timeout {
        /// The line.
        addr: GAddr,
        /// How long the caller had waited.
        waited: Duration,
    },
    /// Every frame of the cache is latched.
    #[error("cache full: all {frames} frames are in use")]
    CacheFull {
        /// Frames of the cache.
        frames: usize,
    },
    /// As many pages are beyond the cache as [`crate::EngineConfig::overflow_bytes`] allows.
    #[error("{most} pages are beyond the cache, as many as may be")]
    OverflowFull {
        /// Most pages beyond the cache.
        most: usize,
    },
    /// The address names no line of this pool.
    #[error("{addr} is no address of this pool")]
    BadAddress {
        /// The address.
        addr: GAddr,
    },
    /// A verb failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A message could not be sent.
    #[error("message to cn{to}: {source}")]
    Message {
        /// The addressee.
        to: usize,
        /// Why.
        #[source]
        source: ChannelError,
    },
    /// A peer or a latch word broke the coherence protocol; the engine has stopped serving.
    #[error("{addr}: {source}")]
    Protocol {
        /// The line.
        addr: GAddr,
        /// What was met.
        source: Violation,
    },
    /// The mailbox holds something that no peer of this version sends.
    #[error("damaged message from cn{from}: {what}")]
    Mail {
        /// The sender.
        from: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The log cannot be written; it is tried again.
    #[error("log: {0}")]
    Log(#[source] LogError),
    /// The log has no room, and the caller does not wait.
    #[error("log: full")]
    LogFull,
    /// Changes that are to be recorded together are more than the log can take.
    #[error(
        "log: changes of {} or more, recorded together, are beyond the {} that this log takes at once",
        units::plural(*need, "byte"), units::plural(*limit, "byte")
    )]
    ChangeTooLarge {
        /// Bytes that are needed at least.
        need: u64,
        /// Most bytes.
        limit: u64,
    },
    /// What was recorded in the log did not become durable within the configured bound; it may
    /// later.
    #[error("log: not durable after {}", units::seconds(*waited))]
    LogTimeout {
        /// How long the caller had waited.
        waited: Duration,
    },
    /// A message has no addressee: the node is not in the pool any more.
    #[error("pool: node {node} is gone")]
    PeerGone {
        /// The addressee.
        node: usize,
    },
    /// A task of this node has panicked, or a step of a line in a caller's task. The node serves
    /// nothing more, and the others recover as from its death.
    #[error("this node serves nothing more: its task `{task}` panicked: {message}")]
    TaskPanicked {
        /// The task.
        task: &'static str,
        /// The panic's message.
        message: String,
    },
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
    /// A configuration value is out of range.
    #[error("{key} = {value}: must be {allowed}")]
    Config {
        /// The key.
        key: &'static str,
        /// The value given.
        value: u64,
        /// What is allowed.
        allowed: String,
    },
    /// The pool refused an operation of the node.
    #[error("pool: {0}")]
    Pool(#[source] Arc<PoolError>),
    /// The rpc baseline was asked for in a coded pool.
    #[error(
        "pool: coding {coding} is not for rpc: directories of the rpc baseline keep pages whole: it needs a \
         pool of coding plain"
    )]
    RpcNeedsPlain {
        /// The pool's coding.
        coding: Coding,
    },
    /// The rpc baseline was asked for, and a memory node has no directory.
    #[error("pool: memory node {memory} has no directory running")]
    NoDirectory {
        /// The memory node.
        memory: usize,
    },
    /// No compute node can have this number.
    #[error("pool: {index} is no compute node's number")]
    NoSuchNode {
        /// The number.
        index: usize,
    },
    /// The codec refused a page or its splits.
    #[error("pool: {0}")]
    Codec(#[from] CodecError),
}

fn holder(node: Option<usize>) -> String {
    node.map_or_else(|| "a compute node".to_owned(), |node| format!("cn{node}"))
}

/// What keeps headers from being marked, and what helps.
fn unmarked(rebuilt: Option<u16>) -> String {
    match rebuilt {
        Some(memory) => format!(
            "the headers of mem{memory} are being made anew, and none is marked before that is over; try again then \
             (`selkie pool status`)"
        ),
        None => "memory nodes or the log are slow, or this node frees more all the time; try again when it does \
                 nothing else"
            .to_owned(),
    }
}

impl EngineError {
    /// Whether the node serves nothing more: it is out of its pool, or has failed.
    pub fn ends_node(&self) -> bool {
        matches!(
            self,
            EngineError::Closed
                | EngineError::Expelled { .. }
                | EngineError::PoolDestroyed
                | EngineError::Protocol { .. }
                | EngineError::TaskPanicked { .. }
                | EngineError::Unreachable { .. }
        )
    }

    /// Whether the same operation may succeed later without anything being repaired.
    pub fn is_retryable(&self) -> bool {
        match self {
            EngineError::Busy { .. }
            | EngineError::FreedInUse
            | EngineError::FreedUnmarked { .. }
            | EngineError::Timeout { .. }
            | EngineError::Log(_)
            | EngineError::LogFull
            | EngineError::LogTimeout { .. }
            | EngineError::LeaseUncertain { .. }
            | EngineError::OverflowFull { .. }
            | EngineError::CacheFull { .. } => true,
            EngineError::Fabric(e) => e.is_retryable(),
            EngineError::Pool(error) => match &**error {
                PoolError::Control { source } => source.is_retryable(),
                _ => false,
            },
            _ => false,
        }
    }
}

impl From<PoolError> for EngineError {
    fn from(e: PoolError) -> Self {
        EngineError::Pool(Arc::new(e))
    }
}
