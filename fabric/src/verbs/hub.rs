//! What the queue pairs of a node share: two completion queues and a thread.
//!
//! *Sends* complete in one queue for all queue pairs that post, *receives* in another one for all
//! queue pairs that serve guests. A thread that polls a completion takes what the queue has, for
//! whichever chain it is. When no thread polls, the queue is armed, and the *driver* waits for its
//! event: the driver also looks at deadlines, and takes the events that belong to no completion.
//!
//! ```text
//! poll of a completion --> take completions --> fill cells, post what waited, wake
//!        |                                                ^
//!        +-- nothing there: arm --> event --> driver -----+
//! ```
//! Why no completion is missed: a thread arms the queue after its waker is registered, and then
//! looks at the queue once more, after any thread that looks at it now. The driver arms it again
//! as long as chains are outstanding, and looks again, too.
//!
//! A write with immediate completes in the queue of receives, which is always armed. Its number
//! names the region. Whoever counts rings collects them first ([`RingSource`]), so that a ring
//! counts as soon as it is there.
//!
//! Lock order: `polling`, then the state of a connection. `collecting` is locked alone.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::connection::Connection;
use super::device::Device;
use super::ffi::{AsyncEvent, Completed, CompletionQueue, Context, EventChannel, RcQueuePair};
use crate::doorbell::RingSource;
use crate::env::Env;
use crate::id::{PeerId, RegionKey};
use crate::mem::node::{MemRegion, SLOT_BITS};
use crate::tcp::client::outcome::{Completed as Outcomes, wake};

/// Completions that a queue has room for, where the device allows as many.
const ROOM: u32 = 32 << 10;
/// Requests of a queue pair that posts, where the device allows as many.
const SENDS: u32 = 128;
/// Receives of a queue pair that serves a guest.
pub(super) const RECEIVES: u32 = 16;

/// What a node has done, for tests and benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerbsCounters {
    /// Doorbells of the device that were rung to post requests.
    pub posts: u64,
    /// Requests that were posted.
    pub requests: u64,
    /// Completions that were taken, without those of receives.
    pub completions: u64,
    /// Completions that said that a request failed.
    pub failures: u64,
    /// The latest of these, as libibverbs numbers them: 10 is a remote access error, 12 that the
    /// peer does not acknowledge.
    pub last_failure: u32,
    /// Requests of set-ups that were served: what this node's processor does for guests.
    pub served: u64,
    /// Writes with doorbell that came.
    pub rings: u64,
}

#[derive(Default)]
pub(super) struct Counting {
    pub(super) posts: AtomicU64,
    pub(super) requests: AtomicU64,
    completions: AtomicU64,
    failures: AtomicU64,
    last_failure: AtomicU32,
    pub(super) served: AtomicU64,
    rings: AtomicU64,
}

impl Counting {
    pub(super) fn read(&self) -> VerbsCounters {
        VerbsCounters {
            posts: self.posts.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            completions: self.completions.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            last_failure: self.last_failure.load(Ordering::Relaxed),
            served: self.served.load(Ordering::Relaxed),
            rings: self.rings.load(Ordering::Relaxed),
        }
    }
}

/// Deadlines and pauses of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) poll_for: Duration,
    pub(super) dead_after: Duration,
}

pub(super) struct Hub {
    id: PeerId,
    pub(super) device: Device,
    pub(super) sends: Arc<CompletionQueue>,
    pub(super) receives: Arc<CompletionQueue>,
    channel: Arc<EventChannel>,
    /// The thread that takes completions of sends has it, with room for them.
    polling: Mutex<Vec<Completed>>,
    /// As above, of receives.
    collecting: Mutex<Vec<Completed>>,
    connections: RwLock<BTreeMap<u32, Arc<Connection>>>,
    targets: RwLock<BTreeMap<u32, Weak<RcQueuePair>>>,
    /// By the number that a write with doorbell carries.
    regions: RwLock<BTreeMap<u32, Arc<MemRegion>>>,
    next_id: AtomicU32,
    /// Chains without an outcome.
    outstanding: AtomicUsize,
    is_armed: AtomicBool,
    is_stopped: AtomicBool,
    wake: OwnedFd,
    pub(super) counting: Counting,
    pub(super) env: Env,
    pub(super) times: Times,
}

