//! The coherence state machine of one global cache line at one compute node: events in, actions
//! out.
//!
//! The engine drives [`Line::step`] with local wants, completions and messages; the model checker
//! drives the very same function against a model of home and network. Nothing here does I/O.
//!
//! ```text
//!            want S                    holder 0
//!  Invalid ----------> AcquireShared ------------------------------------> Shared
//!     |                     | holder h         reset done           grant  ^  |
//!     |                     +--> ResetShared{h} --> WaitRead{h} -----------+  |
//!     |      want M                  word 0                                   | want M
//!     +--------------> AcquireExclusive --------> Modified <---- Upgrade <----+
//!                       |h       | readers R        ^   ^           | readers
//!                       v        v                  |   |           v
//!              WaitWrite{h}   Intent{R} --> WaitSharers{R} <-- UpgradeIntent{R}
//!                  grant --> Modified            | all answered, one Busy
//!                                                +--> CancelIntent --> Shared
//!  Modified --asked by writer--> HandOver{to} --> Invalid
//!  Modified --asked by reader--> Downgrade{to} --> Shared
//!  Modified --evicted--> ReleaseModified --> Invalid
//!  Modified --to go home--> WriteBack --> Modified
//!  Shared --evicted--> Lapsed --want S--> Refetch --> Shared       Lapsed --want M--> Upgrade
//!  Shared or Lapsed --asked by writer w--> Ceded{w} --want--> WaitRead{w}, WaitWrite{w}
//! ```
//! A `Look` or `UpgradeLook` at the word can go before AcquireShared, AcquireExclusive and Upgrade.
//! During a recovery it does, and `Join`, a swap of what the look has found, is in the place of
//! AcquireShared.
//!
//! # Rules (SELCC §4, made safe)
//! - R1: one outstanding latch operation per node and line; [`Phase::operation_outstanding`] says
//!   when. The driver posts all of a line's operations on one queue pair.
//! - R2: a failed shared acquire resets its bit and *waits for the reset* before it asks the
//!   holder.
//! - R3: a writer that meets only readers announces its intent in the holder field, then asks each.
//! - R4: an upgrade that lost to another holder stays Shared; the winner's release request, already
//!   on its way, takes the line away.
//! - R5: a grant is sent at once, the word is changed after, and `Confirm` follows the completed
//!   change. Unconfirmed grantees start no global transition: with the published protocol (grant
//!   and forget) the borrow of a late add can show "no writer" while memory is stale.
//! - R6: a node with an operation outstanding, or unconfirmed, defers requests. Every request gets
//!   exactly one answer.
//! - R7: what a waiting node answers at once and what it defers; see `Step::request`.
//! - R8: eviction writes back and releases in one chain; requests met meanwhile are deferred.
//! - R9: `nowait` requests meet Busy where the page is locally latched. A writer that gives up its
//!   intent turns it into a reader's bit (nobody else can be holder, and home is current, so the
//!   copy it has fetched stays good), once every reader that it asked has answered.
//!
//! # Beyond the published protocol, R2, R3 and R5
//! - A cancelled intent ends in Shared rather than Invalid.
//! - `NotHeld` may name the node the line was handed to, which the requester asks once before it
//!   goes back to the word.
//! - A shared copy that is evicted leaves its bit in the word (Lapsed). The bit is worth as much as
//!   the copy: nobody becomes holder before this node was asked, so memory is current, and a READ
//!   suffices to have the copy again.
//! - A reader that a writer asks to release leaves its bit in the word, for the writer to clear in
//!   the same atomic by which that one hands over, downgrades, evicts or gives its intent up
//!   ([`Line::carried`]). Until then the reader has nothing to do with the word (Ceded): it asks
//!   the writer, who answers only between its operations (R6). Any answer but Busy means that the
//!   bit is what the answer says: set by a grant, else cleared. A node that leaves takes such a bit
//!   back first, as a reader. Forgetting it would be unsafe: put in twice it carries into the next
//!   one, and in the end into the holder's field.
//!
//! # Death
//! What the death of another node does to a line is in `death`.
//!
//! What the loss of its home does to a line is in `home`. How a page gets home in splits is nothing
//! to the machine, and in the model (`model::coded`).
mod death;
mod home;
mod peers;
mod step;
mod terms;

