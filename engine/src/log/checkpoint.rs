//! How far a node's log is kept: from its oldest change that is not home.
//!
//! Pages go home when others want them or their frames are needed, and that may be never. So when
//! the log has grown, those whose oldest change lies far back are written home, and stay here. A
//! page that is being changed is tried again a little later: when the log is full nobody gets it
//! for that any more.

use std::sync::Weak;
use std::time::Duration;

use selkie_wal::Lsn;

use super::state::{FULL, Log};
use crate::GAddr;
use crate::coherence::machine::{Event, Phase};
use crate::core::Core;

/// How often it is looked whether the log has grown.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often it is looked whether it is where it should be.
const MAINTAIN_EVERY: Duration = Duration::from_millis(100);
/// Eighths of what a log can keep from which on pages are written home: the later that is, the
/// fewer times one that is changed all the time goes home, and at a half writers wait
/// ([`FULL`]).
const GROWN: u64 = 3;
/// Bytes from which on they are in any case, somewhat more than a gibibyte: what is kept is to be
/// read and redone when the node dies.
const LONG: u64 = 5 << 28;
/// How long it is waited for pages to get home before the log is cut: what comes later counts the
/// next time.
const HOME_WITHIN: Duration = Duration::from_millis(1);
/// Pages that begin to go home at a time, before others have their turn.
const AT_ONCE: usize = 256;

const _: () = assert!(GROWN * FULL < 8, "pages go home before writers wait");

impl Core {
    /// The oldest change that is not home, or before that; where the log ends if all are.
    fn oldest_unhomed(&self) -> Lsn {
        let Some(log) = &self.log else { return 0 };
        // First: what is recorded from now on is recorded later in the log.
        let end = log.end();
        let frames = self.cache.frames.ids().map(|id| self.cache.frames.get(id).unhomed());
        let oldest = frames.filter(|lsn| *lsn != 0).min().unwrap_or(end);
        // After the frames, which give their pages to these.
        let mut leaving = oldest;
        for shard in self.cache.all_shards() {
            let homing = shard
                .lock()
                .values()
                .map(|active| active.going_home.oldest_change)
                .filter(|lsn| *lsn != 0)
                .min();
            leaving = leaving.min(homing.unwrap_or(leaving));
        }
        leaving.min(end)
    }

    /// From where the log has to be kept.
    fn needed_from(&self, log: &Log) -> Lsn {
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::EarlyTruncate {
            return log.durable();
        }
        self.oldest_unhomed().min(log.durable())
    }

    /// Begins to write pages home whose oldest change is before `lsn`, as far as that can be.
    async fn write_home_before(&self, lsn: Lsn) {
        if let Some(log) = &self.log {
            // What is not durable does not leave.
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

    /// Begins to write a line home if it is at rest and nobody waits for it. A shared copy is home,
    /// even if it was not seen to get there, as when its memory node died: it goes.
    fn begin_write_back(&self, addr: GAddr) {
        self.with_line(addr, |active| {
            if active.line.phase.at_rest() && active.waiters.is_empty() {
                let stays = active.line.phase == Phase::Modified;
                let event = if stays { Event::WriteBack } else { Event::Evict };
                self.run(addr, active, event, None);
            }
        });
    }
}

/// Keeps the log short until the engine is gone.
pub(crate) async fn run_checkpoints(core: Weak<Core>) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    // It shall be rid of a third of that. So many thirds were not enough, as a sink may keep whole
    // files.
    let mut in_vain = 0;
    let mut maintained = env.now();
    loop {
        env.sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let Some(log) = &core.log else { return };
        let now = env.now();
        if now.saturating_sub(maintained) >= MAINTAIN_EVERY {
            maintained = now;
            if let Err(error) = log.maintain().await {
                tracing::warn!(%error, "the log is not kept where it should be");
            }
        }
        let (kept, capacity) = log.kept();
        let grown = (capacity / 8 * GROWN).min(LONG);
        if core.lifecycle.has_failed() || kept <= grown {
            continue;
        }
        let start = log.end() - kept;
        core.write_home_before(start + (1 + in_vain) * (grown / GROWN)).await;
        env.sleep(HOME_WITHIN).await;
        match log.truncate(core.needed_from(log)).await {
            Ok(now) if now > start => in_vain = 0,
            Ok(_) => in_vain = (in_vain + 1).min(GROWN),
            Err(error) => tracing::warn!(%error, "the log cannot be cut short"),
        }
    }
}
