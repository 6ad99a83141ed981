//! The latch word: the one 64-bit word per global cache line in which the coherence protocol lives.
//!
//! ```text
//! bit  63        58 57                                  0
//!      +-----------+-------------------------------------+
//!      | holder: 6 | readers: 58, one bit a compute node |
//!      +-----------+-------------------------------------+
//! ```
//! `holder` is the node id plus one; 0 is none (SELCC §4.1), and 62 says that the page is lost for
//! good ([`ComputeId::LOST`]). Only this file shifts latch bits. All
//! other code composes the words and deltas that it makes.

use std::fmt;

/// Bit position of the holder field.
const HOLDER_SHIFT: u32 = 58;
/// Mask of the reader bits.
const READERS_MASK: u64 = (1 << HOLDER_SHIFT) - 1;
/// Compute nodes that one pool can have: one reader bit each.
pub const MAX_COMPUTE_NODES: usize = HOLDER_SHIFT as usize;

// Node ids plus one must fit the six holder bits.
const _: () = assert!(MAX_COMPUTE_NODES < 1 << (64 - HOLDER_SHIFT));
// Pools are created for as many nodes as a word has reader bits.
const _: () = assert!(MAX_COMPUTE_NODES == selkie_pool::layout::MAX_COMPUTE_NODES);

/// Identity of a compute node in a pool: 0..=57.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ComputeId(u8);

impl ComputeId {
    /// The compute node with this index, or `None` when it is not below [`MAX_COMPUTE_NODES`].
    pub const fn new(index: usize) -> Option<Self> {
        if index < MAX_COMPUTE_NODES { Some(Self(index as u8)) } else { None }
    }

    /// No node: the holder in the word of a page that was lost with a node that held it, when
    /// nothing is left by which it could be made again. It is dead to every node. Words name it
    /// instead of the dead node, so that the index of that one can be used again.
    pub const LOST: Self = Self(61);

    /// Index of the node, 0..=57.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    const fn bit(self) -> u64 {
        1 << self.0
    }

    const fn holder_field(self) -> u64 {
        (self.0 as u64 + 1) << HOLDER_SHIFT
    }
}

impl fmt::Display for ComputeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cn{}", self.0)
    }
}

/// A set of compute nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeSet(u64);

impl NodeSet {
    /// The empty set.
    pub const EMPTY: NodeSet = NodeSet(0);

    /// Whether the set has no members.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of members.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether `node` is a member.
    pub const fn contains(self, node: ComputeId) -> bool {
        self.0 & node.bit() != 0
    }

    /// The set and `node`.
    pub const fn with(self, node: ComputeId) -> NodeSet {
        NodeSet(self.0 | node.bit())
    }

    /// The set but `node`.
    pub const fn without(self, node: ComputeId) -> NodeSet {
        NodeSet(self.0 & !node.bit())
    }

    /// The set as one bit a node, for keeping it in an atomic.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The set with these bits.
    pub const fn from_bits(bits: u64) -> NodeSet {
        NodeSet(bits)
    }

    /// The members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = ComputeId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let id = rest.trailing_zeros() as u8;
            rest &= rest - 1;
            Some(ComputeId(id))
        })
    }
}

impl FromIterator<ComputeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = ComputeId>>(nodes: I) -> Self {
        nodes.into_iter().fold(NodeSet::EMPTY, NodeSet::with)
    }
}

/// Value of a latch word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LatchWord(u64);

impl LatchWord {
    /// The word of a line without a holder and readers.
    pub const FREE: LatchWord = LatchWord(0);

    /// The word with these raw bits.
    pub const fn from_bits(bits: u64) -> Self {
        LatchWord(bits)
    }

    /// The raw bits, as they lie in the pool.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The word of a line that only `node` reads.
    pub const fn read_by(node: ComputeId) -> Self {
        LatchWord(node.bit())
    }

    /// The word of a line that `node` holds and no node reads.
    pub const fn held_by(node: ComputeId) -> Self {
        LatchWord(node.holder_field())
    }

