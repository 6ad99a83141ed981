//! Transactions of every kind on a few keys: see [`super::Scenario::History`].
//!
//! Sessions on all nodes read, write, delete and scan *registers*, and append to and read *lists*,
//! each attempt a transaction of its own in one history (`journal.rs`). The history is judged as a
//! whole: it is strictly serializable.
//!
//! *What is written is unique, also nothing.* A history says who read from whom only if every
//! version has a value of its own. A row that is not there has none: it may have never been
//! inserted, or been deleted at any time. So whoever deletes a row leaves a *tombstone* in a table
//! of its own, and whoever finds no row reads the tombstone (`registers.rs`). A scan reads both
//! tables, and so says of each key in its range, there or not, which version it saw. Only deletions
//! write tombstones: an insertion into a range that was scanned meets nothing of the scan's but the
//! gap.
//!
//! *Three protocols*, by the option or the seed; with a quarter of the seeds locking and optimistic
//! sessions are mixed. All three claim real-time order: two-phase locked transactions hold all they
//! touch when they commit, optimistic ones are valid at a moment when they hold all they change,
//! and a timestamp is later than all that were drawn before.
//!
//! *Nodes may die*, with one plan in eight. What a survivor reads is what was committed, or an
//! error: so the history up to there is judged as well, a transaction that was about to commit at a
//! dead node being of unknown outcome.

mod access;
mod journal;
mod lists;
mod registers;
mod session;

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::sim::TraceSink;
use selkie_txn::{Database, DatabaseSchema, Protocol};

use self::journal::Journal;
use self::registers::{Registers, check_trees};
use self::session::Session;
use super::case::Case;
use super::clients::Clients;
use super::outcome::RunOutcome;
use super::outcome::Tally;
use super::outcome::done;
use super::random::{client_random, drawn};
use super::start::Tune;
use super::start::start;
use crate::check::serial::{Level, Transaction, serializable};
use crate::cluster::SimCluster;
use crate::error::{SimError, ensure};
use crate::failure::Failure;
use crate::plan::Plan;

/// Sessions of a node.
const SESSIONS: usize = 3;
/// For how long a session waits for a page: longer than any trouble lasts, but the loss of a node.
const PATIENCE: Duration = Duration::from_millis(50);
/// Registers; by the seed all meet on one leaf, or on some.
const KEYS: [u64; 3] = [6, 16, 40];
/// Registers of a page, at most: leaves split all the time, and become empty, or seldom.
const ROWS_A_PAGE: [u16; 2] = [3, u16::MAX];

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let stage = Stage::play(case, plan, tune, log)?;
    // First, as it says more than the error that a session may have ended in because of it.
    strictly_serializable(&stage.journal.history())?;
    no_claims(&stage.journal)?;
    let tally = stage.tally?;
    if stage.loses_nothing {
        stage.cluster.run(check_trees(&stage.databases))??;
        for engine in &stage.cluster.engines {
            stage.cluster.run(engine.close())??;
        }
    }
    Ok(done(&stage.cluster, &tally))
}

/// A history that is not judged yet, for a second opinion.
#[derive(Debug)]
pub struct Recorded {
    /// The history.
    pub history: Vec<Transaction>,
    /// What a session has ended in, or else found that cannot be.
    pub error: Option<SimError>,
}

/// The history of a run. Engines are configured by `tune`, as in [`run_with`](crate::run_with).
///
/// # Errors
/// That there is none, because of the cluster.
pub fn history(case: Case, tune: &Tune<'_>) -> Result<Recorded, Box<Failure>> {
    let plan = case.plan();
    match Stage::play(case, &plan, tune, None) {
        Ok(stage) => {
            let error = stage.tally.err().or(no_claims(&stage.journal).err());
            Ok(Recorded { history: stage.journal.history(), error })
        }
        Err(error) => Err(Box::new(Failure { case, plan, error })),
    }
}

/// Fails if a transaction that has committed had found what cannot be.
fn no_claims(journal: &Journal) -> Result<(), SimError> {
    let claims = journal.claims();
    ensure(claims.is_empty(), || claims.join("\n"))
}

