//! The read of a coded page by late binding: the first k splits that arrive are the page (Hydra
//! §4.2).
//!
//! Data splits are read into the page's frame, so that no copy is needed if they arrive first. If
//! other splits arrive first, reads into the frame are outstanding that cannot be cancelled. Then
//! the page goes into another frame, and the first frame is free when its last read has completed.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use selkie_erasure::CodecError;
use selkie_fabric::{
    Buf, Chain, ChainError, ChainResult, Completion, FabricError, RemoteAddr, Verb,
};
use selkie_pool::Mode;
use selkie_pool::layout::MAX_SPLITS;

use super::coded::CodingState;
use super::tag::{SplitSet, Tag, Version, Versions, version_of};
use crate::addressing::executed::first_word;
use crate::addressing::locations::{SplitAt, SplitsAt};
use crate::cache::frame::FrameId;
use crate::core::Core;
use crate::{EngineError, GAddr};

/// How often a split is requested. Under the latch no node writes, so more reads would return the
/// same.
const ASKED_AT_MOST: u8 = 3;

/// A split that has arrived.
struct ArrivedSplit {
    split: usize,
    payload: Buf,
    tag: Tag,
}

/// The result of a read.
#[derive(Default)]
pub(super) struct ReadResult {
    /// The page was granted and cannot be reconstructed.
    pub(super) damaged: bool,
    /// Damaged splits.
    pub(super) corrupt: SplitSet,
    /// The page is in another frame.
    pub(super) moved: Option<MovedFrame>,
}

/// A frame that replaces one into which reads are outstanding.
pub(super) struct MovedFrame {
    pub(super) to: FrameId,
    pub(super) late: Vec<Completion>,
}

/// A read of a page.
pub(super) struct LateBindingRead<'c> {
    coded: &'c CodingState,
    addr: GAddr,
    places: SplitsAt,
    /// Outstanding reads, by split.
    under_way: Vec<(usize, Completion)>,
    /// Buffers of data splits without an outstanding read.
    idle: Vec<(usize, Buf)>,
    /// Arrived splits that are not checked yet.
    fresh: Vec<ArrivedSplit>,
    /// Arrived splits that belong to the page.
    arrived: Vec<ArrivedSplit>,
    /// How often each split was requested.
    asked: [u8; MAX_SPLITS],
    /// Splits whose memory is lost.
    lost: SplitSet,
    /// Splits with a wrong version or checksum: read during a write-back, or damaged.
    suspects: SplitSet,
    /// Splits that were requested under the latch.
    stable: SplitSet,
    has_latch: bool,
    /// Damaged splits, by their checksum or by comparison with the others.
    corrupt: SplitSet,
}

impl<'c> LateBindingRead<'c> {
    /// Requests the first splits; data splits are read into these buffers.
    pub(super) fn begin(
        core: &Core,
        coded: &'c CodingState,
        addr: GAddr,
        places: &SplitsAt,
        into: Vec<(usize, Buf)>,
    ) -> Self {
        let mut reading = Self {
            coded,
            addr,
            places: *places,
            under_way: Vec::with_capacity(coded.coding().splits()),
            idle: into,
            fresh: Vec::with_capacity(coded.coding().splits()),
            arrived: Vec::with_capacity(coded.coding().splits()),
            asked: [0; MAX_SPLITS],
            lost: SplitSet::EMPTY,
            suspects: SplitSet::EMPTY,
            stable: SplitSet::EMPTY,
            has_latch: false,
            corrupt: SplitSet::EMPTY,
        };
        for split in coded.asked_for(places).iter() {
            reading.ask(core, split);
        }
        reading
    }

    /// The buffer for a split: that of a data split is in the frame.
    fn take_buffer(&mut self, split: usize) -> Buf {
        match self.idle.iter().position(|(own, _)| *own == split) {
            Some(place) => self.idle.swap_remove(place).1,
            None => Buf::zeroed(self.coded.payload_bytes()),
        }
    }

    fn ask(&mut self, core: &Core, split: usize) {
        let Some(SplitAt { node, at }) = self.places.get(split).copied().flatten() else {
            self.lost = self.lost.with(split);
            return;
        };
        if let Some(asked) = self.asked.get_mut(split) {
            *asked += 1;
        }
        if self.has_latch {
            self.stable = self.stable.with(split);
        }
        let payload = self.take_buffer(split);
        let tag_at = RemoteAddr::new(at.region, at.offset + payload.len() as u64);
        let chain = Chain::from([Verb::read(at, payload), Verb::read(tag_at, Buf::zeroed(8))]);
        self.under_way.push((split, core.memory.queue_pair(node).post(chain)));
    }

