//! The driver of a node: a thread that accepts connections, receives for those who do not poll,
//! sends what sockets did not take at once, and looks after silent peers.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::config::TcpConfig;
use super::error::WireError;
use super::host::Host;
use super::link::Link;
use super::pipe::Pipe;
use crate::env::Env;
use crate::error::FabricError;
use crate::id::PeerId;

const BELL: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_LINK: u64 = 2;

/// Events taken at once.
const MOST_EVENTS: usize = 256;

pub(super) struct Driver {
    epoll: OwnedFd,
    /// Rung when the driver is to stop.
    bell: OwnedFd,
    links: Mutex<Links>,
    /// Chains of this node that have no outcome.
    under_way: AtomicUsize,
    host: Arc<Host>,
    config: TcpConfig,
    env: Env,
}

#[derive(Default)]
struct Links {
    by_token: HashMap<u64, Arc<Link>>,
    next_token: u64,
    /// Why there are no more.
    stopped: Option<FabricError>,
}

impl Driver {
    /// Starts the driver of `host`; it ends with [`Driver::stop`].
    pub(super) fn start(host: Arc<Host>, config: TcpConfig, env: Env) -> io::Result<Arc<Self>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        host.with_listener(|listener| {
            epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)
        })?;
        let links = Mutex::new(Links { next_token: FIRST_LINK, ..Links::default() });
        let under_way = AtomicUsize::new(0);
        let driver = Arc::new(Self { epoll, bell, links, under_way, host, config, env });
        let thread = Arc::clone(&driver);
        thread::Builder::new().name("tcp-driver".into()).spawn(move || thread.run())?;
        Ok(driver)
    }

    /// Begins to connect to `addr`.
    pub(super) fn connect(
        self: &Arc<Self>,
        peer: PeerId,
        addr: SocketAddr,
        hello: Vec<u8>,
    ) -> Result<Arc<Link>, FabricError> {
        let failed = |what: &str, error: Errno| FabricError::Network {
            peer: self.host.id(),
            what: format!("{what} {addr}: {error}"),
        };
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|error| failed("no socket to", error))?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(|error| failed("no delay to", error))?;
        let tls = self.config.security.as_ref().map(|security| security.client()).transpose();
        let tls = tls.map_err(|why| FabricError::Distrusted { peer, why })?;
        match connect(&socket, &addr) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(_) => return Err(FabricError::PeerDead { peer }),
        }
        let mut links = self.links.lock();
        if let Some(error) = &links.stopped {
            return Err(error.clone());
        }
        let token = links.next_token;
        links.next_token += 1;
        let link =
            Arc::new(Link::new(token, peer, Pipe::new(socket, tls), hello, Arc::clone(self)));
        epoll::add(&self.epoll, link.socket(), EventData::new_u64(token), link.interest())
            .map_err(|error| failed("no readiness of", error))?;
        links.by_token.insert(token, Arc::clone(&link));
        Ok(link)
    }

    /// Ends every link with `error`, and the thread. Nothing happens the second time.
    pub(super) fn stop(&self, error: FabricError) {
        let mut links = self.links.lock();
        if links.stopped.is_some() {
            return;
        }
        links.stopped = Some(error.clone());
        let by_token = mem::take(&mut links.by_token);
        drop(links);
        // It fails only when the count overflows, and then the thread is about to wake anyhow.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        for link in by_token.values() {
            link.end(error.clone());
        }
    }

    /// The links to `peer`.
    pub(super) fn links_to(&self, peer: PeerId) -> Vec<Arc<Link>> {
        let links = self.links.lock();
        let to_it = links.by_token.values().filter(|link| link.peer() == peer);
        to_it.map(Arc::clone).collect()
    }

    pub(super) fn forget(&self, token: u64, socket: &OwnedFd) {
        // It fails if the link was not entered.
        let _ = epoll::delete(&self.epoll, socket);
        let link = self.links.lock().by_token.remove(&token);
        // Not under the lock: it may be the last.
        drop(link);
    }

    pub(super) fn set_interest(&self, token: u64, socket: &OwnedFd, interest: EventFlags) {
        // It fails if the link was forgotten, and then nobody needs it.
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(token), interest);
    }

    pub(super) fn chain_begins(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn chain_ends(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether exactly one chain of the node has no outcome. A guess, as others may post now.
    pub(super) fn one_is_alone(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) == 1
    }

    pub(super) fn config(&self) -> &TcpConfig {
        &self.config
    }

    pub(super) fn now(&self) -> Duration {
        self.env.now()
    }

    pub(super) fn note_bad_link(&self, error: WireError) {
        self.host.note_bad(error);
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(MOST_EVENTS);
        let mut watched = HashMap::new();
        let look_every = self.config.look_every();
        let mut looked = self.now();
        let mut accepts = true;
        while self.links.lock().stopped.is_none() {
            let rest = (looked + look_every).saturating_sub(self.now());
            // Interrupted: as if it was time to look.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timespec(rest)));
            for event in events.drain(..) {
                match event.data.u64() {
                    BELL => {}
                    LISTENER => accepts = self.host.accept(),
                    token => self.serve(token, event.flags),
                }
                if !accepts {
                    // No descriptors, no threads: others may give some back until the next look.
                    self.set_accepting(EventFlags::empty());
                }
            }
            if self.now().saturating_sub(looked) >= look_every {
                looked = self.now();
                self.look_after_links(&mut watched, looked);
                if !mem::replace(&mut accepts, true) {
                    self.set_accepting(EventFlags::IN);
                }
            }
        }
    }

    fn set_accepting(&self, interest: EventFlags) {
        self.host
            .with_listener(|listener| {
                // It fails only if the listener is being closed.
                let _ =
                    epoll::modify(&self.epoll, listener, EventData::new_u64(LISTENER), interest);
                Ok::<(), Errno>(())
            })
            .unwrap_or_default();
    }

    fn serve(&self, token: u64, ready: EventFlags) {
        let link = self.links.lock().by_token.get(&token).map(Arc::clone);
        let Some(link) = link else { return };
        if ready.contains(EventFlags::OUT) {
            link.go_on_sending();
        }
        if ready.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
        {
            link.drive_after_others();
        }
    }

    /// Ends links whose peer owes a sign of life for too long; asks the others for one.
    fn look_after_links(&self, watched: &mut HashMap<u64, Watch>, now: Duration) {
        let links: Vec<_> =
            self.links.lock().by_token.iter().map(|(t, link)| (*t, Arc::clone(link))).collect();
        let known = |token: &u64| links.iter().any(|(t, _)| t == token);
        watched.retain(|token, _| known(token));
        for (token, link) in &links {
            // For chains whose completion nobody polls.
            link.drive();
            let (signs, owes) = link.signs_of_life();
            let watch = watched.entry(*token).or_insert(Watch { signs, since: now });
            if watch.signs != signs {
                *watch = Watch { signs, since: now };
                continue;
            }
            let silent = now.saturating_sub(watch.since);
            if owes && silent >= self.config.dead_after {
                link.end(FabricError::PeerDead { peer: link.peer() });
            } else if !owes {
                // The clock of the answer starts now. Whether it comes is all that matters.
                watch.since = now;
                drop(link.post(crate::verb::Chain::new()));
            }
        }
    }
}

/// Since when a link has shown no sign of life.
struct Watch {
    signs: u64,
    since: Duration,
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Blocks until something can be received from `socket`, or it is closed.
pub(super) fn wait_readable(socket: &OwnedFd, at_most: Duration) {
    let mut sockets = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    // Whatever it says, the caller looks.
    let _ = poll(&mut sockets, Some(&timespec(at_most)));
}
