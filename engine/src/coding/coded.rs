//! The state that a node of a coded pool keeps for coding: the codec, versions of modified pages,
//! damaged splits, and counts of errors and accesses.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use selkie_erasure::{Codec, codec};
use selkie_fabric::Buf;
use selkie_pool::layout::{MAX_SPLITS, SlabGeometry, TAG_BYTES};
use selkie_pool::{Coding, Mode, PoolDescriptor};

use super::header_versions::unknown_versions;
use super::journal::slots::JournalSlots;
use super::node_errors::MemoryNodeErrors;
use super::page_write::PageWrite;
use super::tag::{SplitSet, Version, Versions};
use crate::addressing::locations::SplitsAt;
use crate::cache::frame::FrameId;
use crate::telemetry::activity::Activity;
use crate::{EngineConfig, EngineError, GAddr};
use selkie_wal::Dirty;

/// The coding state of a node.
pub(crate) struct CodingState {
    coding: Coding,
    codec: Arc<dyn Codec>,
    geometry: SlabGeometry,
    /// Versions of the splits at home, for each frame with a modified page. The shard's lock guards
    /// them.
    versions: Box<[[AtomicU32; MAX_SPLITS]]>,
    /// The same for frames beyond the cache.
    versions_beyond: Mutex<HashMap<u32, Versions>>,
    journal: JournalSlots,
    /// Damaged splits, to be written again.
    corrupt: Mutex<BTreeMap<GAddr, SplitSet>>,
    /// Damaged splits by memory node.
    pub(super) errors: MemoryNodeErrors,
    /// Accesses to ranges.
    pub(crate) activity: Activity,
}

impl CodingState {
    /// `None` for pools without redundancy.
    pub(crate) fn of(
        pool: &PoolDescriptor,
        config: &EngineConfig,
        frames: usize,
    ) -> Result<Option<Self>, EngineError> {
        let (coding, geometry) = (pool.coding, pool.geometry());
        if coding.is_plain() {
            return Ok(None);
        }
        let codec = codec(coding.data(), coding.parity())?;
        let versions = (0..frames).map(|_| Default::default()).collect();
        Ok(Some(Self {
            coding,
            codec,
            geometry,
            versions,
            versions_beyond: Mutex::default(),
            journal: JournalSlots::default(),
            corrupt: Mutex::default(),
            errors: MemoryNodeErrors::new(config),
            activity: Activity::new(),
        }))
    }

    /// Notes damaged splits of a page. Returns how many of them were not noted yet.
    pub(super) fn note_corrupt(
        &self,
        addr: GAddr,
        splits: SplitSet,
        places: Option<&SplitsAt>,
    ) -> usize {
        let mut news = splits;
        // A pool that only detects damage does not repair it.
        if self.coding.mode() != Mode::Detect {
            let mut corrupt = self.corrupt.lock();
            let own = corrupt.entry(addr).or_default();
            news = splits.without(*own);
            *own = own.union(splits);
        }
        for split in news.iter() {
            if let Some(place) = places.and_then(|all| all.get(split).copied().flatten()) {
                self.errors.note_damaged(place.node);
            }
        }
        news.len()
    }

    /// The damaged splits of all pages.
    pub(crate) fn corrupt(&self) -> BTreeMap<GAddr, SplitSet> {
        self.corrupt.lock().clone()
    }

    /// Notes that a split is intact. Returns whether it was noted as damaged.
    pub(crate) fn forget_corrupt(&self, addr: GAddr, split: usize) -> bool {
        let mut corrupt = self.corrupt.lock();
        let Some(own) = corrupt.get_mut(&addr) else { return false };
        let was_corrupt = own.contains(split);
        *own = own.without(SplitSet::EMPTY.with(split));
        if own.is_empty() {
            corrupt.remove(&addr);
        }
        was_corrupt
    }

    /// The number of data splits of a page.
    pub(crate) fn data(&self) -> usize {
        self.coding.data()
    }

    pub(crate) fn journal_slots(&self) -> &JournalSlots {
        &self.journal
    }

    /// Versions of the page in a frame, as they are at home.
    pub(crate) fn versions_of(&self, id: FrameId) -> Versions {
        let Some(own) = self.versions.get(id.0 as usize) else {
            return self
                .versions_beyond
                .lock()
                .get(&id.0)
                .copied()
                .unwrap_or_else(unknown_versions);
        };
        own.each_ref().map(|version| Version::from_bits(version.load(Ordering::Relaxed)))
    }

    pub(crate) fn set_versions(&self, id: FrameId, versions: &Versions) {
        let Some(own) = self.versions.get(id.0 as usize) else {
            self.versions_beyond.lock().insert(id.0, *versions);
            return;
        };
        for (own, version) in own.iter().zip(versions) {
            own.store(version.to_bits(), Ordering::Relaxed);
        }
    }

