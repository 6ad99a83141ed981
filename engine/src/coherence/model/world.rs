//! The world of the model: home, network and N compute nodes, one line.

use super::chain::{PostedChain, WordChange};
use super::coded_page::CodedPage;
use super::wire::{Wire, id};
use crate::coherence::machine::{Line, LocalUse};
use crate::coherence::word::{LatchWord, NodeSet};

/// One compute node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ModelNode {
    pub(super) line: Line,
    /// No node has written since the local copy was taken.
    pub(super) fresh: bool,
    /// The local latch. With [`super::protocol::Latching::Lazy`], `Idle` leaves its use open.
    pub(super) latch: LocalUse,
    /// The latch was released while requests were deferred, and the line was not told yet.
    pub(super) free_due: bool,
    pub(super) chain: Option<PostedChain>,
    pub(super) life: NodeLife,
    pub(super) knowledge: DeathKnowledge,
    /// The dead nodes that the node knows of.
    pub(super) known: NodeSet,
    /// The dead nodes that the node had acknowledged before it learned of the last one.
    pub(super) acknowledged: NodeSet,
    /// The dead nodes of which the line is not told yet.
    pub(super) untold: NodeSet,
    /// The node has taken the line over from a dead node, and has not written it home since. Only
    /// with logs.
    pub(super) claimed: bool,
}

/// Whether a node lives, and whether its recovery has swept the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeLife {
    Runs,
    /// It has forgotten the line, as its memory node did not answer, and will die. Until then it
    /// answers every request that it does not hold the line.
    Failed,
    Dead,
    /// Its sweep is over.
    Swept {
        /// The sweep took the line for lost.
        lost: bool,
    },
}

/// What a node and its line know of a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeathKnowledge {
    Nothing,
    /// The node knows ([`crate::coherence::machine::Rules::dead`]); the line is not told yet.
    Noted,
    /// As Noted, and the line was at rest when active lines were listed; it involves the dead
    /// node.
    Passed,
    /// The line was told, or does not involve the dead node.
    Told,
    /// The line was told, and had an operation outstanding ever since.
    Due,
    /// The node knows that the sweep is done.
    Over,
}

/// The progress of the recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecoveryStage {
    Alive,
    Dead,
    Fenced,
    /// The sweep for the dead node at this place has read this word, and will swap it.
    Looked {
        of: usize,
        word: LatchWord,
        /// The node that has died since, and is not known to be dead yet.
        died: Option<usize>,
    },
    /// All sweeps are over.
    Swept,
}

/// A fault of the machine, or of the world that it drives; see the properties.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ModelFault {
    /// [`Line::step`] returned an error, or panicked.
    Violation,
    /// A second chain (R1), an addend of no rule, a message too many or to no node.
    Action,
    /// A local latch holder lost its right.
    RightLost,
    /// Local callers could continue, and were not woken.
    WakeLost,
    /// The sweep freed the line, and home is stale.
    Judgement,
    /// A change of a node is neither at home nor in a log that is read.
    Unhomed,
    /// Splits of different versions were taken for a page, or two write-backs overlapped.
    Torn,
}

/// The knowledge of a node on which the rules of a step depend.
#[derive(Clone, Copy)]
pub(super) struct NodeView {
    pub(super) node: usize,
    pub(super) knowledge: DeathKnowledge,
    /// The nodes that this node knows to be dead.
    pub(super) dead: NodeSet,
    /// It has acknowledged a death before the last one that it knows of.
    pub(super) recovered_before: bool,
}

/// A state of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ModelWorld<const N: usize> {
    pub(super) word: LatchWord,
    /// Home has the last version of the page.
    pub(super) home_fresh: bool,
    /// Nodes of which home lacks changes. Only with logs.
    pub(super) unhomed: NodeSet,
    pub(super) fault: Option<ModelFault>,
    pub(super) stage: RecoveryStage,
    pub(super) home_lost: bool,
    pub(super) store: CodedPage,
    pub(super) nodes: [ModelNode; N],
    /// `wires[from][to]`.
    pub(super) wires: [[Wire; N]; N],
    /// Renamings among nodes of the same class hash alike.
    pub(super) class: [u8; N],
}

/// A state as the checker has it: on the heap, because a search moves each state several times.
pub(super) type StoredWorld<const N: usize> = Box<ModelWorld<N>>;

impl<const N: usize> ModelWorld<N> {
    pub(super) fn new(class: [u8; N]) -> Self {
        let node = ModelNode {
            line: Line::new(),
            fresh: false,
            latch: LocalUse::Idle,
            free_due: false,
            chain: None,
            life: NodeLife::Runs,
            knowledge: DeathKnowledge::Nothing,
            known: NodeSet::EMPTY,
            acknowledged: NodeSet::EMPTY,
            untold: NodeSet::EMPTY,
            claimed: false,
        };
        ModelWorld {
            word: LatchWord::FREE,
            home_fresh: true,
            unhomed: NodeSet::EMPTY,
            fault: None,
            stage: RecoveryStage::Alive,
            home_lost: false,
            store: CodedPage::default(),
            nodes: std::array::from_fn(|_| node.clone()),
            wires: [[Wire::EMPTY; N]; N],
            class,
        }
    }

    /// The dead nodes.
    pub(super) fn dead(&self) -> NodeSet {
        let lives = |node: &ModelNode| matches!(node.life, NodeLife::Runs | NodeLife::Failed);
        self.places(|node| !lives(node)).map(id).collect()
    }

    pub(super) fn places(&self, of: impl Fn(&ModelNode) -> bool) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(move |(_, node)| of(node)).map(|(place, _)| place)
    }

    /// A node, and what it knows of deaths.
    pub(super) fn site(&self, node: usize) -> NodeView {
        let ModelNode { knowledge, known, acknowledged, .. } = &self.nodes[node];
        let (knowledge, dead) = (*knowledge, *known);
        NodeView { node, knowledge, dead, recovered_before: !acknowledged.is_empty() }
    }

    /// `writer` writes its copy: every other copy goes stale.
    pub(super) fn write(&mut self, writer: usize) {
        self.home_fresh = false;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.fresh = index == writer;
            if let Some(chain) = &mut node.chain {
                chain.data = false;
            }
        }
        for wire in self.wires.as_flattened_mut() {
            for packet in &mut wire.packets {
                packet.fresh = false;
            }
        }
    }

    /// The write-back of a chain has reached home.
    pub(super) fn is_home(&mut self, chain: &PostedChain) {
        self.unhomed = match chain.change {
            // The grantee may have changed the page since.
            WordChange::HandOver(to) if self.unhomed.contains(to) => NodeSet::EMPTY.with(to),
            _ => NodeSet::EMPTY,
        };
    }

    /// Whether no chain and no message is outstanding: only the application can move.
    pub(super) fn quiet(&self) -> bool {
        self.nodes.iter().all(|n| n.chain.is_none() && !n.free_due)
            && self.wires.as_flattened().iter().all(|wire| wire.len == 0)
    }

    /// Resets fields without a meaning, so that equal states compare equal.
    pub(super) fn forget(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let kept = node.line.readable() || node.chain.is_some_and(|chain| chain.will_write_back());
        node.fresh &= kept;
    }
}
