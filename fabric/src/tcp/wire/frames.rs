//! Requests and responses as bytes: encoding, decoding and every bound on them. No input or output
//! happens here.
//!
//! All numbers are little-endian. After hello and reply (`hello`) a connection carries one request
//! for each chain, and one response for each request, in the same order:
//!
//! ```text
//! request                                   response
//! 0   body_bytes  u32  behind the header    0   body_bytes  u32  behind the header
//! 4   verbs       u16                       4   executed    u16  verbs executed
//! 6   unanswered  u16  see below            6   status      u16  0, or why the next one failed
//! 8   sequence    u64  0, 1, 2 ...          8   sequence    u64  that of the request
//! 16  a record for each verb                16  a result for each verb executed: the old value of
//!                                               an atomic (u64), the payload of a read, nothing
//!                                               of a write; and, if the status is not 0, a detail
//!                                               u64: the bytes of the region if the access ends
//!                                               behind it, the first forbidden byte, else 0
//! record of a verb
//! 0   opcode  u8    READ ... FETCH_AND_ADD
//! 1   zero    u8 x 3
//! 4   region  u32
//! 8   offset  u64
//! 16  first   u64   bytes of the payload, or expected, or delta
//! 24  second  u64   desired, else 0
//! 32  the payload of a write
//! ```
//! A request without verbs keeps a silent connection alive. It is answered like any other.
//!
//! `unanswered` is the number of chains directly before this one whose responses the node had not
//! received when it encoded the request: the host need not keep any response before those. A node
//! sends no request while [`WINDOW_CHAINS`] chains, or chains of [`WINDOW_BYTES`], are unanswered.

use super::error::WireError;
use super::fields::FieldReader;
#[cfg(doc)]
use super::limits::WINDOW_BYTES;
use super::limits::{MAX_CHAIN_BYTES, MAX_CHAIN_VERBS, WINDOW_CHAINS};
use crate::buf::WORD_BYTES;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey, RemoteAddr};
use crate::verb::{Chain, Verb};

/// Header of a request and of a response.
pub(crate) const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 32;
/// Most bytes behind a header.
const MAX_BODY_BYTES: usize = MAX_CHAIN_VERBS * RECORD_BYTES + MAX_CHAIN_BYTES;

const _: () = assert!(HEADER_BYTES == 4 + 2 + 2 + 8);
const _: () = assert!(RECORD_BYTES == 1 + 3 + 4 + 8 + 8 + 8);
const _: () = assert!(MAX_BODY_BYTES <= u32::MAX as usize && MAX_CHAIN_VERBS <= u16::MAX as usize);
const _: () = assert!(WORD_BYTES <= RECORD_BYTES, "a response is bounded like its request");
const _: () = assert!(WINDOW_CHAINS <= u16::MAX as usize, "their number fits into a header");

const READ: u8 = 1;
const WRITE: u8 = 2;
const WRITE_WITH_DOORBELL: u8 = 3;
const COMPARE_AND_SWAP: u8 = 4;
const FETCH_AND_ADD: u8 = 5;

const DONE: u16 = 0;
const UNKNOWN_REGION: u16 = 1;
const OUT_OF_BOUNDS: u16 = 2;
const MISALIGNED: u16 = 3;
const DEAD: u16 = 4;
const FORBIDDEN: u16 = 5;

/// Bytes of payload that a verb moves.
fn payload_bytes(verb: &Verb) -> usize {
    verb.buf().map_or(0, |buf| buf.len())
}

/// Bytes of the result of a verb.
fn result_bytes(verb: &Verb) -> usize {
    match verb {
        Verb::Read { into, .. } => into.len(),
        Verb::Write { .. } | Verb::WriteWithDoorbell { .. } => 0,
        Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. } => WORD_BYTES,
    }
}

/// Refuses a chain that does not fit into a frame.
pub(crate) fn check_chain(chain: &Chain) -> Result<(), FabricError> {
    let (verbs, bytes) =
        (chain.verbs.len(), chain.verbs.iter().map(payload_bytes).fold(0, usize::saturating_add));
    if verbs <= MAX_CHAIN_VERBS && bytes <= MAX_CHAIN_BYTES {
        return Ok(());
    }
    let (max_verbs, max_bytes) = (MAX_CHAIN_VERBS as u64, MAX_CHAIN_BYTES as u64);
    Err(FabricError::ChainTooLong {
        verbs: verbs as u64,
        bytes: bytes as u64,
        max_verbs,
        max_bytes,
    })
}

