//! How far a node's log is kept: from its oldest change that is not home.
//!
//! Pages go home when others want them or their frames are needed, and that may be never. So when the log has grown, those
//! whose oldest change lies far back are evicted, which takes them home; the next access fetches them again. A page in use
//! is tried again a little later: when the log is full nobody gets it to change it any more.

use std::sync::Weak;
use std::time::Duration;

use super::{Log, Lsn};
use crate::GAddr;
use crate::coherence::machine::Event;
use crate::core::Core;

/// How often it is looked whether the log has grown.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often it is looked whether it is where it should be.
const TEND_EVERY: Duration = Duration::from_millis(100);
/// The part of what a log can keep from which on pages are written home.
const GROWN: u64 = 4;
/// The part of what a log can keep that it shall be rid of then, at least.
const RID_OF: u64 = 8;

impl Core {
    /// The oldest change that is not home, or before that; where the log ends if all are.
    fn oldest_unhomed(&self) -> Lsn {
        let Some(log) = &self.log else { return 0 };
        // First: what is recorded from now on is recorded later in the log.
        let end = log.end();
        let frames = self.frames.ids().map(|id| self.frames.get(id).unhomed());
        let oldest = frames.filter(|lsn| *lsn != 0).min().unwrap_or(end);
        // After the frames, which give their pages to these.
        let mut leaving = oldest;
        for shard in self.all_shards() {
            let homing =
                shard.lock().values().map(|active| active.homing).filter(|lsn| *lsn != 0).min();
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

    /// Begins to write pages home whose oldest change is before `lsn`; those that could be.
    fn write_home_before(&self, lsn: Lsn) -> usize {
        let is_old = |addr: &GAddr, unhomed: u64| !addr.is_null() && unhomed != 0 && unhomed < lsn;
        let (mut batches, mut count) = (Vec::new(), 0);
        for id in self.frames.ids() {
            let frame = self.frames.get(id);
            let addr = frame.addr();
            if is_old(&addr, frame.unhomed()) && self.give_up(addr, Event::Evict, &mut batches) {
                count += 1;
            }
        }
        self.post_batches(batches);
        count
    }
}

/// Keeps the log short until the engine is gone.
pub(crate) async fn run_checkpoints(core: Weak<Core>) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    // So many of the parts that it shall be rid of were not enough, as a sink may keep whole files.
    let mut in_vain = 0;
    let mut tended = env.now();
    loop {
        env.sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let Some(log) = &core.log else { return };
        let now = env.now();
        if now.saturating_sub(tended) >= TEND_EVERY {
            tended = now;
            if let Err(error) = log.tend().await {
                tracing::warn!(%error, "the log is not kept where it should be");
            }
        }
        let (kept, capacity) = log.kept();
        if core.failed.get().is_some() || kept <= capacity / GROWN {
            continue;
        }
        let start = log.end() - kept;
        core.write_home_before(start + (1 + in_vain) * (capacity / RID_OF));
        match log.truncate(core.needed_from(log)).await {
            Ok(now) if now > start => in_vain = 0,
            Ok(_) => in_vain = (in_vain + 1).min(RID_OF),
            Err(error) => tracing::warn!(%error, "the log cannot be cut short"),
        }
    }
}
