//! Drives the coherence machine of every line: opens it, feeds events, carries out actions.
//!
//! A line at rest has no state beside its frame's latch word; the shard's map holds only lines
//! with something under way or somebody waiting. All steps of a line happen under its shard's lock
//! with the frame's latch sealed, verbs and messages are posted under it too (posting never
//! blocks), so operations and messages of a line leave in the order of its steps.
//!
//! Completions that are ready at once (`mem`, `shm`) are handled in place; others by a task of
//! their own, so that an operation belongs to the line and not to the caller that caused it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use selkie_channels::ChannelError;
use selkie_fabric::{Buf, Chain, ChainError, FabricError, RemoteAddr, Verb};
use selkie_memnode::ComputeIndex;

use crate::buffer::dirty::Dirty;
use crate::buffer::frames::{Frame, FrameId};
use crate::buffer::latch::Permissions;
use crate::coding::{self, VERSIONS_BYTES};
use crate::coherence::machine::{
    Action, Atomic, Deferred, Event, Inquiry, LatchOperation, Line, LocalUse, Message, Phase,
    RequestKind, Rules, WordAccess,
};
use crate::coherence::word::{ComputeId, LatchWord, NodeSet};
use crate::core::{Core, LineMap};
use crate::left::Left;
use crate::log::Lsn;
use crate::message::{self, Envelope};
use crate::placement::Home;
use crate::stats::Counters;
use crate::waiters::Waiters;
use crate::{Coherence, EngineError, GAddr};

/// Copies of dirty pages that may be on their way home at a time; pages beyond that keep their
/// frames until they are there.
const SEND_RING_PAGES: usize = 1024;

/// What was not changed between two changes is written with them unless it is as much as a verb
/// more costs.
const LEAST_GAP_BYTES: usize = 256;

/// A line that is not at rest, or that somebody waits for.
pub(crate) struct Active {
    pub(crate) line: Line,
    pub(crate) frame: Option<FrameId>,
    pub(crate) waiters: Waiters,
    /// Local accesses since a remote request was deferred, shared ones counting 1, exclusive ones
    /// as many as there are threads (A of SELCC §5.3, times threads).
    pub(crate) accesses: u64,
    /// Use of the local copy that the last step was told.
    pub(crate) seen: LocalUse,
    /// An event since the line was opened refused the `nowait` callers.
    pub(crate) refused: bool,
    /// An event since the line was opened changed what waiters may hope for. Who is about to queue
    /// was not among those told.
    pub(crate) woken: bool,
    /// What is known of the line's bit in the word, where there is no copy.
    left: Left,
    /// What the line allowed when it was opened: to read, to write.
    allowed: (bool, bool),
    /// Its home is lost, and its operation over.
    pub(crate) halted: bool,
    /// The last operation was a look at the word.
    looked: bool,
    /// A copy of the page is on its way home.
    pub(crate) copied: bool,
    /// Where the log has the oldest change that is on its way home; 0 if none is.
    pub(crate) homing: Lsn,
    /// A task will let go of the line when its time here is over.
    timed: bool,
    /// What the line was lost for in this step, for a caller who is not among the waiters yet.
    pub(crate) lost: Option<EngineError>,
    /// The page could not be put together: what the word gives this node is given back.
    pub(crate) damaged: Option<EngineError>,
    /// The word names a node that died: the waiters wait for the end of its recovery.
    pub(crate) backs_off: Option<ComputeId>,
    /// The word named this dead node though its recovery is over; if it does so again the line is
    /// lost.
    pub(crate) doubted: Option<ComputeId>,
}

impl Active {
    /// Nothing that was in the way of the line is any more.
    pub(crate) fn forget_deaths(&mut self) {
        self.backs_off = None;
        self.doubted = None;
    }
}

/// Latch operations gathered for one memory node, to be posted as one chain.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) chain: Chain,
    pub(crate) lines: Vec<GAddr>,
}

