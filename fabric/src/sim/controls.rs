//! Controls of a world: what fault plans do to nodes and links.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::adapter::AdapterBusy;
use super::cost::nanos;
use super::events::Event;
use super::network::Network;
use super::node::SimNode;
use super::simulation::Simulation;
use super::trace::TraceEvent;
use crate::id::PeerId;

/// Changes nodes and links. It may outlive its world: then it does nothing.
#[derive(Clone)]
pub struct Controls {
    simulation: Weak<Simulation>,
}

impl Controls {
    pub(super) fn of(simulation: &Arc<Simulation>) -> Self {
        Self { simulation: Arc::downgrade(simulation) }
    }

    /// Calls `what` at the virtual time `at`.
    pub fn at(&self, at: Duration, what: impl FnOnce(&Controls) + Send + 'static) {
        let controls = self.clone();
        if let Some(simulation) = self.simulation.upgrade() {
            let call = Box::new(move || what(&controls));
            simulation.network.lock().schedule(nanos(at), Event::Call(call));
        }
    }

    /// Stops the node for good. Verbs that it has posted still execute. Peers that access it get
    /// `PeerDead`, after a delay.
    pub fn crash(&self, peer: PeerId) {
        self.stop(&format!("{peer} crashes"), peer, |node| node.crashed = true);
    }

    /// Stops the node for good. Its outstanding verbs do not execute any more.
    pub fn kill(&self, peer: PeerId) {
        self.stop(&format!("{peer} is killed"), peer, |node| {
            node.crashed = true;
            node.fenced = true;
        });
    }

    /// As [`Controls::kill`], after `verbs` more verbs of the node, also in the middle of a chain.
    /// `None` cancels an earlier call.
    pub fn kill_after_verbs(&self, peer: PeerId, verbs: Option<u64>) {
        let what = match verbs {
            Some(verbs) => format!("{peer} is to be killed after {verbs} verbs"),
            None => format!("{peer} is spared"),
        };
        self.stop(&what, peer, |node| node.verbs_left = verbs);
    }

    /// Whether the node has joined and has not crashed. It may be paused.
    pub fn lives(&self, peer: PeerId) -> bool {
        let Some(simulation) = self.simulation.upgrade() else { return false };
        let network = simulation.network.lock();
        network.names.get(&peer).is_some_and(|index| !network.node(*index).crashed)
    }

    /// Pauses the tasks of the node. Its memory can still be accessed.
    pub fn pause(&self, peer: PeerId) {
        self.stop(&format!("{peer} is paused"), peer, |node| node.paused = true);
    }

    /// Resumes the tasks of the node.
    pub fn resume(&self, peer: PeerId) {
        let mut parked = Vec::new();
        self.change(&format!("{peer} goes on"), |network| {
            if let Some(index) = network.names.get(&peer).copied() {
                let node = network.node_mut(index);
                node.paused = false;
                parked = std::mem::take(&mut node.parked);
            }
        });
        for task in parked {
            Waker::from(task).wake();
        }
    }

    /// Makes the adapter of the node `times` times slower than the model.
    pub fn slow(&self, peer: PeerId, times: u32) {
        self.change(&format!("{peer} is {times} times slower"), |network| {
            if let Some(index) = network.names.get(&peer).copied() {
                network.node_mut(index).slowness = times.max(1);
            }
        });
    }

    /// Cuts the link between two nodes. Their adapters retry operations for a while, then give the
    /// queue pair up: operations fail with `PeerDead`.
    pub fn cut(&self, one: PeerId, other: PeerId) {
        self.link(one, other, true);
    }

    /// Heals the link between two nodes.
    pub fn heal(&self, one: PeerId, other: PeerId) {
        self.link(one, other, false);
    }

    /// Cuts the way from one node to another, in that direction alone: neither requests nor answers
    /// arrive. Both are tried again for long; then operations fail with `PeerDead`.
    pub fn block(&self, from: PeerId, to: PeerId) {
        self.change(&format!("nothing of {from} reaches {to}"), |network| {
            if let Some(way) = network.way(from, to) {
                network.blocked.insert(way);
            }
        });
    }

    /// Heals the way from one node to another: what waits for it goes on in its order.
    pub fn unblock(&self, from: PeerId, to: PeerId) {
        self.change(&format!("{from} reaches {to}"), |network| {
            if let Some(way) = network.way(from, to) {
                network.blocked.remove(&way);
                network.link_is_back(way.0, way.1);
            }
        });
    }

    /// Stops the process of the node: its tasks stand still, and no verb executes in its memory.
    pub fn freeze(&self, peer: PeerId) {
        self.stop(&format!("{peer} stands still"), peer, |node| {
            (node.paused, node.frozen) = (true, true);
        });
    }

