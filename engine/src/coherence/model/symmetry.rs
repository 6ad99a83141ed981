//! The hash of a state, under which states are equal that differ by a renaming of nodes.
//!
//! Ids are compared for equality only, so any renaming of the nodes maps runs onto runs. A state
//! therefore hashes as the class of its renamings, and the checker looks at one state of each.

use std::hash::{Hash, Hasher};

use super::chain::WordChange;
use super::phases::{phase_arguments, phase_tag};
use super::wire::{Wire, id, place};
use super::world::{ModelNode, ModelWorld, NodeLife, RecoveryStage};
use crate::coherence::machine::{Deferred, Message, Request, RequestKind};
use crate::coherence::word::{ComputeId, LatchWord, NodeSet};

impl<const N: usize> ModelWorld<N> {
    /// Hash of the state in which the node at each place of `order` has that place's id.
    fn fingerprint(&self, order: &[usize; N]) -> u64 {
        let mut rank = [0; N];
        for (place, node) in order.iter().enumerate() {
            rank[*node] = place;
        }
        let one_by_one = self.nodes.iter().any(|n| !n.known.is_empty() && n.known != self.dead());
        let mut to = Renamed { mixer: Mixer(0), rank, one_by_one };
        to.word(self.word);
        let stage = match self.stage {
            RecoveryStage::Alive => 0,
            RecoveryStage::Dead => 1,
            RecoveryStage::Fenced => 2,
            RecoveryStage::Swept => 3,
            RecoveryStage::Looked { of, word, died } => {
                to.word(word);
                if let Some(died) = died {
                    to.put(to.node_id(id(died)) | 1 << 61);
                }
                4 | to.node_id(id(of)) << 3
            }
        };
        let fault = self.fault.map_or(0, |f| 2 + f as u64);
        to.put(
            u64::from(self.home_fresh) | fault << 1 | stage << 8 | u64::from(self.home_lost) << 62,
        );
        let unhomed = to.set(self.unhomed);
        if unhomed != 0 {
            to.put(unhomed | 1 << 63);
        }
        let writer = self.store.writer.map_or(0, |writer| to.node_id(id(writer)));
        to.put(self.store.code() | writer << 32);
        for node in order {
            to.put(u64::from(self.class[*node]));
            to.node(&self.nodes[*node]);
            for peer in order.iter().filter(|peer| *peer != node) {
                to.wire(&self.wires[*node][*peer]);
            }
        }
        to.mixer.0
    }

    /// A number that renaming does not change: nodes that differ in it are never exchanged.
    fn signature(&self, index: usize) -> u64 {
        let node = &self.nodes[index];
        let wires: usize = (0..N)
            .map(|peer| {
                self.wires[index][peer].len as usize * 4 + self.wires[peer][index].len as usize
            })
            .sum();
        let mut mixer = Mixer(0);
        mixer.put(phase_tag(node.line.phase) | u64::from(self.class[index]) << 8);
        mixer.put(wires as u64 * 64 + node.line.deferred.len() as u64);
        mixer.put(
            u64::from(self.word.readers().contains(id(index)))
                | u64::from(self.word.holder() == Ok(Some(id(index)))) << 1
                | u64::from(node.fresh) << 2
                | node.chain.map_or(0, |chain| u64::from(chain.done) + 1) << 3,
        );
        mixer.0
    }
}

impl<const N: usize> Hash for ModelWorld<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut order: [usize; N] = std::array::from_fn(|i| i);
        let signatures: [u64; N] = std::array::from_fn(|i| self.signature(i));
        order.sort_by_key(|i| signatures[*i]);
        let mut least = u64::MAX;
        permute(&mut order, 0, &signatures, &mut |order| {
            least = least.min(self.fingerprint(order));
        });
        state.write_u64(least);
    }
}

/// Calls `f` with every order that keeps the signatures sorted.
fn permute<const N: usize>(
    order: &mut [usize; N],
    from: usize,
    signatures: &[u64; N],
    f: &mut impl FnMut(&[usize; N]),
) {
    if from == N {
        return f(order);
    }
    for other in from..N {
        if signatures[order[other]] == signatures[order[from]] {
            order.swap(from, other);
            permute(order, from + 1, signatures, f);
            order.swap(from, other);
        }
    }
}

/// Mixes numbers into one; the checker only needs that different states rarely meet.
struct Mixer(u64);

