//! The state of a model: what nodes share, and what each does.

use std::collections::BTreeSet;

use super::Snapshots;
use crate::snapshots::active::ActiveSnapshots;
use crate::snapshots::images::Images;
use crate::snapshots::registry::Registry;
use crate::snapshots::slot::Listed;
use crate::snapshots::stamp::Stamp;

/// Node, slot and sequence of an image.
pub(super) type Link = Option<(usize, usize, u64)>;

/// A leaf as all nodes see it. Its content is the stamp of the commit that left it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Leaf {
    pub(super) write: Stamp,
    pub(super) link: Link,
    pub(super) is_latched: bool,
    /// All commits that changed it.
    pub(super) history: Vec<Stamp>,
}

/// The slot of a node, as others read it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct SlotWords {
    pub(super) open_from: Option<Stamp>,
    pub(super) listed: Listed,
}

/// A step of a node's committer, reader or housekeeper, and the leaf that it chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Commit(usize, usize),
    Read(usize),
    Tick(usize),
    Horizon(usize),
    Split,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Commit {
    Idle,
    Latched {
        leaf: usize,
    },
    /// It has learnt of the mask before it has drawn: a mistake.
    Masked {
        leaf: usize,
        mask: u8,
        active: ActiveSnapshots,
    },
    Drawn {
        leaf: usize,
        stamp: Stamp,
    },
    /// It reads the slots of the nodes that are left in the mask.
    Learns {
        leaf: usize,
        stamp: Stamp,
        mask: u8,
        has_open: bool,
        active: ActiveSnapshots,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Reader {
    Idle,
    /// `open_from` is to be written, then the bit to be set.
    Opens {
        lower: Stamp,
        acked: Stamp,
        is_written: bool,
    },
    /// The clock is to be read. It has the turn if it has opened the registry.
    Begins {
        lower: Stamp,
        acked: Stamp,
        has_turn: bool,
    },
    Reads {
        at: Stamp,
        leaf: usize,
    },
    Follows {
        at: Stamp,
        leaf: usize,
        head: Link,
        link: Link,
        since: Option<Stamp>,
    },
}

/// A write that housekeeping is about to make.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Publish {
    Listed(Listed),
    OpenFrom(Option<Stamp>),
    ClearBit,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Sweep {
    Idle,
    Clock { clock: Stamp },
    Learns { clock: Option<Stamp>, mask: u8, has_open: bool, active: ActiveSnapshots },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) registry: Registry,
    pub(super) has_bit: bool,
    /// The reader publishes, or what housekeeping is about to publish.
    pub(super) reader_has_turn: bool,
    pub(super) publishes: Vec<Publish>,
    pub(super) commit: Commit,
    pub(super) reader: Reader,
    pub(super) sweep: Sweep,
    pub(super) images: Images<Link>,
    /// By slot.
    pub(super) contents: Vec<Stamp>,
    pub(super) commits: u8,
    pub(super) snapshots: u8,
    pub(super) ticks: u8,
    pub(super) horizons: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fault {
    /// A snapshot is before a commit that was acknowledged before it began.
    Excluded,
    /// A reader does not find its image.
    Gone,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Seen {
    pub(super) image_read: bool,
    pub(super) dropped: bool,
    pub(super) split: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) clock: Stamp,
    pub(super) mask: u8,
    pub(super) slots: Vec<SlotWords>,
    pub(super) leaves: Vec<Leaf>,
    pub(super) nodes: Vec<Node>,
    /// The latest acknowledged commit.
    pub(super) acked: Stamp,
    /// Leaf, snapshot and content of all reads.
    pub(super) reads: BTreeSet<(usize, Stamp, Stamp)>,
    pub(super) seen: Seen,
    pub(super) fault: Option<Fault>,
}

impl World {
    pub(super) fn new(model: &Snapshots) -> Self {
        let node = |id: usize| Node {
            registry: Registry::default(),
            has_bit: false,
            reader_has_turn: false,
            publishes: Vec::new(),
            commit: Commit::Idle,
            reader: Reader::Idle,
            sweep: Sweep::Idle,
            images: Images::new(model.room, 0),
            contents: vec![Stamp::default(); model.room],
            commits: model.commits[id],
            snapshots: model.snapshots[id],
            ticks: model.ticks[id],
            horizons: model.horizons[id],
        };
        Self {
            clock: Stamp::default(),
            mask: 0,
            slots: vec![SlotWords::default(); model.nodes],
            leaves: vec![Leaf::default(); model.leaves],
            nodes: (0..model.nodes).map(node).collect(),
            acked: Stamp::default(),
            reads: BTreeSet::new(),
            seen: Seen::default(),
            fault: None,
        }
    }

    /// Whether each read got what the latest commit up to its snapshot left.
    pub(super) fn reads_are_right(&self) -> bool {
        self.reads.iter().all(|(leaf, at, content)| {
            let history = self.leaves[*leaf].history.iter().copied();
            history.filter(|commit| commit <= at).max().unwrap_or_default() == *content
        })
    }
}
