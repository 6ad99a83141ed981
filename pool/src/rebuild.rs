//! How the processes of a coded pool agree on new homes for headers that were lost with a memory
//! node, or that are to leave one that lives.
//!
//! ```text
//! declared dead, or to be left --> [all compute nodes quiet] --> one moves the homes
//!     --> [all have entered their copies] --> over
//! ```
//! Each node may die at any time, and all may. The others do not wait for a node that is out of the
//! pool, and another node takes over its task. A node may come in at any time as well: if the homes
//! have moved, it quiesces their lines before it does anything else, and takes part in the steps
//! that are left.

use std::collections::BTreeSet;

use crate::document::{HeaderMove, MAX_LOST_PAGES, PoolState, Rebuild, Slab};

impl PoolState {
    /// A memory node of a coded pool is dead: its headers are to be rebuilt.
    pub(crate) fn begin_rebuild(&mut self, memory: u16) {
        let holds = |slab: &Slab| slab.node == memory;
        if !self.ranges.iter().flat_map(|range| &range.slabs).any(holds) {
            return;
        }
        // Headers that were to leave it and have not are lost with the rest.
        let cut_short = self.rebuilds.iter().position(|r| r.memory == memory && !r.moved);
        let cut_short = cut_short.map(|at| (at, self.rebuilds.remove(at)));
        for rebuild in self.rebuilds.iter_mut().filter(|rebuild| rebuild.memory == memory) {
            rebuild.before.clear();
        }
        let at = cut_short.as_ref().map_or(self.rebuilds.len(), |(at, _)| *at);
        // The words that named the nodes that are being recovered from are lost.
        let doubtful = cut_short.map(|(_, rebuild)| rebuild.doubtful).unwrap_or_default();
        let doubted = self.rebuilds.iter().flat_map(|rebuild| rebuild.doubtful.clone());
        // Beyond the limit of remembered pages it is unknown which node lost which page.
        let forgotten = self.lost_pages.len() >= MAX_LOST_PAGES;
        let dead = self.dead.iter().copied().filter(|_| forgotten);
        let lost = self.lost.iter().filter(|(_, lost)| !lost.held_nothing).map(|(node, _)| *node);
        let doubtful = doubtful.into_iter().chain(doubted).chain(lost).chain(dead).collect();
        let number = self.next_rebuild();
        let rebuild = Rebuild { number, memory, doubtful, ..Rebuild::default() };
        self.rebuilds.insert(at, rebuild);
    }

    /// Begins to move the headers out of a memory node's slab of a range. Returns whether there are
    /// any.
    pub(crate) fn leave_headers(&mut self, memory: u16, range: usize) -> bool {
        let number = self.next_rebuild();
        let rebuild = Rebuild { number, memory, leaving: Some(range), ..Rebuild::default() };
        let moves = self.moves_of(&rebuild);
        let can_leave = moves.iter().all(|(_, is_possible)| *is_possible);
        if !moves.is_empty() && can_leave && self.rebuilds.is_empty() && self.lost.is_empty() {
            self.rebuilds.push(rebuild);
        }
        !moves.is_empty()
    }

    /// A compute node has left: another may get its index.
    pub(crate) fn forget_in_rebuilds(&mut self, node: u16) {
        for rebuild in &mut self.rebuilds {
            rebuild.quiet.remove(&node);
            rebuild.entered.remove(&node);
        }
        // The last node may leave before it has ended a rebuild. No copies are left to be entered
        // then, and none could come in to say so.
        while self.compute_nodes.is_empty() && self.rebuilds.first().is_some_and(is_entered) {
            self.rebuilds.remove(0);
        }
    }

    /// The memory node whose latch words the nodes are entering their copies in, if it is unknown
    /// which words these are. A node that joined now would find them free.
    pub(crate) fn is_being_entered(&self) -> Option<u16> {
        let is_unknown = |rebuild: &&Rebuild| rebuild.moved && rebuild.tables.is_none();
        self.rebuilds.iter().find(is_unknown).map(|rebuild| rebuild.memory)
    }