pub use terms::{
    Action, Actions, Atomic, Deferred, Event, Inquiry, LatchOperation, LocalUse, Message, Phase,
    Request, RequestKind, Rules, Violation, WordAccess,
};

use super::word::{ComputeId, NodeSet};

/// One line at one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// Where it stands.
    pub phase: Phase,
    /// The node whose grant awaits its Confirm.
    pub grantor: Option<ComputeId>,
    /// Readers that have given their copies up to this node and left their bits in the word: the
    /// holder's next change of the word clears them.
    pub carried: NodeSet,
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
    /// The acquisition under way began in Ceded: whoever was asked has this node's bit in its care.
    ceded: bool,
    /// The acquisition under way is for a node that leaves.
    leaving: bool,
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
        assert!(phase.at_rest(), "a line cannot rest there");
        Line {
            phase,
            grantor: None,
            carried: NodeSet::EMPTY,
            deferred: Vec::new(),
            nowait: false,
            retries: 0,
            hinted: false,
            upgrade: UpgradeHope::Open,
            lapsed: false,
            ceded: false,
            leaving: false,
        }
    }

    /// The line after its memory or a peer was lost: no copy, nothing under way. What is known of
    /// the node's bit in the word stays true where nothing was done to the word.
    pub(crate) fn forgotten(&self) -> Line {
        match self.phase {
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } if self.ceded => {
                Line::resting(Phase::Ceded { to: holder })
            }
            Phase::Ceded { .. } | Phase::Lapsed => Line::resting(self.phase),
            Phase::Refetch => Line::resting(Phase::Lapsed),
            _ => Line::new(),
        }
    }

    /// Whether the local copy may be read.
    pub const fn readable(&self) -> bool {
        if matches!(self.phase, Phase::UpgradeLook | Phase::Upgrade | Phase::UpgradeIntent { .. }) {
            return !self.lapsed;
        }
        matches!(
            self.phase,
            Phase::Shared
                | Phase::Modified
                | Phase::WaitSharers { .. }
                | Phase::CancelIntent
                | Phase::Downgrade { .. }
                | Phase::WriteBack
                | Phase::Inquire { of: Inquiry::Shared | Inquiry::Modified, .. }
                | Phase::Claim { .. }
                | Phase::Rejoin
        )
    }

    /// Whether the local copy may be written.
    pub const fn writable(&self) -> bool {
        matches!(
            self.phase,
            Phase::Modified | Phase::Inquire { of: Inquiry::Modified, .. } | Phase::Claim { .. }
        )
    }

    /// At rest, confirmed, nobody waits: the phase and the bits carried say all there is to know.
    pub fn is_plain(&self) -> bool {
        self.phase.at_rest()
            && self.grantor.is_none()
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
            | (self.upgrade as u64) << 1
            | (self.lapsed as u64) << 3
            | (self.ceded as u64) << 4
            | (self.leaving as u64) << 5
            | (self.hinted as u64) << 6
            | (self.retries as u64) << 7
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
        // Nothing is granted to a dead node, also where this line has not heard of the death yet:
        // its bit, which is left to the sweep, must not be put in once more.
        self.deferred.retain(|deferred| !rules.dead.contains(deferred.from));
        let mut cx =
            Step { line: self, rules, me, local, out: Actions::new(), event, handed_to: None };
        match event {
            Event::Want { exclusive, nowait, look } => cx.want(exclusive, nowait, look),
            Event::Evict => cx.evict(),
            Event::WriteBack => cx.write_back(),
            Event::Leave => cx.leave(),
            Event::Completed { old } => cx.completed(old)?,
            Event::Received { from, message } => cx.received(from, message)?,
            Event::LocalFree => cx.drain(),
            Event::Lost { node } => cx.lost(node),
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
    /// To whom the line has just been handed over.
    handed_to: Option<ComputeId>,
}