    /// Reconstructs the page of these versions from the splits that arrive first. The latch is
    /// granted, so no node writes.
    pub(super) async fn finish(
        mut self,
        core: &Core,
        versions: &Versions,
    ) -> Result<ReadResult, EngineError> {
        self.has_latch = true;
        self.collect(core, versions, self.coded.compared(&self.places)).await;
        let whole = self.compare(core, versions).await;
        // A pool that only detects damage reports it also where it could be repaired.
        let tells = self.coded.coding().mode() == Mode::Detect && !self.corrupt.is_empty();
        if tells || !matches!(whole, Ok(true)) {
            self.rest(core).await;
            whole?;
            return Ok(ReadResult { damaged: true, corrupt: self.corrupt, moved: None });
        }
        self.settle(core, true).await
    }

    /// The page was not granted: waits until no read into the frame is outstanding.
    pub(super) async fn give_up(mut self, core: &Core) -> Result<ReadResult, EngineError> {
        self.settle(core, false).await
    }

    /// Waits until `enough` splits of the page have arrived, or no more can arrive.
    async fn collect(&mut self, core: &Core, versions: &Versions, enough: usize) {
        loop {
            self.sort_out(core, versions);
            let again = self.suspects.iter().filter(|split| !self.is_under_way(*split));
            for split in again.collect::<SplitSet>().iter() {
                self.ask(core, split);
            }
            let missing = enough.saturating_sub(self.arrived.len() + self.under_way.len());
            for _ in 0..missing {
                let Some(split) = self.next_to_ask() else { break };
                self.ask(core, split);
            }
            let have = self.arrived.len() >= enough && self.suspects.is_empty();
            if have || self.under_way.is_empty() {
                return;
            }
            let (split, result) = self.next_arrival().await;
            self.take_in(core, split, result);
            self.take_what_has_come(core);
        }
    }

    /// Takes in all splits that have arrived by now, so that they need no reconstruction.
    fn take_what_has_come(&mut self, core: &Core) {
        let mut rest = Vec::with_capacity(self.under_way.len());
        for (split, mut completion) in std::mem::take(&mut self.under_way) {
            match completion.try_take() {
                Some(result) => self.take_in(core, split, result),
                None => rest.push((split, completion)),
            }
        }
        self.under_way = rest;
    }

    fn is_under_way(&self, split: usize) -> bool {
        self.under_way.iter().any(|(own, _)| *own == split)
    }

    /// Of the splits that may still arrive, the one that was requested least often.
    fn next_to_ask(&self) -> Option<usize> {
        let may_come = |split: &usize| {
            !self.lost.contains(*split)
                && !self.is_under_way(*split)
                && !self.arrived.iter().any(|arrival| arrival.split == *split)
        };
        let asked = |split: &usize| self.asked.get(*split).copied().unwrap_or(ASKED_AT_MOST);
        let all = (0..self.coded.coding().splits()).filter(may_come);
        all.min_by_key(asked).filter(|split| asked(split) < ASKED_AT_MOST)
    }

