//! A control plane of its own in a simulated world, and the way of each process to it.
//!
//! A call is a request to the plane and an answer. Each takes a while. Either can get lost, by
//! which the caller has an error after a while, although what it asked for may have been done. The
//! plane itself can stand still: what it is asked meanwhile is done when it goes on, also if the
//! caller has long given up.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
use selkie_fabric::{BoxFuture, PeerId};
use selkie_pool::control::{
    Beat, Change, ControlError, ControlPlane, LocalPlane, PoolState, Version, Versioned,
};

use super::shape::{HEARTBEAT, LEASE};

/// How often processes look for changes.
const PACE: Duration = Duration::from_nanos(HEARTBEAT.as_nanos() as u64 / 2);
/// How long a call waits for its answer.
const ANSWER_WITHIN: Duration = Duration::from_nanos(LEASE.as_nanos() as u64 / 4);
/// How often a call looks whether the plane goes on.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The plane.
pub(crate) struct SimPlane {
    kept: LocalPlane,
    /// Of the world: the plane stands still by its controls alone.
    env: Env,
    controls: Mutex<PlaneControls>,
    /// When each node has shown last that it lives.
    beaten: Mutex<BTreeMap<PeerId, Duration>>,
}

/// What is wrong with the plane and the ways to it.
#[derive(Default)]
struct PlaneControls {
    /// How many troubles hold it.
    held: u32,
    /// How long a request takes, and how long an answer.
    leg: Duration,
    /// Nodes whose requests get lost.
    no_requests: BTreeSet<PeerId>,
    /// Nodes that get no answers.
    no_answers: BTreeSet<PeerId>,
}

impl SimPlane {
    pub(crate) fn new(env: Env) -> Arc<Self> {
        let (kept, controls, beaten) = (LocalPlane::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { kept, env, controls, beaten })
    }

    /// The way of the process of a node, or of an observer.
    pub(crate) fn way_of(self: &Arc<Self>, node: Option<PeerId>) -> Arc<dyn ControlPlane> {
        Arc::new(Way { plane: Arc::clone(self), node })
    }

    /// The plane stands still, or goes on.
    pub(crate) fn hold(&self, is_held: bool) {
        let mut controls = self.controls.lock();
        controls.held = if is_held { controls.held + 1 } else { controls.held.saturating_sub(1) };
    }

    /// From now on a request takes so long, and so does an answer.
    pub(crate) fn delay(&self, leg: Duration) {
        self.controls.lock().leg = leg;
    }

    /// Requests of a node get lost, or come through.
    pub(crate) fn cut_requests(&self, node: PeerId, is_cut: bool) {
        set(&mut self.controls.lock().no_requests, node, is_cut);
    }

    /// Answers to a node get lost, or come through.
    pub(crate) fn cut_answers(&self, node: PeerId, is_cut: bool) {
        set(&mut self.controls.lock().no_answers, node, is_cut);
    }

    fn is_held(&self) -> bool {
        self.controls.lock().held > 0
    }

    async fn goes_on(&self) {
        while self.is_held() {
            self.env.sleep(LOOK_EVERY).await;
        }
    }
}

fn set(nodes: &mut BTreeSet<PeerId>, node: PeerId, is_in: bool) {
    if is_in {
        nodes.insert(node);
    } else {
        nodes.remove(&node);
    }
}

struct Way {
    plane: Arc<SimPlane>,
    node: Option<PeerId>,
}

impl Way {
    /// Asks the plane for what `done` does there, in a task of the plane.
    async fn ask<T: Send + 'static>(
        &self,
        done: impl Future<Output = Result<T, ControlError>> + Send + 'static,
    ) -> Result<T, ControlError> {
        let env = self.plane.env.clone();
        let started = env.now();
        let leg = self.plane.controls.lock().leg;
        let is_lost = |lost: fn(&PlaneControls) -> &BTreeSet<PeerId>| {
            self.node.is_some_and(|node| lost(&self.plane.controls.lock()).contains(&node))
        };
        if !leg.is_zero() {
            env.sleep(leg).await;
        }
        if is_lost(|controls| &controls.no_requests) {
            return self.no_answer(started).await;
        }
        let answer = if self.plane.is_held() {
            let told = Arc::new(Mutex::new(None));
            let (plane, tell) = (Arc::clone(&self.plane), Arc::clone(&told));
            drop(env.spawn("plane", async move {
                plane.goes_on().await;
                let answer = done.await;
                *tell.lock() = Some(answer);
            }));
            loop {
                let answer = told.lock().take();
                match answer {
                    Some(answer) => break answer,
                    None if env.now() - started > ANSWER_WITHIN => {
                        return self.no_answer(started).await;
                    }
                    None => env.sleep(LOOK_EVERY).await,
                }
            }
        } else {
            done.await
        };
        if !leg.is_zero() {
            env.sleep(leg).await;
        }
        if is_lost(|controls| &controls.no_answers) {
            return self.no_answer(started).await;
        }
        answer
    }

    async fn no_answer<T>(&self, started: Duration) -> Result<T, ControlError> {
        let env = &self.plane.env;
        env.sleep((started + ANSWER_WITHIN).saturating_sub(env.now())).await;
        let (place, what) = ("the plane".to_owned(), "it does not answer".to_owned());
        Err(ControlError::Unavailable { place, what })
    }
}

impl ControlPlane for Way {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        let plane = Arc::clone(&self.plane);
        Box::pin(self.ask(async move { plane.kept.load().await }))
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        let plane = Arc::clone(&self.plane);
        Box::pin(self.ask(async move { plane.kept.create(state).await }))
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        let plane = Arc::clone(&self.plane);
        Box::pin(self.ask(async move { plane.kept.replace_as(change, expected, state).await }))
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        let plane = Arc::clone(&self.plane);
        Box::pin(self.ask(async move {
            plane.beaten.lock().insert(beat.node, plane.env.now());
            plane.kept.beat(beat).await
        }))
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        let plane = Arc::clone(&self.plane);
        Box::pin(self.ask(async move {
            let beats = plane.kept.beats().await?;
            let (now, beaten) = (plane.env.now(), plane.beaten.lock());
            let age =
                |beat: &Beat| beaten.get(&beat.node).map_or(now, |at| now.saturating_sub(*at));
            Ok(beats.into_iter().map(|(beat, _)| (beat.clone(), age(&beat))).collect())
        }))
    }

    fn pace(&self) -> Duration {
        PACE
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        let plane = Arc::clone(&self.plane);
        Box::pin(self.ask(async move { plane.kept.destroy().await }))
    }
}
