//! The host: the side of a node that lends memory. It listens, hears who comes, and admits
//! connections, one thread a connection; what they ask for is executed in their `session`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::blocking::{Blocking, distrust_of};
use super::common::Common;
use super::error::WireError;
use super::guests::{Admitted, Guests, Invitation, MAX_CONNECTIONS};
use super::hello::{self, HELLO_BYTES, Hello};
use super::others::{HandedOver, Handler, MAX_HANDED_OVER};
use super::session::{Ended, Guest, Session};
use super::tls;
use crate::distrust::Distrust;
use crate::error::Refusal;
use crate::id::PeerId;
use crate::mem::node::Node;
use crate::stream::Stream;

/// How long a connection may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(2);
/// Threads that serve connections; those above what is served are for saying no.
const MAX_THREADS: usize = MAX_CONNECTIONS + MAX_HANDED_OVER + 64;
pub(super) struct Host {
    node: Node,
    incarnation: u64,
    listen_addr: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    guests: Mutex<Guests<Guest>>,
    handed_over: HandedOver,
    threads: AtomicUsize,
    bad: Mutex<BadConnections>,
    common: Arc<Common>,
}

/// Connections that were closed for what came over them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BadConnections {
    /// How many.
    pub count: u64,
    /// What was wrong with the latest.
    pub latest: Option<WireError>,
}

