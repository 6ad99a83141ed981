//! A latch operation under way: the verbs that home executes one by one.

use super::wire::id;
use crate::coherence::machine::{Atomic, LatchOperation, Phase, WordAccess};
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

/// The atomic of a chain, by its meaning: a delta cannot be renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WordChange {
    AddReader,
    RemoveReader,
    RemoveHolder,
    CancelIntent,
    HandOver(ComputeId),
    Downgrade(NodeSet),
    Swap {
        expected: LatchWord,
        desired: LatchWord,
    },
    /// A read of the word.
    Look,
    /// No access to the word.
    Skip,
}

impl WordChange {
    /// The change of the word by the operation of a line in `phase`, and the bits that it clears
    /// besides. `None` if no rule has that addend.
    fn of(
        access: WordAccess,
        phase: Phase,
        me: ComputeId,
        nodes: usize,
    ) -> Option<(WordChange, NodeSet)> {
        let delta = match access {
            WordAccess::Skip => return Some((WordChange::Skip, NodeSet::EMPTY)),
            WordAccess::Look => return Some((WordChange::Look, NodeSet::EMPTY)),
            WordAccess::Change(Atomic::Swap { expected, desired }) => {
                return Some((WordChange::Swap { expected, desired }, NodeSet::EMPTY));
            }
            WordAccess::Change(Atomic::Add(delta)) => delta,
        };
        let change = match phase {
            Phase::AcquireShared | Phase::Rejoin { .. } => WordChange::AddReader,
            Phase::ResetShared { .. } | Phase::ReleaseShared => WordChange::RemoveReader,
            Phase::ReleaseModified => WordChange::RemoveHolder,
            Phase::CancelIntent => WordChange::CancelIntent,
            Phase::HandOver { to } => WordChange::HandOver(to),
            Phase::Downgrade { to } => WordChange::Downgrade(to),
            _ => return None,
        };
        let mut sets = vec![NodeSet::EMPTY];
        if !matches!(change, WordChange::AddReader | WordChange::RemoveReader) {
            for other in (0..nodes).map(id).filter(|other| *other != me) {
                sets.extend(sets.clone().into_iter().map(|set| set.with(other)));
            }
        }
        let whole = change.delta(me)?;
        let cleared = sets.into_iter().find(|cleared| whole.clearing(*cleared) == delta)?;
        Some((change, cleared))
    }

    fn delta(self, me: ComputeId) -> Option<LatchDelta> {
        Some(match self {
            WordChange::AddReader => LatchDelta::add_reader(me),
            WordChange::RemoveReader => LatchDelta::remove_reader(me),
            WordChange::RemoveHolder => LatchDelta::remove_holder(me),
            WordChange::CancelIntent => LatchDelta::cancel_intent(me),
            WordChange::HandOver(to) => LatchDelta::hand_over(me, to),
            WordChange::Downgrade(to) => LatchDelta::downgrade(me, to),
            WordChange::Swap { .. } | WordChange::Look | WordChange::Skip => return None,
        })
    }

    /// The word after the change of `word`.
    fn apply(self, cleared: NodeSet, me: ComputeId, word: LatchWord) -> LatchWord {
        match (self, self.delta(me)) {
            (WordChange::Swap { expected, desired }, _) if expected == word => desired,
            (_, Some(delta)) => word.add(delta.clearing(cleared)),
            _ => word,
        }
    }
}

/// One verb of a chain; of a coded page, all verbs of one stage of a write-back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChainVerb {
    WriteBack,
    /// Writes the parity split of a coded page.
    Parity,
    /// Writes the changed data split.
    Data,
    /// Writes the versions of the splits into the header.
    Versions,
    Word,
    Read,
}

/// A posted latch operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PostedChain {
    pub(super) write_back: bool,
    pub(super) coded: bool,
    pub(super) change: WordChange,
    /// Readers' bits that the change clears besides.
    pub(super) cleared: NodeSet,
    pub(super) read: bool,
    /// The number of verbs that home has executed.
    pub(super) done: u8,
    /// The word before the atomic.
    pub(super) old: LatchWord,
    /// The page that was read is fresh.
    pub(super) data: bool,
}

impl PostedChain {
    /// The chain of a line that is in `phase` after the step that posted it.
    pub(super) fn post(
        op: LatchOperation,
        phase: Phase,
        me: ComputeId,
        nodes: usize,
        coded: bool,
    ) -> Option<PostedChain> {
        let (change, cleared) = WordChange::of(op.word, phase, me, nodes)?;
        let LatchOperation { write_back, read, .. } = op;
        let old = LatchWord::FREE;
        Some(PostedChain { write_back, coded, change, cleared, read, done: 0, old, data: false })
    }

    /// Home executes the atomic; the new word.
    pub(super) fn change(&mut self, me: ComputeId, word: LatchWord) -> LatchWord {
        self.old = word;
        self.change.apply(self.cleared, me, word)
    }

    /// The verb that home executes next.
    pub(super) fn next(&self) -> Option<ChainVerb> {
        let word = self.change != WordChange::Skip;
        let coded = self.write_back && self.coded;
        let verbs = [
            (self.write_back && !coded, ChainVerb::WriteBack),
            (coded, ChainVerb::Parity),
            (coded, ChainVerb::Data),
            (coded, ChainVerb::Versions),
            (word, ChainVerb::Word),
            (self.read, ChainVerb::Read),
        ];
        verbs.into_iter().filter(|v| v.0).nth(self.done as usize).map(|v| v.1)
    }

    pub(super) fn advance(&mut self) {
        self.done += 1;
    }

    /// Whether the verbs that are left change something at home.
    pub(super) fn will_change(&self) -> bool {
        match self.next() {
            Some(
                ChainVerb::WriteBack | ChainVerb::Parity | ChainVerb::Data | ChainVerb::Versions,
            ) => true,
            Some(ChainVerb::Word) => self.change != WordChange::Look,
            Some(ChainVerb::Read) | None => false,
        }
    }

    /// Whether the local copy is still to be written back.
    pub(super) fn will_write_back(&self) -> bool {
        self.write_back && self.done < if self.coded { 3 } else { 1 }
    }

    /// Whether the chain has acquired the page.
    pub(super) fn is_granted(&self) -> bool {
        match self.change {
            WordChange::Swap { expected, .. } => self.old == expected,
            WordChange::AddReader => self.old.holder() == Ok(None),
            _ => false,
        }
    }

    /// Whether the completion puts the page that was read into the local copy.
    pub(super) fn reads(&self) -> bool {
        self.read
    }
}
