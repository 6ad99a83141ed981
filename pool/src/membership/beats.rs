//! Signs of life that this process gives of its nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::Env;

use super::process::Membership;
use super::silence::is_too_long;
use crate::control::Beat;
use crate::document::PoolState;
use crate::error::PoolError;

impl Membership {
    /// Starts the clock of signs of life when this process gets its first node, and stops it when
    /// the last one is gone.
    pub(super) fn begin_to_live(&self, now: Duration) {
        let (state, lease) = (self.state(), self.timing().lease);
        let has_nodes = !self.own_nodes(&state).is_empty();
        let mut shown = self.shown.lock();
        match (has_nodes, shown.alive_at) {
            (true, None) => shown.alive_at = shown.first_at.take().or(Some(now)),
            (false, Some(at)) => {
                shown.lengths.note(now.saturating_sub(at), now, lease);
                shown.alive_at = None;
            }
            _ => {}
        }
    }

    /// The nodes of this process that others watch.
    pub(super) fn own_nodes(&self, state: &PoolState) -> BTreeSet<PeerId> {
        let memory = state.memory_nodes.iter().flatten();
        let memory = memory.filter(|node| node.host == self.host && !node.dead);
        let cards = state.cards.iter().filter(|(_, card)| card.host == self.host);
        let compute = state.compute_nodes.iter().filter(|(_, member)| member.host == self.host);
        let ended = self.ended.lock().clone();
        memory
            .map(|node| node.descriptor.peer)
            .chain(cards.map(|(raw, _)| PeerId::from_raw(*raw)))
            .chain(compute.map(|(index, _)| PeerId::compute(*index)))
            .filter(|node| !ended.contains(node))
            .collect()
    }

    /// Shows the others that this process's nodes live and what they have seen. Each node beats
    /// when its beat has changed, or the next one is due; with `None` at once.
    pub async fn beat(&self, env: &Env, now: Option<Duration>) -> Result<(), PoolError> {
        let seen = self.acted.lock().upto;
        let state = self.state();
        let mut oldest = now;
        for node in self.own_nodes(&state) {
            let report = self.reports.lock().get(&node).cloned().unwrap_or_default();
            let beat = Beat { node, host: self.host, seen, report };
            let before = self.shown.lock().beats.get(&node).cloned();
            if let (Some((before, at)), Some(now)) = (before, now)
                && before == beat
                && now.saturating_sub(at) < state.timing.heartbeat
            {
                oldest = oldest.min(Some(at));
                continue;
            }
            self.plane.beat(beat.clone()).await?;
            if let Some(now) = now {
                self.shown.lock().beats.insert(node, (beat, now));
            }
        }
        if oldest.is_some() {
            let mut shown = self.shown.lock();
            // By the time now, not by the start of the beats: they may have arrived this late.
            let (now, lease) = (env.now(), state.timing.lease);
            let silent_for = shown.alive_at.map(|at| now.saturating_sub(at));
            shown.silences += u64::from(silent_for.is_some_and(|it| is_too_long(it, lease)));
            shown.lengths.note(silent_for.unwrap_or_default(), now, lease);
            shown.alive_at = oldest;
        }
        Ok(())
    }

    /// Sends the first beat of a node that is about to enter the pool, so that the others miss it
    /// if it ends right after.
    pub async fn first_beat(&self, env: &Env, node: PeerId) -> Result<(), PoolError> {
        let (now, seen) = (env.now(), self.acted.lock().upto);
        let beat = Beat { node, host: self.host, seen, report: String::new() };
        self.plane.beat(beat).await?;
        self.shown.lock().first_at = Some(now);
        Ok(())
    }

    /// The first node of this process has entered the pool at this time, without a beat: others
    /// watch it from then on.
    pub fn lives_since(&self, entered: Duration) {
        self.shown.lock().first_at = Some(entered);
    }

    /// The processes that have shown lately that their nodes live, and this one.
    pub async fn living_hosts(&self) -> Result<BTreeSet<u64>, PoolError> {
        let mut hosts = self.hosts_within(self.timing().lease * 3 / 2).await?;
        hosts.insert(self.host);
        Ok(hosts)
    }

    /// The processes that have shown within this time that their nodes live.
    pub async fn hosts_within(&self, time: Duration) -> Result<BTreeSet<u64>, PoolError> {
        let beats = self.plane.beats().await?;
        let lately = beats.iter().filter(|(_, age)| *age < time);
        Ok(lately.map(|(beat, _)| beat.host).collect())
    }
}
