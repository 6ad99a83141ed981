//! What sessions see of each other: the specifications of `specs`, whose form `spec.rs` tells.
//!
//! A step waits if it has not ended although the node has counted a wait for a lock since it began.
//! What ends a wait is looked for only where the specification expects it, for half a minute: a
//! slow machine changes nothing but the time that it takes. If an answer is another than the
//! expected, all answers up to there are shown.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

mod spec;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_sql::types::text_format::to_text;
use selkie_sql::{Datum, Session};
use selkie_txn::{Database, DatabaseSchema, Protocol};

use spec::{Expected, Permutation, Spec};

/// How long an answer is waited for.
const PATIENCE_MS: u32 = 30_000;

/// How long a step that has met a lock may take to get it: a lock that is given back at once is no
/// wait.
const SHORT_WAIT_MS: u32 = 200;

/// What a statement gives, as specifications write it.
async fn answer(session: &mut Session, sql: &str) -> String {
    let outcome = match session.execute(sql).await {
        Ok(mut outcomes) => outcomes.pop(),
        Err(error) => return format!("ERROR {}", error.state().code()),
    };
    let Some(outcome) = outcome else { return String::new() };
    if outcome.columns.is_empty() {
        return outcome.tag.to_string();
    }
    if outcome.rows.is_empty() {
        return "(0 rows)".to_owned();
    }
    let format = session.format();
    let value = |value: &Datum, ty| {
        let mut text = String::new();
        match value {
            Datum::Null => text.push_str("NULL"),
            value => to_text(value, ty, format, &mut text),
        }
        text
    };
    let row = |row: &Vec<Datum>| {
        let columns = row.iter().zip(outcome.columns.iter());
        columns.map(|(own, column)| value(own, column.ty)).collect::<Vec<_>>().join(",")
    };
    outcome.rows.iter().map(row).collect::<Vec<_>>().join("; ")
}

/// A session, which a task has while a step runs.
#[derive(Default)]
struct Slot {
    session: Option<Session>,
    answer: Option<String>,
}

struct Client {
    slot: Arc<Mutex<Slot>>,
    /// The step that runs.
    step: Option<String>,
}

struct Run<'r> {
    database: &'r Database,
    clients: Vec<Client>,
    /// What has been answered.
    told: Vec<String>,
}

impl Run<'_> {
    async fn pause(&self) {
        self.database.engine().env().sleep(Duration::from_millis(1)).await;
    }

    fn begin(&mut self, client: usize, step: &str, sql: &str) -> Result<(), String> {
        let own = &mut self.clients[client];
        if let Some(other) = &own.step {
            return Err(format!("the session of {step} still waits in {other}"));
        }
        own.step = Some(step.to_owned());
        let (slot, sql) = (Arc::clone(&own.slot), sql.to_owned());
        let mut session = slot.lock().unwrap().session.take().ok_or("a session is lost")?;
        // The task goes on by itself; its answer is what is waited for.
        drop(self.database.engine().env().spawn("step", async move {
            let answer = answer(&mut session, &sql).await;
            *slot.lock().unwrap() = Slot { session: Some(session), answer: Some(answer) };
        }));
        Ok(())
    }

    /// The answer to a step, if it is there.
    fn take(&mut self, client: usize) -> Option<String> {
        let own = &mut self.clients[client];
        let answer = own.slot.lock().unwrap().answer.take()?;
        own.step = None;
        Some(answer)
    }

    /// The answer to a step that has begun when so many waits had been counted; whether it waits.
    async fn first_answer(&mut self, client: usize, before: u64) -> Result<String, String> {
        let mut waited = 0;
        for _ in 0..PATIENCE_MS {
            if let Some(answer) = self.take(client) {
                return Ok(answer);
            }
            if self.database.stats().lock_waits > before {
                waited += 1;
            }
            if waited > SHORT_WAIT_MS {
                return Ok("waits".to_owned());
            }
            self.pause().await;
        }
        Err("it neither ends nor waits for a lock".to_owned())
    }

    async fn last_answer(&mut self, client: usize) -> Result<String, String> {
        for _ in 0..PATIENCE_MS {
            if let Some(answer) = self.take(client) {
                return Ok(answer);
            }
            self.pause().await;
        }
        Err("it still waits".to_owned())
    }

    fn tell(&mut self, steps: &str, answer: String, expected: &Expected) -> Result<(), String> {
        let is_good = expected.answers.contains(&answer);
        self.told.push(format!("> {steps}: {answer}"));
        match is_good {
            true => Ok(()),
            false => Err(format!("expected is {}", expected.answers.join(" | "))),
        }
    }

    /// Answers that are expected of steps which run already, up to that of one that does not.
    async fn running(&mut self, spec: &Spec, left: &mut &[Expected]) -> Result<(), String> {
        while let Some((expected, rest)) = left.split_first() {
            let clients: Option<Vec<_>> = expected
                .steps
                .iter()
                .map(|step| {
                    let (client, _) = spec.step(step)?;
                    (self.clients[client].step.as_ref() == Some(step)).then_some(client)
                })
                .collect();
            let Some(clients) = clients else { break };
            let mut answers = Vec::new();
            for (client, step) in clients.into_iter().zip(&expected.steps) {
                let answer = self.last_answer(client).await;
                answers.push(answer.map_err(|why| format!("{step}: {why}"))?);
            }
            answers.sort();
            let among = if answers.len() > 1 { "among " } else { "" };
            let steps = format!("{among}{}", expected.steps.join(" "));
            self.tell(&steps, answers.join(", "), expected)?;
            *left = rest;
        }
        Ok(())
    }

    async fn steps(&mut self, spec: &Spec, permutation: &Permutation) -> Result<(), String> {
        let mut left = permutation.expected.as_slice();
        for step in &permutation.steps {
            let (client, sql) = spec.step(step).ok_or("there is no such step")?;
            let before = self.database.stats().lock_waits;
            self.begin(client, step, sql)?;
            let Some((expected, rest)) = left.split_first() else {
                return Err(format!("no answer to {step} is expected"));
            };
            match expected.steps.as_slice() {
                [one] if one == step => {
                    let answer = self.first_answer(client, before).await;
                    let answer = answer.map_err(|why| format!("{step}: {why}"))?;
                    left = rest;
                    self.tell(step, answer, expected)?;
                }
                // Its answer comes with those of others; it has begun to wait, or has ended.
                several if several.contains(step) => {
                    let until = self.database.stats().lock_waits;
                    for _ in 0..SHORT_WAIT_MS {
                        let ended = self.clients[client].slot.lock().unwrap().answer.is_some();
                        if ended || self.database.stats().lock_waits > until.max(before) {
                            break;
                        }
                        self.pause().await;
                    }
                }
                _ => return Err(format!("an answer to {step} is not what is expected next")),
            }
            self.running(spec, &mut left).await?;
        }
        match left {
            [] => Ok(()),
            [next, ..] => Err(format!("{} has not been done", next.steps.join(" "))),
        }
    }
}

