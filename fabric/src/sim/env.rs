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
        self.simulation.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = nanos(self.now()).saturating_add(nanos(duration));
        Box::pin(Sleep { simulation: Arc::clone(&self.simulation), until, armed_for: None })
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

/// Is ready at a virtual time. If another task polls it, it wakes that task, too.
struct Sleep {
    simulation: Arc<Simulation>,
    until: u64,
    /// The task that is woken, by address: its waker would keep the task that keeps this future.
    armed_for: Option<usize>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let simulation = Arc::clone(&self.simulation);
        let mut network = simulation.network.lock();
        if network.now >= self.until {
            return Poll::Ready(());
        }
        // The last task that polled is woken: it may be another one than the first.
        let waker = Some(context.waker().data().addr());
        if self.armed_for != waker {
            self.armed_for = waker;
            network.schedule(self.until, Event::Wake(context.waker().clone()));
        }
        Poll::Pending
    }
}
