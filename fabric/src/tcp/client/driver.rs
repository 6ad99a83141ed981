//! The driver of a node: a thread that accepts connections, receives for completions that no thread
//! polls, sends what sockets did not take at once, connects links again whose connection broke, and
//! watches silent peers.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::link::{Link, LinkTable};
use super::link_state::FIRST_INTEREST;
use super::reactor::{FIRST_LINK, LISTENER, Reactor, WAKE};
use super::silence::{Silence, SilenceVerdict};
use crate::env::Env;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::tcp::config::TcpConfig;
use crate::tcp::security::tls::Tls;
use crate::tcp::server::host::Host;
use crate::tcp::transport::pipe::Pipe;
use crate::tcp::wire::hello::Hello;
use crate::tls_error::TlsError;
use crate::verb::Chain;

/// Most events that the driver takes at once.
const MAX_EVENTS: usize = 256;
/// The pause before a link connects again for which there was no socket, or no way to its peer.
const NO_WAY_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Driver {
    reactor: Arc<Reactor>,
    links: Mutex<Links>,
}

#[derive(Default)]
struct Links {
    by_token: HashMap<u64, Arc<Link>>,
    next_token: u64,
    /// When to connect which links again.
    due: Vec<(Duration, u64)>,
    /// The peers to which the latest link that ended did so by silence: its token, and how long
    /// they were silent.
    silent: HashMap<PeerId, (u64, Duration)>,
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
        hello: Hello,
    ) -> Result<Arc<Link>, FabricError> {
        let failed = |what: &str, error: Errno| FabricError::Network {
            peer: self.reactor.host().id(),
            what: format!("{what} {addr}: {error}"),
        };
        let tls = self.tls().map_err(|why| FabricError::Tls { peer, why })?;
        let socket = begin_to_connect(addr).map_err(|error| match error {
            ConnectError::NoSocket(error) => failed("no socket to", error),
            ConnectError::NotListening => FabricError::PeerDead { peer },
            // Of the way there, this node's own mostly: it says nothing of the peer.
            ConnectError::NoWay(error) => failed("no way to", error),
        })?;
        let mut links = self.links.lock();
        if let Some(error) = &links.stopped {
            return Err(error.clone());
        }
        let token = links.next_token;
        links.next_token += 1;
        let pipe = Arc::new(Pipe::new(socket, tls));
        let (table, reactor): (Weak<Self>, _) = (Arc::downgrade(self), Arc::clone(&self.reactor));
        let link = Link::new(token, (peer, addr), Arc::clone(&pipe), hello, reactor, table);
        self.reactor
            .add(token, pipe.socket(), FIRST_INTEREST)
            .map_err(|error| failed("no readiness of", error))?;
        let link = Arc::new(link);
        links.by_token.insert(token, Arc::clone(&link));
        Ok(link)
    }

    /// The TLS of a new connection, if this node secures its connections.
    fn tls(&self) -> Result<Option<Tls>, TlsError> {
        let security = self.config().security.as_ref();
        security.map(|security| security.client()).transpose()
    }

    /// Connects the links again for which it is time. Returns when the next one is due.
    fn connect_again(&self, now: Duration) -> Option<Duration> {
        let mut links = self.links.lock();
        let (due, later): (Vec<_>, Vec<_>) =
            mem::take(&mut links.due).into_iter().partition(|(at, _)| *at <= now);
        let next = later.iter().map(|(at, _)| *at).min();
        links.due = later;
        let due = due.iter().filter_map(|(_, token)| links.by_token.get(token).map(Arc::clone));
        let due: Vec<_> = due.collect();
        drop(links);
        for link in due {
            let peer = link.peer();
            match (self.tls(), begin_to_connect(link.addr())) {
                (Ok(tls), Ok(socket)) => link.connect_over(Pipe::new(socket, tls)),
                (Err(why), _) => link.end(FabricError::Tls { peer, why }),
                (_, Err(ConnectError::NotListening)) => link.end(FabricError::PeerDead { peer }),
                (_, Err(_)) => self.reconnect(link.token(), NO_WAY_PAUSE),
            }
        }
        next
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
        let mut silences = HashMap::new();
        let check_every = self.config().check_every();
        let mut checked = self.reactor.now();
        let mut accepts = true;
        while self.links.lock().stopped.is_none() {
            let now = self.reactor.now();
            let check_at = checked + check_every;
            let until = self.connect_again(now).map_or(check_at, |due| due.min(check_at));
            self.reactor.wait(&mut events, until.saturating_sub(now));
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE => self.reactor.woken(),
                    LISTENER => accepts = self.reactor.host().accept(),
                    token => self.serve(token, event.flags),
                }
                if !accepts {
                    // The system has no descriptors or threads left. It may have some again at the
                    // next check.
                    self.reactor.set_accepting(EventFlags::empty());
                }
            }
            let since = self.reactor.now().saturating_sub(checked);
            if since >= check_every {
                checked = self.reactor.now();
                // A driver that stood still knows nothing of that time.
                self.check_links(&mut silences, since.min(2 * check_every));
                self.reactor.host().discard_sessions();
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

    /// Looks for signs of life of the peers, `since` the last look, and asks for some.
    fn check_links(&self, silences: &mut HashMap<u64, Silence>, since: Duration) {
        let links: Vec<_> =
            self.links.lock().by_token.iter().map(|(t, link)| (*t, Arc::clone(link))).collect();
        let known = |token: &u64| links.iter().any(|(t, _)| t == token);
        silences.retain(|token, _| known(token));
        for (token, link) in &links {
            // For chains whose completion no thread polls.
            link.drive();
            let (signs, owes) = link.signs_of_life();
            let silence = silences.entry(*token).or_insert_with(|| Silence::new(signs));
            match silence.look(self.config(), signs, owes, since) {
                SilenceVerdict::Lives => {}
                // The time for the answer begins now. Only whether it comes is of interest.
                SilenceVerdict::Ask => drop(link.post(Chain::new())),
                SilenceVerdict::ConnectAgain => link.give_connection_up(),
                SilenceVerdict::Dead => {
                    let peer = link.peer();
                    // Before the end is seen.
                    self.note_silence(*token, peer);
                    link.end(FabricError::PeerDead { peer });
                }
            }
        }
    }

    /// The link of this token ends by silence.
    fn note_silence(&self, token: u64, peer: PeerId) {
        let silent = self.config().dead_after;
        self.links.lock().silent.insert(peer, (token, silent));
    }

    /// See [`crate::Endpoint::silence_of`].
    pub(crate) fn silence_of(&self, peer: PeerId) -> Duration {
        self.links.lock().silent.get(&peer).map_or(Duration::ZERO, |(_, silent)| *silent)
    }
}

