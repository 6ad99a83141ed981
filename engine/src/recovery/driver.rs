//! Recovery from the death of another compute node: this node's part in it (docs/design.md,
//! Membership and recovery, F1 to F5).
//!
//! ```text
//! pool: node is lost --> fence it --> [fenced] --> handle all its mail --> Lost to every line
//!    --> wait for outstanding operations and inquiries --> acknowledge
//!    --> [all have] --> one sweeps --> [over]
//! ```
//! The state of the pool has the progress of the recovery. Every step may be repeated, so that the
//! others continue when a node dies in one. The sweep (`sweep.rs`) reads the header tables of all
//! memory nodes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_pool::control::PoolState;
use selkie_pool::{ComputeIndex, NOTICE, Observer};

use crate::cache::residual_readers::ResidualReader;
use crate::coherence::machine::Event;
use crate::coherence::word::{ComputeId, NodeSet};
use crate::core::Core;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

/// The interval at which a waiting recovery looks again.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Takes part in recoveries until the engine is gone.
pub(crate) async fn run_recovery(core: Weak<Core>, tick: Duration) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        if core.lifecycle.has_failed() {
            return;
        }
        if core.lifecycle.is_leaving() && !core.is_member_itself() {
            continue;
        }
        #[cfg(feature = "planted")]
        if core.config.planted == crate::Planted::LateDoubts {
            core.settle_doubts();
        }
        let Some(_step) = core.recovery.repairs.begin() else { continue };
        if let Err(error) = core.advance_rebuilds().await {
            tracing::debug!(%error, "rebuild: a step failed");
        }
        // Words that are being rebuilt do not name dead nodes yet.
        let is_quiet = core.rebuilds_are_over();
        let all_lost = core.pool.lost();
        if is_quiet {
            core.wake_backed_off(!all_lost.is_empty());
        }
        if let Err(error) = core.recover_again().await {
            tracing::debug!(%error, "recovery: a step failed");
            core.doubt_after(&error);
        }
        let mut news = NodeSet::EMPTY;
        // Also of this node, if it was declared dead: then it does not go on.
        let all_fenced = all_lost.iter().all(|(_, lost)| lost.fenced);
        for (node, lost) in all_lost {
            let Some(dead) = ComputeId::new(node.as_usize()) else { continue };
            // A step that fails is tried again with the next tick.
            let step = if !lost.fenced {
                core.fence(node).await
            } else if !is_quiet {
                Ok(())
            } else if !lost.acknowledged.contains(&core.index().get()) {
                news = news.with(dead);
                Ok(())
            } else {
                core.sweep_if_due(dead).await
            };
            core.note_step(node, step);
        }
        // Of those that are not fenced yet, lines are to be told as well.
        if let Some(first) = news.iter().next().filter(|_| all_fenced) {
            let step = core.acknowledge_deaths(news).await;
            core.note_step(ComputeIndex::new(first.index() as u16), step);
        }
    }
}

/// Finds out which peers this node does not reach, until the engine is gone. Beside the recoveries:
/// a step of one may wait for a page that cannot go home before such a peer is reached, and so for
/// the end of this node.
pub(crate) async fn run_doubts(core: Weak<Core>, tick: Duration) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        if core.lifecycle.has_failed() {
            return;
        }
        #[cfg(feature = "planted")]
        if core.config.planted == crate::Planted::LateDoubts {
            return;
        }
        if !core.lifecycle.is_leaving() || core.is_member_itself() {
            core.settle_doubts();
        }
    }
}

/// Runs in a task of the pool, which serves all nodes of the process.
impl Observer for Core {
    fn changed(&self, state: &PoolState) -> bool {
        // Operations may be under way while the others let this node act.
        self.observe(|| self.follow_state(state)).unwrap_or_else(|| !self.may_act_in(state))
    }

    fn joined(&self, node: ComputeIndex, incarnation: u32) -> bool {
        self.observe(|| self.make_room_for(node, incarnation)).unwrap_or(true)
    }

    fn gone(&self, node: ComputeIndex) {
        // A node that has panicked answers no other node.
        let _ = self.observe(|| self.disconnect_from(node));
    }
}

