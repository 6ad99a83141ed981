//! Why a shared pool cannot be used.

use std::path::PathBuf;
use std::time::Duration;

use crate::fabric::tcp::SecurityError;
use crate::fabric::{FabricError, Role};
use crate::pool::PoolError;
use crate::pool::control::ControlError;

/// Why a shared pool cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedPoolError {
    /// There is no pool of that name on this host.
    #[error("no pool `{name}` on this host; {}", there_are(.others))]
    NoPool {
        /// The name.
        name: String,
        /// The pools that the calling user has on this host.
        others: Vec<String>,
    },
    /// There is a pool of that name on this host already.
    #[error(
        "there is a pool `{name}` on this host already: `selkie pool status {name}` shows it, `selkie pool destroy {name}` \
         removes it"
    )]
    PoolExists {
        /// The name.
        name: String,
    },
    /// There is no pool of that name in etcd.
    #[error(
        "no pool `{name}` in etcd at {endpoints}: `selkie pool create etcd:{endpoints}/{name}` makes one"
    )]
    NoPoolInEtcd {
        /// The name.
        name: String,
        /// The members of the etcd that were asked.
        endpoints: String,
    },
    /// There is a pool of that name in etcd already.
    #[error(
        "there is a pool `{name}` in etcd at {endpoints} already: `selkie pool status etcd:{endpoints}/{name}` shows it, \
         `selkie pool destroy etcd:{endpoints}/{name}` removes it"
    )]
    PoolExistsInEtcd {
        /// The name.
        name: String,
        /// The members of the etcd that were asked.
        endpoints: String,
    },
    /// Memory nodes answer, and the pool that they have joined is there no more.
    #[error(
        "no pool behind the memory nodes at {addresses}: it was destroyed, and `selkie pool create NAME --fabric tcp` on a \
         host of theirs makes another"
    )]
    NoPoolBehind {
        /// The addresses that were asked.
        addresses: String,
    },
    /// The pool was destroyed while this process was about to join it.
    #[error("the pool was destroyed")]
    Destroyed,
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Connections cannot be secured.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The token of a pool cannot be read or written.
    #[error("the pool's token in {path}: {why}")]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The role in the certificate of this process does not allow what it is about to do.
    #[error(
        "the certificate in --tls DIR is of role {role}, and {what} takes role {}: make one with \
         `selkie cert node --role`", names(.allowed)
    )]
    Role {
        /// The role.
        role: Role,
        /// What it is about to do.
        what: &'static str,
        /// The roles that may.
        allowed: &'static [Role],
    },
    /// A memory node is gone, and with it a part of the pool.
    #[error("memory node {node} of the pool is dead: what it held is lost; destroy the pool")]
    MemoryLost {
        /// Its index.
        node: usize,
    },
    /// No memory node of the pool lives.
    #[error(
        "all memory of pool {place} is gone: {}; what was committed with logs on disk is recovered into a new pool \
         (`selkie recover --log-dir DIR --into NEW`), and this one is of no more use (`selkie pool destroy {place}`)",
        none_lives(*.nodes, *.silent_for)
    )]
    AllMemoryGone {
        /// The pool.
        place: String,
        /// How many have joined it.
        nodes: usize,
        /// For how long at least none of them has shown that it lives, where that is all that is
        /// known.
        silent_for: Option<Duration>,
    },
    /// Memory nodes have yet to join, and none has for long.
    #[error(
        "{joined} of {nodes} memory nodes have joined pool {place}, and it was waited for more: start {} more with \
         `selkie memnode --pool {place} --memory SIZE`",
        *nodes - *joined
    )]
    Incomplete {
        /// The pool.
        place: String,
        /// How many have joined it.
        joined: usize,
        /// How many are to join.
        nodes: usize,
    },
    /// What a command waits for takes a compute node, and none is in the pool.
    #[error("no compute node has been in pool {place} for {waited_s} s: {what}")]
    NoComputeNode {
        /// The pool.
        place: String,
        /// How long it was waited for one, seconds.
        waited_s: u64,
        /// What is not done, and when it will be.
        what: String,
    },
    /// Compute nodes are in the pool, and do not get on with what a command waits for.
    #[error(
        "the compute nodes of pool {place} have not got on for {waited_s} s (`selkie top {place}` shows what they do): \
         {what}"
    )]
    NoProgress {
        /// The pool.
        place: String,
        /// For how long they have not, seconds.
        waited_s: u64,
        /// What is not done, and when it will be.
        what: String,
    },
    /// Nodes still use the pool.
    #[error("{what} of the pool lives; stop it first, or use --force")]
    InUse {
        /// A node.
        what: String,
    },
    /// The pool's nodes meet on a fabric that this software does not have.
    #[error("{place}: the pool's fabric is {fabric:?}; there are shm, tcp and verbs")]
    UnknownFabric {
        /// The pool.
        place: String,
        /// Its fabric.
        fabric: String,
    },
    /// The software was built without etcd.
    #[error("this selkie was built without etcd: build it with --features etcd")]
    NoEtcd,
    /// The software was built without RDMA.
    #[error("this selkie was built without RDMA: build it with --features verbs")]
    NoVerbs,
    /// A device was chosen for a pool that uses none.
    #[error(
        "--rdma-device, --rdma-port and --rdma-gid are for pools over RDMA, made with --fabric \
         verbs; this is none"
    )]
    NoRdma,
    /// There is no RDMA device that could be used.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] crate::fabric::verbs::VerbsError),
    /// An address that this process must not, or cannot, listen at.
    #[error("{option} {address}: {why}")]
    Address {
        /// The option.
        option: &'static str,
        /// Its value.
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Options of a network where memory is shared.
    #[error(
        "--listen, --advertise, --tls, --token and --insecure are for pools over TCP (the last for --metrics too); this is none"
    )]
    NoNetwork,
}

