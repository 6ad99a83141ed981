//! Reports of the accesses to ranges: a node sends its counts (`activity.rs`) periodically to the
//! memory nodes that watch their slabs, because a memory node sees no access itself (Hydra §5.3).
//!
//! A report adds the count to a word in each slab of the range, at the slabs' locations at the time
//! of the report. A node that only reads reports nothing: it may not change memory.

use std::sync::Weak;
use std::time::Duration;

use selkie_fabric::{Chain, RemoteAddr, Verb};
use selkie_pool::control::PoolState;

use crate::core::Core;

/// The interval of the reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// Words that a chain adds to, at most: chains of other nodes run between them.
const REPORTED_AT_ONCE: usize = 128;

fn is_watching(state: &PoolState, memory_node: u16) -> bool {
    let reclaim = state.reclaim_of(memory_node);
    state.lives(memory_node) && reclaim.is_some_and(|reclaim| reclaim.is_watching)
}

/// Reports the counts until the engine is gone.
pub(crate) async fn run_activity(core: Weak<Core>) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    loop {
        env.sleep(REPORT_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        if core.memory.coded.is_none() || core.config.reads_only || core.lifecycle.has_failed() {
            return;
        }
        if core.lifecycle.check_alive().is_ok() {
            core.report_activity().await;
        }
    }
}

impl Core {
    /// Adds the counts to the words of the slabs, on the memory nodes that watch their slabs. A
    /// report that fails is not repeated: memory nodes only compare slabs with each other.
    async fn report_activity(&self) {
        let Some(coded) = &self.memory.coded else { return };
        let state = self.pool.state();
        let nodes = state.memory_nodes.len() as u16;
        if !(0..nodes).any(|node| is_watching(&state, node)) {
            return;
        }
        // The map must stay in use: a slab that left the range has no word for it.
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
            for words in words.chunks(REPORTED_AT_ONCE) {
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
