//! How often something was waited for, and for how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_fabric::env::Env;

/// Waits of one kind, of all transactions of a node.
#[derive(Default)]
pub(crate) struct WaitCounts {
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

// Relaxed throughout: counters.
impl WaitCounts {
    /// A wait begins. It is over when the value returned is dropped.
    pub(crate) fn begin<'w>(&'w self, env: &'w Env) -> CountedWait<'w> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        CountedWait { counts: self, env, begun: env.now() }
    }

    /// How many have begun.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// How long those took that are over, all together.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.wait_ns.load(Ordering::Relaxed))
    }
}

/// A wait: its time counts also if it fails, or its future is dropped.
pub(crate) struct CountedWait<'w> {
    counts: &'w WaitCounts,
    env: &'w Env,
    begun: Duration,
}

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        let waited = self.env.now().saturating_sub(self.begun).as_nanos();
        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
        self.counts.wait_ns.fetch_add(waited, Ordering::Relaxed);
    }
}
