//! The control page of a node: its liveness, regions and doorbells, in shared memory.
//!
//! ```text
//! 0      magic        u64           MAGIC, written last
//! 8      version      u64           VERSION
//! 16     incarnation  u64           random, one for each time the node joins
//! 24     process      u64           process id of the owner
//! 32     dead         u64           0, or 1 from then on
//! 40     bell         u32           counts the calls for the attendant; a futex
//! 44     asleep       u32           1 while the attendant sleeps or is about to
//! 64     executing    u64 x 16      executing verbs by stripe, each in a cache line of its own
//! 4096   regions      (u64, u64) x 1024   key (0: none, written last) and length in bytes
//! 20480  doorbells    u64 x 1024    as `Doorbell` keeps them
//! 28672
//! ```

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use super::mapping::Mapping;
use crate::id::RegionKey;
use crate::mem::MAX_REGIONS;

/// First word of a control page: "SELKSHM\x01" as a little-endian integer.
const MAGIC: u64 = u64::from_le_bytes(*b"SELKSHM\x01");
/// Version of the control page and of what the files are named.
const VERSION: u64 = 1;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
const INCARNATION_AT: usize = 16;
const PROCESS_AT: usize = 24;
const DEAD_AT: usize = 32;
const BELL_AT: usize = 40;
const ASLEEP_AT: usize = 44;
const EXECUTING_AT: usize = 64;
const REGIONS_AT: usize = 4096;
const DOORBELLS_AT: usize = REGIONS_AT + 16 * MAX_REGIONS as usize;
/// Length of a control page.
pub(super) const CONTROL_BYTES: usize = DOORBELLS_AT + 8 * MAX_REGIONS as usize;

/// Counters of executing verbs. There are several, so that few threads share one.
const STRIPES: usize = 16;
const STRIPE_BYTES: usize = 64;

const _: () = assert!(EXECUTING_AT + STRIPES * STRIPE_BYTES <= REGIONS_AT);
const _: () = assert!(CONTROL_BYTES == 28672 && CONTROL_BYTES.is_multiple_of(4096));

/// A mapped control page, of this node or of a peer.
pub(super) struct ControlPage(Mapping);

/// Why a control page cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadControlPage {
    NoMagic { found: u64 },
    OtherVersion { found: u64 },
}

impl ControlPage {
    /// Fills in a new page; the mapping is zero and has [`CONTROL_BYTES`] bytes.
    pub(super) fn new(mapping: Mapping, incarnation: u64) -> Self {
        let words = [
            (VERSION_AT, VERSION),
            (INCARNATION_AT, incarnation),
            (PROCESS_AT, u64::from(std::process::id())),
            (MAGIC_AT, MAGIC),
        ];
        for (at, value) in words {
            // Release: a peer that sees the magic sees the rest.
            mapping.word(at).store(value, Ordering::Release);
        }
        Self(mapping)
    }

