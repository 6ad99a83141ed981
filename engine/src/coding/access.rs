//! Latch operations of coded pages: what is one chain of a page that lies whole on a memory node is
//! several here.
//!
//! ```text
//! write back:  [parity splits] -> [dirty data splits] --.          (the stages of `torn`)
//!                                                        v
//! home:                                      [WRITE versions? | atomic | READ header?]
//! read:                                      [READ k + Δ splits]   in the same round trip
//! then, if the latch is had:                 [READ splits that did not suit]? -> reconstruct
//! ```
//! A read that finds the latch free takes one round trip: the splits are read while the latch is
//! taken, and those that have the versions of the header, which was read under the latch, and the
//! right checksum are of the page. The others were caught in a write-back: nobody writes any more,
//! so they are read again.
//!
//! To the coherence machine all of it is one operation. What it needs of the frame is taken at the
//! start, under the shard's lock: copies of what is written, leases of where is read into.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use selkie_erasure::{Codec, CodecError, codec};
use selkie_fabric::{Buf, Chain, Completion, FabricError, RemoteAddr, Verb};
use selkie_memnode::layout::{self, MAX_SPLITS, SlabGeometry, TAG_BYTES};
use selkie_memnode::{Coding, Mode, PoolDescriptor};

use super::errors::Errors;
use super::journal::{Place, Places};
use super::placed::placed;
use super::reading::{Moved, Reading};
use super::tag::{SplitSet, Tag, Version, Versions};
use super::torn::Stages;
use crate::addressing::placement::{Home, SplitAt, SplitsAt, Written};
use crate::cache::dirty::Dirty;
use crate::cache::frames::FrameId;
use crate::coherence::line::{NOTHING_FOUND, is_given_away, push_word};
use crate::coherence::machine::{Atomic, Event, LatchOperation, LocalUse, Phase, WordAccess};
use crate::coherence::open_line::OpenLine;
use crate::coherence::word::LatchWord;
use crate::core::Core;
use crate::telemetry::activity::Activity;
use crate::telemetry::stats::Counters;
use crate::{EngineConfig, EngineError, GAddr};

/// Bytes of the versions of a page.
pub(crate) const VERSIONS_BYTES: usize = 4 * MAX_SPLITS;

/// Of a node's frames, at most one in so many waits for late reads.
const LATE_FRAMES: usize = 8;

/// What a node of a coded pool has for coding.
pub(crate) struct Coded {
    coding: Coding,
    codec: Arc<dyn Codec>,
    geometry: SlabGeometry,
    /// Versions of the splits at home, of the pages held modified, by frame; under the shard's
    /// lock.
    versions: Box<[[AtomicU32; MAX_SPLITS]]>,
    journal: Places,
    /// Splits to be written again.
    corrupt: Mutex<BTreeMap<GAddr, SplitSet>>,
    /// How often memory nodes err.
    pub(super) errors: Errors,
    /// Accesses to ranges in memory.
    pub(crate) activity: Activity,
}

