//! A run of the history scenario: its cluster, its sessions, and the verdict on its history.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;
use selkie_txn::{Database, DatabaseSchema, Protocol};

use super::holds::Holds;
use super::journal::Journal;
use super::load::HistoryLoad;
use super::lock_ring::LockRing;
use super::registers::{Registers, check_trees};
use super::schema_changes::SchemaChanges;
use super::session::Session;
use super::{lists, registers};
use crate::check::serial::{Level, Transaction, serializable};
use crate::cluster::SimCluster;
use crate::error::{SimError, ensure};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::scenario::case::Case;
use crate::scenario::clients::Clients;
use crate::scenario::excuses::Excuses;
use crate::scenario::outcome::{OperationCounts, RunOutcome, done};
use crate::scenario::random::client_random;
use crate::scenario::start::{Tune, start};

/// Sessions of a node.
const SESSIONS: usize = 3;
/// Stream of the seed that draws how many latches of what they read transactions keep.
const LATCHES_STREAM: u64 = 45;
/// Stream of the seed that draws whether tables change, and where.
const TABLES_STREAM: u64 = 46;
/// How long a session waits for a page: longer than any trouble but the loss of a node.
const PAGE_PATIENCE: Duration = Duration::from_millis(50);

pub(in crate::scenario) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let run = HistoryRun::play(case, plan, tune, log)?;
    // First: a violation explains more than the error of a session that it caused.
    strictly_serializable(&run.journal.history())?;
    no_claims(&run.journal)?;
    let may_end = |node| run.excuses.loses_data || run.excuses.exposes(node);
    // A table that is emptied gets a new tree: who holds locks in the one before cannot commit.
    let is_emptied = changes_tables(case, &run.databases).is_some();
    run.holds.check(|node| is_emptied || may_end(node))?;
    let all_live = !(0..run.cluster.engines.len()).any(may_end) && run.tally.is_ok();
    run.ring.iter().try_for_each(|ring| ring.check(all_live))?;
    let tally = run.tally?;
    if let Some(living) = &run.living {
        run.cluster.run(check_trees(&run.databases))??;
        run.excuses.close(&run.cluster, living)?;
    }
    Ok(done(&run.cluster, &tally))
}

/// A history that is not judged yet, for other checkers.
#[derive(Debug)]
pub struct RecordedHistory {
    /// The history.
    pub history: Vec<Transaction>,
    /// The error of a session, or an impossible observation.
    pub error: Option<SimError>,
}

/// The history of a run. Engines are configured by `tune`, as in [`run_with`](crate::run_with).
///
/// # Errors
/// The failure of the cluster, which left no history.
pub fn history(case: Case, tune: &Tune<'_>) -> Result<RecordedHistory, Box<Failure>> {
    let plan = case.plan();
    match HistoryRun::play(case, &plan, tune, None) {
        Ok(run) => {
            let error = run.tally.err().or(no_claims(&run.journal).err());
            Ok(RecordedHistory { history: run.journal.history(), error })
        }
        Err(error) => Err(Box::new(Failure { case, plan, error })),
    }
}

/// Fails if a committed transaction made an impossible observation.
fn no_claims(journal: &Journal) -> Result<(), SimError> {
    let claims = journal.claims();
    ensure(claims.is_empty(), || claims.join("\n"))
}

/// Fails with all that is wrong with a history unless it is strictly serializable.
pub(in crate::scenario) fn strictly_serializable(history: &[Transaction]) -> Result<(), SimError> {
    serializable(history, Level::StrictSerializable).map_err(|anomalies| {
        let words: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
        SimError::Broken(words.join("\n"))
    })
}

/// The concurrency control protocol of a session.
fn protocol_of(case: Case, session: usize) -> Protocol {
    let mixed = if session.is_multiple_of(2) { Protocol::TwoPhase } else { Protocol::Optimistic };
    case.protocol().unwrap_or(mixed)
}

/// Whether two-phase locked transactions keep latches of two leaves that they only read, and
/// validate the others: in every other run.
fn keeps_few_latches(seed: u64) -> bool {
    SplitMix::of_stream(seed, LATCHES_STREAM).below(2) == 0
}

