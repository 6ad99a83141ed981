//! Reading and writing rings by verbs.

use std::io;
use std::path::PathBuf;

use selkie_fabric::env::yield_now;
use selkie_fabric::{Buf, Chain, Verb};
use selkie_wal::ring::{HEAD_BYTES, HEAD_STRIDE, RingHead, ring_place};
use selkie_wal::{LogError, LogOwner, Lsn};

use crate::addressing::executed::into_read;
use crate::coding::placed::placed;
use crate::core::Core;
use crate::error::EngineError;

/// Bytes that are read from a ring, or copied to another, at a time.
pub(super) const AT_ONCE: u64 = 1 << 20;

pub(super) fn failed(
    what: &'static str,
    place: impl Into<PathBuf>,
    error: impl ToString,
) -> LogError {
    LogError::new(what, place, io::Error::other(error.to_string()))
}

impl Core {
    /// Bytes of the ring of a log.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.pool.descriptor().geometry().log_bytes().saturating_sub(HEAD_BYTES)
    }

    /// Memory nodes whose memory is there.
    pub(super) fn living_memory(&self) -> Vec<usize> {
        (0..self.memory.node_count()).filter(|node| !self.pool.is_memory_dead(*node)).collect()
    }

    /// Those that are to stay.
    pub(super) fn staying_memory(&self) -> Vec<usize> {
        let state = self.pool.state();
        let stays = |node: &usize| u16::try_from(*node).is_ok_and(|node| state.stays(node));
        self.living_memory().into_iter().filter(stays).collect()
    }

    pub(super) async fn read_head(
        &self,
        owner: LogOwner,
        memory: usize,
    ) -> Result<Option<RingHead>, EngineError> {
        let offset = self.pool.descriptor().geometry().log_offset(usize::from(owner.node));
        let read = Verb::read(self.memory.at(memory, offset)?, Buf::zeroed(2 * HEAD_STRIDE));
        match self.memory.queue_pair(memory).post(Chain::from(read)).await {
            Ok(chain) => {
                let heads = chain.buf(0).map(|heads| heads.chunks(HEAD_STRIDE));
                let kept =
                    heads.into_iter().flatten().filter_map(|head| RingHead::decode(owner, head));
                Ok(kept.max())
            }
            Err(error) => self.confirm_memory_death(error.error).await.map(|()| None),
        }
    }

    pub(super) async fn write_head(
        &self,
        owner: LogOwner,
        memory: usize,
        (head, number): (RingHead, u64),
    ) -> Result<(), EngineError> {
        let offset = self.pool.descriptor().geometry().log_offset(usize::from(owner.node));
        let at = self.memory.at(memory, offset + number % 2 * HEAD_STRIDE as u64)?;
        let write = placed(at, Buf::copy_of(&head.encode(owner)));
        self.memory
            .queue_pair(memory)
            .post(write)
            .await
            .map(drop)
            .map_err(|error| error.error.into())
    }

    /// Writes records where they belong in the ring.
    pub(super) async fn write_ring(
        &self,
        owner: LogOwner,
        memory: usize,
        at: Lsn,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        let own =
            self.pool.descriptor().geometry().log_offset(usize::from(owner.node)) + HEAD_BYTES;
        let from = at % self.ring_bytes();
        let before_end = bytes.len().min((self.ring_bytes() - from) as usize);
        let (first, rest) = bytes.split_at(before_end);
        let stretches = [(own + from, first), (own, rest)];
        for (offset, bytes) in stretches.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let write = placed(self.memory.at(memory, offset)?, Buf::copy_of(bytes));
            self.memory.queue_pair(memory).post(write).await.map_err(|error| error.error)?;
        }
        Ok(())
    }

    /// Reads so many bytes of the ring from where `at` lies.
    pub(super) async fn read_ring(
        &self,
        owner: LogOwner,
        memory: usize,
        at: Lsn,
        length: u64,
    ) -> Result<Vec<u8>, EngineError> {
        let mut bytes = Vec::with_capacity(length as usize);
        self.read_on(owner, memory, (at, at + length), &mut bytes, &mut None).await?;
        Ok(bytes)
    }

    /// Appends the bytes of the ring between two places to others. What they are read into is left
    /// for the next time.
    pub(super) async fn read_on(
        &self,
        owner: LogOwner,
        memory: usize,
        (mut at, end): (Lsn, Lsn),
        bytes: &mut Vec<u8>,
        spare: &mut Option<Buf>,
    ) -> Result<(), EngineError> {
        let own =
            self.pool.descriptor().geometry().log_offset(usize::from(owner.node)) + HEAD_BYTES;
        let ring = self.ring_bytes();
        while at < end {
            let from = at % ring;
            let some = AT_ONCE.min(ring - from).min(end - at);
            let into = spare.take().filter(|buf| buf.len() == some as usize);
            let into = into.unwrap_or_else(|| Buf::zeroed(some as usize));
            let read = Verb::read(self.memory.at(memory, own + from)?, into);
            let posted = self.memory.queue_pair(memory).post(Chain::from(read)).await;
            let done = posted.map_err(|error| error.error)?;
            bytes.extend_from_slice(spare.insert(into_read(done)));
            at += some;
            // Memory that is shared answers at once. The lease is renewed all the same, also on the
            // only thread of a process.
            yield_now().await;
        }
        Ok(())
    }
}

/// The memory nodes that have a log, each with what is kept there.
pub(super) async fn copies_of(
    core: &Core,
    owner: LogOwner,
) -> Result<Vec<(usize, RingHead)>, LogError> {
    let mut copies = Vec::new();
    for memory in core.living_memory() {
        let read = core.read_head(owner, memory).await;
        let kept = read.map_err(|error| failed("read", ring_place(owner, memory), error))?;
        copies.extend(kept.map(|kept| (memory, kept)));
    }
    Ok(copies)
}