impl Coded {
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
        let refused = |error: CodecError| EngineError::Pool(error.to_string());
        let codec = codec(coding.data(), coding.parity()).map_err(refused)?;
        let versions = (0..frames).map(|_| Default::default()).collect();
        Ok(Some(Self {
            coding,
            codec,
            geometry,
            versions,
            journal: Places::default(),
            corrupt: Mutex::default(),
            errors: Errors::new(config),
            activity: Activity::new(),
        }))
    }

    /// Takes note of splits that are not as they were written; how many of them nobody knew of.
    fn note_corrupt(&self, addr: GAddr, splits: SplitSet, places: Option<&SplitsAt>) -> usize {
        let mut news = splits;
        // Who only tells does not mend.
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

    /// Splits that are to be written again.
    pub(crate) fn corrupt(&self) -> BTreeMap<GAddr, SplitSet> {
        self.corrupt.lock().clone()
    }

    /// A split is as it should be; whether that is news.
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

    /// Data splits of a page.
    pub(crate) fn data(&self) -> usize {
        self.coding.data()
    }

    pub(crate) fn journal_places(&self) -> &Places {
        &self.journal
    }

    /// Versions of the page in a frame, as they are at home.
    pub(crate) fn versions_of(&self, id: FrameId) -> Versions {
        let own = self.versions.get(id.0 as usize);
        let mut versions = Versions::default();
        for (version, own) in versions.iter_mut().zip(own.into_iter().flatten()) {
            *version = Version::from_bits(own.load(Ordering::Relaxed));
        }
        versions
    }

    pub(crate) fn set_versions(&self, id: FrameId, versions: &Versions) {
        let own = self.versions.get(id.0 as usize);
        for (own, version) in own.into_iter().flatten().zip(versions) {
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

    /// Splits that a read asks for at first (Hydra §4): more where a memory node errs too often.
    pub(super) fn asked_for(&self, places: &SplitsAt) -> SplitSet {
        let delta = self.coding.delta();
        let more = match self.coding.mode() {
            Mode::EcOnly => 0,
            _ if self.errors.suspects(places) => 2 * delta + 1,
            Mode::Recover | Mode::Detect | Mode::Correct => delta,
        };
        SplitSet::first((self.coding.data() + more).min(self.coding.splits()))
    }

    /// Splits that are to have come before a page is taken for whole.
    pub(super) fn compared(&self, places: &SplitsAt) -> usize {
        match self.coding.mode() {
            Mode::Recover | Mode::EcOnly => self.coding.data(),
            Mode::Correct if self.errors.suspects(places) => self.asked_for(places).len(),
            Mode::Detect | Mode::Correct => self.coding.data() + self.coding.delta(),
        }
    }

    /// Splits that tell which of them are wrong, if that is to be known.
    pub(super) fn corrected(&self) -> Option<usize> {
        let corrects = self.coding.mode() == Mode::Correct;
        corrects.then(|| self.coding.data() + 2 * self.coding.delta() + 1)
    }

    pub(super) fn payload_of(&self, split: usize) -> std::ops::Range<usize> {
        let bytes = self.geometry.payload_bytes();
        split * bytes..(split + 1) * bytes
    }

    /// The data splits of which something differs.
    fn dirty_set(&self, dirty: Dirty) -> SplitSet {
        let touches =
            |split: &usize| dirty.touches(&self.payload_of(*split), self.geometry.gcl_bytes());
        (0..self.coding.data()).filter(touches).collect()
    }
}

/// A page on its way home.
struct Write {
    dirty: SplitSet,
    /// What the header says; `None` if this node does not know.
    before: Option<Versions>,
    /// Payload of each split that is written, and room for its tag.
    splits: Vec<(usize, Buf)>,
}

impl Write {
    /// Gives the splits their tags; what the header is to say afterwards.
    fn tag(&mut self, coding: Coding, before: &Versions) -> Versions {
        let version = Version::after(before, coding.data(), self.dirty);
        let mut versions = *before;
        for (split, buf) in &mut self.splits {
            let bytes = buf.len() - TAG_BYTES as usize;
            let checksum = super::checksum(buf.get(..bytes).unwrap_or_default());
            if let Some(word) = buf.words_mut().last_mut() {
                *word = Tag { version, checksum }.to_word().to_le();
            }
            if let Some(own) = versions.get_mut(*split) {
                *own = version;
            }
        }
        versions
    }
}

/// A latch operation of a coded line.
pub(crate) struct Job {
    addr: GAddr,
    home: Home,
    places: Written,
    operation: LatchOperation,
    /// The header is read with the atomic: whoever gets the right to write has to know the
    /// versions.
    header: bool,
    write: Option<Write>,
    /// Where the data splits go, if the page is read.
    into: Option<Vec<(usize, Buf)>>,
}

/// What came of an operation.
pub(crate) struct Done {
    old: LatchWord,
    /// What the header says now, where that was asked for.
    versions: Option<Versions>,
    /// The page was to be had and cannot be put together.
    damaged: bool,
    /// Splits that are not as they were written.
    corrupt: SplitSet,
}

/// An operation that is over, however.
struct Outcome {
    done: Result<Done, EngineError>,
    /// The page is not in the frame it was to be read into.
    moved: Option<Moved>,
}

/// What an atomic found and whether the right that goes with the page was had.
fn is_granted(word: WordAccess, old: LatchWord) -> bool {
    match word {
        WordAccess::Change(Atomic::Swap { expected, .. }) => old == expected,
        WordAccess::Change(Atomic::Add(_)) => matches!(old.holder(), Ok(None)),
        WordAccess::Look | WordAccess::Skip => true,
    }
}

impl Core {
    /// Posts a latch operation of a coded line; its completion event if it is over at once.
    pub(crate) fn post_coded(
        &self,
        coded: &Coded,
        addr: GAddr,
        active: &mut OpenLine,
        operation: LatchOperation,
    ) -> Option<Event> {
        let using = self.memory.placement.using();
        let home = self.home_of(addr, active)?;
        let places = self.memory.placement.written(addr)?;
        let job = match self.job(coded, active, Job::new(addr, home, places, operation)) {
            Ok(job) => job,
            Err(error) => {
                self.fail_line(addr, active, &error);
                return None;
            }
        };
        if let (true, Some((range, _))) =
            (job.into.is_some() || job.write.is_some(), self.memory.placement.table_of(addr))
        {
            coded.activity.note(range);
        }
        let core = self.this.upgrade()?;
        let mut run = Box::pin(async move {
            let outcome = job.run(&core).await;
            drop((core, using));
            outcome
        });
        // Backends that complete at once are through by now.
        if let Poll::Ready(outcome) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            let (event, late) = self.completed_coded(addr, active, outcome);
            if let Some(late) = late {
                drop(self.env.spawn("late splits", late));
            }
            return event;
        }
        let core = self.this.upgrade()?;
        drop(self.env.spawn("latch operation", async move {
            let outcome = run.await;
            let late = {
                let mut map = core.cache.shard(addr).lock();
                let mut active = core.open(&mut map, addr);
                let (event, late) = core.completed_coded(addr, &mut active, outcome);
                if let Some(event) = event {
                    core.run(addr, &mut active, event, None);
                }
                core.close(&mut map, addr, active);
                late
            };
            if let Some(late) = late {
                late.await;
            }
        }));
        None
    }

    /// Takes what the operation needs out of the frame.
    fn job(&self, coded: &Coded, active: &mut OpenLine, mut job: Job) -> Result<Job, EngineError> {
        let Some(id) = active.frame else { return Ok(job) };
        let frame = self.cache.frames.get(id);
        let rejoins = active.line.phase == Phase::Rejoin;
        if rejoins {
            // What home has may be torn, all of it.
            frame.set_dirty(Dirty::ALL);
        }
        let dirty = self.dirty_of(id);
        if job.operation.write_back && !dirty.is_empty() {
            Counters::add(&self.telemetry.counters.write_backs);
            active.homing = frame.unhomed();
            active.copied = is_given_away(active.line.phase) && self.may_copy();
            // SAFETY: an operation is outstanding from here on, so nobody writes the frame, and the
            // shard's lock is held: it stays as it is while it is encoded.
            let page = unsafe { self.cache.page(id) };
            let before = (!rejoins).then(|| coded.versions_of(id));
            job.write = Some(coded.encode(page, coded.dirty_set(dirty), before)?);
        }
        if job.operation.read {
            let lease = |split| {
                // SAFETY: a line that fetches is not readable: nobody else touches the frame until
                // the completion. The splits do not overlap.
                let payload = unsafe { self.cache.frames.lease(id, coded.payload_of(split)) };
                (split, payload)
            };
            job.into = Some((0..coded.coding.data()).map(lease).collect());
        }
        // What is written without a change of the word behind it is in place when it can be read.
        let alone = job.write.is_some() && job.operation.word == WordAccess::Skip;
        job.header |= job.operation.read || active.line.phase.upgrades() || alone;
        Ok(job)
    }

    /// As [`Core::completed`], of a coded line; and what is to be awaited after it, if reads are
    /// late.
    fn completed_coded(
        &self,
        addr: GAddr,
        active: &mut OpenLine,
        outcome: Outcome,
    ) -> (Option<Event>, Option<impl Future<Output = ()> + use<>>) {
        self.write_done(active);
        let Outcome { done, moved } = outcome;
        let late = moved.and_then(|moved| self.move_frame(addr, active, moved));
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                let writes_back = active.line.phase == Phase::WriteBack;
                if let (true, Some(coded), Some(id)) =
                    (writes_back, &self.memory.coded, active.frame)
                {
                    // Its splits may have got new ones, or some of them.
                    coded.set_versions(id, &unknown_versions());
                }
                if matches!(&error, EngineError::Fabric(lost) if self.halt(addr, active, lost)) {
                    return (None, late);
                }
                if writes_back {
                    // The copy here is the only one: it is still to go home.
                    tracing::debug!(%addr, %error, "a page did not get home");
                    return (Some(NOTHING_FOUND), late);
                }
                self.fail_line(addr, active, &error);
                return (None, late);
            }
        };
        if let (Some(coded), Some(id), Some(versions)) =
            (&self.memory.coded, active.frame, &done.versions)
        {
            coded.set_versions(id, versions);
        }
        if done.damaged {
            let error = EngineError::PageDamaged { addr };
            active.waiters.fail_all(&error);
            active.lost = Some(error.clone());
            active.damaged = Some(error);
        }
        if let (Some(coded), false) = (&self.memory.coded, done.corrupt.is_empty()) {
            let places = self.memory.placement.splits(addr);
            for _ in 0..coded.note_corrupt(addr, done.corrupt, places.as_ref()) {
                Counters::add(&self.telemetry.counters.corruptions);
            }
        }
        self.note_looks(active, done.old);
        (Some(self.completed_with(active, done.old)), late)
    }

    /// A split's write-back, which is over when it is in place.
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "a planted bug is this node's")]
    fn write_split(&self, at: RemoteAddr, split: Buf) -> Chain {
        placed(at, split)
    }

    /// As above, unless a planted bug does not look whether it is.
    #[cfg(feature = "planted")]
    fn write_split(&self, at: RemoteAddr, split: Buf) -> Chain {
        match self.config.planted {
            crate::Planted::UnplacedSplits => Chain::from(Verb::write(at, split)),
            _ => placed(at, split),
        }
    }

    /// Whether a split is what was written, by its tag.
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "a planted bug is this node's")]
    pub(super) fn is_as_written(&self, tag: Tag, payload: &[u8]) -> bool {
        tag.is_of(payload)
    }

    /// As above, unless a planted bug does not look.
    #[cfg(feature = "planted")]
    pub(super) fn is_as_written(&self, tag: Tag, payload: &[u8]) -> bool {
        self.config.planted == crate::Planted::UncheckedSplits || tag.is_of(payload)
    }

    /// A free frame to take the place of one into which reads are under way, unless they have
    /// enough already.
    pub(super) fn frame_for_late(&self) -> Option<FrameId> {
        let most = self.cache.frames.count() / LATE_FRAMES;
        // Relaxed: a bound on memory, nothing hangs on its order.
        let is_free = self.cache.late_frames.load(Ordering::Relaxed) < most;
        is_free.then(|| self.cache.frames.take_free()).flatten()
    }

    /// Puts another frame into the place of one into which reads are still under way; that one is
    /// free when they are over.
    fn move_frame(
        &self,
        addr: GAddr,
        active: &mut OpenLine,
        moved: Moved,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let Moved { to, late } = moved;
        debug_assert!(active.seen == LocalUse::Idle, "a page is fetched under who looks at it");
        let core = self.this.upgrade()?;
        let from = active.frame.replace(to);
        if let Some(from) = from {
            self.cache.vacate(addr, from);
        }
        active.seen = self.cache.occupy(addr, to);
        Counters::add(&self.telemetry.counters.late_reads);
        self.cache.late_frames.fetch_add(1, Ordering::Relaxed);
        Some(async move {
            for split in late {
                // Whatever it is: nobody looks at it.
                let _ = split.await;
            }
            if let Some(from) = from {
                core.cache.frames.give_back(from);
            }
            // Release: who finds none left finds the frames free.
            core.cache.late_frames.fetch_sub(1, Ordering::Release);
        })
    }
}

