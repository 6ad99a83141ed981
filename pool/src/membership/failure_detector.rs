//! Declares nodes dead that are silent for too long.
//!
//! ```text
//! view --> beats --> silent for a lease? --> watched for long enough?
//!      --> compare-and-swap on that view
//! ```
//! The beats are read after the state, and the state is replaced only if it still is the one that
//! they were judged with. So a node that changes the state after a beat of its own (`Pool::renew`)
//! knows that no process declares it dead for its silence before that beat: a process that has
//! judged by older beats has an older state.
//!
//! A compute node that is declared dead is recovered from. The memory of a memory node that is
//! declared dead is lost for good, whether or not it was there. So silence alone condemns no more
//! memory nodes than the coding can spare ([`PoolState::may_spare`]): more that fall silent are
//! cut off from the plane more often than dead, and their memory is there when they are back. Until
//! then they are *suspected*: shown, logged, and waited for. None of them is condemned before the
//! others either, as it might be the one that lives. A node that knows more than silence tells
//! declares them: a node that finds the process gone, or a person (`selkie pool forgive`).
//!
//! Nothing in F1 to F5 rests on the death of a suspected memory node: its fences and its rings are
//! what they were, and a recovery that needs its acknowledgement waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use selkie_fabric::PeerId;

use super::change::ATTEMPTS;
use super::notice::watched;
use super::process::{Membership, Shown};
use crate::control::Versioned;
use crate::document::{PoolState, Timing};
use crate::error::PoolError;

/// Heartbeats for which a node that has been silent for too long is watched before it is declared
/// dead. Between two looks at most one counts: a machine that stands still silences all of its
/// nodes, and the node that wakes first must not take the others for dead.
const WATCHED_BEATS: u32 = 2;

/// A silent node with its process, and for how long it has shown nothing, where that is known.
type Silent = (PeerId, u64, Option<Duration>);

impl Membership {
    /// A process whose nodes have not shown for the length of a lease that they live has lost them.
    /// Memory that processes share outlives a silence of the process that owns it.
    pub(super) async fn declare_silent_dead(&self, watched_for: Duration) -> Result<(), PoolError> {
        let mut watched_for = watched_for;
        for _ in 0..ATTEMPTS {
            // Older than the beats.
            let Versioned { version, state } = self.view.read().clone();
            let due = self.condemned(&state, watched_for).await?;
            if due.is_empty() {
                return Ok(());
            }
            let mut without = PoolState::clone(&state);
            due.iter().for_each(|(node, ..)| without.declare_dead(*node));
            if let Some(version) = self.plane.replace(version, without.clone()).await? {
                for (node, _, silent_for) in due {
                    let silent_s = silent_for.map(|silent| format!("{:.1}", silent.as_secs_f64()));
                    tracing::warn!(%node, silent_s, "declared a silent node dead");
                }
                self.changed_to(Versioned { version, state: without.into() });
                return Ok(());
            }
            // The state is another by now, and so may the beats be.
            self.see(self.load().await?);
            watched_for = Duration::ZERO;
        }
        Err(PoolError::Contended { attempts: ATTEMPTS })
    }

    /// The nodes whose silence means their death. Those that were silent at the last look have been
    /// watched for `watched_for` more.
    async fn condemned(
        &self,
        state: &PoolState,
        watched_for: Duration,
    ) -> Result<Vec<Silent>, PoolError> {
        let hosts = watched(state);
        if hosts.values().all(|host| *host == self.host) {
            return Ok(Vec::new());
        }
        let beats = self.plane.beats().await?;
        let mut silent = BTreeMap::new();
        for (node, host) in hosts.into_iter().filter(|(_, host)| *host != self.host) {
            let own = beats.iter().find(|(beat, _)| (beat.node, beat.host) == (node, host));
            // A plane may forget beats that are older than any node waits.
            if own.is_none_or(|(_, age)| *age > state.timing.lease) {
                silent.insert((node, host), own.map(|(_, age)| *age));
            }
        }
        let nodes = silent.keys().copied();
        let due = self.shown.lock().watch(nodes, watched_for, watch_of(state.timing));
        let memory = silent.keys().filter(|(node, _)| node.is_memory());
        let memory: BTreeSet<u16> = memory.map(|(node, _)| node.index()).collect();
        let spared = state.may_spare(memory.len());
        self.suspect(if spared { BTreeSet::new() } else { memory });
        let silent_for = |node| silent.get(&node).copied().flatten();
        let condemned = due.into_iter().filter(|(node, _)| spared || !node.is_memory());
        Ok(condemned.map(|(node, host)| (node, host, silent_for((node, host)))).collect())
    }

