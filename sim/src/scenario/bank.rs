//! Accounts on several nodes: see [`super::Scenario::Bank`].

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, GAddr};
use selkie_fabric::sim::TraceSink;
use selkie_txn::{Database, Protocol, RetryError, RetryPolicy, retry};

use super::accounts::{History, check_trees, open_accounts};
use super::bulk::Bulk;
use super::case::{Case, takes_snapshots};
use super::clients::Clients;
use super::excuses::Excuses;
use super::history::strictly_serializable;
use super::lost_nodes::LostNodes;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::random::client_random;
use super::start::Tune;
use super::start::start;
use super::teller::{Teller, TellerAttempt};
use crate::cluster::{SimCluster, SimShape};
use crate::error::SimError;
use crate::plan::Plan;

const WORKERS: usize = 3;
/// More than there are clients on all nodes.
const CLIENTS_A_ROUND: usize = 1_000;
const STEPS: u64 = 25;

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let mut cluster = start(case, plan, tune, log, shaped)?;
    let mut bank = Bank::open(&cluster, case.seed)?;
    bank.may_be_full = case.has_small_pool();
    let excuses = Excuses::of(case, plan, &cluster);
    plan.arrange_in(&cluster);
    bank.set_steps(STEPS, excuses.load_until(&cluster));
    let mut clients = Clients::new(&cluster);
    bank.spawn(&mut clients, case.seed, 0)?;
    bank.spawn_bulk(&mut clients);
    let tally = excuses.finish(clients)?;
    if !excuses.loses_data {
        let living = excuses.settle(&mut cluster)?;
        bank.branches.retain(|(node, _)| living.contains(node));
        if case.has_processes() {
            bank.open_branch(&cluster)?;
            cluster.run(bank.audit(&cluster, case.seed))??;
            cluster.run(bank.check_bulk())??;
        }
        bank.check_history()?;
        cluster.run(bank.check_trees())??;
        excuses.close(&cluster, &living)?;
    }
    Ok(done(&cluster, &tally))
}

/// Pages and caches of the bank's cluster.
pub(super) fn shaped(shape: &mut SimShape) {
    shape.gcl_bytes = 2048;
    shape.engine.cache_bytes *= 4;
}

/// A bank, with a branch on every node.
pub(super) struct Bank {
    /// Each with the compute node that it is on.
    branches: Vec<(usize, Arc<Database>)>,
    history: History,
    /// Chooses the protocols.
    seed: u64,
    /// Transactions of each teller, and when it may stop that has made them.
    steps: u64,
    until: Duration,
    /// When the clock of the bank's world began.
    epoch: Duration,
    /// A large transaction beside the tellers.
    bulk: Option<Bulk>,
    /// Whether the pool may be full.
    may_be_full: bool,
    /// Whether a log may be full for about as long as a commit waits.
    pub(super) log_may_be_late: bool,
}

impl Bank {
    /// Creates the accounts on the first node and opens the database on all.
    pub(super) fn open(cluster: &SimCluster, seed: u64) -> Result<Self, SimError> {
        let history: History = Arc::default();
        let bulk = Bulk::of(seed).filter(|_| cluster.memory.plane().is_some());
        let opening = open_accounts(cluster, &history, protocol_of(seed, 0), bulk.is_some());
        let branches = cluster.run(opening)??;
        Ok(Self {
            bulk,
            may_be_full: false,
            log_may_be_late: false,
            branches,
            history,
            seed,
            steps: STEPS,
            until: Duration::ZERO,
            epoch: Duration::ZERO,
        })
    }

    /// The same bank on all nodes of another world, whose clock begins when that of the former has
    /// ended.
    pub(super) fn reopened(self, cluster: &SimCluster, ended: Duration) -> Result<Self, SimError> {
        let Self { history, seed, steps, epoch, bulk, may_be_full, log_may_be_late, .. } = self;
        let epoch = epoch + ended + Duration::from_nanos(1);
        let (branches, until) = (Vec::new(), Duration::ZERO);
        let mut bank = Self {
            branches,
            history,
            seed,
            steps,
            until,
            epoch,
            bulk,
            may_be_full,
            log_may_be_late,
        };
        for node in 0..cluster.engines.len() {
            bank.open_branch_on(cluster, node)?;
        }
        Ok(bank)
    }

    /// Opens a branch on the last node.
    pub(super) fn open_branch(&mut self, cluster: &SimCluster) -> Result<(), SimError> {
        self.open_branch_on(cluster, cluster.engines.len() - 1)
    }

    fn open_branch_on(&mut self, cluster: &SimCluster, node: usize) -> Result<(), SimError> {
        let database = cluster.run(Database::open(cluster.engine(node)?))??;
        self.branches.push((node, Arc::new(database)));
        Ok(())
    }

