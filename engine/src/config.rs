//! Configuration of one compute node's engine, checked before anything starts.

use std::time::Duration;

use crate::EngineError;
use crate::coherence::machine::Rules;
use crate::log::LogTo;
use crate::snapshots::least_image_bytes;

/// Fewest frames a cache can have: the deepest operation (a parent split) holds a handful of pages,
/// a transaction some hundreds, and eviction needs a choice.
pub(crate) const MIN_FRAMES: u64 = 1024;
/// Most frames: indices are 32 bits and one value is reserved.
pub(crate) const MAX_FRAMES: u64 = u32::MAX as u64 - 1;

/// Most tasks that take messages in: there are no more peers.
pub const MAX_MAIL_TASKS: usize = selkie_channels::MAX_PEERS;
/// Most pages evicted together: bounds the verbs of a chain.
const MAX_EVICTION_BATCH: usize = 256;

/// How the nodes of a pool agree on who may use a page. All nodes of a pool must use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coherence {
    /// Pages and latches stay cached until another node asks for them (SELCC).
    #[default]
    Selcc,
    /// Baseline without a cache, SEL of SELCC §7: the latch word is acquired for every access, with
    /// the page, and given up with the last local user. A node that meets another one tries again.
    Sel,
    /// Baseline in the manner of GAM: pages are cached, and a directory at each memory node's
    /// processor ([`crate::start_directories`]) says who may use them.
    Rpc,
}

/// A bug that a test brings back to show that it would be found.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    Nothing,
    /// The published hand-over: no Confirm follows a grant (rule R5).
    NoConfirm,
    /// A reader asks the holder before its own bit is reset (rule R2).
    EarlyAsk,
    /// A page is written back on another queue pair than the one that then releases it (rule R8).
    LooseWriteBack,
    /// A split of a coded page is taken for written when its write is completed, in place or not.
    UnplacedSplits,
    /// A split is taken for what was written, whatever its checksum says.
    UncheckedSplits,
    /// A slab that moves is given back before its move has settled.
    EarlyGiveBack,
    /// A page is written back without an image in the journal that would outlive the writer.
    NoJournal,
    /// A transaction that is ordered by its timestamp commits, whatever others did at the leaves
    /// that it changes.
    UncheckedOrder,
    /// A leaf that a later transaction has read is stamped as read by an earlier one.
    ReadStampsGoBack,
    /// A transaction that records rows does not look again at the ranges that it has read.
    UncheckedRanges,
    /// A transaction changes a leaf and keeps no image of it for the snapshots that are active.
    NoImages,
    /// A snapshot begins at the last stamp that its node has seen, without asking the clock.
    StaleSnapshot,
    /// A commit does not look whether the definition of a table is in force that it has used.
    StaleCatalogue,
    /// A transaction that is ordered by its timestamp lets go of leaves between looking at them and
    /// changing them.
    EarlyRelease,
    /// A page is granted before the log is durable that covers it.
    UnloggedGrant,
    /// A commit is acknowledged before it is durable.
    EarlyCommit,
    /// The last change that a dead node made to a page is not redone.
    ShortRedo,
    /// A log is cut off where it is durable, whatever is home.
    EarlyTruncate,
    /// A two-phase locked transaction lets go of a leaf that it has only read when its next
    /// operation begins.
    EarlyUnlock,
    /// An optimistic transaction commits without a look at whether what it has read is as it was.
    UncheckedReads,
    /// What a transaction has read or made durable is acknowledged without asking whether the node
    /// was in the pool then.
    UnaskedLease,
    /// A peer that this node reaches no more, and that lives, is no reason to end.
    UndoubtedLinks,
    /// What this node does not reach is looked for between the steps of its recoveries alone.
    LateDoubts,
    /// A dead node counts as recovered from, and its index is free, before the latch words are
    /// swept.
    EarlyReuse,
    /// Lines that were free at a node that is gone are nobody's: none uses them again.
    ForgottenLines,
    /// A leaf that is searched for a row to be read, and has not got it, is not held, noted or
    /// stamped.
    UnguardedGaps,
    /// Images of pages are freed as soon as they are old, whatever snapshots are active.
    EarlyFree,
    /// With a dead node all go from the queue of a row lock in which it was, and not its requests.
    LostLocks,
    /// A waiter for a row lock gives up if the holder waits as well, as if that were a cycle of
    /// which all give up.
    ManyVictims,
    /// A transaction that is dropped gives no row lock back.
    KeptLocks,
}

