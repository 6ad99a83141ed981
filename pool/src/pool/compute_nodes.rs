//! Compute nodes come into the pool and leave it.

use std::collections::BTreeMap;
use std::time::Duration;

use selkie_channels::MailboxDescriptor;
use selkie_fabric::env::Env;
use selkie_fabric::{Endpoint, PeerId};

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{Card, Mailbox, Member, PoolState};
use crate::error::PoolError;
use crate::layout::MAX_COMPUTE_NODES;

impl Pool {
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
            let free = in_turn.map(ComputeIndex::new).find(|node| self.is_free(state, *node));
            let Some(node) = free else { return Err(state.full()) };
            state.next_index = (node.get() + 1) % limit;
            Ok(node)
        };
        Ok(self.membership.change(take).await?.1)
    }

    /// An index beyond those that the pool was made for, for a node that only recovers (decision
    /// 95). `by` is random, so that nodes that ask at the same time get different ones.
    ///
    /// # Errors
    /// [`PoolError::NoSpareIndex`] if all are in use, [`PoolError::UnknownCompute`] if the pool
    /// needs no such node, [`PoolError::Control`].
    pub async fn spare_index(&self, by: u64) -> Result<ComputeIndex, PoolError> {
        let state = self.latest_state().await?;
        let (limit, spare) = (self.descriptor.max_compute_nodes as u16, state.spare_indexes());
        if !state.takes_recoverer() {
            return Err(PoolError::UnknownCompute {
                node: ComputeIndex::new(limit),
                limit: limit.into(),
            });
        }
        let free = spare.map(ComputeIndex::new).filter(|node| self.is_free(&state, *node));
        let free: Vec<_> = free.collect();
        let chosen = by.checked_rem(free.len() as u64).and_then(|at| free.get(at as usize));
        chosen.copied().ok_or(PoolError::NoSpareIndex { limit: limit.into() })
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
        let Some(card) = endpoint.access_card() else { return Ok(()) };
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
        // The caller reports the error for which it leaves. The others find out by the node's
        // silence.
        let _ = self.membership.change(retract).await;
    }

    /// Enters a compute node with the mailboxes it receives at, each from its share of the senders:
    /// see [`Pool::mailbox_of`]. Returns once all other nodes know of it, as which incarnation of
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
        self.register_as(env, node, mailboxes, false).await
    }

    /// As [`Pool::register_compute`], of a node that acquires no line before [`Pool::note_log`].
    ///
    /// # Errors
    /// As [`Pool::register_compute`].
    pub async fn register_before_log(
        &self,
        env: &Env,
        node: ComputeIndex,
        mailboxes: Vec<MailboxDescriptor>,
    ) -> Result<u32, PoolError> {
        self.register_as(env, node, mailboxes, true).await
    }

    async fn register_as(
        &self,
        env: &Env,
        node: ComputeIndex,
        mailboxes: Vec<MailboxDescriptor>,
        begins: bool,
    ) -> Result<u32, PoolError> {
        let mailboxes: Vec<_> = mailboxes.iter().map(Into::into).collect();
        let enter = |state: &mut PoolState| {
            self.check_index(state, node)?;
            if let Some(by) = state.repaired_by() {
                return Err(PoolError::UnderRepair { by: ComputeIndex::new(by) });
            }
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
                has_log: false,
                begins,
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
                    // It may be in nevertheless, but no other node has noticed it.
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

    /// Takes back [`Pool::register_compute`], if it took effect, for the node that receives in
    /// these mailboxes. If that fails, the others take the node for dead, as its process stops its
    /// beats.
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

    fn check_index(&self, state: &PoolState, node: ComputeIndex) -> Result<(), PoolError> {
        let limit = self.descriptor.max_compute_nodes;
        let is_spare = (limit..MAX_COMPUTE_NODES).contains(&node.as_usize());
        if node.as_usize() >= limit && !(is_spare && state.takes_recoverer()) {
            return Err(PoolError::UnknownCompute { node, limit });
        }
        if state.compute_nodes.contains_key(&node.get()) {
            return Err(PoolError::DuplicateCompute { node });
        }
        if state.is_kept_by_dead(node.get()) {
            return Err(PoolError::DeadCompute { node });
        }
        Ok(())
    }

    fn is_free(&self, state: &PoolState, node: ComputeIndex) -> bool {
        self.check_index(state, node).is_ok() && !has_card(state, node)
    }

    /// Has a compute node be alone in the pool until it leaves: no other comes in.
    ///
    /// # Errors
    /// [`PoolError::InUse`] if others are in it, or are still to be recovered from;
    /// [`PoolError::Rebuilding`]; [`PoolError::Control`].
    pub async fn begin_repair(&self, node: ComputeIndex) -> Result<(), PoolError> {
        let begin = |state: &mut PoolState| {
            let others = state.compute_nodes.keys().filter(|other| **other != node.get());
            let others = others.chain(state.lost.keys()).chain(&state.dead);
            let nodes: Vec<u16> = others.copied().collect();
            if !nodes.is_empty() {
                let nodes = nodes.into_iter().map(ComputeIndex::new).collect();
                return Err(PoolError::InUse { nodes });
            }
            if let Some(rebuild) = state.rebuilds.first() {
                return Err(PoolError::Rebuilding { memory: rebuild.memory });
            }
            state.repairer = Some(node.get());
            Ok(())
        };
        self.membership.change(begin).await.map(drop)
    }

    /// Says that the log of a compute node is open, before it acquires a line.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn note_log(&self, node: ComputeIndex, incarnation: u32) -> Result<(), PoolError> {
        let note = |state: &mut PoolState| {
            let member = state.compute_nodes.get_mut(&node.get());
            if let Some(member) = member.filter(|member| member.incarnation == incarnation) {
                (member.has_log, member.begins) = (true, false);
            }
            Ok(())
        };
        self.membership.change(note).await.map(drop)
    }

    /// Makes sure that a node of this process is in the pool, by a change of the state: `false` if
    /// it is not. If it is, no node declares it dead any more for its silence before the last beat
    /// that was complete when this was called. The answer may be old when it arrives: the lease
    /// counts from that beat.
    ///
    /// # Errors
    /// [`PoolError::Control`], [`PoolError::Contended`]: it is unknown.
    pub async fn renew(&self, node: ComputeIndex, incarnation: u32) -> Result<bool, PoolError> {
        let renew = |state: &mut PoolState| {
            let member = state.compute_nodes.get_mut(&node.get());
            let member = member.filter(|member| member.incarnation == incarnation);
            Ok(member.map(|member| member.renewals += 1).is_some())
        };
        Ok(self.membership.change(renew).await?.1)
    }

    /// Declares a node of this process dead that has ended without leaving: the others recover from
    /// its death.
    ///
    /// # Errors
    /// [`PoolError::Control`]; the others find out by its silence.
    pub async fn give_up(&self, node: ComputeIndex, incarnation: u32) -> Result<(), PoolError> {
        self.membership.set_ended(PeerId::compute(node.get()), true);
        let declare = |state: &mut PoolState| {
            let member = state.compute_nodes.get(&node.get());
            if member.is_some_and(|member| member.incarnation == incarnation) {
                state.declare_dead(PeerId::compute(node.get()));
            }
            Ok(())
        };
        self.membership.change(declare).await.map(drop)
    }

    /// Takes this incarnation of a compute node out. Returns once all other nodes know that it is
    /// gone, so that what they sent to it before is in its mailboxes; a node that hangs is not
    /// waited for for ever. May be repeated when the control plane has not answered: the index may
    /// have another node by then, which stays.
    ///
    /// # Errors
    /// [`PoolError::NotRegistered`], known to all, if it is gone already;
    /// [`PoolError::UnknownCompute`], [`PoolError::Control`].
    pub async fn leave(
        &self,
        env: &Env,
        node: ComputeIndex,
        incarnation: u32,
    ) -> Result<(), PoolError> {
        let limit = self.descriptor.max_compute_nodes;
        let leave = |state: &mut PoolState| {
            let member = state.compute_nodes.get(&node.get());
            if node.as_usize() >= limit && member.is_none() {
                return Err(PoolError::UnknownCompute { node, limit });
            }
            if member.is_none_or(|member| member.incarnation != incarnation) {
                return Ok(false);
            }
            state.compute_nodes.remove(&node.get());
            state.cards.remove(&PeerId::compute(node.get()).to_raw());
            state.repairer.take_if(|repairer| *repairer == node.get());
            state.forget_in_rebuilds(node.get());
            state.end_barrier_of(node.get());
            Ok(true)
        };
        let (version, was_in) = self.membership.change(leave).await?;
        match self.membership.until_noticed(env, version).await {
            Ok(()) | Err(PoolError::Unresponsive { .. }) => {}
            Err(error) => return Err(error),
        }
        if was_in { Ok(()) } else { Err(PoolError::NotRegistered { node }) }
    }

    /// Continues the incarnations of compute nodes from those of another pool, whose pages this one
    /// gets before it has had a compute node. So names that contain incarnations stay unique.
    ///
    /// # Errors
    /// [`PoolError::Used`] if it has had some; [`PoolError::Control`].
    pub async fn count_on(&self, incarnations: &BTreeMap<u16, u32>) -> Result<(), PoolError> {
        let count = |state: &mut PoolState| {
            // The same incarnations are those of an earlier attempt that ended here.
            if !state.incarnations.is_empty() && state.incarnations != *incarnations {
                return Err(PoolError::Used);
            }
            state.incarnations.clone_from(incarnations);
            Ok(())
        };
        self.membership.change(count).await.map(drop)
    }
}

/// The members.
impl Pool {
    /// Whether this incarnation of a compute node is in the pool.
    #[must_use]
    pub fn is_incarnation(&self, node: ComputeIndex, incarnation: u32) -> bool {
        let state = self.membership.state();
        state.compute_nodes.get(&node.get()).is_some_and(|m| m.incarnation == incarnation)
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

    /// The mailbox in which a compute node receives from the peer `sender`, if it is in the pool:
    /// of its mailboxes the one whose number is the remainder of `sender`.
    #[must_use]
    pub fn mailbox_of(&self, node: ComputeIndex, sender: usize) -> Option<MailboxDescriptor> {
        let state = self.membership.state();
        let mailboxes = &state.compute_nodes.get(&node.get())?.mailboxes;
        mailboxes.get(sender.checked_rem(mailboxes.len())?).map(Into::into)
    }

    /// As [`Pool::mailbox_of`], if the node is this incarnation.
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
}

fn has_card(state: &PoolState, node: ComputeIndex) -> bool {
    state.cards.contains_key(&PeerId::compute(node.get()).to_raw())
}
