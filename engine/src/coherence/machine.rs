//! The coherence state machine of one global cache line at one compute node: events in, actions out.
//!
//! The engine drives [`Line::step`] with local wants, completions and messages; the model checker
//! drives the very same function against a model of home and network. Nothing here does I/O.
//!
//! ```text
//!            want S                    holder 0
//!  Invalid ----------> AcquireShared ------------------------------------> Shared
//!     ^                     | holder h         reset done           grant  ^  |
//!     |                     +--> ResetShared{h} --> WaitRead{h} -----------+  |
//!     |      want M                  word 0                                   | want M
//!     +--------------> AcquireExclusive --------> Modified <---- Upgrade <----+
//!                       |h       | readers R        ^   ^           | readers
//!                       v        v                  |   |           v
//!              WaitWrite{h}   Intent{R} --> WaitSharers{R} <-- UpgradeIntent{R}
//!                  grant --> Modified            | Busy
//!                                                +--> CancelIntent --> Shared
//!  Modified --asked by writer--> HandOver{to} --> Invalid      Shared --released/evicted-->
//!  Modified --asked by reader--> Downgrade{to} --> Shared        ReleaseShared --> Invalid
//!  Modified --evicted--> ReleaseModified --> Invalid
//! ```
//!
//! # Rules (SELCC §4, made safe)
//! - R1: one outstanding latch operation per node and line; [`Phase::operation_outstanding`] says
//!   when. The driver posts all of a line's operations on one queue pair.
//! - R2: a failed shared acquire resets its bit and *waits for the reset* before it asks the holder.
//! - R3: a writer that meets only readers announces its intent in the holder field, then asks each.
//! - R4: an upgrade that lost to another holder stays Shared; the winner's release request, already
//!   on its way, takes the line away.
//! - R5: a grant is sent at once, the word is changed after, and `Confirm` follows the completed
//!   change. Unconfirmed grantees start no global transition: with the published protocol (grant
//!   and forget) the borrow of a late add can show "no writer" while memory is stale.
//! - R6: a node with an operation outstanding, or unconfirmed, defers requests. Every request gets
//!   exactly one answer.
//! - R7: what a waiting node answers at once and what it defers; see `Step::request_with`.
//! - R8: eviction writes back and releases in one chain; requests met meanwhile are deferred.
//! - R9: `nowait` requests meet Busy where the page is locally latched. A writer that gives up its
//!   intent turns it into a reader's bit (nobody else can be holder, and home is current, so the
//!   copy it has fetched stays good), and starts nothing global until it was given every answer it
//!   is owed.
//!
//! Two answers differ from the published protocol beyond R2, R3 and R5: a cancelled intent ends in
//! Shared rather than Invalid, and `NotHeld` may name the node the line was handed to, which the
//! requester asks once before it goes back to the word.
//!
//! # Not done here
//! Death of a node, coded write-back: they come with membership and coding, model first.

use smallvec::SmallVec;

use super::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

/// What a requester wants of the node it asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum RequestKind {
    /// To read: the holder keeps a shared copy.
    Read,
    /// To write: the holder lets go.
    Write,
    /// To write, as the holder already: the reader lets go.
    Release,
}

/// A request from one compute node to another about one line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Request {
    /// What is wanted.
    pub kind: RequestKind,
    /// Answer Busy rather than wait for a local latch.
    pub nowait: bool,
    /// How often the requester has tried in vain; higher goes first among deferred requests.
    pub priority: u8,
}

/// A message between two compute nodes about one line. Grants carry the page beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Message {
    /// A question; gets exactly one of the answers below.
    Request(Request),
    /// Answer to Read: a shared copy.
    GrantShared,
    /// Answer to Write: the line itself.
    GrantModified,
    /// Answer to Release: the reader's bit is gone from the word.
    Released,
    /// Not the holder, or not a reader (any more).
    NotHeld {
        /// The node the line was last handed to, if that is known.
        holder: Option<ComputeId>,
    },
    /// Locally latched, and the request said `nowait`.
    Busy,
    /// Follows a grant: the grantor's change of the word has completed.
    Confirm,
}