impl SharedPoolError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Pool(error) => error.is_retryable(),
            Self::Fabric(error) => error.is_retryable(),
            Self::InUse { .. }
            | Self::NoComputeNode { .. }
            | Self::NoProgress { .. }
            | Self::Incomplete { .. } => true,
            Self::Security(_)
            | Self::Token { .. }
            | Self::Role { .. }
            | Self::NoPool { .. }
            | Self::PoolExists { .. }
            | Self::NoPoolInEtcd { .. }
            | Self::PoolExistsInEtcd { .. }
            | Self::NoPoolBehind { .. }
            | Self::Destroyed
            | Self::MemoryLost { .. }
            | Self::AllMemoryGone { .. }
            | Self::UnknownFabric { .. }
            | Self::NoEtcd
            | Self::NoVerbs
            | Self::NoRdma
            | Self::Address { .. }
            | Self::NoNetwork => false,
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => false,
        }
    }
}

fn none_lives(nodes: usize, silent_for: Option<Duration>) -> String {
    match silent_for {
        None => format!("none of its {nodes} memory nodes lives"),
        Some(time) => format!(
            "none of its {nodes} memory nodes has shown for {} that it lives, unless they stand still or are cut off, \
             and come back",
            format_args!("{:.1} s", time.as_secs_f64())
        ),
    }
}

/// Most names of pools in a message.
const MAX_NAMES: usize = 10;

fn there_are(others: &[String]) -> String {
    match others.len() {
        0 => "there are none: `selkie pool create NAME` makes one".to_owned(),
        count if count > MAX_NAMES => format!("there are {count}: `selkie pool list` shows them"),
        _ => format!("there are: {}", others.join(", ")),
    }
}

fn names(roles: &[Role]) -> String {
    roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(" or ")
}

impl From<ControlError> for SharedPoolError {
    fn from(error: ControlError) -> Self {
        Self::Pool(error.into())
    }
}
