//! What all parts of one engine share.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use selkie_channels::{ChannelError, Mailbox, MailboxDescriptor};
use selkie_fabric::env::Env;
use selkie_fabric::{Doorbell, Endpoint, FabricError, PeerId, QueuePair, RemoteAddr};
use selkie_memnode::{ComputeIndex, Pool};

use crate::alloc::Allocator;
use crate::buffer::frames::{FrameId, Frames};
use crate::buffer::table::AddressTable;
use crate::claimed::Claimed;
use crate::coding::{Coded, Halted, Repairs};
use crate::coherence::machine::Rules;
use crate::coherence::word::ComputeId;
use crate::config::EngineConfig;
use crate::epoch::Epochs;
use crate::guess::Guesses;
use crate::hottest::Hottest;
use crate::left::LeftLines;
use crate::line::Active;
use crate::log::{Log, LogOwner};
use crate::placement::PlacementMap;
use crate::service::run_mail;
use crate::stats::Counters;
use crate::ways::Ways;
use crate::{EngineError, GAddr};

/// Hash of line addresses inside a shard: the address is multiplied, as in the address table.
#[derive(Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0.rotate_left(8));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// The lines of a shard that are not at rest.
pub(crate) type LineMap = HashMap<u64, Active, BuildHasherDefault<LineHasher>>;

/// Shards lie on cache lines of their own.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Shard(Mutex<LineMap>);

/// Looked at by every hit: on a cache line of its own, which is hardly ever written.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Suspended(AtomicBool);

/// One engine.
pub(crate) struct Core {
    /// Itself, for tasks that outlive a call.
    pub(crate) this: Weak<Core>,
    pub(crate) me: ComputeId,
    pub(crate) config: EngineConfig,
    pub(crate) rules: Rules,
    /// Nodes that died, as a [`NodeSet`]: they are not asked any more.
    pub(crate) dead: AtomicU64,
    /// A recovery is under way that this node has taken note of.
    pub(crate) recovering: AtomicBool,
    pub(crate) env: Env,
    pub(crate) gcl_bytes: usize,
    pub(crate) frames: Frames,
    pub(crate) table: AddressTable,
    pub(crate) shards: Box<[Shard]>,
    pub(crate) placement: PlacementMap,
    /// Of pools with redundancy.
    pub(crate) coded: Option<Coded>,
    pub(crate) halted: Halted,
    /// What this node does for the pool as a whole.
    pub(crate) repairs: Repairs,
    /// Frames into which reads are under way that nobody waits for.
    pub(crate) late_frames: AtomicUsize,
    /// To the memory nodes.
    pub(crate) ways: Ways,
    pub(crate) endpoint: Arc<dyn Endpoint>,
    pub(crate) pool: Arc<Pool>,
    /// Each for a share of the peers, see [`Core::mailbox_for`].
    pub(crate) mailboxes: Box<[Arc<Mailbox>]>,
    /// By compute node, how often its name has been given out, as far as the mailboxes here know; 0
    /// if it never has.
    pub(crate) known: Box<[AtomicU32]>,
    pub(crate) guesses: Guesses,
    /// Lines without a copy whose word still has this node's bit.
    pub(crate) left: LeftLines,
    pub(crate) allocator: Allocator,
    /// Where changes are recorded, if they are to outlive the node.
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) epochs: Epochs,
    pub(crate) counters: Counters,
    /// Fed by misses and invalidations.
    pub(crate) hottest: Hottest,
    /// Dirty pages copied out of their frames and not home yet.
    pub(crate) copies_under_way: AtomicUsize,
    /// Lines taken over from a dead node that granted them.
    pub(crate) claimed: Claimed,
    /// Logs of dead nodes that this one has tried to redo, and how often.
    pub(crate) redone: Mutex<BTreeMap<LogOwner, u32>>,
    /// Rung when free frames run low.
    pub(crate) evict_bell: Arc<Doorbell>,
    /// Free frames below which the evictor starts, and above which it stops.
    pub(crate) low_water: usize,
    pub(crate) high_water: usize,
    /// Why the engine serves nothing more.
    pub(crate) failed: OnceLock<EngineError>,
    /// Nothing cached is served until it is known again that the node is in the pool
    /// ([`crate::lease`]).
    pub(crate) suspended: Suspended,
    /// How many nodes have had this node's index, itself included; nothing before it is in the
    /// pool.
    pub(crate) incarnation: OnceLock<u32>,
    pub(crate) closed: AtomicBool,
    /// It leaves the pool, or has left.
    pub(crate) leaves: AtomicBool,
    /// Rung when the last handle goes, so that the tasks end.
    pub(crate) stop_bell: Arc<Doorbell>,
}

