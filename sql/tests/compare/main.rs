//! Random statements over random tables: Selkie's answers are those of PostgreSQL 15 and SQLite.
//!
//! PostgreSQL is started for it, if the machine has it; SQLite is the one in Python's standard
//! library, so that neither is built here. A machine that lacks one says so and compares with the
//! other. SQLite is asked what both understand alike: no dates, numerics or casts of them.
//!
//! | variable | meaning |
//! |---|---|
//! | `SELKIE_COMPARE_SEED` | the first seed, a number |
//! | `SELKIE_COMPARE_COUNT` | how many statements |
//!
//! `cargo test -p selkie-sql --test compare -- --ignored` compares 100,000. A statement that is
//! refused as not supported (0A000) agrees, but few may be. One that differs is made smaller while
//! it does, and is shown with its tables, both answers and its seed; the first ten are.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stderr,
    reason = "test code"
)]

mod answer;
mod expressions;
mod oracles;
mod parts;
mod queries;
mod random;

use std::fmt::Write as _;
use std::sync::Arc;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_sql::types::text_format::to_text;
use selkie_sql::{Datum, Session, TransactionState};
use selkie_txn::{Database, DatabaseSchema, Protocol};

use answer::{Answer, Comparison};
use expressions::Generator;
use oracles::Oracle;
use parts::Part;
use queries::Statement;
use random::Random;

/// Statements over the same tables.
const OF_ONE_SEED: usize = 25;

/// Differences that are shown.
const MOST_SHOWN: usize = 10;

/// Smaller statements that are tried for one difference.
const MOST_TRIED: usize = 2_000;

async fn ask(session: &mut Session, sql: &str) -> Answer {
    let outcome = match session.execute(sql).await {
        Ok(mut outcomes) => outcomes.pop(),
        Err(error) => return Answer::Error(error.state().code().to_owned()),
    };
    let Some(outcome) = outcome else { return Answer::Rows(Vec::new()) };
    let format = session.format();
    let text = |value: &Datum, ty| {
        let mut text = String::new();
        match value {
            Datum::Null => text.push_str("NULL"),
            value => to_text(value, ty, format, &mut text),
        }
        text
    };
    let types: Vec<_> = outcome.columns.iter().map(|column| column.ty).collect();
    let row = |row: &Vec<Datum>| row.iter().zip(&types).map(|(own, ty)| text(own, *ty)).collect();
    Answer::Rows(outcome.rows.iter().map(row).collect())
}

/// A statement's answers: its own, and what it leaves of a table that it changes.
type Answers = (Answer, Option<Answer>);

/// What a changed table has.
fn contents(table: &str) -> String {
    format!("select id, i, j, s, b from {table} order by id")
}

async fn own_answers(session: &mut Session, sql: &str, changes: Option<&str>) -> Answers {
    let Some(table) = changes else { return (ask(session, sql).await, None) };
    ask(session, "begin").await;
    let answer = ask(session, sql).await;
    let left = match session.state() {
        TransactionState::Failed => None,
        _ => Some(ask(session, &contents(table)).await),
    };
    ask(session, "rollback").await;
    (answer, left)
}

fn answers_of(oracle: &mut Oracle, sql: &str, changes: Option<&str>) -> Answers {
    let Some(table) = changes else { return (oracle.ask(sql), None) };
    oracle.ask("begin");
    let answer = oracle.ask(sql);
    let left = match &answer {
        Answer::Rows(_) => Some(oracle.ask(&contents(table))),
        _ => None,
    };
    oracle.ask("rollback");
    (answer, left)
}

/// Selkie and one other.
struct Pair<'p> {
    session: &'p mut Session,
    oracle: &'p mut Oracle,
    is_sqlite: bool,
    /// Statements that were not compared: Selkie does not have what they ask for, or refuses what
    /// only SQLite allows.
    refused: usize,
}

impl Pair<'_> {
    /// The answers to a statement, if they differ.
    async fn difference(&mut self, part: &Part, of: &Statement) -> Option<(Answers, Answers)> {
        let (sql, changes) = (part.sql(), of.changes.as_deref());
        let own = own_answers(self.session, &sql, changes).await;
        let theirs = answers_of(self.oracle, &sql, changes);
        if let Answer::Lost(why) = &theirs.0 {
            panic!("{why}, at {sql}");
        }
        let is_allowed = self.is_sqlite && matches!(theirs.0, Answer::Rows(_));
        let is_refused = is_allowed && matches!(own.0, Answer::Error(_));
        self.refused += usize::from(own.0.is_unsupported() || is_refused);
        // The table is read in the order of its key.
        let how = |is_ordered| Comparison { is_ordered, is_sqlite: self.is_sqlite };
        let agree = own.0.agrees(&theirs.0, how(of.is_ordered))
            && match (&own.1, &theirs.1) {
                (Some(own), Some(theirs)) => own.agrees(theirs, how(true)),
                _ => true,
            };
        (!agree).then_some((own, theirs))
    }

    /// Makes a statement that differs smaller while it does.
    async fn shrink(&mut self, of: &Statement, mut found: (Answers, Answers)) -> String {
        let mut least = of.part.clone();
        let mut tried = 0;
        // What has an error that it did not have is another difference.
        let kind = |found: &(Answers, Answers)| {
            let is_error = |answer: &Answer| matches!(answer, Answer::Error(_));
            (is_error(&found.0.0), is_error(&found.1.0))
        };
        let wanted = kind(&found);
        'smaller: loop {
            for part in least.smaller() {
                tried += 1;
                if tried > MOST_TRIED {
                    break 'smaller;
                }
                match self.difference(&part, of).await {
                    Some(other) if kind(&other) == wanted => {
                        (least, found) = (part, other);
                        continue 'smaller;
                    }
                    _ => {}
                }
            }
            break;
        }
        let name = self.oracle.name;
        let (own, theirs) = found;
        let mut shown =
            format!("  {};\n  Selkie: {:?}\n  {name}: {:?}\n", least.sql(), own.0, theirs.0);
        if let (Some(own), Some(theirs)) = (own.1, theirs.1) {
            let _ = writeln!(shown, "  table in Selkie: {own:?}\n  table in {name}: {theirs:?}");
        }
        shown
    }
}

