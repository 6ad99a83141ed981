//! Where the ranges of a coded pool lie.

use serde::{Deserialize, Serialize};

/// Where a range of a coded pool lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangePlace {
    /// The slab at each position.
    pub slabs: Vec<Slab>,
    /// How many positions on the headers lie that belong to each position.
    pub homes: Vec<u8>,
    /// A slab that has a second place, as it is moved.
    pub moving: Option<SecondPlace>,
}

impl RangePlace {
    /// The position that many positions on from another.
    fn position_on(&self, position: usize, on: usize) -> Option<usize> {
        (position + on).checked_rem(self.slabs.len())
    }

    /// The slab that many positions on from a position.
    #[must_use]
    pub fn slab_on(&self, position: usize, on: usize) -> Option<Slab> {
        self.slabs.get(self.position_on(position, on)?).copied()
    }

    /// The slab in which the headers lie that belong to a position, and how many positions on that
    /// is: which of its header tables they are in.
    #[must_use]
    pub fn home_of(&self, position: usize) -> Option<(Slab, usize)> {
        let on = usize::from(*self.homes.get(position)?);
        Some((self.slab_on(position, on)?, on))
    }

    /// Whether headers lie in the slab at a position.
    pub(crate) fn has_headers(&self, position: usize) -> bool {
        let lie_at = |(own, on): (usize, &u8)| self.position_on(own, usize::from(*on));
        self.homes.iter().enumerate().any(|home| lie_at(home) == Some(position))
    }
}

/// A piece of a memory node's memory. There are many in the state of a pool: written as a pair each
/// takes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u16, u32)", into = "(u16, u32)")]
pub struct Slab {
    /// The memory node, by index.
    pub node: u16,
    /// The number of the slab there.
    pub slab: u32,
}

impl From<(u16, u32)> for Slab {
    fn from((node, slab): (u16, u32)) -> Self {
        Self { node, slab }
    }
}

impl From<Slab> for (u16, u32) {
    fn from(Slab { node, slab }: Slab) -> Self {
        (node, slab)
    }
}

/// The second place of a slab of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondPlace {
    /// Its position.
    pub position: usize,
    /// The place: what is written to the slab at that position is written here as well.
    pub also: Slab,
    /// Counters of the range stand still.
    pub counters_wait: bool,
}
