//! Accounts on several nodes: see [`super::Scenario::Bank`].
//!
//! Beside its balance an account has a version, a number that no other write of the run uses, so
//! that what a transaction read says which transaction wrote it.
//!
//! One file, as the clients and what judges them share the record of what they did.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_btree::TreeError;
use selkie_engine::EngineError;
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::TraceSink;
use selkie_txn::{
    ColumnType, Database, DatabaseSchema, Direction, KeyRange, Protocol, RetryError, RetryPolicy,
    Table, TableSchema, TxnError, key, retry,
};

use super::bulk::{Bulk, is_pool_full};
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
use crate::check::serial::{Op, Status, Transaction};
use crate::cluster::{SimCluster, SimShape};
use crate::error::{SimError, ensure};
use crate::plan::Plan;

const WORKERS: usize = 3;
/// More than there are clients on all nodes.
const CLIENTS_A_ROUND: usize = 1_000;
const STEPS: u64 = 25;
/// Accounts at the start; others are opened on the way, between them.
const ACCOUNTS: u64 = 24;
/// Account numbers leave room for new accounts.
const SPACING: u64 = 10;
const DEPOSIT: i64 = 1000;

/// Longest pause of a teller that has made its transactions and goes on.
const LINGER_NS: u64 = 800_000;

/// Columns.
const VERSION: usize = 1;
const BALANCE: usize = 2;

/// The log of a node that finds its disk full is tried again after a while; so often a step is,
/// too, after so long.
const PATIENCE: u32 = 20;
const PATIENT_FOR: Duration = Duration::from_millis(50);

type History = Arc<Mutex<Vec<Transaction>>>;

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
}