/// Compares statements of seeds; gives what differs, and how many statements had rows.
async fn compare(
    session: &mut Session,
    oracle: &mut Oracle,
    seed: u64,
    count: usize,
) -> (Vec<String>, usize) {
    let is_sqlite = oracle.name == "SQLite";
    let (mut shown, mut good, mut refused) = (Vec::new(), 0, 0);
    for (seed, done) in (seed..).zip((0..count).step_by(OF_ONE_SEED)) {
        let mut random = Random::new(seed);
        let tables = 1 + random.below(3);
        let scope = Vec::new();
        let mut generator = Generator { random, is_common: is_sqlite, tables, next: 0, scope };
        let schema = generator.tables();
        for sql in &schema {
            let (own, theirs) = (ask(session, sql).await, oracle.ask(sql));
            assert!(matches!(own, Answer::Rows(_)), "seed {seed}: {sql}: {own:?}");
            assert!(matches!(theirs, Answer::Rows(_)), "seed {seed}: {sql}: {theirs:?}");
        }
        for _ in 0..OF_ONE_SEED.min(count - done) {
            generator.next = 0;
            let statement = match generator.random.one_in(5) {
                true => generator.change(),
                false => generator.select(),
            };
            let (session, oracle) = (&mut *session, &mut *oracle);
            let mut pair = Pair { session, oracle, is_sqlite, refused: 0 };
            let difference = pair.difference(&statement.part, &statement).await;
            refused += pair.refused;
            match difference {
                None => good += 1,
                Some(found) => {
                    let least = pair.shrink(&statement, found).await;
                    shown.push(format!("seed {seed}:\n  {};\n{least}", schema.join(";\n  ")));
                }
            }
            if shown.len() == MOST_SHOWN {
                return (shown, good);
            }
        }
        for table in 0..tables {
            let sql = format!("drop table t{table}");
            ask(session, &sql).await;
            oracle.ask(&sql);
        }
    }
    // Else little would be compared.
    assert!(refused * 20 <= count, "{refused} of {count} statements are refused");
    (shown, good)
}

/// A number of the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is to be a number, not {text}")))
}

fn with_session(work: impl AsyncFnOnce(&mut Session)) {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 128 << 20,
        gcl_bytes: 2048,
        range_bytes: 4 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    runtime.block_on(async {
        let (id, config) = (ComputeId::new(0).unwrap(), EngineConfig::default());
        let engine = Engine::start(memory.pool(), &fabric, &env, id, config).await.unwrap();
        let schema = DatabaseSchema::from(Vec::new()).protocol(Protocol::Snapshot);
        let database = Database::create(&engine, schema).await.unwrap();
        let mut session = Session::new(&database, "tester", || 0).unwrap();
        work(&mut session).await;
        drop((session, database));
        engine.close().await.unwrap();
    });
}

fn agrees_with(oracle: Option<Oracle>, count: u64) {
    let Some(mut oracle) = oracle else { return };
    let seed = variable("SELKIE_COMPARE_SEED").unwrap_or(1);
    let count = variable("SELKIE_COMPARE_COUNT").unwrap_or(count) as usize;
    let name = oracle.name;
    with_session(async |session| {
        let (shown, good) = compare(session, &mut oracle, seed, count).await;
        eprintln!("{name}: {good} statements from seed {seed} agree");
        assert!(
            shown.is_empty(),
            "{} differences (of {} statements; run one with SELKIE_COMPARE_SEED=seed \
             SELKIE_COMPARE_COUNT={OF_ONE_SEED}):\n{}",
            shown.len(),
            good + shown.len(),
            shown.join("\n")
        );
    });
}

#[test]
fn answers_are_those_of_postgresql() {
    agrees_with(Oracle::postgres(), 300);
}

#[test]
fn answers_are_those_of_sqlite() {
    agrees_with(Oracle::sqlite(), 300);
}

#[test]
#[ignore = "takes many minutes"]
fn many_answers_are_those_of_postgresql() {
    agrees_with(Oracle::postgres(), 100_000);
}

#[test]
#[ignore = "takes many minutes"]
fn many_answers_are_those_of_sqlite() {
    agrees_with(Oracle::sqlite(), 100_000);
}
