//! How much memory the pages of a pool take, by coding and the size of a page.

use std::sync::Arc;

use selkie::engine::{ComputeId, Engine, EngineConfig, EngineError};
use selkie::fabric::Fabric;
use selkie::fabric::PeerId;
use selkie::fabric::sim::{World, WorldConfig};
use selkie::memnode::{Coding, Pool, PoolConfig};

use super::cluster::{BOUND, NETWORK};
use super::experiment::Point;
use super::measure::{Failure, Measured, Outcome, Work};
use super::table::{Plot, Row, Table};

/// What each memory node lends, bytes: little, so that what a node has but once, as its journal,
/// counts rather too much.
const LENT: u64 = 128 << 20;
const RANGE_BYTES: u64 = 4 << 20;
/// Of a pool for as many as there can be.
const COMPUTE_NODES: usize = 58;
const SIZES: [(&str, usize); 2] = [("2 KiB", 2048), ("4 KiB", 4096)];
const CODINGS: [(&str, &str); 6] = [
    ("plain", "plain"),
    ("2 copies", "replicate=2"),
    ("2+1", "2+1"),
    ("4+2", "4+2"),
    ("8+2", "8+2"),
    ("8+3", "8+3"),
];

/// A pool that is filled with pages, on as many memory nodes as the coding has splits.
pub(super) struct Memory {
    coding: &'static str,
    gcl_bytes: usize,
}

/// What there was when the pool was full, bytes.
pub(super) struct Filled {
    /// All that memory nodes lent: whole slabs, and what each node has but once.
    lent: u64,
    /// In pages.
    data: u64,
}

impl Filled {
    fn ratio(&self) -> f64 {
        self.lent as f64 / self.data as f64
    }
}

impl Memory {
    pub(super) fn run(&self, seed: u64) -> Result<Filled, Failure> {
        let world = World::new(WorldConfig { cost: NETWORK, ..WorldConfig::new(seed) });
        let fabric: Arc<dyn Fabric> = world.fabric();
        let coding: Coding = self.coding.parse()?;
        let config = PoolConfig {
            memory_nodes: coding.splits(),
            bytes_per_node: LENT,
            gcl_bytes: self.gcl_bytes,
            range_bytes: RANGE_BYTES,
            max_compute_nodes: COMPUTE_NODES,
            coding,
            log_bytes: 0,
        };
        let pool = Pool::start(&fabric, config)?;
        let id = ComputeId::new(0).ok_or("no compute node")?;
        let env = world.env_of(PeerId::compute(0));
        let engine = world
            .run(BOUND, Engine::start(&pool, &fabric, &env, id, EngineConfig::default()))??;
        let pages = world.run(BOUND, fill(&engine))??;
        let regions = pool.memory_nodes();
        let lent = regions.iter().map(|node| node.region().len() as u64).sum();
        Ok(Filled { lent, data: pages * engine.page_bytes() as u64 })
    }
}

/// Allocates pages until there are no more; how many.
async fn fill(engine: &Engine) -> Result<u64, EngineError> {
    let mut pages = 0;
    loop {
        match engine.allocate().await {
            Ok(page) => drop(page),
            Err(EngineError::PoolFull { .. }) => return Ok(pages),
            Err(error) => return Err(error),
        }
        pages += 1;
    }
}

pub(super) fn points() -> impl Iterator<Item = Point> {
    let all = SIZES.into_iter().flat_map(|size| CODINGS.map(|coding| (size, coding)));
    all.map(|((series, gcl_bytes), (x, coding))| {
        let work = Work::Memory(Memory { coding, gcl_bytes });
        Point { series: series.to_owned(), x: x.to_owned(), work }
    })
}

pub(super) fn setup() -> String {
    format!(
        "Memory: all that as many memory nodes lend as the coding has splits, {} MiB each, over the pages that they \
         have room for, in a pool for {COMPUTE_NODES} compute nodes.",
        LENT >> 20
    )
}

fn filled(measured: &Measured) -> impl Iterator<Item = (&Point, &Filled)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        Outcome::Filled(filled) => Some((point, filled)),
        _ => None,
    })
}

/// Bytes of memory for each byte of pages of this size.
pub(super) fn a_byte(measured: &Measured, size: &str, coding: &str) -> Option<f64> {
    let mut found = filled(measured);
    let found = found.find(|(point, _)| point.series == size && point.x == coding);
    found.map(|(_, filled)| filled.ratio())
}

pub(super) fn table(measured: &Measured) -> Table {
    let rows = filled(measured).map(|(point, filled)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: format!("{},{},{:.4}", filled.lent, filled.data, filled.ratio()),
        cell: Some(format!("{:.3}", filled.ratio())),
    });
    let points = filled(measured).map(|(p, filled)| (&*p.series, &*p.x, filled.ratio()));
    Table {
        stem: "coding-latency-memory",
        title: "Memory",
        caption: "Bytes of memory for a byte of pages:",
        x_label: "coding",
        columns: "lent_bytes,page_bytes,ratio",
        rows: rows.collect(),
        plot: Some(Plot::new("bytes for a byte", points)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pages_take_is_their_splits_and_little_more() {
        for (coding, splits) in [("replicate=2", 2.0), ("4+2", 1.5)] {
            let filled = Memory { coding, gcl_bytes: 4096 }.run(1).unwrap();
            let all = coding.parse::<Coding>().unwrap().splits() as u64 * LENT;
            assert!((all * 9 / 10..=all).contains(&filled.lent), "{coding}: {}", filled.lent);
            let beyond = filled.ratio() / splits;
            assert!((1.02..1.08).contains(&beyond), "{coding}: {}", filled.ratio());
        }
    }
}
