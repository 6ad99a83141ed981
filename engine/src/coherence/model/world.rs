//! The world of the model: home, network and N compute nodes, one line.
//!
//! Ids are compared for equality only, so any renaming of the nodes maps runs onto runs. A state
//! therefore hashes as the class of its renamings, and the checker looks at one state of each.

use std::hash::{Hash, Hasher};

use super::coded::Store;
use crate::coherence::machine::{
    Atomic, Deferred, LatchOperation, Line, LocalUse, Message, Phase, Request, RequestKind,
    WordAccess,
};
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, MAX_COMPUTE_NODES, NodeSet};

/// Messages that can be under way from one node to another: a request, an answer to the other's
/// request, a Confirm. One more shows a fault.
const WIRE_LIMIT: usize = 3;

/// The id of the node at this place: the greatest ones, next to each other, so that what carries
/// out of one's bit is seen in another's, or in the holder's field.
pub(super) fn id(place: usize) -> ComputeId {
    ComputeId::new(MAX_COMPUTE_NODES - 1 - place).unwrap()
}

/// The place of the node with this id.
pub(super) fn place(id: ComputeId) -> usize {
    MAX_COMPUTE_NODES - 1 - id.index()
}

/// A message and, for grants, whether the page beside it is fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) message: Message,
    pub(super) fresh: bool,
}

/// What is under way from one node to another, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wire {
    packets: [Packet; WIRE_LIMIT],
    len: u8,
}

impl Wire {
    const BLANK: Packet = Packet { message: Message::Confirm, fresh: false };
    const EMPTY: Wire = Wire { packets: [Wire::BLANK; WIRE_LIMIT], len: 0 };

    pub(super) fn packets(&self) -> &[Packet] {
        &self.packets[..self.len as usize]
    }

    pub(super) fn first(&self) -> Option<Packet> {
        self.packets().first().copied()
    }

    /// False: the wire is full, which the protocol excludes.
    pub(super) fn push(&mut self, packet: Packet) -> bool {
        let full = self.len as usize == WIRE_LIMIT;
        if !full {
            self.packets[self.len as usize] = packet;
            self.len += 1;
        }
        !full
    }

    pub(super) fn clear(&mut self) {
        *self = Wire::EMPTY;
    }

    /// The last one is gone.
    pub(super) fn lose_last(&mut self) {
        self.len -= 1;
        self.packets[self.len as usize] = Wire::BLANK;
    }

    pub(super) fn pop(&mut self) {
        self.packets.rotate_left(1);
        self.packets[WIRE_LIMIT - 1] = Wire::BLANK;
        self.len -= 1;
    }
}

/// The atomic of a chain, by what it means: deltas cannot be renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
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
    /// A look only.
    Look,
    /// The word is left alone.
    Skip,
}

impl Change {
    /// What the operation of a line in `phase` does to the word, and the bits that it clears
    /// beside. `None`: an addend that the rules do not have there.
    fn of(
        access: WordAccess,
        phase: Phase,
        me: ComputeId,
        nodes: usize,
    ) -> Option<(Change, NodeSet)> {
        let delta = match access {
            WordAccess::Skip => return Some((Change::Skip, NodeSet::EMPTY)),
            WordAccess::Look => return Some((Change::Look, NodeSet::EMPTY)),
            WordAccess::Change(Atomic::Swap { expected, desired }) => {
                return Some((Change::Swap { expected, desired }, NodeSet::EMPTY));
            }
            WordAccess::Change(Atomic::Add(delta)) => delta,
        };
        let change = match phase {
            Phase::AcquireShared | Phase::Rejoin => Change::AddReader,
            Phase::ResetShared { .. } | Phase::ReleaseShared => Change::RemoveReader,
            Phase::ReleaseModified => Change::RemoveHolder,
            Phase::CancelIntent => Change::CancelIntent,
            Phase::HandOver { to } => Change::HandOver(to),
            Phase::Downgrade { to } => Change::Downgrade(to),
            _ => return None,
        };
        let mut sets = vec![NodeSet::EMPTY];
        if !matches!(change, Change::AddReader | Change::RemoveReader) {
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
            Change::AddReader => LatchDelta::add_reader(me),
            Change::RemoveReader => LatchDelta::remove_reader(me),
            Change::RemoveHolder => LatchDelta::remove_holder(me),
            Change::CancelIntent => LatchDelta::cancel_intent(me),
            Change::HandOver(to) => LatchDelta::hand_over(me, to),
            Change::Downgrade(to) => LatchDelta::downgrade(me, to),
            Change::Swap { .. } | Change::Look | Change::Skip => return None,
        })
    }

    /// The word after the change has met `word`.
    fn apply(self, cleared: NodeSet, me: ComputeId, word: LatchWord) -> LatchWord {
        match (self, self.delta(me)) {
            (Change::Swap { expected, desired }, _) if expected == word => desired,
            (_, Some(delta)) => word.add(delta.clearing(cleared)),
            _ => word,
        }
    }
}

