//! Which page a worker uses next, and how.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use selkie_engine::GAddr;

use super::Config;

/// The pages of a run: those that all nodes use, and each node's own. In an order of their own, so
/// that the first pages of a skewed choice lie on all memory nodes.
pub(super) struct PageSets {
    shared: Vec<GAddr>,
    own: Vec<Vec<GAddr>>,
}

impl PageSets {
    pub(super) fn divide(config: &Config, mut pages: Vec<GAddr>) -> Self {
        pages.shuffle(&mut SmallRng::seed_from_u64(config.seed));
        let shared = (pages.len() as f64 * config.sharing_ratio).round() as usize;
        let rest = pages.split_off(shared.min(pages.len()));
        let each = rest.len() / config.compute_nodes;
        let own = (0..config.compute_nodes)
            .map(|node| rest.iter().skip(node * each).take(each).copied().collect())
            .collect();
        Self { shared: pages, own }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = GAddr> + '_ {
        self.shared.iter().chain(self.own.iter().flatten()).copied()
    }
}

/// One worker's choices.
pub(super) struct PageChooser {
    random: SmallRng,
    pages: Arc<PageSets>,
    node: usize,
    read_ratio: f64,
    sharing_ratio: f64,
    locality: f64,
    skew: Option<(Zipf<f64>, Zipf<f64>)>,
    last: Option<GAddr>,
}

impl PageChooser {
    pub(super) fn new(config: &Config, pages: Arc<PageSets>, node: usize, worker: usize) -> Self {
        let stream = (node * config.workers + worker) as u64;
        let seed = config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream);
        let own = pages.own.get(node).map_or(0, Vec::len);
        let read_ratio = match config.writer_nodes {
            Some(writers) if node < writers => 0.0,
            Some(_) => 1.0,
            None => config.read_ratio,
        };
        // A distribution over no pages is never drawn from.
        let zipf = |pages: usize| Zipf::new(pages.max(1) as f64, config.zipf).ok();
        let skew = zipf(pages.shared.len()).zip(zipf(own)).filter(|_| config.zipf > 0.0);
        Self {
            random: SmallRng::seed_from_u64(seed),
            pages,
            node,
            read_ratio,
            sharing_ratio: config.sharing_ratio,
            locality: config.locality,
            skew,
            last: None,
        }
    }

    /// The next page, and whether to write it.
    pub(super) fn next(&mut self) -> (GAddr, bool) {
        let write = !self.random.random_bool(self.read_ratio);
        if let Some(last) = self.last
            && self.locality > 0.0
            && self.random.random_bool(self.locality)
        {
            return (last, write);
        }
        let own = self.pages.own.get(self.node).map_or(&[][..], Vec::as_slice);
        let shared = own.is_empty()
            || !self.pages.shared.is_empty() && self.random.random_bool(self.sharing_ratio);
        let pages = if shared { &self.pages.shared[..] } else { own };
        let index = match &self.skew {
            // Ranks count from 1.
            Some((all, own)) => {
                (if shared { all } else { own }).sample(&mut self.random) as usize - 1
            }
            None => self.random.random_range(0..pages.len().max(1)),
        };
        let page = pages.get(index.min(pages.len().saturating_sub(1))).copied();
        self.last = page;
        (page.unwrap_or(GAddr::NULL), write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(config: &Config) -> Arc<PageSets> {
        let all = (0..config.gcls).map(|page| GAddr::from_u64((page + 2) * 2048)).collect();
        Arc::new(PageSets::divide(config, all))
    }

    fn draw(config: &Config, node: usize, count: usize) -> Vec<(GAddr, bool)> {
        let mut choices = PageChooser::new(config, pages(config), node, 0);
        (0..count).map(|_| choices.next()).collect()
    }

    #[test]
    fn ratios_are_kept() {
        let config = Config { read_ratio: 0.8, locality: 0.3, gcls: 4096, ..Config::default() };
        let drawn = draw(&config, 0, 20_000);
        let writes = drawn.iter().filter(|(_, write)| *write).count();
        assert!((3_700..4_300).contains(&writes), "{writes} writes of 20,000, expected 4,000");
        let same = drawn.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
        assert!((5_700..6_300).contains(&same), "{same} repeats of 20,000, expected 6,000");
        assert_eq!(drawn, draw(&config, 0, 20_000), "the seed decides");
        assert_ne!(drawn, draw(&config, 1, 20_000), "each worker draws its own");
    }

    #[test]
    fn what_is_not_shared_is_divided() {
        let config = Config { sharing_ratio: 0.5, gcls: 1600, ..Config::default() };
        let pages = pages(&config);
        assert_eq!(pages.shared.len(), 800);
        assert_eq!(pages.all().count(), 1600);
        let first = draw(&config, 0, 4_000);
        let second = draw(&config, 1, 4_000);
        let shared = first.iter().filter(|(page, _)| pages.shared.contains(page)).count();
        assert!((1_800..2_200).contains(&shared), "{shared} of 4,000");
        let private = |drawn: &[(GAddr, bool)]| {
            let own = drawn.iter().filter(|(page, _)| !pages.shared.contains(page));
            own.map(|(page, _)| *page).collect::<std::collections::HashSet<_>>()
        };
        assert!(private(&first).is_disjoint(&private(&second)));
    }

    #[test]
    fn skew_prefers_few_pages() {
        let config = Config { zipf: 0.99, gcls: 10_000, ..Config::default() };
        let drawn = draw(&config, 0, 20_000);
        let mut counts = std::collections::HashMap::new();
        for (page, _) in drawn {
            *counts.entry(page).or_insert(0) += 1;
        }
        // 1 / sum of k^-0.99 over 10,000 pages is about 0.099.
        let most = counts.values().max().copied().unwrap();
        assert!((1_700..2_300).contains(&most), "the first page was drawn {most} times of 20,000");
    }

    #[test]
    fn writers_write_and_readers_read() {
        let config = Config { writer_nodes: Some(1), gcls: 8, ..Config::default() };
        assert!(draw(&config, 0, 100).iter().all(|(_, write)| *write));
        assert!(draw(&config, 1, 100).iter().all(|(_, write)| !*write));
    }
}
