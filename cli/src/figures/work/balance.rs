//! How evenly placement uses the memory of nodes (Hydra §5.2, figure 16).

use selkie::fabric::env::SplitMix;

use super::placement::{BASE, PlacementShape};

/// Clusters that are filled for a point of the balance.
pub(in crate::figures) const CLUSTERS: u64 = 4;

/// A point of the balance: nodes begin with some slabs in use for something else, up to half as
/// many as in the base, and ranges are placed beside them.
pub(in crate::figures) struct Balance {
    pub(in crate::figures) shape: PlacementShape,
}

/// Memory used of the nodes of a cluster, over the mean.
pub(in crate::figures) struct Balanced {
    pub(in crate::figures) most: f64,
    pub(in crate::figures) deviation: f64,
}

impl Balance {
    pub(in crate::figures) fn run(&self, seed: u64) -> Balanced {
        let mut sum = Balanced { most: 0.0, deviation: 0.0 };
        for cluster in 0..CLUSTERS {
            // The same for every method.
            let before = SplitMix::of_stream(seed, 4 + cluster);
            let random = SplitMix::of_stream(seed, 4 + CLUSTERS + cluster);
            let most = BASE.slabs as u64 / 2;
            let drawn = (0..self.shape.nodes).map(|_| before.below(most + 1) as u32);
            let mut used: Vec<u32> = drawn.collect();
            self.shape.place(&mut used, &random);
            let Balanced { most, deviation } = Balanced::of(&used);
            sum.most += most / CLUSTERS as f64;
            sum.deviation += deviation / CLUSTERS as f64;
        }
        sum
    }
}

impl Balanced {
    pub(in crate::figures) fn of(used: &[u32]) -> Self {
        let mean = used.iter().sum::<u32>() as f64 / used.len() as f64;
        let most = used.iter().max().copied().unwrap_or_default();
        let squares = used.iter().map(|used| (f64::from(*used) - mean).powi(2));
        let deviation = (squares.sum::<f64>() / used.len() as f64).sqrt();
        Self { most: f64::from(most) / mean, deviation: deviation / mean }
    }
}