/// One verb of a chain, or, of a coded page, what stands for the verbs of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    WriteBack,
    /// The split of parity, of a coded page.
    Parity,
    /// The data split that was changed.
    Data,
    /// What the header says of the splits.
    Versions,
    Word,
    Read,
}

/// A posted latch operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    write_back: bool,
    coded: bool,
    change: Change,
    /// Readers' bits that go with it.
    cleared: NodeSet,
    read: bool,
    /// Verbs that home has executed.
    done: u8,
    /// What the atomic found.
    pub(super) old: LatchWord,
    /// What was read is fresh.
    pub(super) data: bool,
}

impl Chain {
    /// Of a line that is in `phase` after the step that posted it.
    pub(super) fn post(
        op: LatchOperation,
        phase: Phase,
        me: ComputeId,
        nodes: usize,
        coded: bool,
    ) -> Option<Chain> {
        let (change, cleared) = Change::of(op.word, phase, me, nodes)?;
        let LatchOperation { write_back, read, .. } = op;
        let old = LatchWord::FREE;
        Some(Chain { write_back, coded, change, cleared, read, done: 0, old, data: false })
    }

    /// Home does to the word what the chain says.
    pub(super) fn change(&mut self, me: ComputeId, word: LatchWord) -> LatchWord {
        self.old = word;
        self.change.apply(self.cleared, me, word)
    }

    /// The verb that home executes next.
    pub(super) fn next(&self) -> Option<Verb> {
        let word = self.change != Change::Skip;
        let coded = self.write_back && self.coded;
        let verbs = [
            (self.write_back && !coded, Verb::WriteBack),
            (coded, Verb::Parity),
            (coded, Verb::Data),
            (coded, Verb::Versions),
            (word, Verb::Word),
            (self.read, Verb::Read),
        ];
        verbs.into_iter().filter(|v| v.0).nth(self.done as usize).map(|v| v.1)
    }

    pub(super) fn advance(&mut self) {
        self.done += 1;
    }

    /// What home has still to do of it changes something there.
    pub(super) fn will_change(&self) -> bool {
        match self.next() {
            Some(Verb::WriteBack | Verb::Parity | Verb::Data | Verb::Versions) => true,
            Some(Verb::Word) => self.change != Change::Look,
            Some(Verb::Read) | None => false,
        }
    }

    /// The local copy is still to be written back.
    pub(super) fn will_write_back(&self) -> bool {
        self.write_back && self.done < if self.coded { 3 } else { 1 }
    }

    /// What the chain found says that it may have the page.
    pub(super) fn is_granted(&self) -> bool {
        match self.change {
            Change::Swap { expected, .. } => self.old == expected,
            Change::AddReader => self.old.holder() == Ok(None),
            _ => false,
        }
    }

    /// What the chain reads is put into the local copy on completion.
    pub(super) fn reads(&self) -> bool {
        self.read
    }
}

/// One compute node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) line: Line,
    /// Nobody has written since the local copy was taken.
    pub(super) fresh: bool,
    /// The local latch. With [`super::Latching::Lazy`], `Idle` leaves it open.
    pub(super) latch: LocalUse,
    /// The latch was let go while requests were deferred, and the line does not know yet.
    pub(super) free_due: bool,
    pub(super) chain: Option<Chain>,
    pub(super) life: Life,
    pub(super) heard: Heard,
    /// The dead nodes of which the line will be told.
    pub(super) untold: NodeSet,
    /// It has taken the line over from a dead node, and not written it home since; only where there
    /// are logs.
    pub(super) claimed: bool,
}

/// Whether a node lives, and what has become of what it left in the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Runs,
    Dead,
    /// Its sweep is over, and has taken the line for lost or not.
    Swept {
        lost: bool,
    },
}

