//! Drives the coherence machine of every line: opens it, feeds events, carries out actions.
//!
//! A line at rest has no state beside its frame's latch word; the shard's map holds only lines
//! with something under way or somebody waiting. All steps of a line happen under its shard's lock
//! with the frame's latch sealed, verbs and messages are posted under it too (posting never
//! blocks), so operations and messages of a line leave in the order of its steps.
//!
//! Completions that are ready at once (`mem`, `shm`) are handled in place; others by a task of
//! their own, so that an operation belongs to the line and not to the caller that caused it.

use std::time::Duration;

use selkie_channels::ChannelError;
use selkie_fabric::{Buf, Chain, ChainError, FabricError, RemoteAddr, Verb};
use selkie_pool::ComputeIndex;

use crate::addressing::placement::Home;
use crate::cache::dirty::Dirty;
use crate::cache::frames::{Frame, FrameId};
use crate::cache::latch::Permissions;
use crate::cache::residual_readers::ResidualReader;
use crate::cache::shards::LineMap;
use crate::coding::header_versions::{self, VERSIONS_BYTES};
use crate::coherence::machine::{
    Action, Atomic, Deferred, Event, Inquiry, LatchOperation, Line, LocalUse, Message, Phase,
    RequestKind, Rules, WordAccess,
};
use crate::coherence::message::{self, Envelope};
use crate::coherence::open_line::OpenLine;
use crate::coherence::word::{ComputeId, LatchWord, NodeSet};
use crate::core::Core;
use crate::telemetry::stats::Counters;
use crate::{Coherence, EngineError, GAddr};

/// What was not changed between two changes is written with them unless it is as much as a verb
/// more costs.
const LEAST_GAP_BYTES: usize = 256;

/// Latch operations gathered for one memory node, to be posted as one chain.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) chain: Chain,
    pub(crate) lines: Vec<GAddr>,
}

impl Core {
    /// Takes a line out of its shard for a step, its latch sealed. [`Core::close`] puts it back.
    pub(crate) fn open(&self, map: &mut LineMap, addr: GAddr) -> OpenLine {
        let mut active = map.remove(&addr.to_u64()).unwrap_or_else(|| {
            let frame = self.cache.table.lookup(&self.cache.frames, addr);
            let left =
                if frame.is_none() { self.cache.residual.get(addr) } else { ResidualReader::None };
            let left_with = match left {
                // Who leaves the pool takes every bit in its care out of the words first; who dies
                // does not.
                ResidualReader::BitHandedTo(to) if self.has_left(to) => ResidualReader::None,
                left => left,
            };
            let phase =
                match (frame.map(|f| self.cache.frames.get(f).latch.permissions()), left_with) {
                    (Some((true, true)), _) => Phase::Modified,
                    (Some((true, false)), _) => Phase::Shared,
                    (_, ResidualReader::Bit) => Phase::Lapsed,
                    (_, ResidualReader::BitHandedTo(to)) => Phase::Ceded { to },
                    (_, ResidualReader::None) => Phase::Invalid,
                };
            let mut line = Line::resting(phase);
            line.carried = frame.map_or(NodeSet::EMPTY, |f| self.cache.frames.get(f).carried());
            OpenLine::resting(line, frame, left)
        });
        active.lost = None;
        let keeps = active.line.phase == Phase::WriteBack;
        active.allowed = (active.line.readable(), keeps || active.line.writable());
        active.refused = false;
        active.woken = false;
        active.seen =
            active.frame.map_or(LocalUse::Idle, |f| self.cache.frames.get(f).latch.seal());
        active
    }

    fn has_left(&self, node: ComputeId) -> bool {
        let index = ComputeIndex::new(node.index() as u16);
        !self.pool.is_member(index) && !self.pool.is_dead(index)
    }