impl Coded {
    /// The splits of a page to be written: those of parity, and the dirty ones.
    fn encode(
        &self,
        page: &[u8],
        dirty: SplitSet,
        before: Option<Versions>,
    ) -> Result<Write, EngineError> {
        let bytes = self.geometry.payload_bytes();
        let data: Vec<&[u8]> = page.chunks_exact(bytes).collect();
        let mut parity: Vec<Buf> =
            (0..self.coding.parity()).map(|_| Buf::zeroed(bytes + TAG_BYTES as usize)).collect();
        let mut slices: Vec<&mut [u8]> =
            parity.iter_mut().filter_map(|buf| buf.get_mut(..bytes)).collect();
        let encoded = self.codec.encode(&data, &mut slices);
        encoded.map_err(|error| EngineError::Pool(error.to_string()))?;
        let copies = dirty.iter().filter_map(|split| {
            let payload = page.get(self.payload_of(split))?;
            let mut buf = Buf::zeroed(bytes + TAG_BYTES as usize);
            buf.get_mut(..bytes)?.copy_from_slice(payload);
            Some((split, buf))
        });
        let splits = copies.chain((self.coding.data()..).zip(parity)).collect();
        Ok(Write { dirty, before, splits })
    }
}

impl Coded {
    /// All splits of a line.
    pub(crate) fn splits_of(&self, page: &[u8]) -> Result<Vec<Vec<u8>>, EngineError> {
        debug_assert!(page.len() == self.coding.data() * self.geometry.payload_bytes(), "a line");
        let data: Vec<&[u8]> = page.chunks_exact(self.geometry.payload_bytes()).collect();
        let mut splits: Vec<Vec<u8>> = data.iter().map(|split| split.to_vec()).collect();
        let mut parity = vec![vec![0; self.geometry.payload_bytes()]; self.coding.parity()];
        let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(|split| &mut **split).collect();
        let encoded = self.codec.encode(&data, &mut slices);
        encoded.map_err(|error| EngineError::Pool(error.to_string()))?;
        splits.append(&mut parity);
        Ok(splits)
    }