impl Core {
    /// Ends this node if `action` panics, and not the pool's task; `None` then.
    fn observe<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        let observed = catch_unwind(AssertUnwindSafe(action));
        observed.map_err(|panic| self.end_and_report("pool", panic)).ok()
    }

    /// As [`Observer::changed`].
    fn follow_state(&self, state: &PoolState) -> bool {
        self.panic_if_planted("pool");
        // First, because a node that takes part in a recovery must have marked.
        self.mark_snapshot_barrier(state);
        // No verb of a fenced node executes any more.
        let is_fenced = self.is_fenced_in(state);
        if !is_fenced && !self.memory.links.follow(state) {
            return false;
        }
        self.memory.placement.update(state) || is_fenced
    }

    /// Makes room for a node that has the index of an earlier one. Nothing of the earlier node is
    /// left in the pool, but this node may have a connection to it and mail from it. Bits that this
    /// node notes as ceded to the earlier node are cleared, and the successor answers so.
    fn make_room_for(&self, node: ComputeIndex, incarnation: u32) -> bool {
        let (index, id) = (node.as_usize(), ComputeId::new(node.as_usize()));
        let known = self.messenger.known_incarnation(index);
        let (Some(before), Some(id)) = (known, id) else { return true };
        if before == incarnation || id == self.me {
            return true;
        }
        let mailbox = self.messenger.mailbox_for(index);
        let _gate = self.recovery.left_gate.lock();
        // The first node of this index may have sent already: its mail is new.
        if before != 0 {
            if mailbox.has_mail_from(index) && !self.lifecycle.has_failed() {
                return false;
            }
            if !self.recovery.dead_nodes().contains(id) && !self.lifecycle.has_failed() {
                self.answer_for(id);
            }
            if mailbox.renew(index).is_err() {
                return true;
            }
        }
        self.recovery.forget_dead(id);
        self.messenger.note_incarnation(index, incarnation);
        self.recovery.forget_left(id);
        true
    }

    /// Disconnects from a node that died. A node that has left answers as long as its process
    /// lives.
    fn disconnect_from(&self, node: ComputeIndex) {
        let index = node.as_usize();
        let is_dead = |id| self.recovery.dead_nodes().contains(id);
        if index != self.me.index() && ComputeId::new(index).is_some_and(is_dead) {
            let _ = self.messenger.mailbox_for(index).disconnect(index);
        }
    }
}

impl Core {
    /// Whether this node was in the pool, and is out or fenced now.
    fn is_fenced_in(&self, state: &PoolState) -> bool {
        let has_entered = self.lifecycle.incarnation().is_some();
        has_entered && !self.may_act_in(state) && !self.lifecycle.is_leaving()
    }

    /// Whether this node is in the pool, or lost and not fenced yet.
    fn may_act_in(&self, state: &PoolState) -> bool {
        let (index, incarnation) = (self.index().get(), self.lifecycle.incarnation());
        let member = state.compute_nodes.get(&index);
        let is_in = member.is_some_and(|member| incarnation == Some(member.incarnation));
        is_in || state.lost.get(&index).is_some_and(|lost| !lost.fenced)
    }
}

fn peer(node: ComputeIndex) -> PeerId {
    PeerId::compute(node.get())
}

impl Core {
    /// Notes the nodes that died before this node joined: they sent it nothing, and it owes them
    /// nothing.
    pub(crate) fn note_earlier_deaths(&self) {
        let (lost, dead) = (self.pool.lost(), self.pool.dead());
        let all = lost.iter().map(|(node, _)| *node).chain(dead);
        let all: NodeSet = all.filter_map(|node| ComputeId::new(node.as_usize())).collect();
        self.recovery.note_dead(all);
        self.recovery.set_recovering(!lost.is_empty());
    }

    /// Whether this node is a member, as it was before its tasks began.
    pub(crate) fn is_member_itself(&self) -> bool {
        self.pool.is_incarnation(self.index(), self.own_incarnation())
    }

