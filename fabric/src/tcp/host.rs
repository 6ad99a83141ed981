//! The host: the side of a node that lends memory. It listens, admits connections, and executes their verbs,
//! one thread a connection.
//!
//! A thread receives, executes every whole request in its buffer, and answers them with one system call. A
//! chain executes under the *gate* of its connection: whoever closes the gate knows that none executes after.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use smallvec::SmallVec;

use super::buffer::FrameBuffer;
use super::common::Common;
use super::error::WireError;
use super::guests::{Admitted, Guests, Invitation, MAX_CONNECTIONS};
use super::others::{HandedOver, Handler, MAX_HANDED_OVER};
use super::wire::{self, Asked, HELLO_BYTES, Hello, Next, Request, ResponseWriter};
use crate::access::Domain;
use crate::buf::Buf;
use crate::error::{FabricError, Refusal};
use crate::id::PeerId;
use crate::mem::node::{MemRegion, Node};
use crate::mem::queue_pair::apply;
use crate::verb::Verb;

/// How long a connection may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(2);
/// Threads that serve connections; those above what is served are for saying no.
const MAX_THREADS: usize = MAX_CONNECTIONS + MAX_HANDED_OVER + 64;
/// A payload no longer than this is kept for the next verb.
const KEPT_PAYLOAD_BYTES: usize = 64 << 10;
/// Responses as long as this are sent before more requests are executed.
const FULL_ANSWER_BYTES: usize = 256 << 10;

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

/// A connection whose verbs are executed.
pub(super) struct Guest {
    stream: TcpStream,
    /// Whether chains may execute; held while one does.
    gate: Mutex<bool>,
}