    /// Puts a line back: publishes what its state allows, keeps what is not at rest, frees the
    /// frame of a line without copy.
    pub(crate) fn close(&self, map: &mut LineMap, addr: GAddr, mut active: OpenLine) {
        let (mut was_in_use, mut is_refused) = (false, false);
        loop {
            was_in_use |= active.seen != LocalUse::Idle;
            if active.damaged.is_some() {
                self.give_back_damaged(addr, &mut active);
            }
            let whole = active.damaged.is_none();
            let plain = whole && active.line.is_plain() && active.waiters.is_empty();
            let gone = plain && active.line.phase.without_copy();
            if gone && active.seen == LocalUse::Idle {
                if let Some(frame) = active.frame {
                    self.cache.release_frame(addr, frame);
                }
                return self.note_left(addr, &active);
            }
            if active.line.deferred.is_empty() && self.caches() {
                active.accesses = 0;
            }
            let Some(frame) = active.frame else { break };
            self.keep_time(addr, &mut active, frame);
            // First: what is durable by then is seen to be below.
            self.keep_for_log(addr, &active);
            // A node that has failed may be dead for the others: its copies are old.
            let serves = whole && !self.lifecycle.has_failed();
            let permissions = Permissions {
                readable: serves && active.line.readable(),
                writable: serves && active.line.writable(),
                // A line that was lost (its memory is dead) under a local latch goes with the
                // latch. A page that is not kept goes with the latch, too.
                pending: !active.waiters.is_empty()
                    || !active.line.deferred.is_empty()
                    || gone
                    || !self.caches()
                    || self.is_claimed(addr),
            };
            let now = self.cache.frames.get(frame).latch.publish(permissions);
            let gives_up = self.gives_up(&active) || self.goes_home(addr, &active);
            if now == LocalUse::Idle && gives_up && !is_refused && !self.is_quiesced(addr, &active)
            {
                active.seen = self.cache.frames.get(frame).latch.seal();
                active.accesses = 0;
                let before = active.line.phase;
                self.run(addr, &mut active, Event::Evict, None);
                // What the machine does not do now it would not do the next time either.
                is_refused = active.line.phase == before;
                continue;
            }
            if plain && !gone {
                self.cache.frames.get(frame).set_carried(active.line.carried);
                return self.note_left(addr, &active);
            }
            if now != LocalUse::Idle {
                break;
            }
            if self.must_answer(&active) && !self.is_quiesced(addr, &active) {
                active.seen = self.cache.frames.get(frame).latch.seal();
                self.run(addr, &mut active, Event::LocalFree, None);
            } else {
                // Who let go between seal and publish, of any of the rounds, did not know that
                // somebody waits.
                if was_in_use {
                    active.waiters.signal_all(false);
                }
                break;
            }
        }
        map.insert(addr.to_u64(), active);
    }

    /// Nobody gets the page here, or from here; the next one who wants it looks anew.
    fn give_back_damaged(&self, addr: GAddr, active: &mut OpenLine) {
        self.answer_not_held(addr, active);
        let rests = active.line.phase.at_rest() && active.line.grantor.is_none();
        if rests && active.seen == LocalUse::Idle && !self.is_quiesced(addr, active) {
            if !active.line.phase.without_copy() {
                self.run(addr, active, Event::Leave, None);
            }
            if active.line.phase.at_rest() && active.line.phase.without_copy() {
                active.damaged = None;
            }
        }
    }

    /// Nobody is granted a page that could not be put together; `true` if that was all the event
    /// asked for.
    fn refuse_damaged(&self, addr: GAddr, active: &mut OpenLine, event: Event) -> bool {
        let asked = match event {
            Event::Received { from, message: Message::Request(request) } => {
                active.line.deferred.push(Deferred { from, request });
                true
            }
            _ => false,
        };
        self.answer_not_held(addr, active);
        asked
    }

    fn answer_not_held(&self, addr: GAddr, active: &mut OpenLine) {
        for asked in std::mem::take(&mut active.line.deferred) {
            let header = message::encode(addr, Message::NotHeld { holder: None }, Dirty::NONE);
            // The asker has its own bound; there is nobody else to tell.
            let _ = self.messenger.deliver(asked.from, &header, &[]);
        }
    }

    /// A line that comes to rest without a copy leaves nothing behind but its bit in the word.
    fn note_left(&self, addr: GAddr, active: &OpenLine) {
        let left = match active.line.phase {
            Phase::Lapsed => ResidualReader::Bit,
            Phase::Ceded { to } => ResidualReader::BitHandedTo(to),
            _ => ResidualReader::None,
        };
        if left != active.residual {
            self.cache.residual.set(addr, left);
        }
    }

    /// Whether pages outlive the latches for which they were fetched.
    pub(crate) fn caches(&self) -> bool {
        self.config.coherence != Coherence::Sel
    }

    /// Whether an idle page is to be given up at once: it has served somebody, or nobody wants it.
    fn gives_up(&self, active: &OpenLine) -> bool {
        !self.caches()
            && !self.waits_for_log(active)
            && matches!(active.line.phase, Phase::Shared | Phase::Modified)
            && (active.accesses > 0 || active.waiters.is_empty() || self.lifecycle.is_suspended())
    }

