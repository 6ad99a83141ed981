//! The scripts of `tests/slt`, each with an empty database: statements, and what PostgreSQL 15
//! gives for them. Where it gives an error, they say the SQLSTATE.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

#[path = "scripts/contention.rs"]
mod contention;
#[path = "scripts/copies.rs"]
mod copies;
#[path = "scripts/cursors.rs"]
mod cursors_in_memory;
#[path = "scripts/deep.rs"]
mod deep_statements;
#[path = "scripts/keys.rs"]
mod keys_of_types;
#[path = "scripts/notices.rs"]
mod notices;
#[path = "scripts/orders.rs"]
mod orders_of_keys;
#[path = "scripts/origins.rs"]
mod origins_of_columns;
#[path = "scripts/plans.rs"]
mod plans;
#[path = "scripts/random.rs"]
mod random;
mod references;
#[path = "scripts/schemas.rs"]
mod schemas_of_sessions;
#[path = "scripts/roles.rs"]
mod sessions_of_roles;

use std::path::PathBuf;
use std::sync::Arc;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_sql::types::text_format::to_text;
use selkie_sql::{Scalar, Session, SqlError, SqlType, TransactionState};
use selkie_txn::{Database, DatabaseSchema, Protocol};
use sqllogictest::{DBOutput, DefaultColumnType, Runner};

/// A session with what it needs to live.
struct Connection {
    session: Session,
}

#[async_trait::async_trait]
impl sqllogictest::AsyncDB for Connection {
    type Error = SqlError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SqlError> {
        let mut outcomes = self.session.execute(sql).await?;
        let Some(outcome) = outcomes.pop() else { return Ok(DBOutput::StatementComplete(0)) };
        if outcome.columns.is_empty() {
            let count = outcome.tag.rsplit(' ').next().and_then(|count| count.parse().ok());
            return Ok(DBOutput::StatementComplete(count.unwrap_or(0)));
        }
        let format = self.session.format();
        let text = |(value, ty)| {
            let mut text = String::new();
            match value {
                selkie_sql::Datum::Null => text.push_str("NULL"),
                value => to_text(&value, ty, format, &mut text),
            }
            if text.is_empty() { "(empty)".to_owned() } else { text }
        };
        let types: Vec<_> = outcome.columns.iter().map(|column| column.ty).collect();
        let rows = outcome.rows.into_iter();
        let rows = rows.map(|row| row.into_iter().zip(types.iter().copied()).map(text).collect());
        let rows = rows.collect();
        let kind = |ty: &selkie_sql::SqlType| match ty.scalar {
            _ if ty.is_array => DefaultColumnType::Text,
            Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => DefaultColumnType::Integer,
            Scalar::Float4 | Scalar::Float8 | Scalar::Numeric => DefaultColumnType::FloatingPoint,
            _ => DefaultColumnType::Text,
        };
        Ok(DBOutput::Rows { types: types.iter().map(kind).collect(), rows })
    }

    async fn shutdown(&mut self) {}

    fn error_sql_state(error: &SqlError) -> Option<String> {
        Some(error.state().to_string())
    }
}

/// Does something with a database of its own, on a node.
fn with_database<F>(work: F)
where
    F: AsyncFnOnce(&Database),
{
    with_nodes(1, async |databases| work(&databases[0]).await);
}

/// Does something with a database of its own, which each of some nodes has.
fn with_nodes<F>(nodes: usize, work: F)
where
    F: AsyncFnOnce(&[Database]),
{
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig {
        memory_nodes: 2,
        bytes_per_node: 64 << 20,
        gcl_bytes: 2048,
        range_bytes: 4 << 20,
        max_compute_nodes: nodes,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    runtime.block_on(async {
        let (mut engines, mut databases) = (Vec::new(), Vec::new());
        for node in 0..nodes {
            let (id, config) = (ComputeId::new(node).unwrap(), EngineConfig::default());
            engines.push(Engine::start(memory.pool(), &fabric, &env, id, config).await.unwrap());
        }
        let schema = DatabaseSchema::from(Vec::new()).protocol(Protocol::Snapshot);
        databases.push(Database::create(&engines[0], schema).await.unwrap());
        for engine in &engines[1..] {
            databases.push(Database::open(engine).await.unwrap());
        }
        work(&databases).await;
        drop(databases);
        for engine in engines {
            engine.close().await.unwrap();
        }
    });
}

fn with_session(work: impl AsyncFnOnce(&mut Session)) {
    with_database(async |database| {
        let mut session = Session::new(database, "tester", || 0).unwrap();
        work(&mut session).await;
    });
}

/// Runs a script against a database of its own.
fn run(name: &str) {
    let script: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "slt", name].iter().collect();
    with_database(async |database| {
        let mut runner = Runner::new(|| async {
            Ok(Connection { session: Session::new(database, "tester", || 0).unwrap() })
        });
        runner.with_column_validator(sqllogictest::strict_column_validator);
        if let Err(error) = runner.run_file_async(&script).await {
            panic!("{}", error.display(false));
        }
    });
}

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { run(concat!(stringify!($name), ".slt")); })*
    };
}

