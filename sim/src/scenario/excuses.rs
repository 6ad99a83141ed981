//! What a plan excuses, and what nothing does.
//!
//! A node that the plan exposes may end: its clients then have typed errors. The others go on, and
//! nothing that was acknowledged is lost, unless the plan loses more than the coding and the logs
//! of the pool keep: then all clients may have errors. No plan excuses a wrong answer, or a client
//! that hangs.

use std::collections::BTreeSet;
use std::time::Duration;

use selkie_engine::{Engine, EngineError};
use selkie_fabric::PeerId;
use selkie_pool::ComputeIndex;

use super::case::Case;
use super::clients::Clients;
use super::deaths::made_good;
use super::lost_nodes::LostNodes;
use super::outcome::OperationCounts;
use crate::cluster::{LEASE, SimCluster};
use crate::error::{SimError, ensure};
use crate::plan::Plan;

/// Time of a load: until its troubles are over, within these bounds.
const LEAST_LOAD: Duration = Duration::from_millis(8);
const MOST_LOAD: Duration = Duration::from_millis(60);
/// Leases after the last trouble in which the pool has taken note of it.
const NOTICED_WITHIN: u32 = 6;

/// What the plan of a run excuses.
pub(super) struct Excuses {
    lost: Vec<PeerId>,
    exposed: BTreeSet<PeerId>,
    /// Nodes that leave and end.
    leavers: BTreeSet<PeerId>,
    has_processes: bool,
    /// Whether data may be lost.
    pub(super) loses_data: bool,
    /// Whether pages may be lost with the nodes that held them.
    loses_pages: bool,
    /// Nodes that the run loses on its own.
    gone: LostNodes,
    loses_on_its_own: bool,
    /// When the troubles are over.
    over: Duration,
}

impl Excuses {
    /// What the troubles excuse that begin now.
    pub(super) fn of(case: Case, plan: &Plan, cluster: &SimCluster) -> Self {
        let lost = case.lost_beyond(plan);
        let has_processes = case.has_processes();
        let loses_data =
            if has_processes { plan.may_lose_data(case.keeps()) } else { !lost.is_empty() };
        let exposed = plan.exposed().into_iter().collect();
        let leavers = plan.leavers().collect();
        let loses_pages = !case.keeps().has_logs;
        let (gone, over) = (LostNodes::default(), cluster.world.now() + plan.over());
        let loses_on_its_own = false;
        Self {
            lost,
            exposed,
            leavers,
            has_processes,
            loses_data,
            loses_pages,
            gone,
            loses_on_its_own,
            over,
        }
    }

    /// The same of a run that loses these nodes as well.
    pub(super) fn losing(self, gone: &LostNodes) -> Self {
        let loses_data = self.has_processes && self.loses_data;
        Self { gone: gone.clone(), loses_on_its_own: true, loses_data, ..self }
    }

    /// Up to when clients go on, so that the troubles meet them.
    pub(super) fn load_until(&self, cluster: &SimCluster) -> Duration {
        if !self.has_processes {
            return Duration::ZERO;
        }
        // Also those meet it that a node wakes up from.
        let over = self.over.saturating_sub(cluster.world.now());
        cluster.world.now() + (over + LEASE / 2).clamp(LEAST_LOAD, MOST_LOAD)
    }

    /// Whether a compute node may end.
    pub(super) fn exposes(&self, node: usize) -> bool {
        let peer = PeerId::compute(node as u16);
        let may_end = self.exposed.contains(&peer) || self.leavers.contains(&peer);
        may_end || self.gone.has_compute(node)
    }

    /// The nodes that may end, compute nodes with the pages that they hold.
    pub(super) fn exposed(&self) -> Vec<PeerId> {
        self.exposed.iter().copied().collect()
    }

    /// Ends the losses of a run that loses nodes on its own. Returns all nodes that are lost; where
    /// nodes have leases, that is known when the troubles are over.
    pub(super) fn end(
        &self,
        cluster: &SimCluster,
        gone: &LostNodes,
    ) -> Result<Vec<PeerId>, SimError> {
        if self.has_processes {
            let env = cluster.world.env();
            let left = self.over.saturating_sub(cluster.world.now());
            cluster.run(env.sleep(left + NOTICED_WITHIN * LEASE))?;
            self.until_left(cluster)?;
            cluster.world.controls().panic_no_more();
            let living = living(cluster);
            for node in (0..cluster.engines.len()).filter(|node| !living.contains(node)) {
                ensure(self.exposes(node), || {
                    format!("compute node {node} is out of the pool, and nothing excuses that")
                })?;
                gone.add(PeerId::compute(node as u16));
            }
        }
        Ok(gone.end())
    }

