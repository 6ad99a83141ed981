//! The session of a guest: its requests are executed in the order in which they come.
//!
//! A thread receives, executes every whole request in its buffer, and answers them with one system
//! call. A chain executes under the *gate* of its connection: whoever closes the gate knows that
//! none executes after.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::blocking::{Blocking, distrust_of};
use super::buffer::FrameBuffer;
use super::common::Common;
use super::error::WireError;
use super::wire::{self, Asked, Next, Request, ResponseWriter};
use crate::access::Domain;
use crate::buf::Buf;
use crate::error::FabricError;
use crate::mem::node::{MemRegion, Node};
use crate::mem::queue_pair::apply;
use crate::verb::Verb;

/// A payload no longer than this is kept for the next verb.
const KEPT_PAYLOAD_BYTES: usize = 64 << 10;
/// Responses as long as this are sent before more requests are executed.
const FULL_ANSWER_BYTES: usize = 256 << 10;

/// A connection whose verbs are executed.
pub(super) struct Guest {
    socket: Arc<TcpStream>,
    /// Whether chains may execute; held while one does.
    gate: Mutex<bool>,
}

impl Guest {
    pub(super) fn new(socket: Arc<TcpStream>) -> Self {
        Self { socket, gate: Mutex::new(true) }
    }

    /// Once this returns nothing executes.
    pub(super) fn close(&self) {
        // It fails if the peer was faster.
        let _ = self.socket.shutdown(Shutdown::Both);
        *self.gate.lock() = false;
    }
}

/// Why a connection ended.
pub(super) enum Ended {
    /// Closed, broken, revoked or silent.
    Gone,
    Bad(WireError),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match distrust_of(&error) {
            Some(why) => Self::Bad(WireError::Distrusted { why }),
            None => Self::Gone,
        }
    }
}

impl From<WireError> for Ended {
    fn from(error: WireError) -> Self {
        Self::Bad(error)
    }
}

/// A connection that was admitted.
pub(super) struct Session<'h> {
    node: &'h Node,
    common: &'h Common,
    guest: &'h Guest,
    stream: Blocking,
    /// What the guest may do; `None` is everything.
    domain: Option<Arc<Domain>>,
    inbox: FrameBuffer,
    answers: Vec<u8>,
    next_sequence: u64,
    /// The payload of an earlier verb, for the next of the same length.
    spare: Buf,
}

impl<'h> Session<'h> {
    pub(super) fn new(
        node: &'h Node,
        common: &'h Common,
        guest: &'h Guest,
        domain: Option<Arc<Domain>>,
        stream: Blocking,
    ) -> Self {
        let (inbox, answers, spare) = (FrameBuffer::new(), Vec::new(), Buf::default());
        Self { node, common, guest, stream, domain, inbox, answers, next_sequence: 0, spare }
    }

    /// Serves it until it ends.
    pub(super) fn run(mut self) -> Result<(), Ended> {
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
        let poll_for = self.common.config.poll_for;
        if !poll_for.is_zero() {
            let until = self.common.env.now() + poll_for;
            while self.common.env.now() < until {
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
            execute(self.node, domain, &request, &mut self.answers, &mut self.spare)
        };
        // Not under the gate: wakers may do what they like. And before the answer goes out.
        rung.into_iter().for_each(|region| region.doorbell().ring());
        Ok(Next::Whole(bytes, ()))
    }
}

type Rung<'n> = SmallVec<[&'n MemRegion; 4]>;

/// Executes a chain on the memory of `node`, as far as `domain` allows, and writes the response.
/// The regions whose doorbell is to ring.
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