    /// Whether the line was taken over from a dead node, and a recovery waits for it to be home.
    fn is_claimed(&self, addr: GAddr) -> bool {
        self.log.is_some() && self.recovery.claimed.contains(addr)
    }

    /// Whether an idle page is to be given up as a recovery waits for that, before somebody latches
    /// it again who may himself wait for the recovery.
    fn goes_home(&self, addr: GAddr, active: &OpenLine) -> bool {
        active.line.phase == Phase::Modified
            && active.line.grantor.is_none()
            // Who asked for it gets it by way of its home.
            && active.line.deferred.is_empty()
            && active.waiters.next_is_writer().is_none()
            && !self.waits_for_log(active)
            && self.is_claimed(addr)
    }

    /// Whether the deferred requests of an idle line have their turn: local waiters that the
    /// present state can serve go first, until γ accesses have been served since another node
    /// asked (SELCC §5.3).
    fn must_answer(&self, active: &OpenLine) -> bool {
        let line = &active.line;
        let settled = line.phase.at_rest() && line.grantor.is_none()
            // A directory may take the copy from a node that has asked it for more.
            || self.config.coherence == Coherence::Rpc;
        if line.deferred.is_empty() || !settled || self.waits_for_log(active) {
            return false;
        }
        if self.gamma_used_up(active) {
            Counters::add(&self.telemetry.counters.gamma_hand_overs);
            return true;
        }
        match self.next_is_writer(active) {
            None => !self.is_held(active),
            Some(writer) => !(if writer { line.writable() } else { line.readable() }),
        }
    }

    /// What the waiter wants who is next, whether to write; nobody is while the node is suspended.
    fn next_is_writer(&self, active: &OpenLine) -> Option<bool> {
        if self.lifecycle.is_suspended() { None } else { active.waiters.next_is_writer() }
    }

    /// Whether local accesses have to make way for a deferred request.
    pub(crate) fn gamma_used_up(&self, active: &OpenLine) -> bool {
        !active.line.deferred.is_empty()
            && active.accesses >= u64::from(self.config.gamma) * u64::from(self.config.threads)
    }

    /// Looks who is in the frame, and says who uses the local copy or is next to.
    pub(crate) fn refresh_use(&self, active: &mut OpenLine) -> LocalUse {
        if let Some(frame) = active.frame {
            active.seen = self.cache.frames.get(frame).latch.in_use();
        }
        self.local_use(active)
    }

    /// Who uses the local copy or is next to: a waiter that was told to go on would find the line
    /// gone again if other nodes went first.
    fn local_use(&self, active: &OpenLine) -> LocalUse {
        if self.waits_for_log(active) {
            // As if it were still being changed.
            return LocalUse::Writer;
        }
        if active.seen != LocalUse::Idle || self.gamma_used_up(active) || !self.caches() {
            return active.seen;
        }
        match self.next_is_writer(active) {
            None if self.is_held(active) && active.line.writable() => LocalUse::WriterNext,
            None if self.is_held(active) => LocalUse::ReaderNext,
            None => LocalUse::Idle,
            Some(false) => LocalUse::ReaderNext,
            Some(true) => LocalUse::WriterNext,
        }
    }

    /// Who does not wait for a latch is not to be refused for a page nobody uses; and the node
    /// itself may give up what it has only just got.
    fn without_hold(&self, active: &OpenLine, event: Event, local: LocalUse) -> LocalUse {
        let is_at_once = match event {
            Event::Received { message: Message::Request(request), .. } => request.nowait,
            Event::Evict | Event::WriteBack | Event::Leave => true,
            _ => false,
        };
        let nobody = active.seen == LocalUse::Idle
            && self.next_is_writer(active).is_none()
            && !self.waits_for_log(active);
        if is_at_once && nobody { LocalUse::Idle } else { local }
    }

    /// Whether the line was changed and what was recorded of that may not leave yet.
    fn waits_for_log(&self, active: &OpenLine) -> bool {
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::UnloggedGrant {
            return false;
        }
        let (Some(log), Some(frame)) = (&self.log, active.frame) else { return false };
        !log.may_leave(self.cache.frames.get(frame).lsn())
    }