/// Appends the request for a chain that [`check_chain`] accepted, with as many chains `unanswered`
/// before it.
pub(crate) fn encode_request(out: &mut Vec<u8>, sequence: u64, unanswered: u16, chain: &Chain) {
    let started = out.len();
    out.extend(0_u32.to_le_bytes());
    out.extend((chain.verbs.len() as u16).to_le_bytes());
    out.extend(unanswered.to_le_bytes());
    out.extend(sequence.to_le_bytes());
    for verb in &chain.verbs {
        let length = payload_bytes(verb) as u64;
        let (opcode, first, second, payload): (_, _, _, &[u8]) = match verb {
            Verb::Read { .. } => (READ, length, 0, &[]),
            Verb::Write { from, .. } => (WRITE, length, 0, from),
            Verb::WriteWithDoorbell { from, .. } => (WRITE_WITH_DOORBELL, length, 0, from),
            Verb::CompareAndSwap { expected, desired, .. } => {
                (COMPARE_AND_SWAP, *expected, *desired, &[])
            }
            Verb::FetchAndAdd { delta, .. } => (FETCH_AND_ADD, *delta, 0, &[]),
        };
        out.extend([opcode, 0, 0, 0]);
        out.extend(verb.at().region.to_raw().to_le_bytes());
        out.extend(verb.at().offset.to_le_bytes());
        out.extend(first.to_le_bytes());
        out.extend(second.to_le_bytes());
        out.extend_from_slice(payload);
    }
    set_body_bytes(out, started);
}

/// Fills in the length of the frame that began at `started` and ends here.
fn set_body_bytes(out: &mut [u8], started: usize) {
    let bytes = out.len() - (started + HEADER_BYTES);
    patch(out, started, (bytes as u32).to_le_bytes());
}

/// Overwrites the bytes at `at` with `field`.
#[expect(clippy::expect_used, reason = "the header was appended before its fields are filled in")]
fn patch(out: &mut [u8], at: usize, field: [u8; 4]) {
    let place = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
    *place.expect("a frame has a header") = field;
}

/// What decoding the front of received bytes gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded<T> {
    /// Bytes are missing. The frame has at least this many bytes.
    Partial(usize),
    /// The frame and its length in bytes.
    Whole(usize, T),
}

/// A request that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) sequence: u64,
    /// How many chains before this one are unanswered.
    pub(crate) unanswered: u16,
    body: &'a [u8],
}

/// A verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestedVerb<'a> {
    Read { at: RemoteAddr, bytes: usize },
    Write { at: RemoteAddr, payload: &'a [u8], rings: bool },
    CompareAndSwap { at: RemoteAddr, expected: u64, desired: u64 },
    FetchAndAdd { at: RemoteAddr, delta: u64 },
}

impl<'a> Request<'a> {
    pub(crate) fn verbs(&self) -> impl Iterator<Item = RequestedVerb<'a>> + use<'a> {
        let mut fields = FieldReader(self.body);
        std::iter::from_fn(move || decode_verb(&mut fields).ok())
    }
}

/// Decodes the request at the front of `data`.
pub(crate) fn decode_request(data: &[u8]) -> Result<Decoded<Request<'_>>, WireError> {
    let mut fields = FieldReader(data);
    let (Some(body_bytes), Some(verbs), Some(unanswered), Some(sequence)) =
        (fields.u32(), fields.u16(), fields.u16(), fields.u64())
    else {
        return Ok(Decoded::Partial(HEADER_BYTES));
    };
    if usize::from(verbs) > MAX_CHAIN_VERBS {
        return Err(WireError::ChainVerbs { verbs });
    }
    let limit = usize::from(verbs) * RECORD_BYTES + MAX_CHAIN_BYTES;
    if usize::from(unanswered) >= WINDOW_CHAINS || u64::from(unanswered) > sequence {
        return Err(WireError::Window { unanswered, sequence });
    }
    if body_bytes as usize > limit {
        let (bytes, limit) = (u64::from(body_bytes), limit as u64);
        return Err(WireError::FrameBytes { bytes, limit });
    }
    let whole = HEADER_BYTES + body_bytes as usize;
    let Some(body) = fields.bytes(body_bytes as usize) else { return Ok(Decoded::Partial(whole)) };
    let mut rest = FieldReader(body);
    let mut moved = 0;
    for _ in 0..verbs {
        moved += match decode_verb(&mut rest)? {
            RequestedVerb::Read { bytes, .. } => bytes,
            RequestedVerb::Write { payload, .. } => payload.len(),
            RequestedVerb::CompareAndSwap { .. } | RequestedVerb::FetchAndAdd { .. } => 0,
        };
        if moved > MAX_CHAIN_BYTES {
            return Err(WireError::PayloadBytes { bytes: moved as u64 });
        }
    }
    if !rest.0.is_empty() {
        return Err(WireError::Length);
    }
    Ok(Decoded::Whole(whole, Request { sequence, unanswered, body }))
}

