//! The steps of a rebuild in their order: quiesces the lines of header tables that are lost or
//! move, and resumes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use selkie_fabric::FabricError;
use selkie_pool::{ComputeIndex, Rebuild};

use crate::coherence::machine::{Deferred, Event, Message};
use crate::coherence::open_line::OpenLine;
use crate::core::Core;
use crate::{EngineError, GAddr};

impl Core {
    /// Whether a line is quiesced at this node.
    pub(crate) fn is_quiesced(&self, addr: GAddr, open_line: &OpenLine) -> bool {
        open_line.quiesced || self.is_quiesced_at(addr)
    }

    fn is_quiesced_at(&self, addr: GAddr) -> bool {
        // Acquire: pairs with `quiesce`, which takes every shard's lock afterwards.
        self.memory.quiesced.any.load(Ordering::Acquire)
            && self
                .memory
                .placement
                .table_of(addr)
                .is_some_and(|table| self.memory.quiesced.contains(table))
    }

    /// Takes an event of a quiesced line. Results of operations are dropped, and so are messages
    /// except grants. When this node has entered its lines, requests come from nodes that have
    /// resumed already: they are deferred.
    pub(crate) fn run_quiesced(&self, addr: GAddr, open_line: &mut OpenLine, event: Event) {
        match event {
            Event::Completed { .. } => open_line.quiesced = true,
            Event::Received { from, message: Message::Request(request) } => {
                let table = self.memory.placement.table_of(addr);
                // The node may have resumed since the line was found quiesced: then the request is
                // taken when the line is closed.
                if !open_line.quiesced
                    && table.is_some_and(|table| self.memory.quiesced.has_entered(table))
                {
                    open_line.line.deferred.push(Deferred { from, request });
                }
            }
            Event::Received { from, message } => open_line.line.received_at_rest(from, message),
            // Callers try again when the line resumes.
            Event::Want { .. }
            | Event::Evict
            | Event::WriteBack
            | Event::Leave
            | Event::LocalFree
            | Event::Lost { .. } => {}
        }
    }

    /// Quiesces a line whose home is lost, if `error` says so, until the line has another home.
    /// Returns whether it did.
    pub(crate) fn quiesce_line(
        &self,
        addr: GAddr,
        open_line: &mut OpenLine,
        error: &FabricError,
    ) -> bool {
        let FabricError::PeerDead { peer } = error else { return false };
        let home = self.memory.placement.home(addr).map(|home| home.node);
        let Some(memory) = home.filter(|_| peer.is_memory() && self.memory.coded.is_some()) else {
            return false;
        };
        let is_over = self.pool.is_memory_dead(memory)
            && !self.pool.rebuilds().iter().any(|rebuild| usize::from(rebuild.memory) == memory);
        // A home that was not moved gets no other place.
        if is_over && usize::from(peer.index()) == memory {
            return false;
        }
        open_line.quiesced = true;
        self.memory.quiesced.suspect(usize::from(peer.index()));
        true
    }

    /// Takes the next step of the current rebuild. A step that fails is repeated by the next call.
    pub(crate) async fn advance_rebuilds(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.memory.coded.is_none() {
            return Ok(());
        }
        self.declare_suspects().await?;
        let step = self.advance_rebuild().await;
        // Perhaps no other verb finds this memory node dead.
        if let Err(EngineError::Fabric(FabricError::PeerDead { peer })) = &step
            && peer.is_memory()
        {
            self.memory.quiesced.suspect(usize::from(peer.index()));
        }
        step
    }

    async fn advance_rebuild(self: &Arc<Self>) -> Result<(), EngineError> {
        let rebuilds = self.pool.rebuilds();
        for number in self.memory.quiesced.rebuilds() {
            if !rebuilds.iter().any(|rebuild| rebuild.number == number) {
                self.resume_lines(number);
            }
        }
        if let Some(rebuild) = rebuilds.into_iter().next() {
            let (me, number) = (self.index().get(), rebuild.number);
            if !rebuild.quiet.contains(&me) || !self.memory.quiesced.rebuilds().contains(&number) {
                self.quiesce(&rebuild).await?;
            } else if !rebuild.moved {
                self.move_if_due(&rebuild).await?;
            } else if !rebuild.entered.contains(&me) {
                self.enter_lines(&rebuild).await?;
            } else if rebuild.doubtful.is_empty() && rebuild.abandoned.is_empty() {
                self.pool.end_rebuild(number).await?;
            } else if self.pool.claim_doubts(number, self.index()).await? {
                // Lines that are marked as lost for good are in doubt no more.
                match rebuild.abandoned.is_empty() {
                    true => self.mark_unclaimed(&rebuild).await?,
                    false => self.mark_abandoned(&rebuild).await?,
                }
            }
        }
        Ok(())
    }

