//! Creates a pool that processes share, which memory nodes then join.

use crate::config::{MAX_MEMORY_NODES, PoolConfig, PoolPlan};
use crate::control::ControlPlane;
use crate::document::{Identity, MemoryMember, PoolState, Timing};
use crate::error::PoolError;
use crate::token::TokenVerifier;

/// Creates a pool where `plane` keeps none yet: `config` says its shape and how many memory nodes
/// are to join. Each of them chooses its own capacity. The pool has no token: relays let all
/// in whose connection is not secured.
///
/// # Errors
/// [`PoolError::Config`] for a bad field, [`PoolError::Control`] if there is a pool already.
pub async fn create(
    plane: &dyn ControlPlane,
    identity: Identity<'_>,
    config: &PoolConfig,
    timing: Timing,
) -> Result<(), PoolError> {
    create_with_token(plane, identity, config, timing, None).await
}

/// As [`create`], with the verifier of a token that relays ask for on connections that are not
/// secured.
///
/// # Errors
/// As [`create`].
pub async fn create_with_token(
    plane: &dyn ControlPlane,
    identity: Identity<'_>,
    config: &PoolConfig,
    timing: Timing,
    token: Option<TokenVerifier>,
) -> Result<(), PoolError> {
    config.plan()?;
    timing.validate()?;
    let state = PoolState { token, ..PoolState::new(identity, timing, config) };
    plane.create(state).await?;
    Ok(())
}

impl PoolState {
    /// The index of the memory node that joins next.
    ///
    /// # Errors
    /// [`PoolError::MemoryNodeRefused`] if there is no place for one.
    pub fn next_memory_node(&self) -> Result<usize, PoolError> {
        let nodes = self.memory_nodes.len();
        let why = match self.memory_nodes.iter().position(Option::is_none) {
            Some(missing) => return Ok(missing),
            None if self.coding.is_plain() => format!(
                "all {nodes} memory nodes of the pool have joined, and one of coding plain gets no more"
            ),
            None if nodes >= MAX_MEMORY_NODES => {
                format!("a pool has at most {MAX_MEMORY_NODES} memory nodes, dead ones included")
            }
            None => return Ok(nodes),
        };
        Err(PoolError::MemoryNodeRefused { node: nodes, why })
    }

    /// The sizes of a memory node with a capacity of so many bytes.
    ///
    /// # Errors
    /// [`PoolError::Config`] if the bytes are too few for a range.
    pub fn plan_of(&self, bytes: u64) -> Result<PoolPlan, PoolError> {
        let config = PoolConfig {
            memory_nodes: self.memory_nodes.len(),
            bytes_per_node: bytes,
            gcl_bytes: self.gcl_bytes,
            range_bytes: self.range_bytes,
            max_compute_nodes: self.max_compute_nodes,
            coding: self.coding,
            log_bytes: self.log_bytes,
        };
        config.plan()
    }

    /// Enters a memory node in its place; `false` if another has it.
    ///
    /// # Errors
    /// [`PoolError::MemoryNodeRefused`], [`PoolError::TooManyRanges`].
    pub fn enter_memory_node(&mut self, member: MemoryMember) -> Result<bool, PoolError> {
        let node = member.descriptor.peer.index();
        let last = self.memory_nodes.len();
        if usize::from(node) == last && self.next_memory_node()? == last {
            self.memory_nodes.push(None);
        }
        match self.memory_nodes.get_mut(usize::from(node)) {
            Some(slot @ None) => *slot = Some(member),
            _ => return Ok(false),
        }
        self.check_domain_of(node)?;
        self.check_ranges()?;
        Ok(true)
    }
}
