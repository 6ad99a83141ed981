//! The driver of a node: a thread that accepts connections, receives for completions that no thread
//! polls, sends what sockets did not take at once, and watches silent peers.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::link::{Link, LinkTable};
use super::reactor::{FIRST_LINK, LISTENER, Reactor, WAKE};
use crate::env::Env;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::tcp::config::TcpConfig;
use crate::tcp::server::host::Host;
use crate::tcp::transport::pipe::Pipe;
use crate::verb::Chain;

/// Most events that the driver takes at once.
const MAX_EVENTS: usize = 256;

pub(crate) struct Driver {
    reactor: Arc<Reactor>,
    links: Mutex<Links>,
}

#[derive(Default)]
struct Links {
    by_token: HashMap<u64, Arc<Link>>,
    next_token: u64,
    /// Why the driver has stopped. It takes no more links then.
    stopped: Option<FabricError>,
}

impl Driver {
    /// Starts the driver of `host`; it ends with [`Driver::stop`].
    pub(crate) fn start(host: Arc<Host>, config: TcpConfig, env: Env) -> io::Result<Arc<Self>> {
        let reactor = Arc::new(Reactor::new(host, config, env)?);
        let links = Mutex::new(Links { next_token: FIRST_LINK, ..Links::default() });
        let driver = Arc::new(Self { reactor, links });
        let thread = Arc::clone(&driver);
        thread::Builder::new().name("tcp-driver".into()).spawn(move || thread.run())?;
        Ok(driver)
    }

    /// Begins to connect to `addr`.
    pub(crate) fn connect(
        self: &Arc<Self>,
        peer: PeerId,
        addr: SocketAddr,
        hello: Vec<u8>,
    ) -> Result<Arc<Link>, FabricError> {
        let failed = |what: &str, error: Errno| FabricError::Network {
            peer: self.reactor.host().id(),
            what: format!("{what} {addr}: {error}"),
        };
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|error| failed("no socket to", error))?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(|error| failed("no delay to", error))?;
        let security = self.config().security.as_ref();
        let tls = security.map(|security| security.client()).transpose();
        let tls = tls.map_err(|why| FabricError::Tls { peer, why })?;
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
        let pipe = Pipe::new(socket, tls);
        let table: Weak<Self> = Arc::downgrade(self);
        let link = Arc::new(Link::new(token, peer, pipe, hello, Arc::clone(&self.reactor), table));
        self.reactor
            .add(token, link.socket(), link.interest())
            .map_err(|error| failed("no readiness of", error))?;
        links.by_token.insert(token, Arc::clone(&link));
        Ok(link)
    }

    /// Ends every link with `error`, and the thread. The second call does nothing.
    pub(crate) fn stop(&self, error: FabricError) {
        let mut links = self.links.lock();
        if links.stopped.is_some() {
            return;
        }
        links.stopped = Some(error.clone());
        let by_token = mem::take(&mut links.by_token);
        drop(links);
        self.reactor.wake();
        for link in by_token.values() {
            link.end(error.clone());
        }
    }

    /// The links to `peer`.
    pub(crate) fn links_to(&self, peer: PeerId) -> Vec<Arc<Link>> {
        let links = self.links.lock();
        let to_peer = links.by_token.values().filter(|link| link.peer() == peer);
        to_peer.map(Arc::clone).collect()
    }

    pub(crate) fn config(&self) -> &TcpConfig {
        self.reactor.config()
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let mut liveness = HashMap::new();
        let check_every = self.config().check_every();
        let mut checked = self.reactor.now();
        let mut accepts = true;
        while self.links.lock().stopped.is_none() {
            let rest = (checked + check_every).saturating_sub(self.reactor.now());
            self.reactor.wait(&mut events, rest);
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE => {}
                    LISTENER => accepts = self.reactor.host().accept(),
                    token => self.serve(token, event.flags),
                }
                if !accepts {
                    // The system has no descriptors or threads left. It may have some again at the
                    // next check.
                    self.reactor.set_accepting(EventFlags::empty());
                }
            }
            if self.reactor.now().saturating_sub(checked) >= check_every {
                checked = self.reactor.now();
                self.check_links(&mut liveness, checked);
                if !mem::replace(&mut accepts, true) {
                    self.reactor.set_accepting(EventFlags::IN);
                }
            }
        }
    }

    fn serve(&self, token: u64, ready: EventFlags) {
        let link = self.links.lock().by_token.get(&token).map(Arc::clone);
        let Some(link) = link else { return };
        if ready.contains(EventFlags::OUT) {
            link.continue_sending();
        }
        if ready.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
        {
            link.drive_after_others();
        }
    }

    /// Ends links whose peer has owed a sign of life for too long. Asks the others for one.
    fn check_links(&self, liveness: &mut HashMap<u64, Liveness>, now: Duration) {
        let links: Vec<_> =
            self.links.lock().by_token.iter().map(|(t, link)| (*t, Arc::clone(link))).collect();
        let known = |token: &u64| links.iter().any(|(t, _)| t == token);
        liveness.retain(|token, _| known(token));
        for (token, link) in &links {
            // For chains whose completion no thread polls.
            link.drive();
            let (signs, owes) = link.signs_of_life();
            let seen = liveness.entry(*token).or_insert(Liveness { signs, since: now });
            if seen.signs != signs {
                *seen = Liveness { signs, since: now };
                continue;
            }
            let silent = now.saturating_sub(seen.since);
            if owes && silent >= self.config().dead_after {
                link.end(FabricError::PeerDead { peer: link.peer() });
            } else if !owes {
                // The time for the answer begins now. Only whether it comes is of interest.
                seen.since = now;
                drop(link.post(Chain::new()));
            }
        }
    }
}

impl LinkTable for Driver {
    fn remove(&self, token: u64) {
        let link = self.links.lock().by_token.remove(&token);
        // Dropped without the lock: this may be the last reference to the link.
        drop(link);
    }
}

/// Since when a link has shown no sign of life.
struct Liveness {
    signs: u64,
    since: Duration,
}