impl Host {
    /// A host that listens. Connections are accepted when [`Host::accept`] is called.
    pub(super) fn listen(
        id: PeerId,
        incarnation: u64,
        common: Arc<Common>,
    ) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind(common.config.listen)?;
        listener.set_nonblocking(true)?;
        let listen_addr = listener.local_addr()?;
        Ok(Arc::new(Self {
            node: Node::new(id),
            incarnation,
            listen_addr,
            listener: Mutex::new(Some(listener)),
            guests: Mutex::new(Guests::new(common.config.admission)),
            handed_over: HandedOver::default(),
            threads: AtomicUsize::new(0),
            bad: Mutex::new(BadConnections::default()),
            common,
        }))
    }

    pub(super) fn id(&self) -> PeerId {
        self.node.id()
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn listen_addr(&self) -> SocketAddr {
        self.listen_addr
    }

    /// Does something with the listener, if there still is one.
    pub(super) fn with_listener<E>(
        &self,
        action: impl FnOnce(&TcpListener) -> Result<(), E>,
    ) -> Result<(), E> {
        self.listener.lock().as_ref().map_or(Ok(()), action)
    }

    pub(super) fn note_bad(&self, error: WireError) {
        let mut bad = self.bad.lock();
        bad.count += 1;
        bad.latest = Some(error);
    }

    pub(super) fn bad_connections(&self) -> BadConnections {
        *self.bad.lock()
    }

    /// The node is dead: it listens no more, and no verb executes after this returns.
    pub(super) fn close(&self) {
        self.node.kill();
        drop(self.listener.lock().take());
        let guests = self.guests.lock().close();
        guests.iter().for_each(|guest| guest.close());
        self.handed_over.close();
    }

    /// Once this returns no verb of `of`, as it is, executes here; see [`Guests::revoke`].
    pub(super) fn revoke(&self, of: PeerId, known: Option<u64>) {
        let guests = self.guests.lock().revoke(of, known);
        guests.iter().for_each(|guest| guest.close());
    }

    /// Invites `guest`; see [`Guests::invite`].
    pub(super) fn invite(&self, guest: PeerId, invitation: Invitation) {
        let mut fenced = self.common.fenced.lock();
        let (others, is_another) = self.guests.lock().invite(guest, invitation);
        if is_another {
            fenced.forget_unseen(guest);
        }
        drop(fenced);
        others.iter().for_each(|guest| guest.close());
    }

    /// Once this returns no verb of `guest` executes here before it is invited again.
    pub(super) fn uninvite(&self, guest: PeerId) {
        let guests = self.guests.lock().uninvite(guest);
        guests.iter().for_each(|guest| guest.close());
    }

    /// The guests, to be asked under the lock of [`Common::fenced`].
    pub(super) fn guests(&self) -> MutexGuard<'_, Guests<Guest>> {
        self.guests.lock()
    }

    /// Accepts what has come. Returns whether the system has what it takes to accept more.
    pub(super) fn accept(self: &Arc<Self>) -> bool {
        loop {
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
            if self.threads.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
                self.threads.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let served = Served(Arc::clone(self));
            let serve = move || served.0.serve(stream, addr);
            if thread::Builder::new().name("tcp-host".into()).spawn(serve).is_err() {
                return false;
            }
        }
    }

    /// Serves one connection until it ends.
    fn serve(&self, stream: TcpStream, addr: SocketAddr) {
        let until = self.common.env.now() + HELLO_WITHIN;
        let mut stream = match self.secure(stream, until) {
            Ok(stream) => stream,
            Err(why) => return self.note(why),
        };
        let hello = match self.hear_beginning(&mut stream, until) {
            Ok(Beginning::Hello(hello)) => hello,
            Ok(Beginning::Other(handler)) => return self.handed_over.hand(stream, addr, &handler),
            Ok(Beginning::Tls) => {
                self.note_bad(WireError::Distrusted { why: Distrust::PeerSpeaksTls });
                return stream.part(&tls::NOTHING_OVER_TLS, HELLO_WITHIN);
            }
            Err(why) => return self.note(why),
        };
        let guest = Arc::new(Guest::new(Arc::clone(stream.socket())));
        let admitted = match self.welcome(&guest, hello, &mut stream) {
            Ok(Some(admitted)) => admitted,
            Ok(None) => return,
            Err(why) => return self.note(why),
        };
        let _leaves = Leaves { host: self, token: admitted.token };
        let session = Session::new(&self.node, &self.common, &guest, admitted.domain, stream);
        if let Err(why) = session.run() {
            self.note(why);
        }
        guest.close();
    }

    /// The connection, with TLS if this node's connections have it.
    fn secure(&self, stream: TcpStream, until: Duration) -> Result<Blocking, Ended> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let mut stream = Blocking::new(stream);
        let Some(security) = &self.common.config.security else { return Ok(stream) };
        let tls = security.server().map_err(|why| WireError::Distrusted { why })?;
        let Err(error) = stream.secure(tls, until.saturating_sub(self.common.env.now())) else {
            return Ok(stream);
        };
        if distrust_of(&error).is_none() {
            let is_slow =
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
            return Err(if is_slow { WireError::NoHello.into() } else { Ended::Gone });
        }
        self.note(error.into());
        // What is wrong with it, it has been told.
        stream.part(&[], HELLO_WITHIN);
        Err(Ended::Gone)
    }

    fn note(&self, why: Ended) {
        if let Ended::Bad(error) = why {
            self.note_bad(error);
        }
    }

    /// Answers the hello. Returns as what the connection was admitted.
    fn welcome(
        &self,
        guest: &Arc<Guest>,
        hello: Result<Hello, Refusal>,
        stream: &mut Blocking,
    ) -> Result<Option<Admitted>, Ended> {
        let hello = hello.and_then(|hello| match () {
            () if hello.pool != self.common.config.pool => Err(Refusal::Pool),
            () if hello.to != self.id() => Err(Refusal::Name),
            () => Ok(hello),
        });
        let admitted = match hello {
            Ok(hello) => {
                let silence = Duration::from_millis(u64::from(hello.keepalive_ms));
                let patience = self.common.config.dead_after.max(2 * silence);
                stream.set_timeouts(patience)?;
                let mut fenced = self.common.fenced.lock();
                let admitted = self.guests.lock().admit(&hello, guest, &mut fenced);
                drop(fenced);
                let Some(admitted) = admitted else { return Ok(None) };
                admitted
            }
            Err(why) => Err(why),
        };
        let verdict = admitted.as_ref().map(|_| ()).map_err(|why| *why);
        let replied = stream.write_all(&hello::encode_reply(verdict));
        let admitted = admitted.ok();
        if replied.is_err() {
            let tokens = admitted.iter().map(|admitted| admitted.token);
            tokens.for_each(|token| self.guests.lock().leave(token));
            return Err(Ended::Gone);
        }
        Ok(admitted)
    }

    /// Hears what a connection begins with: the one word that says who serves it, or all of a
    /// hello, so that who is refused has nothing under way that would break the reply.
    fn hear_beginning(&self, stream: &mut Blocking, until: Duration) -> Result<Beginning, Ended> {
        let mut heard = Vec::with_capacity(HELLO_BYTES);
        self.hear(stream, &mut heard, hello::MAGIC_BYTES, until)?;
        let handler = hello::other_magic(&heard).and_then(|magic| self.common.handlers.of(magic));
        if let Some(handler) = handler {
            stream.set_unlimited()?;
            return Ok(Beginning::Other(handler));
        }
        if self.common.config.security.is_none() && tls::is_client_hello(&heard) {
            return Ok(Beginning::Tls);
        }
        loop {
            let wanted = hello::hello_bytes(&heard)?;
            if heard.len() >= wanted {
                return Ok(Beginning::Hello(Hello::decode(&heard)?));
            }
            self.hear(stream, &mut heard, wanted, until)?;
        }
    }

    /// Hears until there are so many bytes, all of which have to come in time.
    fn hear(
        &self,
        stream: &mut Blocking,
        heard: &mut Vec<u8>,
        wanted: usize,
        until: Duration,
    ) -> Result<(), Ended> {
        let mut count = heard.len();
        heard.resize(wanted, 0);
        while let Some(room) = heard.get_mut(count..).filter(|room| !room.is_empty()) {
            let rest = until.saturating_sub(self.common.env.now());
            if rest.is_zero() {
                return Err(WireError::NoHello.into());
            }
            stream.set_timeouts(rest)?;
            match stream.read(room) {
                Ok(0) => return Err(Ended::Gone),
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

/// What a connection begins with.
enum Beginning {
    Hello(Result<Hello, Refusal>),
    /// What this serves.
    Other(Handler),
    /// TLS, which nobody speaks here.
    Tls,
}

/// Counts a thread while it serves.
struct Served(Arc<Host>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Strikes a connection off the list when its thread ends, however it does.
struct Leaves<'h> {
    host: &'h Host,
    token: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.host.guests.lock().leave(self.token);
    }
}
