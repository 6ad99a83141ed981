//! Whether a node serves: from its entry into the pool to its failure, suspension, close and leave.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use selkie_fabric::Doorbell;

use crate::EngineError;

/// Read by every hit: on a cache line of its own, which is hardly ever written.
#[repr(align(64))]
#[derive(Default)]
struct Suspended(AtomicBool);

/// Up to when the node is known to be in the pool, nanoseconds of the environment's clock. Read by
/// every commit, written by the lease task: on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct MemberUntil(AtomicU64);

/// The stages of a node's life.
#[derive(Default)]
pub(crate) struct Lifecycle {
    /// Why the engine serves nothing more.
    failed: OnceLock<EngineError>,
    /// The node serves no cached page until it knows that it is in the pool
    /// ([`crate::recovery::lease`]).
    suspended: Suspended,
    member_until: MemberUntil,
    /// How many nodes have had this node's index, itself included; unset before the node is in the
    /// pool.
    incarnation: OnceLock<u32>,
    closed: AtomicBool,
    /// The node leaves the pool, or has left.
    leaves: AtomicBool,
    /// A part of the engine has panicked: lines may be half changed.
    panicked: AtomicBool,
    /// Rung when the last handle is dropped, so that the tasks end.
    stop_bell: Arc<Doorbell>,
}

impl Lifecycle {
    /// Ends service for ever; the first error is the one that callers get.
    pub(crate) fn fail(&self, error: EngineError) {
        // An engine that has failed already keeps its first error.
        let _ = self.failed.set(error);
    }

    /// Why the engine has failed, if it has.
    #[inline]
    pub(crate) fn failure(&self) -> Option<&EngineError> {
        self.failed.get()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Ends service as a part of the engine has panicked; whether it is the first that has.
    pub(crate) fn fail_by_panic(&self, error: EngineError) -> bool {
        self.fail(error);
        // Release pairs with `has_panicked`: the error is set.
        let is_first = !self.panicked.swap(true, Ordering::AcqRel);
        // Hits are refused at once.
        self.set_suspended(true);
        is_first
    }

    /// Whether a part of the engine has panicked: no line may be changed, or its page used.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// An error if a part of the engine has panicked.
    pub(crate) fn check_panicked(&self) -> Result<(), EngineError> {
        if self.has_panicked() { self.check_failed() } else { Ok(()) }
    }

    /// An error if the engine has failed.
    pub(crate) fn check_failed(&self) -> Result<(), EngineError> {
        self.failure().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// An error if the engine serves nothing more.
    pub(crate) fn check_alive(&self) -> Result<(), EngineError> {
        self.check_failed()?;
        if self.is_closed() { Err(EngineError::Closed) } else { Ok(()) }
    }

    /// Whether hits have to wait.
    #[inline]
    pub(crate) fn is_suspended(&self) -> bool {
        // Relaxed: a hit that misses the change is as one just before it. Steps of a line read it
        // under the shard's lock, which the suspending task takes afterwards.
        self.suspended.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set_suspended(&self, suspended: bool) {
        // Relaxed: as above.
        self.suspended.0.store(suspended, Ordering::Relaxed);
    }

    /// Whether it is known that no node had declared this node dead at a time.
    #[inline]
    pub(crate) fn was_member_at(&self, time: Duration) -> bool {
        // Acquire pairs with the Release below: what was known then has happened.
        Duration::from_nanos(self.member_until.0.load(Ordering::Acquire)) >= time
    }

    /// No node can have declared this node dead before `until`.
    pub(crate) fn set_member_until(&self, until: Duration) {
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.member_until.0.fetch_max(nanos, Ordering::Release);
    }

    /// The node's incarnation, once it is in the pool.
    pub(crate) fn incarnation(&self) -> Option<u32> {
        self.incarnation.get().copied()
    }

    /// The node is in the pool, under this incarnation.
    pub(crate) fn enter(&self, incarnation: u32) {
        assert!(self.incarnation.set(incarnation).is_ok(), "a node enters its pool once");
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: a hit that slips in finds a page. An acquisition looks under its shard's lock,
        // which `close` takes afterwards.
        self.closed.load(Ordering::Relaxed)
    }

    /// Refuses new accesses from now on. Returns whether it did already.
    pub(crate) fn close(&self) -> bool {
        self.closed.swap(true, Ordering::Relaxed)
    }

    /// Whether the node leaves the pool, or has left.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    pub(crate) fn set_leaving(&self, leaves: bool) {
        self.leaves.store(leaves, Ordering::Release);
    }

    /// Rung when the last handle is dropped.
    pub(crate) fn stop_bell(&self) -> &Arc<Doorbell> {
        &self.stop_bell
    }
}
