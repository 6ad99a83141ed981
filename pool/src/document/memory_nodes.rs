//! Memory nodes in the document.

use selkie_fabric::{PeerId, RegionKey};
use serde::{Deserialize, Serialize};

use super::slab_set::SlabSet;
use crate::failure_domain::FailureDomain;

/// What a compute node has to know about a memory node to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNodeDescriptor {
    /// The node's name on the fabric.
    pub peer: PeerId,
    /// Its one region, laid out by [`crate::layout`].
    pub region: RegionKey,
    /// Ranges (slabs) in the region.
    pub ranges: u32,
}

/// A memory node of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryMember {
    /// Random: stands for the process that runs it.
    pub host: u64,
    /// How it is used.
    #[serde(with = "memory_node")]
    pub descriptor: MemoryNodeDescriptor,
    /// Its memory is lost.
    pub dead: bool,
    /// What fails as one with it.
    pub domain: FailureDomain,
    /// Whether it is to stay.
    pub stay: Residency,
    /// The slabs that it takes back.
    #[serde(default, skip_serializing_if = "Reclaim::is_nothing")]
    pub reclaim: Reclaim,
}

/// Whether a memory node is to stay in its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Residency {
    /// It is to stay.
    #[default]
    Stays,
    /// Its slabs are being moved elsewhere.
    Leaving,
    /// It has left: nothing was on it any more.
    Left,
}

/// What a memory node takes back of its slabs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaim {
    /// It monitors the memory of its host: compute nodes are to tell it how active its slabs are.
    pub is_watching: bool,
    /// In use, and to be moved elsewhere.
    pub evicting: SlabSet,
    /// Not available: no node uses them, or may.
    pub withdrawn: SlabSet,
}

impl Reclaim {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A memory node as numbers: (peer, region, ranges).
mod memory_node {
    use selkie_fabric::{PeerId, RegionKey};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::MemoryNodeDescriptor;

    pub(super) fn serialize<S: Serializer>(
        node: &MemoryNodeDescriptor,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (node.peer.to_raw(), node.region.to_raw(), node.ranges).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<MemoryNodeDescriptor, D::Error> {
        let (peer, region, ranges) = <(u16, u32, u32)>::deserialize(deserializer)?;
        let (peer, region) = (PeerId::from_raw(peer), RegionKey::from_raw(region));
        Ok(MemoryNodeDescriptor { peer, region, ranges })
    }
}