impl Hub {
    /// The hub of a node, whose thread runs until [`Hub::stop`].
    pub(super) fn start(
        id: PeerId,
        device: Device,
        env: Env,
        times: Times,
    ) -> io::Result<Arc<Self>> {
        let channel = EventChannel::new(&device.context)?;
        let room = ROOM.min(device.limits.completions);
        let sends = CompletionQueue::new(&channel, room)?;
        let receives = CompletionQueue::new(&channel, room)?;
        receives.arm()?;
        let hub = Arc::new(Self {
            id,
            device,
            sends,
            receives,
            channel,
            polling: Mutex::default(),
            collecting: Mutex::default(),
            connections: RwLock::default(),
            targets: RwLock::default(),
            regions: RwLock::default(),
            next_id: AtomicU32::new(1),
            outstanding: AtomicUsize::new(0),
            is_armed: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counting: Counting::default(),
            env,
            times,
        });
        let driver = Arc::clone(&hub);
        thread::Builder::new().name("verbs-driver".into()).spawn(move || driver.run())?;
        Ok(hub)
    }

    pub(super) fn id(&self) -> PeerId {
        self.id
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.device.context
    }

    /// A number for a queue pair.
    pub(super) fn new_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Requests of a queue pair that posts.
    pub(super) fn sends(&self) -> u32 {
        SENDS.min(self.device.limits.queue_requests).max(1)
    }

    /// How many queue pairs may post: after a failure each has a completion for every request.
    pub(super) fn most_connections(&self) -> usize {
        (ROOM.min(self.device.limits.completions) / self.sends()) as usize
    }

    /// Lists a connection. `false` if there are as many as there may be.
    pub(super) fn enter(&self, id: u32, connection: &Arc<Connection>) -> bool {
        let mut connections = self.connections.write();
        let has_room = connections.len() < self.most_connections();
        if has_room {
            connections.insert(id, Arc::clone(connection));
        }
        has_room
    }

    pub(super) fn leave(&self, id: u32) {
        let left = self.connections.write().remove(&id);
        // Dropped without the lock: it may be the last reference.
        drop(left);
    }

    /// Lists a queue pair that serves a guest. `false` if there are as many as there may be.
    pub(super) fn enter_target(&self, id: u32, target: &Arc<RcQueuePair>) -> bool {
        let mut targets = self.targets.write();
        let has_room =
            targets.len() < (ROOM.min(self.device.limits.completions) / RECEIVES) as usize;
        if has_room {
            targets.insert(id, Arc::downgrade(target));
        }
        has_room
    }

    pub(super) fn leave_target(&self, id: u32) {
        self.targets.write().remove(&id);
    }

    /// How many queue pairs there are: those that post, and those that serve guests.
    pub(super) fn queue_pairs(&self) -> (usize, usize) {
        (self.connections.read().len(), self.targets.read().len())
    }

    /// A region whose doorbell peers may ring.
    pub(super) fn enter_region(&self, region: Arc<MemRegion>) {
        let number = Self::ring_number(region.key());
        self.regions.write().insert(number, region);
    }

    /// The number of a region that peers ring by: that of its slot.
    pub(super) fn ring_number(region: RegionKey) -> u32 {
        region.to_raw() & ((1 << SLOT_BITS) - 1)
    }

    pub(super) fn chain_begins(&self) {
        self.outstanding.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn chains_end(&self, count: usize) {
        self.outstanding.fetch_sub(count, Ordering::AcqRel);
    }

    /// Whether one chain of the node has no outcome. A hint: others may post now.
    pub(super) fn has_one_outstanding(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) == 1
    }

    /// Takes completions of sends, unless another thread does.
    pub(super) fn poll(&self) {
        if let Some(polling) = self.polling.try_lock() {
            self.take_sends(polling);
        }
    }

    /// Has the driver woken by the next completion, and looks at those that are there.
    pub(super) fn arm(&self) {
        // AcqRel: pairs with the driver, which clears it before it looks.
        if !self.is_armed.swap(true, Ordering::AcqRel)
            && let Err(error) = self.sends.arm()
        {
            // The driver looks now and then anyhow.
            tracing::warn!(node = %self.id, %error, "a completion queue cannot be armed");
        }
        self.take_sends(self.polling.lock());
    }

    fn take_sends(&self, mut taken: MutexGuard<'_, Vec<Completed>>) {
        let (mut outcomes, mut broken) = (Outcomes::new(), Vec::new());
        loop {
            taken.clear();
            let more = match self.sends.poll(&mut taken) {
                Ok(more) => more,
                Err(error) => {
                    tracing::error!(node = %self.id, %error, "a completion queue is lost");
                    broken.extend(self.connections.read().values().map(|c| (Arc::clone(c), 0)));
                    false
                }
            };
            self.counting.completions.fetch_add(taken.len() as u64, Ordering::Relaxed);
            for completed in &*taken {
                let (id, part) = ((completed.id >> 32) as u32, completed.id as u32);
                let connection = self.connections.read().get(&id).map(Arc::clone);
                let Some(connection) = connection else { continue };
                if completed.status == 0 {
                    connection.complete(part, &mut outcomes);
                } else {
                    self.counting.failures.fetch_add(1, Ordering::Relaxed);
                    self.counting.last_failure.store(completed.status, Ordering::Relaxed);
                    // What follows its first failure is flushed, and says nothing more.
                    if !broken.iter().any(|(other, _)| Arc::ptr_eq(other, &connection)) {
                        broken.push((connection, completed.status));
                    }
                }
            }
            if !more {
                break;
            }
        }
        drop(taken);
        wake(outcomes);
        for (connection, status) in broken {
            connection.fail(status);
        }
    }