scripts![
    select,
    long_texts,
    from,
    joins,
    joins_outer_conditions,
    aggregates,
    aggregates_ordered,
    groups,
    grouping_sets,
    subqueries,
    changes,
    changes_rows,
    tables,
    transactions,
    windows,
    with,
    with_changes,
    explain,
    index_only,
    merge_join,
    streaming,
    planner,
    keys,
    evaluated_once,
    alter,
    alter_forms,
    alter_rewrites,
    alter_types,
    indexes,
    sequences,
    views,
    roles,
    grant_options,
    system,
    clients_parts,
    clients_tools,
    clients_jdbc,
    clients_django,
    clients_sqlalchemy,
    clients_asyncpg,
    foreign_keys,
    foreign_keys_cascades,
    foreign_keys_columns,
    foreign_keys_changes,
    foreign_keys_catalogue,
    comments,
    sessions,
    prepared,
    cursors,
    advisory,
    lock_table,
    settings,
    states,
    zones,
    casts,
    numeric,
    text,
    dates,
    json,
    arrays,
    regex,
    conflict,
    nulls,
    waits,
    schemas,
    schemas_paths,
    schemas_public,
    schemas_changes,
    schemas_database,
    schemas_elements,
    schemas_rights,
];

#[test]
fn parameters_have_the_types_of_the_columns_that_an_insert_fills() {
    with_session(async |session| {
        let table = "create table t (id integer primary key, d date, v varchar(3))";
        session.execute(table).await.unwrap();
        let types = [SqlType::INT4, SqlType::DATE, SqlType::VARCHAR];
        for sql in [
            "insert into t select $1, $2, $3",
            "insert into t (v, d, id) select $3, $2, $1 limit 1",
            "insert into t select $1, $2, $3 where not exists (select 1 from t where id = $1)",
            "with x as (select 1) insert into t select $1, $2, $3 from x",
        ] {
            let prepared = session.prepare(sql, &[]).await.unwrap();
            assert_eq!(prepared.parameters(), types, "{sql}");
        }
        let prepared = session.prepare("select 1 union all select $1", &[]).await.unwrap();
        assert_eq!(prepared.parameters(), [SqlType::INT4]);
        let prepared = session.prepare("select $1", &[]).await.unwrap();
        assert_eq!(prepared.parameters(), [SqlType::TEXT]);
    });
}

/// As deep as the parser lets them be, on the stack of a thread of a test.
#[test]
fn deep_statements_are_run() {
    with_session(async |session| {
        for (link, links) in [(" + 1", 290), (" and true", 290), ("::text::integer", 140)] {
            let start = if link == " and true" { "true" } else { "1" };
            let sql = format!("select {start}{}", link.repeat(links));
            let outcomes = session.execute(&sql).await.unwrap();
            assert_eq!(outcomes[0].rows.len(), 1, "{link}");
        }
        let unions = format!("select 1{}", " union all select 1".repeat(140));
        assert_eq!(session.execute(&unions).await.unwrap()[0].rows.len(), 141);
        let nested = format!("select {}1{}", "(select ".repeat(20), ")".repeat(20));
        assert_eq!(session.execute(&nested).await.unwrap()[0].rows.len(), 1);
        let tables = (1..200).map(|at| format!(" cross join (values (1)) t{at}"));
        let joins = format!("select 1 from (values (1)) t{}", tables.collect::<String>());
        assert_eq!(session.execute(&joins).await.unwrap()[0].rows.len(), 1);
    });
}