    /// Gives up the branches on nodes that are lost.
    pub(super) fn close_branches(&mut self, gone: &LostNodes) {
        self.branches.retain(|(node, _)| !gone.has_compute(*node));
    }

    /// Whether no branch is left.
    pub(super) fn has_no_branch(&self) -> bool {
        self.branches.is_empty()
    }

    /// Has tellers make so many transactions, and go on until a time.
    pub(super) fn set_steps(&mut self, steps: u64, until: Duration) {
        (self.steps, self.until) = (steps, until);
    }

    fn teller(
        &self,
        cluster: &SimCluster,
        (node, database): &(usize, Arc<Database>),
        client: usize,
        seed: u64,
    ) -> Result<Teller, SimError> {
        let db = Database::clone(database).with_protocol(protocol_of(self.seed, client))?;
        Ok(Teller {
            client,
            db: Arc::new(db),
            table: database.table("account")?,
            env: cluster.env_of(*node),
            clock: cluster.world.env(),
            epoch: self.epoch,
            steps: self.steps,
            until: self.until,
            may_be_full: self.may_be_full,
            log_may_be_late: self.log_may_be_late,
            history: Arc::clone(&self.history),
            random: client_random(seed, client),
            versions: AtomicU64::new(0),
            broken: Mutex::new(None),
        })
    }

    /// Starts the tellers of all branches for a round.
    pub(super) fn spawn(
        &self,
        clients: &mut Clients<'_>,
        seed: u64,
        round: usize,
    ) -> Result<(), SimError> {
        for branch in &self.branches {
            for worker in 0..WORKERS {
                let client = round * CLIENTS_A_ROUND + branch.0 * WORKERS + worker;
                let teller = self.teller(clients.cluster, branch, client, seed)?;
                clients.spawn(branch.0, "teller", teller.run());
            }
        }
        Ok(())
    }

    /// Starts the large transaction, if there is one.
    fn spawn_bulk(&self, clients: &mut Clients<'_>) {
        let (Some(bulk), Some((node, db))) = (&self.bulk, self.branches.last()) else { return };
        let env = clients.cluster.env_of(*node);
        let controls = clients.cluster.world.controls();
        clients.spawn(*node, "bulk", bulk.clone().run(Arc::clone(db), env, controls));
    }

    /// Checks what the large transaction has left, at the last branch.
    async fn check_bulk(&self) -> Result<(), SimError> {
        match (&self.bulk, self.branches.last()) {
            (Some(bulk), Some((_, db))) => bulk.check(db).await,
            _ => Ok(()),
        }
    }

    /// Reads all accounts at the last branch.
    pub(super) async fn audit(&self, cluster: &SimCluster, seed: u64) -> Result<(), SimError> {
        let last = self.branches.last().ok_or(SimError::NoSuchNode(0))?;
        let teller = self.teller(cluster, last, usize::MAX - 1, seed)?;
        let audit = async || {
            let attempt = TellerAttempt::begin(&teller);
            let result = teller.audit(&attempt).await;
            attempt.end(&result, teller.now());
            result
        };
        let done = retry(&teller.env, &RetryPolicy::default(), audit).await;
        done.map_err(RetryError::into_inner)?;
        teller.broken.lock().take().map_or(Ok(()), |claim| Err(SimError::Broken(claim)))
    }

    /// Checks that what the tellers saw is strictly serializable.
    pub(super) fn check_history(&self) -> Result<(), SimError> {
        strictly_serializable(&self.history.lock())
    }

    /// Checks the trees at every branch.
    pub(super) async fn check_trees(&self) -> Result<(), SimError> {
        check_trees(&self.branches).await
    }

    /// All pages in use, as the last branch finds them.
    pub(super) async fn pages(&self, engine: &Engine) -> Result<HashSet<GAddr>, SimError> {
        let (_, last) = self.branches.last().ok_or(SimError::NoSuchNode(0))?;
        Ok(last.pages(engine).await?)
    }

    /// Checks the trees at the last branch.
    pub(super) async fn check_last_branch(&self) -> Result<(), SimError> {
        check_trees(self.branches.last_chunk::<1>().map_or(&[], |last| last.as_slice())).await
    }
}

/// By the seed, all tellers by one protocol, or each by its own.
fn protocol_of(seed: u64, client: usize) -> Protocol {
    match seed % 4 {
        _ if takes_snapshots(seed) => Protocol::Snapshot,
        0 => Protocol::TwoPhase,
        1 => Protocol::Optimistic,
        2 => Protocol::Timestamp,
        _ if client.is_multiple_of(2) => Protocol::TwoPhase,
        _ => Protocol::Optimistic,
    }
}