    /// Waits for one outstanding read, of which there is at least one.
    async fn next_arrival(&mut self) -> (usize, ChainResult) {
        poll_fn(|context: &mut Context<'_>| {
            for at in 0..self.under_way.len() {
                let Some((split, completion)) = self.under_way.get_mut(at) else { break };
                if let Poll::Ready(result) = Pin::new(completion).poll(context) {
                    let split = *split;
                    drop(self.under_way.remove(at));
                    return Poll::Ready((split, result));
                }
            }
            Poll::Pending
        })
        .await
    }

    fn take_in(&mut self, core: &Core, split: usize, result: ChainResult) {
        match result {
            Ok(chain) => {
                let mut bufs = chain.verbs.into_iter().filter_map(Verb::into_buf);
                let (Some(payload), Some(tag)) = (bufs.next(), bufs.next()) else {
                    panic!("a split is read by two reads");
                };
                let tag = Tag::from_word(first_word(&tag));
                self.fresh.push(ArrivedSplit { split, payload, tag });
            }
            Err(failed) => {
                let ChainError { chain, error, .. } = *failed;
                if let FabricError::PeerDead { peer } = error
                    && peer.is_memory()
                {
                    core.memory.quiesced.suspect(usize::from(peer.index()));
                }
                self.lost = self.lost.with(split);
                self.suspects = self.suspects.without(SplitSet::EMPTY.with(split));
                let payload = chain.verbs.into_iter().next().and_then(Verb::into_buf);
                self.idle.extend(payload.map(|payload| (split, payload)));
            }
        }
    }

    /// Checks arrived splits, and rejects those with another version or a wrong checksum.
    fn sort_out(&mut self, core: &Core, versions: &Versions) {
        while let Some(arrival) = self.fresh.pop() {
            let ArrivedSplit { split, payload, tag } = &arrival;
            let own = SplitSet::EMPTY.with(*split);
            let version = version_of(versions, *split);
            self.suspects = self.suspects.without(own);
            if version == tag.version && core.is_as_written(*tag, payload) {
                self.arrived.push(arrival);
                continue;
            }
            let is_to_come = version != tag.version
                && (version == Version::LOST || core.split_to_come(self.addr) == Some(*split));
            if is_to_come {
                // It is being regenerated: its place has no split of this page yet.
            } else if self.stable.contains(*split) {
                self.corrupt = self.corrupt.union(own);
                if let Some(asked) = self.asked.get_mut(*split) {
                    *asked = ASKED_AT_MOST;
                }
            } else {
                self.suspects = self.suspects.union(own);
            }
            self.idle.push((arrival.split, arrival.payload));
        }
    }

    /// Whether the arrived splits are one page, as far as more have arrived than are needed.
    /// Rejects damaged ones if the pool corrects damage.
    async fn compare(&mut self, core: &Core, versions: &Versions) -> Result<bool, EngineError> {
        if self.arrived.len() < self.coded.data() {
            return Ok(false);
        }
        if self.verify()? {
            return Ok(true);
        }
        let Some(corrected) = self.coded.corrected() else { return Ok(false) };
        self.collect(core, versions, corrected).await;
        let Ok(wrong) = self.coded.codec().locate(&self.present()) else { return Ok(false) };
        let wrong: SplitSet = wrong.into_iter().collect();
        self.corrupt = self.corrupt.union(wrong);
        for arrival in std::mem::take(&mut self.arrived) {
            if wrong.contains(arrival.split) {
                self.idle.push((arrival.split, arrival.payload));
            } else {
                self.arrived.push(arrival);
            }
        }
        Ok(self.arrived.len() >= self.coded.data())
    }

    fn verify(&self) -> Result<bool, EngineError> {
        let compares = matches!(self.coded.coding().mode(), Mode::Detect | Mode::Correct);
        if !compares || self.arrived.len() <= self.coded.data() {
            return Ok(true);
        }
        self.coded.codec().verify(&self.present()).map_err(failed)
    }

    fn present(&self) -> Vec<(usize, &[u8])> {
        self.arrived.iter().map(|arrival| (arrival.split, &*arrival.payload)).collect()
    }

    /// Reconstructs the page, if it is `whole`, in a frame without outstanding reads.
    async fn settle(&mut self, core: &Core, whole: bool) -> Result<ReadResult, EngineError> {
        let data = self.coded.data();
        let (late, parity): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under_way).into_iter().partition(|(split, _)| *split < data);
        drop(parity);
        let mut moved = None;
        if late.is_empty() {
            if whole {
                self.fill_in_place()?;
            }
        } else if let Some(to) = core.frame_for_late() {
            if whole && let Err(error) = self.fill(core, to) {
                core.cache.frames.give_back(to);
                self.under_way = late;
                self.rest(core).await;
                return Err(error);
            }
            moved = Some(MovedFrame { to, late: late.into_iter().map(|(_, late)| late).collect() });
        } else {
            core.cache.evict_bell().ring();
            self.under_way = late;
            self.rest(core).await;
            // They are reconstructed from the others: their contents do not matter.
            self.idle.extend(self.fresh.drain(..).map(|late| (late.split, late.payload)));
            if whole {
                self.fill_in_place()?;
            }
        }
        Ok(ReadResult { damaged: false, corrupt: self.corrupt, moved })
    }

    /// Waits for all outstanding reads.
    async fn rest(&mut self, core: &Core) {
        while !self.under_way.is_empty() {
            let (split, result) = self.next_arrival().await;
            self.take_in(core, split, result);
        }
    }

    /// Reconstructs the missing data splits in the frame.
    fn fill_in_place(&mut self) -> Result<(), EngineError> {
        let data = self.coded.data();
        let present: Vec<(usize, &[u8])> =
            self.arrived.iter().map(|arrival| (arrival.split, &*arrival.payload)).collect();
        let mut missing: Vec<(usize, &mut [u8])> = self
            .idle
            .iter_mut()
            .filter(|(split, _)| *split < data)
            .map(|(split, buf)| (*split, &mut **buf))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.coded.codec().reconstruct(&present, &mut missing).map_err(failed)
    }

    /// Reconstructs the page in a free frame.
    fn fill(&self, core: &Core, to: FrameId) -> Result<(), EngineError> {
        let present = self.present();
        // SAFETY: the frame was free and only this task has it; the buffer is dropped here.
        let mut page = unsafe { core.cache.frames.lease(to, 0..core.cache.gcl_bytes()) };
        let mut missing = Vec::new();
        for (split, place) in page.chunks_exact_mut(self.coded.payload_bytes()).enumerate() {
            match present.iter().find(|(own, _)| *own == split) {
                Some((_, payload)) => place.copy_from_slice(payload),
                None => missing.push((split, place)),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.coded.codec().reconstruct(&present, &mut missing).map_err(failed)
    }
}

fn failed(error: CodecError) -> EngineError {
    EngineError::Codec(error)
}