    /// Waits for the clients. An error that nothing excuses is the run's.
    pub(super) fn finish(&self, clients: Clients<'_>) -> Result<OperationCounts, SimError> {
        let cluster = clients.cluster;
        if !self.has_processes && self.loses_on_its_own {
            return cluster.run(clients.finish_all(&self.gone))?;
        }
        if !self.has_processes {
            return cluster.run(clients.finish(&self.lost))?;
        }
        let (tally, errors) = cluster.run(clients.finish_living())??;
        for (node, error) in errors {
            let is_excused = self.loses_data || self.exposes(node);
            let is_wrong = matches!(error, SimError::Broken(_));
            if is_wrong || !is_excused {
                return Err(SimError::OnNode { node, source: Box::new(error) });
            }
        }
        Ok(tally)
    }

    /// After a load that excuses no loss: waits until all is over, from a new node. No node has
    /// ended that need not, and nothing is lost. Returns the compute nodes that are left, the new
    /// one last.
    pub(super) fn settle(&self, cluster: &mut SimCluster) -> Result<Vec<usize>, SimError> {
        if !self.has_processes {
            return Ok((0..cluster.engines.len()).collect());
        }
        let env = cluster.world.env();
        let left = self.over.saturating_sub(cluster.world.now());
        cluster.run(env.sleep(left + NOTICED_WITHIN * LEASE))?;
        self.until_left(cluster)?;
        cluster.world.controls().panic_no_more();
        cluster.start_engine()?;
        let coding = cluster.pool.descriptor().coding;
        let memory = cluster.memory.regions().len();
        let left = (0..memory).filter(|node| !cluster.pool.is_memory_dead(*node)).count();
        // With fewer nodes than a page has splits, some of them have no place.
        let is_whole = !coding.is_plain() && left >= coding.splits();
        cluster.run(made_good(&cluster.pool, &env, &[], is_whole))??;
        let living = living(cluster);
        for node in 0..cluster.engines.len() {
            ensure(living.contains(&node) || self.exposes(node), || {
                format!("compute node {node} is out of the pool, and nothing excuses that")
            })?;
        }
        let lost = cluster.pool.lost_pages();
        ensure(lost.is_empty() || self.loses_pages, || {
            format!("pages {lost:x?} are lost, and nothing excuses that")
        })?;
        Ok(living)
    }

    /// Waits until the nodes that leave have ended. Each has left, unless something excuses that it
    /// has not.
    fn until_left(&self, cluster: &SimCluster) -> Result<(), SimError> {
        let (env, controls) = (cluster.world.env(), cluster.world.controls());
        cluster.run(async {
            while self.leavers.iter().any(|peer| controls.lives(*peer)) {
                env.sleep(LEASE / 8).await;
            }
        })?;
        for peer in self.leavers.iter().filter(|peer| !self.exposed.contains(*peer)) {
            let node = usize::from(peer.index());
            if !self.loses_data && !self.gone.has_compute(node) {
                // Says how the first call has ended.
                let closed = cluster.run(cluster.engine(node)?.close())?;
                closed
                    .map_err(|error| SimError::OnNode { node, source: Box::new(error.into()) })?;
            }
        }
        Ok(())
    }

    /// Closes the nodes that are left, and checks that they leave nothing behind.
    pub(super) fn close(&self, cluster: &SimCluster, living: &[usize]) -> Result<(), SimError> {
        let may_end = |node: &usize| self.has_processes && self.exposes(*node);
        let (exposed, others): (Vec<usize>, Vec<usize>) =
            living.iter().partition(|node| may_end(node));
        let mut has_ended = false;
        for node in exposed.iter().chain(&others) {
            let Some(engine) = cluster.engines.get(*node) else { continue };
            if has_ended && !may_end(node) {
                // The others recover from those.
                cluster.run(cluster.world.env().sleep(NOTICED_WITHIN * LEASE))?;
                has_ended = false;
            }
            match cluster.run(engine.close())? {
                // It finds only now that there is a memory node that it did not reach.
                Err(EngineError::Unreachable { .. } | EngineError::Expelled { .. })
                    if may_end(node) =>
                {
                    has_ended = true;
                    continue;
                }
                closed => closed?,
            }
            let stats = engine.stats();
            ensure(stats.frames == stats.frames_free, || {
                format!("{} keeps frames after closing", engine.node())
            })?;
        }
        if self.has_processes {
            let lost = cluster.pool.lost_pages().into_iter().collect();
            cluster.run(cluster.check_words(&lost))??;
        }
        Ok(())
    }
}

/// The compute nodes that are in the pool.
fn living(cluster: &SimCluster) -> Vec<usize> {
    let controls = cluster.world.controls();
    let lives = |engine: &&Engine| {
        let index = engine.node().index() as u16;
        cluster.pool.is_member(ComputeIndex::new(index)) && controls.lives(PeerId::compute(index))
    };
    cluster.engines.iter().filter(lives).map(|engine| engine.node().index()).collect()
}
