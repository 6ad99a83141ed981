//! How often the ranges of a coded pool are accessed in memory: counted where a page is fetched or
//! goes home, and told now and then to the memory nodes that want to know, which see no access
//! themselves (Hydra §5.3).
//!
//! What is told is added to a word in each slab of the range, at the places where the range lies
//! when it is told. Hits are not counted: they do not concern a memory node. Nor does a node that
//! reads only tell anything: it may change nothing there.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use selkie_fabric::{Chain, RemoteAddr, Verb};
use selkie_pool::control::{MAX_RANGES, PoolState};

use crate::core::Core;

/// How often it is told, at most.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// Words that a chain adds to, at most: others are to get their turn at the memory node.
const TOLD_AT_ONCE: usize = 128;

/// Accesses to each range that nobody was told of yet.
pub(crate) struct Activity(Box<[AtomicU32]>);

impl Activity {
    pub(crate) fn new() -> Self {
        Self((0..MAX_RANGES).map(|_| AtomicU32::new(0)).collect())
    }

    /// Relaxed: a count, and nothing hangs on its order.
    pub(crate) fn note(&self, range: usize) {
        if let Some(own) = self.0.get(range) {
            own.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The ranges that were accessed since this was asked last, and how often.
    fn take(&self) -> Vec<(usize, u32)> {
        let taken = self.0.iter().map(|own| match own.load(Ordering::Relaxed) {
            0 => 0,
            _ => own.swap(0, Ordering::Relaxed),
        });
        taken.enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

fn is_watching(state: &PoolState, memory_node: u16) -> bool {
    let reclaim = state.reclaim_of(memory_node);
    state.lives(memory_node) && reclaim.is_some_and(|reclaim| reclaim.is_watching)
}

/// Tells, until the engine is gone.
pub(crate) async fn run_activity(core: Weak<Core>) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    loop {
        env.sleep(TOLD_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        if core.memory.coded.is_none() || core.config.reads_only || core.lifecycle.has_failed() {
            return;
        }
        if core.lifecycle.check_alive().is_ok() {
            core.tell_activity().await;
        }
    }
}

impl Core {
    /// Tells the memory nodes that want to know how often their slabs were accessed. What is lost
    /// on the way is not told again: it is about what is used more and what less.
    async fn tell_activity(&self) {
        let Some(coded) = &self.memory.coded else { return };
        let state = self.pool.state();
        let nodes = state.memory_nodes.len() as u16;
        if !(0..nodes).any(|node| is_watching(&state, node)) {
            return;
        }
        // A slab that is free, or is another range's, is not to be added to.
        let using = self.memory.placement.using();
        let mut words: Vec<Vec<(RemoteAddr, u64)>> = (0..nodes).map(|_| Vec::new()).collect();
        for (range, count) in coded.activity.take() {
            for (node, at) in self.memory.placement.activity_words(range) {
                if let Some(words) = words.get_mut(node)
                    && is_watching(&state, node as u16)
                {
                    words.push((at, u64::from(count)));
                }
            }
        }
        for (node, words) in words.into_iter().enumerate() {
            for words in words.chunks(TOLD_AT_ONCE) {
                let mut chain = Chain::new();
                words.iter().for_each(|(at, count)| chain.push(Verb::fetch_and_add(*at, *count)));
                if let Err(error) = self.memory.queue_pair(node).post(chain).await {
                    tracing::debug!(node, error = %error.error, "cannot tell how active slabs are");
                    break;
                }
            }
        }
        drop(using);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_is_told_of_once() {
        let activity = Activity::new();
        assert_eq!(activity.take(), []);
        [3, 0, 3, MAX_RANGES - 1, MAX_RANGES].into_iter().for_each(|range| activity.note(range));
        assert_eq!(activity.take(), [(0, 1), (3, 2), (MAX_RANGES - 1, 1)]);
        assert_eq!(activity.take(), []);
    }
}
