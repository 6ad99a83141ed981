//! A node's share of the pool's free lines: extents leased, lines freed and their epochs.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::GAddr;

/// Lines of an extent that are not allocated yet.
struct Extent {
    next: u64,
    end: u64,
}

#[derive(Default)]
struct FreeLines {
    extents: Vec<Extent>,
    /// Freed lines that may be used again.
    free: Vec<GAddr>,
    /// Freed lines and the epoch they were freed in, oldest first.
    limbo: VecDeque<(GAddr, u64)>,
    /// Extents leased of each memory node, as last seen.
    leased: Vec<u64>,
}

/// A node's share of the pool's free lines.
pub(crate) struct Allocator(Mutex<FreeLines>);

/// A line to be allocated.
pub(crate) struct Grant {
    pub(crate) addr: GAddr,
    /// It was in use before, so its bytes are not zero.
    pub(crate) reused: bool,
}

impl Allocator {
    pub(crate) fn new(memory_nodes: usize) -> Allocator {
        Allocator(Mutex::new(FreeLines { leased: vec![0; memory_nodes], ..FreeLines::default() }))
    }

    /// Puts a freed line on hold until no reader can still have its address.
    pub(crate) fn hold(&self, addr: GAddr, epoch: u64) {
        self.0.lock().limbo.push_back((addr, epoch));
    }

    /// Puts back a line that was taken but not used.
    pub(crate) fn put_back(&self, grant: Grant) {
        let mut state = self.0.lock();
        if grant.reused {
            state.free.push(grant.addr);
        } else {
            state.extents.push(Extent { next: grant.addr.to_u64(), end: grant.addr.to_u64() + 1 });
        }
    }

    /// Takes over lines that were never used.
    pub(crate) fn adopt(&self, lines: impl Iterator<Item = GAddr>) {
        let line = |addr: GAddr| Extent { next: addr.to_u64(), end: addr.to_u64() + 1 };
        self.0.lock().extents.extend(lines.map(line));
    }

    pub(crate) fn has_limbo(&self) -> bool {
        !self.0.lock().limbo.is_empty()
    }

    /// Whether lines were freed here and not allocated again, ripe or not: looked at together, as
    /// they ripen at any time.
    pub(super) fn has_freed(&self) -> bool {
        let state = self.0.lock();
        !(state.limbo.is_empty() && state.free.is_empty())
    }

    /// Releases the lines freed at least two epochs before `published`, the oldest of all nodes.
    pub(crate) fn ripen(&self, published: u64) {
        let mut state = self.0.lock();
        while let Some((addr, epoch)) = state.limbo.front().copied() {
            if epoch + 2 > published {
                break;
            }
            state.limbo.pop_front();
            state.free.push(addr);
        }
    }

    /// Lines this node has leased or freed and not allocated: (fresh, reusable, on hold).
    pub(crate) fn unused(&self, gcl_bytes: usize) -> (u64, u64, u64) {
        let state = self.0.lock();
        let fresh: u64 =
            state.extents.iter().map(|e| (e.end - e.next).div_ceil(gcl_bytes as u64)).sum();
        (fresh, state.free.len() as u64, state.limbo.len() as u64)
    }

    fn fresh(state: &mut FreeLines, gcl_bytes: u64) -> Option<Grant> {
        let extent = state.extents.last_mut()?;
        let addr = GAddr::from_u64(extent.next);
        extent.next += gcl_bytes;
        if extent.next >= extent.end {
            state.extents.pop();
        }
        Some(Grant { addr, reused: false })
    }

    /// A freed line, else a fresh one, without a round trip.
    pub(super) fn take(&self, gcl_bytes: u64, fresh_only: bool) -> Option<Grant> {
        let mut state = self.0.lock();
        if !fresh_only && let Some(addr) = state.free.pop() {
            return Some(Grant { addr, reused: true });
        }
        Self::fresh(&mut state, gcl_bytes)
    }

    /// Takes all unused lines, when the node leaves.
    pub(super) fn drain(&self, gcl_bytes: u64) -> Vec<u64> {
        let mut state = self.0.lock();
        let mut lines: Vec<u64> = state.free.drain(..).map(GAddr::to_u64).collect();
        lines.extend(state.limbo.drain(..).map(|(addr, _)| addr.to_u64()));
        while let Some(grant) = Self::fresh(&mut state, gcl_bytes) {
            lines.push(grant.addr.to_u64());
        }
        lines
    }

    /// Takes back freed lines that were drained, and that the pool did not take.
    pub(super) fn take_back(&self, lines: Vec<u64>) {
        self.0.lock().free.extend(lines.into_iter().map(GAddr::from_u64));
    }

    /// Units of which this node knows how many extents are leased.
    pub(super) fn known_units(&self) -> usize {
        self.0.lock().leased.len()
    }

    /// Notes that the pool has at least this many units. Returns how many this node knows of.
    pub(super) fn note_units(&self, placed: usize) -> usize {
        let mut state = self.0.lock();
        let units = placed.max(state.leased.len());
        state.leased.resize(units, 0);
        units
    }

    /// The unit with the fewest extents leased, of those that have any left by `extents_of`; ties
    /// are broken by the node's own number, so that nodes start on different ones.
    pub(super) fn least_leased(
        &self,
        me: usize,
        extents_of: impl Fn(usize) -> u64,
    ) -> Option<usize> {
        let state = self.0.lock();
        let open = |(node, leased): &(usize, &u64)| **leased < extents_of(*node);
        let nodes = state.leased.len();
        let turn = |node: usize| (node + nodes - me % nodes) % nodes;
        let least = state.leased.iter().enumerate().filter(open);
        least.min_by_key(|(node, leased)| (**leased, turn(*node))).map(|(node, _)| node)
    }

    /// Takes over a leased extent of a unit: its number, and its lines if the unit has it. Returns
    /// whether it has.
    pub(super) fn note_leased(
        &self,
        unit: usize,
        extent: u64,
        lines: Option<std::ops::Range<u64>>,
    ) -> bool {
        let mut state = self.0.lock();
        if let Some(leased) = state.leased.get_mut(unit) {
            *leased = extent.saturating_add(1);
        }
        let Some(lines) = lines else { return false };
        state.extents.push(Extent { next: lines.start, end: lines.end });
        true
    }

    /// Extents leased of all units, of those that each has by `extents_of`.
    pub(super) fn leased_extents(&self, extents_of: impl Fn(usize) -> u64) -> u64 {
        let state = self.0.lock();
        state.leased.iter().enumerate().map(|(unit, leased)| (*leased).min(extents_of(unit))).sum()
    }
}
