//! Close of a compute node: it writes its pages back, returns its lines, and leaves the pool.

use std::sync::atomic::Ordering;
use std::time::Duration;

use selkie_fabric::{BoxFuture, PeerId};
use selkie_pool::{ComputeIndex, NOTICE, PoolError, WaitNotice, units};

use super::engine::Engine;
use crate::cache::frame::FrameId;
use crate::coherence::machine::Event;
use crate::coherence::word::MAX_COMPUTE_NODES;
use crate::core::Core;
use crate::telemetry::stats::EngineStats;
use crate::{EngineError, GAddr};

/// Leases for which a plain pool that has lost memory is waited for: lines there are never given
/// up, but those of a memory node that only stands still are.
const LOST_LEASES: u32 = 2;

impl Core {
    /// The longest wait for a line to be given up, after another was. Lines wait for the log: the
    /// time counts for which that could not be written already.
    fn close_patience(&self) -> Duration {
        let (state, now) = (self.pool.state(), self.env.now());
        let failing = self.log.as_ref().map_or(Duration::ZERO, |log| log.failing_for(now));
        let bound = self.config.request_timeout.saturating_sub(failing);
        let is_dead = || state.memory_nodes.iter().flatten().any(|member| member.dead);
        let is_lost =
            self.memory.coded.is_none() && (self.recovery.doubts.has_dead_memory() || is_dead());
        if is_lost { bound.min(LOST_LEASES * state.timing.lease) } else { bound }
    }

    /// Whether the memory node of a line of a plain pool is dead.
    fn is_home_dead(&self, addr: GAddr) -> bool {
        if self.memory.coded.is_some() {
            return false;
        }
        let home = self.memory.placement.home(addr).map(|home| home.node);
        home.is_some_and(|home| {
            let peer = PeerId::memory(home as u16);
            self.pool.is_memory_dead(home) || self.recovery.doubts.is_memory_dead(peer)
        })
    }

    /// Waits until all that this node has sent to members has arrived: see `recovery::left`. What
    /// was sent over a connection that is lost has not: either the peer goes, or this node ends.
    /// It ends too if a peer takes nothing in for the request timeout.
    async fn until_sent(&self) -> Result<(), EngineError> {
        let started = self.env.now();
        let mailboxes = self.messenger.mailboxes();
        let marks: Vec<_> = mailboxes.iter().map(|mailbox| (mailbox, mailbox.mark())).collect();
        let known: [_; MAX_COMPUTE_NODES] =
            std::array::from_fn(|peer| self.messenger.known_incarnation(peer));
        // A node that has taken over an index since was sent nothing before.
        let is_owed = |peer: usize| {
            let incarnation = known.get(peer).copied().flatten();
            let is_in = |known| self.pool.is_incarnation(ComputeIndex::new(peer as u16), known);
            let is_through =
                || marks.iter().all(|(mailbox, mark)| mailbox.is_through(mark, |to| to == peer));
            incarnation.is_some_and(is_in) && !is_through()
        };
        loop {
            self.settle_doubts();
            self.lifecycle.check_failed()?;
            let owed = (0..MAX_COMPUTE_NODES).find(|peer| is_owed(*peer));
            let owed = owed.map(|peer| PeerId::compute(peer as u16));
            let Some(peer) = owed.or_else(|| self.recovery.doubts.first()) else { return Ok(()) };
            if self.env.now() - started > self.config.request_timeout {
                self.end_unreachable(peer);
            }
            self.env.sleep(self.config.tick).await;
        }
    }
}

impl Core {
    /// Takes this node out of the pool. The control plane may have done so although it did not
    /// answer: then it says that the node is gone when it is told again.
    async fn leave_pool(&self) -> Result<(), PoolError> {
        let (node, started) = (ComputeIndex::new(self.me.index() as u16), self.env.now());
        let mut left = self.pool.leave(&self.env, node, self.own_incarnation()).await;
        while left.as_ref().is_err_and(PoolError::is_retryable)
            && self.env.now() - started <= self.config.request_timeout
        {
            self.env.sleep(self.config.tick).await;
            left = match self.pool.leave(&self.env, node, self.own_incarnation()).await {
                Err(PoolError::NotRegistered { .. } | PoolError::UnknownCompute { .. }) => Ok(()),
                again => again,
            };
        }
        left
    }
}