    /// The holder field: `None` for 0, and an error carrying the field for a value that names no
    /// possible node.
    pub const fn holder(self) -> Result<Option<ComputeId>, BadHolder> {
        let field = self.0 >> HOLDER_SHIFT;
        if field == 0 {
            return Ok(None);
        }
        if field << HOLDER_SHIFT == ComputeId::LOST.holder_field() {
            return Ok(Some(ComputeId::LOST));
        }
        match ComputeId::new(field as usize - 1) {
            Some(id) => Ok(Some(id)),
            None => Err(BadHolder(field as u8)),
        }
    }

    /// The word with these readers and no holder.
    pub const fn of_readers(readers: NodeSet) -> Self {
        LatchWord(readers.0)
    }

    /// The nodes whose reader bit is set.
    pub const fn readers(self) -> NodeSet {
        NodeSet(self.0 & READERS_MASK)
    }

    /// The word that a writer's intent writes (rule R3): this word, which has no holder, with `me`
    /// as holder and without its reader bit.
    pub const fn with_intent(self, me: ComputeId) -> Self {
        LatchWord(me.holder_field() | (self.0 & READERS_MASK & !me.bit()))
    }

    /// This word after a fetch-and-add of `delta`.
    pub const fn add(self, delta: LatchDelta) -> Self {
        LatchWord(self.0.wrapping_add(delta.0))
    }
}

/// A holder field that names no possible node: the word is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadHolder(pub u8);

/// The addend of a fetch-and-add on a latch word (two's complement).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LatchDelta(u64);

impl LatchDelta {
    /// The addend, for the fabric.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// `me` becomes a reader.
    pub const fn add_reader(me: ComputeId) -> Self {
        LatchDelta(me.bit())
    }

    /// `me` stops being a reader.
    pub const fn remove_reader(me: ComputeId) -> Self {
        LatchDelta(me.bit().wrapping_neg())
    }

    /// `me` becomes the holder of a word that is made anew.
    pub const fn add_holder(me: ComputeId) -> Self {
        LatchDelta(me.holder_field())
    }

    /// The holder `me` gives the line up.
    pub const fn remove_holder(me: ComputeId) -> Self {
        LatchDelta(me.holder_field().wrapping_neg())
    }

    /// The holder `me` makes `to` the holder (rule R5, asked by a writer).
    pub const fn hand_over(me: ComputeId, to: ComputeId) -> Self {
        LatchDelta(to.holder_field().wrapping_sub(me.holder_field()))
    }

    /// The holder `me` becomes a reader beside `to` (rule R5, asked by readers).
    pub const fn downgrade(me: ComputeId, to: NodeSet) -> Self {
        LatchDelta(me.bit().wrapping_add(to.0).wrapping_sub(me.holder_field()))
    }

    /// The holder `me`, whose intent failed, becomes a reader (rule R9).
    pub const fn cancel_intent(me: ComputeId) -> Self {
        LatchDelta(me.bit().wrapping_sub(me.holder_field()))
    }