fn decode_verb<'a>(fields: &mut FieldReader<'a>) -> Result<RequestedVerb<'a>, WireError> {
    let mut record = || {
        let ([opcode, zeros @ ..], region) = (fields.take::<4>()?, fields.u32()?);
        Some((opcode, zeros, region, fields.u64()?, fields.u64()?, fields.u64()?))
    };
    let (opcode, zeros, region, offset, first, second) = record().ok_or(WireError::Length)?;
    if zeros != [0; 3] || (opcode != COMPARE_AND_SWAP && second != 0) {
        return Err(WireError::Reserved);
    }
    let at = RemoteAddr::new(RegionKey::from_raw(region), offset);
    let bytes = || match usize::try_from(first) {
        Ok(bytes) if bytes <= MAX_CHAIN_BYTES && bytes.is_multiple_of(WORD_BYTES) => Ok(bytes),
        _ => Err(WireError::PayloadBytes { bytes: first }),
    };
    match opcode {
        READ => Ok(RequestedVerb::Read { at, bytes: bytes()? }),
        WRITE | WRITE_WITH_DOORBELL => {
            let payload = fields.bytes(bytes()?).ok_or(WireError::Length)?;
            Ok(RequestedVerb::Write { at, payload, rings: opcode == WRITE_WITH_DOORBELL })
        }
        COMPARE_AND_SWAP => {
            Ok(RequestedVerb::CompareAndSwap { at, expected: first, desired: second })
        }
        FETCH_AND_ADD => Ok(RequestedVerb::FetchAndAdd { at, delta: first }),
        found => Err(WireError::Opcode { found }),
    }
}

/// Writes one response. `end` completes it.
pub(crate) struct ResponseWriter<'o> {
    out: &'o mut Vec<u8>,
    started: usize,
    executed: u16,
}

impl<'o> ResponseWriter<'o> {
    pub(crate) fn begin(out: &'o mut Vec<u8>, sequence: u64) -> Self {
        let started = out.len();
        out.extend([0; HEADER_BYTES - 8]);
        out.extend(sequence.to_le_bytes());
        Self { out, started, executed: 0 }
    }

    /// Appends the result of an executed verb.
    pub(crate) fn result(&mut self, verb: &Verb) {
        match verb {
            Verb::Read { into, .. } => self.out.extend_from_slice(into),
            Verb::Write { .. } | Verb::WriteWithDoorbell { .. } => {}
            Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. } => {
                self.out.extend(verb.old_value().to_le_bytes());
            }
        }
        self.executed += 1;
    }

    pub(crate) fn end(self, failure: Option<&FabricError>) {
        let (status, detail) = match failure {
            None => (DONE, None),
            Some(FabricError::UnknownRegion { .. }) => (UNKNOWN_REGION, Some(0)),
            Some(FabricError::OutOfBounds { region_bytes, .. }) => {
                (OUT_OF_BOUNDS, Some(*region_bytes))
            }
            Some(FabricError::Misaligned { .. }) => (MISALIGNED, Some(0)),
            Some(FabricError::Forbidden { offset, .. }) => (FORBIDDEN, Some(*offset)),
            Some(_) => (DEAD, Some(0)),
        };
        if let Some(detail) = detail {
            self.out.extend(detail.to_le_bytes());
        }
        set_body_bytes(self.out, self.started);
        let ([a, b], [c, d]) = (self.executed.to_le_bytes(), status.to_le_bytes());
        patch(self.out, self.started + 4, [a, b, c, d]);
    }
}

/// A response that was not matched with its chain yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response<'a> {
    pub(crate) sequence: u64,
    executed: u16,
    status: u16,
    body: &'a [u8],
}