/// Configuration of [`crate::Engine::start`].
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Protocol of the pool.
    pub coherence: Coherence,
    /// Page data cached at this node, bytes; at least [`EngineConfig::min_cache_bytes`].
    pub cache_bytes: u64,
    /// Most memory beside the cache, bytes, for pages that transactions have changed and keep
    /// latched, when these are half of the cache. It is used as it is needed. [`u64::MAX`]: as much
    /// as the transactions need, and so as the pool and the log allow.
    pub overflow_bytes: u64,
    /// Bound of every wait for a latch, an answer or a frame, and for a node that is suspended to
    /// go on.
    pub request_timeout: Duration,
    /// Local accesses (reads per thread plus writes) a page may still serve after another node
    /// has asked for it (γ of SELCC §5.3); at least 1.
    pub gamma: u32,
    /// Prefer requests of other nodes that have tried or waited longer.
    pub ageing: bool,
    /// Pages evicted together, with one chain a memory node; 1 to 256.
    pub eviction_batch: usize,
    /// Copy a dirty page that leaves, so that its frame is free before it is home (SELCC §5.2.1).
    pub send_ring: bool,
    /// Write back only the stretch of a page that was changed (SELCC §5.2.2), not all of it.
    pub dirty_bounds: bool,
    /// How long a page that was just fetched, or a right to it, is kept although other nodes wait
    /// for it, so that local waiters can use it more than once. Zero: not at all.
    pub hold: Duration,
    /// Leave this node's bit in a page's latch word when its shared copy is evicted, until a writer
    /// asks: saves the atomic of the eviction and that of the next fetch.
    pub sticky_bits: bool,
    /// Look at a page's latch word before the atomic that claims it, while most claims meet another
    /// node.
    pub looks: bool,
    /// The node reads pages and changes none: accesses to change one end in
    /// [`EngineError::ReadsOnly`], and over TCP memory nodes themselves refuse its writes.
    pub reads_only: bool,
    /// Worker threads of the process, by which shared accesses are divided in γ; at least 1.
    pub threads: u32,
    /// Ring that each other compute node writes its messages into, bytes.
    pub ring_bytes: usize,
    /// Tasks that take other nodes' messages in, each with a mailbox of its own for its share of
    /// the nodes; 1 to 64. More than one pays where they can run on processors of their own.
    pub mail_tasks: usize,
    /// Period of the housekeeping: overdue waits, reclamation epochs.
    pub tick: Duration,
    /// Damaged splits of a memory node in about 4,096 reads of pages, beyond which reads that
    /// concern it ask at once for as many splits as tell which is wrong (ErrorCorrectionLimit of
    /// Hydra §4.1); at least 1.
    pub error_correction_limit: u32,
    /// The same, beyond which the node's slabs are regenerated on others (SlabRegenerationLimit);
    /// at least [`EngineConfig::error_correction_limit`].
    pub slab_regeneration_limit: u32,
    /// Where changes are recorded, so that they outlive the node; `None`: nowhere.
    pub log: Option<LogTo>,
    /// Memory for images of pages that snapshots of any node may read after this node has changed
    /// the pages, bytes; taken when the first is kept. 0: none is kept.
    pub image_bytes: u64,
    /// The bug to bring back.
    #[cfg(feature = "planted")]
    pub planted: Planted,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            coherence: Coherence::Selcc,
            cache_bytes: 64 << 20,
            overflow_bytes: 4 << 30,
            request_timeout: Duration::from_secs(10),
            gamma: 256,
            ageing: true,
            eviction_batch: 32,
            send_ring: true,
            dirty_bounds: true,
            hold: Duration::from_micros(5),
            sticky_bits: true,
            looks: true,
            reads_only: false,
            threads: 2,
            ring_bytes: 256 << 10,
            mail_tasks: 1,
            tick: Duration::from_millis(5),
            error_correction_limit: 4,
            slab_regeneration_limit: 64,
            log: None,
            image_bytes: 64 << 20,
            #[cfg(feature = "planted")]
            planted: Planted::Nothing,
        }
    }
}

