//! The environment of a simulated node: the virtual clock, tasks that stop with their node, and
//! seeded random numbers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::cost::nanos;
use super::events::Event;
use super::simulation::Simulation;
use crate::env::{BoxFuture, Environment, TaskError};
use crate::id::PeerId;

/// No node of the name has joined yet.
const UNKNOWN: usize = usize::MAX;

pub(super) struct SimEnvironment {
    simulation: Arc<Simulation>,
    /// The node whose tasks it runs.
    peer: Option<PeerId>,
    /// The index of that node, once it has joined.
    node: AtomicUsize,
}

impl SimEnvironment {
    pub(super) fn new(simulation: Arc<Simulation>, peer: Option<PeerId>) -> Self {
        Self { simulation, peer, node: AtomicUsize::new(UNKNOWN) }
    }

    fn node(&self) -> Option<usize> {
        let peer = self.peer?;
        let known = self.node.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Some(known);
        }
        let joined = self.simulation.network.lock().names.get(&peer).copied();
        if let Some(index) = joined {
            self.node.store(index, Ordering::Relaxed);
        }
        joined
    }
}

impl Environment for SimEnvironment {
    fn now(&self) -> Duration {
        let now = self.simulation.now();
        if !self.simulation.any_clock_off.load(Ordering::Relaxed) {
            return now;
        }
        let Some(node) = self.node() else { return now };
        Duration::from_nanos(self.simulation.network.lock().clock_of(node))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (simulation, node) = (Arc::clone(&self.simulation), self.node());
        let now = simulation.network.lock().timers_of(node);
        let until = now.saturating_add(nanos(duration));
        Box::pin(Sleep { simulation, node, until, armed: None })
    }

    fn timer_grain(&self) -> Duration {
        Duration::ZERO
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn launch(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.simulation.spawn(self.node(), name, task);
    }

    fn random_u64(&self) -> u64 {
        self.simulation.random.next_u64()
    }

    fn report(&self, failure: &TaskError) {
        self.simulation.report(failure);
    }
}

/// Is ready when the timers of its node show a time, which stand still while the node is suspended.
/// If another task polls it, it wakes that task, too.
struct Sleep {
    simulation: Arc<Simulation>,
    node: Option<usize>,
    until: u64,
    /// The task that is woken, by address: its waker would keep the task that keeps this future.
    /// And when, in the time of the world.
    armed: Option<(usize, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let simulation = Arc::clone(&self.simulation);
        simulation.panic_if_planted();
        let mut network = simulation.network.lock();
        let Some(left) = self.until.checked_sub(network.timers_of(self.node)).filter(|l| *l > 0)
        else {
            return Poll::Ready(());
        };
        // The last task that polled is woken: it may be another one than the first.
        let (waker, now) = (context.waker().data().addr(), network.now);
        if self.armed.is_none_or(|(armed, at)| armed != waker || at <= now) {
            self.armed = Some((waker, now.saturating_add(left)));
            network.schedule(now.saturating_add(left), Event::Wake(context.waker().clone()));
        }
        Poll::Pending
    }
}