    /// Notes which memory nodes are suspected, and tells of those that were not before.
    fn suspect(&self, memory: BTreeSet<u16>) {
        let state = self.state();
        let pool = &state.name;
        let mut shown = self.shown.lock();
        for node in memory.difference(&shown.suspected) {
            let node = PeerId::memory(*node);
            tracing::warn!(
                %node,
                "a memory node is silent, and more are than the pool can spare: accesses wait for it, for a request timeout \
                 each, until it is back; if it never is, `selkie pool forgive {pool} {node}` gives up what it holds"
            );
        }
        for node in shown.suspected.difference(&memory) {
            tracing::warn!(node = %PeerId::memory(*node), "a memory node is waited for no more");
        }
        shown.suspected = memory;
    }

    /// Whether this process waits for a memory node that is silent.
    pub fn is_suspected(&self, memory_node: u16) -> bool {
        self.shown.lock().suspected.contains(&memory_node)
    }
}

impl PoolState {
    /// Memory nodes that are dead, and whose loss is not made good: ranges still name them, or
    /// their headers are being rebuilt.
    pub fn unmended(&self) -> usize {
        let is_unmended = |node: &u16| {
            self.slabs_on(*node) > 0 || self.rebuilds.iter().any(|task| task.memory == *node)
        };
        let dead = self.memory_nodes.iter().flatten().filter(|member| member.dead);
        dead.map(|member| member.descriptor.peer.index()).filter(is_unmended).count()
    }

    /// Whether the pool can lose so many more memory nodes and has all its pages still, as far as
    /// the coding promises that. A plain pool can lose none.
    #[must_use]
    pub fn may_spare(&self, more: usize) -> bool {
        more == 0 || self.unmended() + more <= self.coding.parity()
    }
}

/// For how long a node that has been silent for too long is watched. Where a lease is few
/// heartbeats, this is less than [`WATCHED_BEATS`], as a dead node must be missed within some
/// leases.
fn watch_of(timing: Timing) -> Duration {
    (WATCHED_BEATS * timing.heartbeat).min(timing.lease / 4)
}

impl Shown {
    /// Watches the nodes that are silent now; those that were silent at the last look, for `more`.
    /// Returns the nodes that have been watched for `enough`.
    fn watch(
        &mut self,
        silent: impl Iterator<Item = (PeerId, u64)>,
        more: Duration,
        enough: Duration,
    ) -> Vec<(PeerId, u64)> {
        let watched =
            |node: &_| self.silent.get(node).map_or(Duration::ZERO, |before| *before + more);
        self.silent = silent.map(|node| (node, watched(&node))).collect();
        let due = self.silent.iter().filter(|(_, watched)| **watched >= enough);
        due.map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_is_watched_and_one_look_counts_for_at_most_a_beat() {
        const BEAT: Duration = Duration::from_millis(200);
        let (silent, other) = ((PeerId::memory(1), 7), (PeerId::compute(2), 8));
        let mut shown = Shown::default();
        let enough = watch_of(Timing { lease: 10 * BEAT, heartbeat: BEAT });
        assert_eq!(enough, 2 * BEAT);
        assert_eq!(watch_of(Timing { lease: 4 * BEAT, heartbeat: BEAT }), BEAT);
        let look = |shown: &mut Shown, silent: &[(PeerId, u64)], more| {
            shown.watch(silent.iter().copied(), more, enough)
        };
        assert!(look(&mut shown, &[silent], BEAT).is_empty(), "it has just been seen so");
        assert!(look(&mut shown, &[silent, other], BEAT).is_empty());
        assert!(look(&mut shown, &[other], BEAT / 2).is_empty(), "it lives after all");
        assert!(look(&mut shown, &[silent, other], BEAT / 2).is_empty());
        assert_eq!(look(&mut shown, &[silent, other], BEAT), [other]);
        assert_eq!(look(&mut shown, &[silent, other], BEAT), [silent, other]);
    }
}