/// Use of the local copy at the moment of an event. The driver keeps new users out during a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LocalUse {
    /// Nobody holds the local latch.
    Idle,
    /// Shared holders only.
    Readers,
    /// An exclusive holder.
    Writer,
    /// Nobody yet, but a local reader is next and goes before other nodes.
    ReaderNext,
    /// Nobody yet, but a local writer is next and goes before other nodes.
    WriterNext,
}

/// What happens to a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A local access cannot be served by the present state.
    Want {
        /// To write, not only to read.
        exclusive: bool,
        /// The caller rather has Busy than wait for latches elsewhere.
        nowait: bool,
        /// The node that probably holds the line, to be asked before the word is looked at: saves
        /// the atomics, and the round trip, that would only find a holder. Any node is a safe guess.
        hint: Option<ComputeId>,
    },
    /// The buffer manager wants the frame.
    Evict,
    /// The node leaves, or wants its bit out of the word.
    Leave,
    /// The outstanding latch operation completed; its atomic found `old`.
    Completed {
        /// Value of the word before the operation.
        old: LatchWord,
    },
    /// A message came.
    Received {
        /// Who sent it.
        from: ComputeId,
        /// What it says.
        message: Message,
    },
    /// The local latch was let go while requests were deferred.
    LocalFree,
}

/// The atomic of a latch operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atomic {
    /// Fetch-and-add.
    Add(LatchDelta),
    /// Compare-and-swap.
    Swap {
        /// The value that must be found.
        expected: LatchWord,
        /// The value then written.
        desired: LatchWord,
    },
}

/// One chain to the line's home: `[write the dirty page]? [atomic]? [read the page]?`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LatchOperation {
    /// Write the local page back first, if it is dirty.
    pub write_back: bool,
    /// The atomic on the latch word; none to read the page alone.
    pub atomic: Option<Atomic>,
    /// Read the page into the local copy after.
    pub read: bool,
}

/// What the driver must do, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Post the chain; report it by [`Event::Completed`].
    Post(LatchOperation),
    /// Send a message. Grants take the page, as it is now, with them.
    Send {
        /// To whom.
        to: ComputeId,
        /// What.
        message: Message,
    },
    /// The state changed: local waiters look again.
    Wake,
    /// The attempt of the `nowait` callers ended in Busy.
    Refuse,
}

/// Actions of one step.
pub type Actions = SmallVec<[Action; 4]>;

/// State of a line at a node, but for what it owes and is owed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// No copy.
    Invalid,
    /// `[FAA +bit; READ]` outstanding.
    AcquireShared,
    /// `FAA -bit` outstanding, after which `holder` is asked.
    ResetShared {
        /// Who held the line.
        holder: ComputeId,
    },
    /// Asked `holder` for a shared copy.
    WaitRead {
        /// Who was asked.
        holder: ComputeId,
    },
    /// A shared copy.
    Shared,
    /// `[CAS 0 -> me; READ]` outstanding.
    AcquireExclusive,
    /// `[CAS expected -> intent; READ]` outstanding.
    Intent {
        /// The word with only readers that was found.
        expected: LatchWord,
    },
    /// Intent won; these readers were asked to release.
    WaitSharers {
        /// Who has not answered yet.
        pending: NodeSet,
    },
    /// Asked `holder` to hand over.
    WaitWrite {
        /// Who was asked.
        holder: ComputeId,
    },
    /// No copy, but this node's bit is still in the word: nobody can become holder before it has been
    /// asked, so a reader needs the page only.
    Lapsed,
    /// From Lapsed: `READ` outstanding.
    Refetch,
    /// The only copy.
    Modified,
    /// `CAS (0, my bit) -> me` outstanding.
    Upgrade,
    /// `CAS expected -> intent` outstanding.
    UpgradeIntent {
        /// The word with only readers that was found.
        expected: LatchWord,
    },
    /// Granted a shared copy; `[write back; FAA]` outstanding.
    Downgrade {
        /// To whom.
        to: ComputeId,
    },
    /// Granted the line; `FAA` outstanding.
    HandOver {
        /// To whom.
        to: ComputeId,
    },
    /// `FAA -bit` outstanding.
    ReleaseShared {
        /// Who asked for it; nobody on eviction.
        reply_to: Option<ComputeId>,
    },
    /// `[write back; FAA -me]` outstanding.
    ReleaseModified,
    /// `FAA (my bit - me)` outstanding.
    CancelIntent,
}

