//! An index for a node that comes in, also when nodes that died keep all of them (decision 95).
//!
//! ```text
//! free index? --yes--> it
//!   no: kept by dead nodes, and no member to recover --> come in behind the limit, recover, leave
//!       kept by dead nodes, with members             --> wait for them
//!       a member that may be dead                    --> wait until it is missed, or shows itself
//!       all of nodes that live                       --> the pool is full
//! ```
//! A node behind the limit of the pool has no log, as the layout has no room for one, and no lines:
//! other nodes have no ring for its messages. It takes part in recoveries and rebuilds as all do,
//! reads the logs of the dead, and writes pages home. If it dies, the next one recovers from it as
//! well: no word names it, but pages may be torn, and its journal has what they are made from.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::Env;
use selkie_fabric::{BoxFuture, Fabric, FabricError, PeerId};
use selkie_pool::control::PoolState;
use selkie_pool::{ComputeIndex, NOTICE, Pool, PoolError, WaitNotice};

use crate::access::engine::Engine;
use crate::coherence::word::ComputeId;
use crate::config::EngineConfig;
use crate::core::Core;
use crate::log::LogTo;
use crate::{Coherence, EngineError};

/// Leases for which the members are given to recover. They may not be able to: nodes that only read
/// are not.
const MEMBERS_LEASES: u32 = 8;
/// How often a recovery is tried that ends with an error.
const TRIES: u32 = 3;
/// Request timeouts for which a node that only recovers waits for the recoveries to be over.
const RECOVERIES: u32 = 6;
/// Beats are older than their plane says by no more: it may tell ages in whole seconds.
const ROUNDED: Duration = Duration::from_secs(1);

/// What a node finds that does not find a free index.
#[derive(Clone, Copy, Debug)]
struct Occupied {
    /// Nodes that died are to be recovered from.
    has_unrecovered: bool,
    /// Pages are lost with nodes that died, and this node may reach their logs.
    may_redo: bool,
    /// Nodes are in the pool.
    has_members: bool,
    /// All of them have shown that they live since this node looks.
    all_live: bool,
    /// This node may change pages, and recovers.
    recovers: bool,
    /// How long it has been looking, in which leases, and for how long at most.
    waited: Duration,
    lease: Duration,
    heartbeat: Duration,
    bound: Duration,
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It recovers from the dead itself.
    Recover,
    Wait,
    /// It is refused.
    Refuse,
}

impl Occupied {
    /// Whether members that live will have shown it in a moment: this node is refused then, and a
    /// line about its wait would come just before.
    fn is_soon_known(self) -> bool {
        !self.has_unrecovered && self.waited <= ROUNDED + 2 * self.heartbeat
    }

    fn next(self) -> Next {
        let is_left_to_it = !self.has_members || self.waited > MEMBERS_LEASES * self.lease;
        let is_due = self.has_unrecovered && is_left_to_it || self.may_redo;
        let may_be_freed = self.has_unrecovered && self.has_members || !self.all_live;
        match self.recovers && is_due {
            true => Next::Recover,
            false if may_be_freed && self.waited < self.bound => Next::Wait,
            false => Next::Refuse,
        }
    }
}

