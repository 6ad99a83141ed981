//! Housekeeping of a node, every tick: overdue waits, snapshot barriers, reclamation, snapshots.

use std::sync::Weak;
use std::time::Duration;

use crate::core::Core;

/// Ends overdue waits and snapshot barriers that are over, advances reclamation, and
/// publishes which snapshots are active, every tick.
pub(crate) async fn run_housekeeping(core: Weak<Core>, tick: Duration) {
    let Some(env) = core.upgrade().map(|c| c.env.clone()) else { return };
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        core.cache.expire_waits(core.env.now(), core.config.request_timeout);
        core.end_snapshot_barrier();
        if let Some(log) = &core.log {
            log.want();
        }
        // Others recover from a node that has failed: its epochs, its free lines and its log are
        // theirs.
        if core.lifecycle.is_closed() || core.lifecycle.has_failed() {
            continue;
        }
        // A memory node that cannot be reached stops reclamation until it is known what became of
        // it.
        if let Err(error) = core.move_epochs().await {
            core.doubt_after(&error);
        }
        if let Err(error) = core.tend_snapshots().await {
            core.doubt_after(&error);
        }
    }
}
