//! Names of things on the network: peers, registered regions, and addresses inside them.
//!
//! They are newtypes so that no bare integer crosses a module boundary, and plain numbers inside
//! so that they fit a wire format (`to_raw` / `from_raw`).

use std::fmt;

/// A node that can be reached: a memory node or a compute node.
///
/// Bit 15 tells the two kinds apart, the lower 15 bits are the index within the kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u16);

impl PeerId {
    const COMPUTE: u16 = 1 << 15;

    /// Greatest index either kind of peer may have.
    pub const MAX_INDEX: u16 = Self::COMPUTE - 1;

    /// The memory node with this index.
    ///
    /// # Panics
    /// If `index` is above [`PeerId::MAX_INDEX`].
    pub const fn memory(index: u16) -> Self {
        assert!(index <= Self::MAX_INDEX, "peer index above 32767");
        Self(index)
    }

    /// The compute node with this index.
    ///
    /// # Panics
    /// If `index` is above [`PeerId::MAX_INDEX`].
    pub const fn compute(index: u16) -> Self {
        assert!(index <= Self::MAX_INDEX, "peer index above 32767");
        Self(index | Self::COMPUTE)
    }

    /// Whether this is a memory node.
    pub const fn is_memory(self) -> bool {
        self.0 & Self::COMPUTE == 0
    }

    /// The index among the nodes of its kind.
    pub const fn index(self) -> u16 {
        self.0 & Self::MAX_INDEX
    }

    /// The number that stands for this peer in messages.
    pub const fn to_raw(self) -> u16 {
        self.0
    }

    /// The peer a number from [`PeerId::to_raw`] stands for; every number is a valid peer.
    pub const fn from_raw(raw: u16) -> Self {
        Self(raw)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_memory() { "mem" } else { "cn" };
        write!(f, "{kind}{}", self.index())
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A registered region of one peer, as its remote users name it. Opaque: only the peer that
/// registered it can tell what it means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey(u32);

impl RegionKey {
    /// The number that stands for this key in messages.
    pub const fn to_raw(self) -> u32 {
        self.0
    }

    /// The key a number from [`RegionKey::to_raw`] stands for. A number made up by the caller
    /// gives a key whose use fails with `UnknownRegion`.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }
}

impl fmt::Display for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {:#010x}", self.0)
    }
}

impl fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A place in a registered region of the peer a queue pair leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RemoteAddr {
    /// The region.
    pub region: RegionKey,
    /// Byte offset in the region, a multiple of 8.
    pub offset: u64,
}

impl RemoteAddr {
    /// The address `offset` bytes into `region`.
    pub const fn new(region: RegionKey, offset: u64) -> Self {
        Self { region, offset }
    }
}

impl fmt::Display for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.region, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_keep_kind_and_index() {
        for index in [0, 1, 57, PeerId::MAX_INDEX] {
            let (memory, compute) = (PeerId::memory(index), PeerId::compute(index));
            assert!(memory.is_memory() && !compute.is_memory());
            assert_eq!((memory.index(), compute.index()), (index, index));
            assert_ne!(memory, compute);
            assert_eq!(PeerId::from_raw(compute.to_raw()), compute);
        }
        assert_eq!(PeerId::memory(0).to_string(), "mem0");
        assert_eq!(PeerId::compute(3).to_string(), "cn3");
    }

    #[test]
    #[should_panic(expected = "peer index above 32767")]
    fn an_index_that_would_change_the_kind_is_refused() {
        let _ = PeerId::memory(1 << 15);
    }
}
