//! The host: listens, accepts connections, and admits peers. One thread serves each connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::admissions::{Admissions, AdmittedConnection, Invitation, MAX_CONNECTIONS};
use super::connection::{Connection, ConnectionEnd};
use super::newcomers::{MAX_NEWCOMERS, Newcomers};
use super::port_mux::{ForeignConnections, MAX_FOREIGN_CONNECTIONS, ProtocolHandler};
use super::session::Session;
use super::setup::{Guest, SetupService};
use crate::error::Refusal;
use crate::id::PeerId;
use crate::mem::node::Node;
use crate::role::Role;
use crate::stream::Stream;
use crate::tcp::process::ProcessState;
use crate::tcp::security::tls;
use crate::tcp::transport::blocking::{Blocking, tls_error_of};
use crate::tcp::wire::error::WireError;
use crate::tcp::wire::hello::{self, HELLO_BYTES, Hello};
use crate::tls_error::TlsError;

/// How long a connection may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Most threads that serve connections: those that were let in, newcomers, and as many that are
/// about to end, as their connections made room for others.
const MAX_THREADS: usize = MAX_CONNECTIONS + MAX_FOREIGN_CONNECTIONS + 2 * MAX_NEWCOMERS;

/// See the module.
pub(crate) struct Host {
    node: Node,
    incarnation: u64,
    listen_addr: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    admissions: Mutex<Admissions<Session>>,
    newcomers: Arc<Newcomers>,
    foreign: Arc<ForeignConnections>,
    threads: AtomicUsize,
    bad: Mutex<BadConnections>,
    process: Arc<ProcessState>,
    setup: Option<Arc<dyn SetupService>>,
}

/// Connections that were closed because of bad bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BadConnections {
    /// How many.
    pub count: u64,
    /// The error of the latest one.
    pub latest: Option<WireError>,
}