impl Guest {
    /// Once this returns nothing executes.
    pub(super) fn close(&self) {
        // It fails if the peer was faster.
        let _ = self.stream.shutdown(Shutdown::Both);
        *self.gate.lock() = false;
    }
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
        let hello = match self.hear_beginning(&stream) {
            Ok(Beginning::Hello(hello)) => hello,
            Ok(Beginning::Other(handler)) => return self.handed_over.hand(stream, addr, &handler),
            Err(why) => return self.note(why),
        };
        let guest = Arc::new(Guest { stream, gate: Mutex::new(true) });
        let admitted = match self.welcome(&guest, hello) {
            Ok(Some(admitted)) => admitted,
            Ok(None) => return,
            Err(why) => return self.note(why),
        };
        let _leaves = Leaves { host: self, token: admitted.token };
        if let Err(why) = Session::new(self, &guest, admitted.domain).run() {
            self.note(why);
        }
        guest.close();
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
    ) -> Result<Option<Admitted>, Ended> {
        let mut stream = &guest.stream;
        let hello = hello.and_then(|hello| match () {
            () if hello.pool != self.common.config.pool => Err(Refusal::Pool),
            () if hello.to != self.id() => Err(Refusal::Name),
            () => Ok(hello),
        });
        let admitted = match hello {
            Ok(hello) => {
                let silence = Duration::from_millis(u64::from(hello.keepalive_ms));
                let patience = self.common.config.dead_after.max(2 * silence);
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                let mut fenced = self.common.fenced.lock();
                let admitted = self.guests.lock().admit(&hello, guest, &mut fenced);
                drop(fenced);
                let Some(admitted) = admitted else { return Ok(None) };
                admitted
            }
            Err(why) => Err(why),
        };
        let verdict = admitted.as_ref().map(|_| ()).map_err(|why| *why);
        let replied = stream.write_all(&wire::encode_reply(verdict));
        let admitted = admitted.ok();
        if replied.is_err() {
            let tokens = admitted.iter().map(|admitted| admitted.token);
            tokens.for_each(|token| self.guests.lock().leave(token));
            return Err(Ended::Gone);
        }
        Ok(admitted)
    }

    /// Hears what a connection begins with: the one word that says who serves it, or all of a hello, so that
    /// who is refused has nothing under way that would break the reply.
    fn hear_beginning(&self, stream: &TcpStream) -> Result<Beginning, Ended> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(HELLO_WITHIN))?;
        let until = self.common.env.now() + HELLO_WITHIN;
        let mut heard = Vec::with_capacity(HELLO_BYTES);
        self.hear(stream, &mut heard, wire::MAGIC_BYTES, until)?;
        let handler = wire::other_magic(&heard).and_then(|magic| self.common.handlers.of(magic));
        if let Some(handler) = handler {
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(None)?;
            return Ok(Beginning::Other(handler));
        }
        loop {
            let wanted = wire::hello_bytes(&heard)?;
            if heard.len() >= wanted {
                return Ok(Beginning::Hello(Hello::decode(&heard)?));
            }
            self.hear(stream, &mut heard, wanted, until)?;
        }
    }

    /// Hears until there are so many bytes, all of which have to come in time.
    fn hear(
        &self,
        mut stream: &TcpStream,
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
            stream.set_read_timeout(Some(rest))?;
            match stream.read(room) {
                Ok(0) => return Err(Ended::Gone),
                Ok(more) => count += more,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(Ended::Gone),
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

/// Why a connection ended.
enum Ended {
    /// Closed, broken, revoked or silent.
    Gone,
    Bad(WireError),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<WireError> for Ended {
    fn from(error: WireError) -> Self {
        Self::Bad(error)
    }
}

/// A connection that was admitted.
struct Session<'h> {
    host: &'h Host,
    guest: &'h Guest,
    /// What the guest may do; `None` is everything.
    domain: Option<Arc<Domain>>,
    inbox: FrameBuffer,
    answers: Vec<u8>,
    next_sequence: u64,
    /// The payload of an earlier verb, for the next of the same length.
    spare: Buf,
}

impl<'h> Session<'h> {
    fn new(host: &'h Host, guest: &'h Guest, domain: Option<Arc<Domain>>) -> Self {
        let (inbox, answers, spare) = (FrameBuffer::new(), Vec::new(), Buf::default());
        Self { host, guest, domain, inbox, answers, next_sequence: 0, spare }
    }

    fn run(mut self) -> Result<(), Ended> {
        let mut wanted = wire::HEADER_BYTES;
        loop {
            let count = self.receive(wanted)?;
            if count == 0 {
                return Ok(());
            }
            self.inbox.received(count);
            wanted = loop {
                match self.execute_next()? {
                    Next::Whole(bytes, ()) => self.inbox.take(bytes),
                    Next::Partial(bytes) => break bytes,
                }
                if self.answers.len() >= FULL_ANSWER_BYTES {
                    self.answer()?;
                }
            };
            self.answer()?;
        }
    }

    fn receive(&mut self, wanted: usize) -> io::Result<usize> {
        let room = self.inbox.room(wanted);
        let poll_for = self.host.common.config.poll_for;
        if !poll_for.is_zero() {
            let until = self.host.common.env.now() + poll_for;
            while self.host.common.env.now() < until {
                match recv(&self.guest.stream, &mut *room, RecvFlags::DONTWAIT) {
                    Ok((_, count)) => return Ok(count),
                    Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        loop {
            match (&self.guest.stream).read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn answer(&mut self) -> io::Result<()> {
        if !self.answers.is_empty() {
            (&self.guest.stream).write_all(&self.answers)?;
            self.answers.clear();
            self.answers.shrink_to(2 * FULL_ANSWER_BYTES);
        }
        Ok(())
    }

    /// Executes the request at the front of the inbox.
    fn execute_next(&mut self) -> Result<Next<()>, Ended> {
        let (bytes, request) = match wire::decode_request(self.inbox.data())? {
            Next::Partial(bytes) => return Ok(Next::Partial(bytes)),
            Next::Whole(bytes, request) => (bytes, request),
        };
        let (found, expected) = (request.sequence, self.next_sequence);
        if found != expected {
            return Err(WireError::Sequence { found, expected }.into());
        }
        self.next_sequence += 1;
        let rung = {
            let gate = self.guest.gate.lock();
            if !*gate {
                return Err(Ended::Gone);
            }
            let domain = self.domain.as_deref();
            execute(self.host.node(), domain, &request, &mut self.answers, &mut self.spare)
        };
        // Not under the gate: wakers may do what they like. And before the answer goes out.
        rung.into_iter().for_each(|region| region.doorbell().ring());
        Ok(Next::Whole(bytes, ()))
    }
}

type Rung<'n> = SmallVec<[&'n MemRegion; 4]>;

/// Executes a chain on the memory of `node`, as far as `domain` allows, and writes the response. The regions
/// whose doorbell is to ring.
fn execute<'n>(
    node: &'n Node,
    domain: Option<&Domain>,
    request: &Request<'_>,
    answers: &mut Vec<u8>,
    spare: &mut Buf,
) -> Rung<'n> {
    let mut rung = Rung::new();
    let mut response = ResponseWriter::begin(answers, request.sequence);
    let mut failure = None;
    for asked in request.verbs() {
        let mut verb = verb_of(asked, spare);
        let executed: Result<&MemRegion, FabricError> = node
            .check_alive()
            .and_then(|()| domain.map_or(Ok(()), |domain| domain.check(node.id(), &verb)))
            .and_then(|()| apply(node, &mut verb));
        match executed {
            Ok(region) => {
                response.result(&verb);
                if matches!(verb, Verb::WriteWithDoorbell { .. }) {
                    rung.push(region);
                }
            }
            Err(error) => failure = Some(error),
        }
        if let Some(buf) = verb.into_buf().filter(|buf| buf.len() <= KEPT_PAYLOAD_BYTES) {
            *spare = buf;
        }
        if failure.is_some() {
            break;
        }
    }
    response.end(failure.as_ref());
    rung
}

/// The verb that is asked for, with a payload of its own.
fn verb_of(asked: Asked<'_>, spare: &mut Buf) -> Verb {
    let mut buf_of = |bytes: usize| match std::mem::take(spare) {
        buf if buf.len() == bytes => buf,
        _ => Buf::zeroed(bytes),
    };
    match asked {
        Asked::Read { at, bytes } => Verb::read(at, buf_of(bytes)),
        Asked::Write { at, payload, rings } => {
            let mut from = buf_of(payload.len());
            from.copy_from_slice(payload);
            if rings { Verb::write_with_doorbell(at, from) } else { Verb::write(at, from) }
        }
        Asked::CompareAndSwap { at, expected, desired } => {
            Verb::compare_and_swap(at, expected, desired)
        }
        Asked::FetchAndAdd { at, delta } => Verb::fetch_and_add(at, delta),
    }
}