impl LinkTable for Driver {
    fn remove(&self, token: u64, was_dropped: bool) {
        let mut links = self.links.lock();
        let link = links.by_token.remove(&token);
        if let Some(peer) = link.as_ref().map(|link| link.peer()).filter(|_| !was_dropped)
            && links.silent.get(&peer).is_some_and(|(silent, _)| *silent != token)
        {
            links.silent.remove(&peer);
        }
        drop(links);
        // Dropped without the lock: this may be the last reference to the link.
        drop(link);
    }

    #[cfg(feature = "verbs")]
    fn note_silent(&self, token: u64, peer: PeerId) {
        self.note_silence(token, peer);
    }

    fn reconnect(&self, token: u64, pause: Duration) {
        let at = self.reactor.now() + pause;
        self.links.lock().due.push((at, token));
        self.reactor.wake();
    }
}

/// Why there is not even the begin of a connection.
enum ConnectError {
    /// The system has no socket for it.
    NoSocket(Errno),
    /// No process listens there.
    NotListening,
    /// The address cannot be reached now.
    NoWay(Errno),
}

/// A socket that is connecting to `addr`.
fn begin_to_connect(addr: SocketAddr) -> Result<OwnedFd, ConnectError> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(family, SocketType::STREAM, flags, None).map_err(ConnectError::NoSocket)?;
    sockopt::set_tcp_nodelay(&socket, true).map_err(ConnectError::NoSocket)?;
    match connect(&socket, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(Errno::CONNREFUSED) => Err(ConnectError::NotListening),
        Err(error) => Err(ConnectError::NoWay(error)),
    }
}