    /// All splits of the page of which these are some, k at least.
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
            let made = self.codec.reconstruct(present, &mut missing);
            made.map_err(|error| EngineError::Pool(error.to_string()))?;
        }
        Ok(splits)
    }
}

impl Job {
    fn new(addr: GAddr, home: Home, places: Written, operation: LatchOperation) -> Self {
        Self { addr, home, places, operation, header: false, write: None, into: None }
    }

    async fn run(self, core: &Core) -> Outcome {
        let mut moved = None;
        let done = self.carry_out(core, &mut moved).await;
        Outcome { done, moved }
    }

    async fn carry_out(self, core: &Core, moved: &mut Option<Moved>) -> Result<Done, EngineError> {
        let Some(coded) = &core.memory.coded else { return Err(EngineError::Closed) };
        let Self { addr, home, places, operation, header, write, into } = self;
        let mut chain = Chain::new();
        let header_at = |offset| {
            let at = home.latch.offset - layout::LATCH_AT + offset;
            RemoteAddr::new(home.latch.region, at)
        };
        let mut done =
            Done { old: LatchWord::FREE, versions: None, damaged: false, corrupt: SplitSet::EMPTY };
        // Until the operation is over: the image stands in for the splits.
        let mut journal_place = None;
        if let Some(write) = write {
            let (versions, place) = write_home(core, coded, addr, &places, (home, write)).await?;
            journal_place = place;
            done.versions = Some(versions);
            chain.push(Verb::write(header_at(layout::SPLIT_VERSION_AT), versions_buf(&versions)));
        }
        push_word(&mut chain, home.latch, operation.word);
        if header {
            chain.push(Verb::read(header_at(0), Buf::zeroed(layout::HEADER_BYTES as usize)));
        }
        let at_home =
            (!chain.verbs.is_empty()).then(|| core.memory.queue_pair(home.node).post(chain));
        let reading = into.map(|into| Reading::begin(core, coded, addr, &places.splits, into));
        let found = match at_home {
            Some(at_home) => at_home.await.map_err(|error| error.error),
            None => Ok(Chain::new()),
        };
        if let Ok(chain) = &found {
            done.old = found_word(operation.word, chain);
            if header {
                done.versions = found_versions(chain);
            }
        }
        if let Some(reading) = reading {
            let read = if found.is_ok() && is_granted(operation.word, done.old) {
                coded.errors.note_read();
                reading.finish(core, &done.versions.unwrap_or_default()).await?
            } else {
                reading.give_up(core).await?
            };
            (*moved, done.damaged, done.corrupt) = (read.moved, read.damaged, read.corrupt);
        }
        found?;
        drop(journal_place);
        Ok(done)
    }
}

