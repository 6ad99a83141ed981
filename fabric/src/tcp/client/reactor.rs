//! The reactor of a node: readiness of its sockets, and what its links and its driver share.
//!
//! Links tell the reactor which events the driver waits for; the driver takes the events.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::env::Env;
use crate::tcp::config::TcpConfig;
use crate::tcp::server::host::Host;
use crate::tcp::wire::error::WireError;

/// Token of the events that wake the driver.
pub(crate) const WAKE: u64 = 0;
/// Token of the events of the listener.
pub(crate) const LISTENER: u64 = 1;
/// Least token of a link.
pub(crate) const FIRST_LINK: u64 = 2;

pub(crate) struct Reactor {
    epoll: OwnedFd,
    /// Written to when the driver is to stop, or has a link to connect.
    wake: OwnedFd,
    /// Chains of this node without an outcome.
    outstanding: AtomicUsize,
    host: Arc<Host>,
    config: TcpConfig,
    env: Env,
}

impl Reactor {
    /// A reactor that watches the listener of `host`.
    pub(crate) fn new(host: Arc<Host>, config: TcpConfig, env: Env) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        host.with_listener(|listener| {
            epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)
        })?;
        Ok(Self { epoll, wake, outstanding: AtomicUsize::new(0), host, config, env })
    }

    /// Waits for events, at most for `limit`.
    pub(crate) fn wait(&self, events: &mut Vec<Event>, limit: Duration) {
        // A call that was interrupted returns no events: the driver then looks at its links.
        let _ = epoll::wait(&self.epoll, spare_capacity(events), Some(&timespec(limit)));
    }

    /// Wakes the driver.
    pub(crate) fn wake(&self) {
        // It fails only when the count overflows, and then the thread is about to wake anyhow.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// The driver has been woken.
    pub(crate) fn woken(&self) {
        // It fails only if there is nothing to read.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// Watches the socket of a new connection.
    pub(crate) fn add(
        &self,
        token: u64,
        socket: impl AsFd,
        interest: EventFlags,
    ) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, EventData::new_u64(token), interest)
    }

    /// Changes the events of a link that the driver waits for.
    pub(crate) fn set_interest(&self, token: u64, socket: &OwnedFd, interest: EventFlags) {
        // It fails if the link was removed, and then no thread needs the event.
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(token), interest);
    }

    /// Stops to watch the socket of a link.
    pub(crate) fn remove(&self, socket: &OwnedFd) {
        // It fails if the link was never added.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Changes the events of the listener that the driver waits for.
    pub(crate) fn set_accepting(&self, interest: EventFlags) {
        let set = |listener: &TcpListener| {
            epoll::modify(&self.epoll, listener, EventData::new_u64(LISTENER), interest)
        };
        // It fails only if the listener is being closed.
        let _ = self.host.with_listener(set);
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(crate) fn config(&self) -> &TcpConfig {
        &self.config
    }

    pub(crate) fn now(&self) -> Duration {
        self.env.now()
    }

    pub(crate) fn chain_begins(&self) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn chain_ends(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether exactly one chain of the node has no outcome. A hint: other threads may post now.
    pub(crate) fn has_one_outstanding(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) == 1
    }

    /// Counts a link that was closed because of bad bytes.
    pub(crate) fn note_bad_link(&self, error: WireError) {
        self.host.note_bad(error);
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Blocks until `socket` has something to receive or is closed, at most for `limit`.
pub(crate) fn wait_readable(socket: &OwnedFd, limit: Duration) {
    let mut sockets = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    // The caller receives in any case.
    let _ = poll(&mut sockets, Some(&timespec(limit)));
}
