//! Fuzz targets of statements: bytes to syntax trees to plans to rows, on a stack as a server has.
//!
//! Under `cargo test` each of them runs over some hundred random inputs. With
//! `cargo bolero test -p selkie-sql fuzz::any_words` a fuzzer looks for more.
//!
//! For every input: there is an answer or an error of a statement, within a minute, and none that
//! is internal (XX000). Nothing is committed.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::{Database, DatabaseSchema, Protocol};

use crate::Session;

/// Inputs of a target under `cargo test`.
const ITERATIONS: usize = 400;

/// The stack of a server's thread.
const STACK_BYTES: usize = 8 << 20;

/// How long an answer may take; statements have a timeout of two seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What statements are made of. None ends a transaction.
const WORDS: [&str; 106] = [
    "select",
    "row(i, x)",
    "row",
    ":",
    "(t).*",
    "(t).i",
    "a[1:2]",
    "unnest(a)",
    "row_to_json(t)",
    "generate_series(1, 2) g",
    "array[t]",
    "from",
    "where",
    "group by",
    "having",
    "order by",
    "limit",
    "offset",
    "with",
    "recursive",
    "as",
    "union",
    "all",
    "intersect",
    "except",
    "distinct",
    "on",
    "using",
    "join",
    "left join",
    "full join",
    "cross join",
    "lateral",
    "natural join",
    "insert into",
    "values",
    "update",
    "set",
    "delete from",
    "returning",
    "on conflict",
    "do nothing",
    "default",
    "case",
    "when",
    "then",
    "else",
    "end",
    "cast",
    "::",
    "integer",
    "text",
    "numeric",
    "date",
    "interval",
    "array",
    "[",
    "]",
    "(",
    ")",
    "(",
    ")",
    ",",
    ",",
    ".",
    "*",
    "+",
    "-",
    "/",
    "%",
    "||",
    "=",
    "<",
    ">",
    "<>",
    "and",
    "or",
    "not",
    "is null",
    "in",
    "exists",
    "between",
    "like",
    "any",
    "over",
    "partition by",
    "rows",
    "null",
    "true",
    "1",
    "0",
    "-1",
    "2147483647",
    "1e300",
    "'a'",
    "'2024-02-30'",
    "''",
    "t",
    "u",
    "t.i",
    "u.i",
    "s",
    "count(*)",
    "sum",
    "coalesce",
    "$1",
];

/// What nests: what it begins and ends with, and what stands innermost.
const LINKS: [(&str, &str, &str); 6] = [
    ("(", "1", ")"),
    ("not ", "true", ""),
    ("- ", "1", ""),
    ("(select ", "1", ")"),
    ("case when true then ", "1", " end"),
    ("coalesce(", "1", ")"),
];

type Worker = (SyncSender<String>, Receiver<Result<(), String>>);

/// A thread with a database, which runs what it is given.
fn worker() -> Worker {
    let (sender, statements) = sync_channel::<String>(1);
    let (answers, receiver) = sync_channel(1);
    let run = move || {
        let runtime = RealRuntime::new(1).unwrap();
        let env = runtime.env();
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let config = PoolConfig {
            memory_nodes: 1,
            bytes_per_node: 64 << 20,
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
            let tables = "create table t (i integer primary key, s text, a integer[]); \
                          create table u (i integer, s text, d date); \
                          insert into t values (1, 'a'), (2, null); insert into u values (1, 'b')";
            session.execute(tables).await.unwrap();
            session.execute("set statement_timeout = '2s'").await.unwrap();
            while let Ok(sql) = statements.recv() {
                session.execute("begin").await.unwrap();
                let ran = session.execute(&sql).await;
                session.execute("rollback").await.unwrap();
                let answer = match ran {
                    Err(error) if error.state().code() == "XX000" => Err(error.to_string()),
                    _ => Ok(()),
                };
                if answers.send(answer).is_err() {
                    break;
                }
            }
        });
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap();
    (sender, receiver)
}

fn run(sql: &str) {
    static WORKER: OnceLock<Mutex<Worker>> = OnceLock::new();
    let worker = WORKER.get_or_init(|| Mutex::new(worker()));
    let worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
    worker.0.send(sql.to_owned()).unwrap_or_else(|_| panic!("a statement before {sql:?} panics"));
    match worker.1.recv_timeout(LONGEST_WAIT) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("{sql:?}: {error}"),
        Err(error) => panic!("{sql:?} panics or does not end: {error}"),
    }
}

#[test]
fn any_text() {
    let target = bolero::check!(name = "any_text").with_iterations(ITERATIONS).with_max_len(256);
    target.for_each(|data: &[u8]| run(&String::from_utf8_lossy(data)));
}

#[test]
fn any_words() {
    let target = bolero::check!(name = "any_words").with_iterations(ITERATIONS).with_max_len(48);
    target.for_each(|data: &[u8]| {
        let words = data.iter().filter_map(|byte| WORDS.get(usize::from(*byte) % WORDS.len()));
        let words: Vec<_> = words.copied().collect();
        // Few statements would begin as one does.
        for begin in ["select", "select * from t where", "update t set i =", ""] {
            run(&format!("{begin} {}", words.join(" ")));
        }
    });
}

/// As deep as bytes allow: the parser's bound holds, or the stack grows.
#[test]
fn any_depth() {
    let target = bolero::check!(name = "any_depth").with_iterations(60);
    target.with_type::<(u8, u16, bool)>().for_each(|(which, depth, is_near)| {
        // Near the bound, where all else takes what the parser has let pass, and far beyond it.
        let depth = usize::from(*depth) % if *is_near { 700 } else { 20_000 };
        let (open, inner, close) = LINKS[usize::from(*which) % LINKS.len()];
        run(&format!("select {}{inner}{}", open.repeat(depth), close.repeat(depth)));
    });
}
