//! What is posted with one doorbell of the card: a part of a chain, mostly the whole chain.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::connection::{Connection, Landings, PendingChain, STAGING_BYTES, State};
use super::ffi::{Operation, Payload, WorkRequest};
use super::hub::Hub;
use super::remote::{RemoteRegions, bytes_of, overlaps};
use super::staging::StagingRing;
use crate::buf::WORD_BYTES;
use crate::error::{FabricError, RdmaFault};
use crate::mem::words::Words;
use crate::verb::Verb;

/// Most requests of a part.
const MAX_REQUESTS: usize = 64;
/// Most bytes of a request: what is longer is moved by several.
const MAX_REQUEST_BYTES: usize = STAGING_BYTES / 4;

/// Requests that were posted together.
pub(super) struct Part {
    pub(super) number: u32,
    pub(super) requests: usize,
    /// What they take of the staging room.
    pub(super) staged: usize,
    pub(super) landings: Landings,
}

/// Where a request fetches to. Places are bytes of the staging room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Landing {
    Read { verb: usize, first: usize, count: usize, at: usize },
    Atomic { verb: usize, at: usize },
}

/// A part that was not posted yet.
struct Draft<'v> {
    requests: SmallVec<[WorkRequest<'v>; 8]>,
    landings: Landings,
    /// The next verb, and the next byte of it, behind the part.
    cursor: (usize, usize),
    staged: usize,
}

impl Connection {
    /// Posts a part of the chain that is next. Returns whether the whole chain is posted now.
    pub(super) fn post_part(&self, state: &mut State) -> Result<bool, FabricError> {
        let limit = MAX_REQUESTS.min(state.free_requests);
        let State { regions, pending, ring, posted, .. } = state;
        let Some(next) = pending.get(*posted) else { return Ok(false) };
        let Draft { mut requests, landings, cursor, staged } =
            self.draft(next, regions, ring, limit)?;
        let is_whole = cursor.0 >= next.verbs;
        let (count, number) = (requests.len(), state.next_part);
        if let Some(last) = requests.last_mut() {
            last.is_signalled = true;
        }
        let id = u64::from(self.id) << 32 | u64::from(number);
        requests.iter_mut().for_each(|request| request.id = id);
        if count > 0 {
            self.queue_pair.post(&requests).map_err(|error| {
                let what = format!("requests cannot be posted to the RDMA device: {error}");
                FabricError::Network { peer: self.hub.id(), what }
            })?;
            self.hub.counting.posts.fetch_add(1, Ordering::Relaxed);
            self.hub.counting.requests.fetch_add(count as u64, Ordering::Relaxed);
        }
        drop(requests);
        if let Some(next) = state.pending.get_mut(state.posted) {
            next.cursor = cursor;
            next.parts += usize::from(count > 0);
        }
        if count > 0 {
            state.next_part = number.wrapping_add(1);
            state.free_requests -= count;
            state.parts.push_back(Part { number, requests: count, staged, landings });
        }
        state.posted += usize::from(is_whole);
        Ok(is_whole)
    }

    /// As many requests of a chain as there is room for, at most `limit`.
    fn draft<'v>(
        &self,
        next: &'v PendingChain,
        regions: &RemoteRegions,
        ring: &mut StagingRing,
        limit: usize,
    ) -> Result<Draft<'v>, FabricError> {
        let mut draft = Draft {
            requests: SmallVec::new(),
            landings: Landings::new(),
            cursor: next.cursor,
            staged: 0,
        };
        let mut take = |bytes: usize| {
            let place = ring.take(bytes)?;
            draft.staged += place.taken;
            Some(place.at)
        };
        let verbs = next.chain.verbs.get(..next.verbs).unwrap_or_default();
        while let Some(verb) = verbs.get(draft.cursor.0) {
            let (index, first) = draft.cursor;
            let (at, length) = (verb.at(), bytes_of(verb));
            let rings = matches!(verb, Verb::WriteWithDoorbell { .. });
            if length == 0 && !rings {
                draft.cursor = (index + 1, 0);
                continue;
            }
            if draft.requests.len() == limit {
                break;
            }
            let place =
                regions.get(&at.region).and_then(|region| region.locate(at.offset + first as u64));
            // At the end of a region there is no byte, and nothing to write but a ring.
            let (address, key, room) = place.unwrap_or((0, 0, 0));
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let bytes = (length - first).min(room).min(MAX_REQUEST_BYTES);
            let is_end = first + bytes >= length;
            if bytes == 0 && length > 0 {
                return Err(FabricError::Rdma { peer: self.peer, why: RdmaFault::Window });
            }
            let immediate = (rings && is_end).then(|| Hub::ring_number(at.region));
            let landings = &mut draft.landings;
            let operation =
                self.operation((index, verb), (first, bytes), immediate, &mut take, landings);
            let Some(operation) = operation else { break };
            let is_fenced = matches!(operation, Operation::Write { .. })
                && verbs.iter().take(index).any(|verb| overlaps(verb, at, length as u64));
            let (id, is_signalled) = (0, false);
            let request = WorkRequest { id, operation, address, key, is_signalled, is_fenced };
            draft.requests.push(request);
            draft.cursor = if is_end { (index + 1, 0) } else { (index, first + bytes) };
        }
        Ok(draft)
    }

    /// The operation of these bytes of a verb; `None` if the staging room has no place for it now.
    fn operation<'v>(
        &self,
        (index, verb): (usize, &'v Verb),
        (first, bytes): (usize, usize),
        immediate: Option<u32>,
        take: &mut impl FnMut(usize) -> Option<usize>,
        landings: &mut Landings,
    ) -> Option<Operation<'v>> {
        match verb {
            Verb::Read { .. } => {
                let into = take(bytes)?;
                let (first, count) = (first / WORD_BYTES, bytes / WORD_BYTES);
                landings.push(Landing::Read { verb: index, first, count, at: into });
                Some(Operation::Read { into, bytes: bytes as u32 })
            }
            Verb::Write { from, .. } | Verb::WriteWithDoorbell { from, .. } => {
                let payload = from.get(first..first + bytes)?;
                if bytes <= self.queue_pair.inline_bytes() {
                    return Some(Operation::Write { from: Payload::Inline(payload), immediate });
                }
                let at = take(bytes)?;
                let staging = self.queue_pair.staging()?.words();
                let (from_word, count) = (first / WORD_BYTES, bytes / WORD_BYTES);
                let place = staging.get(at / WORD_BYTES..at / WORD_BYTES + count)?;
                Words::copy_in(place, from.words().get(from_word..from_word + count)?);
                let bytes = bytes as u32;
                Some(Operation::Write { from: Payload::Staged { from: at, bytes }, immediate })
            }
            Verb::CompareAndSwap { expected, desired, .. } => {
                let into = take(WORD_BYTES)?;
                landings.push(Landing::Atomic { verb: index, at: into });
                let (expected, desired) = (*expected, *desired);
                Some(Operation::CompareAndSwap { into, expected, desired })
            }
            Verb::FetchAndAdd { delta, .. } => {
                let into = take(WORD_BYTES)?;
                landings.push(Landing::Atomic { verb: index, at: into });
                Some(Operation::FetchAndAdd { into, delta: *delta })
            }
        }
    }
}
