//! What the tests of this folder share: pools, calls of planes, and a plane with hooks.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::{BoxFuture, PeerId, RealRuntime};
use selkie_pool::control::{
    Beat, Change, ControlError, ControlPlane, Expectation, FindToken, Identity, LocalPlane,
    PoolState, RemotePlane, Timing, Version, Versioned,
};
use selkie_pool::{Coding, PoolConfig, PoolError};

/// Longer than anything here takes, if it ends at all.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    RealRuntime::new(1).unwrap().block_on(future)
}

/// Makes a pool of this id.
pub(crate) fn make(plane: &dyn ControlPlane, id: u64) -> Result<(), PoolError> {
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 2 << 20,
        gcl_bytes: 512,
        range_bytes: 1 << 19,
        max_compute_nodes: 4,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let identity = Identity { name: "test", id, fabric: "mem" };
    block_on(selkie_pool::create(plane, identity, &config, Timing::default()))
}

/// A plane in this process with a pool of this id.
pub(crate) fn pool(id: u64) -> Arc<dyn ControlPlane> {
    let plane = LocalPlane::default();
    make(&plane, id).unwrap();
    Arc::new(plane)
}

pub(crate) fn beat(node: u16) -> Beat {
    Beat { node: PeerId::compute(node), host: 5, seen: 1, report: "r".to_owned() }
}

pub(crate) fn remote(endpoints: &[String]) -> RemotePlane {
    RemotePlane::new(endpoints, Expectation::default()).unwrap()
}

pub(crate) fn no_token() -> FindToken {
    Arc::new(|_: &str| None)
}

pub(crate) fn version_of(plane: &dyn ControlPlane) -> Version {
    block_on(plane.load()).unwrap().version
}

/// Changes the state of version `expected` by setting `next_index`.
pub(crate) fn replace(
    plane: &dyn ControlPlane,
    expected: &Versioned,
    next_index: u16,
) -> Result<Option<Version>, ControlError> {
    let state = PoolState { next_index, ..PoolState::clone(&expected.state) };
    block_on(plane.replace(expected.version, state))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStage {
    BeforeReplace,
    AfterReplace,
    BeforeBeats,
}

/// A plane during whose calls something happens.
pub(crate) struct Hooked {
    pub(crate) plane: Arc<dyn ControlPlane>,
    pub(crate) hook: Box<dyn Fn(CallStage) + Send + Sync>,
}

impl ControlPlane for Hooked {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        self.plane.load()
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        self.plane.create(state)
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move {
            (self.hook)(CallStage::BeforeReplace);
            let replaced = self.plane.replace_as(change, expected, state).await;
            (self.hook)(CallStage::AfterReplace);
            replaced
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        self.plane.beat(beat)
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async {
            (self.hook)(CallStage::BeforeBeats);
            let beats = self.plane.beats().await?;
            let age = |beat: &Beat| Duration::new(7 * u64::from(beat.node.index()), 250_000_001);
            Ok(beats.into_iter().map(|(beat, _)| (age(&beat), beat)).map(|(a, b)| (b, a)).collect())
        })
    }

    fn pace(&self) -> Duration {
        self.plane.pace()
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.plane.destroy()
    }
}