    /// Whether words may come to name a compute node that died.
    pub(crate) fn is_doubtful(&self, node: u16) -> bool {
        self.rebuilds.iter().any(|rebuild| rebuild.doubtful.contains(&node))
    }

    /// A compute node died. Its copies of lines whose words are being rebuilt are known only if it
    /// has entered them.
    pub(crate) fn doubt(&mut self, node: u16) {
        for rebuild in self.rebuilds.iter_mut().filter(|r| !r.entered.contains(&node)) {
            rebuild.doubtful.insert(node);
        }
    }

    fn next_rebuild(&mut self) -> u64 {
        self.rebuilds_begun += 1;
        self.rebuilds_begun
    }

    /// The header tables that a rebuild moves, each with its successor home and whether there is
    /// one: the next of its positions whose memory node lives, preferably one that is to stay.
    #[must_use]
    pub fn moves_of(&self, rebuild: &Rebuild) -> Vec<(HeaderMove, bool)> {
        let mut moves = Vec::new();
        let ranges = self.ranges.iter().enumerate();
        let is_concerned = |range| rebuild.leaving.is_none_or(|own| own == range);
        for (range, place) in ranges.filter(|(range, _)| is_concerned(*range)) {
            let can_have = |slab: &Slab| {
                self.lives(slab.node) && (rebuild.leaving.is_none() || slab.node != rebuild.memory)
            };
            let keeps = |slab: &Slab| can_have(slab) && self.stays(slab.node);
            for position in 0..place.homes.len() {
                let now = place.home_of(position);
                let Some((now, on)) = now.filter(|(slab, _)| slab.node == rebuild.memory) else {
                    continue;
                };
                let next_of = |fits: &dyn Fn(&Slab) -> bool| {
                    let mut places = (0..=self.coding.parity())
                        .filter_map(|on| Some((on, place.slab_on(position, on)?)));
                    places.find(|(_, slab)| fits(slab))
                };
                let next = next_of(&keeps).or_else(|| next_of(&can_have));
                let (on, slab) = next.unwrap_or((on, now));
                moves.push((HeaderMove { range, position, on, slab }, next.is_some()));
            }
        }
        moves
    }

    /// The header tables of a rebuild, as (range, position), whether or not they have moved.
    #[must_use]
    pub fn tables_of(&self, rebuild: &Rebuild) -> BTreeSet<(usize, usize)> {
        let to_move =
            || self.moves_of(rebuild).iter().map(|(to, _)| (to.range, to.position)).collect();
        rebuild.tables.clone().unwrap_or_else(to_move)
    }

    /// The moves to be made. Headers that cannot leave a living memory node are rebuilt in place:
    /// all nodes will enter their copies.
    #[must_use]
    pub fn moves_to_make(&self, rebuild: &Rebuild) -> Vec<HeaderMove> {
        let all = self.moves_of(rebuild).into_iter();
        let is_made = |is_possible| is_possible || rebuild.leaving.is_some();
        all.filter(|(_, is_possible)| is_made(*is_possible)).map(|(to, _)| to).collect()
    }

    /// Where the tables of a rebuild are now.
    pub(crate) fn places_before(&self, moves: &[HeaderMove]) -> Vec<HeaderMove> {
        let place = |to: &HeaderMove| {
            let (slab, on) = self.ranges.get(to.range)?.home_of(to.position)?;
            Some(HeaderMove { on, slab, ..*to })
        };
        moves.iter().filter_map(place).collect()
    }

    /// The rebuild under way, if it is this one.
    pub(crate) fn rebuild_of(&mut self, number: u64) -> Option<&mut Rebuild> {
        self.rebuilds.first_mut().filter(|rebuild| rebuild.number == number)
    }
}

/// Whether nothing is left to be entered in the words of a rebuild, if there is no member.
fn is_entered(rebuild: &Rebuild) -> bool {
    rebuild.moved && rebuild.doubtful.is_empty() && rebuild.abandoned.is_empty()
}
