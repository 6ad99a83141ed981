//! The pieces a load is cut into, and who does them.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::Mutex;

use crate::tpcc::affinity::{Affinity, owner_of};
use crate::tpcc::config::Config;
use crate::tpcc::scale::{DISTRICTS, Scale};

/// A run of rows that are neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoadJob {
    /// These items.
    Items(Range<i32>),
    /// The row of a warehouse and those of its districts.
    Warehouse(i32),
    /// Stock of a warehouse for these items.
    Stock(i32, Range<i32>),
    /// Customers of a district with their first payments.
    Customers(i32, i32),
    /// Orders of a district with their lines.
    Orders(i32, i32),
}

/// Jobs not begun yet, by the node that should do them.
pub(super) struct LoadQueue {
    queues: Mutex<Vec<VecDeque<LoadJob>>>,
    /// Whether others may do them as well.
    is_shared: bool,
}

impl LoadQueue {
    pub(super) fn new(config: &Config) -> Self {
        let mut queues = vec![VecDeque::new(); config.compute_nodes.max(1)];
        let warehouses = config.warehouses.cast_signed();
        let jobs = jobs(&config.scale, warehouses);
        let nodes = queues.len();
        for (at, (warehouse, job)) in jobs.into_iter().enumerate() {
            // A warehouse's rows are made by the node that is at home there; items by all in turn.
            let owner = |warehouse| owner_of(warehouse, warehouses, nodes);
            let node = warehouse.map_or(at % nodes, owner);
            if let Some(queue) = queues.get_mut(node) {
                queue.push_back(job);
            }
        }
        let is_shared = config.affinity != Affinity::Partitioned;
        Self { queues: Mutex::new(queues), is_shared }
    }

    /// The next job for a task of `node`: its own, else the last job of the node with most left, if
    /// others may do it.
    pub(super) fn take(&self, node: usize) -> Option<LoadJob> {
        let mut queues = self.queues.lock();
        let own = queues.get_mut(node).and_then(VecDeque::pop_front);
        if own.is_some() || !self.is_shared {
            return own;
        }
        queues.iter_mut().max_by_key(|queue| queue.len())?.pop_back()
    }

    /// Drops what is left.
    pub(super) fn abandon(&self) {
        self.queues.lock().iter_mut().for_each(VecDeque::clear);
    }
}

/// All jobs with the warehouse each belongs to. Tables alternate, so that tasks working side by
/// side work on different ones and seldom meet on a page.
fn jobs(scale: &Scale, warehouses: i32) -> Vec<(Option<i32>, LoadJob)> {
    let pieces: Vec<Range<i32>> = (0..DISTRICTS)
        .map(|piece| {
            let bound = |piece: i32| {
                let items = i64::from(scale.items) * i64::from(piece) / i64::from(DISTRICTS);
                1 + i32::try_from(items).unwrap_or(i32::MAX - 1)
            };
            bound(piece)..bound(piece + 1)
        })
        .collect();
    let mut jobs: Vec<_> =
        pieces.iter().map(|piece| (None, LoadJob::Items(piece.clone()))).collect();
    for warehouse in 1..=warehouses {
        let mut push = |job| jobs.push((Some(warehouse), job));
        push(LoadJob::Warehouse(warehouse));
        for (district, piece) in (1..=DISTRICTS).zip(&pieces) {
            push(LoadJob::Customers(warehouse, district));
            push(LoadJob::Orders(warehouse, district));
            push(LoadJob::Stock(warehouse, piece.clone()));
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_taken_once() {
        let config = Config { warehouses: 3, compute_nodes: 2, ..Config::default() };
        let queue = LoadQueue::new(&config);
        let mut taken = Vec::new();
        // Node 1 does all: its own first, then those of node 0.
        while let Some(job) = queue.take(1) {
            taken.push(job);
        }
        assert!(matches!(taken[5], LoadJob::Warehouse(3)), "{:?}", taken[5]);
        assert_eq!(taken.len(), 10 + 3 * 31);
        let mut items: Vec<i32> = Vec::new();
        for job in &taken {
            assert_eq!(taken.iter().filter(|other| *other == job).count(), 1);
            if let LoadJob::Items(range) = job {
                items.extend(range.clone());
            }
        }
        items.sort_unstable();
        assert_eq!(items, (1..=100_000).collect::<Vec<_>>());
    }

    #[test]
    fn where_warehouses_belong_to_nodes_nobody_else_loads_them() {
        let config = Config { affinity: Affinity::Partitioned, warehouses: 3, ..Config::default() };
        let queue = LoadQueue::new(&config);
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(1)).collect();
        assert_eq!(taken.len(), 5 + 31, "half of the items, and one warehouse");
        assert!(taken.contains(&LoadJob::Warehouse(3)) && !taken.contains(&LoadJob::Warehouse(2)));
    }

    #[test]
    fn an_abandoned_load_has_no_jobs() {
        let queue = LoadQueue::new(&Config::default());
        queue.abandon();
        assert_eq!(queue.take(0), None);
    }
}
