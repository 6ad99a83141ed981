//! Deaths of nodes, in the document.
//!
//! The death of a memory node begins a rebuild of its headers, that of a compute node a recovery.
//! Compute nodes that died while another recovery was under way are remembered together, as *crash
//! groups*: the changes that one of them granted another may be in the grantee's log only.

use std::collections::{BTreeMap, BTreeSet};

use selkie_fabric::PeerId;

use crate::document::{Lost, MAX_LOST_PAGES, PoolState};

impl PoolState {
    /// Takes a dead node out of the pool. The others recover from the death of a compute node; the
    /// memory of a memory node is lost.
    pub fn declare_dead(&mut self, node: PeerId) {
        let card = self.cards.remove(&node.to_raw());
        if node.is_memory() {
            let slot = self.memory_nodes.get_mut(usize::from(node.index()));
            if let Some(member) = slot.and_then(Option::as_mut)
                && !std::mem::replace(&mut member.dead, true)
            {
                self.unreached.remove(&node.index());
                self.begin_rebuild(node.index());
                self.give_up_migration(node.index());
            }
            return;
        }
        self.end_barrier_of(node.index());
        let member = self.compute_nodes.remove(&node.index());
        let was_in = member.is_some();
        if was_in || card.is_some() {
            let only_read = card.is_some_and(|card| card.reads_only);
            let begins = member.as_ref().is_some_and(|member| member.begins);
            // One of them may have granted the other what is in its log only.
            let has_log = member.is_some_and(|member| member.has_log)
                || self.lost.values().any(|other| other.has_log);
            self.lost.values_mut().for_each(|other| other.has_log = has_log);
            let only_recovers = self.only_recovers(node.index());
            let lost = self.lost.entry(node.index()).or_default();
            lost.has_log = has_log;
            let wrote_nothing = !was_in || only_read || begins;
            lost.held_nothing = wrote_nothing || only_recovers;
            let held_nothing = lost.held_nothing;
            // One that recovers writes pages home: its journal may be needed.
            if !wrote_nothing {
                self.record_crash(node.index());
            }
            if !held_nothing {
                self.doubt(node.index());
            }
        }
    }

    /// Pages were lost with a compute node, whose words name it for good.
    pub(crate) fn lose_pages(&mut self, node: u16, pages: &[u64]) {
        match self.lost.get_mut(&node) {
            _ if pages.is_empty() => {}
            // Until the recovery is over, requests for these pages wait for its end.
            Some(lost) => lost.has_lost_pages = true,
            None => {
                self.dead.insert(node);
            }
        }
        let room = MAX_LOST_PAGES.saturating_sub(self.lost_pages.len());
        self.lost_pages.extend(pages.iter().take(room));
    }

    /// Whether no log can bring back pages that are lost with a compute node whose recovery is
    /// under way, and they are to be lost for good.
    #[must_use]
    pub fn are_lost_for_good(&self, node: u16) -> bool {
        self.lost.get(&node).is_some_and(|lost| !lost.has_log)
    }

    /// Pages are lost for good. A coded pool has to remember them, for headers that are made anew:
    /// beyond the limit it remembers their ranges.
    pub(crate) fn abandon_pages(&mut self, pages: &[u64]) {
        let new: Vec<u64> =
            pages.iter().copied().filter(|page| !self.abandoned_pages.contains(page)).collect();
        let room = MAX_LOST_PAGES.saturating_sub(self.abandoned_pages.len());
        let (kept, beyond) = new.split_at(room.min(new.len()));
        self.abandoned_pages.extend(kept);
        if !self.coding.is_plain() {
            let range_of = |page: &u64| (page / self.range_bytes) as usize;
            self.abandoned_ranges.extend(beyond.iter().map(range_of));
        }
    }

    /// Exactly these pages are lost for good, as the words of all lines say. Whether all of them
    /// can be remembered.
    pub(crate) fn remember_abandoned(&mut self, pages: &BTreeSet<u64>) -> bool {
        let fits = pages.len() <= MAX_LOST_PAGES;
        if fits {
            self.abandoned_pages.clone_from(pages);
            self.abandoned_ranges.clear();
        }
        fits
    }

    /// A person gives up pages that a log might have brought back: the recovery from the node is
    /// made once more, and what cannot be redone then is lost for good. Whether the node is one
    /// that pages are lost with.
    pub fn forgive(&mut self, node: u16) -> bool {
        let was_dead = self.dead.remove(&node);
        if was_dead {
            let lost = Lost { fenced: true, has_lost_pages: true, ..Lost::default() };
            self.lost.insert(node, lost);
        }
        was_dead
    }

    /// Puts a compute node that has died into the crash group of those whose recovery is under way.
    pub(crate) fn record_crash(&mut self, node: u16) {
        #[expect(clippy::expect_used, reason = "a node gets its incarnation when it enters")]
        let incarnation =
            *self.incarnations.get(&node).expect("a compute node in the pool has an incarnation");
        let is_alone = !self.lost.keys().any(|other| *other != node);
        if is_alone || self.crash_groups.is_empty() {
            self.crash_groups.push(BTreeMap::new());
        }
        if let Some(last) = self.crash_groups.last_mut() {
            last.insert(node, incarnation);
        }
    }

    /// The crash groups of a compute node, itself included, each node with its incarnation.
    #[must_use]
    pub fn crashed_with(&self, node: u16) -> BTreeMap<u16, u32> {
        let own = self.crash_groups.iter().filter(|group| group.contains_key(&node));
        own.flatten().map(|(node, incarnation)| (*node, *incarnation)).collect()
    }

    /// Whether the log of a dead node may have changes that others of its crash groups held.
    pub(crate) fn is_in_crash_group(&self, node: u16) -> bool {
        self.crash_groups.iter().any(|group| group.contains_key(&node))
    }

    /// Whether a recovery may have to redo changes of a compute node of that incarnation.
    #[must_use]
    pub fn may_be_redone(&self, node: u16, incarnation: u32) -> bool {
        let is_last = self.incarnations.get(&node) == Some(&incarnation);
        let is_dead = self.lost.contains_key(&node) || self.dead.contains(&node);
        let fell = self.crash_groups.iter().any(|group| group.get(&node) == Some(&incarnation));
        is_last && is_dead || fell
    }

    /// Whether a compute node that died may still be in latch words, or be needed for a recovery:
    /// its index is not used again yet.
    pub(crate) fn is_kept_by_dead(&self, node: u16) -> bool {
        let is_dead = self.lost.contains_key(&node) || self.dead.contains(&node);
        is_dead || self.is_doubtful(node) || self.is_in_crash_group(node)
    }

    /// Forgets the crash groups that no recovery and no rebuild needs any more.
    pub(crate) fn forget_crash_groups(&mut self) {
        if self.lost.is_empty() {
            let mut fallen = std::mem::take(&mut self.crash_groups);
            let may_be_needed = |node: &u16| self.dead.contains(node) || self.is_doubtful(*node);
            fallen.retain(|group| group.keys().any(may_be_needed));
            self.crash_groups = fallen;
        }
    }
}