/// Where tables change, if they do: in every other run with snapshots.
fn changes_tables(case: Case, databases: &[Arc<Database>]) -> Option<&Arc<Database>> {
    let random = SplitMix::of_stream(case.seed, TABLES_STREAM);
    let has_changing = protocol_of(case, 0) == Protocol::Snapshot && random.below(2) == 0;
    databases.get(random.below(databases.len() as u64) as usize).filter(|_| has_changing)
}

/// A cluster on which the sessions ran.
struct HistoryRun {
    cluster: SimCluster,
    databases: Vec<Arc<Database>>,
    journal: Arc<Journal>,
    holds: Arc<Holds>,
    /// Deadlocks that were made, if there are row locks.
    ring: Option<Arc<LockRing>>,
    /// What the sessions did, or the error of one of them.
    tally: Result<OperationCounts, SimError>,
    excuses: Excuses,
    /// The nodes that are left, where no loss is excused.
    living: Option<Vec<usize>>,
}

impl HistoryRun {
    fn play(
        case: Case,
        plan: &Plan,
        tune: &Tune<'_>,
        log: Option<TraceSink>,
    ) -> Result<Self, SimError> {
        let mut cluster =
            start(case, plan, tune, log, |shape| shape.engine.request_timeout = PAGE_PATIENCE)?;
        // Where the pool does not learn of deaths, a lock of a dead node is never given back.
        let knows_deaths = case.has_processes() || plan.lost().is_empty();
        let has_row_locks = protocol_of(case, 0) == Protocol::Snapshot && knows_deaths;
        let load = HistoryLoad::drawn(case.seed, has_row_locks);
        let (journal, holds) = (Arc::new(Journal::default()), Arc::new(Holds::default()));
        let mut databases = cluster.run(open(&cluster, case, &journal, load))??;
        if keeps_few_latches(case.seed) {
            databases.iter().for_each(|database| database.set_latched_reads(2));
        }
        let excuses = Excuses::of(case, plan, &cluster);
        plan.arrange_in(&cluster);
        let until = excuses.load_until(&cluster);
        let session = |cluster: &SimCluster, database: &Arc<Database>, number: usize| {
            let node = database.engine().node().index();
            let db = Database::clone(database).with_protocol(protocol_of(case, number))?;
            let random = client_random(case.seed, number);
            let envs = (cluster.env_of(node), cluster.world.env(), until);
            Session::open(db, envs, (&journal, &holds), number, random, load)
        };
        let mut clients = Clients::new(&cluster);
        let reader_number = databases.len() * SESSIONS;
        for (node, database) in databases.iter().enumerate() {
            for number in node * SESSIONS..(node + 1) * SESSIONS {
                clients.spawn(node, "session", session(&cluster, database, number)?.run());
            }
        }
        if let Some(database) = changes_tables(case, &databases) {
            let node = database.engine().node().index();
            let changes = SchemaChanges {
                db: Database::clone(database),
                env: cluster.env_of(node),
                clock: cluster.world.env(),
                until,
                random: client_random(case.seed, reader_number + 1),
                journal: Arc::clone(&journal),
                holds: Arc::clone(&holds),
                number: reader_number + 1,
                keys: load.keys,
            };
            clients.spawn(node, "schema", changes.run());
        }
        let ring = load.locks.then(|| LockRing::new(databases.len()));
        if let Some(ring) = &ring {
            for (node, database) in databases.iter().enumerate() {
                let db = Database::clone(database);
                let envs = (cluster.env_of(node), cluster.world.env());
                clients.spawn(node, "ring", Arc::clone(ring).run(db, envs, node));
            }
        }
        let mut tally = excuses.finish(clients);
        let mut living = None;
        if !excuses.loses_data && tally.is_ok() {
            let left = excuses.settle(&mut cluster)?;
            databases.retain(|own| left.contains(&own.engine().node().index()));
            if case.has_processes() {
                let last = cluster.engine(cluster.engines.len() - 1)?;
                databases.push(Arc::new(cluster.run(Database::open(last))??));
            }
            if let Some(last) = databases.last() {
                let reader = session(&cluster, last, reader_number)?;
                tally = cluster.run(reader.read_all())?.and(tally);
            }
            living = Some(left);
        }
        Ok(Self { cluster, databases, journal, holds, ring, tally, excuses, living })
    }
}

