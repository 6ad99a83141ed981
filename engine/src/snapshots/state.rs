//! What a node has of snapshots: those that are active here, what it has published of them, and the
//! images that it keeps.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::lock::Mutex as TurnLock;
use parking_lot::Mutex;

use super::active::ActiveSnapshots;
use super::arena::Arena;
use super::registry::Registry;
use super::remote_arenas::RemoteArenas;
use super::stamp::Stamp;
use crate::EngineStats;

/// What is known of a node's own words at the memory node that has the epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Published {
    /// That memory node.
    pub(super) at: usize,
    /// The node's bit in the mask is set.
    pub(super) has_bit: bool,
}

/// The snapshots of this node.
#[derive(Default)]
pub(super) struct Own {
    pub(super) registry: Registry,
    /// None while a publication is under way, and after one that was given up.
    pub(super) published: Option<Published>,
}

/// The snapshots of this node, which they share.
#[derive(Default)]
pub(super) struct SharedSnapshots {
    pub(super) own: Mutex<Own>,
    /// Snapshots that are active or begin. A commit that finds none here does not lock.
    count: AtomicUsize,
}

impl SharedSnapshots {
    /// A snapshot begins. SeqCst, and before it reads the clock: a commit whose stamp is later
    /// finds it.
    pub(super) fn enter(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Snapshots and images of one node.
#[derive(Default)]
pub(crate) struct SnapshotState {
    pub(super) shared: Arc<SharedSnapshots>,
    /// Held by a caller that publishes.
    pub(super) turn: TurnLock<()>,
    /// Set once the images have room; unset still if they are to have none.
    pub(super) arena: OnceLock<Arena>,
    /// The arena's key is in the slot.
    pub(super) is_arena_published: AtomicBool,
    /// There is no memory for the arena.
    pub(super) has_no_room: AtomicBool,
    pub(super) remote_arenas: RemoteArenas,
    /// The memory node at which all members have published themselves, plus one; zero at start.
    pub(super) settled_at: AtomicUsize,
    pub(super) horizon: AtomicU64,
    /// A caller has asked for the horizon.
    pub(super) horizon_is_wanted: AtomicBool,
    pub(super) kept: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl SnapshotState {
    /// Adds the snapshots of this node that matter to a commit at `before`, which is drawn.
    pub(super) fn add_own(&self, active: &mut ActiveSnapshots, before: Stamp) {
        // SeqCst, after the draw: see `SharedSnapshots::enter`.
        if self.shared.count.load(Ordering::SeqCst) > 0 {
            self.shared.own.lock().registry.add_own(active, before);
        }
    }

    /// The node is in the pool now: it publishes itself anew, with its incarnation.
    pub(crate) fn enter(&self) {
        self.shared.own.lock().published = None;
    }

    /// Adds what is counted here.
    pub(crate) fn add_to(&self, stats: EngineStats) -> EngineStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (images_live, image_bytes) = self.arena.get().map_or((0, 0), Arena::live_bytes);
        let own = self.shared.own.lock();
        EngineStats {
            images_kept: read(&self.kept),
            images_dropped: read(&self.dropped),
            images_live,
            image_bytes,
            snapshots_active: own.registry.active_count(),
            oldest_snapshot_age: own.registry.oldest_age(),
            ..stats
        }
    }
}

/// A state of the pool that can be read until this is dropped: all that was committed up to its
/// stamp, and nothing else.
pub struct Snapshot {
    stamp: Stamp,
    shared: Arc<SharedSnapshots>,
}

impl Snapshot {
    /// The last commit that it may see.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Snapshot").field(&self.stamp.get()).finish()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shared.own.lock().registry.ended(self.stamp);
        self.shared.leave();
    }
}

/// A snapshot that is registered, and has not read the clock yet.
pub(super) struct Beginning {
    lower: Stamp,
    shared: Option<Arc<SharedSnapshots>>,
}

impl Beginning {
    /// With this lower bound, for which `SharedSnapshots::enter` was called.
    pub(super) fn new(lower: Stamp, shared: &Arc<SharedSnapshots>) -> Self {
        Self { lower, shared: Some(Arc::clone(shared)) }
    }

    /// What the clock said last.
    #[cfg(feature = "planted")]
    pub(super) fn lower(&self) -> Stamp {
        self.lower
    }

    /// The clock says `stamp`.
    pub(super) fn began(mut self, stamp: Stamp) -> Snapshot {
        let Some(shared) = self.shared.take() else { panic!("a snapshot begins once") };
        shared.own.lock().registry.began(self.lower, stamp);
        Snapshot { stamp, shared }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.own.lock().registry.gave_up(self.lower);
            shared.leave();
        }
    }
}