impl Phase {
    /// Whether a chain to home is under way (rule R1).
    pub const fn operation_outstanding(self) -> bool {
        !matches!(
            self,
            Phase::Invalid
                | Phase::WaitRead { .. }
                | Phase::Shared
                | Phase::Lapsed
                | Phase::WaitSharers { .. }
                | Phase::WaitWrite { .. }
                | Phase::Modified
        )
    }

    /// Whether only local events or requests can change it.
    pub const fn at_rest(self) -> bool {
        matches!(self, Phase::Invalid | Phase::Shared | Phase::Lapsed | Phase::Modified)
    }
}

/// A request waiting for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Deferred {
    /// Who asked.
    pub from: ComputeId,
    /// What.
    pub request: Request,
}

/// An event that the rules exclude: the peer or the word is damaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("coherence protocol violated: {event:?} in {phase:?}")]
pub struct Violation {
    /// The state it met.
    pub phase: Phase,
    /// The event.
    pub event: Event,
}

/// Bounds, and the switches by which test builds bring the published protocol back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Cap of a request's priority.
    pub max_priority: u8,
    /// Ask the node a `NotHeld` names before going back to the word.
    pub follow_hints: bool,
    /// Ask whoever is in the way; else try the word again and again, as the baseline without a cache
    /// does, whose driver gives every latch up when the last local user has.
    pub ask_holders: bool,
    /// Leave this node's bit in the word when a shared copy is evicted.
    pub sticky_bits: bool,
    /// R5's Confirm; the published protocol has none.
    #[cfg(any(test, feature = "planted"))]
    pub confirm: bool,
    /// R2's wait for the reset; the published protocol asks at once.
    #[cfg(any(test, feature = "planted"))]
    pub wait_for_reset: bool,
}

impl Rules {
    /// The rules as designed.
    pub const DESIGNED: Rules = Rules {
        max_priority: 15,
        follow_hints: true,
        ask_holders: true,
        sticky_bits: true,
        #[cfg(any(test, feature = "planted"))]
        confirm: true,
        #[cfg(any(test, feature = "planted"))]
        wait_for_reset: true,
    };

    const fn confirms(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.confirm;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }

    const fn waits_for_reset(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.wait_for_reset;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }
}

/// One line at one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// Where it stands.
    pub phase: Phase,
    /// No grant of another node awaits its Confirm.
    pub confirmed: bool,
    /// Readers whose answer to a cancelled intent is still to come.
    pub owed: NodeSet,
    /// Requests to be answered later.
    pub deferred: Vec<Deferred>,
    /// The acquisition under way would rather have Busy than wait.
    pub(crate) nowait: bool,
    /// Failed tries of the acquisition under way.
    retries: u8,
    /// The acquisition under way has followed a hint already.
    hinted: bool,
    /// What upgrades of the shared copy can hope for.
    upgrade: UpgradeHope,
    /// The upgrade under way began without a copy.
    lapsed: bool,
}

/// What an upgrade can hope for (R4), by what was heard from other writers since the copy is here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum UpgradeHope {
    /// Nothing speaks against one.
    Open,
    /// A holder is in the word, and its release request is on its way or deferred here: an upgrade
    /// before that is answered could only fail.
    Lost,
    /// The last release request was answered Busy. A holder found by an upgrade may be that writer,
    /// its cancelled intent not yet out of the word: no request need follow, so upgrades are tried
    /// again, as they would be never otherwise.
    Refused,
}

impl Line {
    /// A line this node has no copy of.
    pub const fn new() -> Self {
        Line::resting(Phase::Invalid)
    }

    /// A line at rest with nothing owed either way.
    pub const fn resting(phase: Phase) -> Self {
        assert!(phase.at_rest(), "a line can only rest in Invalid, Shared, Lapsed or Modified");
        Line {
            phase,
            confirmed: true,
            owed: NodeSet::EMPTY,
            deferred: Vec::new(),
            nowait: false,
            retries: 0,
            hinted: false,
            upgrade: UpgradeHope::Open,
            lapsed: false,
        }
    }

