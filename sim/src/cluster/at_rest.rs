//! What an observer sees in memory when nothing is under way: latch words and leased lines.

use std::collections::BTreeSet;

use selkie_engine::Engine;
use selkie_fabric::{Buf, Chain, PeerId, RemoteAddr, Verb};
use selkie_pool::layout;

use super::nodes::SimCluster;
use crate::error::SimError;

impl SimCluster {
    /// Stops the compute nodes and checks that nothing is left: every latch word free, every frame
    /// free, every leased line accounted for (`live` pages are in use).
    ///
    /// # Errors
    /// What was left, or what stopping reports.
    pub async fn close_and_check(&self, live: u64) -> Result<(), SimError> {
        self.check_lines(live).await?;
        self.close(&[]).await?;
        self.check_words(&BTreeSet::new()).await
    }

    async fn read(&self, peer: PeerId, at: RemoteAddr, bytes: usize) -> Result<Vec<u64>, SimError> {
        let queue_pair = self.observer.connect(peer)?;
        let done = queue_pair.post(Chain::from([Verb::read(at, Buf::zeroed(bytes))])).await;
        let done = done.map_err(|error| error.error)?;
        let words = done.buf(0).map(|buf| buf.words().to_vec());
        let broken =
            || SimError::Broken(format!("a read of {bytes} bytes at {peer} is incomplete"));
        words.filter(|words| words.len() == bytes.div_ceil(8)).ok_or_else(broken)
    }

    async fn read_word(&self, peer: PeerId, at: RemoteAddr) -> Result<u64, SimError> {
        let broken = || SimError::Broken(format!("a read of a word at {peer} is empty"));
        self.read(peer, at, 8).await?.first().copied().ok_or_else(broken)
    }

    /// Checks that every latch word is free, but those of the pages (global addresses) in `lost`.
    pub(crate) async fn check_words(&self, lost: &BTreeSet<u64>) -> Result<(), SimError> {
        let header_words = layout::HEADER_BYTES as usize / 8;
        for table in self.header_tables()? {
            let bytes = table.headers as usize * layout::HEADER_BYTES as usize;
            let headers = self.read(table.peer, table.at, bytes).await?;
            let words = headers.iter().step_by(header_words).enumerate();
            for (header, word) in words.filter(|(_, word)| **word != 0) {
                let addr = table.first + header as u64 * table.step;
                if !lost.contains(&addr) {
                    return Err(SimError::Broken(format!(
                        "at rest, the latch word of page {addr:#x} at {} is {word:#x}",
                        table.peer
                    )));
                }
            }
        }
        Ok(())
    }

    /// The header tables in use.
    fn header_tables(&self) -> Result<Vec<HeaderTable>, SimError> {
        let (descriptor, state) = (self.pool.descriptor(), self.pool.state());
        let geometry = descriptor.geometry();
        let gcl_bytes = geometry.gcl_bytes() as u64;
        let nodes = descriptor.memory_nodes.iter();
        if descriptor.coding.is_plain() {
            // The first range of each memory node, then the second, and so on.
            let mut tables: Vec<(u32, HeaderTable)> = nodes
                .flat_map(|node| (0..node.ranges).map(move |slab| (slab, node)))
                .map(|(slab, node)| {
                    let at = RemoteAddr::new(node.region, geometry.header_offset(slab, 0));
                    let headers = geometry.gcls_per_range();
                    (slab, HeaderTable { peer: node.peer, at, headers, first: 0, step: gcl_bytes })
                })
                .collect();
            tables.sort_by_key(|(slab, _)| *slab);
            let numbered = (0..).zip(tables);
            return Ok(numbered
                .map(|(range, (_, table))| HeaderTable {
                    first: range * geometry.range_bytes(),
                    ..table
                })
                .collect());
        }
        let mut tables = Vec::new();
        for (range, place) in (0..).zip(&state.ranges) {
            let count = place.slabs.len();
            for position in 0..place.homes.len() {
                let Some((slab, on)) = place.home_of(position) else { continue };
                let Some(node) = state.memory_node(slab.node) else { continue };
                if self.pool.is_memory_dead(usize::from(slab.node)) {
                    return Err(SimError::Broken(format!(
                        "the headers of position {position} of range {range} are on {}, which is dead",
                        node.peer
                    )));
                }
                tables.push(HeaderTable {
                    peer: node.peer,
                    at: RemoteAddr::new(node.region, geometry.table_offset(slab.slab, on)),
                    headers: geometry.headers_at(position),
                    first: range * geometry.range_bytes() + position as u64 * gcl_bytes,
                    step: count as u64 * gcl_bytes,
                });
            }
        }
        Ok(tables)
    }

    /// Checks that every leased line is live or waits at an engine for allocation. Lines that were
    /// being leased when a memory node was lost may be leaked.
    pub(crate) async fn check_lines(&self, live: u64) -> Result<(), SimError> {
        let (leased, any_lost) = self.leased_lines().await?;
        let unused = |engine: &Engine| {
            let (fresh, free, hold) = engine.unused_lines();
            fresh + free + hold
        };
        let unused: u64 = self.engines.iter().map(unused).sum();
        // Two lines are the null address and the superblock.
        let expected = leased.saturating_sub(2);
        let known = unused + live;
        let leaked = expected.checked_sub(known);
        if leaked.is_none_or(|lines| lines > 0 && !any_lost || lines % layout::EXTENT_GCLS != 0) {
            return Err(SimError::Broken(format!(
                "of {expected} leased lines {unused} are unused and {live} live"
            )));
        }
        Ok(())
    }

    /// Lines that are leased to compute nodes, and whether any memory node is lost.
    async fn leased_lines(&self) -> Result<(u64, bool), SimError> {
        let (descriptor, state) = (self.pool.descriptor(), self.pool.state());
        let geometry = descriptor.geometry();
        let lost = |node: usize| self.pool.is_memory_dead(node);
        let mut leased = 0;
        if descriptor.coding.is_plain() {
            for node in &descriptor.memory_nodes {
                let at = RemoteAddr::new(node.region, layout::EXTENTS_LEASED_AT);
                let counter = self.read_word(node.peer, at).await?;
                leased += counter.min(geometry.extents_per_node(node.ranges));
            }
        }
        for place in &state.ranges {
            let mut most = 0;
            for slab in place.slabs.iter().take(descriptor.coding.parity() + 1) {
                let node = state.memory_node(slab.node);
                let Some(node) = node.filter(|_| !lost(usize::from(slab.node))) else { continue };
                let at = RemoteAddr::new(node.region, geometry.leased_offset(slab.slab));
                let counter = self.read_word(node.peer, at).await?;
                most = most.max(counter);
            }
            leased += most.min(geometry.extents_per_range());
        }
        let any_lost = (0..state.memory_nodes.len()).any(lost);
        Ok((leased * layout::EXTENT_GCLS, any_lost))
    }
}

/// A header table in use.
struct HeaderTable {
    peer: PeerId,
    at: RemoteAddr,
    headers: u64,
    /// Global address of the page of the first header, and from one to the next.
    first: u64,
    step: u64,
}