/// What there is to be told while a node leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaveNotice {
    /// For so long no page went home.
    Silence(Duration),
    /// They do, and have for so long.
    Long(Duration),
}

/// Sees whether pages go home while a node leaves.
struct LeaveWatch {
    /// When one last did.
    moved: Duration,
    remain: usize,
    silence: WaitNotice,
    long: WaitNotice,
}

impl LeaveWatch {
    /// When all that is to go has been sent, which takes seconds for a large cache: that is no time
    /// in which others did not answer. The node has left for as `long`.
    fn new(long: WaitNotice, now: Duration, remain: usize) -> Self {
        Self { moved: now, remain, silence: WaitNotice::new(now), long }
    }

    /// A further round left so many.
    fn round(&mut self, now: Duration, remain: usize) {
        if remain < self.remain {
            self.moved = now;
            // Only a wait without any progress is one that something does not answer.
            self.silence = WaitNotice::new(now);
        }
        self.remain = remain;
    }

    fn due(&mut self, now: Duration) -> Option<LeaveNotice> {
        // Both waits are told of once.
        let long = self.long.due(now).map(LeaveNotice::Long);
        self.silence.due(now).map(LeaveNotice::Silence).or(long)
    }
}

/// Frames of a large cache after which other tasks run.
const PIECE_FRAMES: usize = 8192;

/// Lines without a copy whose words a round of closing clears. Bounds the messages in flight.
const LEAVES_A_ROUND: usize = 1024;