    /// The page of a peer.
    pub(super) fn open(mapping: Mapping) -> Result<Self, BadControlPage> {
        // Acquire: pairs with `new`.
        let magic = mapping.word(MAGIC_AT).load(Ordering::Acquire);
        let version = mapping.word(VERSION_AT).load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(BadControlPage::NoMagic { found: magic });
        }
        if version != VERSION {
            return Err(BadControlPage::OtherVersion { found: version });
        }
        Ok(Self(mapping))
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.0.word(INCARNATION_AT).load(Ordering::Relaxed)
    }

    pub(super) fn process(&self) -> u64 {
        self.0.word(PROCESS_AT).load(Ordering::Relaxed)
    }

    /// Marks the node dead, for good. Announced verbs may still execute.
    pub(super) fn mark_dead(&self) {
        // SeqCst: pairs with `announce` and `is_dead`, see `is_executing`.
        self.0.word(DEAD_AT).store(1, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.0.word(DEAD_AT).load(Ordering::SeqCst) != 0
    }

    /// Announces verbs of the owner of the page. They execute until the guard is dropped.
    #[inline]
    pub(super) fn announce(&self) -> AnnouncedVerbs<'_> {
        let at = EXECUTING_AT + stripe() * STRIPE_BYTES;
        let executing = self.0.word(at);
        // SeqCst: see `is_executing`.
        executing.fetch_add(1, Ordering::SeqCst);
        AnnouncedVerbs(executing)
    }

    /// Whether the owner has announced a verb that is not over. Once the node is marked dead and
    /// this returned false, it executes nothing more: either its announcement comes first and is
    /// seen here, or the mark comes first and the owner sees it.
    pub(super) fn is_executing(&self) -> bool {
        let stripes = (0..STRIPES).map(|stripe| EXECUTING_AT + stripe * STRIPE_BYTES);
        stripes.into_iter().any(|at| self.0.word(at).load(Ordering::SeqCst) != 0)
    }

    /// Publishes a region.
    pub(super) fn publish_region(&self, slot: usize, key: RegionKey, bytes: usize) {
        let at = REGIONS_AT + 16 * slot;
        self.0.word(at + 8).store(bytes as u64, Ordering::Relaxed);
        // Release: a peer that sees the key sees the length and the file.
        self.0.word(at).store(u64::from(key.to_raw()), Ordering::Release);
    }

    /// Key and length of a region, if there is one.
    pub(super) fn region(&self, slot: usize) -> Option<(RegionKey, usize)> {
        if slot >= MAX_REGIONS as usize {
            return None;
        }
        let at = REGIONS_AT + 16 * slot;
        // Acquire: pairs with `publish_region`.
        let key =
            u32::try_from(self.0.word(at).load(Ordering::Acquire)).ok().filter(|k| *k != 0)?;
        let bytes = usize::try_from(self.0.word(at + 8).load(Ordering::Relaxed)).ok()?;
        Some((RegionKey::from_raw(key), bytes))
    }

    /// The word in which the doorbell of a region counts.
    #[inline]
    pub(super) fn doorbell(&self, slot: usize) -> &AtomicU64 {
        self.0.word(DOORBELLS_AT + 8 * slot)
    }

    /// Calls the attendant of the owner of the page.
    pub(super) fn call(&self) {
        // SeqCst: pairs with `sleep`: either it sees the new count, or `asleep` is seen here.
        self.bell().fetch_add(1, Ordering::SeqCst);
        if self.asleep().swap(0, Ordering::SeqCst) != 0 {
            // It fails only for a bad address, and the bell is mapped.
            let _ = futex::wake(self.bell(), futex::Flags::empty(), 1);
        }
    }

    /// How often the attendant was called.
    pub(super) fn calls(&self) -> u32 {
        self.bell().load(Ordering::SeqCst)
    }

    /// Sleeps until the attendant has been called more often than `seen`, at most `nanoseconds`
    /// (below a second). May return earlier.
    pub(super) fn sleep(&self, seen: u32, nanoseconds: u32) {
        self.asleep().store(1, Ordering::SeqCst);
        if self.calls() == seen {
            let timeout = futex::Timespec { tv_sec: 0, tv_nsec: i64::from(nanoseconds) };
            // The caller checks again after a call, a timeout and an interruption alike.
            let _ = futex::wait(self.bell(), futex::Flags::empty(), seen, Some(&timeout));
        }
        self.asleep().store(0, Ordering::SeqCst);
    }

    fn bell(&self) -> &AtomicU32 {
        self.0.half_word(BELL_AT)
    }

    fn asleep(&self) -> &AtomicU32 {
        self.0.half_word(ASLEEP_AT)
    }
}

/// Announced verbs.
pub(super) struct AnnouncedVerbs<'c>(&'c AtomicU64);

impl Drop for AnnouncedVerbs<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: a process that sees the end of the verbs sees what they did.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A number for the calling thread, so that few share one.
#[inline]
fn stripe() -> usize {
    static THREADS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.with(|stripe| *stripe)
}

/// The word of a region's doorbell.
pub(crate) struct SharedDoorbellWord {
    control: Arc<ControlPage>,
    slot: usize,
}

impl SharedDoorbellWord {
    pub(super) fn new(control: &Arc<ControlPage>, slot: usize) -> Self {
        Self { control: Arc::clone(control), slot }
    }
}

impl Deref for SharedDoorbellWord {
    type Target = AtomicU64;

    #[inline]
    fn deref(&self) -> &AtomicU64 {
        self.control.doorbell(self.slot)
    }
}