impl EngineConfig {
    /// Smallest cache for lines of `gcl_bytes`, in bytes: what is pinned at the same time must fit.
    pub fn min_cache_bytes(gcl_bytes: usize) -> u64 {
        MIN_FRAMES * gcl_bytes as u64
    }

    /// An error if the node reads only.
    pub(crate) fn check_writes(&self) -> Result<(), EngineError> {
        if self.reads_only { Err(EngineError::ReadsOnly) } else { Ok(()) }
    }

    /// The rules of the coherence protocol.
    pub(crate) const fn rules(&self) -> Rules {
        Rules {
            max_priority: if self.ageing { Rules::DESIGNED.max_priority } else { 0 },
            ask_holders: matches!(self.coherence, Coherence::Selcc),
            sticky_bits: self.sticky_bits && matches!(self.coherence, Coherence::Selcc),
            home_first: self.log.is_some(),
            #[cfg(feature = "planted")]
            confirm: !matches!(self.planted, Planted::NoConfirm),
            #[cfg(feature = "planted")]
            wait_for_reset: !matches!(self.planted, Planted::EarlyAsk),
            ..Rules::DESIGNED
        }
    }

    pub(crate) fn validate(&self, gcl_bytes: usize) -> Result<(), EngineError> {
        let refuse = |key, value, allowed: String| Err(EngineError::Config { key, value, allowed });
        let frames = self.cache_bytes / gcl_bytes as u64;
        if !(MIN_FRAMES..=MAX_FRAMES).contains(&frames) {
            let (low, high) = (Self::min_cache_bytes(gcl_bytes), MAX_FRAMES * gcl_bytes as u64);
            return refuse("cache_bytes", self.cache_bytes, format!("{low} to {high}"));
        }
        if self.gamma == 0 {
            return refuse("gamma", 0, "at least 1".into());
        }
        if !(1..=MAX_EVICTION_BATCH).contains(&self.eviction_batch) {
            let allowed = format!("1 to {MAX_EVICTION_BATCH}");
            return refuse("eviction_batch", self.eviction_batch as u64, allowed);
        }
        if self.threads == 0 {
            return refuse("threads", 0, "at least 1".into());
        }
        if !(1..=MAX_MAIL_TASKS).contains(&self.mail_tasks) {
            return refuse("mail_tasks", self.mail_tasks as u64, format!("1 to {MAX_MAIL_TASKS}"));
        }
        if self.request_timeout.is_zero() {
            return refuse("request_timeout", 0, "above zero".into());
        }
        if self.log.is_some() && self.coherence == Coherence::Rpc {
            let allowed = "none: the rpc baseline keeps no log".to_owned();
            return refuse("log", 1, allowed);
        }
        if self.tick.is_zero() {
            return refuse("tick", 0, "above zero".into());
        }
        let least = least_image_bytes(gcl_bytes);
        if (1..least).contains(&self.image_bytes) {
            return refuse("image_bytes", self.image_bytes, format!("0, or at least {least}"));
        }
        if self.error_correction_limit == 0 {
            return refuse("error_correction_limit", 0, "at least 1".into());
        }
        if self.slab_regeneration_limit < self.error_correction_limit {
            let allowed =
                format!("at least error_correction_limit, {}", self.error_correction_limit);
            let value = u64::from(self.slab_regeneration_limit);
            return refuse("slab_regeneration_limit", value, allowed);
        }
        Ok(())
    }
}
