//! Start of a compute node: it joins the fabric, enters the pool, and starts its tasks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_channels::{Mailbox, MailboxConfig};
use selkie_fabric::env::Env;
use selkie_fabric::{
    BoxFuture, Buf, Chain, Endpoint, Fabric, FabricError, PeerId, RemoteAddr, Verb,
};
use selkie_pool::{ComputeIndex, Pool, PoolError, layout};

use super::engine::Engine;
use crate::addressing::allocator::Allocator;
use crate::addressing::epochs::Epochs;
use crate::addressing::executed::{read_at, word_at};
use crate::addressing::memory_access::MemoryAccess;
use crate::addressing::memory_links::MemoryLinks;
use crate::addressing::reclamation::{Reclamation, epoch_node};
use crate::cache::eviction::run_evictor;
use crate::cache::page_cache::PageCache;
use crate::coding::coded::CodingState;
use crate::coding::regenerate::run_regeneration;
use crate::coherence::mail::run_mail;
use crate::coherence::messenger::Messenger;
use crate::coherence::word::ComputeId;
use crate::config::EngineConfig;
use crate::core::Core;
use crate::housekeeping::run_housekeeping;
use crate::lifecycle::Lifecycle;
use crate::log::state::Log;
use crate::log::{LogTo, run_archive, run_checkpoints, run_log};
use crate::recovery::driver::{run_doubts, run_recovery};
use crate::recovery::lease::run_lease;
use crate::recovery::state::RecoveryState;
use crate::snapshots::state::SnapshotState;
use crate::telemetry::activity_reporting::run_activity;
use crate::telemetry::counting::Telemetry;
use crate::{Coherence, EngineError};

/// The interval at which a joining node checks whether the epochs are at their memory node.
const EPOCHS_LOOK: Duration = Duration::from_millis(1);
/// Messages a peer's full ring may hold up here before sending fails: each line has at most one
/// request and one answer a peer under way, so a few thousand are far beyond any load.
const OUTBOX_LIMIT: usize = 1 << 16;

