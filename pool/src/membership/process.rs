//! The state of a pool as a process knows it, and the signs of life that the process has given.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use selkie_fabric::{Fabric, FenceScope, LocalRegion, PeerId};

use super::change::change_state;
use super::observer::Observer;
use super::silence::SilenceLengths;
use crate::control::{Beat, ControlError, ControlPlane, Version, Versioned};
use crate::document::{PoolState, Timing};
use crate::error::PoolError;

/// A process as a member of a pool.
pub struct Membership {
    pub(super) host: u64,
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) plane: Arc<dyn ControlPlane>,
    pub(super) view: RwLock<Versioned>,
    pub(super) acted: Mutex<Acted>,
    pub(super) shown: Mutex<Shown>,
    pub(super) reports: Mutex<BTreeMap<PeerId, String>>,
    pub(super) observers: Mutex<Vec<Weak<dyn Observer>>>,
    /// The pool was removed.
    pub(super) gone: AtomicBool,
    /// Nodes of this process that have ended: the process no longer beats for them.
    pub(super) ended: Mutex<BTreeSet<PeerId>>,
    /// Memory nodes of this process, which show that the plane is looked at.
    pub(super) marks: Mutex<Vec<Arc<dyn LocalRegion>>>,
}

/// What the fabric has been told of the view.
#[derive(Default)]
pub(super) struct Acted {
    /// All changes up to this one.
    pub(super) upto: Version,
    pub(super) met: BTreeMap<u16, String>,
    /// The compute nodes that were in the pool, or to be recovered from.
    pub(super) members: BTreeSet<u16>,
    /// Those of them that have left something behind, on a fabric without cards.
    pub(super) to_forget: BTreeSet<u16>,
    /// When that is tried again.
    pub(super) forget_at: Duration,
    /// Dead nodes whose verbs do not execute any more, as far as this process sees to it; with the
    /// version of the view in which they were first seen dead.
    pub(super) fenced: BTreeMap<PeerId, (FenceScope, Version)>,
}

/// The signs of life this process gave last.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) beats: BTreeMap<PeerId, (Beat, Duration)>,
    /// When, by the environment's clock, all its nodes were last shown to live.
    pub(super) alive_at: Option<Duration>,
    /// When the node that came last was first shown to live.
    pub(super) first_at: Option<Duration>,
    /// How often it took too long until they were shown to live again.
    pub(super) silences: u64,
    /// How long it took.
    pub(super) lengths: SilenceLengths,
    /// When this process last counted a look at the plane.
    pub(super) marked_at: Duration,
    /// Since when this process looks at the plane regularly, and when it did last.
    pub(super) looking: Option<(Duration, Duration)>,
    /// Nodes of others, with their processes, that have been silent for too long, and for how long
    /// this process has been watching them.
    pub(super) silent: BTreeMap<(PeerId, u64), Duration>,
    /// Silent memory nodes that are waited for, as more are than the pool can spare.
    pub(super) suspected: BTreeSet<u16>,
}

/// What a process has shown of its nodes, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignsOfLife {
    /// For how long it has not been able to show that they live; zero if this process does not
    /// follow the pool.
    pub silent_for: Duration,
    /// How often it was silent for longer than three quarters of a lease, and then beat again.
    /// While this count stays the same, and the present silence is shorter, no node can have found
    /// it silent for a lease.
    pub silences: u64,
    /// For how long it was silent at the longest, the present silence included.
    pub longest: Duration,
    /// The same of the present silence, and of one that was too long and has just ended: of the
    /// silence for which others can have taken its nodes for dead just now.
    pub latest: Duration,
}

