//! How the splits of ranges are placed on memory nodes, and what is lost when nodes fail.

use selkie::fabric::env::SplitMix;
use selkie::pool::FailureDomain;
use selkie::pool::coding_sets::{MemoryNodeLoad, place_range};

/// Where the splits of a range go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::figures) enum PlacementMethod {
    /// Within extended groups with so many spare nodes, as in pools.
    CodingSets {
        spare: usize,
    },
    Random,
    /// Each split on the less loaded of two random nodes.
    TwoChoices,
    LeastLoaded,
}

impl PlacementMethod {
    pub(in crate::figures) fn is_drawn(self) -> bool {
        !matches!(self, Self::CodingSets { .. })
    }
}

/// A cluster, and what is placed on it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::figures) struct PlacementShape {
    pub(in crate::figures) method: PlacementMethod,
    pub(in crate::figures) nodes: usize,
    /// Slabs of a node that are in use at the end.
    pub(in crate::figures) slabs: usize,
    pub(in crate::figures) data: usize,
    pub(in crate::figures) parity: usize,
}

/// The base of Hydra's figure 15.
pub(in crate::figures) const BASE: PlacementShape = PlacementShape {
    method: PlacementMethod::CodingSets { spare: 2 },
    nodes: 1000,
    slabs: 16,
    data: 8,
    parity: 2,
};
/// Of a thousand nodes, so many fail.
pub(in crate::figures) const BASE_FAILING: usize = 10;

impl PlacementShape {
    fn splits(&self) -> usize {
        self.data + self.parity
    }

    /// The nodes of each range that is placed, beside `used` slabs of each node; these count what
    /// is placed.
    pub(in crate::figures) fn place(&self, used: &mut [u32], random: &SplitMix) -> Vec<Vec<u16>> {
        let ranges = self.nodes * self.slabs / self.splits();
        // Memory is no bound here: how evenly it is used is what is asked.
        let places = (0..).zip(used.iter()).map(|(node, used)| MemoryNodeLoad {
            node,
            domain: FailureDomain::ALONE,
            used: *used,
            slabs: u32::MAX,
        });
        let mut places: Vec<MemoryNodeLoad> = places.collect();
        let placed = (0..ranges).map_while(|_| {
            let range = self.choose(&places, random)?;
            for node in &range {
                places.get_mut(usize::from(*node))?.used += 1;
            }
            Some(range)
        });
        let placed: Vec<_> = placed.collect();
        used.iter_mut().zip(&places).for_each(|(used, place)| *used = place.used);
        placed
    }

    fn choose(&self, places: &[MemoryNodeLoad], random: &SplitMix) -> Option<Vec<u16>> {
        let splits = self.splits();
        if splits > places.len() {
            return None;
        }
        let any = || places.get(random.below(places.len() as u64) as usize);
        match self.method {
            PlacementMethod::CodingSets { spare } => place_range(places, splits, spare),
            PlacementMethod::Random => Some(draw(self.nodes, splits, random)),
            PlacementMethod::TwoChoices => {
                let mut range: Vec<u16> = Vec::with_capacity(splits);
                while range.len() < splits {
                    let (one, other) = (any()?, any()?);
                    let chosen = if other.used < one.used { other } else { one };
                    if !range.contains(&chosen.node) {
                        range.push(chosen.node);
                    }
                }
                Some(range)
            }
            PlacementMethod::LeastLoaded => {
                // Of those that are loaded alike, any.
                let mut all: Vec<_> =
                    places.iter().map(|p| (p.used, random.next_u64(), p.node)).collect();
                all.select_nth_unstable(splits - 1);
                Some(all.iter().take(splits).map(|(_, _, node)| *node).collect())
            }
        }
    }
}

/// So many different ones of the first `of` numbers.
pub(in crate::figures) fn draw(of: usize, count: usize, random: &SplitMix) -> Vec<u16> {
    let mut drawn = Vec::with_capacity(count);
    while drawn.len() < count {
        let number = random.below(of as u64) as u16;
        if !drawn.contains(&number) {
            drawn.push(number);
        }
    }
    drawn
}

/// Which ranges have splits on each node, and how many of a range's splits may be lost.
pub(in crate::figures) struct PlacedRanges {
    on: Vec<Vec<u32>>,
    /// Of each range, splits that are lost in the trial under way.
    lost: Vec<u8>,
    parity: usize,
}

impl PlacedRanges {
    pub(in crate::figures) fn new(nodes: usize, parity: usize, ranges: &[Vec<u16>]) -> Self {
        let mut on = vec![Vec::new(); nodes];
        for (number, range) in (0..).zip(ranges) {
            for node in range {
                if let Some(own) = on.get_mut(usize::from(*node)) {
                    own.push(number);
                }
            }
        }
        Self { on, lost: vec![0; ranges.len()], parity }
    }

    /// Whether some range is lost with these nodes.
    pub(in crate::figures) fn is_lost_with(&mut self, failed: &[u16]) -> bool {
        let mut most = 0;
        let on = failed.iter().filter_map(|node| self.on.get(usize::from(*node))).flatten();
        for range in on.clone() {
            if let Some(lost) = self.lost.get_mut(*range as usize) {
                *lost += 1;
                most = most.max(*lost);
            }
        }
        for range in on {
            if let Some(lost) = self.lost.get_mut(*range as usize) {
                *lost = 0;
            }
        }
        usize::from(most) > self.parity
    }
}
