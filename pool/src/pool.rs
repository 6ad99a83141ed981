//! The pool as a process sees it: how to reach its memory, who is in it, and the way to change
//! that.
//!
//! What the nodes of a pool agree on is kept by a [`ControlPlane`]; a `Pool` holds a copy of it,
//! the *view*, that all compute nodes of the process work by. None of this is on a data path: a
//! compute node changes the pool when it starts, when it leaves, and when it runs out of memory.
//!
//! # Who knows whom
//! Before a node that joins sends its first message, every other node has to know where to answer;
//! and a node that leaves has to hear of requests that others sent before they knew that it leaves.
//! So both wait until the nodes of all other processes have seen the change, which their beats say.
//! Processes follow the changes of a pool that is shared with [`Pool::follow`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_channels::MailboxDescriptor;
use selkie_fabric::env::Env;
use selkie_fabric::{Domain, Endpoint, Fabric, PeerId};

use crate::coding::Coding;
use crate::control::{Card, ControlPlane, Lost, MAX_RANGES, Mailbox, Member, PoolState, Versioned};
use crate::descriptor::MemoryNodeDescriptor;
use crate::error::PoolError;
use crate::layout::SlabGeometry;
use crate::membership::{self, Membership, Observer, SignsOfLife};
use crate::registry::ComputeIndex;

/// Everything a compute node has to know to use the pool's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDescriptor {
    /// Bytes of a GCL.
    pub gcl_bytes: usize,
    /// Bytes of a range.
    pub range_bytes: u64,
    /// Compute nodes that may register; indexes are below it.
    pub max_compute_nodes: usize,
    /// How pages are kept.
    pub coding: Coding,
    /// Bytes that each memory node keeps for the log of each compute node; 0: none.
    pub log_bytes: u64,
    /// The memory nodes that the pool had when this process opened it, by index. A coded pool may
    /// get more, which its state names.
    pub memory_nodes: Vec<MemoryNodeDescriptor>,
}

impl PoolDescriptor {
    /// Where things lie in the memory nodes' regions.
    #[must_use]
    pub fn geometry(&self) -> SlabGeometry {
        SlabGeometry::coded(self.gcl_bytes, self.range_bytes, self.coding)
            .with_logs(self.log_bytes, self.max_compute_nodes)
    }
}

/// How much of a pool, or of a memory node, is leased to compute nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Extents leased so far.
    pub extents_leased: u64,
    /// Extents there are.
    pub extents: u64,
    /// Bytes of page data leased so far (headers not counted).
    pub bytes_leased: u64,
    /// Bytes of page data there are.
    pub bytes: u64,
    /// Slabs of which something is leased; in a coded pool, that ranges lie in.
    pub slabs_used: u64,
    /// Slabs there are.
    pub slabs: u64,
}

impl PoolUsage {
    /// Of these extents, and no slabs.
    #[must_use]
    pub fn of(geometry: &SlabGeometry, extents_leased: u64, extents: u64) -> Self {
        let bytes = |extents| extents * geometry.extent_bytes();
        let (bytes_leased, bytes) = (bytes(extents_leased), bytes(extents));
        Self { extents_leased, extents, bytes_leased, bytes, slabs_used: 0, slabs: 0 }
    }
}

/// A pool as one process sees it.
pub struct Pool {
    descriptor: PoolDescriptor,
    membership: Membership,
    /// A state in which no slab is to move: to find that out takes a look at all ranges.
    at_rest: Mutex<Option<Arc<PoolState>>>,
}

impl Pool {
    /// Opens the pool that `plane` keeps, on the fabric on which its nodes meet, once its memory
    /// nodes are all there. `host` stands for the calling process: random, so that no two share
    /// one.
    ///
    /// # Errors
    /// [`PoolError::Incomplete`] while memory nodes are missing, [`PoolError::Fabric`],
    /// [`PoolError::Control`].
    pub async fn open(
        fabric: Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        host: u64,
    ) -> Result<Arc<Self>, PoolError> {
        let now = plane.load().await?;
        Ok(Arc::new(Self::with_view(host, fabric, plane, now)?))
    }