    /// Quiesces all lines whose headers move, and waits for outstanding operations and messages.
    async fn quiesce(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let tables = self.begin_to_quiesce(rebuild);
        // A write-back that misses a memory node is over once it is known whether that is dead. If
        // it lives, this node ends: others may have copies of pages that are not home, and their
        // words are to be made anew as those of a node that died.
        let is_over = || !self.has_under_way(&tables) && self.memory.quiesced.unlatched.are_over();
        self.wait_until(|| is_over() || self.memory.quiesced.has_suspects()).await?;
        if self.memory.quiesced.has_suspects() {
            return Ok(());
        }
        // Messages to nodes that have left the pool need not arrive.
        let takes_in = |to: usize| self.pool.is_member(ComputeIndex::new(to as u16));
        for mailbox in self.messenger.mailboxes() {
            let mark = mailbox.mark();
            self.wait_until(|| mailbox.is_through(&mark, takes_in)).await?;
        }
        self.lifecycle.check_failed()?;
        self.pool.note_quiet(rebuild.number, self.index()).await?;
        let memory = rebuild.memory;
        tracing::info!(node = %self.endpoint.id(), memory, tables = tables.len(), "rebuild: quiet");
        Ok(())
    }

    /// Quiesces the lines whose headers had moved when this node came into the pool, before it has
    /// a line. It may be the only one that is left to end the rebuild.
    pub(crate) fn quiesce_what_has_moved(&self) {
        if self.memory.coded.is_some() {
            for rebuild in self.pool.rebuilds().iter().filter(|rebuild| rebuild.moved) {
                self.begin_to_quiesce(rebuild);
            }
        }
    }

    /// Quiesces all lines whose headers move. Operations may be outstanding. Returns their tables.
    fn begin_to_quiesce(&self, rebuild: &Rebuild) -> BTreeSet<(usize, usize)> {
        let tables = self.pool.state().tables_of(rebuild);
        self.memory.quiesced.tables.write().insert(rebuild.number, tables.clone());
        self.memory.quiesced.any.store(true, Ordering::Release);
        tables
    }

    /// Whether an operation is outstanding on a line of these tables. Takes every shard's lock, so
    /// that it sees every operation that was posted before the node quiesced.
    fn has_under_way(&self, tables: &BTreeSet<(usize, usize)>) -> bool {
        let mut found = false;
        for shard in self.cache.all_shards() {
            found |= shard.lock().iter().any(|(addr, open_line)| {
                open_line.line.phase.operation_outstanding()
                    && !open_line.quiesced
                    && self.is_in(GAddr::from_u64(*addr), tables)
            });
        }
        found
    }

    pub(super) fn is_in(&self, addr: GAddr, tables: &BTreeSet<(usize, usize)>) -> bool {
        self.memory.placement.table_of(addr).is_some_and(|table| tables.contains(&table))
    }

    fn resume_lines(&self, number: u64) {
        let Some(tables) = self.memory.quiesced.end(number) else { return };
        self.allocator.search.marks_lost.store(true, Ordering::Release);
        let mut lines: Vec<GAddr> = Vec::new();
        for shard in self.cache.all_shards() {
            lines.extend(shard.lock().keys().map(|addr| GAddr::from_u64(*addr)));
        }
        for addr in lines.into_iter().filter(|addr| self.is_in(*addr, &tables)) {
            self.with_line(addr, |open_line| {
                // Other nodes may have sent requests already.
                self.run(addr, open_line, Event::LocalFree, None);
                open_line.waiters.signal_all(false);
            });
        }
        tracing::info!(node = %self.endpoint.id(), number, "rebuild: over");
    }
}