impl Engine {
    /// An index for a compute node of this configuration, for [`Engine::start`]. If nodes that died
    /// keep all indexes and no node is in the pool, recovers from them first, as a node of its own
    /// that leaves again. Waits at most for the request timeout for an index that others may be
    /// about to free, and for six of them for a recovery.
    ///
    /// # Errors
    /// `Pool` with [`PoolError::Full`] if nodes that live have all indexes, or this node only reads
    /// and cannot recover; [`PoolError::NoSpareIndex`], [`PoolError::Unrecovered`]; else as
    /// [`Engine::start`].
    pub fn free_index<'a>(
        pool: &'a Arc<Pool>,
        fabric: &'a Arc<dyn Fabric>,
        env: &'a Env,
        config: &'a EngineConfig,
    ) -> BoxFuture<'a, Result<ComputeId, EngineError>> {
        Box::pin(async move {
            let mut notice = WaitNotice::new(env.now());
            let (mut tries, mut has_redone) = (0, false);
            loop {
                let full = match pool.next_index().await {
                    Ok(index) => return id_of(index),
                    Err(full @ PoolError::Full { .. }) => full,
                    Err(error) => return Err(error.into()),
                };
                let now = env.now();
                let mut found = Self::occupied(pool, notice.waited(now), config).await?;
                found.may_redo &= !has_redone;
                match found.next() {
                    Next::Refuse => return Err(full.into()),
                    Next::Wait => {
                        let waited = if found.is_soon_known() { None } else { notice.due(now) };
                        if let Some(waited) = waited {
                            let (waited, bound) = (waited.as_secs(), found.bound.as_secs());
                            tracing::info!(
                                target: NOTICE,
                                "has waited for {waited} s for a place in the pool, for {bound} s at most: {full}"
                            );
                        }
                    }
                    Next::Recover => {
                        has_redone |= found.may_redo;
                        tries += 1;
                        let done = Self::recover_all(pool, fabric, env, config).await;
                        if let Err(error) = done {
                            let is_final = tries >= TRIES || !may_be_another_time(&error);
                            tracing::warn!(%error, "cannot recover from the nodes that keep all places in the pool");
                            if is_final {
                                return Err(error);
                            }
                        } else if tries < TRIES {
                            continue;
                        }
                    }
                }
                env.sleep(pool.membership().plane_pace()).await;
            }
        })
    }

    async fn occupied(
        pool: &Pool,
        waited: Duration,
        config: &EngineConfig,
    ) -> Result<Occupied, EngineError> {
        let state = pool.latest_state().await?;
        let lately = pool.hosts_within(waited.saturating_sub(ROUNDED)).await?;
        let lives = |host: &u64| *host == pool.host() || lately.contains(host);
        let members = state.compute_nodes.values().map(|member| member.host);
        let coming = state.cards.iter().filter(|(raw, _)| !is_memory(**raw));
        let mut hosts = members.chain(coming.map(|(_, card)| card.host));
        let has_logs = config.log.is_some() || pool.descriptor().log_bytes > 0;
        Ok(Occupied {
            has_unrecovered: !state.unrecovered().is_empty(),
            may_redo: has_logs && !state.dead.is_empty() && state.takes_recoverer(),
            has_members: !state.compute_nodes.is_empty(),
            all_live: hosts.all(|host| lives(&host)),
            recovers: !config.reads_only && config.coherence == Coherence::Selcc,
            waited,
            lease: state.timing.lease,
            heartbeat: state.timing.heartbeat,
            bound: config.request_timeout,
        })
    }

    /// Comes in as a node that only recovers, and leaves when that is done.
    async fn recover_all(
        pool: &Arc<Pool>,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        config: &EngineConfig,
    ) -> Result<(), EngineError> {
        let node = id_of(pool.spare_index(env.random_u64()).await?)?;
        tracing::warn!(
            %node,
            "nodes that died keep all places in the pool: comes in to recover from them, before it comes in to work"
        );
        let in_memory = || (pool.descriptor().log_bytes > 0).then_some(LogTo::Memory);
        let config = EngineConfig {
            cache_bytes: EngineConfig::min_cache_bytes(pool.descriptor().gcl_bytes),
            log: config.log.clone().or_else(in_memory),
            ..config.clone()
        };
        let began = env.now();
        let engine = Self::start_as(pool, fabric, env, node, config).await?;
        let done = engine.0.until_recovered().await;
        let closed = engine.close().await;
        if done.is_ok() {
            let took_s = format!("{:.1}", (env.now() - began).as_secs_f64());
            tracing::warn!(%node, took_s, "has recovered from the nodes that died");
        }
        // Why it could not recover says more than why it cannot leave.
        done.and(closed)
    }
}

/// Another node was faster, or memory may be back later.
fn may_be_another_time(error: &EngineError) -> bool {
    let is_race = |error: &PoolError| {
        matches!(error, PoolError::UnknownCompute { .. } | PoolError::DuplicateCompute { .. })
    };
    let is_refused = matches!(error, EngineError::Pool(error) if is_race(error));
    let is_over = matches!(error, EngineError::Pool(error) if matches!(**error, PoolError::Unrecovered { .. }));
    let is_taken = matches!(error, EngineError::Fabric(FabricError::AlreadyJoined { .. }));
    is_refused || is_taken || error.is_retryable() && !is_over
}

fn id_of(index: ComputeIndex) -> Result<ComputeId, EngineError> {
    let index = index.as_usize();
    ComputeId::new(index).ok_or(EngineError::NoSuchNode { index })
}