impl Core {
    /// Writes a whole line of a coded pool home, which nobody reads or writes meanwhile.
    pub(crate) async fn put_coded(&self, addr: GAddr, line: &[u8]) -> Result<(), EngineError> {
        let Some(coded) = &self.memory.coded else { return Err(EngineError::Closed) };
        let _using = self.memory.placement.using();
        let home = self.memory.placement.home(addr).ok_or(EngineError::BadAddress { addr })?;
        let places = self.memory.placement.written(addr).ok_or(EngineError::BadAddress { addr })?;
        let operation = LatchOperation { write_back: true, word: WordAccess::Skip, read: false };
        let mut job = Job::new(addr, home, places, operation);
        job.write = Some(coded.encode(line, coded.dirty_set(Dirty::ALL), None)?);
        job.run(self).await.done.map(drop)
    }
}

/// Takes a page to its splits, and into the journal before that if need be; the versions of the
/// splits then, and the image's place, which stands in for the splits until the header says so.
async fn write_home<'c>(
    core: &'c Core,
    coded: &Coded,
    addr: GAddr,
    places: &Written,
    (home, mut write): (Home, Write),
) -> Result<(Versions, Option<Place<'c>>), EngineError> {
    let header = RemoteAddr::new(home.latch.region, home.latch.offset - layout::LATCH_AT);
    let before = match write.before {
        Some(before) if !before.contains(&Version::LOST) => before,
        // A split that is made again has got another version since, perhaps.
        known => match (read_versions(core, home.node, header).await, known) {
            // The page has to get to its splits all the same: the header will be made of what they
            // say.
            (Err(EngineError::Fabric(FabricError::PeerDead { peer })), Some(known))
                if peer.is_memory() =>
            {
                known
            }
            (read, _) => read?,
        },
    };
    let versions = write.tag(coded.coding, &before);
    let stages = Stages::of(coded.coding, write.dirty);
    #[cfg(feature = "planted")]
    let stages = Stages {
        journal: stages.journal && core.config.planted != crate::Planted::NoJournal,
        ..stages
    };
    let mut place = None;
    if stages.journal {
        let both = (&before, &versions);
        place = Some(core.journal(addr, both, &places.splits, &write.splits).await?);
    }
    write_splits(core, coded, places, (stages, write)).await?;
    Ok((versions, place))
}

