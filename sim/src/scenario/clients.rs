//! Clients of a cluster, and waiting for them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::PeerId;
use selkie_fabric::env::TaskError;

use super::lost_nodes::LostNodes;
use super::outcome::OperationCounts;
use crate::cluster::SimCluster;
use crate::error::SimError;

/// How often the task that waits for clients looks whether their node is lost.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// Clients of one cluster, each on a compute node.
pub(super) struct Clients<'c> {
    pub(super) cluster: &'c SimCluster,
    tally: Arc<Mutex<OperationCounts>>,
    /// With the nodes of their clients.
    errors: Arc<Mutex<Vec<(usize, SimError)>>>,
    /// The node of each client, and whether the client is done.
    running: Vec<(usize, selkie_fabric::env::TaskHandle)>,
}

impl<'c> Clients<'c> {
    pub(super) fn new(cluster: &'c SimCluster) -> Self {
        Self { cluster, tally: Arc::default(), errors: Arc::default(), running: Vec::new() }
    }

    /// Starts a client on compute node `node`; it returns how many operations it completed.
    pub(super) fn spawn<F>(&mut self, node: usize, name: &'static str, client: F)
    where
        F: Future<Output = Result<u64, SimError>> + Send + 'static,
    {
        let (tally, errors) = (Arc::clone(&self.tally), Arc::clone(&self.errors));
        let task = self.cluster.env_of(node).spawn(name, async move {
            let result = client.await;
            let mut tally = tally.lock();
            match result {
                Ok(operations) => tally.operations += operations,
                Err(error) => {
                    tally.gave_up += 1;
                    errors.lock().push((node, error));
                }
            }
        });
        self.running.push((node, task));
    }

    /// Waits for the clients of all nodes but the lost ones. Without a lost node an error of a
    /// client is the run's.
    pub(super) async fn finish(self, lost: &[PeerId]) -> Result<OperationCounts, SimError> {
        let gone = LostNodes::of(lost);
        match self.join(|node| gone.has_compute(node)).await? {
            (_, Some(error)) if lost.is_empty() || matches!(error, SimError::Broken(_)) => {
                Err(error)
            }
            (tally, _) => Ok(tally),
        }
    }

    /// As [`Clients::finish`], where a lost node is no excuse for the clients of the others, and
    /// may be lost on the way.
    pub(super) async fn finish_all(self, gone: &LostNodes) -> Result<OperationCounts, SimError> {
        let (tally, error) = self.join(|node| gone.has_compute(node)).await?;
        error.map_or(Ok(tally), Err)
    }

    /// Waits for the clients of all nodes that live. Returns the errors of clients too, each with
    /// its node.
    pub(super) async fn finish_living(
        self,
    ) -> Result<(OperationCounts, Vec<(usize, SimError)>), SimError> {
        let controls = self.cluster.world.controls();
        self.wait(|node| !controls.lives(PeerId::compute(node as u16))).await
    }

    async fn join(
        self,
        is_gone: impl Fn(usize) -> bool,
    ) -> Result<(OperationCounts, Option<SimError>), SimError> {
        let (tally, errors) = self.wait(is_gone).await?;
        Ok((tally, errors.into_iter().next().map(|(_, error)| error)))
    }

    async fn wait(
        self,
        is_gone: impl Fn(usize) -> bool,
    ) -> Result<(OperationCounts, Vec<(usize, SimError)>), SimError> {
        let env = self.cluster.world.env();
        for (node, task) in self.running {
            let mut joined = pin!(task.join());
            let ended = loop {
                if is_gone(node) {
                    // Its clients have stopped with it.
                    break Ok(());
                }
                let mut look_again = pin!(env.sleep(LOOK_EVERY));
                let ended = poll_fn(|context| match joined.as_mut().poll(context) {
                    Poll::Ready(ended) => Poll::Ready(Some(ended)),
                    Poll::Pending => look_again.as_mut().poll(context).map(|()| None),
                });
                if let Some(ended) = ended.await {
                    break ended;
                }
            };
            match ended {
                // Its node is lost.
                Ok(()) | Err(TaskError::Cancelled { .. }) => {}
                Err(error) => return Err(SimError::Broken(error.to_string())),
            }
        }
        let tally = std::mem::take(&mut *self.tally.lock());
        Ok((tally, std::mem::take(&mut *self.errors.lock())))
    }
}