impl Engine {
    /// Joins the pool as compute node `node` and starts the background tasks.
    ///
    /// # Errors
    /// `Config` for values out of range, and a request timeout within which the loss of a memory
    /// node of a coded pool might not be noticed, `Pool` when the node is there already or beyond
    /// the pool's `max_compute_nodes`, when a coded pool has no room for a range, or is to be used
    /// by the rpc baseline, `Fabric` when a memory node cannot be reached.
    pub fn start<'a>(
        pool: &'a Arc<Pool>,
        fabric: &'a Arc<dyn Fabric>,
        env: &'a Env,
        node: ComputeId,
        config: EngineConfig,
    ) -> BoxFuture<'a, Result<Engine, EngineError>> {
        Box::pin(async move {
            let limit = pool.descriptor().max_compute_nodes;
            if node.index() >= limit {
                let node = ComputeIndex::new(node.index() as u16);
                return Err(PoolError::UnknownCompute { node, limit }.into());
            }
            Self::start_as(pool, fabric, env, node, config).await
        })
    }

    /// As [`Engine::start`]; a node with an index beyond the pool's limit only recovers
    /// ([`crate::recovery`]).
    pub(crate) fn start_as<'a>(
        pool: &'a Arc<Pool>,
        fabric: &'a Arc<dyn Fabric>,
        env: &'a Env,
        node: ComputeId,
        config: EngineConfig,
    ) -> BoxFuture<'a, Result<Engine, EngineError>> {
        Box::pin(async move {
            config.validate(pool.descriptor().gcl_bytes)?;
            let coding = pool.descriptor().coding;
            let only_recovers = node.index() >= pool.descriptor().max_compute_nodes;
            if config.coherence == Coherence::Rpc && !coding.is_plain() {
                return Err(EngineError::RpcNeedsPlain { coding });
            }
            // Until then operations on a dead memory node are quiesced.
            let missed = pool.all_missed_within().filter(|_| !coding.is_plain());
            if let Some(missed) = missed.filter(|missed| *missed >= config.request_timeout) {
                return Err(EngineError::Config {
                    key: "request_timeout",
                    value: config.request_timeout.as_secs(),
                    allowed: format!(
                        "more than the {missed:?} within which a lost memory node of this pool is missed"
                    ),
                });
            }
            let endpoint = fabric.join(PeerId::compute(node.index() as u16))?;
            let mailboxes = Self::open_mailboxes(pool, &endpoint, node, &config)?;
            pool.announce(env, &*endpoint, config.reads_only).await?;
            if !only_recovers && let Err(error) = pool.ensure_range(env).await {
                pool.retract(ComputeIndex::new(node.index() as u16)).await;
                return Err(error.into());
            }
            let core = match Self::connect(pool, env, node, config, endpoint, mailboxes).await {
                Ok(core) => core,
                Err(error) => {
                    pool.retract(ComputeIndex::new(node.index() as u16)).await;
                    return Err(error);
                }
            };
            Self::spawn_tasks(&core);
            let engine = Engine(core);
            // This may wait for a recovery, in which this node may be the only one to take part.
            if let Err(error) = engine.0.open_log().await {
                // The node has changed no page, so an error of the close does not matter.
                let _ = engine.close().await;
                return Err(error);
            }
            let core = &engine.0;
            tracing::info!(node = %core.endpoint.id(), frames = core.cache.frames.count(), "started a compute node");
            Ok(engine)
        })
    }

    fn spawn_tasks(core: &Arc<Core>) {
        let (tick, env) = (core.config.tick, core.env.clone());
        drop(core.spawn("evictor", run_evictor(Arc::downgrade(core))));
        if let Some(log) = &core.log {
            drop(core.spawn("log", run_log(Arc::downgrade(core), Arc::clone(log), env)));
            drop(core.spawn("checkpoints", run_checkpoints(Arc::downgrade(core))));
            if matches!(core.config.log, Some(LogTo::Store(_))) {
                drop(core.spawn("archive", run_archive(Arc::downgrade(core))));
            }
        }
        drop(core.spawn("lease", run_lease(Arc::downgrade(core), tick)));
        drop(core.spawn("recovery", run_recovery(Arc::downgrade(core), tick)));
        drop(core.spawn("doubts", run_doubts(Arc::downgrade(core), tick)));
        // It latches pages.
        if !core.only_recovers() {
            drop(core.spawn("regeneration", run_regeneration(Arc::downgrade(core))));
        }
        drop(core.spawn("activity", run_activity(Arc::downgrade(core))));
        drop(core.spawn("housekeeping", run_housekeeping(Arc::downgrade(core), tick)));
    }

    /// Connects the announced node to the memory nodes, and enters the pool.
    async fn connect(
        pool: &Arc<Pool>,
        env: &Env,
        node: ComputeId,
        config: EngineConfig,
        endpoint: Arc<dyn Endpoint>,
        mailboxes: Box<[Arc<Mailbox>]>,
    ) -> Result<Arc<Core>, EngineError> {
        let descriptor = pool.descriptor();
        let gcl_bytes = descriptor.gcl_bytes;
        Self::declare_the_gone(pool, &*endpoint).await?;
        let links = MemoryLinks::open(pool, Arc::clone(&endpoint), config.reads_only)?;
        let frames = (config.cache_bytes / gcl_bytes as u64) as usize;
        let most_beyond = (config.overflow_bytes / descriptor.gcl_bytes as u64) as usize;
        let coded = CodingState::of(descriptor, &config, frames)?;
        let first = epoch_node(pool);
        let epoch = Self::global_epoch(pool, env, first, &links).await?;
        // The ranges of a coded pool come as they are needed.
        let units = if coded.is_none() { descriptor.memory_nodes.len() } else { 0 };
        let only_recovers = node.index() >= descriptor.max_compute_nodes;
        let keeps_log = config.log.is_some() && !config.reads_only && !only_recovers;
        let core = Arc::new_cyclic(|this| Core {
            this: this.clone(),
            me: node,
            rules: config.rules(),
            config,
            env: env.clone(),
            lifecycle: Lifecycle::default(),
            cache: PageCache::new(descriptor, frames, most_beyond),
            memory: MemoryAccess::new(pool, links, coded),
            messenger: Messenger::new(node, &endpoint, pool, mailboxes),
            recovery: RecoveryState::default(),
            allocator: Allocator::new(units),
            epochs: Epochs::new(epoch),
            reclamation: Reclamation::default(),
            log: keeps_log.then(|| Arc::new(Log::new())),
            snapshots: SnapshotState::default(),
            telemetry: Telemetry::new(),
            #[cfg(test)]
            planted_panic: parking_lot::Mutex::default(),
            endpoint,
            pool: Arc::clone(pool),
        });
        core.publish_epoch(epoch + 1).await?;
        core.clear_snapshots().await?;
        Self::enter(&core).await?;
        // Before this node was a member, another may have taken its epoch for one that was left
        // behind.
        core.publish_epoch(epoch + 1).await?;
        Ok(core)
    }

    /// Enters the pool, and handles mail from then on.
    async fn enter(core: &Arc<Core>) -> Result<(), EngineError> {
        let (pool, index) = (&core.pool, core.index());
        let mailboxes = core.messenger.mailboxes();
        let descriptors = mailboxes.iter().map(|mailbox| mailbox.descriptor()).collect();
        let observer: Weak<Core> = Arc::downgrade(core);
        pool.observe(observer);
        let registered = match core.log {
            Some(_) => pool.register_before_log(&core.env, index, descriptors).await,
            None => pool.register_compute(&core.env, index, descriptors).await,
        };
        let incarnation = match registered {
            Ok(incarnation) => incarnation,
            Err(error) => {
                // Unless the word is that of another node of the index.
                if !pool.is_member(index) && !pool.is_dead(index) {
                    let _ = core.publish_epoch(0).await;
                }
                core.lifecycle.check_panicked()?;
                return Err(error.into());
            }
        };
        core.lifecycle.enter(incarnation);
        if core.memory.coded.is_some() {
            core.snapshots.enter();
        }
        // The recovery from an earlier death waits for this node only if it was a member then.
        core.note_earlier_deaths();
        core.quiesce_what_has_moved();
        // Not earlier: without knowing the other nodes it could not answer them.
        for mailbox in mailboxes {
            let (weak, mailbox) = (Arc::downgrade(core), Arc::clone(mailbox));
            drop(core.spawn("mail", run_mail(weak, mailbox)));
        }
        Ok(())
    }

    /// One for each task that takes messages in.
    fn open_mailboxes(
        pool: &Pool,
        endpoint: &Arc<dyn Endpoint>,
        node: ComputeId,
        config: &EngineConfig,
    ) -> Result<Box<[Arc<Mailbox>]>, EngineError> {
        let directories = config.coherence == Coherence::Rpc;
        let memory_nodes = 0..pool.descriptor().memory_nodes.len();
        if let Some(node) = memory_nodes.into_iter().find(|n| pool.directory_of(*n).is_none())
            && directories
        {
            return Err(EngineError::NoDirectory { memory: node });
        }
        let shape = MailboxConfig {
            // A node that only recovers gets no mail, and has a place beyond those that do.
            peers: Self::mailbox_peers(pool, directories).max(node.index() + 1),
            ring_bytes: config.ring_bytes,
            outbox_limit: OUTBOX_LIMIT,
        };
        let failed = |source| EngineError::Message { to: node.index(), source };
        let open = |_| Mailbox::open(endpoint, node.index(), shape).map(Arc::new).map_err(failed);
        (0..config.mail_tasks).map(open).collect()
    }

    /// Compute nodes, and the memory nodes' directories if there are any.
    fn mailbox_peers(pool: &Pool, directories: bool) -> usize {
        let descriptor = pool.descriptor();
        let memory_nodes = if directories { descriptor.memory_nodes.len() } else { 0 };
        descriptor.max_compute_nodes + memory_nodes
    }

    /// Declares memory nodes of a coded pool dead that died and were not accessed since.
    async fn declare_the_gone(pool: &Pool, endpoint: &dyn Endpoint) -> Result<(), EngineError> {
        if pool.descriptor().coding.is_plain() {
            return Ok(());
        }
        for memory in pool.state().memory_nodes.iter().flatten().filter(|memory| !memory.dead) {
            let peer = memory.descriptor.peer;
            let found = endpoint.connect(peer);
            if matches!(found, Err(FabricError::PeerDead { peer: dead }) if dead == peer) {
                match pool.declare_memory_dead(peer.index()).await {
                    // Those who may will miss it.
                    Err(error) if error.is_denied() => {}
                    declared => declared?,
                }
            }
        }
        Ok(())
    }

    /// Asks the memory node that has the epochs. The epoch to begin in. Where another memory node
    /// had the epochs before, those who are in have to bring them here: a node that began in an
    /// earlier epoch than theirs would take their pins for older than they are.
    async fn global_epoch(
        pool: &Pool,
        env: &Env,
        first: Option<usize>,
        links: &MemoryLinks,
    ) -> Result<u64, EngineError> {
        let Some(node) = first else { return Ok(0) };
        let first = links.to(pool, node);
        let peer = PeerId::memory(node as u16);
        let region = links.region(node).ok_or(FabricError::UnknownPeer { peer })?;
        let at = RemoteAddr::new(region, layout::GLOBAL_EPOCH_AT);
        let nodes = pool.descriptor().max_compute_nodes;
        let bytes = (layout::NODE_EPOCHS_AT - layout::GLOBAL_EPOCH_AT) as usize + 8 * nodes;
        let started = env.now();
        loop {
            let chain = Chain::from([Verb::read(at, Buf::zeroed(bytes))]);
            let done = first.post(chain).await.map_err(|e| e.error)?;
            let words = read_at(&done, 0).words();
            let published = |index: usize| {
                let Some(word) = words.get(1 + index) else {
                    panic!("compute node {index} has no epoch word");
                };
                u64::from_le(*word)
            };
            let global = word_at(&done, 0);
            // A node that only recovers reads no page.
            let members = pool.members().into_iter().filter(|node| node.as_usize() < nodes);
            let members: Vec<ComputeIndex> = members.collect();
            let newest = members.iter().map(|node| published(node.as_usize())).max().unwrap_or(0);
            let all_published = members.iter().all(|node| published(node.as_usize()) > 0);
            let are_here = all_published && global + 1 >= newest;
            // A node that hangs, or is about to leave, has no pins that matter.
            let waited = env.now().saturating_sub(started);
            if are_here || pool.descriptor().coding.is_plain() || waited > pool.state().timing.lease
            {
                return Ok(global.max(newest.saturating_sub(1)));
            }
            env.sleep(EPOCHS_LOOK).await;
        }
    }
}
