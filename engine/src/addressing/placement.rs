//! Where a line lives: from a global address to its home and the offsets of latch word and page.
//!
//! The address space is divided into ranges of equal size. Without redundancy each range is in one
//! slab, and consecutive ranges are on different memory nodes as long as these have ranges left. A
//! coded pool gets ranges as it grows. Each is in k + r slabs, and the state of the pool says in
//! which. That map is replaced as a whole when it changes, and read without a lock ([`Versioned`]).
//! While a slab moves it has two locations, and both are written. An operation registers as a user
//! of the map ([`PlacementMap::using`]), so that it is known when no user of an older map is left.
//!
//! Memory is leased in extents of a *unit*, which is a memory node, or a range of a coded pool.

use std::sync::OnceLock;

use selkie_fabric::{RegionKey, RemoteAddr};
use selkie_pool::control::{PoolState, RangePlace, Slab};
use selkie_pool::layout::{
    CLOCK_AT, EXTENT_GCLS, EXTENTS_LEASED_AT, LATCH_AT, MAX_SPLITS, SlabGeometry,
};
use selkie_pool::{Coding, HeaderMove, MAX_MEMORY_NODES, MemoryNodeDescriptor, PoolDescriptor};

use super::locations::{Copies, Counter, HeaderTable, Home, SplitAt, SplitsAt, Written};
use super::versioned::{Suits, Using, Versioned};
use crate::GAddr;

/// The location of a range that is not coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlabPlace {
    node: u16,
    local_range: u32,
}

/// The locations of the ranges of a coded pool.
#[derive(Default, PartialEq)]
struct Map {
    ranges: Vec<RangePlace>,
    /// Memory nodes that are about to leave.
    leaving: Vec<u16>,
    /// The slab that is being regenerated, and is incomplete.
    unmade: Option<Unmade>,
}

/// A slab that is being regenerated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unmade {
    range: usize,
    position: usize,
    /// It is about to be complete: counters of the range are quiesced.
    ends: bool,
}

impl Map {
    fn of(state: &PoolState) -> Self {
        let task = state.regeneration.filter(|task| task.begun);
        Self {
            ranges: state.ranges.clone(),
            leaving: state.leaving().collect(),
            unmade: task.map(|task| Unmade {
                range: task.range,
                position: task.position,
                ends: task.ends,
            }),
        }
    }
}

impl Suits for Map {
    fn suits(&self, other: &Self) -> bool {
        let is_same = |(own, other): (&RangePlace, &RangePlace)| {
            own.slabs == other.slabs && own.moving == other.moving
        };
        let are_same = self.ranges.iter().zip(&other.ranges).all(is_same);
        are_same && self.leaving == other.leaving && self.unmade == other.unmade
    }
}

/// How ranges are placed.
enum Ranges {
    /// Whole, by the order of the memory nodes.
    Plain {
        all: Box<[SlabPlace]>,
        /// For each memory node its ranges in local order, as indices into `all`.
        by_node: Box<[Box<[u32]>]>,
    },
    /// By position.
    Coded { map: Versioned<Map>, coding: Coding },
}

/// The map of all ranges of a pool.
pub(crate) struct PlacementMap {
    ranges: Ranges,
    /// Of the memory nodes, by index; of those that join later once the pool says so.
    regions: Box<[OnceLock<RegionKey>]>,
    geometry: SlabGeometry,
    range_shift: u32,
    gcl_shift: u32,
}

impl PlacementMap {
    pub(crate) fn new(pool: &PoolDescriptor) -> PlacementMap {
        let ranges = if pool.coding.is_plain() {
            Self::plain(pool)
        } else {
            Ranges::Coded { map: Versioned::new(Map::default()), coding: pool.coding }
        };
        let map = PlacementMap {
            ranges,
            regions: (0..MAX_MEMORY_NODES).map(|_| OnceLock::new()).collect(),
            geometry: pool.geometry(),
            range_shift: pool.range_bytes.trailing_zeros(),
            gcl_shift: pool.gcl_bytes.trailing_zeros(),
        };
        map.note_regions(pool.memory_nodes.iter());
        map
    }