async fn permute(
    database: &Database,
    spec: &Spec,
    permutation: &Permutation,
) -> Result<(), String> {
    let session = || Session::new(database, "tester", || 0).unwrap();
    let mut own = session();
    let mut run = Run { database, clients: Vec::new(), told: Vec::new() };
    for sql in &spec.setup {
        let answer = answer(&mut own, sql).await;
        assert!(!answer.starts_with("ERROR"), "{sql}: {answer}");
    }
    let mut handles = Vec::new();
    for client in &spec.sessions {
        let mut session = session();
        for sql in &client.begin {
            let answer = answer(&mut session, sql).await;
            assert!(!answer.starts_with("ERROR"), "{sql}: {answer}");
        }
        handles.push(session.cancel_handle());
        let slot = Slot { session: Some(session), answer: None };
        run.clients.push(Client { slot: Arc::new(Mutex::new(slot)), step: None });
    }
    let ran = run.steps(spec, permutation).await;
    // What still runs would hold locks of the tables that go.
    for (client, handle) in handles.iter().enumerate() {
        if run.clients[client].step.is_some() {
            handle.cancel();
            let _ = run.last_answer(client).await;
        }
        let session = run.clients[client].slot.lock().unwrap().session.take();
        if let Some(mut session) = session {
            answer(&mut session, "rollback").await;
        }
    }
    for sql in &spec.teardown {
        let answer = answer(&mut own, sql).await;
        assert!(!answer.starts_with("ERROR"), "{sql}: {answer}");
    }
    let told = run.told.join("\n    ");
    ran.map_err(|why| {
        let steps = permutation.steps.join(" ");
        format!("line {}: permutation: {steps}\n    {told}\n    {why}", permutation.line)
    })
}

fn run(name: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/isolation/specs");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let spec = Spec::read(&text).unwrap_or_else(|why| panic!("{name}, {why}"));
    assert!(!spec.permutations.is_empty(), "{name} has no permutation");
    let runtime = RealRuntime::new(2).unwrap();
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
        let mut failed = Vec::new();
        for permutation in &spec.permutations {
            failed.extend(permute(&database, &spec, permutation).await.err());
        }
        assert!(failed.is_empty(), "{name}:\n{}", failed.join("\n"));
        drop(database);
        engine.close().await.unwrap();
    });
}

macro_rules! specs {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { run(concat!(stringify!($name), ".spec")); })*
    };
}

specs![
    dirty_read,
    lost_update,
    lost_update_snapshot,
    read_skew,
    write_skew,
    phantom,
    lock_nowait,
    lock_skipped,
    lock_waits,
    deadlock,
    unique_key,
    foreign_key,
    table_changes,
    read_only,
    savepoint_locks,
    update_chain,
    sequences,
    truncate,
    advisory_locks,
    lock_table,
];