/// Creates the tables on the first node, sets every other register, and opens the database on all
/// nodes.
async fn open(
    cluster: &SimCluster,
    case: Case,
    journal: &Journal,
    load: HistoryLoad,
) -> Result<Vec<Arc<Database>>, SimError> {
    let tables = [registers::schemas(load.rows_a_page), lists::schemas()].concat();
    let schema = DatabaseSchema::from(tables).protocol(protocol_of(case, 0));
    let first = Database::create(cluster.engine(0)?, schema).await?;
    journal.add_opening(Registers::of(&first)?.fill(&first, load.keys).await?);
    let mut databases = vec![Arc::new(first)];
    for engine in cluster.engines.iter().skip(1) {
        databases.push(Arc::new(Database::open(engine).await?));
    }
    Ok(databases)
}

#[cfg(test)]
mod tests {
    use selkie_engine::Planted;
    use selkie_txn::{AbortCause, TxnStats};

    use super::*;
    use crate::scenario::name::Scenario;

    /// Splits, evictions, and aborts for this cause, in some runs by a protocol.
    fn met(protocol: Protocol, cause: AbortCause) -> [u64; 3] {
        let mut sums = [0; 3];
        for seed in 0..12 {
            let case = Case::gentle(Scenario::History, seed).protocolled(protocol).unwrap();
            let run = HistoryRun::play(case, &Plan::calm(), &|_| {}, None).unwrap();
            for database in &run.databases {
                let stats = database.stats();
                let evictions = database.engine().stats().evictions;
                let own = [stats.splits, evictions, stats.aborts.of(cause)];
                sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
        }
        sums
    }

    /// How many transactions ended as the image of a page was gone that their snapshot needed.
    fn too_old(planted: Planted) -> u64 {
        let too_old = |seed| {
            let case =
                Case::gentle(Scenario::History, seed).protocolled(Protocol::Snapshot).unwrap();
            let tune = |config: &mut selkie_engine::EngineConfig| config.planted = planted;
            let run = HistoryRun::play(case, &Plan::calm(), &tune, None).unwrap();
            let stats = run.databases.iter().map(|database| database.stats());
            stats.map(|stats| stats.aborts.of(AbortCause::SnapshotTooOld)).sum::<u64>()
        };
        (0..40).map(too_old).sum()
    }

    #[test]
    fn a_snapshot_finds_all_images_while_no_node_ends() {
        assert_eq!(too_old(Planted::Nothing), 0);
        assert!(too_old(Planted::NoImages) > 20, "a commit that keeps no image is noticed");
        assert!(too_old(Planted::EarlyFree) > 0, "an image that is freed too early is noticed");
    }

    #[test]
    fn transactions_meet_row_locks_in_every_way() {
        let mut sums = [0; 4];
        for seed in 0..24 {
            let case =
                Case::gentle(Scenario::History, seed).protocolled(Protocol::Snapshot).unwrap();
            let run = HistoryRun::play(case, &Plan::calm(), &|_| {}, None).unwrap();
            let stats = run.databases.iter().map(|database| database.stats());
            for TxnStats { lock_waits, aborts, .. } in stats {
                let causes = [AbortCause::Deadlock, AbortCause::LockTimeout];
                let [deadlocks, timeouts] = causes.map(|cause| aborts.of(cause));
                let own = [lock_waits, deadlocks, timeouts];
                sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
            sums[3] += run.holds.count() as u64;
        }
        println!("waits, deadlocks, timeouts, locks: {sums:?}");
        let least = [500, 40, 20, 2_000];
        assert!(sums.iter().zip(least).all(|(sum, least)| *sum >= least), "{sums:?}");
    }

    #[test]
    fn transactions_meet_splits_evictions_and_each_other() {
        for (protocol, cause) in [
            (Protocol::TwoPhase, AbortCause::UpgradeConflict),
            (Protocol::Timestamp, AbortCause::TooLate),
            (Protocol::Optimistic, AbortCause::Stale),
            (Protocol::Snapshot, AbortCause::Stale),
        ] {
            let met = met(protocol, cause);
            println!("{protocol}: {met:?}");
            assert!(met.iter().all(|count| *count > 50), "{protocol}: {met:?}");
        }
    }
}