/// Of a change of a table and a row that comes meanwhile only one is committed.
#[test]
fn a_change_of_a_table_misses_no_row() {
    with_database(async |database| {
        let mut one = Session::new(database, "tester", || 0).unwrap();
        let mut other = Session::new(database, "tester", || 0).unwrap();
        let changes = [
            "alter table t add check (n > 0)",
            "alter table t add primary key (n)",
            "alter table t add unique (n)",
            "alter table t alter n set not null",
            "alter table t add column u uuid default gen_random_uuid()",
        ];
        for (change, first) in changes.iter().flat_map(|own| [(own, true), (own, false)]) {
            one.execute("create table t (n integer); insert into t values (1)").await.unwrap();
            let row = "insert into t values (null), (-1), (1)";
            let ((early, before), (late, after)) = match first {
                true => ((row, &mut one), (*change, &mut other)),
                false => ((*change, &mut one), (row, &mut other)),
            };
            before.execute("begin").await.unwrap();
            before.execute(early).await.unwrap();
            after.execute(late).await.unwrap();
            let error = before.execute("commit").await.unwrap_err();
            assert_eq!(error.state().code(), "40001", "{change}, {first}: {error}");
            let count = one.execute("select count(*) from t").await.unwrap();
            let wanted = if first { 1 } else { 4 };
            let found = format!("{:?}", count[0].rows);
            assert_eq!(found, format!("[[I64({wanted})]]"), "{change}, {first}");
            one.execute("drop table t").await.unwrap();
        }
    });
}

/// What would take for ever ends with its time, in each kind of loop.
#[test]
fn a_statement_without_end_is_ended_by_its_timeout() {
    with_session(async |session| {
        session.execute("set statement_timeout = '200ms'").await.unwrap();
        let many = "generate_series(1, 20000)";
        for sql in [
            "select count(*) from generate_series(1, 1000000000000)".to_owned(),
            "with recursive n as (select 1 union all select 1 from n) select count(*) from n"
                .into(),
            format!("select count(*) from {many} a join {many} b on a.a + b.b < 0"),
            format!(
                "select count(*) from {many} a where a.a < 0 or a.a = any (select -b.b from {many} b)"
            ),
            format!(
                "select count(*) from {many} a, lateral (select count(*) from generate_series(1, a.a)) b"
            ),
        ] {
            let error = session.execute(&sql).await.unwrap_err();
            assert_eq!(error.state().code(), "57014", "{sql}: {error}");
            assert_eq!(session.state(), TransactionState::Idle);
        }
        session.execute("set statement_timeout = 0").await.unwrap();
        session.execute("select 1").await.unwrap();
    });
}

/// As when the node of the builder has ended: what it leaves can be dropped, or completed by the
/// same statement.
#[test]
fn an_index_whose_builder_is_gone_is_dropped_or_gone_on_with() {
    with_database(async |database| {
        let mut session = Session::new(database, "tester", || 0).unwrap();
        session.execute("create table t (id int primary key, n int, m int)").await.unwrap();
        let rows = "insert into t select i, i % 100, i from generate_series(1, 2000) t(i)";
        session.execute(rows).await.unwrap();
        let table = database.begin_to_read().table("t").await.unwrap();
        let leave = async || {
            let mut builder = Session::new(database, "tester", || 0).unwrap();
            let mut building = Box::pin(builder.execute("create index late on t (n)"));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            loop {
                assert!(building.as_mut().poll(&mut cx).is_pending(), "it was built at once");
                let left = database.begin_to_read().incomplete_indexes(table).await.unwrap();
                if left == ["late"] {
                    break;
                }
            }
        };
        let count = "select count(*) from t where n = 7";
        for sql in ["drop index late", "drop index if exists public.late"] {
            leave().await;
            session.execute(sql).await.unwrap();
            let error = session.execute("drop index late").await.unwrap_err();
            assert_eq!(error.state().code(), "42704", "{error}");
        }
        for sql in ["create index late on t (n)", "create index if not exists late on t (n)"] {
            leave().await;
            let error = session.execute("create index late on t (m)").await.unwrap_err();
            assert_eq!(error.state().code(), "42P07", "{error}");
            session.execute(sql).await.unwrap();
            let left = database.begin_to_read().incomplete_indexes(table).await.unwrap();
            assert!(left.is_empty(), "{left:?}");
            let error = session.execute("create index late on t (n)").await.unwrap_err();
            assert_eq!(error.state().code(), "42P07", "{error}");
            let plan = session.execute(&format!("explain {count}")).await.unwrap();
            assert!(format!("{:?}", plan[0].rows).contains("late"), "{:?}", plan[0].rows);
            let found = session.execute(count).await.unwrap();
            assert_eq!(format!("{:?}", found[0].rows), "[[I64(20)]]");
            session.execute("drop index late").await.unwrap();
        }
        leave().await;
        session.execute("drop index late").await.unwrap();
        session.execute("alter table t drop column n").await.unwrap();
    });
}

/// Every script is run.
#[test]
fn no_script_is_left_out() {
    let directory: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "slt"].iter().collect();
    let source = include_str!("scripts.rs");
    for file in std::fs::read_dir(directory).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(
            source.contains(&format!("{name},")) || source.contains(&format!("{name}]")),
            "{name}"
        );
    }
}
