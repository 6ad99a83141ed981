//! What lies in the memory nodes of a coded pool, looked at from outside: whether the splits of
//! every page are those of one page, and as they were written.
//!
//! The look takes no time and disturbs no node. It is valid only while no write-back is under
//! way.

use selkie_engine::coherence::word::LatchWord;
use selkie_erasure::codec;
use selkie_fabric::LocalRegion;
use selkie_fabric::env::SplitMix;
use selkie_pool::layout::{
    HEADER_BYTES, Header, MAX_SPLITS, SlabGeometry, TAG_BYTES, VERSION_COUNTER, VERSION_LOST,
    VERSION_NEVER,
};
use selkie_pool::{Pool, checksum};

use super::memory::SimMemory;
use super::nodes::SimCluster;
use crate::error::SimError;

/// A split that is not as the header of its page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrongSplit {
    /// Global address of the page.
    pub(crate) addr: u64,
    /// Which split.
    pub(crate) split: usize,
    /// What is wrong with it.
    pub(crate) what: String,
}

/// What was found in all memory nodes that live.
#[derive(Clone, Debug, Default)]
pub(crate) struct SplitFindings {
    /// Pages that were ever written.
    pub(crate) pages: u64,
    /// Splits that lie on dead memory nodes.
    pub(crate) missing: u64,
    /// Splits that are not what they should be.
    pub(crate) wrong: Vec<WrongSplit>,
    /// Pages whose splits, each as it was written, are not of one page.
    pub(crate) mixed: Vec<u64>,
}

impl SplitFindings {
    /// Leaves out what is wrong with these pages.
    pub(crate) fn leave_out(&mut self, addrs: &[u64]) {
        self.wrong.retain(|wrong| !addrs.contains(&wrong.addr));
        self.mixed.retain(|addr| !addrs.contains(addr));
    }

    /// Fails unless every split is there and right.
    pub(crate) fn is_right(&self) -> Result<(), SimError> {
        match (self.wrong.first(), self.mixed.first()) {
            (None, None) => Ok(()),
            (Some(WrongSplit { addr, split, what }), _) => Err(SimError::Broken(format!(
                "in memory at rest, split {split} of page {addr:#x} {what}; {} splits are wrong",
                self.wrong.len()
            ))),
            (None, Some(addr)) => Err(SimError::Broken(format!(
                "in memory at rest, the splits of page {addr:#x} are not of one page; nor those of {} others",
                self.mixed.len() - 1
            ))),
        }
    }
}

/// Whether the split at `offset` is as it was written, by its tag.
pub(crate) fn is_as_written(region: &dyn LocalRegion, offset: usize, payload_bytes: usize) -> bool {
    let mut payload = vec![0; payload_bytes];
    region.read(offset, &mut payload);
    let tag = region.load(offset + payload_bytes);
    match (tag as u32, (tag >> 32) as u32) {
        (VERSION_NEVER, sum) => sum == 0 && payload.iter().all(|byte| *byte == 0),
        (_, sum) => sum == checksum(&payload),
    }
}

/// The range of a page, and which of its pages it is.
fn place_of(geometry: &SlabGeometry, addr: u64) -> (usize, u32) {
    let within = addr % geometry.range_bytes();
    let range = addr / geometry.range_bytes();
    (range as usize, (within / geometry.gcl_bytes() as u64) as u32)
}

/// Where a split lies.
#[derive(Clone, Copy)]
pub(crate) struct SplitPlace {
    /// The memory node, by index.
    pub(crate) node: usize,
    /// Offset of its first byte.
    pub(crate) offset: usize,
}

fn split_place(pool: &Pool, addr: u64, split: usize) -> Option<SplitPlace> {
    let (geometry, state) = (pool.descriptor().geometry(), pool.state());
    let (range, gcl) = place_of(&geometry, addr);
    let range = state.ranges.get(range)?;
    let slab = range.slabs.get(geometry.split_position(gcl, split))?;
    let offset = geometry.data_offset(slab.slab, gcl) as usize;
    Some(SplitPlace { node: usize::from(slab.node), offset })
}

/// The header of a page, if its memory node is one that was ever there.
fn header_of(memory: &SimMemory, addr: u64) -> Option<Header> {
    let pool = memory.pool();
    let (geometry, state) = (pool.descriptor().geometry(), pool.state());
    let (range, gcl) = place_of(&geometry, addr);
    let (slab, table) = state.ranges.get(range)?.home_of(geometry.home_position(gcl))?;
    let mut bytes = [0; HEADER_BYTES as usize];
    let at = geometry.header_offset_in(slab.slab, gcl, table) as usize;
    memory.region(usize::from(slab.node))?.read(at, &mut bytes);
    Some(Header::from_bytes(&bytes))
}

/// Has a bit of a page that was drawn, or of a tag, be another from now on: of each page in the
/// same split, which is said with its address. `None` if the page that was drawn was never written,
/// or is none.
pub(crate) fn decay(memory: &SimMemory, random: &SplitMix) -> Option<(u64, usize)> {
    let pool = memory.pool();
    let (geometry, coding) = (pool.descriptor().geometry(), pool.descriptor().coding);
    let range = random.below(pool.state().ranges.len() as u64);
    let gcl = random.below(geometry.gcls_per_range());
    let addr = range * geometry.range_bytes() + gcl * geometry.gcl_bytes() as u64;
    let versions = header_of(memory, addr)?.split_version;
    if versions.contains(&VERSION_COUNTER) || versions.iter().all(|own| *own == VERSION_NEVER) {
        return None;
    }
    let split = gcl as usize / 3 % coding.splits();
    let place = split_place(pool, addr, split)?;
    let bits = 8 * (geometry.payload_bytes() as u64 + TAG_BYTES);
    let bit = random.below(bits) as usize;
    let region = memory.region(place.node)?;
    let at = place.offset + bit / 64 * 8;
    region.store(at, region.load(at) ^ 1 << (bit % 64));
    Some((addr, split))
}