    /// Sees to it that a line that would leave if it were not for the log is looked at when it may.
    fn keep_for_log(&self, addr: GAddr, active: &OpenLine) {
        if active.line.deferred.is_empty() && self.caches() || !self.waits_for_log(active) {
            return;
        }
        if let (Some(log), Some(frame)) = (&self.log, active.frame) {
            log.hold_back(addr, self.cache.frames.get(frame).lsn());
        }
    }

    /// Whether the line has its right so lately that others have to wait
    /// ([`crate::EngineConfig::hold`]).
    fn is_held(&self, active: &OpenLine) -> bool {
        !self.config.hold.is_zero() && !self.hold_left(active).is_zero()
    }

    fn hold_left(&self, active: &OpenLine) -> Duration {
        let Some(frame) = active.frame.filter(|_| active.line.readable()) else {
            return Duration::ZERO;
        };
        let until = self.cache.frames.get(frame).right_since() + self.config.hold;
        until.saturating_sub(self.env.now())
    }

    /// Notes when a right came, and sees to it that a line whose time is not over is looked at
    /// then.
    fn keep_time(&self, addr: GAddr, active: &mut OpenLine, frame: FrameId) {
        if self.config.hold.is_zero() {
            return;
        }
        let (readable, writable) = (active.line.readable(), active.line.writable());
        if readable && !active.allowed.0 || writable && !active.allowed.1 {
            self.cache.frames.get(frame).set_right_since(self.env.now());
        }
        active.allowed = (readable, writable);
        if active.line.deferred.is_empty() || active.timed {
            return;
        }
        let left = self.hold_left(active);
        if left.is_zero() {
            return;
        }
        let Some(core) = self.this.upgrade() else { return };
        active.timed = true;
        drop(self.env.spawn("hold", async move {
            core.env.pause(left).await;
            let mut map = core.cache.shard(addr).lock();
            let mut active = core.open(&mut map, addr);
            active.timed = false;
            core.close(&mut map, addr, active);
        }));
    }