    /// Counts the rings that have come.
    fn collect(&self) {
        let mut taken = self.collecting.lock();
        let mut rung: Vec<Arc<MemRegion>> = Vec::new();
        loop {
            taken.clear();
            let more = self.receives.poll(&mut taken).unwrap_or(false);
            let regions = self.regions.read();
            for completed in &*taken {
                let Some(number) = completed.immediate else { continue };
                self.counting.rings.fetch_add(1, Ordering::Relaxed);
                let target =
                    self.targets.read().get(&(completed.id as u32)).and_then(Weak::upgrade);
                if let Some(target) = target {
                    // It fails only when the queue pair is gone.
                    let _ = target.post_receive(completed.id);
                }
                // A number of no region is a mistake of the peer.
                let Some(region) = regions.get(&number) else { continue };
                // Under the lock: who collects next finds them counted.
                if region.doorbell().ring_silently() {
                    rung.push(Arc::clone(region));
                }
            }
            drop(regions);
            if !more {
                break;
            }
        }
        drop(taken);
        rung.iter().for_each(|region| region.doorbell().wake_passed());
    }

    /// Ends every connection, and the thread. The second call does nothing.
    pub(super) fn stop(&self) {
        if self.is_stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        // It fails only when the count overflows, and then the thread is about to wake anyhow.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        for connection in self.all_connections() {
            connection.end(&crate::FabricError::PeerDead { peer: self.id });
        }
    }

    fn all_connections(&self) -> Vec<Arc<Connection>> {
        self.connections.read().values().map(Arc::clone).collect()
    }

    fn run(&self) {
        let check_every = (self.times.dead_after / 4).min(Duration::from_millis(250));
        let check_every = check_every.max(Duration::from_millis(1));
        let mut checked = self.env.now();
        while !self.is_stopped.load(Ordering::Acquire) {
            self.wait(check_every);
            self.channel.take_events();
            self.is_armed.store(false, Ordering::Release);
            if let Err(error) = self.receives.arm() {
                tracing::warn!(node = %self.id, %error, "a completion queue cannot be armed");
            }
            self.collect();
            if self.outstanding.load(Ordering::Acquire) > 0 {
                self.arm();
            }
            while let Some(event) = self.device.context.next_event() {
                self.note(event);
            }
            let since = self.env.now().saturating_sub(checked);
            if since >= check_every {
                checked += since;
                // A driver that stood still knows nothing of that time.
                let awake = since.min(2 * check_every);
                self.all_connections().iter().for_each(|connection| connection.check(awake));
            }
        }
    }

    /// Waits for an event, at most for `limit`.
    fn wait(&self, limit: Duration) {
        let fds = [self.channel.fd(), self.device.context.async_fd(), self.wake.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // An interrupted call is one that looks early.
        let _ = poll(&mut fds, Some(&limit));
    }

    fn note(&self, event: AsyncEvent) {
        let (node, device) = (self.id, &self.device.info.device);
        match event {
            AsyncEvent::DeviceFatal | AsyncEvent::CompletionQueue => {
                tracing::error!(%node, device, ?event, "the RDMA device fails");
                for connection in self.all_connections() {
                    connection.fail_by(event);
                }
            }
            AsyncEvent::QueuePair(number) => {
                tracing::warn!(%node, device, number, "a queue pair fails");
                let failed = self.all_connections().into_iter();
                for connection in failed.filter(|connection| connection.number() == number) {
                    connection.fail_by(event);
                }
            }
            // Deadlines say whether it lasts.
            AsyncEvent::PortDown(port) => tracing::warn!(%node, device, port, "a port is down"),
            AsyncEvent::PortUp(port) => tracing::info!(%node, device, port, "a port is active"),
            AsyncEvent::Other => {}
        }
    }
}

/// The rings of a hub, if it still is.
pub(super) struct HubRings(pub(super) Weak<Hub>);

impl RingSource for HubRings {
    fn collect(&self) {
        if let Some(hub) = self.0.upgrade() {
            hub.collect();
        }
    }
}