/// What a node, and its line, have heard of a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    Nothing,
    /// It knows ([`crate::coherence::machine::Rules::dead`]); the line will be told.
    Noted,
    /// As before; the line was at rest when the active ones were listed, and had to do with the
    /// dead node.
    Passed,
    /// The line was told, or has nothing to do with it.
    Told,
    /// The line was told, and has not been seen without an operation outstanding since.
    Due,
    /// The node knows that the sweep is done.
    Over,
}

/// How far the recovery has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Alive,
    Dead,
    Fenced,
    /// The sweep for the dead node at this place has seen this word, and will swap it for another.
    Looked {
        of: usize,
        word: LatchWord,
    },
    /// All sweeps are over.
    Swept,
}

/// What the checked function, or a world driven by it, must never do; see the properties.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fault {
    /// [`Line::step`] returned an error, or panicked.
    Violation,
    /// A chain beside another (R1), an addend of no rule, a message too many or to nobody.
    Action,
    /// A local latch holder lost the right that its latch stands for.
    RightLost,
    /// Local callers could go on, and were not told.
    WakeLost,
    /// The sweep let the survivors have what home has, and that is stale.
    Judgement,
    /// What a dead node had changed, or a living one, is neither at home nor in a log that is read.
    Unhomed,
    /// Splits that are not of one page were taken for a page, or written beside those of another
    /// write-back.
    Torn,
}

/// What the rules of a step depend on.
#[derive(Clone, Copy)]
pub(super) struct Site {
    pub(super) node: usize,
    pub(super) heard: Heard,
    /// The nodes that it knows to be dead.
    pub(super) dead: NodeSet,
}

/// A state of the whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct World<const N: usize> {
    pub(super) word: LatchWord,
    /// Nobody has written since home's page was.
    pub(super) home_fresh: bool,
    /// Nodes whose changes are not all home; only where lines that are handed over go home.
    pub(super) unhomed: NodeSet,
    pub(super) fault: Option<Fault>,
    pub(super) stage: Stage,
    pub(super) home_lost: bool,
    pub(super) store: Store,
    pub(super) nodes: [Node; N],
    /// `wires[from][to]`.
    pub(super) wires: [[Wire; N]; N],
    /// Renamings among nodes of the same class hash alike.
    class: [u8; N],
}

impl<const N: usize> World<N> {
    pub(super) fn new(class: [u8; N]) -> Self {
        let node = Node {
            line: Line::new(),
            fresh: false,
            latch: LocalUse::Idle,
            free_due: false,
            chain: None,
            life: Life::Runs,
            heard: Heard::Nothing,
            untold: NodeSet::EMPTY,
            claimed: false,
        };
        World {
            word: LatchWord::FREE,
            home_fresh: true,
            unhomed: NodeSet::EMPTY,
            fault: None,
            stage: Stage::Alive,
            home_lost: false,
            store: Store::default(),
            nodes: std::array::from_fn(|_| node.clone()),
            wires: [[Wire::EMPTY; N]; N],
            class,
        }
    }

    /// The nodes that are dead.
    pub(super) fn dead(&self) -> NodeSet {
        self.places(|node| node.life != Life::Runs).map(id).collect()
    }

