//! Who waits for whom, and who gives up.
//!
//! A transaction that has waited for a while makes known what it waits for, in the lock tree, and
//! follows the waits from there: those before it in the queue, what they wait for, those before
//! them, and so on, on all nodes. If it comes back to itself, that may be a cycle, or a trace of
//! waits of different times. So it looks at each edge again. A wait has a number, and a request
//! keeps its place as long as its transaction waits with that number: an edge that is found twice
//! was there all the time between, and if all are, they were there at one moment.
//!
//! One that finds a queue full is not in it, and waits for its holder. So who waits no more says
//! that before it leaves its queue.
//!
//! *One gives up*: the youngest of the cycle, by a number that all agree on. Each of a cycle finds
//! it, the last that has made its wait known at once, and the others later. The youngest of all
//! that are in cycles finds itself, whichever of its cycles it finds: so some cycle always ends.

use std::collections::{BTreeMap, VecDeque};

use selkie_btree::TreeError;

use crate::locks::entry::{LockName, LockRequest};
use crate::locks::lock_table::LockTable;
use crate::locks::queue;

/// Most transactions that one search follows.
const MOST_FOLLOWED: usize = 1024;

/// That one waits for another.
#[derive(Clone, Copy, Debug)]
struct Edge {
    waiter: LockRequest,
    /// Of its wait.
    number: u64,
    name: LockName,
    before: LockRequest,
}

impl LockTable {
    /// Whether a transaction that waits is in a cycle, and the one of it that gives up.
    pub(crate) async fn is_victim(
        &self,
        own: LockRequest,
        number: u64,
        name: LockName,
    ) -> Result<bool, TreeError> {
        #[cfg(feature = "planted")]
        if self.engine.planted() == selkie_engine::Planted::ManyVictims {
            for before in self.before(name, own).await? {
                if self.wait_of(before.owner.txn).await?.is_some() {
                    return Ok(true);
                }
            }
        }
        let Some(cycle) = self.find_cycle(own, number, name).await? else { return Ok(false) };
        for edge in &cycle {
            let wait = self.wait_of(edge.waiter.owner.txn).await?;
            let still = wait.is_some_and(|wait| wait.number == edge.number);
            if !still || !self.before(edge.name, edge.waiter).await?.contains(&edge.before) {
                return Ok(false);
            }
        }
        let age = |request: &LockRequest| (request.owner.age, request.owner.txn);
        let youngest = cycle.iter().map(|edge| age(&edge.waiter)).max();
        Ok(youngest == Some(age(&own)))
    }

    /// The living requests in a queue that a transaction waits for, which has said that it waits.
    async fn before(
        &self,
        name: LockName,
        request: LockRequest,
    ) -> Result<Vec<LockRequest>, TreeError> {
        let queue = self.queue(name).await?;
        Ok(queue::before(queue, request.owner.txn, |owner| self.lives(owner)))
    }

    /// A way along waits from a transaction back to itself.
    async fn find_cycle(
        &self,
        own: LockRequest,
        number: u64,
        name: LockName,
    ) -> Result<Option<Vec<Edge>>, TreeError> {
        // By which edge a transaction was come to first.
        let mut reached: BTreeMap<u64, Edge> = BTreeMap::new();
        let mut to_follow = VecDeque::from([(own, number, name)]);
        while let Some((waiter, number, name)) = to_follow.pop_front() {
            for before in self.before(name, waiter).await? {
                let txn = before.owner.txn;
                if reached.contains_key(&txn) {
                    continue;
                }
                reached.insert(txn, Edge { waiter, number, name, before });
                if txn == own.owner.txn {
                    return Ok(Some(way_back(&reached, txn)));
                }
                if reached.len() >= MOST_FOLLOWED {
                    return Ok(None);
                }
                if let Some(wait) = self.wait_of(txn).await? {
                    to_follow.push_back((before, wait.number, wait.name));
                }
            }
        }
        Ok(None)
    }
}

/// The edges from a transaction back to itself.
fn way_back(reached: &BTreeMap<u64, Edge>, own: u64) -> Vec<Edge> {
    let (mut cycle, mut at) = (Vec::new(), own);
    while let Some(edge) = reached.get(&at) {
        cycle.push(*edge);
        at = edge.waiter.owner.txn;
        if at == own {
            break;
        }
    }
    cycle
}