impl Mixer {
    fn put(&mut self, value: u64) {
        let mut x = (self.0 ^ value).wrapping_add(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.0 = x ^ (x >> 31);
    }
}

/// Feeds parts of a state to the hash, with every id renamed.
struct Renamed<const N: usize> {
    mixer: Mixer,
    /// Whether the nodes may know of different deaths.
    one_by_one: bool,
    rank: [usize; N],
}

impl<const N: usize> Renamed<N> {
    fn put(&mut self, value: u64) {
        self.mixer.put(value);
    }

    /// The id's new place plus one; ids beyond the nodes (damaged words) as they are.
    fn node_id(&self, node: ComputeId) -> u64 {
        self.rank.get(place(node)).map_or(place(node), |rank| *rank) as u64 + 1
    }

    fn set(&self, set: NodeSet) -> u64 {
        set.iter().fold(0, |all, node| all | 1 << self.node_id(node))
    }

    fn word(&mut self, word: LatchWord) {
        let holder = match word.holder() {
            Ok(None) => 0,
            Ok(Some(node)) => self.node_id(node),
            Err(bad) => 100 + u64::from(bad.0),
        };
        let readers = self.set(word.readers());
        self.put(readers.rotate_left(5) ^ holder);
    }

    fn node(&mut self, node: &ModelNode) {
        let line = &node.line;
        let (words, named) = phase_arguments(line.phase);
        let carried = self.set(line.carried);
        let named = self.set(named);
        let life = match node.life {
            NodeLife::Runs => 0,
            NodeLife::Dead => 1,
            NodeLife::Swept { lost } => 2 + u64::from(lost),
            NodeLife::Failed => 4,
        };
        if !node.untold.is_empty() {
            self.put(self.set(node.untold));
        }
        // Nodes learn of all deaths at once, but for one that comes during a recovery.
        if !node.acknowledged.is_empty() || self.one_by_one && !node.known.is_empty() {
            self.put(self.set(node.known) | self.set(node.acknowledged) << 16 | 1 << 60);
        }
        if node.claimed {
            self.put(1 << 62);
        }
        self.put(
            phase_tag(line.phase)
                | line.private_state() << 8
                | line.grantor.map_or(0, |grantor| self.node_id(grantor)) << 60
                | u64::from(node.fresh) << 25
                | u64::from(node.free_due) << 26
                | (node.knowledge as u64) << 21
                | life << 36
                | (node.latch as u64) << 27
                | (line.deferred.len() as u64) << 32
                | carried << 40
                | named << 52,
        );
        if let Some(word) = words {
            self.word(word);
        }
        for Deferred { from, request } in &line.deferred {
            let code = message_code(Message::Request(*request));
            let from = self.node_id(*from);
            self.put(code << 8 | from);
        }
        let Some(chain) = &node.chain else { return self.put(0) };
        let none = NodeSet::EMPTY;
        let (tag, named) = match chain.change {
            WordChange::AddReader => (1, none),
            WordChange::RemoveReader => (2, none),
            WordChange::RemoveHolder => (3, none),
            WordChange::CancelIntent => (4, none),
            WordChange::HandOver(to) => (5, none.with(to)),
            WordChange::Downgrade(to) => (6, to),
            WordChange::Skip => (8, none),
            WordChange::Look => (9, none),
            WordChange::Swap { expected, desired } => {
                self.word(expected);
                self.word(desired);
                (7, none)
            }
        };
        let named = self.set(named);
        self.put(
            tag | named << 8
                | u64::from(chain.done) << 16
                | u64::from(chain.data) << 18
                | u64::from(chain.write_back) << 19
                | u64::from(chain.read) << 20
                | self.set(chain.cleared) << 24,
        );
        self.word(chain.old);
    }

    fn wire(&mut self, wire: &Wire) {
        let mut code = u64::from(wire.len);
        for packet in wire.packets() {
            let hint = match packet.message {
                Message::NotHeld { holder: Some(node) } => self.node_id(node),
                _ => 0,
            };
            code = code << 18 | message_code(packet.message) << 7 | hint << 1;
            code |= u64::from(packet.fresh);
        }
        self.put(code);
    }
}

/// A number for each message but for the node it names; below 2^10.
fn message_code(message: Message) -> u64 {
    match message {
        Message::Request(Request { kind, nowait, priority }) => {
            let kind = match kind {
                RequestKind::Read => 1,
                RequestKind::Write => 2,
                RequestKind::Release => 3,
            };
            kind | u64::from(nowait) << 2 | u64::from(priority) << 4
        }
        Message::GrantShared => 8,
        Message::GrantModified => 9,
        Message::Released => 10,
        Message::NotHeld { .. } => 11,
        Message::Busy => 12,
        Message::Confirm => 13,
    }
}
