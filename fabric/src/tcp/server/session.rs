//! The session of one connection: executes its requests in order.
//!
//! A thread receives, executes every whole request in its buffer, and answers them with one system
//! call. A chain executes under the *gate* of its connection: once the gate is closed, no chain
//! executes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::buf::Buf;
use crate::domain::Domain;
use crate::error::FabricError;
use crate::mem::execute::apply;
use crate::mem::node::{MemRegion, Node};
use crate::tcp::process::ProcessState;
use crate::tcp::transport::blocking::{Blocking, tls_error_of};
use crate::tcp::wire::error::WireError;
use crate::tcp::wire::frame_buffer::FrameBuffer;
use crate::tcp::wire::frames::{self, Decoded, Request, RequestedVerb, ResponseWriter};
use crate::verb::Verb;

/// A payload buffer of at most this length is kept for the next verb.
const KEPT_PAYLOAD_BYTES: usize = 64 << 10;
/// Responses as long as this are sent before more requests are executed.
const FULL_ANSWER_BYTES: usize = 256 << 10;

/// A connection of a peer whose verbs are executed here.
pub(crate) struct PeerConnection {
    socket: Arc<TcpStream>,
    /// Whether chains may execute. Locked while one executes.
    gate: Mutex<bool>,
}

impl PeerConnection {
    pub(crate) fn new(socket: Arc<TcpStream>) -> Self {
        Self { socket, gate: Mutex::new(true) }
    }

    /// Closes the connection. Once this returns, no chain of it executes.
    pub(crate) fn close(&self) {
        // It fails if the peer closed the connection first.
        let _ = self.socket.shutdown(Shutdown::Both);
        *self.gate.lock() = false;
    }
}

/// Why a session ended.
pub(crate) enum SessionEnd {
    /// Closed, broken, revoked or silent.
    Closed,
    /// The peer sent bad bytes.
    Bad(WireError),
}

impl From<io::Error> for SessionEnd {
    fn from(error: io::Error) -> Self {
        match tls_error_of(&error) {
            Some(why) => Self::Bad(WireError::Tls { why }),
            None => Self::Closed,
        }
    }
}

impl From<WireError> for SessionEnd {
    fn from(error: WireError) -> Self {
        Self::Bad(error)
    }
}

/// A connection that was admitted.
pub(crate) struct Session<'h> {
    node: &'h Node,
    process: &'h ProcessState,
    connection: &'h PeerConnection,
    stream: Blocking,
    /// What the connection may do; `None` is everything.
    domain: Option<Arc<Domain>>,
    inbox: FrameBuffer,
    answers: Vec<u8>,
    next_sequence: u64,
    /// The payload of an earlier verb, for the next of the same length.
    spare: Buf,
}

impl<'h> Session<'h> {
    pub(crate) fn new(
        node: &'h Node,
        process: &'h ProcessState,
        connection: &'h PeerConnection,
        domain: Option<Arc<Domain>>,
        stream: Blocking,
    ) -> Self {
        let (inbox, answers, spare) = (FrameBuffer::new(), Vec::new(), Buf::default());
        Self { node, process, connection, stream, domain, inbox, answers, next_sequence: 0, spare }
    }

    /// Serves it until it ends.
    pub(crate) fn run(mut self) -> Result<(), SessionEnd> {
        let mut wanted = frames::HEADER_BYTES;
        loop {
            let count = self.receive(wanted)?;
            if count == 0 {
                return Ok(());
            }
            self.inbox.received(count);
            wanted = loop {
                match self.execute_next()? {
                    Decoded::Whole(bytes, ()) => self.inbox.take(bytes),
                    Decoded::Partial(bytes) => break bytes,
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
        let poll_for = self.process.config.poll_for;
        if !poll_for.is_zero() {
            let until = self.process.env.now() + poll_for;
            while self.process.env.now() < until {
                if let Some(count) = self.stream.read_now(room)? {
                    return Ok(count);
                }
                std::hint::spin_loop();
            }
        }
        loop {
            match self.stream.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn answer(&mut self) -> io::Result<()> {
        if !self.answers.is_empty() {
            self.stream.write_all(&self.answers)?;
            self.answers.clear();
            self.answers.shrink_to(2 * FULL_ANSWER_BYTES);
        }
        Ok(())
    }

    /// Executes the request at the front of the inbox.
    fn execute_next(&mut self) -> Result<Decoded<()>, SessionEnd> {
        let (bytes, request) = match frames::decode_request(self.inbox.data())? {
            Decoded::Partial(bytes) => return Ok(Decoded::Partial(bytes)),
            Decoded::Whole(bytes, request) => (bytes, request),
        };
        let (found, expected) = (request.sequence, self.next_sequence);
        if found != expected {
            return Err(WireError::Sequence { found, expected }.into());
        }
        self.next_sequence += 1;
        let rung = {
            let gate = self.connection.gate.lock();
            if !*gate {
                return Err(SessionEnd::Closed);
            }
            let domain = self.domain.as_deref();
            execute(self.node, domain, &request, &mut self.answers, &mut self.spare)
        };
        // Outside the gate, as wakers may do anything. Before the answer is sent.
        rung.into_iter().for_each(|region| region.doorbell().ring());
        Ok(Decoded::Whole(bytes, ()))
    }
}

type Rung<'n> = SmallVec<[&'n MemRegion; 4]>;

/// Executes a chain on the memory of `node`, as far as `domain` allows, and writes the response.
/// Returns the regions whose doorbells are to ring.
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
    for requested in request.verbs() {
        let mut verb = verb_of(requested, spare);
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

/// The verb of a request, with a payload buffer of its own.
fn verb_of(requested: RequestedVerb<'_>, spare: &mut Buf) -> Verb {
    let mut buf_of = |bytes: usize| match std::mem::take(spare) {
        buf if buf.len() == bytes => buf,
        _ => Buf::zeroed(bytes),
    };
    match requested {
        RequestedVerb::Read { at, bytes } => Verb::read(at, buf_of(bytes)),
        RequestedVerb::Write { at, payload, rings } => {
            let mut from = buf_of(payload.len());
            from.copy_from_slice(payload);
            if rings { Verb::write_with_doorbell(at, from) } else { Verb::write(at, from) }
        }
        RequestedVerb::CompareAndSwap { at, expected, desired } => {
            Verb::compare_and_swap(at, expected, desired)
        }
        RequestedVerb::FetchAndAdd { at, delta } => Verb::fetch_and_add(at, delta),
    }
}