impl Bank {
    /// Creates the accounts on the first node and opens the database on all.
    pub(super) fn open(cluster: &SimCluster, seed: u64) -> Result<Self, SimError> {
        let history: History = Arc::default();
        let bulk = Bulk::of(seed).filter(|_| cluster.memory.plane().is_some());
        let branches = cluster.run(open(cluster, &history, seed, bulk.is_some()))??;
        Ok(Self {
            bulk,
            may_be_full: false,
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
        let Self { history, seed, steps, epoch, bulk, may_be_full, .. } = self;
        let epoch = epoch + ended + Duration::from_nanos(1);
        let (branches, until) = (Vec::new(), Duration::ZERO);
        let mut bank = Self { branches, history, seed, steps, until, epoch, bulk, may_be_full };
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
        clients.spawn(*node, "bulk", bulk.clone().run(Arc::clone(db), env));
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

/// Creates the accounts on the first node and opens the database on all.
async fn open(
    cluster: &SimCluster,
    history: &History,
    seed: u64,
    has_bulk: bool,
) -> Result<Vec<(usize, Arc<Database>)>, SimError> {
    let account = TableSchema::new("account")
        .column("id", ColumnType::I64)
        .column("version", ColumnType::I64)
        .column("balance", ColumnType::I64)
        // Few accounts a page, so that transactions meet on some pages and not on all.
        .column("note", ColumnType::Text(150))
        .primary_key([0])
        .index("by_version", [VERSION]);
    let mut tables = vec![account];
    tables.extend(has_bulk.then(Bulk::table));
    let schema = DatabaseSchema::from(tables).protocol(protocol_of(seed, 0));
    let first = Database::create(cluster.engine(0)?, schema).await?;
    let table = first.table("account")?;
    let mut txn = first.begin();
    let mut ops = Vec::new();
    for account in 0..ACCOUNTS {
        let (id, version) = (account * SPACING, account + 1);
        let mut row = first.row(table)?;
        row.i64(id.cast_signed()).i64(version.cast_signed()).i64(DEPOSIT).text(&"x".repeat(150));
        txn.insert(table, row.finish().map_err(TxnError::from)?).await?;
        ops.push(Op::Write { key: id, value: version });
    }
    txn.commit().await?;
    let status = Status::Committed;
    let opening = Transaction { process: usize::MAX, invoked: 0, returned: Some(0), status, ops };
    history.lock().push(opening);
    let mut branches = vec![(0, Arc::new(first))];
    for (node, engine) in cluster.engines.iter().enumerate().skip(1) {
        branches.push((node, Arc::new(Database::open(engine).await?)));
    }
    Ok(branches)
}

async fn check_trees(branches: &[(usize, Arc<Database>)]) -> Result<(), SimError> {
    for (_, database) in branches {
        let table = database.table("account")?;
        let rows = database.tree(table)?.verify(database.engine()).await?.entries;
        let index = database.index("account", "by_version")?;
        let entries = database.tree(index)?.verify(database.engine()).await?.entries;
        ensure(rows == entries, || format!("{rows} accounts, {entries} index entries"))?;
    }
    Ok(())
}

struct Teller {
    client: usize,
    db: Arc<Database>,
    table: Table,
    env: Env,
    /// By which operations of all nodes are ordered.
    clock: Env,
    epoch: Duration,
    steps: u64,
    until: Duration,
    /// Whether the pool may be full.
    may_be_full: bool,
    history: History,
    random: SplitMix,
    versions: AtomicU64,
    /// What an audit found wrong.
    broken: Mutex<Option<String>>,
}

/// A transaction. It is in the history from its beginning, as its node may die before its end.
struct TellerAttempt {
    history: History,
    number: usize,
}

impl TellerAttempt {
    fn begin(teller: &Teller) -> Self {
        let (process, invoked) = (teller.client, teller.now());
        let (returned, status, ops) = (None, Status::Unknown, Vec::new());
        let history = Arc::clone(&teller.history);
        let mut all = history.lock();
        let number = all.len();
        all.push(Transaction { process, invoked, returned, status, ops });
        drop(all);
        Self { history, number }
    }

    fn note(&self, op: Op) {
        if let Some(own) = self.history.lock().get_mut(self.number) {
            own.ops.push(op);
        }
    }

    /// Conflicts roll back exactly; whatever else ends an attempt leaves it open.
    fn end(self, result: &Result<(), TxnError>, now: u64) {
        let status = match result {
            Ok(()) => Status::Committed,
            Err(error) if error.abort_cause().is_some() => Status::Aborted,
            Err(_) => return,
        };
        if let Some(own) = self.history.lock().get_mut(self.number) {
            (own.status, own.returned) = (status, Some(now));
        }
    }
}

/// Whether the log of the teller's node could not be written, which passes.
fn is_of_log(error: &TxnError) -> bool {
    matches!(error, TxnError::Engine(EngineError::Log(_)))
        || matches!(error, TxnError::Tree(TreeError::Engine(EngineError::Log(_))))
}

impl Teller {
    async fn run(self) -> Result<u64, SimError> {
        let policy = RetryPolicy { attempts: 400, ..RetryPolicy::default() };
        let mut patience = PATIENCE;
        let mut step = 0;
        while step < self.steps || self.clock.now() < self.until {
            if step >= self.steps {
                self.env.sleep(Duration::from_nanos(self.random.below(LINGER_NS))).await;
            }
            step += 1;
            let kind = self.random.below(10);
            let accounts = [self.account(), self.account()];
            loop {
                let met_log = AtomicBool::new(false);
                let attempt = || async {
                    let result = self.attempt(kind, accounts).await;
                    met_log.fetch_or(result.as_ref().is_err_and(is_of_log), Ordering::Relaxed);
                    result
                };
                let result = retry(&self.env, &policy, attempt).await;
                if let Some(claim) = self.broken.lock().take() {
                    return Err(SimError::Broken(claim));
                }
                match result {
                    Ok(()) => break,
                    // Not known to last, and not to be run again.
                    Err(RetryError::Final(TxnError::Undetermined {
                        source: EngineError::Log(_),
                    })) => break,
                    // Such an error comes at once and counts as a timeout. The last attempt may
                    // wait for a page that cannot leave this node before its log is written.
                    Err(RetryError::Exhausted { .. })
                        if met_log.load(Ordering::Relaxed) && patience > 0 =>
                    {
                        patience -= 1;
                        self.env.sleep(PATIENT_FOR).await;
                    }
                    // Refused, and undone.
                    Err(RetryError::Final(error)) if self.may_be_full && is_pool_full(&error) => {
                        break;
                    }
                    Err(RetryError::Final(error)) => return Err(error.into()),
                    Err(error) => return Err(SimError::NoProgress(error.to_string())),
                }
            }
        }
        Ok(step)
    }

    async fn attempt(&self, kind: u64, accounts: [u64; 2]) -> Result<(), TxnError> {
        let attempt = TellerAttempt::begin(self);
        let result = match kind {
            0..=5 => self.transfer(&attempt, accounts).await,
            6..=7 => self.audit(&attempt).await,
            8 => self.open_account(&attempt, accounts[0]).await,
            _ => self.look(&attempt, accounts).await,
        };
        attempt.end(&result, self.now());
        result
    }

    fn account(&self) -> u64 {
        self.random.below(ACCOUNTS) * SPACING
    }

    /// A number no other write of the run uses.
    fn version(&self) -> u64 {
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        (self.client as u64 + 1) * 1_000_000 + number
    }

    fn now(&self) -> u64 {
        (self.epoch + self.clock.now()).as_nanos() as u64
    }

    async fn transfer(
        &self,
        attempt: &TellerAttempt,
        [from, to]: [u64; 2],
    ) -> Result<(), TxnError> {
        if from == to {
            return Ok(());
        }
        let cents = self.random.below(100).cast_signed();
        let mut txn = self.db.begin();
        for (id, change) in [(from, -cents), (to, cents)] {
            let new = self.version();
            let old = txn
                .update(self.table, &key![id.cast_signed()], |row| {
                    let old = row.i64(VERSION)?;
                    row.set_i64(VERSION, new.cast_signed())?;
                    row.set_i64(BALANCE, row.i64(BALANCE)? + change)?;
                    Ok(old)
                })
                .await?;
            attempt.note(Op::Read { key: id, value: Some(old.cast_unsigned()) });
            attempt.note(Op::Write { key: id, value: new });
            self.dwell().await;
        }
        txn.commit().await
    }

    /// Reads two accounts by key.
    async fn look(&self, attempt: &TellerAttempt, accounts: [u64; 2]) -> Result<(), TxnError> {
        let mut txn = self.db.begin();
        for id in accounts {
            let row = txn.get(self.table, &key![id.cast_signed()]).await?;
            let version = row.map(|row| row.i64(VERSION)).transpose()?;
            attempt.note(Op::Read { key: id, value: version.map(i64::cast_unsigned) });
            self.dwell().await;
        }
        txn.commit().await
    }

    /// Moves half of an account into a new one beside it.
    async fn open_account(&self, attempt: &TellerAttempt, from: u64) -> Result<(), TxnError> {
        let id = from + 1 + self.random.below(SPACING - 1);
        let mut txn = self.db.begin();
        let there = txn.get(self.table, &key![id.cast_signed()]).await?;
        let there = there.map(|row| row.i64(VERSION)).transpose()?;
        attempt.note(Op::Read { key: id, value: there.map(i64::cast_unsigned) });
        if there.is_some() {
            return txn.commit().await;
        }
        let (new, opened) = (self.version(), self.version());
        let (old, half) = txn
            .update(self.table, &key![from.cast_signed()], |row| {
                let (old, balance) = (row.i64(VERSION)?, row.i64(BALANCE)?);
                row.set_i64(VERSION, new.cast_signed())?;
                row.set_i64(BALANCE, balance - balance / 2)?;
                Ok((old, balance / 2))
            })
            .await?;
        attempt.note(Op::Read { key: from, value: Some(old.cast_unsigned()) });
        attempt.note(Op::Write { key: from, value: new });
        let mut row = self.db.row(self.table)?;
        row.i64(id.cast_signed()).i64(opened.cast_signed()).i64(half).text("opened");
        txn.insert(self.table, row.finish()?).await?;
        attempt.note(Op::Write { key: id, value: opened });
        txn.commit().await
    }

    /// Reads all accounts; their sum is what was deposited.
    async fn audit(&self, attempt: &TellerAttempt) -> Result<(), TxnError> {
        let mut txn = self.db.begin();
        let (mut sum, mut seen) = (0, Vec::new());
        let direction =
            if self.random.below(2) == 0 { Direction::Forward } else { Direction::Reverse };
        txn.scan(self.table, &KeyRange::all(), direction, |row| {
            sum += row.i64(BALANCE)?;
            seen.push((row.i64(0)?.cast_unsigned(), row.i64(VERSION)?.cast_unsigned()));
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        let expected = ACCOUNTS.cast_signed() * DEPOSIT;
        if sum != expected {
            let accounts = seen.len();
            let claim = format!("an audit found {sum} in {accounts} accounts, not {expected}");
            *self.broken.lock() = Some(claim);
        }
        attempt.note(Op::Scan { low: 0, high: ACCOUNTS * SPACING, seen });
        txn.commit().await
    }

    /// Thinks for a while in the middle of a transaction, now and then.
    async fn dwell(&self) {
        if self.random.below(3) == 0 {
            self.env.sleep(Duration::from_nanos(self.random.below(5_000))).await;
        }
    }
}