    /// This node's incarnation.
    ///
    /// # Panics
    /// If the node has not entered the pool. Its tasks begin after that.
    pub(crate) fn own_incarnation(&self) -> u32 {
        #[expect(clippy::expect_used, reason = "tasks of a node begin when it is in the pool")]
        self.lifecycle.incarnation().expect("this node has not entered the pool")
    }

    /// Fences a dead node (F1).
    async fn fence(&self, node: ComputeIndex) -> Result<(), EngineError> {
        let started = self.env.now();
        if self.pool.fence(node).await? {
            let took = self.env.now() - started;
            tracing::info!(node = %self.endpoint.id(), dead = %peer(node), ?took, "recovery: fenced");
        }
        Ok(())
    }

    /// Notes the error of a step of the recovery from a node.
    fn note_step(&self, node: ComputeIndex, step: Result<(), EngineError>) {
        if let Err(error) = step {
            tracing::debug!(dead = %peer(node), %error, "recovery: a step failed");
            self.doubt_after(&error);
        }
    }

    /// Handles the mail of dead nodes, tells the lines, and acknowledges (F2 to F4). All deaths
    /// that are known are taken note of before pages are waited for: a line that has to go home may
    /// be latched by a caller that waits for a page of another of the dead.
    async fn acknowledge_deaths(self: &Arc<Self>, news: NodeSet) -> Result<(), EngineError> {
        let started = self.env.now();
        for dead in news.iter() {
            let mailbox = self.messenger.mailbox_for(dead.index());
            self.wait_until(|| !mailbox.has_mail_from(dead.index())).await?;
        }
        self.recovery.note_dead(news);
        self.recovery.set_recovering(true);
        let under_way: Vec<GAddr> = news.iter().flat_map(|dead| self.tell_lines(dead)).collect();
        for addr in &under_way {
            self.wait_until(|| self.cache.is_through(*addr) || self.is_interrupted()).await?;
            if self.is_interrupted() {
                return Ok(());
            }
        }
        if !self.bring_claimed_home().await? {
            return Ok(());
        }
        // An operation that did not reach its memory node has not told whether this node's bit is
        // in the word: the sweep would take the bit for a copy. If the memory node lives, this node
        // ends.
        self.until_doubts_are_settled().await?;
        for dead in news.iter() {
            let node = ComputeIndex::new(dead.index() as u16);
            self.pool.acknowledge(node, self.index()).await?;
            let (took, waited_for) = (self.env.now() - started, under_way.len());
            let me = self.endpoint.id();
            tracing::info!(node = %me, dead = %peer(node), ?took, waited_for, "recovery: acknowledged");
        }
        Ok(())
    }

    /// Whether the waits of an acknowledgement have to begin anew: the home of a line may be lost,
    /// and the line is quiesced then until that is rebuilt; or another node has died, and no line
    /// has been told.
    fn is_interrupted(&self) -> bool {
        let told = self.recovery.dead_nodes().with(self.me);
        let is_news = |node: &ComputeIndex| {
            ComputeId::new(node.as_usize()).is_some_and(|node| !told.contains(node))
        };
        self.memory.quiesced.has_suspects()
            || !self.rebuilds_are_over()
            || self.pool.lost().iter().any(|(node, _)| is_news(node))
    }