impl Core {
    /// Takes a line out of its shard for a step, its latch sealed. [`Core::close`] puts it back.
    pub(crate) fn open(&self, map: &mut LineMap, addr: GAddr) -> Active {
        let mut active = map.remove(&addr.to_u64()).unwrap_or_else(|| {
            let frame = self.table.lookup(&self.frames, addr);
            let left = if frame.is_none() { self.left.get(addr) } else { Left::Nothing };
            let left_with = match left {
                // Who leaves the pool takes every bit in its care out of the words first; who dies
                // does not.
                Left::BitWith(to) if self.has_left(to) => Left::Nothing,
                left => left,
            };
            let phase = match (frame.map(|f| self.frames.get(f).latch.permissions()), left_with) {
                (Some((true, true)), _) => Phase::Modified,
                (Some((true, false)), _) => Phase::Shared,
                (_, Left::Bit) => Phase::Lapsed,
                (_, Left::BitWith(to)) => Phase::Ceded { to },
                (_, Left::Nothing) => Phase::Invalid,
            };
            let mut line = Line::resting(phase);
            line.carried = frame.map_or(NodeSet::EMPTY, |f| self.frames.get(f).carried());
            Active {
                line,
                frame,
                waiters: Waiters::default(),
                accesses: 0,
                seen: LocalUse::Idle,
                refused: false,
                woken: false,
                left,
                allowed: (false, false),
                halted: false,
                looked: false,
                copied: false,
                homing: 0,
                timed: false,
                lost: None,
                damaged: None,
                backs_off: None,
                doubted: None,
            }
        });
        active.lost = None;
        let keeps = active.line.phase == Phase::WriteBack;
        active.allowed = (active.line.readable(), keeps || active.line.writable());
        active.refused = false;
        active.woken = false;
        active.seen = active.frame.map_or(LocalUse::Idle, |f| self.frames.get(f).latch.seal());
        active
    }

    fn has_left(&self, node: ComputeId) -> bool {
        let index = ComputeIndex::new(node.index() as u16);
        !self.pool.is_member(index) && !self.pool.is_dead(index)
    }