/// `cn0, cn3`.
fn names<'a>(nodes: impl IntoIterator<Item = &'a u16>) -> String {
    let names: Vec<_> = nodes.into_iter().map(|node| format!("cn{node}")).collect();
    names.join(", ")
}

fn is_memory(raw: u16) -> bool {
    PeerId::from_raw(raw).is_memory()
}

impl Core {
    /// Whether this node only recovers: it has no log and no lines, and leaves then.
    pub(crate) fn only_recovers(&self) -> bool {
        self.me.index() >= self.pool.descriptor().max_compute_nodes
    }

    /// Waits until the recoveries are over in which this node takes part.
    async fn until_recovered(&self) -> Result<(), EngineError> {
        // Logs that no other has reached.
        self.recover_again().await?;
        let bound = RECOVERIES * self.config.request_timeout;
        let mut notice = WaitNotice::new(self.env.now());
        loop {
            self.lifecycle.check_failed()?;
            let state: Arc<PoolState> = self.pool.state();
            let left = state.unrecovered();
            if left.is_empty() {
                return Ok(());
            }
            let now = self.env.now();
            let waited = notice.waited(now);
            if waited > bound {
                let nodes = left.into_iter().collect();
                return Err(PoolError::Unrecovered { nodes, waited }.into());
            }
            if let Some(waited) = notice.due(now) {
                let (waited, bound) = (waited.as_secs(), bound.as_secs());
                tracing::warn!(
                    node = %self.endpoint.id(),
                    "has recovered for {waited} s from nodes that died, and goes on for {bound} s at most: {} left; it waits for \
                     memory nodes and logs that it needs, and where one does not come back, `selkie pool forgive` gives up \
                     what only that has",
                    names(&left)
                );
            }
            self.env.sleep(self.config.tick).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Occupied = Occupied {
        has_unrecovered: true,
        may_redo: false,
        has_members: false,
        all_live: true,
        recovers: true,
        waited: Duration::ZERO,
        lease: Duration::from_secs(2),
        heartbeat: Duration::from_millis(250),
        bound: Duration::from_secs(30),
    };
    const NONE_DIED: Occupied = Occupied { has_unrecovered: false, has_members: true, ..FOUND };

    #[test]
    fn a_node_that_may_write_recovers_when_no_other_does() {
        assert_eq!(FOUND.next(), Next::Recover);
        let others = Occupied { has_members: true, ..FOUND };
        assert_eq!(others.next(), Next::Wait, "they recover");
        let waited = Duration::from_millis(16_001);
        assert_eq!(Occupied { waited, ..others }.next(), Next::Recover, "they do not");
        assert_eq!(Occupied { may_redo: true, ..NONE_DIED }.next(), Next::Recover);
    }

    #[test]
    fn a_node_that_only_reads_waits_for_others_within_a_bound() {
        let reads = Occupied { recovers: false, ..FOUND };
        assert_eq!(reads.next(), Next::Refuse, "none is there to recover");
        let others = Occupied { has_members: true, ..reads };
        let after = |seconds| Occupied { waited: Duration::from_secs(seconds), ..others }.next();
        assert_eq!((after(0), after(29), after(30)), (Next::Wait, Next::Wait, Next::Refuse));
        assert_eq!(Occupied { may_redo: true, ..reads }.next(), Next::Refuse);
    }

    #[test]
    fn nothing_is_said_of_a_wait_that_is_about_to_end_with_a_refusal() {
        let after =
            |ms| Occupied { waited: Duration::from_millis(ms), all_live: false, ..NONE_DIED };
        assert!(after(1_000).is_soon_known() && after(1_500).is_soon_known());
        assert!(!after(1_501).is_soon_known(), "one of them may be dead");
        let dead = Occupied { has_unrecovered: true, ..after(1_000) };
        assert!(!dead.is_soon_known(), "it waits for a recovery");
    }

    #[test]
    fn a_pool_is_full_when_all_members_have_shown_that_they_live() {
        assert_eq!(NONE_DIED.next(), Next::Refuse);
        let silent = Occupied { all_live: false, ..NONE_DIED };
        assert_eq!(silent.next(), Next::Wait);
        assert_eq!(Occupied { waited: silent.bound, ..silent }.next(), Next::Refuse);
    }
}
