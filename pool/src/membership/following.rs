//! Looks at the control plane, and counts them where memory nodes run.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::LocalRegion;
use selkie_fabric::env::Env;

use super::process::Membership;
use crate::document::Timing;
use crate::error::PoolError;
use crate::layout;

impl Membership {
    /// Waits for the next time to look, looks at what has changed, acts upon it and shows that this
    /// process lives.
    pub async fn follow_once(&self, env: &Env) {
        env.sleep(self.pace()).await;
        // While the plane is away all nodes work by the view they have.
        if let Err(error) = self.look(env).await {
            tracing::debug!(%error, "cannot follow the pool");
        }
    }

    pub(super) async fn look(&self, env: &Env) -> Result<(), PoolError> {
        let now = env.now();
        self.begin_to_live(now);
        let timing @ Timing { lease, heartbeat } = self.timing();
        let seen = self.load().await?;
        let was_away = self.mark_look(env) > timing.away_after();
        if was_away && self.is_marked() {
            // The process may have stood still, and its last beat is old.
            self.beat(env, None).await?;
            self.let_others_notice(env, timing).await;
        }
        self.see(seen.clone());
        // Where looks are counted, the process acts by no state later than the look.
        let acted = if self.is_marked() { self.act_upon(seen) } else { self.act() };
        // Also if it failed: the beat says how far this process has acted, and that it lives.
        self.beat(env, Some(now)).await?;
        acted?;
        self.forget_the_gone(now, heartbeat);
        let since_last_look = env.now().saturating_sub(self.looked_at(env.now()));
        if self.looking_for(env.now(), lease) > lease {
            self.declare_silent_dead(since_last_look.min(heartbeat)).await?;
        } else {
            // Observations from before the gap are too old.
            self.shown.lock().silent.clear();
        }
        Ok(())
    }

    /// How often to look. No node waits for processes that neither run compute nodes nor have to
    /// let others in.
    pub(super) fn pace(&self) -> Duration {
        let state = self.state();
        let is_idle = state.cards.is_empty()
            && state.compute_nodes.values().all(|member| member.host != self.host);
        if is_idle { state.timing.heartbeat } else { self.plane.pace().min(state.timing.heartbeat) }
    }

    /// When the plane was last looked at.
    pub(super) fn looked_at(&self, now: Duration) -> Duration {
        self.shown.lock().looking.map_or(now, |(_, last)| last)
    }

    /// For how long this process has looked at the plane regularly. A process that stood still, or
    /// was away from the plane, cannot tell which others were.
    pub(super) fn looking_for(&self, now: Duration, lease: Duration) -> Duration {
        let mut shown = self.shown.lock();
        let (since, last) = shown.looking.unwrap_or((now, now));
        let since = if now.saturating_sub(last) > lease / 2 { now } else { since };
        shown.looking = Some((since, now));
        now.saturating_sub(since)
    }

    /// Counts looks at the plane in the control page of a memory node of this process, which was
    /// not in the pool yet when `since` was read.
    pub fn mark_looks_in(&self, region: Arc<dyn LocalRegion>, since: Duration) {
        self.marks.lock().push(region);
        self.shown.lock().marked_at = since;
    }

    pub(super) fn is_marked(&self) -> bool {
        !self.marks.lock().is_empty()
    }

    /// Counts a look. Returns an upper bound of the time since the last one.
    pub(super) fn mark_look(&self, env: &Env) -> Duration {
        let before = std::mem::replace(&mut self.shown.lock().marked_at, env.now());
        for region in &*self.marks.lock() {
            let at = layout::PLANE_LOOKS_AT as usize;
            // No other task writes the counter.
            region.store(at, region.load(at).wrapping_add(1));
        }
        env.now().saturating_sub(before)
    }

    /// Gives nodes that relied on the absence of this process the time to see that it looks again.
    /// The process counts looks meanwhile.
    pub(super) async fn let_others_notice(&self, env: &Env, timing: Timing) {
        let until = env.now() + timing.acts_after();
        while env.now() < until {
            let left = until.saturating_sub(env.now());
            env.sleep(timing.heartbeat.min(left)).await;
            self.mark_look(env);
        }
    }
}
