//! Locations in the memory nodes' regions: of a line, its splits, its header, and of counters.

use selkie_fabric::RemoteAddr;
use selkie_pool::layout::MAX_SPLITS;

use crate::GAddr;

/// The location of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    /// Index of the memory node.
    pub(crate) node: usize,
    /// The latch word.
    pub(crate) latch: RemoteAddr,
    /// The page; of a coded one, the split of it that lies there.
    pub(crate) page: RemoteAddr,
}

/// The location of a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SplitAt {
    /// Index of the memory node.
    pub(crate) node: usize,
    /// Its first byte.
    pub(crate) at: RemoteAddr,
}

/// The splits of a line, by number; as many as the coding has.
pub(crate) type SplitsAt = [Option<SplitAt>; MAX_SPLITS];

/// A piece of a memory node's header table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeaderTable {
    /// Index of the memory node.
    pub(crate) node: usize,
    /// The first header.
    pub(crate) at: RemoteAddr,
    /// Headers in it.
    pub(crate) headers: u64,
    pub(super) range: u32,
    pub(super) position: usize,
}

/// Where the splits of a line are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) splits: SplitsAt,
    /// A split that is written at a second location, too, and that location.
    pub(crate) also: Option<(usize, SplitAt)>,
}

impl Written {
    /// The locations at which a split is written.
    pub(crate) fn places_of(&self, split: usize) -> impl Iterator<Item = SplitAt> + use<> {
        let own = self.splits.get(split).copied().flatten();
        let also = self.also.filter(|(moving, _)| *moving == split).map(|(_, place)| place);
        own.into_iter().chain(also)
    }
}

/// The copies of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copies {
    /// Memory node and location of each copy. The first living one has the value.
    pub(crate) places: Vec<(usize, RemoteAddr)>,
    /// So many of them, the first, are complete. The others are in slabs that are being made, and
    /// may be behind.
    pub(crate) complete: usize,
    /// Another copy is about to become the first.
    pub(crate) wait: bool,
}

/// A counter that has copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counter {
    /// One that has a line to itself.
    Line(GAddr),
    /// The leased extents of a unit.
    Leased(usize),
    /// The pool's logical clock.
    Clock,
}

impl Counter {
    /// The line that it has to itself; null if none.
    pub(crate) fn addr(self) -> GAddr {
        match self {
            Self::Line(addr) => addr,
            Self::Leased(_) | Self::Clock => GAddr::NULL,
        }
    }
}
