//! A node's share of the pool's free lines: extents leased, lines freed and their epochs.
//!
//! ```text
//! freed --(durably unlinked, marked in its header)--> limbo --(epoch has passed)--> free
//!                                      |                                              |
//!               (too many are kept)    '----------------------> all <-----------------'
//!                                                                     (another is short)
//! ```
//! Every line of an extent is marked as this node's before it is handed out, so that all lines that
//! this node has for itself can be found in the headers if it dies (`free_marks.rs`).

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::line_search::Search;
use crate::GAddr;
use crate::log::Lsn;

/// Freed lines that a node keeps for itself; what it frees beyond them is for all. Some cache's
/// worth of splits: a caller that frees more at once does not need all of it soon.
pub(crate) const KEPT_LINES: usize = 1024;
/// Freed lines that a node keeps while another is short of lines.
pub(super) const KEPT_WHEN_SHORT: usize = 64;

/// Lines of an extent that are not allocated yet.
struct Extent {
    next: u64,
    end: u64,
}

/// A line that was in use before, and the sequence number that its page has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeLine {
    pub(crate) addr: GAddr,
    pub(crate) psn: u64,
}

/// A line that was freed here, and whose header does not say so yet.
#[derive(Clone, Copy)]
struct Freed {
    line: FreeLine,
    /// The epoch it was freed in.
    epoch: u64,
    /// The log is durable up to here once nothing leads to the line, whatever happens.
    lsn: Lsn,
}

#[derive(Default)]
struct FreeLines {
    extents: Vec<Extent>,
    /// Freed lines that may be used again.
    free: Vec<FreeLine>,
    /// Freed lines and the epoch they were freed in, oldest first.
    limbo: VecDeque<(FreeLine, u64)>,
    /// Freed lines without a mark, oldest first.
    freed: VecDeque<Freed>,
    /// Of those, how many are being marked, and are in no queue.
    in_marking: usize,
    /// Extents leased of each memory node, as last seen.
    leased: Vec<u64>,
}

impl FreeLines {
    /// Whether freed lines wait for something.
    fn has_limbo(&self) -> bool {
        !(self.limbo.is_empty() && self.freed.is_empty()) || self.in_marking > 0
    }
}

/// A node's share of the pool's free lines.
pub(crate) struct Allocator {
    lines: Mutex<FreeLines>,
    /// Its search for lines that are for all.
    pub(crate) search: Search,
}

/// A line to be allocated.
pub(crate) struct Grant {
    pub(crate) addr: GAddr,
    /// The sequence number of its page, if it was in use before: its bytes are not zero.
    pub(crate) psn: Option<u64>,
}

/// Freed lines that are being marked; back in their queue if that does not end well.
pub(super) struct Marking<'a> {
    allocator: &'a Allocator,
    freed: Vec<Freed>,
    /// How many of them, the first, stay with this node.
    kept: usize,
}

impl Allocator {
    pub(crate) fn new(memory_nodes: usize) -> Allocator {
        let lines = FreeLines { leased: vec![0; memory_nodes], ..FreeLines::default() };
        Allocator { lines: Mutex::new(lines), search: Search::default() }
    }

    /// Puts a freed line on hold until nothing leads there durably, its header says that it is
    /// free, and no reader can still have its address.
    pub(crate) fn hold(&self, line: FreeLine, epoch: u64, lsn: Lsn) {
        self.lines.lock().freed.push_back(Freed { line, epoch, lsn });
    }

    /// Puts back a line that was taken but not used.
    pub(crate) fn put_back(&self, Grant { addr, psn }: Grant) {
        let mut state = self.lines.lock();
        match psn {
            Some(psn) => state.free.push(FreeLine { addr, psn }),
            None => state.extents.push(Extent { next: addr.to_u64(), end: addr.to_u64() + 1 }),
        }
    }

    /// Takes over lines that were never used.
    pub(crate) fn adopt(&self, lines: impl Iterator<Item = GAddr>) {
        let line = |addr: GAddr| Extent { next: addr.to_u64(), end: addr.to_u64() + 1 };
        self.lines.lock().extents.extend(lines.map(line));
    }

    /// Whether freed lines wait for something.
    pub(crate) fn has_limbo(&self) -> bool {
        self.lines.lock().has_limbo()
    }

    /// How many lines were freed here whose headers do not say so yet.
    pub(super) fn unmarked(&self) -> usize {
        let state = self.lines.lock();
        state.freed.len() + state.in_marking
    }

    /// Whether lines were freed here and not allocated again, ripe or not: looked at together, as
    /// they ripen at any time.
    pub(super) fn has_freed(&self) -> bool {
        let state = self.lines.lock();
        !state.free.is_empty() || state.has_limbo()
    }

    /// Whether lines were freed here, and there is none that may be used.
    pub(super) fn waits_for_freed(&self) -> bool {
        let state = self.lines.lock();
        state.free.is_empty() && state.extents.is_empty() && state.has_limbo()
    }