    pub(super) fn places(&self, of: impl Fn(&Node) -> bool) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(move |(_, node)| of(node)).map(|(place, _)| place)
    }

    /// Where a line is, and what its node knows of deaths.
    pub(super) fn site(&self, node: usize) -> Site {
        let heard = self.nodes[node].heard;
        let dead = if heard == Heard::Nothing { NodeSet::EMPTY } else { self.dead() };
        Site { node, heard, dead }
    }

    /// `writer` writes its copy: every other one goes stale, wherever it is.
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

    /// What a chain writes is home.
    pub(super) fn is_home(&mut self, chain: &Chain) {
        self.unhomed = match chain.change {
            // Who has got it may have changed it since.
            Change::HandOver(to) if self.unhomed.contains(to) => NodeSet::EMPTY.with(to),
            _ => NodeSet::EMPTY,
        };
    }

    /// Nothing is under way: only the application can move.
    pub(super) fn quiet(&self) -> bool {
        self.nodes.iter().all(|n| n.chain.is_none() && !n.free_due)
            && self.wires.as_flattened().iter().all(|wire| wire.len == 0)
    }

    /// Forgets what has no meaning any more, so that equal states are equal.
    pub(super) fn forget(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let kept = node.line.readable() || node.chain.is_some_and(|chain| chain.will_write_back());
        node.fresh &= kept;
    }

    /// Hash of the state in which the node at each place of `order` has that place's id.
    fn fingerprint(&self, order: &[usize; N]) -> u64 {
        let mut rank = [0; N];
        for (place, node) in order.iter().enumerate() {
            rank[*node] = place;
        }
        let mut to = Renamed { mixer: Mixer(0), rank };
        to.word(self.word);
        let stage = match self.stage {
            Stage::Alive => 0,
            Stage::Dead => 1,
            Stage::Fenced => 2,
            Stage::Swept => 3,
            Stage::Looked { of, word } => {
                to.word(word);
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

impl<const N: usize> Hash for World<N> {
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

    fn node(&mut self, node: &Node) {
        let line = &node.line;
        let (words, named) = phase_arguments(line.phase);
        let carried = self.set(line.carried);
        let named = self.set(named);
        let life = match node.life {
            Life::Runs => 0,
            Life::Dead => 1,
            Life::Swept { lost } => 2 + u64::from(lost),
        };
        if !node.untold.is_empty() {
            self.put(self.set(node.untold));
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
                | (node.heard as u64) << 21
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
            Change::AddReader => (1, none),
            Change::RemoveReader => (2, none),
            Change::RemoveHolder => (3, none),
            Change::CancelIntent => (4, none),
            Change::HandOver(to) => (5, none.with(to)),
            Change::Downgrade(to) => (6, to),
            Change::Skip => (8, none),
            Change::Look => (9, none),
            Change::Swap { expected, desired } => {
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

/// A number for each kind of phase.
pub(super) const fn phase_tag(phase: Phase) -> u64 {
    match phase {
        Phase::Invalid => 0,
        Phase::AcquireShared => 1,
        Phase::ResetShared { .. } => 2,
        Phase::WaitRead { .. } => 3,
        Phase::Shared => 4,
        Phase::AcquireExclusive => 5,
        Phase::Intent { .. } => 6,
        Phase::WaitSharers { refused: false, .. } => 7,
        Phase::WaitWrite { .. } => 8,
        Phase::Modified => 9,
        Phase::Upgrade => 10,
        Phase::UpgradeIntent { .. } => 11,
        Phase::Downgrade { .. } => 12,
        Phase::HandOver { .. } => 13,
        Phase::ReleaseShared => 14,
        Phase::ReleaseModified => 15,
        Phase::CancelIntent => 16,
        Phase::Lapsed => 17,
        Phase::Refetch => 18,
        Phase::Ceded { .. } => 19,
        Phase::Look { exclusive: false } => 20,
        Phase::Look { exclusive: true } => 21,
        Phase::UpgradeLook => 22,
        Phase::WaitSharers { refused: true, .. } => 23,
        Phase::Inquire { of, .. } => 24 + of as u64,
        Phase::Claim { .. } => 27,
        Phase::Rejoin => 28,
        Phase::Join { .. } => 29,
        Phase::Disclaim { .. } => 30,
        Phase::WriteBack => 31,
    }
}

/// Kinds of phases in which a line can be while nobody dies.
pub(super) const PHASES: u32 = 24;
/// Kinds of phases in which it can be if there are no logs.
pub(super) const ALL_PHASES: u32 = 31;

fn phase_arguments(phase: Phase) -> (Option<LatchWord>, NodeSet) {
    let one = |node| NodeSet::EMPTY.with(node);
    match phase {
        Phase::Join { expected }
        | Phase::Intent { expected }
        | Phase::UpgradeIntent { expected } => (Some(expected), NodeSet::EMPTY),
        Phase::ResetShared { holder }
        | Phase::WaitRead { holder }
        | Phase::WaitWrite { holder } => (None, one(holder)),
        Phase::Claim { expected, dead } | Phase::Disclaim { expected, dead } => {
            (Some(expected), one(dead))
        }
        Phase::Inquire { dead, .. } => (None, one(dead)),
        Phase::WaitSharers { pending, .. } => (None, pending),
        Phase::Downgrade { to } => (None, to),
        Phase::HandOver { to } | Phase::Ceded { to } => (None, one(to)),
        _ => (None, NodeSet::EMPTY),
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
