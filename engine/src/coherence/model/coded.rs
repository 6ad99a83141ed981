//! A coded page in the model: two data splits and one of parity, of which one may be lost.
//!
//! ```text
//! write-back:  Parity --> Data --> Versions, Word      (one data split is changed: c <= r)
//! a split is lost at any time --> SplitLost --> any reader regenerates it: SplitMade
//! the writer dies: its last verb is executed, or not, or torn --> the sweep repairs the page
//! ```
//! A reader reads splits again under the latch until they have the versions of the header, so the
//! model has one read, when the latch is granted. No node may be writing then, and two nodes never
//! write at the same time.

use super::chain::ChainVerb;
use super::coded_page::{CHANGED, DATA, SPLITS, SplitContent};
use super::omissions::RegenerationOmission;
use super::protocol::{ModelEvent, ModelStep, ProtocolModel};
use super::world::{ModelFault, ModelWorld, NodeLife};
use crate::coding::torn_write::ResolvedPage;

impl<const N: usize> ModelWorld<N> {
    /// Home and the memory nodes have executed a stage of a write-back.
    pub(super) fn write_stage(&mut self, writer: usize, verb: ChainVerb, fresh: bool) {
        let other = self.store.writer.filter(|other| *other != writer);
        if other.is_some_and(|other| self.nodes[other].life == NodeLife::Runs) {
            self.fault = Some(ModelFault::Torn);
            return;
        }
        let store = &mut self.store;
        if other.is_some() {
            // A node that takes over from a dead one journals the page, and writes all of it.
            store.end();
        }
        store.writer = Some(writer);
        store.new_fresh = fresh;
        match verb {
            ChainVerb::Parity => store.splits[DATA] = SplitContent::New,
            ChainVerb::Data => store.splits[CHANGED] = SplitContent::New,
            _ => {
                self.home_fresh = fresh;
                store.end();
            }
        }
    }

    /// A node with the latch reads: no node may be writing, and the splits must be a page.
    pub(super) fn read_splits(&mut self) {
        if self.store.writer.is_some() || !matches!(self.store.page(), ResolvedPage::Before(_)) {
            self.fault = Some(ModelFault::Torn);
        }
    }

    /// The header is made anew from the splits, which must be of one page.
    pub(super) fn check_splits(&mut self) {
        if self.store.splits != [SplitContent::Old; SPLITS] {
            self.fault = Some(ModelFault::Torn);
        }
    }

    /// Whether a node's next verb writes a split.
    pub(super) fn is_writing_splits(&self, node: usize) -> bool {
        let next = self.nodes[node].chain.and_then(|chain| chain.next());
        matches!(next, Some(ChainVerb::Parity | ChainVerb::Data))
    }

    /// Tears the split that a node was about to write, or both splits.
    pub(super) fn tear(&mut self, node: usize, at_once: bool) {
        let next = self.nodes[node].chain.and_then(|chain| chain.next());
        let split = if next == Some(ChainVerb::Parity) { DATA } else { CHANGED };
        self.store.writer = Some(node);
        self.store.new_fresh = self.nodes[node].fresh;
        self.store.splits[split] = SplitContent::Torn;
        if at_once {
            self.store.splits[CHANGED] = SplitContent::Torn;
        }
    }
}

impl<const N: usize> ProtocolModel<N> {
    /// Loss and regeneration of a split.
    pub(super) fn splits(&self, world: &ModelWorld<N>, out: &mut Vec<ModelStep<N>>) {
        if !self.coded || world.home_lost {
            return;
        }
        if !world.store.bereft {
            for split in 0..SPLITS {
                let mut after = world.clone();
                (after.store.bereft, after.store.lost) = (true, Some(split));
                out.push(ModelStep::new(0, ModelEvent::SplitLost(split), after));
            }
        }
        for (node, own) in world.nodes.iter().enumerate() {
            let settled = own.line.grantor.is_none()
                || self.careless == Some(RegenerationOmission::Unsettled);
            let reads = own.line.readable() && !own.line.writable() && own.chain.is_none();
            if world.store.lost.is_none() || !Self::runs(world, node) || !reads || !settled {
                continue;
            }
            let mut after = world.clone();
            after.store.lost = None;
            // The reader writes its copy, so the header must be of that version.
            if world.store.writer.is_some() || !world.home_fresh {
                after.fault = Some(ModelFault::Torn);
            }
            out.push(ModelStep::new(node, ModelEvent::SplitMade, after));
        }
    }

    /// The sweep repairs the page that a dead node was writing back.
    pub(super) fn repair_torn(&self, world: &mut ModelWorld<N>, of: usize, lost: bool) {
        if world.store.writer != Some(of) {
            return;
        }
        // The sweep repairs lost pages only.
        let page = if lost { world.store.page() } else { ResolvedPage::Lost };
        match page {
            ResolvedPage::Before(_) => {}
            ResolvedPage::After(..) => world.home_fresh = world.store.new_fresh,
            // The writer and a memory node are lost.
            ResolvedPage::Lost if lost && world.store.lost.is_some() => {
                (world.home_fresh, world.store.refused) = (false, true);
            }
            ResolvedPage::Lost => world.fault = Some(ModelFault::Torn),
        }
        world.store.end();
    }
}