impl Core {
    #[expect(clippy::indexing_slicing, reason = "the table masks shard numbers to its own count")]
    pub(crate) fn shard(&self, addr: GAddr) -> &Mutex<LineMap> {
        &self.shards[self.table.shard_of(addr)].0
    }

    /// All shards' locks, for housekeeping.
    pub(crate) fn all_shards(&self) -> impl Iterator<Item = &Mutex<LineMap>> {
        self.shards.iter().map(|s| &s.0)
    }

    /// A line with an operation under way, if there is one.
    pub(crate) fn line_under_way(&self) -> Option<GAddr> {
        self.all_shards().find_map(|shard| {
            let map = shard.lock();
            let found = map.iter().find(|(_, active)| !active.line.phase.at_rest());
            found.map(|(addr, _)| GAddr::from_u64(*addr))
        })
    }

    /// The way to a memory node.
    pub(crate) fn queue_pair(&self, node: usize) -> &dyn QueuePair {
        self.ways.to(&self.pool, node)
    }

    /// How many memory nodes the pool has had, those that are dead or have left among them.
    pub(crate) fn memory_nodes(&self) -> usize {
        self.pool.state().memory_nodes.len()
    }

    /// A place in a memory node's region.
    pub(crate) fn memory_at(&self, node: usize, offset: u64) -> Result<RemoteAddr, EngineError> {
        let _connected = self.queue_pair(node);
        let peer = PeerId::memory(node as u16);
        let region = self.ways.region(node).ok_or(FabricError::UnknownPeer { peer })?;
        Ok(RemoteAddr::new(region, offset))
    }