impl Membership {
    /// The process `host` as a member of the pool that `plane` keeps, whose document `view` has
    /// just been read. The fabric is told of all that is in it.
    ///
    /// # Errors
    /// [`PoolError::Fabric`].
    pub fn new(
        host: u64,
        fabric: Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        view: Versioned,
    ) -> Result<Self, PoolError> {
        let membership = Self {
            host,
            fabric,
            plane,
            view: RwLock::new(view),
            acted: Mutex::default(),
            shown: Mutex::default(),
            reports: Mutex::default(),
            observers: Mutex::default(),
            gone: AtomicBool::new(false),
            ended: Mutex::default(),
            marks: Mutex::default(),
        };
        membership.act()?;
        Ok(membership)
    }

    /// Stands for this process among those that use the pool.
    #[must_use]
    pub fn host(&self) -> u64 {
        self.host
    }

    /// The control plane of the pool.
    #[must_use]
    pub fn plane(&self) -> &dyn ControlPlane {
        &*self.plane
    }

    /// The state that this process works by.
    #[must_use]
    pub fn state(&self) -> Arc<PoolState> {
        Arc::clone(&self.view.read().state)
    }

    /// When silence means death in this pool.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.view.read().state.timing
    }

    /// How often to look for changes by others.
    pub fn plane_pace(&self) -> Duration {
        self.plane.pace()
    }

    /// Has `observer` told of changes, and of nodes that come in, those that are in first.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        let mut observers = self.observers.lock();
        observers.retain(|observer| observer.strong_count() > 0);
        observers.push(observer);
        drop(observers);
        // The members are known to the fabric, but new to the observer.
        self.acted.lock().upto = 0;
    }

    pub(super) fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.observers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Sets the report that a node of this process sends with its beats from now on.
    pub fn set_report(&self, node: PeerId, report: String) {
        self.reports.lock().insert(node, report);
    }

    /// Stops the beats of a node of this process, or resumes them for the next node of its name.
    pub fn set_ended(&self, node: PeerId, has_ended: bool) {
        let mut ended = self.ended.lock();
        if has_ended {
            ended.insert(node);
        } else {
            ended.remove(&node);
        }
    }

    /// Whether the pool was removed, as far as is known.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// What this process has shown of its nodes.
    #[must_use]
    pub fn signs_of_life(&self, now: Duration) -> SignsOfLife {
        let (lease, shown) = (self.timing().lease, self.shown.lock());
        let silent_for = shown.alive_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        let lengths = &shown.lengths;
        let longest = lengths.longest().max(silent_for);
        let latest = lengths.lately(now, lease).max(silent_for);
        SignsOfLife { silent_for, silences: shown.silences, longest, latest }
    }

    /// The state as it is now, which is not acted upon.
    pub async fn latest(&self) -> Result<Arc<PoolState>, PoolError> {
        Ok(self.load().await?.state)
    }

    pub(super) async fn load(&self) -> Result<Versioned, PoolError> {
        let loaded = self.plane.load().await;
        let is_gone = match &loaded {
            // Another of its name is not the one that this process is in.
            Ok(now) => now.state.id != self.state().id,
            Err(error) => matches!(error, ControlError::NoPool { .. }),
        };
        if is_gone {
            self.gone.store(true, Ordering::Relaxed);
            let place = "the pool's place".to_owned();
            return Err(loaded.err().unwrap_or(ControlError::NoPool { place }).into());
        }
        Ok(loaded?)
    }

    pub(super) fn see(&self, now: Versioned) {
        let mut view = self.view.write();
        if now.version > view.version {
            *view = now;
        }
    }

    /// Changes the state by compare-and-swap, again if others were faster. The version that shows
    /// it.
    pub async fn change<T>(
        &self,
        change: impl Fn(&mut PoolState) -> Result<T, PoolError>,
    ) -> Result<(Version, T), PoolError> {
        let (now, value) = change_state(self.plane(), change).await?;
        let version = now.version;
        self.changed_to(now);
        Ok((version, value))
    }

    pub(super) fn changed_to(&self, now: Versioned) {
        self.see(now);
        // Not where looks are counted: others may rely on this process not knowing their changes
        // yet.
        if !self.is_marked() {
            // If it fails, the next look tries again, before a beat says that it has been done.
            let _ = self.act();
        }
    }
}
