//! Making the log durable: a caller that waits writes the records that have gathered, and a task
//! writes the rest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use selkie_fabric::env::Env;
use selkie_wal::{LogError, LogOwner, LogStore, Lsn};

use super::destination::LogTo;
use super::memory::MemoryLogs;
use super::state::{Log, Turn};
use crate::core::Core;
use crate::error::EngineError;
use crate::join::either;

/// The interval between attempts to write to a sink that has failed.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Name under which a panic in a write of the log is reported.
const WRITE: &str = "log";

/// Writes the waiting records to the sink, in the caller's turn.
async fn write(core: &Weak<Core>, log: &Log, mut turn: Turn<'_>, env: &Env) {
    let (at, mut bytes) = turn.take();
    let end = at + bytes.len() as u64;
    // Another turn may have written all of it.
    while !bytes.is_empty() {
        // Other nodes may recover from this node if it has failed: records that it adds now would
        // come too late. A dropped engine has not failed.
        let has_failed = || core.upgrade().is_some_and(|core| core.lifecycle.has_failed());
        let Some(sink) = log.sink.get().filter(|_| !has_failed()) else { return turn.give_back() };
        let written = sink.append(at, bytes).await;
        bytes = written.bytes;
        match written.result {
            Ok(()) => break,
            // Why the node ended says more.
            Err(_) if has_failed() => return turn.give_back(),
            // Nor does it say anything to a user who has dropped the engine.
            Err(_) if core.strong_count() == 0 => {}
            Err(error) => {
                let bound =
                    core.upgrade().map_or(Duration::ZERO, |core| core.config.request_timeout);
                log.fail(error, env.now(), bound);
            }
        }
        if at + bytes.len() as u64 != end {
            // The sink has lost the bytes: they cannot become durable any more.
            let lost = std::io::Error::other("what was to be written is gone");
            let error = EngineError::Log(LogError::new("write", "the log", lost));
            return core.upgrade().map_or((), |core| core.end_with(error));
        }
        env.sleep(RETRY_AFTER).await;
    }
    log.recover();
    bytes.clear();
    *log.spare.lock() = bytes;
    let lines = log.advance(end, turn);
    if let Some(core) = core.upgrade() {
        lines.into_iter().for_each(|addr| core.notify(addr));
    }
}

/// Writes the records that no caller waits for, until the engine is gone and all are durable.
pub(crate) async fn run_log(core: Weak<Core>, log: Arc<Log>, env: Env) {
    let mut seen = 0;
    loop {
        let moved = log.moved.count();
        if log.has_more() {
            match log.turn() {
                Some(turn) => write(&core, &log, turn, &env).await,
                None if log.is_broken() => return,
                None => {
                    log.moved.wait_past(moved).await;
                }
            }
            continue;
        }
        // Records that no caller waits for may be left when the last handle is dropped.
        let Some(last) = core.upgrade().map(|core| core.lifecycle.stop_bell().clone()) else {
            return;
        };
        let wanted = async {
            log.wanted.wait_past(seen).await;
        };
        let ends = async {
            last.wait_past(0).await;
        };
        either(wanted, ends).await;
        seen = log.wanted.count();
    }
}

impl Core {
    /// Waits until the log is durable up to `lsn`, and until it is sure that no node had declared
    /// this node dead before that: such a node reads the log. The first waiter writes the records.
    ///
    /// # Errors
    /// After the request timeout: [`EngineError::Log`] if the sink fails, `LogTimeout` if not; the
    /// log may become durable later. The node's error as soon as the node has failed.
    pub(crate) async fn until_durable(&self, log: &Arc<Log>, lsn: Lsn) -> Result<(), EngineError> {
        let started = self.env.now();
        loop {
            let seen = log.moved.count();
            if log.durable() >= lsn {
                return self.until_member().await;
            }
            // Whether the rest becomes durable a node that has failed cannot tell.
            self.lifecycle.check_failed()?;
            self.write_log(log);
            if log.durable() < lsn {
                log.wait_past(&self.env, seen, started, self.config.request_timeout).await?;
            }
        }
    }

    /// Begins to write the waiting records, unless another caller is writing. With a sink that does
    /// not wait the write is over on return.
    pub(crate) fn write_log(&self, log: &Arc<Log>) {
        let Some(turn) = log.turn() else { return };
        std::mem::forget(turn);
        let (core, own, env) = (self.this.clone(), Arc::clone(log), self.env.clone());
        let mut run = Box::pin(async move {
            let turn = Turn::of(&own);
            write(&core, &own, turn, &env).await;
        });
        let mut context = Context::from_waker(Waker::noop());
        // In the caller's task, which is not one of this engine.
        let first = AssertUnwindSafe(|| run.as_mut().poll(&mut context));
        match catch_unwind(first) {
            Ok(Poll::Ready(())) => {}
            Ok(Poll::Pending) => drop(self.spawn(WRITE, run)),
            Err(panic) => self.end_and_report(WRITE, panic),
        }
    }

    /// Opens the log of this node, which is in the pool.
    pub(crate) async fn open_log(&self) -> Result<(), EngineError> {
        let (Some(log), Some(store)) = (&self.log, self.log_store()) else { return Ok(()) };
        let owner = self.log_of(self.index().get());
        let sink = store.create(owner).await.map_err(EngineError::Log)?;
        log.open(sink, owner.format());
        // Before this node changes a page.
        self.mark_snapshot_barrier(&self.pool.state());
        // Until then it counts as a node that held no page.
        self.pool.note_log(self.index(), self.own_incarnation()).await?;
        Ok(())
    }

    /// The store of this node's log, and of the logs of others.
    pub(crate) fn log_store(&self) -> Option<Arc<dyn LogStore>> {
        match self.config.log.as_ref()? {
            LogTo::Store(store) => Some(Arc::clone(store)),
            LogTo::Memory => Some(Arc::new(MemoryLogs::new(self.this.clone()))),
        }
    }

    /// The log of the last node that had this index.
    ///
    /// # Panics
    /// If no node had it.
    pub(super) fn log_of(&self, node: u16) -> LogOwner {
        let state = self.pool.state();
        let Some(incarnation) = state.incarnations.get(&node).copied() else {
            panic!("compute index {node} never had a node, so it has no log");
        };
        LogOwner { pool: state.id, node, incarnation, line_bytes: self.cache.gcl_bytes() as u32 }
    }
}