    /// Whether the local copy may be read.
    pub const fn readable(&self) -> bool {
        if matches!(self.phase, Phase::Upgrade | Phase::UpgradeIntent { .. }) {
            return !self.lapsed;
        }
        matches!(
            self.phase,
            Phase::Shared
                | Phase::Modified
                | Phase::WaitSharers { .. }
                | Phase::CancelIntent
                | Phase::Downgrade { .. }
        )
    }

    /// Whether the local copy may be written.
    pub const fn writable(&self) -> bool {
        matches!(self.phase, Phase::Modified)
    }

    /// At rest, confirmed, nothing owed either way: the phase alone says all there is to know.
    pub fn is_plain(&self) -> bool {
        self.phase.at_rest()
            && self.confirmed
            && self.owed.is_empty()
            && self.deferred.is_empty()
            && matches!(self.upgrade, UpgradeHope::Open)
    }

    /// Whether a `nowait` caller must not join the acquisition under way: that one waits for
    /// latches elsewhere, and the caller may hold the very latch it waits for in a circle.
    pub const fn refuses_nowait(&self) -> bool {
        !self.nowait
            && (self.phase.acquires()
                || matches!(
                    self.phase,
                    Phase::ResetShared { .. }
                        | Phase::WaitRead { .. }
                        | Phase::WaitWrite { .. }
                        | Phase::WaitSharers { .. }
                ))
    }

    /// What the public fields do not show, for the model's hash.
    #[cfg(test)]
    pub(super) const fn private_state(&self) -> u64 {
        self.nowait as u64
            | (self.hinted as u64) << 1
            | (self.upgrade as u64) << 2
            | (self.lapsed as u64) << 4
            | (self.retries as u64) << 5
    }

    /// Takes one event. `local` is the use of the local copy at this moment.
    ///
    /// An error means that a peer or the word broke the protocol; the line is then unchanged.
    pub fn step(
        &mut self,
        rules: &Rules,
        me: ComputeId,
        event: Event,
        local: LocalUse,
    ) -> Result<Actions, Violation> {
        let mut cx = Step { line: self, rules, me, local, out: Actions::new(), event };
        match event {
            Event::Want { exclusive, nowait, hint } => cx.want(exclusive, nowait, hint),
            Event::Evict => cx.evict(),
            Event::Leave => cx.release_own(),
            Event::Completed { old } => cx.completed(old)?,
            Event::Received { from, message } => cx.received(from, message)?,
            Event::LocalFree => cx.drain(),
        }
        Ok(cx.out)
    }
}

impl Default for Line {
    fn default() -> Self {
        Line::new()
    }
}

/// One step under way: the line, its surroundings, the actions so far.
struct Step<'a> {
    line: &'a mut Line,
    rules: &'a Rules,
    me: ComputeId,
    local: LocalUse,
    out: Actions,
    event: Event,
}