    /// Enters the pool, and takes mail in from then on.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<(), EngineError> {
        let (pool, index) = (&self.pool, self.index());
        let descriptors = self.mailboxes.iter().map(|mailbox| mailbox.descriptor()).collect();
        let observer: Weak<Core> = Arc::downgrade(self);
        pool.observe(observer);
        let incarnation = match pool.register_compute(&self.env, index, descriptors).await {
            Ok(incarnation) => incarnation,
            Err(error) => {
                // Unless the word is that of another node of the index.
                if !pool.is_member(index) && !pool.is_dead(index) {
                    let _ = self.publish_epoch(0).await;
                }
                return Err(error.into());
            }
        };
        let _ = self.incarnation.set(incarnation);
        // Whoever died before waits for this node only if it was in before.
        self.hear_of_deaths();
        // Not before it knows the others, whom it would have no way to answer.
        for mailbox in &self.mailboxes {
            let (core, mailbox) = (Arc::downgrade(self), Arc::clone(mailbox));
            drop(self.env.spawn("mail", run_mail(core, mailbox)));
        }
        Ok(())
    }

    /// The page of a frame.
    ///
    /// # Safety
    /// The caller holds the frame's latch, or its sealed line under the shard's lock with no
    /// writer in, for as long as the slice lives.
    pub(crate) unsafe fn page(&self, id: FrameId) -> &[u8] {
        let start = self.frames.page_ptr(id).as_ptr();
        // SAFETY: page_ptr is the start of gcl_bytes bytes of the arena; the caller keeps writers
        // out.
        unsafe { std::slice::from_raw_parts(start, self.gcl_bytes) }
    }

    /// The page of a frame, to be written.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively, or its sealed line under the shard's lock
    /// with nobody in, and makes no second reference, for as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the frame's latch is the borrow; see Safety")]
    pub(crate) unsafe fn page_mut(&self, id: FrameId) -> &mut [u8] {
        let start = self.frames.page_ptr(id).as_ptr();
        // SAFETY: as for page(), and the caller keeps everybody else out.
        unsafe { std::slice::from_raw_parts_mut(start, self.gcl_bytes) }
    }

    /// Puts a message into `to`'s mailbox. Does not wait.
    pub(crate) fn deliver(
        &self,
        to: ComputeId,
        header: &[u8],
        page: &[u8],
    ) -> Result<(), EngineError> {
        let descriptor = || {
            let index = ComputeIndex::new(to.index() as u16);
            // Who came in under the name of another is not known before the ways to that one are
            // gone.
            let known = self.known.get(to.index())?.load(Ordering::Acquire);
            self.pool.mailbox_of_incarnation(index, known, self.me.index())
        };
        self.deliver_to(to.index(), descriptor, header, page)
    }

    /// Puts a message into the mailbox of a memory node's directory. Does not wait.
    pub(crate) fn deliver_to_directory(
        &self,
        memory_node: usize,
        header: &[u8],
        page: &[u8],
    ) -> Result<(), EngineError> {
        let slot = self.pool.descriptor().max_compute_nodes + memory_node;
        self.deliver_to(slot, || self.pool.directory_of(memory_node), header, page)
    }

    fn deliver_to(
        &self,
        to: usize,
        descriptor: impl FnOnce() -> Option<MailboxDescriptor>,
        header: &[u8],
        page: &[u8],
    ) -> Result<(), EngineError> {
        let failed = |source| EngineError::Message { to, source };
        let mailbox = self.mailbox_for(to);
        match mailbox.send(to, header, page) {
            Err(ChannelError::NotConnected { .. }) => {}
            sent => return sent.map_err(failed),
        }
        match mailbox.connect_by(to, &self.endpoint, descriptor) {
            // Another thread may have been faster.
            Ok(true) | Err(ChannelError::AlreadyConnected { .. }) => {}
            Ok(false) => return Err(EngineError::Pool(format!("node {to} is gone"))),
            Err(error) => return Err(failed(error)),
        }
        mailbox.send(to, header, page).map_err(failed)
    }

    /// The mailbox in which messages of this peer arrive, and by which those to it leave.
    #[expect(clippy::indexing_slicing, reason = "a remainder of the count; there is at least one")]
    pub(crate) fn mailbox_for(&self, peer: usize) -> &Mailbox {
        &self.mailboxes[peer % self.mailboxes.len()]
    }

    /// An error if the node reads only.
    pub(crate) fn check_writes(&self) -> Result<(), EngineError> {
        if self.config.reads_only { Err(EngineError::ReadsOnly) } else { Ok(()) }
    }

    /// An error if the engine has failed.
    pub(crate) fn check_failed(&self) -> Result<(), EngineError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Whether hits have to wait.
    #[inline]
    pub(crate) fn is_suspended(&self) -> bool {
        // Relaxed: whoever misses it by a moment is as one that came that moment before. Steps of a
        // line look under its shard's lock, which whoever suspends takes afterwards.
        self.suspended.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set_suspended(&self, suspended: bool) {
        // Relaxed: as above.
        self.suspended.0.store(suspended, Ordering::Relaxed);
    }

    /// An error if the engine serves nothing more.
    pub(crate) fn check_alive(&self) -> Result<(), EngineError> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        // Relaxed: closing waits for nobody; an access that slips in finds a page or a miss.
        if self.closed.load(Ordering::Relaxed) {
            return Err(EngineError::Closed);
        }
        Ok(())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop_bell.ring();
        let (Some(incarnation), false) =
            (self.incarnation.get(), self.leaves.load(Ordering::Acquire))
        else {
            return;
        };
        // What it held is still under its name: the others have to recover as from a death.
        let (pool, node, incarnation) = (Arc::clone(&self.pool), self.index(), *incarnation);
        drop(self.env.spawn("give up", async move {
            if let Err(error) = pool.give_up(node, incarnation).await {
                tracing::debug!(%error, "an engine is gone that has not left");
            }
        }));
    }
}