    fn note_regions<'n>(&self, nodes: impl Iterator<Item = &'n MemoryNodeDescriptor>) {
        for node in nodes {
            if let Some(region) = self.regions.get(usize::from(node.peer.index())) {
                // It never changes.
                let _ = region.set(node.region);
            }
        }
    }

    fn plain(pool: &PoolDescriptor) -> Ranges {
        let most = pool.memory_nodes.iter().map(|n| n.ranges).max().unwrap_or(0);
        let mut all = Vec::new();
        let mut by_node = vec![Vec::new(); pool.memory_nodes.len()];
        for local_range in 0..most {
            for (node, (memory, own)) in pool.memory_nodes.iter().zip(&mut by_node).enumerate() {
                if local_range < memory.ranges {
                    own.push(all.len() as u32);
                    all.push(SlabPlace { node: node as u16, local_range });
                }
            }
        }
        Ranges::Plain { all: all.into(), by_node: by_node.into_iter().map(Into::into).collect() }
    }

    /// Replaces the map of a coded pool. Returns whether no user of a different older map is left.
    /// Called by one thread at a time.
    pub(crate) fn update(&self, state: &PoolState) -> bool {
        let Ranges::Coded { map, .. } = &self.ranges else { return true };
        // Before the map that names them.
        self.note_regions(state.memory_nodes.iter().flatten().map(|member| &member.descriptor));
        let slabs = state.ranges.iter().flat_map(|range| &range.slabs);
        let members = slabs.filter(|slab| state.memory_node(slab.node).is_some());
        for slab in members {
            let region = self.regions.get(usize::from(slab.node)).and_then(OnceLock::get);
            assert!(region.is_some(), "memory node {} has slabs and no known region", slab.node);
        }
        map.replace(Map::of(state))
    }

    /// Registers the caller as a user of the current map, until the result is dropped. Only maps of
    /// coded pools change, so there are no users of others.
    #[must_use]
    pub(crate) fn using(&self) -> Option<Using> {
        let Ranges::Coded { map, .. } = &self.ranges else { return None };
        Some(map.using())
    }

    /// Looks at the ranges of a coded pool; `None` for another pool.
    fn with_coded<T>(&self, look: impl FnOnce(&[RangePlace], Coding) -> Option<T>) -> Option<T> {
        self.with_map(|map, coding| look(&map.ranges, coding))
    }

    fn with_map<T>(&self, look: impl FnOnce(&Map, Coding) -> Option<T>) -> Option<T> {
        let Ranges::Coded { map, coding } = &self.ranges else { return None };
        map.with(|map| look(map, *coding))
    }

    /// Whether the map has these homes of a range by now.
    pub(crate) fn has_homes(&self, range: usize, homes: &[u8]) -> bool {
        self.with_coded(|all, _| Some(all.get(range)?.homes == homes)).unwrap_or(false)
    }

    /// Bytes of page data that have a location.
    pub(crate) fn capacity(&self) -> u64 {
        let ranges = match &self.ranges {
            Ranges::Plain { all, .. } => all.len(),
            Ranges::Coded { .. } => self.units(),
        };
        (ranges as u64) << self.range_shift
    }

    /// Units that memory is leased from.
    pub(crate) fn units(&self) -> usize {
        match &self.ranges {
            Ranges::Plain { by_node, .. } => by_node.len(),
            Ranges::Coded { .. } => self.with_coded(|all, _| Some(all.len())).unwrap_or_default(),
        }
    }

    /// Extents that a unit has.
    pub(crate) fn extents_of(&self, unit: usize) -> u64 {
        let ranges = match &self.ranges {
            Ranges::Plain { by_node, .. } => by_node.get(unit).map_or(0, |own| own.len() as u32),
            Ranges::Coded { .. } => 1,
        };
        self.geometry.extents_per_node(ranges)
    }

    /// First line of a unit's extent, or `None` beyond its last.
    pub(crate) fn extent(&self, unit: usize, extent: u64) -> Option<GAddr> {
        let byte = extent.checked_mul(EXTENT_GCLS << self.gcl_shift)?;
        let local = (byte >> self.range_shift) as usize;
        let range = match &self.ranges {
            Ranges::Plain { by_node, .. } => *by_node.get(unit)?.get(local)?,
            Ranges::Coded { .. } => (local == 0).then_some(unit as u32)?,
        };
        Some(self.addr(range, (byte & self.range_mask()) >> self.gcl_shift))
    }

    fn range_mask(&self) -> u64 {
        (1 << self.range_shift) - 1
    }

    fn addr(&self, range: u32, gcl: u64) -> GAddr {
        GAddr::from_u64((u64::from(range) << self.range_shift) + (gcl << self.gcl_shift))
    }

    fn at(&self, node: u16, offset: u64) -> Option<RemoteAddr> {
        Some(RemoteAddr::new(*self.regions.get(usize::from(node))?.get()?, offset))
    }

    /// The range that a line of the pool lies in, and which of its lines it is.
    fn split_addr(&self, addr: GAddr) -> Option<(usize, u32)> {
        let raw = addr.to_u64();
        let within = raw & self.range_mask();
        let is_line = !addr.is_null() && within & ((1 << self.gcl_shift) - 1) == 0;
        is_line.then_some(((raw >> self.range_shift) as usize, (within >> self.gcl_shift) as u32))
    }

    /// Where `addr` lies, or `None` when it is no line of the pool.
    pub(crate) fn home(&self, addr: GAddr) -> Option<Home> {
        let (range, gcl) = self.split_addr(addr)?;
        let (Slab { node, slab }, table) = match &self.ranges {
            Ranges::Plain { all, .. } => {
                let SlabPlace { node, local_range } = *all.get(range)?;
                (Slab { node, slab: local_range }, 0)
            }
            Ranges::Coded { .. } => {
                self.with_coded(|all, _| all.get(range)?.home_of(self.geometry.home_position(gcl)))?
            }
        };
        let header = self.geometry.header_offset_in(slab, gcl, table);
        Some(Home {
            node: usize::from(node),
            latch: self.at(node, header + LATCH_AT)?,
            page: self.at(node, self.geometry.data_offset(slab, gcl))?,
        })
    }

    /// Where the splits of a line of a coded pool lie.
    pub(crate) fn splits(&self, addr: GAddr) -> Option<SplitsAt> {
        self.written(addr).map(|written| written.splits)
    }

    /// Where the splits of a line of a coded pool are to be written.
    pub(crate) fn written(&self, addr: GAddr) -> Option<Written> {
        let (range, gcl) = self.split_addr(addr)?;
        self.with_coded(|all, coding| {
            let RangePlace { slabs, moving, .. } = all.get(range)?;
            let split_in = |Slab { node, slab }: Slab| {
                let at = self.at(node, self.geometry.data_offset(slab, gcl))?;
                Some(SplitAt { node: usize::from(node), at })
            };
            let mut splits = [None; MAX_SPLITS];
            let mut also = None;
            for (split, place) in splits.iter_mut().enumerate().take(coding.splits()) {
                let position = self.geometry.split_position(gcl, split);
                *place = Some(split_in(*slabs.get(position)?)?);
                if let Some(moving) = moving.filter(|moving| moving.position == position) {
                    also = Some((split, split_in(moving.also)?));
                }
            }
            Some(Written { splits, also })
        })
    }

    /// Where a counter is kept.
    pub(crate) fn copies(&self, counter: Counter) -> Option<Copies> {
        match &self.ranges {
            Ranges::Plain { .. } => {
                let place = match counter {
                    Counter::Line(addr) => self.home(addr).map(|home| (home.node, home.page)),
                    Counter::Leased(unit) => {
                        self.at(unit as u16, EXTENTS_LEASED_AT).map(|at| (unit, at))
                    }
                    Counter::Clock => self.at(0, CLOCK_AT).map(|at| (0, at)),
                };
                place.map(|place| Copies { places: vec![place], complete: 1, wait: false })
            }
            Ranges::Coded { .. } => {
                let (range, gcl) = match counter {
                    Counter::Line(addr) => self.split_addr(addr)?,
                    Counter::Leased(unit) => (unit, 0),
                    Counter::Clock => (0, 0),
                };
                self.with_map(|map, coding| self.coded_copies(map, coding, counter, (range, gcl)))
            }
        }
    }

    /// The copies of a counter. The copy at a slab's second location comes last, and the one in a
    /// slab that is being regenerated: no node reads it first before the slab is complete.
    fn coded_copies(
        &self,
        map: &Map,
        coding: Coding,
        counter: Counter,
        (range, gcl): (usize, u32),
    ) -> Option<Copies> {
        let place = map.ranges.get(range)?;
        let copy_in = |Slab { node, slab }: Slab| {
            let offset = match counter {
                Counter::Line(_) => self.geometry.data_offset(slab, gcl),
                Counter::Leased(_) => self.geometry.leased_offset(slab),
                Counter::Clock => self.geometry.clock_offset(slab),
            };
            Some((usize::from(node), self.at(node, offset)?))
        };
        let position = |copy: usize| match counter {
            Counter::Line(_) => self.geometry.split_position(gcl, copy),
            Counter::Leased(_) | Counter::Clock => copy,
        };
        let positions: Vec<usize> = (0..=coding.parity()).map(position).collect();
        let unmade = map.unmade.filter(|unmade| unmade.range == range);
        let is_made = |position: &usize| unmade.is_none_or(|own| own.position != *position);
        let (made, being_made): (Vec<usize>, Vec<usize>) =
            positions.iter().partition(|own| is_made(own));
        let moving = place.moving.filter(|moving| positions.contains(&moving.position));
        let slab_of = |position: &usize| place.slabs.get(*position).copied();
        let mut places: Vec<_> = made.iter().filter_map(slab_of).filter_map(copy_in).collect();
        let complete = places.len();
        let others = being_made.iter().filter_map(slab_of).chain(moving.map(|moving| moving.also));
        places.extend(others.filter_map(copy_in));
        let ends = unmade.is_some_and(|own| own.ends && positions.contains(&own.position));
        let wait = ends || moving.is_some_and(|moving| moving.counters_wait);
        Some(Copies { places, complete, wait })
    }

    /// Where it is counted how often a range of a coded pool is accessed: its memory nodes, and a
    /// word in each slab.
    pub(crate) fn activity_words(&self, range: usize) -> Vec<(usize, RemoteAddr)> {
        let words = self.with_coded(|all, _| {
            let slabs = all.get(range)?.slabs.iter();
            let word = |Slab { node, slab }: &Slab| {
                Some((usize::from(*node), self.at(*node, self.geometry.activity_offset(*slab))?))
            };
            slabs.map(word).collect::<Option<Vec<_>>>()
        });
        words.unwrap_or_default()
    }

    /// The header tables in use of a memory node; none of one whose region this node never learned.
    /// The map is never ahead of the regions, so such a memory node was gone before this node came:
    /// there is nothing to be read, and its positions are rebuilt elsewhere.
    pub(crate) fn header_tables(&self, node: usize) -> Vec<HeaderTable> {
        let table = |slab: u32, range: u32, position: usize, table: usize| {
            let at = self.at(node as u16, self.geometry.table_offset(slab, table))?;
            let headers = self.geometry.headers_at(position);
            Some(HeaderTable { node, at, headers, range, position })
        };
        match &self.ranges {
            Ranges::Plain { by_node, .. } => {
                let own = by_node.get(node).map(|own| &**own).unwrap_or_default();
                (0..).zip(own).filter_map(|(slab, range)| table(slab, *range, 0, 0)).collect()
            }
            Ranges::Coded { .. } => {
                let tables = self.with_coded(|all, _| {
                    let in_use = (0..).zip(all).flat_map(|(range, place)| {
                        (0..place.homes.len()).filter_map(move |position| {
                            let (slab, on) = place.home_of(position)?;
                            Some((slab, range, position, on))
                        })
                    });
                    let own = in_use.filter(|(slab, ..)| usize::from(slab.node) == node);
                    Some(own.filter_map(|(s, range, p, on)| table(s.slab, range, p, on)).collect())
                });
                tables.unwrap_or_default()
            }
        }
    }

    /// The table to which a line's header belongs, of a coded pool: its range, and a position.
    pub(crate) fn table_of(&self, addr: GAddr) -> Option<(usize, usize)> {
        let (range, gcl) = self.split_addr(addr)?;
        match &self.ranges {
            Ranges::Plain { .. } => None,
            Ranges::Coded { .. } => Some((range, self.geometry.home_position(gcl))),
        }
    }

    /// The table in use of those whose headers belong to a position of a range.
    pub(crate) fn table_in_use(&self, range: usize, position: usize) -> Option<HeaderTable> {
        let to = self.with_coded(|all, _| {
            let (slab, on) = all.get(range)?.home_of(position)?;
            Some(HeaderMove { range, position, on, slab })
        })?;
        self.table_at(to)
    }

    /// Which line of its range a line is.
    pub(crate) fn line_in_range(&self, addr: GAddr) -> u64 {
        (addr.to_u64() & self.range_mask()) >> self.gcl_shift
    }

    /// All lines of a range.
    pub(crate) fn lines_of(&self, range: usize) -> impl Iterator<Item = GAddr> + use<'_> {
        // The first line of the first range is the null address.
        let all = 0..self.geometry.gcls_per_range();
        all.map(move |gcl| self.addr(range as u32, gcl)).filter(|addr| !addr.is_null())
    }

    /// The split of a line that lies at a position of its range.
    pub(crate) fn split_at(&self, addr: GAddr, position: usize) -> Option<usize> {
        let (_, gcl) = self.split_addr(addr)?;
        (0..MAX_SPLITS).find(|split| self.geometry.split_position(gcl, *split) == position)
    }

    /// The table at a location.
    pub(crate) fn table_at(&self, to: HeaderMove) -> Option<HeaderTable> {
        let HeaderMove { range, position, on, slab } = to;
        let at = self.at(slab.node, self.geometry.table_offset(slab.slab, on))?;
        let headers = self.geometry.headers_at(position);
        Some(HeaderTable {
            node: usize::from(slab.node),
            at,
            headers,
            range: range as u32,
            position,
        })
    }

    /// The line whose header has this index in a table.
    pub(crate) fn addr_of(&self, table: &HeaderTable, header: u64) -> Option<GAddr> {
        let gcl = self.geometry.gcl_of_header(table.position, header)?;
        Some(self.addr(table.range, u64::from(gcl)))
    }
}