    /// Writes home the lines that this node has taken over from dead nodes. Home must have the
    /// changes of the dead nodes before their logs are dropped. Returns `false` if it is
    /// interrupted.
    async fn bring_claimed_home(&self) -> Result<bool, EngineError> {
        loop {
            let Some(addr) = self.recovery.claimed.last() else { return Ok(true) };
            let is_here = {
                let _map = self.cache.shard(addr).lock();
                let frame = self.cache.frame_of(addr);
                frame.is_some_and(|id| self.cache.frames.get(id).dirty() == Dirty::ALL)
            };
            if !is_here && !self.cache.is_under_way(addr) {
                self.recovery.claimed.remove(addr);
                continue;
            }
            if self.is_interrupted() {
                return Ok(false);
            }
            if let Some(error) = self.lifecycle.failure() {
                return Err(error.clone());
            }
            self.write_home(addr);
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    /// Whether no rebuild is in progress, and no line of this node is quiesced: such lines are not
    /// told of deaths.
    fn rebuilds_are_over(&self) -> bool {
        self.pool.rebuilds().is_empty() && self.memory.quiesced.rebuilds().is_empty()
    }

    /// Waits until outstanding operations and messages make a condition true.
    ///
    /// # Errors
    /// The error of the engine, if it fails meanwhile.
    pub(crate) async fn wait_until(&self, is_over: impl Fn() -> bool) -> Result<(), EngineError> {
        while !is_over() {
            if let Some(error) = self.lifecycle.failure() {
                return Err(error.clone());
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Feeds `Lost` to every line that may involve the dead node. Returns the lines with an
    /// operation outstanding then.
    fn tell_lines(&self, dead: ComputeId) -> Vec<GAddr> {
        let mut lines: Vec<GAddr> = Vec::new();
        for shard in self.cache.all_shards() {
            lines.extend(shard.lock().keys().map(|addr| GAddr::from_u64(*addr)));
        }
        // Lines at rest: copies that carry a bit of the dead node, and bits that it was to clear.
        // Pages move from the cache beyond it.
        let beyond = std::iter::once_with(|| self.cache.frames.ids_beyond_cache()).flatten();
        for id in self.cache.frames.ids().chain(beyond) {
            let frame = self.cache.frames.get(id);
            if frame.carried().contains(dead) && !frame.addr().is_null() {
                lines.push(frame.addr());
            }
        }
        lines.extend(
            self.cache
                .residual
                .all()
                .filter(|addr| self.cache.residual.get(*addr) == ResidualReader::BitHandedTo(dead)),
        );
        let mut under_way = Vec::new();
        for addr in lines {
            self.with_line(addr, |open| {
                self.run(addr, open, Event::Lost { node: dead }, None);
                open.is_through = !open.line.phase.operation_outstanding();
                if !open.is_through {
                    under_way.push(addr);
                }
            });
        }
        under_way
    }

    /// Sweeps the latch words (F5), at one node, when all have acknowledged.
    async fn sweep_if_due(&self, dead: ComputeId) -> Result<(), EngineError> {
        let node = ComputeIndex::new(dead.index() as u16);
        if !self.pool.claim_sweep(node, self.index()).await? {
            return Ok(());
        }
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::EarlyReuse {
            self.pool.finish_recovery(node, self.index(), &[], &[]).await?;
        }
        let started = self.env.now();
        let lost = match self.sweep(dead).await {
            Ok((swept, images)) => self.redo_or_repair(dead, swept, images.into()).await,
            Err(error) => Err(error),
        };
        let (lost, still) = match lost {
            Ok(both) => both,
            Err(error) => {
                // Another node may reach what this node does not.
                self.pool.leave_sweep(node, self.index()).await?;
                return Err(error);
            }
        };
        let abandoned = !still.is_empty() && self.pool.abandon(node, self.index(), &still).await?;
        if abandoned {
            self.abandon_words(dead, &still).await?;
        }
        let named = if abandoned { &[][..] } else { &still };
        self.pool.finish_recovery(node, self.index(), &lost, named).await?;
        let took_s = format!("{:.1}", (self.env.now() - started).as_secs_f64());
        let (me, dead) = (self.endpoint.id(), peer(node));
        // A person was told of the death.
        tracing::info!(target: NOTICE, node = %me, %dead, took_s, "recovered from a node that died");
        if !still.is_empty() {
            tracing::warn!(%dead, pages = still.len(), "pages are lost with the dead node");
        }
        Ok(())
    }

    /// Wakes callers that backed off from dead nodes whose recovery is over.
    fn wake_backed_off(&self, recovering: bool) {
        if !recovering && self.recovery.end_recovery() {
            for shard in self.cache.all_shards() {
                for open in shard.lock().values_mut() {
                    if open.deaths.backs_off.take().is_some() {
                        open.waiters.signal_all(false);
                    }
                }
            }
        }
    }

    /// Whether the recovery from a node's death is in progress.
    pub(crate) fn recovers_from(&self, dead: ComputeId) -> bool {
        let node = ComputeIndex::new(dead.index() as u16);
        self.pool.is_dead(node) && !self.pool.dead().contains(&node)
    }
}