    /// This delta, which also clears the bits of `readers`.
    pub const fn clearing(self, readers: NodeSet) -> Self {
        LatchDelta(self.0.wrapping_sub(readers.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> impl Iterator<Item = ComputeId> {
        (0..MAX_COMPUTE_NODES).map(|i| ComputeId::new(i).unwrap())
    }

    /// Reader sets that cover every single bit, every pair, their complements, none and all.
    fn reader_sets() -> Vec<u64> {
        let mut sets = vec![0, READERS_MASK];
        for a in 0..HOLDER_SHIFT {
            for b in a..HOLDER_SHIFT {
                let pair = 1u64 << a | 1u64 << b;
                sets.push(pair);
                sets.push(READERS_MASK & !pair);
            }
        }
        sets
    }

    #[test]
    fn every_holder_and_reader_set_decodes_to_what_was_encoded() {
        for readers in reader_sets() {
            for field in 0..64u64 {
                let word = LatchWord::from_bits(field << HOLDER_SHIFT | readers);
                assert_eq!(word.readers(), NodeSet(readers));
                match field {
                    0 => assert_eq!(word.holder(), Ok(None)),
                    1..=58 => assert_eq!(word.holder(), Ok(ComputeId::new(field as usize - 1))),
                    62 => assert_eq!(word.holder(), Ok(Some(ComputeId::LOST))),
                    _ => assert_eq!(word.holder(), Err(BadHolder(field as u8))),
                }
            }
        }
    }

    #[test]
    fn readers_come_and_go_without_touching_holder_or_each_other() {
        for readers in reader_sets() {
            for field in 0..=58u64 {
                let word = LatchWord::from_bits(field << HOLDER_SHIFT | readers);
                for me in ids() {
                    if word.readers().contains(me) {
                        let gone = word.add(LatchDelta::remove_reader(me));
                        assert_eq!(gone.readers(), word.readers().without(me));
                        assert_eq!(gone.holder(), word.holder());
                    } else {
                        let come = word.add(LatchDelta::add_reader(me));
                        assert_eq!(come.readers(), word.readers().with(me));
                        assert_eq!(come.holder(), word.holder());
                    }
                }
            }
        }
    }

    #[test]
    fn holder_transitions_keep_the_readers_for_every_pair_of_nodes() {
        for readers in [0, READERS_MASK, 0x155_5555_5555_5555, 0x2AA_AAAA_AAAA_AAAA] {
            for me in ids() {
                let others = NodeSet(readers).without(me);
                let held = LatchWord(me.holder_field() | others.0);
                assert_eq!(held.add(LatchDelta::remove_holder(me)), LatchWord(others.0));
                let cancelled = held.add(LatchDelta::cancel_intent(me));
                assert_eq!(cancelled.holder(), Ok(None));
                assert_eq!(cancelled.readers(), others.with(me));
                let cleared = held.add(LatchDelta::remove_holder(me).clearing(others));
                assert_eq!(cleared, LatchWord::FREE);
                for to in ids().filter(|to| *to != me) {
                    let handed = held.add(LatchDelta::hand_over(me, to));
                    assert_eq!(handed.holder(), Ok(Some(to)));
                    assert_eq!(handed.readers(), others);
                    let cleared = held.add(LatchDelta::hand_over(me, to).clearing(others));
                    assert_eq!(cleared, LatchWord::held_by(to));
                    if others.contains(to) {
                        let one = NodeSet::EMPTY.with(to);
                        let shared = held.add(LatchDelta::downgrade(me, one).clearing(others));
                        assert_eq!(shared.holder(), Ok(None));
                        assert_eq!(shared.readers(), one.with(me));
                    }
                }
                let all = NodeSet(READERS_MASK).without(me);
                for to in [others, all] {
                    let alone = LatchWord::held_by(me).add(LatchDelta::downgrade(me, to));
                    assert_eq!(alone.holder(), Ok(None));
                    assert_eq!(alone.readers(), to.with(me));
                }
            }
        }
    }

    #[test]
    fn an_intent_names_the_writer_and_drops_only_its_own_reader_bit() {
        for readers in reader_sets() {
            for me in ids() {
                let word = LatchWord::from_bits(readers).with_intent(me);
                assert_eq!(word.holder(), Ok(Some(me)));
                assert_eq!(word.readers(), NodeSet(readers).without(me));
            }
        }
    }

    #[test]
    fn ids_beyond_the_reader_bits_do_not_exist() {
        assert!(ComputeId::new(57).is_some());
        assert!(ComputeId::new(58).is_none());
        assert!(ComputeId::new(usize::MAX).is_none());
    }

    #[test]
    fn sets_list_their_members_in_order() {
        let members: Vec<usize> =
            NodeSet(1 << 57 | 1 << 3 | 1).iter().map(ComputeId::index).collect();
        assert_eq!(members, [0, 3, 57]);
        assert_eq!(NodeSet(READERS_MASK).iter().count(), MAX_COMPUTE_NODES);
    }
}
