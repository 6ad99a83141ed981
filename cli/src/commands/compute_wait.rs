//! The wait of a command for what compute nodes do in a pool: none may be there to do it.

use std::time::Duration;

use crate::support::stderr::complain;
use selkie::pool::WaitNotice;
use selkie::pool::control::PoolState;
use selkie::shared::{Place, SharedPoolError};

/// How long a command waits for a compute node.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long compute nodes may be at it without getting on, if that takes next to no bytes, and how
/// many bytes a second they move at least.
const STANDSTILL: Duration = Duration::from_secs(300);
const SLOWEST: u64 = 1 << 20;

/// Since when no compute node is in a pool, or those that are have not got on.
pub(super) struct ComputeWait<'a> {
    pool: &'a Place,
    alone_since: Option<Duration>,
    /// What is left, and since when no less.
    left: Option<(usize, Duration)>,
    notice: Option<WaitNotice>,
}

impl<'a> ComputeWait<'a> {
    /// In that pool, one may be there.
    pub(super) fn new(pool: &'a Place) -> Self {
        Self { pool, alone_since: None, left: None, notice: None }
    }

    /// Looks at the pool at this time, where so much is left to do. Says once that no compute node
    /// is there, each time that the last one has left, and now and then that those that are there
    /// do not get on. `what` is not done by then.
    ///
    /// # Errors
    /// [`SharedPoolError::NoComputeNode`] if none has been there for a minute,
    /// [`SharedPoolError::NoProgress`] if they have not got on for longer than a slab takes.
    pub(super) fn look(
        &mut self,
        state: &PoolState,
        now: Duration,
        left: usize,
        what: impl FnOnce() -> String,
    ) -> Result<(), SharedPoolError> {
        if !state.compute_nodes.is_empty() {
            self.alone_since = None;
            return self.look_on(now, left, bound(state), what);
        }
        self.left = None;
        let Some(since) = self.alone_since else {
            self.alone_since = Some(now);
            let (pool, bound) = (self.pool, PATIENCE.as_secs());
            complain!(
                "pool {pool}: this takes a compute node, and none is in the pool: it waits {bound} s for one"
            );
            return Ok(());
        };
        if now - since < PATIENCE {
            return Ok(());
        }
        let (place, waited_s) = (self.pool.to_string(), PATIENCE.as_secs());
        Err(SharedPoolError::NoComputeNode { place, waited_s, what: what() })
    }

    /// Looks whether the compute nodes get on.
    fn look_on(
        &mut self,
        now: Duration,
        left: usize,
        bound: Duration,
        what: impl FnOnce() -> String,
    ) -> Result<(), SharedPoolError> {
        let (before, since) = self.left.get_or_insert((left, now));
        if left < *before {
            (*before, *since) = (left, now);
        }
        let waited = now.saturating_sub(*since);
        if waited >= bound {
            let (place, waited_s) = (self.pool.to_string(), waited.as_secs());
            return Err(SharedPoolError::NoProgress { place, waited_s, what: what() });
        }
        let notice = self.notice.get_or_insert_with(|| WaitNotice::new(now));
        if let Some(waited) = notice.due(now) {
            let (pool, waited, bound) = (self.pool, waited.as_secs(), bound.as_secs());
            complain!(
                "pool {pool}: has waited for {waited} s for compute nodes of the pool, for {bound} s at most where they do not \
                 get on (`selkie top {pool}` shows what they do; --no-wait does not wait)"
            );
        }
        Ok(())
    }
}

/// How long the compute nodes of a pool may take for the next slab.
fn bound(state: &PoolState) -> Duration {
    STANDSTILL + Duration::from_secs(state.slab_bytes() / SLOWEST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use selkie::pool::control::{Identity, Timing};
    use selkie::pool::{Coding, PoolConfig};

    use super::*;

    #[test]
    fn a_minute_without_a_compute_node_is_an_error_that_says_what_is_not_done() {
        let config = PoolConfig {
            memory_nodes: 1,
            bytes_per_node: 64 << 20,
            gcl_bytes: 2048,
            range_bytes: 1 << 20,
            max_compute_nodes: 4,
            coding: Coding::PLAIN,
            log_bytes: 0,
        };
        let identity = Identity { name: "some", id: 7, fabric: "shm" };
        let alone = PoolState::new(identity, Timing::default(), &config);
        let mut used = alone.clone();
        let member = serde_json::from_value(serde_json::json!({
            "host": 1, "incarnation": 1, "mailboxes": [],
        }));
        used.compute_nodes = BTreeMap::from([(0, member.unwrap())]);
        let place = "some".parse().unwrap();
        let mut wait = ComputeWait::new(&place);
        let what = || "3 slabs stay".to_owned();
        let mut look = |state, second| wait.look(state, Duration::from_secs(second), 3, what);
        for (state, second) in [(&alone, 5), (&alone, 64), (&used, 65), (&alone, 66), (&alone, 125)]
        {
            assert!(look(state, second).is_ok(), "after {second} s");
        }
        let error = look(&alone, 126).unwrap_err();
        let told = "no compute node has been in pool some for 60 s: 3 slabs stay";
        assert!(error.is_retryable() && error.to_string() == told, "{error}");

        let mut wait = ComputeWait::new(&place);
        let bound = bound(&used).as_secs();
        let mut look = |second, left| wait.look(&used, Duration::from_secs(second), left, what);
        for (second, left) in [(10, 3), (9 + bound, 3), (9 + bound, 2), (8 + 2 * bound, 2)] {
            assert!(look(second, left).is_ok(), "after {second} s: they get on");
        }
        let error = look(9 + 2 * bound, 2).unwrap_err();
        assert!(error.is_retryable() && error.to_string().ends_with(": 3 slabs stay"), "{error}");
    }
}