    /// Puts a line back: publishes what its state allows, keeps what is not at rest, frees the
    /// frame of a line without copy.
    pub(crate) fn close(&self, map: &mut LineMap, addr: GAddr, mut active: Active) {
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
                    self.release_frame(addr, frame);
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
            let serves = whole && self.failed.get().is_none();
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
            let now = self.frames.get(frame).latch.publish(permissions);
            let gives_up = self.gives_up(&active) || self.goes_home(addr, &active);
            if now == LocalUse::Idle && gives_up && !is_refused && !self.halts(addr, &active) {
                active.seen = self.frames.get(frame).latch.seal();
                active.accesses = 0;
                let before = active.line.phase;
                self.run(addr, &mut active, Event::Evict, None);
                // What the machine does not do now it would not do the next time either.
                is_refused = active.line.phase == before;
                continue;
            }
            if plain && !gone {
                self.frames.get(frame).set_carried(active.line.carried);
                return self.note_left(addr, &active);
            }
            if now != LocalUse::Idle {
                break;
            }
            if self.must_answer(&active) && !self.halts(addr, &active) {
                active.seen = self.frames.get(frame).latch.seal();
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
    fn give_back_damaged(&self, addr: GAddr, active: &mut Active) {
        self.answer_not_held(addr, active);
        let rests = active.line.phase.at_rest() && active.line.grantor.is_none();
        if rests && active.seen == LocalUse::Idle && !self.halts(addr, active) {
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
    fn refuse_damaged(&self, addr: GAddr, active: &mut Active, event: Event) -> bool {
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

    fn answer_not_held(&self, addr: GAddr, active: &mut Active) {
        for asked in std::mem::take(&mut active.line.deferred) {
            let header = message::encode(addr, Message::NotHeld { holder: None }, Dirty::NONE);
            // The asker has its own bound; there is nobody else to tell.
            let _ = self.deliver(asked.from, &header, &[]);
        }
    }

    /// A line that comes to rest without a copy leaves nothing behind but its bit in the word.
    fn note_left(&self, addr: GAddr, active: &Active) {
        let left = match active.line.phase {
            Phase::Lapsed => Left::Bit,
            Phase::Ceded { to } => Left::BitWith(to),
            _ => Left::Nothing,
        };
        if left != active.left {
            self.left.set(addr, left);
        }
    }

    /// Whether pages outlive the latches for which they were fetched.
    pub(crate) fn caches(&self) -> bool {
        self.config.coherence != Coherence::Sel
    }

    /// Whether an idle page is to be given up at once: it has served somebody, or nobody wants it.
    fn gives_up(&self, active: &Active) -> bool {
        !self.caches()
            && !self.waits_for_log(active)
            && matches!(active.line.phase, Phase::Shared | Phase::Modified)
            && (active.accesses > 0 || active.waiters.is_empty() || self.is_suspended())
    }

    /// Whether the line was taken over from a dead node, and a recovery waits for it to be home.
    fn is_claimed(&self, addr: GAddr) -> bool {
        self.log.is_some() && self.claimed.contains(addr)
    }

    /// Whether an idle page is to be given up as a recovery waits for that, before somebody latches
    /// it again who may himself wait for the recovery.
    fn goes_home(&self, addr: GAddr, active: &Active) -> bool {
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
    fn must_answer(&self, active: &Active) -> bool {
        let line = &active.line;
        let settled = line.phase.at_rest() && line.grantor.is_none()
            // A directory may take the copy from a node that has asked it for more.
            || self.config.coherence == Coherence::Rpc;
        if line.deferred.is_empty() || !settled || self.waits_for_log(active) {
            return false;
        }
        if self.gamma_used_up(active) {
            Counters::add(&self.counters.gamma_hand_overs);
            return true;
        }
        match self.next_is_writer(active) {
            None => !self.is_held(active),
            Some(writer) => !(if writer { line.writable() } else { line.readable() }),
        }
    }

    /// What the waiter wants who is next, whether to write; nobody is while the node is suspended.
    fn next_is_writer(&self, active: &Active) -> Option<bool> {
        if self.is_suspended() { None } else { active.waiters.next_is_writer() }
    }

    /// Whether local accesses have to make way for a deferred request.
    pub(crate) fn gamma_used_up(&self, active: &Active) -> bool {
        !active.line.deferred.is_empty()
            && active.accesses >= u64::from(self.config.gamma) * u64::from(self.config.threads)
    }

    /// Looks who is in the frame, and says who uses the local copy or is next to.
    pub(crate) fn refresh_use(&self, active: &mut Active) -> LocalUse {
        if let Some(frame) = active.frame {
            active.seen = self.frames.get(frame).latch.in_use();
        }
        self.local_use(active)
    }

    /// Who uses the local copy or is next to: a waiter that was told to go on would find the line
    /// gone again if other nodes went first.
    fn local_use(&self, active: &Active) -> LocalUse {
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
    fn without_hold(&self, active: &Active, event: Event, local: LocalUse) -> LocalUse {
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
    fn waits_for_log(&self, active: &Active) -> bool {
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::UnloggedGrant {
            return false;
        }
        let (Some(log), Some(frame)) = (&self.log, active.frame) else { return false };
        !log.may_leave(self.frames.get(frame).lsn())
    }

    /// Sees to it that a line that would leave if it were not for the log is looked at when it may.
    fn keep_for_log(&self, addr: GAddr, active: &Active) {
        if active.line.deferred.is_empty() && self.caches() || !self.waits_for_log(active) {
            return;
        }
        if let (Some(log), Some(frame)) = (&self.log, active.frame) {
            log.hold_back(addr, self.frames.get(frame).lsn());
        }
    }

    /// Whether the line has its right so lately that others have to wait
    /// ([`crate::EngineConfig::hold`]).
    fn is_held(&self, active: &Active) -> bool {
        !self.config.hold.is_zero() && !self.hold_left(active).is_zero()
    }

    fn hold_left(&self, active: &Active) -> Duration {
        let Some(frame) = active.frame.filter(|_| active.line.readable()) else {
            return Duration::ZERO;
        };
        let until = self.frames.get(frame).right_since() + self.config.hold;
        until.saturating_sub(self.env.now())
    }

    /// Notes when a right came, and sees to it that a line whose time is not over is looked at
    /// then.
    fn keep_time(&self, addr: GAddr, active: &mut Active, frame: FrameId) {
        if self.config.hold.is_zero() {
            return;
        }
        let (readable, writable) = (active.line.readable(), active.line.writable());
        if readable && !active.allowed.0 || writable && !active.allowed.1 {
            self.frames.get(frame).set_right_since(self.env.now());
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
            let mut map = core.shard(addr).lock();
            let mut active = core.open(&mut map, addr);
            active.timed = false;
            core.close(&mut map, addr, active);
        }));
    }

    fn release_frame(&self, addr: GAddr, id: FrameId) {
        self.vacate(addr, id);
        self.frames.give_back(id);
    }

    /// The line is in this frame no more; the frame is nobody's.
    pub(crate) fn vacate(&self, addr: GAddr, id: FrameId) {
        let frame = self.frames.get(id);
        self.table.remove(&self.frames, addr, id);
        frame.set_addr(GAddr::NULL);
        frame.set_dirty(Dirty::NONE);
        frame.set_lsn(0);
        frame.set_unhomed(0);
        // A reader that found the entry a moment ago fails on the sealed latch.
        let _ =
            frame.latch.publish(Permissions { readable: false, writable: false, pending: false });
    }

    /// The line is in this frame, whose latch is sealed.
    pub(crate) fn occupy(&self, addr: GAddr, id: FrameId) -> LocalUse {
        let frame = self.frames.get(id);
        frame.set_addr(addr);
        frame.set_dirty(Dirty::NONE);
        assert!(self.table.insert(addr, id), "address table: a shard has overflowed");
        frame.latch.seal()
    }

    /// Gives an Invalid line a frame. False: none is free.
    pub(crate) fn ensure_frame(&self, addr: GAddr, active: &mut Active) -> bool {
        if active.frame.is_some() {
            return true;
        }
        let Some(id) = self.frames.take_free() else {
            self.evict_bell.ring();
            return false;
        };
        if self.frames.free_count() < self.low_water {
            self.evict_bell.ring();
        }
        active.frame = Some(id);
        active.seen = self.occupy(addr, id);
        true
    }

    /// Feeds one event, carries out the actions, and goes on with completions that are ready at
    /// once. With a batch, latch operations are gathered there instead of posted.
    pub(crate) fn run(
        &self,
        addr: GAddr,
        active: &mut Active,
        event: Event,
        mut batch: Option<&mut Vec<Batch>>,
    ) {
        if self.config.coherence == Coherence::Rpc {
            return self.run_client(addr, active, event);
        }
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if self.halts(addr, active) {
                return self.run_halted(addr, active, event);
            }
            if active.damaged.is_some() && self.refuse_damaged(addr, active, event) {
                return;
            }
            let is_over = matches!(event, Event::Completed { .. });
            if self.rules.home_first && is_over && goes_home(active.line.phase) {
                // What it has taken over is home.
                self.claimed.remove(addr);
            }
            let local = self.refresh_use(active);
            let local = self.without_hold(active, event, local);
            // Acquire, as below: who finds the recovery under way finds the lines as the sweep may
            // see them.
            let recovering = self.recovering.load(Ordering::Acquire);
            let rules = Rules { dead: self.dead_nodes(), recovering, ..self.rules };
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
                                    && !(operation.write_back && self.coded.is_some()) =>
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
    fn back_off(&self, addr: GAddr, active: &mut Active, dead: ComputeId) {
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

    fn dead_nodes(&self) -> NodeSet {
        NodeSet::from_bits(self.dead.load(Ordering::Acquire))
    }

    /// Posts a latch operation; its completion event if it is ready at once.
    fn post(&self, addr: GAddr, active: &mut Active, operation: LatchOperation) -> Option<Event> {
        if let Some(coded) = &self.coded {
            return self.post_coded(coded, addr, active, operation);
        }
        let home = self.home_of(addr, active)?;
        let mut chain = Chain::new();
        self.build(&home, active, operation, &mut chain);
        let queue_pair = self.queue_pair(home.node);
        let mut completion = queue_pair.post(chain);
        match completion.try_take() {
            Some(result) => self.completed(addr, active, result),
            None => {
                let core = self.this.upgrade()?;
                drop(self.env.spawn("latch operation", async move {
                    let result = completion.await;
                    let mut map = core.shard(addr).lock();
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

    fn gather(&self, addr: GAddr, active: &mut Active, op: LatchOperation, batch: &mut Vec<Batch>) {
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

    pub(crate) fn home_of(&self, addr: GAddr, active: &mut Active) -> Option<Home> {
        let home = self.placement.home(addr);
        if home.is_none() {
            self.fail(active, EngineError::BadAddress { addr });
        }
        home
    }

    /// Appends `[write the dirty bytes]* [atomic]? [read the page]?`.
    fn build(&self, home: &Home, active: &mut Active, op: LatchOperation, chain: &mut Chain) {
        let operation = op;
        if let (Phase::Rejoin, Some(id)) = (active.line.phase, active.frame) {
            // What home has may be torn, all of it.
            self.frames.get(id).set_dirty(Dirty::ALL);
        }
        if let Some(id) = active.frame.filter(|_| operation.write_back) {
            let dirty = self.dirty_of(id);
            if !dirty.is_empty() {
                Counters::add(&self.counters.write_backs);
                active.homing = self.frames.get(id).unhomed();
                active.copied = is_given_away(active.line.phase) && self.may_copy();
            }
            let mut last_word = None;
            for dirty in dirty.stretches(self.gcl_bytes, LEAST_GAP_BYTES) {
                let at = RemoteAddr::new(home.page.region, home.page.offset + dirty.start as u64);
                last_word = Some(home.page.offset + dirty.end as u64 - 8);
                let from = if active.copied {
                    // SAFETY: the line is being evicted: the latch is sealed and nobody is in.
                    let page = unsafe { self.page(id) };
                    Buf::copy_of(page.get(dirty).unwrap_or_default())
                } else {
                    // SAFETY: the line's operation is outstanding, so nobody writes the frame, and
                    // it is not reused before the completion; readers may share it.
                    unsafe { self.frames.lease(id, dirty) }
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
            let into = unsafe { self.frames.lease(id, 0..self.gcl_bytes) };
            chain.push(Verb::Read { at: home.page, into });
        }
    }

    /// What of a page goes home.
    pub(crate) fn dirty_of(&self, id: FrameId) -> Dirty {
        match self.frames.get(id).dirty() {
            dirty if dirty.is_empty() || self.config.dirty_bounds => dirty,
            _ => Dirty::ALL,
        }
    }

    /// Whether a dirty page that leaves may be copied: as many copies are under way as there may
    /// be.
    pub(crate) fn may_copy(&self) -> bool {
        // Relaxed: a bound on memory, nothing hangs on its order.
        let full = || self.copies_under_way.load(Ordering::Relaxed) >= SEND_RING_PAGES;
        if !self.config.send_ring || full() {
            return false;
        }
        self.copies_under_way.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The operation that took a copy along is over.
    pub(crate) fn write_done(&self, active: &mut Active) {
        active.homing = 0;
        if std::mem::take(&mut active.copied) {
            self.copies_under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Frees the frame of a line that is on its way out and whose page nobody needs here any more.
    fn free_early(&self, addr: GAddr, active: &mut Active) {
        if !self.config.send_ring || active.seen != LocalUse::Idle {
            return;
        }
        let free = match active.line.phase {
            Phase::HandOver { .. } if !self.rules.home_first => true,
            Phase::ReleaseShared => true,
            phase if is_given_away(phase) => {
                active.copied
                    || active.frame.is_some_and(|id| self.frames.get(id).dirty().is_empty())
            }
            _ => false,
        };
        if let Some(frame) = active.frame.take_if(|_| free) {
            self.release_frame(addr, frame);
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
        match (self.config.planted, &write, self.ways.loose(node)) {
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
        active: &mut Active,
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
    pub(crate) fn note_looks(&self, active: &mut Active, old: LatchWord) {
        let looks = active.line.phase.looks();
        if !std::mem::replace(&mut active.looked, looks) {
            self.guesses.learn(self.me, active.line.phase, old);
        }
    }

    /// The event of an operation whose atomic found `old`.
    pub(crate) fn completed_with(&self, active: &Active, old: LatchWord) -> Event {
        // Whatever was written back is home now; whatever was read is what home has.
        let Some(id) = active.frame else { return Event::Completed { old } };
        match active.line.phase {
            // What home has of a line that a dead node granted may be torn.
            Phase::Claim { .. } if !self.rules.home_first => {
                self.frames.get(id).set_dirty(Dirty::ALL);
            }
            Phase::Claim { .. } | Phase::Inquire { of: Inquiry::Modified, .. }
                if self.rules.home_first =>
            {
                self.frames.get(id).set_dirty(Dirty::ALL);
                self.claimed.add(self.frames.get(id).addr());
            }
            phase if goes_home(phase) => self.is_home(id),
            Phase::Downgrade { .. } | Phase::Rejoin => self.is_home(id),
            _ => {}
        }
        Event::Completed { old }
    }

    /// All that was changed of a page is home.
    fn is_home(&self, id: FrameId) {
        self.frames.get(id).set_dirty(Dirty::NONE);
        self.frames.get(id).set_unhomed(0);
    }

    /// Sends a message about a line; grants take the page along.
    fn send(&self, addr: GAddr, active: &mut Active, to: ComputeId, message: Message) {
        let mut dirty = Dirty::NONE;
        let mut page: &[u8] = &[];
        self.count_sent(addr, active, message);
        if let Some(id) = active.frame.filter(|_| message::carries_page(message)) {
            if message == Message::GrantModified && !self.rules.home_first {
                dirty = self.frames.get(id).dirty();
            }
            // SAFETY: the latch is sealed and no writer is in (the machine grants only then), so
            // the bytes are stable while the shard's lock is held.
            page = unsafe { self.page(id) };
        }
        let mut header = [0; message::HEADER_BYTES + VERSIONS_BYTES];
        let (own, more) = header.split_at_mut(message::HEADER_BYTES);
        own.copy_from_slice(&message::encode(addr, message, dirty));
        let more = match (&self.coded, active.frame) {
            (Some(coded), Some(id)) if message == Message::GrantModified => {
                let goes_home = self.rules.home_first && !self.dirty_of(id).is_empty();
                // Those that it gets on its way home are in the header then.
                let versions =
                    if goes_home { coding::unknown_versions() } else { coded.versions_of(id) };
                more.copy_from_slice(&coding::versions_bytes(&versions));
                VERSIONS_BYTES
            }
            _ => 0,
        };
        let header = header.get(..message::HEADER_BYTES + more).unwrap_or_default();
        match self.deliver(to, header, page) {
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
                let _ = self.failed.set(error);
            }
        }
    }

    fn count_sent(&self, addr: GAddr, active: &Active, message: Message) {
        let counters = &self.counters;
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
        Counters::add(&self.counters.invalidations);
        self.hottest.note(addr);
    }

    /// A message from another node.
    pub(crate) fn receive(&self, from: usize, bytes: &[u8]) -> Result<(), EngineError> {
        let mail = |what| EngineError::Mail { from, what };
        if from >= self.pool.descriptor().max_compute_nodes {
            return self.receive_from_directory(from, bytes);
        }
        let versions = if self.coded.is_some() { VERSIONS_BYTES } else { 0 };
        let (envelope, versions, page) =
            message::decode(bytes, self.gcl_bytes, versions).map_err(mail)?;
        let Envelope { addr, message, dirty } = envelope;
        let from = ComputeId::new(from).ok_or(mail("sender is no node"))?;
        if self.placement.home(addr).is_none() {
            return Err(mail("about an address outside the pool"));
        }
        let mut map = self.shard(addr).lock();
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
        active: &Active,
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
        let own = unsafe { self.page_mut(id) };
        own.copy_from_slice(page);
        self.frames.get(id).set_dirty(dirty);
        if let Some(coded) = &self.coded
            && !versions.is_empty()
        {
            coded.set_versions(id, &coding::versions_from(versions));
        }
    }

    /// A protocol violation: this engine can serve nothing more.
    fn fail(&self, active: &mut Active, error: EngineError) {
        active.waiters.fail_all(&error);
        if matches!(error, EngineError::Protocol { .. }) {
            let _ = self.failed.set(error);
        }
    }

    /// The line's memory or a peer cannot be reached: ends the waits, forgets the copy.
    pub(crate) fn fail_line(&self, addr: GAddr, active: &mut Active, error: &EngineError) {
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