    /// As [`Pool::open`], with the state `now` that has just been read from `plane`.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn with_view(
        host: u64,
        fabric: Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        now: Versioned,
    ) -> Result<Self, PoolError> {
        let state = &now.state;
        let joined = state.memory_nodes.iter().flatten();
        let memory_nodes: Vec<_> = joined.map(|node| node.descriptor.clone()).collect();
        let (joined, wanted) = (memory_nodes.len(), state.memory_nodes.len());
        if joined < wanted {
            return Err(PoolError::Incomplete { joined, nodes: wanted });
        }
        let descriptor = PoolDescriptor {
            gcl_bytes: state.gcl_bytes,
            range_bytes: state.range_bytes,
            max_compute_nodes: state.max_compute_nodes,
            coding: state.coding,
            log_bytes: state.log_bytes,
            memory_nodes,
        };
        let membership = Membership::new(host, fabric, plane, now)?;
        Ok(Self { descriptor, membership, at_rest: Mutex::default() })
    }

    /// Whether no slab is to move in this state, as [`Pool::set_at_rest`] has said.
    pub(crate) fn is_at_rest(&self, state: &Arc<PoolState>) -> bool {
        self.at_rest.lock().as_ref().is_some_and(|known| Arc::ptr_eq(known, state))
    }

    pub(crate) fn set_at_rest(&self, state: Arc<PoolState>) {
        *self.at_rest.lock() = Some(state);
    }

    /// The part of this process in the pool.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Stands for this process among those that use the pool.
    #[must_use]
    pub fn host(&self) -> u64 {
        self.membership.host()
    }

    /// The processes that have shown lately that their nodes live, and this one.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn living_hosts(&self) -> Result<BTreeSet<u64>, PoolError> {
        self.membership.living_hosts().await
    }

    /// How to use the pool's memory.
    #[must_use]
    pub fn descriptor(&self) -> &PoolDescriptor {
        &self.descriptor
    }

    /// Keeps the view up to date, and the others informed that the nodes of this process live, for
    /// as long as the pool is used. Needed where several processes share a pool.
    pub fn follow(self: &Arc<Self>, env: &Env) {
        let (pool, env) = (Arc::downgrade(self), env.clone());
        drop(env.clone().spawn("pool", async move {
            loop {
                let Some(pool) = pool.upgrade() else { return };
                pool.membership.follow_once(&env).await;
            }
        }));
    }

    /// What this process has shown of its nodes.
    #[must_use]
    pub fn signs_of_life(&self, now: Duration) -> SignsOfLife {
        self.membership.signs_of_life(now)
    }

    /// What a node of this process says of itself with its beats from now on, for people who look
    /// on.
    pub fn set_report(&self, node: PeerId, report: String) {
        self.membership.set_report(node, report);
    }

    /// What a compute node that reads only may do at memory nodes: see [`SlabGeometry::reading`].
    #[must_use]
    pub fn reading(&self) -> Domain {
        self.state().reading()
    }

    /// The pool's state, as this process knows it.
    #[must_use]
    pub fn state(&self) -> Arc<PoolState> {
        self.membership.state()
    }

    /// The pool's state, as it is when this is called or later. Asks the control plane.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn latest_state(&self) -> Result<Arc<PoolState>, PoolError> {
        self.membership.latest().await
    }

    /// Lets a compute node of this process in at all others, before it connects to any, where the
    /// fabric asks for that; one that reads only at memory nodes within [`Pool::reading`]. Returns
    /// once they know of it. [`Pool::register_compute`] is to follow.
    ///
    /// # Errors
    /// As [`Pool::register_compute`].
    pub async fn announce(
        &self,
        env: &Env,
        endpoint: &dyn Endpoint,
        reads_only: bool,
    ) -> Result<(), PoolError> {
        let Some(card) = endpoint.card() else { return Ok(()) };
        let node = ComputeIndex::new(endpoint.id().index());
        let card = Card { host: self.host(), card, reads_only };
        self.membership.first_beat(env, endpoint.id()).await?;
        let enter = |state: &mut PoolState| {
            self.check_index(state, node)?;
            if has_card(state, node) {
                return Err(PoolError::DuplicateCompute { node });
            }
            state.cards.insert(endpoint.id().to_raw(), card.clone());
            Ok(())
        };
        self.membership.set_ended(endpoint.id(), false);
        let noticed = match self.membership.change(enter).await {
            Ok((version, ())) => self.membership.until_noticed(env, version).await,
            // Refused, and not there.
            Err(error) if !error.is_retryable() => return Err(error),
            failed => failed.map(drop),
        };
        if noticed.is_err() {
            self.retract(node).await;
        }
        noticed
    }

    /// Takes back [`Pool::announce`], of a node that did not get into the pool. If that fails the
    /// others take the node for dead, once its process does not show any more that it lives.
    pub async fn retract(&self, node: ComputeIndex) {
        let retract = |state: &mut PoolState| {
            let raw = PeerId::compute(node.get()).to_raw();
            let is_in = state.compute_nodes.contains_key(&node.get());
            if !is_in && state.cards.get(&raw).is_some_and(|card| card.host == self.host()) {
                state.cards.remove(&raw);
            }
            Ok(())
        };
        // What is wrong with the pool says more than what is wrong with leaving it.
        let _ = self.membership.change(retract).await;
    }

    /// Takes back what [`Pool::register_compute`] has done, if it has, for the node that receives
    /// in these mailboxes. If that fails, the others take the node for dead, as nobody shows that
    /// it lives.
    async fn withdraw(&self, node: ComputeIndex, mailboxes: &[Mailbox]) {
        let withdraw = |state: &mut PoolState| {
            let is_it = |member: &Member| {
                member.host == self.host() && member.mailboxes.as_slice() == mailboxes
            };
            if state.compute_nodes.get(&node.get()).is_some_and(is_it) {
                state.compute_nodes.remove(&node.get());
            }
            Ok(())
        };
        if self.membership.change(withdraw).await.is_err() {
            self.membership.set_ended(PeerId::compute(node.get()), true);
        }
    }

    /// Makes sure that a node of this process is in the pool, by a change of the state: `false` if
    /// it is not. If it is, nobody declares it dead any more for its silence before its last beat
    /// that was through when this was called. The answer may be old when it comes: its lease counts
    /// from that beat.
    ///
    /// # Errors
    /// [`PoolError::Control`], [`PoolError::Contended`]: nobody knows.
    pub async fn renew(&self, node: ComputeIndex, incarnation: u32) -> Result<bool, PoolError> {
        let renew = |state: &mut PoolState| {
            let member = state.compute_nodes.get_mut(&node.get());
            let member = member.filter(|member| member.incarnation == incarnation);
            Ok(member.map(|member| member.renewals += 1).is_some())
        };
        Ok(self.membership.change(renew).await?.1)
    }

    /// A node of this process serves nothing more, and has not left: the others are to recover from
    /// its death.
    ///
    /// # Errors
    /// [`PoolError::Control`]; the others find out by its silence.
    pub async fn give_up(&self, node: ComputeIndex, incarnation: u32) -> Result<(), PoolError> {
        self.membership.set_ended(PeerId::compute(node.get()), true);
        let declare = |state: &mut PoolState| {
            let member = state.compute_nodes.get(&node.get());
            if member.is_some_and(|member| member.incarnation == incarnation) {
                membership::declare_dead(state, PeerId::compute(node.get()));
            }
            Ok(())
        };
        self.membership.change(declare).await.map(drop)
    }

    fn check_index(&self, state: &PoolState, node: ComputeIndex) -> Result<(), PoolError> {
        let limit = self.descriptor.max_compute_nodes;
        if node.as_usize() >= limit {
            return Err(PoolError::UnknownCompute { node, limit });
        }
        if state.compute_nodes.contains_key(&node.get()) {
            return Err(PoolError::DuplicateCompute { node });
        }
        let is_doubtful = state.is_doubtful(node.get());
        let is_dead = state.lost.contains_key(&node.get()) || state.dead.contains(&node.get());
        if is_dead || is_doubtful || state.has_fallen(node.get()) {
            return Err(PoolError::DeadCompute { node });
        }
        Ok(())
    }

    /// Enters a compute node with the mailboxes it receives at, each from its share of the senders:
    /// see [`Pool::mailbox_of`]. Returns once all other nodes know of it, the so-manieth node of
    /// this index.
    ///
    /// # Errors
    /// [`PoolError::UnknownCompute`] for an index beyond the limit, [`PoolError::DuplicateCompute`]
    /// if the index is taken, [`PoolError::DeadCompute`], [`PoolError::Unresponsive`],
    /// [`PoolError::Rebuilding`], [`PoolError::Control`]; the node is then not in.
    pub async fn register_compute(
        &self,
        env: &Env,
        node: ComputeIndex,
        mailboxes: Vec<MailboxDescriptor>,
    ) -> Result<u32, PoolError> {
        let mailboxes: Vec<_> = mailboxes.iter().map(Into::into).collect();
        let enter = |state: &mut PoolState| {
            self.check_index(state, node)?;
            if let Some(memory) = state.is_being_entered() {
                return Err(PoolError::Rebuilding { memory });
            }
            let before = state.incarnations.get(&node.get()).copied().unwrap_or(0);
            let incarnation = before.saturating_add(1);
            state.incarnations.insert(node.get(), incarnation);
            let member = Member {
                host: self.host(),
                incarnation,
                mailboxes: mailboxes.clone(),
                renewals: 0,
            };
            state.compute_nodes.insert(node.get(), member);
            Ok(incarnation)
        };
        let since = env.now();
        self.membership.first_beat(env, PeerId::compute(node.get())).await?;
        self.membership.set_ended(PeerId::compute(node.get()), false);
        let entered = loop {
            let entered = self.membership.change(enter).await;
            if !matches!(entered, Err(PoolError::Rebuilding { .. })) || !self.may_wait(env, since) {
                break entered;
            }
            env.sleep(self.membership.plane_pace()).await;
        };
        let (version, incarnation) = match entered {
            Ok(entered) => entered,
            Err(error) => {
                if error.is_retryable() {
                    // It may be in all the same. Nobody has noticed it as one that is.
                    self.withdraw(node, &mailboxes).await;
                }
                return Err(error);
            }
        };
        match self.membership.until_noticed(env, version).await {
            Ok(()) => Ok(incarnation),
            Err(error) => {
                self.withdraw(node, &mailboxes).await;
                Err(error)
            }
        }
    }

    /// Whether what others are to do may take longer still.
    fn may_wait(&self, env: &Env, since: Duration) -> bool {
        env.now().saturating_sub(since) <= self.membership.notice_bound()
    }

    /// An index that no node of the pool has, nor has given up lately: indexes are given out in
    /// turn.
    ///
    /// # Errors
    /// [`PoolError::Full`] if all are in use, [`PoolError::Control`].
    pub async fn next_index(&self) -> Result<ComputeIndex, PoolError> {
        // At most 58.
        let limit = self.descriptor.max_compute_nodes as u16;
        let take = |state: &mut PoolState| {
            let in_turn = (0..limit).map(|step| (state.next_index % limit + step) % limit);
            let free = in_turn
                .map(ComputeIndex::new)
                .find(|node| self.check_index(state, *node).is_ok() && !has_card(state, *node));
            let Some(node) = free else {
                let dead = state.dead.len() + state.lost.len();
                return Err(PoolError::Full { limit: limit.into(), dead });
            };
            state.next_index = (node.get() + 1) % limit;
            Ok(node)
        };
        Ok(self.membership.change(take).await?.1)
    }

    /// Gives a coded pool that has `known` ranges one more, unless another process has done so.
    /// Returns once all know of it; `false` if there is no room for one.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn add_range(&self, env: &Env, known: usize) -> Result<bool, PoolError> {
        let add = |state: &mut PoolState| Ok(state.ranges.len() > known || state.add_range());
        let (version, added) = self.membership.change(add).await?;
        if added {
            self.membership.until_noticed(env, version).await?;
        } else if known >= MAX_RANGES {
            let range_bytes = self.descriptor.range_bytes;
            tracing::warn!(MAX_RANGES, range_bytes, "the pool has as many ranges as it can have");
        }
        Ok(added)
    }

    /// Sees to it that a coded pool has a range.
    ///
    /// # Errors
    /// [`PoolError::NoPlaceForRange`]; else as [`Pool::add_range`].
    pub async fn ensure_range(&self, env: &Env) -> Result<(), PoolError> {
        if self.descriptor.coding.is_plain() || self.add_range(env, 0).await? {
            return Ok(());
        }
        Err(self.state().no_room())
    }

    /// Has `observer` told of changes, and of nodes that come in, those that are in first.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        self.membership.observe(observer);
    }

    /// Whether a compute node is in the pool, and is the so-manieth that has its index.
    #[must_use]
    pub fn is_incarnation(&self, node: ComputeIndex, incarnation: u32) -> bool {
        let state = self.membership.state();
        state.compute_nodes.get(&node.get()).is_some_and(|m| m.incarnation == incarnation)
    }

    /// Takes a compute node out. Returns once all other nodes know that it is gone, so that what
    /// they sent to it before is in its mailboxes; a node that hangs is not waited for for ever.
    ///
    /// # Errors
    /// [`PoolError::NotRegistered`], [`PoolError::UnknownCompute`], [`PoolError::Control`].
    pub async fn leave(&self, env: &Env, node: ComputeIndex) -> Result<(), PoolError> {
        let limit = self.descriptor.max_compute_nodes;
        let leave = |state: &mut PoolState| {
            if node.as_usize() >= limit {
                return Err(PoolError::UnknownCompute { node, limit });
            }
            state.cards.remove(&PeerId::compute(node.get()).to_raw());
            let gone = state.compute_nodes.remove(&node.get());
            state.forget_in_rebuilds(node.get());
            state.forget_moment(node.get());
            gone.map(drop).ok_or(PoolError::NotRegistered { node })
        };
        let (version, ()) = self.membership.change(leave).await?;
        match self.membership.until_noticed(env, version).await {
            Err(PoolError::Unresponsive { .. }) => Ok(()),
            noticed => noticed,
        }
    }

    /// Declares a compute node dead: it is in the pool no more, and the others begin to recover
    /// from its death. Its index is used again only after that.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn declare_dead(&self, node: ComputeIndex) -> Result<(), PoolError> {
        let declare = |state: &mut PoolState| {
            membership::declare_dead(state, PeerId::compute(node.get()));
            Ok(())
        };
        self.membership.change(declare).await.map(drop)
    }

    /// Declares a memory node dead: every access to it ends in an error from now on.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn declare_memory_dead(&self, node: u16) -> Result<(), PoolError> {
        let declare = |state: &mut PoolState| {
            membership::declare_dead(state, PeerId::memory(node));
            Ok(())
        };
        self.membership.change(declare).await.map(drop)
    }

    /// The compute nodes whose recovery is under way, and how far it has got, as this process
    /// knows.
    #[must_use]
    pub fn lost(&self) -> Vec<(ComputeIndex, Lost)> {
        let state = self.membership.state();
        let lost = state.lost.iter();
        lost.map(|(node, lost)| (ComputeIndex::new(*node), lost.clone())).collect()
    }

    /// Whether a compute node died, and is recovered from or not.
    #[must_use]
    pub fn is_dead(&self, node: ComputeIndex) -> bool {
        let state = self.membership.state();
        state.lost.contains_key(&node.get()) || state.dead.contains(&node.get())
    }

    /// The compute nodes that died and are named in lost pages for ever.
    #[must_use]
    pub fn dead(&self) -> Vec<ComputeIndex> {
        self.membership.state().dead.iter().copied().map(ComputeIndex::new).collect()
    }

    /// Goes on with the fence around a lost node, until no verb of it executes any more (F1);
    /// whether it is known by then that none does. May block for some milliseconds.
    ///
    /// # Errors
    /// [`PoolError::Fabric`], [`PoolError::Control`].
    pub async fn fence(&self, node: ComputeIndex) -> Result<bool, PoolError> {
        if !self.membership.is_fenced(PeerId::compute(node.get())).await? {
            return Ok(false);
        }
        let fenced = |state: &mut PoolState| {
            if let Some(lost) = state.lost.get_mut(&node.get()) {
                lost.fenced = true;
            }
            Ok(())
        };
        self.membership.change(fenced).await?;
        Ok(true)
    }

    /// Says that the compute node `by` has taken note of a death (F4).
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn acknowledge(&self, node: ComputeIndex, by: ComputeIndex) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                if let Some(lost) = state.lost.get_mut(&node.get()) {
                    lost.acknowledged.insert(by.get());
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Whether the compute node `by` is to take a lost one out of the latch words (F5): all have
    /// taken note, and nobody else who lives does.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_sweep(
        &self,
        node: ComputeIndex,
        by: ComputeIndex,
    ) -> Result<bool, PoolError> {
        let claim = |state: &mut PoolState| {
            let members: BTreeSet<u16> = state.compute_nodes.keys().copied().collect();
            // One that died in a sweep must not be able to go on with it.
            let fenced = state.lost.values().all(|lost| lost.fenced);
            let Some(lost) = state.lost.get_mut(&node.get()) else { return Ok(false) };
            let ready = members.is_subset(&lost.acknowledged);
            let taken = lost.sweeper.is_some_and(|other| members.contains(&other));
            let own = lost.sweeper == Some(by.get());
            if ready && !taken {
                lost.sweeper = Some(by.get());
            }
            Ok(ready && fenced && (own || !taken))
        };
        Ok(self.membership.change(claim).await?.1)
    }

    /// Leaves a sweep that cannot go on to others.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn leave_sweep(&self, node: ComputeIndex, by: ComputeIndex) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                if let Some(lost) = state.lost.get_mut(&node.get())
                    && lost.sweeper == Some(by.get())
                {
                    lost.sweeper = None;
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Whether a memory node was declared dead, as this process knows.
    #[must_use]
    pub fn is_memory_dead(&self, memory_node: usize) -> bool {
        let state = self.membership.state();
        let member = state.memory_nodes.get(memory_node).and_then(Option::as_ref);
        member.is_none_or(|member| member.dead)
    }

    /// How long after the death of a memory node it is missed, and declared dead, at the latest;
    /// `None` for one that nobody misses, as whoever looks for it finds out.
    #[must_use]
    pub fn missed_within(&self, memory_node: usize) -> Option<Duration> {
        self.membership.missed_within(|node| node == PeerId::memory(memory_node as u16))
    }

    /// As [`Pool::missed_within`], of the memory node that is missed last.
    #[must_use]
    pub fn all_missed_within(&self) -> Option<Duration> {
        self.membership.missed_within(PeerId::is_memory)
    }

    /// Ends the recovery from a death, which had these GCLs (global addresses) as the only one, of
    /// which some were not made again, for the compute node `by` whose sweep it was; nothing
    /// happens if it is another's by now.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn finish_recovery(
        &self,
        node: ComputeIndex,
        by: ComputeIndex,
        had: &[u64],
        lost_pages: &[u64],
    ) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                let lost = state.lost.get(&node.get());
                let is_sweeper = lost.is_some_and(|lost| lost.sweeper == Some(by.get()));
                let member = state.compute_nodes.get(&by.get());
                if is_sweeper && member.is_some_and(|member| member.host == self.host()) {
                    let recovered = state.lost.remove(&node.get());
                    for page in had {
                        state.lost_pages.remove(page);
                    }
                    state.lose_pages(node.get(), lost_pages);
                    // All that it had was made again, or what was said to be lost before is not all
                    // here.
                    let is_whole = !had.is_empty() && lost_pages.is_empty();
                    if recovered.is_some_and(|lost| lost.has_lost_pages) && !is_whole {
                        state.dead.insert(node.get());
                    }
                    state.forget_fallen();
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Begins the recovery from a node anew with which GCLs were lost, as they can be made again
    /// now. All who are in the pool take note of its death once more: so none of them is about to
    /// enter itself in a word.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn recover_again(&self, node: ComputeIndex) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                if state.dead.remove(&node.get()) {
                    let lost = Lost { fenced: true, has_lost_pages: true, ..Lost::default() };
                    state.lost.insert(node.get(), lost);
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// The GCLs (global addresses) that were lost with the nodes that held them.
    #[must_use]
    pub fn lost_pages(&self) -> Vec<u64> {
        self.membership.state().lost_pages.iter().copied().collect()
    }

    /// Enters the mailbox at which a memory node's processor serves calls, for the baseline that
    /// needs it.
    ///
    /// # Errors
    /// [`PoolError::Directory`] if there is no such memory node, or it has one already.
    pub async fn register_directory(
        &self,
        memory_node: usize,
        mailbox: MailboxDescriptor,
    ) -> Result<(), PoolError> {
        let enter = |state: &mut PoolState| {
            let known = memory_node < state.memory_nodes.len();
            if !known || state.directories.contains_key(&memory_node) {
                return Err(PoolError::Directory { memory_node });
            }
            state.directories.insert(memory_node, (&mailbox).into());
            Ok(())
        };
        self.membership.change(enter).await.map(drop)
    }

    /// The mailbox at which a memory node's processor serves calls, if it does.
    #[must_use]
    pub fn directory_of(&self, memory_node: usize) -> Option<MailboxDescriptor> {
        self.membership.state().directories.get(&memory_node).map(Into::into)
    }

    /// The mailbox in which a compute node receives from the peer `sender`, if it is in the pool:
    /// of its mailboxes the one whose number is the remainder of `sender`.
    #[must_use]
    pub fn mailbox_of(&self, node: ComputeIndex, sender: usize) -> Option<MailboxDescriptor> {
        let state = self.membership.state();
        let mailboxes = &state.compute_nodes.get(&node.get())?.mailboxes;
        mailboxes.get(sender.checked_rem(mailboxes.len())?).map(Into::into)
    }

    /// As [`Pool::mailbox_of`], if the node is the so-manieth that has its index.
    #[must_use]
    pub fn mailbox_of_incarnation(
        &self,
        node: ComputeIndex,
        incarnation: u32,
        sender: usize,
    ) -> Option<MailboxDescriptor> {
        let state = self.membership.state();
        let member = state.compute_nodes.get(&node.get());
        let member = member.filter(|member| member.incarnation == incarnation)?;
        let own = sender.checked_rem(member.mailboxes.len())?;
        member.mailboxes.get(own).map(Into::into)
    }

    /// Whether a compute node is in the pool.
    #[must_use]
    pub fn is_member(&self, node: ComputeIndex) -> bool {
        self.membership.state().compute_nodes.contains_key(&node.get())
    }

    /// The compute nodes in the pool, by rising index.
    #[must_use]
    pub fn members(&self) -> Vec<ComputeIndex> {
        self.membership.state().compute_nodes.keys().copied().map(ComputeIndex::new).collect()
    }

    /// Hands back GCLs (global addresses) that the caller leases, does not use, and that no reader
    /// can still meet. Donating an address twice is the same as once.
    ///
    /// # Errors
    /// [`PoolError::Control`]; the GCLs are then still the caller's.
    pub async fn donate(&self, gcls: &[u64]) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                state.donated.extend(gcls);
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Takes over at most `max` donated GCLs, lowest addresses first; empty if there are none.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    #[must_use = "an adopted GCL belongs to the caller; dropping the list loses the memory"]
    pub async fn adopt(&self, max: usize) -> Result<Vec<u64>, PoolError> {
        let adopt = |state: &mut PoolState| {
            let taken = max.min(state.donated.len());
            Ok((0..taken).map_while(|_| state.donated.pop_first()).collect())
        };
        Ok(self.membership.change(adopt).await?.1)
    }

    /// Sets what users of the pool find under a name, if it is `expected`; whether it was.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn set_label(
        &self,
        name: &str,
        expected: Option<&str>,
        label: Option<&str>,
    ) -> Result<bool, PoolError> {
        let set = |state: &mut PoolState| {
            let found = state.labels.get(name).map(String::as_str);
            if found != expected {
                return Ok(false);
            }
            match label {
                Some(label) => state.labels.insert(name.to_owned(), label.to_owned()),
                None => state.labels.remove(name),
            };
            Ok(true)
        };
        Ok(self.membership.change(set).await?.1)
    }

    /// Counts the incarnations of compute nodes on from those of another pool, whose pages this one
    /// gets before it has had a compute node: what names things by them goes on with new names.
    ///
    /// # Errors
    /// [`PoolError::Used`] if it has had some; [`PoolError::Control`].
    pub async fn count_on(&self, incarnations: &BTreeMap<u16, u32>) -> Result<(), PoolError> {
        let count = |state: &mut PoolState| {
            // The same ones are of a try that did not come to more.
            if !state.incarnations.is_empty() && state.incarnations != *incarnations {
                return Err(PoolError::Used);
            }
            state.incarnations.clone_from(incarnations);
            Ok(())
        };
        self.membership.change(count).await.map(drop)
    }

    /// What is found under a name, as this process knows.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<String> {
        self.membership.state().labels.get(name).cloned()
    }

    /// Extents there are; in a coded pool, those of the ranges it has and of as many more as there
    /// is room for.
    #[must_use]
    pub fn extents(&self) -> u64 {
        let (state, geometry) = (self.state(), self.descriptor.geometry());
        if !state.coding.is_plain() {
            return state.most_ranges() as u64 * geometry.extents_per_range();
        }
        let nodes = state.memory_nodes.iter().flatten();
        nodes.map(|node| geometry.extents_per_node(node.descriptor.ranges)).sum()
    }
}

fn has_card(state: &PoolState, node: ComputeIndex) -> bool {
    state.cards.contains_key(&PeerId::compute(node.get()).to_raw())
}