/// The compute node that is writing a page back: some of the splits that it writes are new, others
/// are not.
pub(crate) fn writer_of(memory: &SimMemory, addr: u64) -> Option<u16> {
    let pool = memory.pool();
    let header = header_of(memory, addr)?;
    let (coding, bytes) = (pool.descriptor().coding, pool.descriptor().geometry().payload_bytes());
    let living = |place: &SplitPlace| !pool.is_memory_dead(place.node);
    let version_of = |split| {
        let place = split_place(pool, addr, split).filter(living)?;
        let region = memory.region(place.node)?;
        Some(region.load(place.offset + bytes) as u32)
    };
    let versions: Vec<Option<u32>> = (0..coding.splits()).map(version_of).collect();
    let both = versions.iter().zip(&header.split_version);
    let new = both
        .filter_map(|(is, was)| {
            is.filter(|is| is != was && *is != VERSION_NEVER && *was != VERSION_LOST)
        })
        .next()?;
    // A version begins with the data splits that are written with it; parity always is.
    let is_written = |split: usize| split >= coding.data() || new >> split & 1 == 1;
    let mut written = (0..).zip(&versions).filter(|(split, _)| is_written(*split));
    let is_half = written.any(|(_, version)| version.is_some_and(|version| version != new));
    let holder = LatchWord::from_bits(header.latch).holder().ok().flatten().filter(|_| is_half)?;
    Some(holder.index() as u16)
}

impl SimCluster {
    /// Where a split of a page lies.
    pub(crate) fn split_place(&self, addr: u64, split: usize) -> Option<SplitPlace> {
        split_place(&self.pool, addr, split)
    }

    /// The memory node, by index, that has a page's header.
    pub(crate) fn home_of(&self, addr: u64) -> Option<u16> {
        let (geometry, state) = (self.pool.descriptor().geometry(), self.pool.state());
        let (range, gcl) = place_of(&geometry, addr);
        let range = state.ranges.get(range)?;
        range.home_of(geometry.home_position(gcl)).map(|(slab, _)| slab.node)
    }

    /// Looks at all pages of all ranges.
    pub(crate) fn look_at_splits(&self) -> Result<SplitFindings, SimError> {
        look_at_splits(&self.memory)
    }
}

/// Looks at all pages of all ranges.
pub(crate) fn look_at_splits(memory: &SimMemory) -> Result<SplitFindings, SimError> {
    let pool = memory.pool();
    let (geometry, state) = (pool.descriptor().geometry(), pool.state());
    let mut found = SplitFindings::default();
    for range in 0..state.ranges.len() as u64 {
        for gcl in 0..geometry.gcls_per_range() {
            let addr = range * geometry.range_bytes() + gcl * geometry.gcl_bytes() as u64;
            let Some(header) = header_of(memory, addr) else { continue };
            look_at_page(memory, addr, &header.split_version, &mut found)?;
        }
    }
    Ok(found)
}

/// Whether a split is being regenerated.
fn is_to_come(pool: &Pool, addr: u64, split: usize) -> bool {
    let geometry = pool.descriptor().geometry();
    let task = pool.state().regeneration.filter(|task| task.begun);
    let (range, gcl) = place_of(&geometry, addr);
    task.is_some_and(|task| {
        task.range == range && task.position == geometry.split_position(gcl, split)
    })
}

fn look_at_page(
    memory: &SimMemory,
    addr: u64,
    versions: &[u32; MAX_SPLITS],
    found: &mut SplitFindings,
) -> Result<(), SimError> {
    let pool = memory.pool();
    let coding = pool.descriptor().coding;
    let bytes = pool.descriptor().geometry().payload_bytes();
    if versions.contains(&VERSION_COUNTER) {
        return Ok(());
    }
    found.pages += u64::from(versions.iter().any(|version| *version != VERSION_NEVER));
    let mut whole: Vec<(usize, Vec<u8>)> = Vec::new();
    for (split, version) in versions.iter().enumerate().take(coding.splits()) {
        let place = split_place(pool, addr, split);
        let is_there =
            |place: &SplitPlace| !pool.is_memory_dead(place.node) && !is_to_come(pool, addr, split);
        let living = place.filter(is_there);
        let memory = living.and_then(|place| Some((place.offset, memory.region(place.node)?)));
        let Some((offset, memory)) = memory else {
            found.missing += 1;
            continue;
        };
        let mut payload = vec![0; bytes];
        memory.read(offset, &mut payload);
        let own = memory.load(offset + bytes) as u32;
        let what = if *version == VERSION_LOST {
            Some("is taken for lost though its memory node lives".to_owned())
        } else if own != *version {
            Some(format!("is of version {own:#x}, its header says {version:#x}"))
        } else if !is_as_written(&*memory, offset, bytes) {
            Some("is not what was written".to_owned())
        } else {
            None
        };
        match what {
            Some(what) => found.wrong.push(WrongSplit { addr, split, what }),
            None => whole.push((split, payload)),
        }
    }
    let failed = |error| SimError::Broken(format!("page {addr:#x}: {error}"));
    let codec = codec(coding.data(), coding.parity()).map_err(failed)?;
    let present: Vec<(usize, &[u8])> =
        whole.iter().map(|(split, payload)| (*split, &**payload)).collect();
    if present.len() > coding.data() && !codec.verify(&present).map_err(failed)? {
        found.mixed.push(addr);
    }
    Ok(())
}

const _: () = assert!(TAG_BYTES == 8);