impl Engine {
    /// Leaves the pool: repairs the damaged splits that this node found, refuses new accesses,
    /// writes all pages back and returns unused lines. Requests of other nodes are answered as long
    /// as a handle lives. A second call does nothing, or repeats what failed.
    ///
    /// # Errors
    /// `Timeout` with a line that stayed latched, if no line was given up for the request timeout;
    /// the other lines are written back, and the node stays a member. So it may be during a
    /// recovery, until which the node keeps what it says of lines. `Timeout` too with a line of a
    /// plain pool whose memory node is dead; the node has left then. The error of a node that has
    /// failed, without waiting. `Unreachable` with a member that takes in nothing that this node
    /// sends to it: then this node is out, and recovered from.
    /// `TaskPanicked` at once if a task of the node has panicked: no page is written home.
    pub fn close(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            let core = &self.0;
            self.repair_before_close().await;
            if core.lifecycle.close() && core.lifecycle.is_leaving() {
                return Ok(());
            }
            core.lifecycle.check_panicked()?;
            let started = core.env.now();
            let node = core.endpoint.id();
            tracing::info!(%node, "closing a compute node");
            core.keep_labels().await;
            // An acquisition looks under its shard's lock: none begins from now on.
            core.cache.all_shards().for_each(|shard| drop(shard.lock()));
            let (moved, (mut remain, mut last)) = self.flush().await;
            // The others recover from it as from a dead node.
            core.lifecycle.check_failed()?;
            core.until_doubts_are_settled().await?;
            if last.is_some() {
                // By what is known of memory nodes now.
                (remain, last) = self.flush_round();
            }
            if let Some(addr) = last.filter(|addr| !core.is_home_dead(*addr)) {
                // The others take it that no word names a node that has left, and a rebuild asks
                // only members what they hold.
                let waited = core.env.now() - started;
                let phase =
                    core.cache.shard(addr).lock().get(&addr.to_u64()).map(|open| open.line.phase);
                tracing::warn!(%node, lines = remain, %addr, ?phase, "cannot close: lines are not given up");
                return Err(EngineError::Timeout { addr, waited });
            }
            core.until_sent().await?;
            core.recovery.repairs.retire(&core.env, core.config.request_timeout).await?;
            // Splits that are still read arrive, or their memory nodes are dead.
            while core.cache.late_frames.load(Ordering::Acquire) > 0
                && core.env.now() - moved <= core.config.request_timeout
            {
                core.env.sleep(Duration::from_millis(1)).await;
            }
            // Each step is taken even if an earlier one failed: a node that does not reach all
            // memory nodes must leave the pool, too.
            core.withdraw_snapshots().await;
            // What housekeeping has begun to publish and to mark is written first.
            let turn = core.reclamation.lock().await;
            let absent = core.publish_epoch(0).await;
            let given_back = core.leave_lines().await;
            drop(turn);
            core.lifecycle.set_leaving(true);
            let left = core.leave_pool().await;
            if left.as_ref().is_err_and(PoolError::is_retryable) {
                core.lifecycle.set_leaving(false);
                core.recovery.repairs.reopen();
            }
            let took = core.env.now() - started;
            self.report_close(took, last.map(|_| remain));
            absent.and(given_back).and(left.map_err(EngineError::from))?;
            last.map_or(Ok(()), |addr| Err(EngineError::Timeout { addr, waited: took }))
        })
    }

    /// Repairs the damaged splits that this node has found, because no other node knows of them. A
    /// rebuild of headers may last for any time, so that no repair is begun during one.
    async fn repair_before_close(&self) {
        let core = &self.0;
        let can_repair = core.lifecycle.check_alive().is_ok()
            && !core.config.reads_only
            && !core.only_recovers()
            && core.pool.state().rebuilds.is_empty();
        if let Some(_step) = core.recovery.repairs.begin().filter(|_| can_repair)
            && let Err(error) = core.repair(core.config.request_timeout).await
        {
            tracing::warn!(node = %core.endpoint.id(), %error, "damaged splits are left as they are");
        }
    }

    /// Logs the end of a close, with the number of lines that remain if there are some.
    fn report_close(&self, took: Duration, remain: Option<usize>) {
        let node = self.0.endpoint.id();
        match remain {
            None => {
                let EngineStats { corruptions, repairs, .. } = self.stats();
                tracing::info!(%node, ?took, corruptions, repairs, "closed a compute node");
            }
            Some(lines) => tracing::warn!(%node, ?took, lines, "closed with lines not given up"),
        }
    }

    /// Evicts all lines, as long as some are given up now and then. Returns when the last was, how
    /// many remain, and one of them, as `flush_round` does.
    async fn flush(&self) -> (Duration, (usize, Option<GAddr>)) {
        let core = &self.0;
        let mut long = WaitNotice::new(core.env.now());
        self.send_in_pieces(&mut long).await;
        let (mut remain, mut last) = self.flush_round();
        let mut watch = LeaveWatch::new(long, core.env.now(), remain);
        while remain > 0 {
            let (now, patience) = (core.env.now(), core.close_patience());
            // The others recover from a node that has failed: none answers it any more.
            if now - watch.moved > patience || core.lifecycle.has_failed() {
                break;
            }
            let (node, patience) = (core.endpoint.id(), patience.as_secs());
            match watch.due(now) {
                Some(LeaveNotice::Silence(waited)) => tracing::warn!(
                    %node,
                    "has waited for {} s to leave, for {} to go home, and goes on until none \
                     has for {patience} s: their memory nodes, the log or other nodes do not answer \
                     (`selkie pool status` shows which)",
                    waited.as_secs(),
                    units::plural(remain as u64, "page")
                ),
                Some(LeaveNotice::Long(passed)) => self.tell_long(passed, remain),
                None => {}
            }
            core.env.sleep(Duration::from_millis(1)).await;
            (remain, last) = self.flush_round();
            watch.round(core.env.now(), remain);
        }
        (watch.moved, (remain, last))
    }

    /// Begins to evict the pages of a large cache, which takes seconds: other tasks run meanwhile.
    /// Those of a small one are left to the first round.
    async fn send_in_pieces(&self, long: &mut WaitNotice) {
        let core = &self.0;
        let frames = core.cache.frames.ids().count();
        if frames <= PIECE_FRAMES {
            return;
        }
        for (number, id) in core.cache.frames.ids().enumerate() {
            self.send_home(id);
            if (number + 1).is_multiple_of(PIECE_FRAMES) {
                core.env.yield_now().await;
                if let Some(passed) = long.due(core.env.now()) {
                    let used = core.cache.frames.ids().skip(number);
                    let remain = used.filter(|id| !core.cache.frames.get(*id).addr().is_null());
                    self.tell_long(passed, remain.count());
                }
            }
        }
    }

    fn tell_long(&self, passed: Duration, remain: usize) {
        let (node, passed) = (self.0.endpoint.id(), passed.as_secs());
        tracing::info!(
            target: NOTICE,
            %node,
            "has sent pages home for {passed} s, to leave: {} are still to go",
            units::count(remain as u64)
        );
    }

    /// Evicts the page of a frame if it can be evicted now. Returns its address if it is still
    /// there.
    fn send_home(&self, id: FrameId) -> Option<GAddr> {
        let core = &self.0;
        let addr = core.cache.frames.get(id).addr();
        if addr.is_null() {
            return None;
        }
        let mut batches = Vec::new();
        if core.give_up(addr, Event::Leave, &mut batches) {
            core.post_batches(batches);
        }
        (core.cache.frames.get(id).addr() == addr).then_some(addr)
    }

    /// Evicts all lines that can be evicted now. Returns how many remain, and one of them: of a
    /// memory node that lives, if there is one.
    fn flush_round(&self) -> (usize, Option<GAddr>) {
        let core = &self.0;
        let (mut remain, mut last) = (0, None);
        let mut note = |addr| {
            remain += 1;
            if last.is_none_or(|last| core.is_home_dead(last)) {
                last = Some(addr);
            }
        };
        // Pages move from the cache beyond it.
        let beyond = std::iter::once_with(|| core.cache.frames.ids_beyond_cache()).flatten();
        for id in core.cache.frames.ids().chain(beyond) {
            self.send_home(id).into_iter().for_each(&mut note);
        }
        let (mut batches, mut gathered) = (Vec::new(), 0);
        // A word that is lost with its memory needs no bit taken out.
        let left = core.cache.residual.all().filter(|addr| !core.is_home_dead(*addr));
        for (number, addr) in left.enumerate() {
            note(addr);
            if number >= LEAVES_A_ROUND {
                continue;
            }
            gathered += usize::from(core.give_up(addr, Event::Leave, &mut batches));
            if gathered == core.config.eviction_batch {
                core.post_batches(std::mem::take(&mut batches));
                gathered = 0;
            }
        }
        core.post_batches(batches);
        // Frames may be free before the word says so.
        core.cache.line_under_way().into_iter().for_each(note);
        (remain, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A first round of seconds was taken for memory nodes that do not answer.
    #[test]
    fn only_a_wait_in_which_no_page_goes_home_is_one_without_an_answer() {
        let ms = Duration::from_millis;
        let mut watch = LeaveWatch::new(WaitNotice::new(ms(500)), ms(3_500), 9);
        assert_eq!(watch.due(ms(3_500)), Some(LeaveNotice::Long(ms(3_000))));
        assert_eq!((watch.moved, watch.due(ms(3_600))), (ms(3_500), None));
        watch.round(ms(4_400), 8);
        assert_eq!((watch.moved, watch.due(ms(4_600))), (ms(4_400), None));
        watch.round(ms(5_300), 8);
        assert_eq!(watch.due(ms(5_500)), Some(LeaveNotice::Silence(ms(1_100))));
        watch.round(ms(6_000), 7);
        assert_eq!((watch.moved, watch.due(ms(6_100))), (ms(6_000), None));
        watch.round(ms(12_900), 6);
        let long = watch.due(ms(13_000));
        assert_eq!(long, Some(LeaveNotice::Long(ms(12_500))), "they go, but it takes long");
    }
}