    /// As [`Controls::freeze`], for the machine of the node: its timers stand still as well. Its
    /// clock goes on.
    pub fn suspend(&self, peer: PeerId) {
        self.change(&format!("the machine of {peer} is suspended"), |network| {
            let now = network.now;
            if let Some(index) = network.names.get(&peer).copied() {
                network.node_mut(index).suspended_since.get_or_insert(now);
            }
        });
        self.freeze(peer);
    }

    /// Ends [`Controls::freeze`] and [`Controls::suspend`].
    pub fn thaw(&self, peer: PeerId) {
        self.change(&format!("{peer} stands still no more"), |network| {
            let now = network.now;
            if let Some(index) = network.names.get(&peer).copied() {
                let node = network.node_mut(index);
                node.frozen = false;
                let since = node.suspended_since.take();
                node.suspended_for += since.map_or(0, |since| now - since);
                network.go_on(index);
            }
        });
        self.resume(peer);
    }

    /// Sets the clock of the node forward. Its timers are not moved.
    pub fn set_clock_forward(&self, peer: PeerId, by: Duration) {
        if let Some(simulation) = self.simulation.upgrade() {
            simulation.any_clock_off.store(true, Ordering::Relaxed);
        }
        self.change(&format!("the clock of {peer} is set forward by {by:?}"), |network| {
            if let Some(index) = network.names.get(&peer).copied() {
                network.node_mut(index).ahead += nanos(by);
            }
        });
    }

    /// The clock of the node stands still from now on. Its timers go on.
    pub fn stop_clock(&self, peer: PeerId) {
        if let Some(simulation) = self.simulation.upgrade() {
            simulation.any_clock_off.store(true, Ordering::Relaxed);
        }
        self.change(&format!("the clock of {peer} stands still"), |network| {
            let now = network.now;
            if let Some(index) = network.names.get(&peer).copied() {
                network.node_mut(index).clock_stands_since.get_or_insert(now);
            }
        });
    }

    /// Ends [`Controls::stop_clock`]: the clock jumps to where it would be, or stays behind.
    pub fn start_clock(&self, peer: PeerId, catches_up: bool) {
        self.change(&format!("the clock of {peer} goes on"), |network| {
            let now = network.now;
            if let Some(index) = network.names.get(&peer).copied() {
                let node = network.node_mut(index);
                let since = node.clock_stands_since.take();
                if !catches_up {
                    node.behind += since.map_or(0, |since| now - since);
                }
            }
        });
    }

    /// Has the next task of that name on the node panic, where it sleeps or posts.
    pub fn panic_in(&self, peer: PeerId, task: &'static str) {
        let mut index = None;
        self.change(&format!("the task `{task}` of {peer} is to panic"), |network| {
            index = network.names.get(&peer).copied();
        });
        if let (Some(simulation), Some(index)) = (self.simulation.upgrade(), index) {
            simulation.planted.lock().push((index, task));
            simulation.any_planted.store(true, Ordering::Relaxed);
        }
    }

    /// Takes back each [`Controls::panic_in`] whose task has not come by since.
    pub fn panic_no_more(&self) {
        if let Some(simulation) = self.simulation.upgrade() {
            simulation.planted.lock().clear();
            simulation.any_planted.store(false, Ordering::Relaxed);
        }
    }

    /// How long the adapter of each node was busy; empty once the world is gone.
    pub fn busy(&self) -> Vec<(PeerId, AdapterBusy)> {
        self.simulation
            .upgrade()
            .map(|simulation| simulation.network.lock().busy())
            .unwrap_or_default()
    }

    /// Puts a line into the event log.
    pub fn note(&self, text: &str) {
        self.change(text, |_| {});
    }

    fn link(&self, one: PeerId, other: PeerId, cut: bool) {
        let what = if cut { "cut off from" } else { "reaches" };
        self.change(&format!("{one} {what} {other}"), |network| {
            let index = |peer: PeerId| network.names.get(&peer).copied();
            if let (Some(one), Some(other)) = (index(one), index(other)) {
                let pair = (one.min(other), one.max(other));
                if cut {
                    network.cut.insert(pair);
                } else {
                    network.cut.remove(&pair);
                }
            }
        });
    }

    fn stop(&self, what: &str, peer: PeerId, stop: impl FnOnce(&mut SimNode)) {
        if let Some(simulation) = self.simulation.upgrade() {
            simulation.any_stopped.store(true, Ordering::Relaxed);
        }
        self.change(what, |network| {
            if let Some(index) = network.names.get(&peer).copied() {
                stop(network.node_mut(index));
                if network.node(index).crashed {
                    // What it has stalled fails.
                    network.go_on(index);
                }
            }
        });
    }

    fn change(&self, what: &str, change: impl FnOnce(&mut Network)) {
        let Some(simulation) = self.simulation.upgrade() else { return };
        let mut network = simulation.network.lock();
        let now = network.now;
        network.trace.record(now, &TraceEvent::Note(what));
        change(&mut network);
    }
}