    /// Feeds one event, carries out the actions, and goes on with completions that are ready at
    /// once. With a batch, latch operations are gathered there instead of posted.
    pub(crate) fn run(
        &self,
        addr: GAddr,
        active: &mut OpenLine,
        event: Event,
        mut batch: Option<&mut Vec<Batch>>,
    ) {
        if self.config.coherence == Coherence::Rpc {
            return self.run_client(addr, active, event);
        }
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if self.is_quiesced(addr, active) {
                return self.run_quiesced(addr, active, event);
            }
            if active.damaged.is_some() && self.refuse_damaged(addr, active, event) {
                return;
            }
            let is_over = matches!(event, Event::Completed { .. });
            if self.rules.home_first && is_over && goes_home(active.line.phase) {
                // What it has taken over is home.
                self.recovery.claimed.remove(addr);
            }
            let local = self.refresh_use(active);
            let local = self.without_hold(active, event, local);
            // Acquire, as below: who finds the recovery under way finds the lines as the sweep may
            // see them.
            let recovering = self.recovery.is_recovering();
            let rules = Rules { dead: self.recovery.dead_nodes(), recovering, ..self.rules };
            let actions = match active.line.step(&rules, self.me, event, local) {
                Ok(actions) => actions,
                Err(source) => return self.fail(active, EngineError::Protocol { addr, source }),
            };
            let mut wake = false;
            for action in actions {
                match action {
                    Action::Post(operation) => {
                        match batch.as_deref_mut() {
                            // Batches are told apart by what their atomics found.
                            // What is coded goes home in steps.
                            Some(batch)
                                if matches!(operation.word, WordAccess::Change(_))
                                    && !(operation.write_back && self.memory.coded.is_some()) =>
                            {
                                self.gather(addr, active, operation, batch)
                            }
                            _ => next = self.post(addr, active, operation),
                        }
                        self.free_early(addr, active);
                    }
                    Action::Send { to, message } => self.send(addr, active, to, message),
                    Action::BackOff { dead } => self.back_off(addr, active, dead),
                    Action::Wake => wake = true,
                    Action::Refuse => {
                        active.refused = true;
                        wake = true;
                    }
                }
            }
            if wake {
                active.woken = true;
                active.waiters.signal_all(active.refused);
            }
        }
    }

    /// The word names a dead node: who wants the line waits for the end of the recovery, or, if
    /// that is over, learns that the line is lost.
    fn back_off(&self, addr: GAddr, active: &mut OpenLine, dead: ComputeId) {
        if self.recovers_from(dead) {
            active.backs_off = Some(dead);
            return;
        }
        // The word may have been read before the recovery was over: one more look tells.
        if active.doubted.replace(dead) != Some(dead) {
            return;
        }
        let error = EngineError::PageLost { addr, node: dead.index() };
        active.waiters.fail_all(&error);
        active.lost = Some(error);
    }

    /// Posts a latch operation; its completion event if it is ready at once.
    fn post(&self, addr: GAddr, active: &mut OpenLine, operation: LatchOperation) -> Option<Event> {
        if let Some(coded) = &self.memory.coded {
            return self.post_coded(coded, addr, active, operation);
        }
        let home = self.home_of(addr, active)?;
        let mut chain = Chain::new();
        self.build(&home, active, operation, &mut chain);
        let queue_pair = self.memory.queue_pair(home.node);
        let mut completion = queue_pair.post(chain);
        match completion.try_take() {
            Some(result) => self.completed(addr, active, result),
            None => {
                let core = self.this.upgrade()?;
                drop(self.env.spawn("latch operation", async move {
                    let result = completion.await;
                    let mut map = core.cache.shard(addr).lock();
                    let mut active = core.open(&mut map, addr);
                    if let Some(event) = core.completed(addr, &mut active, result) {
                        core.run(addr, &mut active, event, None);
                    }
                    core.close(&mut map, addr, active);
                }));
                None
            }
        }
    }

    fn gather(
        &self,
        addr: GAddr,
        active: &mut OpenLine,
        op: LatchOperation,
        batch: &mut Vec<Batch>,
    ) {
        let Some(home) = self.home_of(addr, active) else { return };
        // It has as many as have been needed so far.
        if batch.len() <= home.node {
            batch.resize_with(home.node + 1, Batch::default);
        }
        if let Some(batch) = batch.get_mut(home.node) {
            self.build(&home, active, op, &mut batch.chain);
            batch.lines.push(addr);
        }
    }

    pub(crate) fn home_of(&self, addr: GAddr, active: &mut OpenLine) -> Option<Home> {
        let home = self.memory.placement.home(addr);
        if home.is_none() {
            self.fail(active, EngineError::BadAddress { addr });
        }
        home
    }

    /// Appends `[write the dirty bytes]* [atomic]? [read the page]?`.
    fn build(&self, home: &Home, active: &mut OpenLine, op: LatchOperation, chain: &mut Chain) {
        let operation = op;
        if let (Phase::Rejoin, Some(id)) = (active.line.phase, active.frame) {
            // What home has may be torn, all of it.
            self.cache.frames.get(id).set_dirty(Dirty::ALL);
        }
        if let Some(id) = active.frame.filter(|_| operation.write_back) {
            let dirty = self.dirty_of(id);
            if !dirty.is_empty() {
                Counters::add(&self.telemetry.counters.write_backs);
                active.homing = self.cache.frames.get(id).unhomed();
                active.copied = is_given_away(active.line.phase) && self.may_copy();
            }
            let mut last_word = None;
            for dirty in dirty.stretches(self.cache.gcl_bytes(), LEAST_GAP_BYTES) {
                let at = RemoteAddr::new(home.page.region, home.page.offset + dirty.start as u64);
                last_word = Some(home.page.offset + dirty.end as u64 - 8);
                let from = if active.copied {
                    // SAFETY: the line is being evicted: the latch is sealed and nobody is in.
                    let page = unsafe { self.cache.page(id) };
                    Buf::copy_of(page.get(dirty).unwrap_or_default())
                } else {
                    // SAFETY: the line's operation is outstanding, so nobody writes the frame, and
                    // it is not reused before the completion; readers may share it.
                    unsafe { self.cache.frames.lease(id, dirty) }
                };
                self.push_write_back(home.node, Verb::Write { at, from }, chain);
            }
            if let (Some(offset), WordAccess::Skip) = (last_word, operation.word) {
                // With no change of the word behind it, it is in place when it can be read.
                let at = RemoteAddr::new(home.page.region, offset);
                chain.push(Verb::read(at, Buf::zeroed(8)));
            }
        }
        push_word(chain, home.latch, operation.word);
        if let Some(id) = active.frame.filter(|_| operation.read) {
            // SAFETY: a line that fetches is not readable: nobody else touches the frame until
            // the completion.
            let into = unsafe { self.cache.frames.lease(id, 0..self.cache.gcl_bytes()) };
            chain.push(Verb::Read { at: home.page, into });
        }
    }

    /// What of a page goes home.
    pub(crate) fn dirty_of(&self, id: FrameId) -> Dirty {
        match self.cache.frames.get(id).dirty() {
            dirty if dirty.is_empty() || self.config.dirty_bounds => dirty,
            _ => Dirty::ALL,
        }
    }

    /// Whether a dirty page that leaves may be copied: as many copies are under way as there may
    /// be.
    pub(crate) fn may_copy(&self) -> bool {
        self.config.send_ring && self.cache.begin_copy()
    }

    /// The operation that took a copy along is over.
    pub(crate) fn write_done(&self, active: &mut OpenLine) {
        active.homing = 0;
        if std::mem::take(&mut active.copied) {
            self.cache.end_copy();
        }
    }

    /// Frees the frame of a line that is on its way out and whose page nobody needs here any more.
    fn free_early(&self, addr: GAddr, active: &mut OpenLine) {
        if !self.config.send_ring || active.seen != LocalUse::Idle {
            return;
        }
        let free = match active.line.phase {
            Phase::HandOver { .. } if !self.rules.home_first => true,
            Phase::ReleaseShared => true,
            phase if is_given_away(phase) => {
                active.copied
                    || active.frame.is_some_and(|id| self.cache.frames.get(id).dirty().is_empty())
            }
            _ => false,
        };
        if let Some(frame) = active.frame.take_if(|_| free) {
            self.cache.release_frame(addr, frame);
        }
    }

    /// The write-back goes before the atomic that gives the page up, on the same queue pair.
    #[cfg(not(feature = "planted"))]
    fn push_write_back(&self, _node: usize, write: Verb, chain: &mut Chain) {
        chain.push(write);
    }

    /// As above, unless a planted bug takes it elsewhere.
    #[cfg(feature = "planted")]
    fn push_write_back(&self, node: usize, write: Verb, chain: &mut Chain) {
        match (self.config.planted, &write, self.memory.links.loose(node)) {
            (crate::Planted::LooseWriteBack, Verb::Write { at, from }, Some(loose)) => {
                // A copy: the frame is only lent for as long as the latch operation lasts.
                let copy = Verb::write(*at, selkie_fabric::Buf::copy_of(from));
                drop(loose.post(Chain::from(copy)));
            }
            _ => chain.push(write),
        }
    }

    /// The event of a completed operation; errors end the waits for the line.
    pub(crate) fn completed(
        &self,
        addr: GAddr,
        active: &mut OpenLine,
        result: Result<Chain, Box<ChainError>>,
    ) -> Option<Event> {
        self.write_done(active);
        match result {
            Ok(chain) => {
                let looks = active.line.phase.looks();
                let old = if looks {
                    seen_word(&chain)
                } else {
                    // A chain that leaves the word alone has found nothing, and is asked for
                    // nothing.
                    old_values(&chain).next().unwrap_or(LatchWord::FREE)
                };
                self.note_looks(active, old);
                Some(self.completed_with(active, old))
            }
            Err(failed) if stays_dirty(active.line.phase, &failed.error) => Some(NOTHING_FOUND),
            Err(error) => {
                self.fail_line(addr, active, &EngineError::Fabric(error.error));
                None
            }
        }
    }

    /// Takes note of what the word was. What follows a look says nothing new.
    pub(crate) fn note_looks(&self, active: &mut OpenLine, old: LatchWord) {
        let looks = active.line.phase.looks();
        if !std::mem::replace(&mut active.looked, looks) {
            self.telemetry.contention.learn(self.me, active.line.phase, old);
        }
    }

    /// The event of an operation whose atomic found `old`.
    pub(crate) fn completed_with(&self, active: &OpenLine, old: LatchWord) -> Event {
        // Whatever was written back is home now; whatever was read is what home has.
        let Some(id) = active.frame else { return Event::Completed { old } };
        match active.line.phase {
            // What home has of a line that a dead node granted may be torn.
            Phase::Claim { .. } if !self.rules.home_first => {
                self.cache.frames.get(id).set_dirty(Dirty::ALL);
            }
            Phase::Claim { .. } | Phase::Inquire { of: Inquiry::Modified, .. }
                if self.rules.home_first =>
            {
                self.cache.frames.get(id).set_dirty(Dirty::ALL);
                self.recovery.claimed.add(self.cache.frames.get(id).addr());
            }
            phase if goes_home(phase) => self.is_home(id),
            Phase::Downgrade { .. } | Phase::Rejoin => self.is_home(id),
            _ => {}
        }
        Event::Completed { old }
    }

    /// All that was changed of a page is home.
    fn is_home(&self, id: FrameId) {
        self.cache.frames.get(id).set_dirty(Dirty::NONE);
        self.cache.frames.get(id).set_unhomed(0);
    }

    /// Sends a message about a line; grants take the page along.
    fn send(&self, addr: GAddr, active: &mut OpenLine, to: ComputeId, message: Message) {
        let mut dirty = Dirty::NONE;
        let mut page: &[u8] = &[];
        self.count_sent(addr, active, message);
        if let Some(id) = active.frame.filter(|_| message::carries_page(message)) {
            if message == Message::GrantModified && !self.rules.home_first {
                dirty = self.cache.frames.get(id).dirty();
            }
            // SAFETY: the latch is sealed and no writer is in (the machine grants only then), so
            // the bytes are stable while the shard's lock is held.
            page = unsafe { self.cache.page(id) };
        }
        let mut header = [0; message::HEADER_BYTES + VERSIONS_BYTES];
        let (own, more) = header.split_at_mut(message::HEADER_BYTES);
        own.copy_from_slice(&message::encode(addr, message, dirty));
        let more = match (&self.memory.coded, active.frame) {
            (Some(coded), Some(id)) if message == Message::GrantModified => {
                let goes_home = self.rules.home_first && !self.dirty_of(id).is_empty();
                // Those that it gets on its way home are in the header then.
                let versions = if goes_home {
                    header_versions::unknown_versions()
                } else {
                    coded.versions_of(id)
                };
                more.copy_from_slice(&header_versions::versions_bytes(&versions));
                VERSIONS_BYTES
            }
            _ => 0,
        };
        let header = header.get(..message::HEADER_BYTES + more).unwrap_or_default();
        match self.messenger.deliver(to, header, page) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => {
                // Its death, when that is known, ends the wait; one that has left is not to be
                // waited for. What a lost peer was to be answered is for its recovery: the line
                // here goes on as if the answer had come, its state is what the word says of this
                // node.
                if matches!(message, Message::Request(_)) && self.has_left(to) {
                    self.fail_line(addr, active, &error);
                }
            }
            Err(error) if matches!(message, Message::Request(_)) => {
                self.fail_line(addr, active, &error);
            }
            // An answer that a living peer does not get would leave it waiting.
            Err(error) => {
                active.waiters.fail_all(&error);
                self.lifecycle.fail(error);
            }
        }
    }

    fn count_sent(&self, addr: GAddr, active: &OpenLine, message: Message) {
        let counters = &self.telemetry.counters;
        Counters::add(&counters.messages);
        match message {
            Message::Request(request) if request.kind != RequestKind::Read => {
                Counters::add(&counters.invalidations_sent);
            }
            Message::GrantShared if active.frame.is_some() => Counters::add(&counters.downgrades),
            Message::GrantModified if active.frame.is_some() => self.count_invalidation(addr),
            Message::Released => self.count_invalidation(addr),
            _ => {}
        }
    }

    /// A copy is given up because another node asked for it.
    pub(crate) fn count_invalidation(&self, addr: GAddr) {
        Counters::add(&self.telemetry.counters.invalidations);
        self.telemetry.hottest.note(addr);
    }

    /// A message from another node.
    pub(crate) fn receive(&self, from: usize, bytes: &[u8]) -> Result<(), EngineError> {
        let mail = |what| EngineError::Mail { from, what };
        if from >= self.pool.descriptor().max_compute_nodes {
            return self.receive_from_directory(from, bytes);
        }
        let versions = if self.memory.coded.is_some() { VERSIONS_BYTES } else { 0 };
        let (envelope, versions, page) =
            message::decode(bytes, self.cache.gcl_bytes(), versions).map_err(mail)?;
        let Envelope { addr, message, dirty } = envelope;
        let from = ComputeId::new(from).ok_or(mail("sender is no node"))?;
        if self.memory.placement.home(addr).is_none() {
            return Err(mail("about an address outside the pool"));
        }
        let mut map = self.cache.shard(addr).lock();
        let mut active = self.open(&mut map, addr);
        if message::carries_page(message) {
            self.accept_page(&active, from, page, dirty, versions);
        }
        self.run(addr, &mut active, Event::Received { from, message }, None);
        self.close(&mut map, addr, active);
        Ok(())
    }

    /// Puts a granted page into the frame that waits for it.
    fn accept_page(
        &self,
        active: &OpenLine,
        sender: ComputeId,
        page: &[u8],
        dirty: Dirty,
        versions: &[u8],
    ) {
        let asked = match active.line.phase {
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } => holder == sender,
            _ => false,
        };
        // The machine refuses a grant nobody asked for; the frame must not take it either.
        let Some(id) = active.frame.filter(|_| asked) else { return };
        // SAFETY: a line that waits for a grant is not readable and has no local users; the
        // shard's lock is held.
        let own = unsafe { self.cache.page_mut(id) };
        own.copy_from_slice(page);
        self.cache.frames.get(id).set_dirty(dirty);
        if let Some(coded) = &self.memory.coded
            && !versions.is_empty()
        {
            coded.set_versions(id, &header_versions::versions_from(versions));
        }
    }

    /// A protocol violation: this engine can serve nothing more.
    fn fail(&self, active: &mut OpenLine, error: EngineError) {
        active.waiters.fail_all(&error);
        if matches!(error, EngineError::Protocol { .. }) {
            self.lifecycle.fail(error);
        }
    }

    /// The line's memory or a peer cannot be reached: ends the waits, forgets the copy.
    pub(crate) fn fail_line(&self, addr: GAddr, active: &mut OpenLine, error: &EngineError) {
        active.waiters.fail_all(error);
        active.lost = Some(error.clone());
        if self.config.coherence == Coherence::Rpc {
            active.line.deferred.clear();
        }
        self.answer_not_held(addr, active);
        active.line = active.line.forgotten();
    }

    /// Latches a sealed frame for an access that the line's state allows.
    pub(crate) fn latch_sealed(frame: &Frame, exclusive: bool) -> bool {
        if exclusive { frame.latch.try_exclusive_sealed() } else { frame.latch.try_shared_sealed() }
    }
}