impl Step<'_> {
    fn violation(&self) -> Violation {
        Violation { phase: self.line.phase, event: self.event }
    }

    fn post(&mut self, phase: Phase, write_back: bool, atomic: Atomic, read: bool) {
        self.post_chain(phase, LatchOperation { write_back, atomic: Some(atomic), read });
    }

    fn post_chain(&mut self, phase: Phase, operation: LatchOperation) {
        assert!(!self.line.phase.operation_outstanding(), "R1: second operation on a line");
        self.line.phase = phase;
        self.out.push(Action::Post(operation));
    }

    fn send(&mut self, to: ComputeId, message: Message) {
        debug_assert!(to != self.me, "a node does not write to itself");
        self.out.push(Action::Send { to, message });
    }

    fn ask(&mut self, to: ComputeId, kind: RequestKind) {
        let request = Request { kind, nowait: self.line.nowait, priority: self.line.retries };
        self.send(to, Message::Request(request));
    }

    /// A global transition of the node's own may start.
    fn may_start(&self) -> bool {
        self.line.phase.at_rest()
            && (self.line.confirmed || !self.rules.confirms())
            && self.line.owed.is_empty()
    }

    fn want(&mut self, exclusive: bool, nowait: bool, hint: Option<ComputeId>) {
        if !self.may_start() {
            // Answers owed by readers that wait for latches themselves can take their time.
            if nowait && self.line.phase.at_rest() && !self.line.owed.is_empty() {
                self.out.push(Action::Refuse);
            }
            return;
        }
        self.line.nowait = nowait;
        self.line.retries = 0;
        self.line.hinted = false;
        match self.line.phase {
            Phase::Invalid => match hint.filter(|holder| self.follows(*holder)) {
                Some(holder) => self.follow(exclusive, holder),
                None => self.acquire(exclusive),
            },
            Phase::Lapsed if !exclusive => {
                let read = LatchOperation { write_back: false, atomic: None, read: true };
                self.post_chain(Phase::Refetch, read);
            }
            Phase::Shared | Phase::Lapsed
                if exclusive && self.line.upgrade == UpgradeHope::Lost =>
            {
                // The winner's request ends the wait of those who wait.
                self.out.extend(nowait.then_some(Action::Refuse));
            }
            Phase::Shared | Phase::Lapsed if exclusive => {
                let atomic = Atomic::Swap {
                    expected: LatchWord::read_by(self.me),
                    desired: LatchWord::held_by(self.me),
                };
                self.line.lapsed = self.line.phase == Phase::Lapsed;
                self.post(Phase::Upgrade, false, atomic, self.line.lapsed);
            }
            _ => {}
        }
    }

    fn acquire(&mut self, exclusive: bool) {
        if exclusive {
            let atomic =
                Atomic::Swap { expected: LatchWord::FREE, desired: LatchWord::held_by(self.me) };
            self.post(Phase::AcquireExclusive, false, atomic, true);
        } else {
            let atomic = Atomic::Add(LatchDelta::add_reader(self.me));
            self.post(Phase::AcquireShared, false, atomic, true);
        }
    }

    /// Whether nothing keeps the node from giving its copy up.
    fn may_release(&self) -> bool {
        self.may_start() && self.local == LocalUse::Idle && self.line.deferred.is_empty()
    }

    /// Eviction (R8). The bit of a shared copy stays in the word, where the rules have it so: the
    /// atomic, and that of the next fetch, are only needed once a writer asks for them.
    fn evict(&mut self) {
        if self.line.phase == Phase::Shared && self.rules.sticky_bits && self.may_release() {
            self.line.phase = Phase::Lapsed;
        } else if self.line.phase != Phase::Lapsed {
            self.release_own();
        }
    }

    /// Gives up the copy and all that the word says of this node.
    fn release_own(&mut self) {
        if !self.may_release() {
            return;
        }
        match self.line.phase {
            Phase::Shared | Phase::Lapsed => {
                let atomic = Atomic::Add(LatchDelta::remove_reader(self.me));
                self.post(Phase::ReleaseShared { reply_to: None }, false, atomic, false);
            }
            Phase::Modified => {
                let atomic = Atomic::Add(LatchDelta::remove_holder(self.me));
                self.post(Phase::ReleaseModified, true, atomic, false);
            }
            _ => {}
        }
    }

    fn completed(&mut self, old: LatchWord) -> Result<(), Violation> {
        let me = self.me;
        let phase = self.line.phase;
        let holder = old.holder().map_err(|_| self.violation())?;
        if holder == Some(me) && phase.acquires() || !phase.operation_outstanding() {
            return Err(self.violation());
        }
        // The operation is over; every branch below sets the phase it leads to.
        self.line.phase = Phase::Invalid;
        match (phase, holder) {
            (Phase::AcquireShared, None) => self.settle(Phase::Shared),
            (Phase::AcquireShared, Some(holder)) => {
                let atomic = Atomic::Add(LatchDelta::remove_reader(me));
                self.post(Phase::ResetShared { holder }, false, atomic, false);
                if !self.rules.waits_for_reset() {
                    self.ask(holder, RequestKind::Read);
                }
            }
            (Phase::ResetShared { .. }, _) if !self.rules.ask_holders => {
                self.in_vain(Phase::Invalid);
            }
            (Phase::AcquireExclusive, _) if !self.rules.ask_holders && old != LatchWord::FREE => {
                self.in_vain(Phase::Invalid);
            }
            (Phase::Upgrade, _) if !self.rules.ask_holders && old != LatchWord::read_by(me) => {
                self.in_vain(Phase::Shared);
            }
            (Phase::Refetch, _) => self.settle(Phase::Shared),
            (Phase::ResetShared { holder }, _) => {
                self.line.phase = Phase::WaitRead { holder };
                if self.rules.waits_for_reset() {
                    self.ask(holder, RequestKind::Read);
                }
                self.drain();
            }
            (Phase::AcquireExclusive | Phase::Intent { .. }, Some(holder)) => {
                self.line.phase = Phase::WaitWrite { holder };
                self.ask(holder, RequestKind::Write);
                self.drain();
            }
            (Phase::AcquireExclusive, None) => self.found_readers(old),
            (Phase::Intent { expected }, None) if old == expected => self.intent_won(old),
            (Phase::Intent { .. }, None) if old == LatchWord::FREE => self.acquire(true),
            (Phase::Intent { .. }, None) => self.found_readers(old),
            (Phase::Upgrade, None) if old == LatchWord::read_by(me) => self.settle(Phase::Modified),
            (Phase::Upgrade, None) => {
                let atomic = Atomic::Swap { expected: old, desired: old.with_intent(me) };
                self.post(Phase::UpgradeIntent { expected: old }, false, atomic, self.line.lapsed);
            }
            (Phase::UpgradeIntent { expected }, None) if old == expected => self.intent_won(old),
            (Phase::Upgrade | Phase::UpgradeIntent { .. }, _) => self.upgrade_lost(holder),
            (Phase::Downgrade { to }, _) => self.confirm(to, Phase::Shared),
            (Phase::HandOver { to }, _) => self.confirm(to, Phase::Invalid),
            (Phase::ReleaseShared { reply_to }, _) => {
                if let Some(to) = reply_to {
                    self.send(to, Message::Released);
                }
                self.settle(Phase::Invalid);
            }
            (Phase::ReleaseModified, _) => self.settle(Phase::Invalid),
            (Phase::CancelIntent, _) => {
                self.out.push(Action::Refuse);
                self.settle(Phase::Shared);
            }
            _ => return Err(self.violation()),
        }
        Ok(())
    }

    /// Somebody is in the way who is not to be asked.
    fn in_vain(&mut self, phase: Phase) {
        if self.line.nowait {
            self.out.push(Action::Refuse);
        }
        self.settle(phase);
    }

    /// The word has no holder: it is free, or writer intent must be announced (R3).
    fn found_readers(&mut self, old: LatchWord) {
        if old == LatchWord::FREE {
            return self.settle(Phase::Modified);
        }
        let atomic = Atomic::Swap { expected: old, desired: old.with_intent(self.me) };
        self.post(Phase::Intent { expected: old }, false, atomic, true);
    }

    fn intent_won(&mut self, old: LatchWord) {
        let pending = old.readers().without(self.me);
        if pending.is_empty() {
            return self.settle(Phase::Modified);
        }
        self.line.phase = Phase::WaitSharers { pending };
        self.line.upgrade = UpgradeHope::Open;
        self.line.lapsed = false;
        // Readers need not wait for the answers: the copy is good already.
        self.out.push(Action::Wake);
        for reader in pending.iter() {
            self.ask(reader, RequestKind::Release);
        }
        self.drain();
    }

    /// R4: stay Shared. Behind a holder its release request comes; else readers changed: try anew.
    fn upgrade_lost(&mut self, holder: Option<ComputeId>) {
        if holder.is_some() && self.line.upgrade == UpgradeHope::Open {
            self.line.upgrade = UpgradeHope::Lost;
        }
        if holder.is_some() && self.line.nowait {
            self.out.push(Action::Refuse);
        }
        self.settle(if self.line.lapsed { Phase::Lapsed } else { Phase::Shared });
    }

    fn confirm(&mut self, to: ComputeId, phase: Phase) {
        if self.rules.confirms() {
            self.send(to, Message::Confirm);
        }
        self.settle_as(phase, if phase == Phase::Invalid { Some(to) } else { None });
    }

    /// The line has come to rest: answer what waited, tell local waiters.
    fn settle(&mut self, phase: Phase) {
        self.settle_as(phase, None);
    }

    fn settle_as(&mut self, phase: Phase, handed_to: Option<ComputeId>) {
        self.line.phase = phase;
        self.line.nowait = false;
        self.line.retries = 0;
        self.line.hinted = false;
        self.line.lapsed = false;
        if !matches!(phase, Phase::Shared | Phase::Lapsed) {
            self.line.upgrade = UpgradeHope::Open;
        }
        self.out.push(Action::Wake);
        self.drain_with(handed_to);
    }

    /// Gives deferred requests another chance, the highest priority first, older ones before
    /// younger; those that must wait on are deferred again.
    fn drain(&mut self) {
        self.drain_with(None);
    }

    fn drain_with(&mut self, handed_to: Option<ComputeId>) {
        if self.line.deferred.is_empty() || self.defers_all() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.line.deferred);
        waiting.sort_by_key(|d| std::cmp::Reverse(d.request.priority));
        for Deferred { from, mut request } in waiting {
            // Who is passed over grows older, so that nobody waits for ever behind those who try
            // again and again (SELCC §5.3).
            request.priority = request.priority.saturating_add(1).min(self.rules.max_priority);
            self.request_with(from, request, handed_to);
        }
    }

    /// R6.
    fn defers_all(&self) -> bool {
        let unconfirmed = !self.line.confirmed && self.rules.confirms();
        self.line.phase.operation_outstanding() || unconfirmed
    }

    /// A request of another node: answered, or deferred.
    fn request(&mut self, from: ComputeId, request: Request) {
        self.request_with(from, request, None);
    }

    fn request_with(&mut self, from: ComputeId, request: Request, handed_to: Option<ComputeId>) {
        let defer = self.defers_all()
            || match (self.line.phase, request.kind) {
                // R7: the intent holder answers once it is settled, and that may take latches
                // elsewhere unless its own callers are `nowait`; a reader that waits for a
                // grant cannot say whether it holds a copy until the holder has answered.
                (Phase::WaitSharers { .. }, RequestKind::Read | RequestKind::Write) => {
                    if request.nowait && !self.line.nowait {
                        return self.send(from, Message::Busy);
                    }
                    true
                }
                (Phase::WaitRead { holder }, RequestKind::Release) => from != holder,
                _ => false,
            };
        if defer {
            return self.line.deferred.push(Deferred { from, request });
        }
        let in_use = match (self.line.phase, request.kind) {
            // A writer in waiting has no use for a shared copy; it must not keep it from the one
            // that it lost its upgrade to.
            (Phase::Shared, RequestKind::Release) => {
                !matches!(self.local, LocalUse::Idle | LocalUse::WriterNext)
            }
            (Phase::Lapsed, RequestKind::Release) => false,
            (Phase::Modified, RequestKind::Write) => self.local != LocalUse::Idle,
            (Phase::Modified, RequestKind::Read) => {
                matches!(self.local, LocalUse::Writer | LocalUse::WriterNext)
            }
            _ => {
                let holder = handed_to.filter(|h| *h != from);
                return self.send(from, Message::NotHeld { holder });
            }
        };
        match (in_use, request.nowait) {
            (true, true) => {
                self.refuse_release(request.kind);
                self.send(from, Message::Busy);
            }
            (true, false) => {
                if request.kind == RequestKind::Release {
                    self.line.upgrade = UpgradeHope::Lost;
                }
                self.line.deferred.push(Deferred { from, request });
            }
            (false, _) => self.give(from, request.kind),
        }
    }

    /// The writer that is answered Busy cancels its intent: upgrades may be tried again.
    fn refuse_release(&mut self, kind: RequestKind) {
        if kind != RequestKind::Release {
            return;
        }
        if self.line.upgrade == UpgradeHope::Lost {
            self.out.push(Action::Wake);
        }
        self.line.upgrade = UpgradeHope::Refused;
    }

    /// R5, and the release of a shared copy.
    fn give(&mut self, to: ComputeId, kind: RequestKind) {
        let me = self.me;
        match kind {
            RequestKind::Release => {
                let atomic = Atomic::Add(LatchDelta::remove_reader(me));
                self.post(Phase::ReleaseShared { reply_to: Some(to) }, false, atomic, false);
            }
            RequestKind::Write => {
                self.send(to, Message::GrantModified);
                let atomic = Atomic::Add(LatchDelta::hand_over(me, to));
                self.post(Phase::HandOver { to }, false, atomic, false);
            }
            RequestKind::Read => {
                self.send(to, Message::GrantShared);
                let atomic = Atomic::Add(LatchDelta::downgrade(me, to));
                self.post(Phase::Downgrade { to }, true, atomic, false);
            }
        }
    }

    fn received(&mut self, from: ComputeId, message: Message) -> Result<(), Violation> {
        if from == self.me {
            return Err(self.violation());
        }
        match (message, self.line.phase) {
            (Message::Request(request), _) => self.request(from, request),
            (Message::GrantShared, Phase::WaitRead { holder }) if holder == from => {
                self.granted(Phase::Shared);
            }
            (Message::GrantModified, Phase::WaitWrite { holder }) if holder == from => {
                self.granted(Phase::Modified);
            }
            (Message::Confirm, Phase::Shared | Phase::Modified) if !self.line.confirmed => {
                self.line.confirmed = true;
                self.settle(self.line.phase);
            }
            (Message::NotHeld { holder: hint }, Phase::WaitRead { holder }) if holder == from => {
                self.try_again(false, hint);
            }
            (Message::NotHeld { holder: hint }, Phase::WaitWrite { holder }) if holder == from => {
                self.try_again(true, hint);
            }
            (Message::Busy, Phase::WaitRead { holder } | Phase::WaitWrite { holder })
                if holder == from =>
            {
                self.out.push(Action::Refuse);
                self.settle(Phase::Invalid);
            }
            (
                Message::Released | Message::NotHeld { .. } | Message::Busy,
                Phase::WaitSharers { pending },
            ) if pending.contains(from) => {
                self.sharer_answered(pending.without(from), message == Message::Busy);
            }
            (Message::Released | Message::NotHeld { .. } | Message::Busy, _)
                if self.line.owed.contains(from) =>
            {
                self.line.owed = self.line.owed.without(from);
                if self.line.owed.is_empty() {
                    self.out.push(Action::Wake);
                }
            }
            _ => return Err(self.violation()),
        }
        Ok(())
    }

    fn granted(&mut self, phase: Phase) {
        self.line.confirmed = !self.rules.confirms();
        self.settle(phase);
    }

    /// The node asked does not hold the line: ask the one it names, once, or go back to the word.
    fn try_again(&mut self, exclusive: bool, hint: Option<ComputeId>) {
        self.line.retries = self.line.retries.saturating_add(1).min(self.rules.max_priority);
        self.line.phase = Phase::Invalid;
        self.drain();
        match hint {
            Some(holder) if self.follows(holder) => self.follow(exclusive, holder),
            _ => {
                self.line.hinted = false;
                self.acquire(exclusive);
            }
        }
    }

    /// Whether the acquisition under way may ask a node that need not be the holder: once.
    fn follows(&self, holder: ComputeId) -> bool {
        self.rules.follow_hints && self.rules.ask_holders && !self.line.hinted && holder != self.me
    }

    /// Asks a node that probably holds the line.
    fn follow(&mut self, exclusive: bool, holder: ComputeId) {
        self.line.hinted = true;
        let (phase, kind) = if exclusive {
            (Phase::WaitWrite { holder }, RequestKind::Write)
        } else {
            (Phase::WaitRead { holder }, RequestKind::Read)
        };
        self.line.phase = phase;
        self.ask(holder, kind);
    }

    fn sharer_answered(&mut self, pending: NodeSet, busy: bool) {
        if busy {
            // R9: only this node can be the holder, so the add turns its intent into a bit.
            self.line.owed = pending;
            let atomic = Atomic::Add(LatchDelta::cancel_intent(self.me));
            return self.post(Phase::CancelIntent, false, atomic, false);
        }
        if pending.is_empty() {
            return self.settle(Phase::Modified);
        }
        self.line.phase = Phase::WaitSharers { pending };
    }
}

impl Phase {
    /// The word cannot name this node while one of these is outstanding.
    const fn acquires(self) -> bool {
        matches!(
            self,
            Phase::AcquireShared
                | Phase::AcquireExclusive
                | Phase::Intent { .. }
                | Phase::Upgrade
                | Phase::UpgradeIntent { .. }
        )
    }
}