/// What the atomic, or the look, of a chain found.
fn found_word(word: WordAccess, chain: &Chain) -> LatchWord {
    let bits = match word {
        WordAccess::Skip => return LatchWord::FREE,
        WordAccess::Look => chain
            .verbs
            .iter()
            .find_map(Verb::buf)
            .and_then(|buf| buf.words().first().map(|word| u64::from_le(*word))),
        WordAccess::Change(_) => chain.verbs.iter().find_map(Verb::old),
    };
    LatchWord::from_bits(bits.unwrap_or_default())
}

/// Asks the home for the versions of a page.
pub(crate) async fn read_versions(
    core: &Core,
    node: usize,
    at: RemoteAddr,
) -> Result<Versions, EngineError> {
    let read = Verb::read(at, Buf::zeroed(layout::HEADER_BYTES as usize));
    let chain = core.memory.queue_pair(node).post(Chain::from(read)).await.map_err(|e| e.error)?;
    Ok(found_versions(&chain).unwrap_or_default())
}

/// Versions as they lie in a header, in a message too.
pub(crate) fn versions_bytes(versions: &Versions) -> [u8; VERSIONS_BYTES] {
    let mut bytes = [0; VERSIONS_BYTES];
    for (to, version) in bytes.as_chunks_mut().0.iter_mut().zip(versions) {
        *to = version.to_bits().to_le_bytes();
    }
    bytes
}

