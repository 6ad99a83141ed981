//! A peer as a node of this process sees it: its segment, and the regions that were mapped so far.

use super::control_page::ControlPage;
use super::segment::Segment;
use crate::doorbell::{Doorbell, ring_word};
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::mem::execute::apply;
use crate::mem::node::{MemRegion, Node, slot_of};
use crate::mem::words::Words;
use crate::verb::Verb;

/// See the module.
pub(super) struct ShmPeer {
    pub(super) segment: Segment,
    pub(super) control: ControlPage,
    /// The mapped regions.
    node: Node,
}

impl ShmPeer {
    pub(super) fn new(id: PeerId, segment: Segment, control: ControlPage) -> Self {
        Self { segment, control, node: Node::new(id) }
    }

    pub(super) fn id(&self) -> PeerId {
        self.node.id()
    }

    /// Maps the region with this key, if the peer has it.
    #[cold]
    fn map(&self, key: RegionKey) -> Result<(), FabricError> {
        let unknown = FabricError::UnknownRegion { peer: self.node.id(), region: key };
        let slot = slot_of(key);
        let Some((_, bytes)) = self.control.region(slot).filter(|(known, _)| *known == key) else {
            return Err(unknown);
        };
        let words = Words::mapped(self.segment.open_region(slot, bytes)?);
        // Only the owner of the region waits for its doorbell.
        let region = MemRegion::new(key, words, Doorbell::new());
        self.node.enter(slot, region).map(drop).ok_or(unknown)
    }

    /// Executes a verb on the memory of the peer, and maps its region first if need be.
    #[inline]
    pub(super) fn execute(&self, verb: &mut Verb) -> Result<(), FabricError> {
        match apply(&self.node, verb) {
            Err(FabricError::UnknownRegion { region, .. }) => {
                self.map(region)?;
                apply(&self.node, verb)?;
            }
            done => drop(done?),
        }
        if matches!(verb, Verb::WriteWithDoorbell { .. })
            && ring_word(self.control.doorbell(slot_of(verb.at().region)))
        {
            self.control.call();
        }
        Ok(())
    }
}
