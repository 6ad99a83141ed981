//! Checkpoints: how far a node's log is kept, which is from its oldest change that is not home.
//!
//! A page is written home when another node wants it or its frame is needed, and that may be never.
//! So when the log has grown, pages with old changes are written home and stay cached. A page that
//! is latched is tried again later; when the log is full, writers wait, so that no page stays
//! latched for long.

use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_pool::WaitNotice;
use selkie_wal::{LogError, Lsn};

use super::state::{FULL, Log};
use crate::GAddr;
use crate::coherence::machine::{Event, Phase};
use crate::core::Core;
use crate::join::either;

/// The interval of checks whether the log has grown. One that is full is looked at at once.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The interval of checks whether all copies of the log exist.
const MAINTAIN_EVERY: Duration = Duration::from_millis(100);
/// Eighths of the log's capacity at which pages are written home. A higher limit writes a page that
/// changes all the time home less often; at a half writers wait ([`FULL`]).
const GROWN: u64 = 3;
/// Bytes at which pages are written home in any case, somewhat more than a gibibyte: when the node
/// dies, all of the kept log is read and redone.
const LONG: u64 = 5 << 28;
/// The wait for pages to be written home before the log is truncated. Pages that take longer count
/// for the next checkpoint.
const HOME_WITHIN: Duration = Duration::from_millis(1);
/// Pages whose write-back begins before the task yields.
const AT_ONCE: usize = 256;

const _: () = assert!(GROWN * FULL < 8, "pages go home before writers wait");

impl Core {
    /// A lower bound of the oldest change that is not home; the end of the log if all are home.
    fn oldest_unhomed(&self) -> Lsn {
        let Some(log) = &self.log else { return 0 };
        // First: changes recorded from now on have a higher LSN.
        let end = log.end();
        let frames = self.cache.frames.ids().map(|id| self.cache.frames.get(id).unhomed());
        let oldest = frames.filter(|lsn| *lsn != 0).min().unwrap_or(end);
        // After the frames: a page moves from its frame to one beyond the cache, and to a line.
        let mut leaving = oldest.min(self.cache.frames.oldest_beyond_cache().unwrap_or(oldest));
        for shard in self.cache.all_shards() {
            let homing = shard
                .lock()
                .values()
                .map(|open| open.going_home.oldest_change)
                .filter(|lsn| *lsn != 0)
                .min();
            leaving = leaving.min(homing.unwrap_or(leaving));
        }
        leaving.min(end)
    }

    /// The log must be kept from here.
    fn needed_from(&self, log: &Log) -> Lsn {
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::EarlyTruncate {
            return log.durable();
        }
        self.oldest_unhomed().min(log.durable())
    }

    /// Begins to write home the pages whose oldest change is before `lsn`, except those in use.
    async fn write_home_before(&self, lsn: Lsn) {
        if let Some(log) = &self.log {
            // A change that is not durable does not leave.
            log.want();
        }
        let mut begun = 0;
        for id in self.cache.frames.ids() {
            let frame = self.cache.frames.get(id);
            let (addr, unhomed) = (frame.addr(), frame.unhomed());
            if addr.is_null() || unhomed == 0 || unhomed >= lsn {
                continue;
            }
            self.begin_write_back(addr);
            begun += 1;
            if begun % AT_ONCE == 0 {
                self.env.yield_now().await;
            }
        }
    }

    /// Begins to write a line home if it is at rest and no caller waits for it. A shared copy is
    /// home, even if that was not confirmed, as when its memory node died: it is evicted.
    fn begin_write_back(&self, addr: GAddr) {
        self.with_line(addr, |open| {
            if open.line.phase.at_rest() && open.waiters.is_empty() {
                let stays = open.line.phase == Phase::Modified;
                let event = if stays { Event::WriteBack } else { Event::Evict };
                self.run(addr, open, event, None);
            }
        });
    }
}

/// Keeps the log short until the engine is gone.
pub(crate) async fn run_checkpoints(core: Weak<Core>) {
    let Some((env, filled)) = core
        .upgrade()
        .and_then(|core| Some((core.env.clone(), Arc::clone(core.log.as_ref()?.fillings.bell()))))
    else {
        return;
    };
    // A checkpoint truncates a third of the limit, and one more third for each checkpoint in a row
    // that freed nothing, because a sink may free only whole files.
    let (mut in_vain, mut uncut, mut misplaced) = (0, None, None);
    let (mut maintained, mut seen) = (env.now(), filled.count());
    loop {
        let is_filled = async {
            filled.wait_past(seen).await;
        };
        either(is_filled, env.sleep(LOOK_EVERY)).await;
        seen = filled.count();
        let Some(core) = core.upgrade() else { return };
        let Some(log) = &core.log else { return };
        if core.lifecycle.has_failed() {
            // Others read the log: it gets no more copies, and is not cut short.
            return;
        }
        let now = env.now();
        if now.saturating_sub(maintained) >= MAINTAIN_EVERY {
            maintained = now;
            match log.maintain().await {
                Ok(()) => misplaced = None,
                Err(error) => {
                    tell_of(&mut misplaced, now, &error, "is not kept where it should be")
                }
            }
        }
        let (kept, capacity) = log.kept();
        let grown = (capacity / 8 * GROWN).min(LONG);
        // Where callers wait for room, most of the log.
        let most = if log.turns.lock().is_waited_for() { grown / GROWN } else { grown };
        if kept <= most {
            continue;
        }
        let start = log.start();
        let part = start + (1 + in_vain) * (grown / GROWN);
        // A file that ends behind that is free when all of it is home, or never.
        let upto = if in_vain < GROWN { part } else { log.end() };
        core.write_home_before(upto).await;
        env.sleep(HOME_WITHIN).await;
        let needed_from = core.needed_from(log);
        if core.recovery.doubts.has_memory() {
            // Asked behind the pages: one that did not get home has left a doubt before it was gone
            // from its line. Then its changes may be here alone.
            continue;
        }
        match log.truncate(needed_from).await {
            Ok(now) => {
                in_vain = if now > start { 0 } else { (in_vain + 1).min(GROWN) };
                uncut = None;
            }
            Err(error) => tell_of(&mut uncut, env.now(), &error, "cannot be cut short"),
        }
    }
}

/// Tells at once of what goes wrong in each round, and then less often.
fn tell_of(notice: &mut Option<WaitNotice>, now: Duration, error: &LogError, what: &str) {
    match notice {
        None => {
            tracing::warn!(%error, "the log {what}");
            *notice = Some(WaitNotice::new(now));
        }
        Some(notice) => {
            if let Some(waited) = notice.due(now) {
                tracing::warn!(%error, "the log {what}, for {} s now", waited.as_secs());
            }
        }
    }
}
