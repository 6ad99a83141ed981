//! A model to check: its settings, and the steps that it can take.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::chain::ChainVerb;
use super::omissions::{RecoveryOmission, RegenerationOmission, RelocationOmission};
use super::wire::place;
use super::world::{DeathKnowledge, ModelWorld, StoredWorld};
use crate::coherence::machine::{LocalUse, Message, Phase, Rules};

/// How local latches are modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Latching {
    /// Latches are taken and released by steps of their own.
    Explicit,
    /// The use of a latch is open until the line needs it. Then every use that the state allows is
    /// tried, and a use that defers a request stays until it is released. Fewer states, same
    /// events.
    Lazy,
}

/// Whether the callers of a node wait for latches at other nodes or take Busy; if it has any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Callers {
    Waiting,
    Nowait,
    Both,
    /// The node wants nothing. All that it may do is die.
    Absent,
}

impl Callers {
    pub(super) fn nowait(self) -> &'static [bool] {
        match self {
            Callers::Waiting => &[false],
            Callers::Nowait => &[true],
            Callers::Both => &[false, true],
            Callers::Absent => &[],
        }
    }
}

/// A model to check.
#[derive(Debug)]
pub(super) struct ProtocolModel<const N: usize> {
    pub(super) rules: Rules,
    pub(super) latching: Latching,
    /// The callers of each node.
    pub(super) callers: [Callers; N],
    /// The last node may die, once.
    pub(super) mortal: bool,
    /// It may fail before it dies.
    pub(super) fails: bool,
    /// Another node may die during the recovery from its death, and not with it.
    pub(super) twice: bool,
    /// The part that the recovery from its death leaves out.
    pub(super) skipped: Option<RecoveryOmission>,
    /// The home may be lost, once.
    pub(super) homeless: bool,
    /// The part that the relocation of the home leaves out.
    pub(super) omitted: Option<RelocationOmission>,
    /// The page is coded, one split may be lost; see `coded`.
    pub(super) coded: bool,
    /// The part that the regeneration of its splits leaves out.
    pub(super) careless: Option<RegenerationOmission>,
    /// Each node has a log of its changes.
    pub(super) logs: bool,
    /// A node that takes a line over from a dead one does not write it home.
    pub(super) keeps_claimed: bool,
    /// States that differ by a renaming of nodes with the same callers are equal.
    pub(super) symmetric: bool,
    /// The phases met in the search, by tag, to show that it covers the machine.
    pub(super) met: AtomicU64,
    /// With `homeless`: the states whose home is not lost, which are those of the model without.
    pub(super) with_home: AtomicUsize,
}

/// The cause of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ModelEvent {
    // Steps of the application.
    Want {
        exclusive: bool,
        nowait: bool,
        look: bool,
    },
    Evict,
    WriteBack,
    Leave,
    Write,
    // Steps of a death and its recovery; see `death`.
    Fails,
    Dies,
    /// The mortal node dies, and the node of the step with it.
    DiesToo,
    /// The node dies during the recovery from the death of another.
    DiesLater,
    /// The node dies that sweeps the word; another one has to begin anew.
    SweeperDies,
    Fenced,
    Knows(DeathKnowledge),
    Lost(usize),
    /// The last message of a dead node is lost.
    MailLost {
        from: usize,
    },
    /// The home is lost, and its word is made anew; see `home`.
    HomeLost {
        /// The node that dies before it has entered its copy.
        dies: Option<usize>,
        /// The dead node that the new word names.
        names: Option<usize>,
    },
    /// A split is lost, or regenerated; see `coded`.
    SplitLost(usize),
    SplitMade,
    /// A message arrives at a node that has failed.
    Refused {
        from: usize,
    },
    Looked,
    Swept,
    Latch(LocalUse),
    Unlatch,
    // Steps of home and network; see `network`.
    Freed(LocalUse),
    Home(ChainVerb),
    Complete(LocalUse),
    /// A message arrives; a request that is deferred overtakes this many older ones.
    Receive {
        from: usize,
        message: Message,
        local: LocalUse,
        overtakes: usize,
    },
}

/// A step and the world after it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ModelStep<const N: usize> {
    pub(super) node: usize,
    pub(super) what: ModelEvent,
    pub(super) after: StoredWorld<N>,
}

impl<const N: usize> ModelStep<N> {
    pub(super) fn new(node: usize, what: ModelEvent, after: ModelWorld<N>) -> Self {
        ModelStep { node, what, after: Box::new(after) }
    }
}

impl<const N: usize> ProtocolModel<N> {
    pub(super) fn new(latching: Latching, callers: [Callers; N]) -> Self {
        // Priority only orders deferred requests; here a deferred request overtakes any number of
        // older ones instead, so every order that priorities could make is searched.
        let rules = Rules { max_priority: 0, ..Rules::DESIGNED };
        ProtocolModel {
            rules,
            latching,
            callers,
            mortal: false,
            fails: false,
            twice: false,
            skipped: None,
            homeless: false,
            omitted: None,
            logs: false,
            keeps_claimed: false,
            coded: false,
            careless: None,
            symmetric: true,
            met: AtomicU64::new(0),
            with_home: AtomicUsize::new(0),
        }
    }

    /// Whether the rules are weakened: messages may come too early or not at all.
    pub(super) fn published(&self) -> bool {
        !self.rules.confirm
            || !self.rules.wait_for_reset
            || self.skipped.is_some()
            || self.omitted.is_some()
            || self.careless.is_some()
    }
}

/// One line of a trace.
pub(super) fn describe<const N: usize>(step: &ModelStep<N>) -> String {
    let ModelWorld { word, nodes, home_fresh, .. } = &*step.after;
    let phases: Vec<Phase> = nodes.iter().map(|n| n.line.phase).collect();
    let readers: Vec<usize> = word.readers().iter().map(place).collect();
    let holder = word.holder().ok().flatten().map(place);
    let copies: String = nodes.iter().map(|n| if n.fresh { 'F' } else { '-' }).collect();
    let home = if *home_fresh { "fresh" } else { "stale" };
    format!(
        "cn{} {:?} -> word {holder:?}{readers:?}, home {home}, copies {copies}, {phases:?}",
        step.node, step.what
    )
}
