//! One connection: executes its requests in order, for the session that it belongs to.
//!
//! A thread receives, executes every whole request in its buffer, and answers them with one system
//! call. It does so under the gate of the session, as long as no later connection has taken the
//! session over. What was received and not executed until then goes with the connection: the peer
//! sends it again.

use std::io::{self, Read, Write};

use smallvec::SmallVec;

use super::session::{Gate, Session};
use super::setup::{Guest, SETUP_REGION, SetupService, SetupSession};
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

/// Why a connection ended.
pub(crate) enum ConnectionEnd {
    /// Closed, broken, silent or taken over; or its session is closed.
    Closed,
    /// The peer sent bad bytes.
    Bad(WireError),
}

impl From<io::Error> for ConnectionEnd {
    fn from(error: io::Error) -> Self {
        match tls_error_of(&error) {
            Some(why) => Self::Bad(WireError::Tls { why }),
            None => Self::Closed,
        }
    }
}

impl From<WireError> for ConnectionEnd {
    fn from(error: WireError) -> Self {
        Self::Bad(error)
    }
}

/// A connection that was admitted.
pub(crate) struct Connection<'h> {
    node: &'h Node,
    process: &'h ProcessState,
    session: &'h Session,
    /// Its number within the session.
    number: u32,
    stream: Blocking,
    /// Who it serves, and within which domain.
    guest: Guest,
    setup: Option<&'h dyn SetupService>,
    inbox: FrameBuffer,
    /// The payload of an earlier verb, for the next of the same length.
    spare: Buf,
}

impl<'h> Connection<'h> {
    pub(crate) fn new(
        node: &'h Node,
        process: &'h ProcessState,
        (session, number): (&'h Session, u32),
        (guest, setup): (Guest, Option<&'h dyn SetupService>),
        stream: Blocking,
    ) -> Self {
        let (inbox, spare) = (FrameBuffer::new(), Buf::default());
        Self { node, process, session, number, stream, guest, setup, inbox, spare }
    }

    /// Serves it until it ends.
    pub(crate) fn run(mut self) -> Result<(), ConnectionEnd> {
        // The responses that did not arrive over an earlier connection.
        self.answer()?;
        let mut wanted = frames::HEADER_BYTES;
        loop {
            let count = self.receive(wanted)?;
            if count == 0 {
                return Ok(());
            }
            self.inbox.received(count);
            wanted = loop {
                match self.execute_next()? {
                    Decoded::Whole(bytes, unsent) => {
                        self.inbox.take(bytes);
                        if unsent >= FULL_ANSWER_BYTES {
                            self.answer()?;
                        }
                    }
                    Decoded::Partial(bytes) => break bytes,
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

    /// Sends the responses that were not sent over this connection. Under the gate, so that they
    /// stay in place; whatever closes the gate or takes the session over shuts the socket down
    /// first.
    fn answer(&mut self) -> Result<(), ConnectionEnd> {
        let mut gate = self.session.open(self.number).ok_or(ConnectionEnd::Closed)?;
        let unsent = gate.answers.unsent();
        if !unsent.is_empty() {
            self.stream.write_all(unsent)?;
            gate.answers.all_sent();
        }
        Ok(())
    }

    /// Executes the request at the front of the inbox. Returns how many bytes are to be sent now.
    fn execute_next(&mut self) -> Result<Decoded<usize>, ConnectionEnd> {
        let (bytes, request) = match frames::decode_request(self.inbox.data())? {
            Decoded::Partial(bytes) => return Ok(Decoded::Partial(bytes)),
            Decoded::Whole(bytes, request) => (bytes, request),
        };
        let mut gate = self.session.open(self.number).ok_or(ConnectionEnd::Closed)?;
        let Gate { answers, setup, .. } = &mut *gate;
        let out = answers.begin(&request)?;
        let rung = match self.setup.filter(|_| is_setup(&request)) {
            Some(service) => {
                let setup = setup.get_or_insert_with(|| service.open(self.guest.clone()));
                set_up(self.node, &mut **setup, &request, out);
                Rung::new()
            }
            None => {
                let domain = self.guest.domain.as_deref();
                execute(self.node, domain, &request, out, &mut self.spare)
            }
        };
        let unsent = gate.answers.unsent().len();
        drop(gate);
        // Outside the gate, as wakers may do anything. Before the answer is sent.
        rung.into_iter().for_each(|region| region.doorbell().ring());
        Ok(Decoded::Whole(bytes, unsent))
    }
}

/// Whether a chain asks the fabric that sets something up here.
fn is_setup(request: &Request<'_>) -> bool {
    let region = match request.verbs().next() {
        Some(RequestedVerb::Read { at, .. } | RequestedVerb::Write { at, .. }) => at.region,
        _ => return false,
    };
    region == SETUP_REGION
}

/// Hands the writes of a chain over, and answers its reads.
fn set_up(node: &Node, setup: &mut dyn SetupSession, request: &Request<'_>, out: &mut Vec<u8>) {
    let mut response = ResponseWriter::begin(out, request.sequence);
    let mut failure = None;
    for requested in request.verbs() {
        let mut verb = verb_of(requested, &mut Buf::default());
        match &mut verb {
            Verb::Write { at, from } if at.region == SETUP_REGION => setup.ask(node, from),
            Verb::Read { at, into } if at.region == SETUP_REGION => setup.answer(into),
            other => {
                let (peer, region) = (node.id(), other.at().region);
                failure = Some(FabricError::UnknownRegion { peer, region });
                break;
            }
        }
        response.result(&verb);
    }
    response.end(failure.as_ref());
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
