//! A log in memory while it is written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_pool::control::PoolState;
use selkie_wal::ring::{RingHead, ring_place};
use selkie_wal::{FIRST_LSN, LogError, LogOwner, Lsn, Sink, Written};

use super::rings::{AT_ONCE, failed};
use crate::core::Core;
use crate::error::EngineError;
use crate::join::all_of;

/// A log that is being written.
pub(super) struct MemorySink {
    core: Weak<Core>,
    owner: LogOwner,
    ring_bytes: u64,
    start: AtomicU64,
    /// From where it was begun anew.
    anew: AtomicU64,
    /// Heads that were written.
    heads: AtomicU64,
    /// The memory nodes that have it, all of it.
    copies: Mutex<Vec<usize>>,
    /// Those that died while they had it.
    gone: Mutex<Vec<usize>>,
    /// The pool's state when the copies were where they should be: while that is so they are.
    settled: Mutex<Option<Arc<PoolState>>>,
}

impl MemorySink {
    /// Begins a log at r + 1 memory nodes.
    pub(super) async fn begin(core: &Core, owner: LogOwner) -> Result<Self, LogError> {
        let sink = Self {
            core: core.this.clone(),
            owner,
            ring_bytes: core.ring_bytes(),
            start: AtomicU64::new(FIRST_LSN),
            anew: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            copies: Mutex::default(),
            gone: Mutex::default(),
            settled: Mutex::default(),
        };
        sink.complete(core, FIRST_LSN).await?;
        Ok(sink)
    }

    fn kept(&self) -> RingHead {
        let (start, anew) = (&self.start, &self.anew);
        RingHead { start: start.load(Ordering::Relaxed), anew: anew.load(Ordering::Relaxed) }
    }

