//! How often nodes that fail at once take data with them (Hydra §5.2, figure 15).

use selkie::fabric::env::SplitMix;

use super::placement::{PlacedRanges, PlacementShape, draw};

/// Placements that are drawn for a point, where they are drawn.
const PLACEMENTS: u64 = 16;

/// What is changed of the base along the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::figures) enum Sweep {
    Spare,
    Parity,
    Slabs,
    Failing,
    Nodes,
}

/// A point of the probability of loss.
pub(in crate::figures) struct DataLoss {
    pub(in crate::figures) sweep: Sweep,
    pub(in crate::figures) shape: PlacementShape,
    pub(in crate::figures) failing: usize,
}

/// How often something was lost.
pub(in crate::figures) struct LossProbability {
    pub(in crate::figures) trials: u64,
    pub(in crate::figures) lost: u64,
}

impl DataLoss {
    pub(in crate::figures) fn run(&self, trials: u64, seed: u64) -> LossProbability {
        let random = SplitMix::of_stream(seed, 3);
        let placements = if self.shape.method.is_drawn() { PLACEMENTS.min(trials) } else { 1 };
        let mut lost = 0;
        for placement in 0..placements {
            let ranges = self.shape.place(&mut vec![0; self.shape.nodes], &random);
            let mut placed = PlacedRanges::new(self.shape.nodes, self.shape.parity, &ranges);
            let end = |placement: u64| trials * placement / placements;
            for _ in end(placement)..end(placement + 1) {
                let failed = draw(self.shape.nodes, self.failing, &random);
                lost += u64::from(placed.is_lost_with(&failed));
            }
        }
        LossProbability { trials, lost }
    }
}

impl LossProbability {
    pub(in crate::figures) fn probability(&self) -> f64 {
        self.lost as f64 / self.trials as f64
    }

    pub(in crate::figures) fn cell(&self) -> String {
        if self.lost == 0 {
            return format!("below {:.1e} %", 100.0 / self.trials as f64);
        }
        let percent = 100.0 * self.probability();
        let digits = (1.0 - percent.log10().floor()).max(0.0) as usize;
        format!("{percent:.digits$} %")
    }
}