impl Host {
    /// A host that listens. It accepts connections when [`Host::accept`] is called.
    pub(in crate::tcp) fn listen(
        id: PeerId,
        incarnation: u64,
        process: Arc<ProcessState>,
        setup: Option<Arc<dyn SetupService>>,
    ) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind(process.config.listen)?;
        listener.set_nonblocking(true)?;
        let listen_addr = listener.local_addr()?;
        Ok(Arc::new(Self {
            node: Node::new(id),
            incarnation,
            listen_addr,
            listener: Mutex::new(Some(listener)),
            admissions: Mutex::new(Admissions::new(process.config.admission)),
            newcomers: Arc::default(),
            foreign: Arc::default(),
            threads: AtomicUsize::new(0),
            bad: Mutex::new(BadConnections::default()),
            process,
            setup,
        }))
    }

    pub(crate) fn id(&self) -> PeerId {
        self.node.id()
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(crate) fn listen_addr(&self) -> SocketAddr {
        self.listen_addr
    }

    /// Runs `action` on the listener, unless the host was closed.
    pub(crate) fn with_listener<E>(
        &self,
        action: impl FnOnce(&TcpListener) -> Result<(), E>,
    ) -> Result<(), E> {
        self.listener.lock().as_ref().map_or(Ok(()), action)
    }

    pub(crate) fn note_bad(&self, error: WireError) {
        let mut bad = self.bad.lock();
        bad.count += 1;
        bad.latest = Some(error);
    }

    pub(crate) fn bad_connections(&self) -> BadConnections {
        *self.bad.lock()
    }

    /// The node is dead: stops to listen. No verb executes after this returns.
    pub(crate) fn close(&self) {
        self.node.kill();
        drop(self.listener.lock().take());
        let sessions = self.admissions.lock().close();
        sessions.iter().for_each(|session| session.close());
        self.newcomers.close();
        self.foreign.close();
    }

    /// Revokes the incarnation of `of`; see [`Admissions::revoke`]. Once this returns, no verb of
    /// it executes here.
    pub(crate) fn revoke(&self, of: PeerId, known: Option<u64>) {
        let sessions = self.admissions.lock().revoke(of, known);
        sessions.iter().for_each(|session| session.close());
    }

    /// Invites `guest`; see [`Admissions::invite`].
    pub(crate) fn invite(&self, guest: PeerId, invitation: Invitation) {
        let mut fenced = self.process.fenced.lock();
        let (others, is_successor) = self.admissions.lock().invite(guest, invitation);
        if is_successor {
            fenced.forget_unseen(guest);
        }
        drop(fenced);
        others.iter().for_each(|session| session.close());
    }

    /// Withdraws the invitation of `guest`. Once this returns, no verb of it executes here until it
    /// is invited again.
    pub(crate) fn uninvite(&self, guest: PeerId) {
        let sessions = self.admissions.lock().uninvite(guest);
        sessions.iter().for_each(|session| session.close());
    }

    /// The admissions, to be changed under the lock of [`ProcessState::fenced`].
    pub(crate) fn admissions(&self) -> MutexGuard<'_, Admissions<Session>> {
        self.admissions.lock()
    }

    /// Accepts the waiting connections. Returns `false` if the system has no descriptors or threads
    /// for more.
    pub(crate) fn accept(self: &Arc<Self>) -> bool {
        loop {
            // The rest waits in the system's queue for threads that are about to end.
            if self.threads.load(Ordering::Relaxed) >= MAX_THREADS {
                return false;
            }
            let accepted = match &*self.listener.lock() {
                None => return true,
                Some(listener) => listener.accept(),
            };
            let (stream, addr) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return true,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return false,
                },
            };
            self.threads.fetch_add(1, Ordering::Relaxed);
            let guard = ThreadGuard(Arc::clone(self));
            let serve = move || guard.0.serve(stream, addr);
            if thread::Builder::new().name("tcp-host".into()).spawn(serve).is_err() {
                return false;
            }
        }
    }

    /// Serves one connection until it ends.
    fn serve(&self, stream: TcpStream, addr: SocketAddr) {
        let until = self.process.env.now() + HELLO_TIMEOUT;
        let stream = Blocking::new(stream);
        let newcomer = self.newcomers.enter(addr.ip(), Arc::clone(stream.socket()));
        let Some(newcomer) = newcomer else { return };
        let mut stream = match self.secure(stream, until) {
            Ok(stream) => stream,
            Err(why) => return self.note(why),
        };
        let hello = match self.read_opening(&mut stream, until) {
            Ok(Opening::Hello(hello)) => hello,
            Ok(Opening::Foreign(handler)) => {
                return self.foreign.serve(stream, addr, &handler, newcomer);
            }
            Ok(Opening::Tls) => {
                self.note_bad(WireError::Tls { why: TlsError::PeerSpeaksTls });
                return stream.send_last(&tls::NO_TLS_ALERT, HELLO_TIMEOUT);
            }
            Err(why) => return self.note(why),
        };
        let admitted = match self.answer_hello(hello, &mut stream) {
            Ok(Some(admitted)) => admitted,
            Ok(None) => return,
            Err(why) => return self.note(why),
        };
        drop(newcomer);
        let AcceptedConnection { of: AdmittedConnection { name, session, domain }, number } =
            admitted;
        let _guard = ConnectionGuard { host: self, session: &session, number };
        let own = (&*session, number);
        let (peer, incarnation, _) = name;
        let guest = Guest { peer, incarnation, domain };
        let of = (guest, self.setup.as_deref());
        let ended = Connection::new(&self.node, &self.process, own, of, stream).run();
        if let Err(why @ ConnectionEnd::Bad(_)) = ended {
            // A peer that sends bad bytes is not one to go on with.
            self.admissions.lock().leave(name);
            session.close();
            self.note(why);
        }
    }

    /// Discards the sessions that have had no connection for too long.
    pub(crate) fn discard_sessions(&self) {
        let (now, kept_for) = (self.process.env.now(), self.process.config.keeps_sessions_for());
        let mut admissions = self.admissions.lock();
        let is_over = |session: &Session| is_over(session.unconnected_since(), now, kept_for);
        let over = admissions.sessions().filter(|(_, session)| is_over(session));
        let over: Vec<_> = over.map(|(name, session)| (name, Arc::clone(session))).collect();
        over.iter().for_each(|(name, _)| admissions.leave(*name));
        drop(admissions);
        // One that was taken over meanwhile: its peer learns that it is over.
        over.iter().for_each(|(_, session)| session.close());
    }

    /// Discards the session that has had no connection for longest. Returns whether there is one.
    fn make_room(&self) -> bool {
        let mut admissions = self.admissions.lock();
        let idle = admissions.sessions().filter_map(|(name, session)| {
            Some((session.unconnected_since()?, name, Arc::clone(session)))
        });
        let longest = idle.min_by_key(|(since, ..)| *since);
        longest.iter().for_each(|(_, name, _)| admissions.leave(*name));
        drop(admissions);
        longest.iter().for_each(|(.., session)| session.close());
        longest.is_some()
    }

    /// The connection, with TLS if this node secures its connections.
    fn secure(&self, mut stream: Blocking, until: Duration) -> Result<Blocking, ConnectionEnd> {
        stream.socket().set_nonblocking(false)?;
        stream.socket().set_nodelay(true)?;
        let Some(security) = &self.process.config.security else { return Ok(stream) };
        let tls = security.server().map_err(|why| WireError::Tls { why })?;
        let Err(error) = stream.secure(tls, until.saturating_sub(self.process.env.now())) else {
            return Ok(stream);
        };
        if tls_error_of(&error).is_none() {
            let is_slow =
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
            return Err(if is_slow { WireError::NoHello.into() } else { ConnectionEnd::Closed });
        }
        self.note(error.into());
        // TLS has told the peer the reason.
        stream.send_last(&[], HELLO_TIMEOUT);
        Err(ConnectionEnd::Closed)
    }

    fn note(&self, why: ConnectionEnd) {
        if let ConnectionEnd::Bad(error) = why {
            self.note_bad(error);
        }
    }

    /// Answers the hello. Returns the admission if the connection was admitted.
    fn answer_hello(
        &self,
        hello: Result<Hello, Refusal>,
        stream: &mut Blocking,
    ) -> Result<Option<AcceptedConnection>, ConnectionEnd> {
        let security = self.process.config.security.as_ref();
        let shown = security.and_then(|own| own.of_another(stream.certificate()));
        let role = shown.map(|shown| shown.role);
        let hello = hello.and_then(|hello| match () {
            () if role.is_some_and(|role| !role.may_be(hello.from)) => Err(Refusal::Role),
            () if hello.pool != self.process.config.pool => Err(Refusal::Pool),
            () if hello.to != self.id() => Err(Refusal::Name),
            () => Ok(hello),
        });
        let accepted = match hello {
            Ok(hello) => {
                let silence = Duration::from_millis(u64::from(hello.keepalive_ms));
                let patience = self.process.config.dead_after.max(2 * silence);
                stream.set_timeouts(patience)?;
                let mut admitted = self.admit(&hello, role);
                if matches!(admitted, Some(Err(Refusal::Full))) && self.make_room() {
                    admitted = self.admit(&hello, role);
                }
                let Some(admitted) = admitted else { return Ok(None) };
                admitted.and_then(|of| {
                    let executed = of.session.take_over(stream.socket(), hello.session)?;
                    Ok((executed, AcceptedConnection { of, number: hello.session.attempt }))
                })
            }
            Err(why) => Err(why),
        };
        let verdict = accepted.as_ref().map(|(executed, _)| *executed).map_err(|why| *why);
        let replied = stream.write_all(&hello::encode_reply(verdict));
        let accepted = accepted.ok().map(|(_, accepted)| accepted);
        if replied.is_err() {
            if let Some(AcceptedConnection { of, number }) = accepted {
                of.session.lose(number, self.process.env.now());
            }
            return Err(ConnectionEnd::Closed);
        }
        Ok(accepted)
    }

    fn admit(
        &self,
        hello: &Hello,
        role: Option<Role>,
    ) -> Option<Result<AdmittedConnection<Session>, Refusal>> {
        let mut fenced = self.process.fenced.lock();
        self.admissions.lock().admit(hello, role, &Arc::default(), &mut fenced)
    }

    /// Reads the first bytes of a connection: the magic of its protocol, or a whole hello. The
    /// hello is read whole, because unread bytes could break a refusal on its way to the peer.
    fn read_opening(
        &self,
        stream: &mut Blocking,
        until: Duration,
    ) -> Result<Opening, ConnectionEnd> {
        let mut received = Vec::with_capacity(HELLO_BYTES);
        self.read_until(stream, &mut received, hello::MAGIC_BYTES, until)?;
        let handler =
            hello::other_magic(&received).and_then(|magic| self.process.handlers.of(magic));
        if let Some(handler) = handler {
            stream.set_unlimited()?;
            return Ok(Opening::Foreign(handler));
        }
        if self.process.config.security.is_none() && tls::is_client_hello(&received) {
            return Ok(Opening::Tls);
        }
        loop {
            let wanted = hello::hello_bytes(&received)?;
            if received.len() >= wanted {
                return Ok(Opening::Hello(Hello::decode(&received)?));
            }
            self.read_until(stream, &mut received, wanted, until)?;
        }
    }

    /// Reads until `wanted` bytes are there, at most until the time `until`.
    fn read_until(
        &self,
        stream: &mut Blocking,
        received: &mut Vec<u8>,
        wanted: usize,
        until: Duration,
    ) -> Result<(), ConnectionEnd> {
        let mut count = received.len();
        received.resize(wanted, 0);
        while let Some(room) = received.get_mut(count..).filter(|room| !room.is_empty()) {
            let rest = until.saturating_sub(self.process.env.now());
            if rest.is_zero() {
                return Err(WireError::NoHello.into());
            }
            stream.set_timeouts(rest)?;
            match stream.read(room) {
                Ok(0) => return Err(ConnectionEnd::Closed),
                Ok(more) => count += more,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    io::ErrorKind::TimedOut => {}
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(())
    }
}

/// The first bytes of a connection.
enum Opening {
    Hello(Result<Hello, Refusal>),
    /// Another protocol, with its handler.
    Foreign(ProtocolHandler),
    /// TLS, which this node does not speak.
    Tls,
}

/// Counts a thread while it serves.
struct ThreadGuard(Arc<Host>);

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that has its session.
struct AcceptedConnection {
    of: AdmittedConnection<Session>,
    /// Its number within the session.
    number: u32,
}

/// Takes a connection off its session when its thread returns or panics.
struct ConnectionGuard<'h> {
    host: &'h Host,
    session: &'h Session,
    number: u32,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.session.lose(self.number, self.host.process.env.now());
    }
}

/// Whether a session has had no connection for more than `kept_for`. It may have lost its last one
/// after `now` was read.
fn is_over(unconnected_since: Option<Duration>, now: Duration, kept_for: Duration) -> bool {
    unconnected_since.is_some_and(|at| now.saturating_sub(at) > kept_for)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_loses_its_connection_while_it_is_judged_is_kept() {
        let ms = Duration::from_millis;
        assert!(!is_over(None, ms(900), ms(100)));
        assert!(!is_over(Some(ms(901)), ms(900), ms(100)));
        assert!(!is_over(Some(ms(800)), ms(900), ms(100)));
        assert!(is_over(Some(ms(799)), ms(900), ms(100)));
    }
}
