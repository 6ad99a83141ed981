//! A node's own judgement whether it still is in the pool, by its own clock.
//!
//! A node that cannot show that it lives is taken for dead at the end of its lease, and then others change pages
//! that it has copies of. So it serves nothing more, hits included, from three quarters of the lease on: unless
//! nobody can have taken it for dead, because the control plane is away from others too. Before a death has an
//! effect every memory node must have heard of it, and each counts in its control page how often it has looked at
//! the plane. As long as a memory node executes this node's reads and its count stands still, the plane is away
//! from that memory node, the death is not complete, and the node goes on. A memory node that gets the plane back
//! counts first, and acts upon what it missed a quarter of a lease later; probes come twice as often.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::{Buf, Chain, Verb};
use selkie_memnode::layout;

use crate::EngineError;
use crate::core::Core;

/// What is known of the looks of one memory node at the plane.
#[derive(Clone, Copy, Default)]
struct Looks {
    /// The count, and when it was first seen so.
    since: Option<(u64, Duration)>,
    /// The latest moment for which it is known that the count has stood still for longer than it does while the
    /// plane is there.
    still_at: Option<Duration>,
}

impl Looks {
    /// Takes note of a count that was read by a verb posted at `asked`.
    fn note(&mut self, count: u64, asked: Duration, now: Duration, pause: Duration) {
        match self.since {
            Some((before, since)) if before == count => {
                if asked.saturating_sub(since) >= pause {
                    self.still_at = Some(asked);
                }
            }
            _ => *self = Self { since: Some((count, now)), still_at: None },
        }
    }

    fn stand_still(&self, now: Duration, within: Duration) -> bool {
        self.still_at.is_some_and(|at| now.saturating_sub(at) <= within)
    }
}

type Watch = Arc<Mutex<Vec<Looks>>>;

/// Ends the node's service once it is, or may be, taken for dead.
pub(crate) async fn run_lease(core: Weak<Core>, tick: Duration) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    let watch = Watch::default();
    let mut probed = Duration::ZERO;
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        if core.failed.get().is_some() {
            // It answers nobody any more, so the others must not wait for it. What fails is tried again.
            let gave_up = core.pool.give_up(core.index(), core.own_incarnation()).await;
            match gave_up {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "cannot tell that this node has failed"),
            }
            continue;
        }
        let is_member = core.is_member_itself();
        if core.leaves.load(Ordering::Acquire) && !is_member {
            continue;
        }
        let now = env.now();
        let timing = core.pool.state().timing;
        let lease = timing.lease;
        let silent = core.pool.signs_of_life(now).silent_for;
        if silent < lease / 4 {
            watch.lock().clear();
        } else if now.saturating_sub(probed) >= lease / 8 {
            probed = now;
            core.probe(&watch, timing.away_after());
        }
        let plane_is_away = || watch.lock().iter().any(|looks| looks.stand_still(now, lease / 4));
        if !is_member || silent > lease * 3 / 4 && !plane_is_away() {
            core.end_with(EngineError::Expelled);
        }
    }
}

impl Core {
    /// Serves nothing more, for ever; if the others do not know yet, they are told.
    pub(crate) fn end_with(&self, error: EngineError) {
        tracing::warn!(node = %self.endpoint.id(), %error, "serves nothing more");
        let _ = self.failed.set(error);
        self.fail_all_waits();
        self.seal_all();
    }

    /// For ever, as nothing is published any more once the node has failed: a hit finds the latch sealed, and
    /// learns the rest on the slow path.
    fn seal_all(&self) {
        for id in self.frames.ids() {
            let frame = self.frames.get(id);
            let addr = frame.addr();
            // Who publishes has the lock, and looks whether the node has failed.
            let _line = (!addr.is_null()).then(|| self.shard(addr).lock());
            let _ = frame.latch.seal();
        }
    }

    /// Asks all memory nodes how often they have looked at the plane. Does not wait.
    fn probe(&self, watch: &Watch, pause: Duration) {
        let memory_nodes = self.memory_nodes();
        watch.lock().resize(memory_nodes, Looks::default());
        for number in 0..memory_nodes {
            let Ok(at) = self.memory_at(number, layout::PLANE_LOOKS_AT) else { continue };
            let asked = self.env.now();
            let read = self.queue_pair(number).post(Chain::from(Verb::read(at, Buf::zeroed(8))));
            let (watch, env) = (Arc::clone(watch), self.env.clone());
            drop(self.env.spawn("probe", async move {
                // One that does not answer tells nothing.
                let Ok(done) = read.await else { return };
                let Some(count) = done.buf(0).and_then(|buf| buf.words().first().copied()) else {
                    return;
                };
                if let Some(looks) = watch.lock().get_mut(number) {
                    looks.note(u64::from_le(count), asked, env.now(), pause);
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_stands_still_once_it_was_the_same_for_long_enough() {
        let ms = Duration::from_millis;
        let mut looks = Looks::default();
        let mut note = |count, asked| {
            looks.note(count, ms(asked), ms(asked + 1), ms(100));
            looks.stand_still(ms(asked + 1), ms(50))
        };
        assert!(!note(5, 0));
        assert!(!note(5, 100), "99 ms since it was seen");
        assert!(note(5, 101));
        assert!(!note(6, 150), "it goes on");
        assert!(!note(6, 200));
        assert!(note(6, 260));
        assert!(!looks.stand_still(ms(311), ms(50)), "known too long ago");
    }
}