/// Fails with all that is wrong with a history unless it is strictly serializable.
pub(super) fn strictly_serializable(history: &[Transaction]) -> Result<(), SimError> {
    serializable(history, Level::StrictSerializable).map_err(|anomalies| {
        let words: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
        SimError::Broken(words.join("\n"))
    })
}

/// By which protocol a session's transactions are kept apart.
fn protocol_of(case: Case, session: usize) -> Protocol {
    let mixed = if session.is_multiple_of(2) { Protocol::TwoPhase } else { Protocol::Optimistic };
    case.protocol().unwrap_or(mixed)
}

/// What the seed says of the load.
#[derive(Clone, Copy)]
struct Load {
    /// Registers.
    keys: u64,
    /// Registers of a page, at most.
    rows_a_page: u16,
    /// Pages are evicted now and then, of which caches would hold all.
    evicts: bool,
}

impl Load {
    fn drawn(seed: u64) -> Self {
        let keys = *drawn(seed, 13, &KEYS);
        let evicts = *drawn(seed, 14, &[false, true]);
        let rows_a_page = *drawn(seed, 15, &ROWS_A_PAGE);
        Self { keys, rows_a_page, evicts }
    }
}

/// A cluster on which the sessions have run.
struct Stage {
    cluster: SimCluster,
    databases: Vec<Arc<Database>>,
    journal: Arc<Journal>,
    /// What sessions did, or what one of them has ended in.
    tally: Result<Tally, SimError>,
    loses_nothing: bool,
}

impl Stage {
    fn play(
        case: Case,
        plan: &Plan,
        tune: &Tune<'_>,
        log: Option<TraceSink>,
    ) -> Result<Self, SimError> {
        let cluster =
            start(case, plan, tune, log, |shape| shape.engine.request_timeout = PATIENCE)?;
        let load = Load::drawn(case.seed);
        let journal = Arc::new(Journal::default());
        let databases = cluster.run(open(&cluster, case, &journal, load))??;
        plan.arrange(&cluster.world.controls(), cluster.world.now());
        let session = |node: usize, number: usize| {
            let database = databases.get(node).ok_or(SimError::NoSuchNode(node))?;
            let db = Database::clone(database).with_protocol(protocol_of(case, number))?;
            let random = client_random(case.seed, number);
            Session::open(db, cluster.env_of(node), &journal, number, random, load)
        };
        let mut clients = Clients::new(&cluster);
        for number in 0..databases.len() * SESSIONS {
            let node = number / SESSIONS;
            clients.spawn(node, "session", session(node, number)?.run());
        }
        let lost = case.lost_beyond(plan);
        let mut tally = cluster.run(clients.finish(&lost))?;
        let loses_nothing = lost.is_empty();
        if loses_nothing && tally.is_ok() {
            let reader = session(databases.len() - 1, databases.len() * SESSIONS)?;
            tally = cluster.run(reader.read_all())?.and(tally);
        }
        Ok(Self { cluster, databases, journal, tally, loses_nothing })
    }
}

/// Creates the tables on the first node, with every other register set, and opens the database on
/// all.
async fn open(
    cluster: &SimCluster,
    case: Case,
    journal: &Journal,
    load: Load,
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
    use selkie_txn::AbortCause;

    use super::super::Scenario;
    use super::*;

    /// Splits, evictions, and aborts for this cause, in some runs by a protocol.
    fn met(protocol: Protocol, cause: AbortCause) -> [u64; 3] {
        let mut sums = [0; 3];
        for seed in 0..12 {
            let case = Case::of(Scenario::History, seed).protocolled(protocol).unwrap();
            let stage = Stage::play(case, &Plan::calm(), &|_| {}, None).unwrap();
            for database in &stage.databases {
                let stats = database.stats();
                let evictions = database.engine().stats().evictions;
                let own = [stats.splits, evictions, stats.aborts.of(cause)];
                sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
        }
        sums
    }

    #[test]
    fn transactions_meet_splits_evictions_and_each_other() {
        for (protocol, cause) in [
            (Protocol::TwoPhase, AbortCause::UpgradeConflict),
            (Protocol::Timestamp, AbortCause::TooLate),
            (Protocol::Optimistic, AbortCause::Stale),
        ] {
            let met = met(protocol, cause);
            println!("{protocol}: {met:?}");
            assert!(met.iter().all(|count| *count > 50), "{protocol}: {met:?}");
        }
    }
}