    pub(super) fn coding(&self) -> Coding {
        self.coding
    }

    pub(super) fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.geometry.payload_bytes()
    }

    /// The splits that a read requests first (Hydra §4): more if a memory node errs too often.
    pub(super) fn asked_for(&self, places: &SplitsAt) -> SplitSet {
        let delta = self.coding.delta();
        let more = match self.coding.mode() {
            Mode::EcOnly => 0,
            _ if self.errors.suspects(places) => 2 * delta + 1,
            Mode::Recover | Mode::Detect | Mode::Correct => delta,
        };
        SplitSet::first((self.coding.data() + more).min(self.coding.splits()))
    }

    /// The number of splits that must arrive before the page is complete.
    pub(super) fn compared(&self, places: &SplitsAt) -> usize {
        match self.coding.mode() {
            Mode::Recover | Mode::EcOnly => self.coding.data(),
            Mode::Correct if self.errors.suspects(places) => self.asked_for(places).len(),
            Mode::Detect | Mode::Correct => self.coding.data() + self.coding.delta(),
        }
    }

    /// The number of splits that locate damaged ones among them, if the pool corrects damage.
    pub(super) fn corrected(&self) -> Option<usize> {
        let corrects = self.coding.mode() == Mode::Correct;
        corrects.then(|| self.coding.data() + 2 * self.coding.delta() + 1)
    }

    pub(super) fn payload_of(&self, split: usize) -> std::ops::Range<usize> {
        let bytes = self.geometry.payload_bytes();
        split * bytes..(split + 1) * bytes
    }

    /// The data splits that have dirty bytes.
    pub(super) fn dirty_set(&self, dirty: Dirty) -> SplitSet {
        let touches =
            |split: &usize| dirty.touches(&self.payload_of(*split), self.geometry.gcl_bytes());
        (0..self.coding.data()).filter(touches).collect()
    }

    /// The splits that a write-back writes: all parity splits, and the dirty data splits.
    pub(super) fn encode(
        &self,
        page: &[u8],
        dirty: SplitSet,
        before: Option<Versions>,
    ) -> Result<PageWrite, EngineError> {
        let bytes = self.geometry.payload_bytes();
        let data: Vec<&[u8]> = page.chunks_exact(bytes).collect();
        let mut parity: Vec<Buf> =
            (0..self.coding.parity()).map(|_| Buf::zeroed(bytes + TAG_BYTES as usize)).collect();
        let mut slices: Vec<&mut [u8]> =
            parity.iter_mut().filter_map(|buf| buf.get_mut(..bytes)).collect();
        self.codec.encode(&data, &mut slices)?;
        let copies = dirty.iter().filter_map(|split| {
            let payload = page.get(self.payload_of(split))?;
            let mut buf = Buf::zeroed(bytes + TAG_BYTES as usize);
            buf.get_mut(..bytes)?.copy_from_slice(payload);
            Some((split, buf))
        });
        let splits = copies.chain((self.coding.data()..).zip(parity)).collect();
        Ok(PageWrite { dirty, before, splits })
    }

    /// All splits of a line.
    pub(crate) fn splits_of(&self, page: &[u8]) -> Result<Vec<Vec<u8>>, EngineError> {
        debug_assert!(page.len() == self.coding.data() * self.geometry.payload_bytes(), "a line");
        let data: Vec<&[u8]> = page.chunks_exact(self.geometry.payload_bytes()).collect();
        let mut splits: Vec<Vec<u8>> = data.iter().map(|split| split.to_vec()).collect();
        let mut parity = vec![vec![0; self.geometry.payload_bytes()]; self.coding.parity()];
        let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(|split| &mut **split).collect();
        self.codec.encode(&data, &mut slices)?;
        splits.append(&mut parity);
        Ok(splits)
    }

    /// All splits of a page, from at least k of them.
    pub(crate) fn splits_from(
        &self,
        present: &[(usize, &[u8])],
    ) -> Result<Vec<Vec<u8>>, EngineError> {
        let mut splits = vec![vec![0; self.geometry.payload_bytes()]; self.coding.splits()];
        let mut missing: Vec<(usize, &mut [u8])> = Vec::new();
        for (number, split) in splits.iter_mut().enumerate() {
            match present.iter().find(|(own, _)| *own == number) {
                Some((_, payload)) => split.copy_from_slice(payload),
                None => missing.push((number, split)),
            }
        }
        if !missing.is_empty() {
            self.codec.reconstruct(present, &mut missing)?;
        }
        Ok(splits)
    }
}