/// Versions of which it has to be asked what they are.
pub(crate) fn unknown_versions() -> Versions {
    [Version::LOST; MAX_SPLITS]
}

fn versions_buf(versions: &Versions) -> Buf {
    Buf::copy_of(&versions_bytes(versions))
}

/// Versions from how they lie in a header.
pub(crate) fn versions_from(bytes: &[u8]) -> Versions {
    let mut versions = Versions::default();
    for (version, bytes) in versions.iter_mut().zip(bytes.as_chunks().0) {
        *version = Version::from_bits(u32::from_le_bytes(*bytes));
    }
    versions
}

/// The versions in a header that a chain ended with.
fn found_versions(chain: &Chain) -> Option<Versions> {
    let header = chain.verbs.last()?.buf()?;
    Some(versions_from(header.get(layout::SPLIT_VERSION_AT as usize..)?))
}

/// Writes the splits of a page, stage by stage. Splits whose memory is lost are left out, as long
/// as the rest makes up the page. One that is on its way to another memory node is written there as
/// well.
async fn write_splits(
    core: &Core,
    coded: &Coded,
    places: &Written,
    (stages, write): (Stages, Write),
) -> Result<(), EngineError> {
    let (first, second): (Vec<_>, Vec<_>) =
        write.splits.into_iter().partition(|(split, _)| stages.first.contains(*split));
    let mut lost = 0;
    let mut copies: Vec<Completion> = Vec::new();
    for stage in [first, second] {
        let mut posted: Vec<Completion> = Vec::new();
        for (split, buf) in stage {
            if let Some((_, SplitAt { node, at })) = places.also.filter(|(own, _)| *own == split) {
                copies.push(
                    core.memory.queue_pair(node).post(core.write_split(at, Buf::copy_of(&buf))),
                );
            }
            if let Some(SplitAt { node, at }) = places.splits.get(split).copied().flatten() {
                posted.push(core.memory.queue_pair(node).post(core.write_split(at, buf)));
            }
        }
        for written in posted {
            if let Err(failed) = written.await {
                core.gone(failed.error).await?;
                lost += 1;
            }
            if lost > coded.coding.parity() {
                return Err(EngineError::TooManyLost { lost, parity: coded.coding.parity() });
            }
        }
    }
    for copy in copies {
        // The page has its split elsewhere.
        if let Err(failed) = copy.await {
            core.gone(failed.error).await?;
        }
    }
    Ok(())
}