/// The length of the whole frame at the front of `data`, which has a whole header.
pub(crate) fn frame_bytes(data: &[u8]) -> usize {
    let body_bytes = FieldReader(data).u32().unwrap_or(0);
    HEADER_BYTES + body_bytes as usize
}

/// Bytes that a chain counts in the window of its session: at least those of its response.
pub(crate) fn window_bytes(chain: &Chain) -> usize {
    let moved = |verb: &Verb| result_bytes(verb).max(payload_bytes(verb));
    HEADER_BYTES + WORD_BYTES + chain.verbs.iter().map(moved).sum::<usize>()
}

/// Most bytes in the body of a response to `chain`.
pub(crate) fn max_response_bytes(chain: &Chain) -> usize {
    chain.verbs.iter().map(result_bytes).sum::<usize>() + WORD_BYTES
}

/// Decodes the response at the front of `data`. Its body has at most `limit` bytes.
pub(crate) fn decode_response(
    data: &[u8],
    limit: usize,
) -> Result<Decoded<Response<'_>>, WireError> {
    let mut fields = FieldReader(data);
    let (Some(body_bytes), Some(executed), Some(status), Some(sequence)) =
        (fields.u32(), fields.u16(), fields.u16(), fields.u64())
    else {
        return Ok(Decoded::Partial(HEADER_BYTES));
    };
    if body_bytes as usize > limit {
        let (bytes, limit) = (u64::from(body_bytes), limit as u64);
        return Err(WireError::FrameBytes { bytes, limit });
    }
    let whole = HEADER_BYTES + body_bytes as usize;
    Ok(match fields.bytes(body_bytes as usize) {
        None => Decoded::Partial(whole),
        Some(body) => Decoded::Whole(whole, Response { sequence, executed, status, body }),
    })
}

impl Response<'_> {
    /// Fills the results into the chain that was posted to `peer`. Returns how many verbs were
    /// executed, and the error of the next one.
    pub(crate) fn fill(
        &self,
        chain: &mut Chain,
        peer: PeerId,
    ) -> Result<(usize, Option<FabricError>), WireError> {
        let (executed, verbs) = (usize::from(self.executed), chain.verbs.len());
        if (self.status == DONE && executed != verbs) || (self.status != DONE && executed >= verbs)
        {
            let (status, verbs) = (self.status, verbs as u16);
            return Err(WireError::Response { status, executed: self.executed, verbs });
        }
        let results: usize = chain.verbs.iter().take(executed).map(result_bytes).sum();
        let detail = if self.status == DONE { 0 } else { WORD_BYTES };
        if self.body.len() != results + detail {
            return Err(WireError::Length);
        }
        let mut fields = FieldReader(self.body);
        for verb in chain.verbs.iter_mut().take(executed) {
            match verb {
                Verb::Read { into, .. } => {
                    let payload = fields.bytes(into.len()).ok_or(WireError::Length)?;
                    into.copy_from_slice(payload);
                }
                Verb::Write { .. } | Verb::WriteWithDoorbell { .. } => {}
                Verb::CompareAndSwap { old, .. } | Verb::FetchAndAdd { old, .. } => {
                    *old = Some(fields.u64().ok_or(WireError::Length)?);
                }
            }
        }
        let Some(stopped) = chain.verbs.get(executed) else { return Ok((executed, None)) };
        let detail = fields.u64().ok_or(WireError::Length)?;
        let at = stopped.at();
        let bytes = stopped.buf().map_or(WORD_BYTES, |buf| buf.len()) as u64;
        let error = match self.status {
            UNKNOWN_REGION | MISALIGNED | DEAD if detail != 0 => return Err(WireError::Reserved),
            UNKNOWN_REGION => FabricError::UnknownRegion { peer, region: at.region },
            OUT_OF_BOUNDS => FabricError::OutOfBounds { at, bytes, region_bytes: detail },
            MISALIGNED => FabricError::Misaligned { at },
            DEAD => FabricError::PeerDead { peer },
            FORBIDDEN if detail >= at.offset && detail - at.offset < bytes => {
                let (region, what) = (at.region, stopped.access());
                FabricError::Forbidden { peer, region, offset: detail, what }
            }
            status => {
                let (executed, verbs) = (self.executed, verbs as u16);
                return Err(WireError::Response { status, executed, verbs });
            }
        };
        Ok((executed, Some(error)))
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "fuzz.rs"]
mod fuzz;