/// Whether the page is written back, if it is, because the node gives it away.
pub(crate) fn is_given_away(phase: Phase) -> bool {
    matches!(phase, Phase::ReleaseModified | Phase::HandOver { .. })
}

/// Whether it is the page's holder who writes it back, and all of it.
fn goes_home(phase: Phase) -> bool {
    is_given_away(phase) || phase == Phase::WriteBack
}

/// The end of an operation that has left the word alone.
pub(crate) const NOTHING_FOUND: Event = Event::Completed { old: LatchWord::FREE };

/// Whether a page whose write-back failed like that is still to go home: the copy here is the only
/// one.
fn stays_dirty(phase: Phase, failed: &FabricError) -> bool {
    phase == Phase::WriteBack && !matches!(failed, FabricError::PeerDead { .. })
}

/// Whether a message could not be delivered because its addressee is not there any more.
fn is_gone(error: &EngineError) -> bool {
    let dead = |source: &ChannelError| {
        matches!(
            source,
            ChannelError::PeerLost { .. }
                | ChannelError::Fabric(
                    FabricError::PeerDead { .. } | FabricError::UnknownPeer { .. }
                )
        )
    };
    match error {
        EngineError::Pool(_) => true,
        EngineError::Message { source, .. } => dead(source),
        _ => false,
    }
}

/// What an operation does to the latch word.
pub(crate) fn push_word(chain: &mut Chain, latch: RemoteAddr, word: WordAccess) {
    match word {
        WordAccess::Change(Atomic::Add(delta)) => {
            chain.push(Verb::fetch_and_add(latch, delta.bits()));
        }
        WordAccess::Change(Atomic::Swap { expected, desired }) => {
            chain.push(Verb::compare_and_swap(latch, expected.bits(), desired.bits()));
        }
        WordAccess::Look => chain.push(Verb::read(latch, Buf::zeroed(8))),
        WordAccess::Skip => {}
    }
}

/// The word that a look has read.
fn seen_word(chain: &Chain) -> LatchWord {
    let word = chain.buf(0).and_then(|buf| buf.words().first().copied());
    LatchWord::from_bits(u64::from_le(word.unwrap_or_default()))
}

/// The values that the atomics of a batch found, in order.
pub(crate) fn old_values(chain: &Chain) -> impl Iterator<Item = LatchWord> {
    chain.verbs.iter().filter_map(Verb::old).map(LatchWord::from_bits)
}
