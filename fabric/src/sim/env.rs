//! The environment of a simulated node: virtual clock, tasks that stop with their node, seeded
//! chance.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::cost::nanos;
use super::events::Event;
use super::world::Shared;
use crate::env::{BoxFuture, Environment, TaskError};
use crate::id::PeerId;

/// No node of the name had joined yet.
const UNKNOWN: usize = usize::MAX;

pub(super) struct SimEnvironment {
    shared: Arc<Shared>,
    /// Whose tasks it runs.
    peer: Option<PeerId>,
    /// The peer's node, once it has joined.
    node: AtomicUsize,
}

impl SimEnvironment {
    pub(super) fn new(shared: Arc<Shared>, peer: Option<PeerId>) -> Self {
        Self { shared, peer, node: AtomicUsize::new(UNKNOWN) }
    }

    fn node(&self) -> Option<usize> {
        let peer = self.peer?;
        let known = self.node.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Some(known);
        }
        let joined = self.shared.network.lock().names.get(&peer).copied();
        if let Some(index) = joined {
            self.node.store(index, Ordering::Relaxed);
        }
        joined
    }
}

impl Environment for SimEnvironment {
    fn now(&self) -> Duration {
        self.shared.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = nanos(self.now()).saturating_add(nanos(duration));
        Box::pin(Sleep { shared: Arc::clone(&self.shared), until, armed_for: None })
    }

    fn timer_grain(&self) -> Duration {
        Duration::ZERO
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn launch(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.shared.spawn(self.node(), name, task);
    }

    fn random_u64(&self) -> u64 {
        self.shared.random.next_u64()
    }

    fn report(&self, failure: &TaskError) {
        self.shared.report(failure);
    }
}

/// Is ready at a virtual time. Polled again by another task it wakes that one too.
struct Sleep {
    shared: Arc<Shared>,
    until: u64,
    /// Which task is woken: its waker would keep the task that keeps this.
    armed_for: Option<usize>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.shared);
        let mut network = shared.network.lock();
        if network.now >= self.until {
            return Poll::Ready(());
        }
        // Whoever polled last is woken: it may be another task than the one that polled first.
        let waker = Some(context.waker().data().addr());
        if self.armed_for != waker {
            self.armed_for = waker;
            network.schedule(self.until, Event::Wake(context.waker().clone()));
        }
        Poll::Pending
    }
}