    /// Freed lines that are to be marked now, `most` at most: to them nothing leads once the log is
    /// `durable` up to there. Those that this node does not keep are for all.
    pub(super) fn to_be_marked(&self, durable: Lsn, most: usize, keep: usize) -> Marking<'_> {
        let mut state = self.lines.lock();
        let due = state.freed.iter().take(most).take_while(|freed| freed.lsn <= durable).count();
        let freed: Vec<Freed> = state.freed.drain(..due).collect();
        state.in_marking += freed.len();
        let kept = keep.saturating_sub(state.free.len() + state.limbo.len()).min(freed.len());
        Marking { allocator: self, freed, kept }
    }

    /// Releases the lines freed at least two epochs before `published`, the oldest of all nodes.
    pub(crate) fn ripen(&self, published: u64) {
        let mut state = self.lines.lock();
        while let Some((line, epoch)) = state.limbo.front().copied() {
            if epoch + 2 > published {
                break;
            }
            state.limbo.pop_front();
            state.free.push(line);
        }
    }

    /// Takes ripe lines away that are more than this node keeps, `most` at most.
    pub(super) fn surplus(&self, keep: usize, most: usize) -> Vec<FreeLine> {
        let mut state = self.lines.lock();
        let more = state.free.len().saturating_sub(keep).min(most);
        state.free.drain(..more).collect()
    }

    /// Takes back ripe lines that could not be given away.
    pub(super) fn take_back(&self, lines: Vec<FreeLine>) {
        self.lines.lock().free.extend(lines);
    }

    /// All lines that this node has for itself and has marked so, or is about to.
    pub(super) fn all(&self, gcl_bytes: usize) -> Vec<FreeLine> {
        let state = self.lines.lock();
        let fresh =
            state.extents.iter().flat_map(|extent| (extent.next..extent.end).step_by(gcl_bytes));
        let fresh = fresh.map(|addr| FreeLine { addr: GAddr::from_u64(addr), psn: 0 });
        let limbo = state.limbo.iter().map(|(line, _)| *line);
        fresh.chain(limbo).chain(state.free.iter().copied()).collect()
    }

    /// Lines this node has leased or freed and not allocated: (fresh, reusable, on hold).
    pub(crate) fn unused(&self, gcl_bytes: usize) -> (u64, u64, u64) {
        let state = self.lines.lock();
        let fresh: u64 =
            state.extents.iter().map(|e| (e.end - e.next).div_ceil(gcl_bytes as u64)).sum();
        let held = state.limbo.len() + state.freed.len() + state.in_marking;
        (fresh, state.free.len() as u64, held as u64)
    }

    fn fresh(state: &mut FreeLines, gcl_bytes: u64) -> Option<Grant> {
        let extent = state.extents.last_mut()?;
        let addr = GAddr::from_u64(extent.next);
        extent.next += gcl_bytes;
        if extent.next >= extent.end {
            state.extents.pop();
        }
        Some(Grant { addr, psn: None })
    }

    /// A freed line, else a fresh one, without a round trip.
    pub(super) fn take(&self, gcl_bytes: u64, fresh_only: bool) -> Option<Grant> {
        let mut state = self.lines.lock();
        if !fresh_only && let Some(FreeLine { addr, psn }) = state.free.pop() {
            return Some(Grant { addr, psn: Some(psn) });
        }
        Self::fresh(&mut state, gcl_bytes)
    }

    /// Forgets all lines, when the node has left: their headers say that they were its own.
    pub(super) fn forget(&self) {
        let mut state = self.lines.lock();
        state.extents.clear();
        state.free.clear();
        state.limbo.clear();
    }

    /// Units of which this node knows how many extents are leased.
    pub(super) fn known_units(&self) -> usize {
        self.lines.lock().leased.len()
    }

    /// Notes that the pool has at least this many units. Returns how many this node knows of.
    pub(super) fn note_units(&self, placed: usize) -> usize {
        let mut state = self.lines.lock();
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
        let state = self.lines.lock();
        let open = |(node, leased): &(usize, &u64)| **leased < extents_of(*node);
        let nodes = state.leased.len();
        let turn = |node: usize| (node + nodes - me % nodes) % nodes;
        let least = state.leased.iter().enumerate().filter(open);
        least.min_by_key(|(node, leased)| (**leased, turn(*node))).map(|(node, _)| node)
    }

    /// Notes the number of an extent of a unit that was leased.
    pub(super) fn note_leased(&self, unit: usize, extent: u64) {
        let mut state = self.lines.lock();
        if let Some(leased) = state.leased.get_mut(unit) {
            *leased = extent.saturating_add(1);
        }
    }

    /// Takes over the lines of an extent.
    pub(super) fn take_over(&self, lines: std::ops::Range<u64>) {
        self.lines.lock().extents.push(Extent { next: lines.start, end: lines.end });
    }

    /// Extents leased of all units, of those that each has by `extents_of`.
    pub(super) fn leased_extents(&self, extents_of: impl Fn(usize) -> u64) -> u64 {
        let state = self.lines.lock();
        state.leased.iter().enumerate().map(|(unit, leased)| (*leased).min(extents_of(unit))).sum()
    }
}

impl Marking<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.freed.is_empty()
    }

    /// The lines that this node keeps, and those that are for all.
    pub(super) fn lines(&self) -> (Vec<FreeLine>, Vec<FreeLine>) {
        let lines: Vec<FreeLine> = self.freed.iter().map(|freed| freed.line).collect();
        let (kept, given) = lines.split_at(self.kept.min(lines.len()));
        (kept.to_vec(), given.to_vec())
    }

    /// They are marked.
    pub(super) fn done(mut self) {
        let freed = std::mem::take(&mut self.freed);
        let mut state = self.allocator.lines.lock();
        state.in_marking -= freed.len();
        let kept = freed.iter().take(self.kept).map(|freed| (freed.line, freed.epoch));
        state.limbo.extend(kept);
    }
}

impl Drop for Marking<'_> {
    fn drop(&mut self) {
        let mut state = self.allocator.lines.lock();
        state.in_marking -= self.freed.len();
        for freed in self.freed.drain(..).rev() {
            state.freed.push_front(freed);
        }
    }
}