    /// Sees to it that r + 1 memory nodes that are to stay have the log up to `end`, or as many as
    /// there are.
    async fn complete(&self, core: &Core, end: Lsn) -> Result<(), LogError> {
        let state = core.pool.state();
        let is_settled = |settled: &Arc<PoolState>| Arc::ptr_eq(settled, &state);
        if self.settled.lock().as_ref().is_some_and(is_settled) {
            return Ok(());
        }
        let wanted = core.pool.descriptor().coding.parity() + 1;
        let (mut living, gone) = (core.living_memory(), self.gone.lock().clone());
        living.retain(|node| !gone.contains(node));
        let mut staying = core.staying_memory();
        staying.retain(|node| !gone.contains(node));
        let copies: Vec<usize> = {
            let mut copies = self.copies.lock();
            copies.retain(|node| living.contains(node));
            copies.clone()
        };
        let good = copies.iter().filter(|node| staying.contains(node)).count();
        if good >= wanted.min(staying.len()) && !copies.is_empty() {
            self.copies.lock().retain(|node| good == 0 || staying.contains(node));
            *self.settled.lock() = Some(state);
            return Ok(());
        }
        if copies.is_empty() && end > FIRST_LSN {
            tracing::error!(end, "no copy of the log is left: it begins anew");
            self.start.fetch_max(end, Ordering::Relaxed);
            self.anew.store(end, Ordering::Relaxed);
        }
        let first = usize::from(self.owner.node) % staying.len().max(1);
        let others = staying.iter().cycle().skip(first).take(staying.len());
        let others = others.filter(|node| !copies.contains(node)).take(wanted - good);
        for memory in others {
            let failed = |error| failed("begin", ring_place(self.owner, *memory), error);
            if let Some(from) = copies.first() {
                self.copy(core, (*from, *memory), end).await.map_err(failed)?;
            }
            // A truncation meanwhile does not know this copy, whose head would lead to records that
            // are overwritten. One that is over has moved `kept`; one that is not looks for new
            // copies itself.
            loop {
                let said = self.kept();
                for number in 0..2 {
                    let head = (said, number);
                    core.write_head(self.owner, *memory, head).await.map_err(failed)?;
                }
                let mut copies = self.copies.lock();
                if said == self.kept() {
                    copies.push(*memory);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Copies what is kept from one ring to another.
    async fn copy(
        &self,
        core: &Core,
        (from, to): (usize, usize),
        end: Lsn,
    ) -> Result<(), EngineError> {
        let mut at = self.start.load(Ordering::Relaxed);
        while at < end {
            let some = AT_ONCE.min(end - at);
            let bytes = core.read_ring(self.owner, from, at, some).await?;
            core.write_ring(self.owner, to, at, &bytes).await?;
            at += some;
        }
        Ok(())
    }

    /// Does the same at all copies; those that died are copies no more.
    async fn at_all<F: Future<Output = Result<(), EngineError>>>(
        &self,
        core: &Core,
        what: &'static str,
        work: impl Fn(usize) -> F,
    ) -> Result<(), LogError> {
        let copies = self.copies.lock().clone();
        self.at_these(core, copies, what, work).await
    }

    /// Does the same at these copies; those that died are copies no more.
    async fn at_these<F: Future<Output = Result<(), EngineError>>>(
        &self,
        core: &Core,
        copies: Vec<usize>,
        what: &'static str,
        work: impl Fn(usize) -> F,
    ) -> Result<(), LogError> {
        let all = all_of(copies.iter().map(|memory| work(*memory))).await;
        let last = copies.last().copied().or_else(|| self.gone.lock().last().copied());
        for (memory, done) in copies.into_iter().zip(all) {
            let Err(error) = done else { continue };
            let place = ring_place(self.owner, memory);
            let EngineError::Fabric(lost) = error else { return Err(failed(what, place, error)) };
            // A copy that cannot be reached, and is not dead, would be an old one.
            core.confirm_memory_death(lost).await.map_err(|error| failed(what, place, error))?;
            self.copies.lock().retain(|own| *own != memory);
            self.gone.lock().push(memory);
            *self.settled.lock() = None;
        }
        if self.copies.lock().is_empty() {
            let memory = last.unwrap_or(0);
            let why = format!("no copy is left: peer mem{memory} is dead");
            return Err(failed(what, ring_place(self.owner, memory), why));
        }
        Ok(())
    }

    async fn write(&self, at: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        let gone = || failed("write", ring_place(self.owner, 0), EngineError::Closed);
        let core = self.core.upgrade().ok_or_else(gone)?;
        let end = at + bytes.len() as u64;
        let kept = end - self.start.load(Ordering::Relaxed);
        if kept > self.ring_bytes {
            let what =
                format!("{kept} bytes are to be kept, and there is room for {}", self.ring_bytes);
            return Err(failed("write", ring_place(self.owner, 0), what));
        }
        self.complete(&core, at).await?;
        let core = &*core;
        let write = |memory| core.write_ring(self.owner, memory, at, bytes);
        self.at_all(core, "write", write).await?;
        // A copy that replaces a lost one gets these bytes as well.
        self.complete(core, end).await
    }
}

impl Sink for MemorySink {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let result = self.write(at, &bytes).await;
            Written { bytes, result }
        })
    }

    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            let Some(core) = self.core.upgrade() else { return Ok(lsn) };
            let core = &*core;
            let number = self.heads.fetch_add(1, Ordering::Relaxed);
            let before = self.kept();
            // All that was changed before it was begun anew is home.
            let anew = if lsn >= before.anew { 0 } else { before.anew };
            let kept = RingHead { start: lsn.max(before.start), anew };
            let say = |memory| core.write_head(self.owner, memory, (kept, number));
            let mut told = Vec::new();
            loop {
                let mut new = self.copies.lock().clone();
                new.retain(|memory| !told.contains(memory));
                if new.is_empty() && !told.is_empty() {
                    return Ok(kept.start);
                }
                told.extend(&new);
                self.at_these(core, new, "cut", say).await?;
                // Before the next look: a copy that is made later has this start.
                self.start.fetch_max(kept.start, Ordering::Relaxed);
                let (old, new) = (before.anew, anew);
                let _ = self.anew.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
            }
        })
    }

    fn maintain(&self, end: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            match self.core.upgrade() {
                Some(core) => self.complete(&core, end).await,
                None => Ok(()),
            }
        })
    }

    fn capacity(&self) -> u64 {
        self.ring_bytes
    }
}
