//! What a client is told beside rows and errors, and what it finds when others commit meanwhile.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::{
    Client, Datum, Notice, OutputColumn, Session, SessionList, SqlResult, TransactionState,
};

use super::{with_database, with_session};

/// Keeps notices, and the tags of statements that have ended.
#[derive(Default)]
struct Listener {
    told: Mutex<Vec<String>>,
    tags: Mutex<Vec<String>>,
    progress: Mutex<Vec<(u64, u64)>>,
}

impl Client for Listener {
    fn begin(&self, _: &Arc<[OutputColumn]>, _: &FormatSettings) {}

    fn rows(&self, _: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_final(&self) -> bool {
        false
    }

    fn notice(&self, notice: &Notice) {
        let (level, parts) = (notice.level().name(), notice.parts());
        self.told.lock().push(format!("{level} {} {}", parts.state(), parts.message()));
    }

    fn progress(&self, rows_done: u64, rows_total: u64) {
        self.progress.lock().push((rows_done, rows_total));
    }

    fn end(&self, tag: &str) {
        self.tags.lock().push(tag.to_owned());
    }
}

/// What a client is told of while statements run.
async fn told(session: &mut Session, sql: &str) -> Vec<String> {
    let listener = Arc::new(Listener::default());
    let client: Arc<dyn Client> = Arc::clone(&listener) as _;
    session.execute_into(sql, &client).await.unwrap();
    std::mem::take(&mut *listener.told.lock())
}

#[test]
fn what_is_odd_about_a_transaction_is_a_warning() {
    with_session(async |session| {
        let none = "WARNING 25P01 there is no transaction in progress";
        for (sql, expected) in [
            ("begin", None),
            ("begin", Some("WARNING 25001 there is already a transaction in progress")),
            ("set local lock_timeout = 1", None),
            ("commit", None),
            ("commit", Some(none)),
            ("rollback", Some(none)),
            ("select 1; commit", Some(none)),
            ("select 1; set local lock_timeout = 1; begin; commit", None),
            (
                "set local lock_timeout = 1",
                Some("WARNING 25P01 SET LOCAL can only be used in transaction blocks"),
            ),
            (
                "set transaction read only",
                Some("WARNING 25P01 SET TRANSACTION can only be used in transaction blocks"),
            ),
        ] {
            let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(told(session, sql).await, expected, "{sql}");
        }
        assert_eq!(session.state(), TransactionState::Idle);
    });
}

#[test]
fn what_is_skipped_or_taken_along_is_a_notice() {
    with_session(async |session| {
        let setup = "create table t (a integer primary key, b integer); create sequence s; \
                     create index i on t (b); create table u (a integer references t)";
        for sql in setup.split("; ") {
            assert!(told(session, sql).await.is_empty(), "{sql}");
        }
        for (sql, expected) in [
            ("drop table if exists n", "00000 table \"n\" does not exist, skipping"),
            ("drop table if exists o.n", "00000 schema \"o\" does not exist, skipping"),
            ("drop table if exists public.n", "00000 table \"n\" does not exist, skipping"),
            ("drop view if exists n", "00000 view \"n\" does not exist, skipping"),
            ("drop index if exists n", "00000 index \"n\" does not exist, skipping"),
            ("drop sequence if exists n", "00000 sequence \"n\" does not exist, skipping"),
            ("drop schema if exists n", "00000 schema \"n\" does not exist, skipping"),
            ("drop role if exists n", "00000 role \"n\" does not exist, skipping"),
            (
                "create table if not exists t (x int)",
                "42P07 relation \"t\" already exists, skipping",
            ),
            (
                "create table if not exists t as select 1",
                "42P07 relation \"t\" already exists, skipping",
            ),
            ("create sequence if not exists s", "42P07 relation \"s\" already exists, skipping"),
            (
                "create index if not exists i on t (b)",
                "42P07 relation \"i\" already exists, skipping",
            ),
            (
                "create schema if not exists public",
                "42P06 schema \"public\" already exists, skipping",
            ),
            (
                "alter table if exists o.n add column x int",
                "00000 relation \"n\" does not exist, skipping",
            ),
            (
                "alter table t add column if not exists a int",
                "42701 column \"a\" of relation \"t\" already exists, skipping",
            ),
            (
                "alter table t drop column if exists z",
                "00000 column \"z\" of relation \"t\" does not exist, skipping",
            ),
            (
                "alter table t drop constraint if exists z",
                "00000 constraint \"z\" of relation \"t\" does not exist, skipping",
            ),
            ("truncate t cascade", "00000 truncate cascades to table \"u\""),
        ] {
            assert_eq!(told(session, sql).await, [format!("NOTICE {expected}")], "{sql}");
        }
        for sql in
            ["create view v as select a from t", "create schema z", "create table z.t (a int)"]
        {
            session.execute(sql).await.unwrap();
        }
        assert_eq!(
            told(session, "drop table t cascade").await,
            ["NOTICE 00000 drop cascades to 2 other objects"]
        );
        assert_eq!(
            told(session, "drop schema z cascade").await,
            ["NOTICE 00000 drop cascades to table z.t"]
        );
        let name = "n".repeat(70);
        let cut = "n".repeat(63);
        let expected = format!("NOTICE 42622 identifier \"{name}\" will be truncated to \"{cut}\"");
        assert_eq!(told(session, &format!("select 1 as {name}")).await, [expected]);
    });
}

#[test]
fn sequences_databases_and_public_need_not_be_there() {
    with_session(async |session| {
        assert_eq!(
            told(session, "alter sequence if exists n increment 2").await,
            ["NOTICE 00000 relation \"n\" does not exist, skipping"]
        );
        assert_eq!(
            told(session, "comment on database n is 'x'").await,
            ["WARNING 3D000 database \"n\" does not exist"]
        );
        session.execute("drop schema public").await.unwrap();
        assert_eq!(
            told(session, "drop table if exists public.n").await,
            ["NOTICE 00000 schema \"public\" does not exist, skipping"]
        );
    });
}

#[test]
fn a_client_gets_the_levels_that_it_wants() {
    with_session(async |session| {
        let count = async |session: &mut Session| {
            let notice = told(session, "drop table if exists n").await.len();
            (notice, told(session, "commit").await.len())
        };
        for (level, expected) in
            [("debug1", (1, 1)), ("notice", (1, 1)), ("warning", (0, 1)), ("error", (0, 0))]
        {
            session.execute(&format!("set client_min_messages = {level}")).await.unwrap();
            assert_eq!(count(session).await, expected, "{level}");
        }
    });
}

#[test]
fn a_transaction_that_only_reads_says_what_it_refuses() {
    with_session(async |session| {
        session.execute("create sequence s; create view v as select 1 as a").await.unwrap();
        for (sql, command) in [
            ("create sequence z", "CREATE SEQUENCE"),
            ("alter sequence s increment 2", "ALTER SEQUENCE"),
            ("alter sequence s rename to z", "ALTER SEQUENCE"),
            ("alter view v rename to z", "ALTER VIEW"),
        ] {
            session.execute("begin read only").await.unwrap();
            let error = session.execute(sql).await.unwrap_err();
            let message = format!("cannot execute {command} in a read-only transaction");
            assert_eq!((error.state().code(), error.message()), ("25006", &*message));
            session.execute("rollback").await.unwrap();
        }
    });
}

/// The last statement of a text has not done what it says before all of it is committed.
#[test]
fn the_last_statement_ends_when_all_are_committed() {
    with_session(async |session| {
        session.execute("create table p (a integer primary key)").await.unwrap();
        let child = "create table c (a integer references p deferrable initially deferred)";
        session.execute(child).await.unwrap();
        let listener = Arc::new(Listener::default());
        let client: Arc<dyn Client> = Arc::clone(&listener) as _;
        let sql = "insert into c values (1); insert into c values (2)";
        let error = session.execute_into(sql, &client).await.unwrap_err();
        assert_eq!(error.state().code(), "23503");
        assert_eq!(*listener.tags.lock(), ["INSERT 0 1"]);
        session.execute_into("insert into p values (1); select 1", &client).await.unwrap();
        assert_eq!(listener.tags.lock().len(), 3);
    });
}

/// Under read committed each statement sees what is committed by then, also where it only reads.
#[test]
fn each_statement_of_a_reader_sees_what_is_committed() {
    with_database(async |database| {
        let mut reader = Session::new(database, "tester", || 0).unwrap();
        let mut writer = Session::new(database, "tester", || 0).unwrap();
        writer.execute("create table t (a integer)").await.unwrap();
        for (level, expected) in [("read committed", 1), ("repeatable read", 0)] {
            writer.execute("truncate t").await.unwrap();
            reader.execute(&format!("begin isolation level {level} read only")).await.unwrap();
            let count = async |reader: &mut Session| {
                let found = reader.execute("select count(*) from t").await.unwrap();
                format!("{:?}", found[0].rows)
            };
            assert_eq!(count(&mut reader).await, "[[I64(0)]]");
            writer.execute("insert into t values (1)").await.unwrap();
            assert_eq!(count(&mut reader).await, format!("[[I64({expected})]]"), "{level}");
            let error = reader.execute("insert into t values (2)").await.unwrap_err();
            assert_eq!(error.message(), "cannot execute INSERT in a read-only transaction");
            reader.execute("rollback").await.unwrap();
        }
    });
}

#[test]
fn how_far_an_index_is_is_told_and_shown_to_others() {
    with_database(async |database| {
        let list = Arc::new(SessionList::default());
        let begin = |number| {
            let session = Session::new(database, "tester", || 0).unwrap();
            session.listed(&list, number, None)
        };
        let (mut first, mut second) = (begin(7), begin(8));
        first.execute("create table t (a integer primary key, b integer)").await.unwrap();
        let insert = "insert into t select n, -n from generate_series(1, 3000) n";
        first.execute(insert).await.unwrap();
        let listener = Arc::new(Listener::default());
        let client: Arc<dyn Client> = Arc::clone(&listener) as _;
        let look = "select pid::text || ' ' || datname || ' ' || (relid = 't'::regclass)::text \
                    || ' ' || command || ' ' || (tuples_done <= tuples_total)::text \
                    from pg_stat_progress_create_index";
        let mut seen = Vec::new();
        {
            let mut building =
                pin!(first.execute_into("create index concurrently i on t (b)", &client));
            let mut is_over = false;
            while !is_over {
                let poll =
                    |cx: &mut Context<'_>| Poll::Ready(building.as_mut().poll(cx).is_ready());
                is_over = poll_fn(poll).await;
                seen.extend(second.execute(look).await.unwrap().pop().unwrap().rows);
            }
        }
        assert!(!seen.is_empty());
        let expected = "7 selkie true CREATE INDEX CONCURRENTLY true";
        let is_it = |row: &Vec<Datum>| matches!(&row[..], [Datum::Text(own)] if &**own == expected);
        assert!(seen.iter().all(is_it), "{seen:?}");
        let told = std::mem::take(&mut *listener.progress.lock());
        assert_eq!((told.first().unwrap().0, told.last().unwrap().0), (0, 3000), "{told:?}");
        assert!(told.len() > 10 && told.is_sorted(), "{told:?}");
        // It is an estimate.
        assert!(told.iter().all(|own| (1_500..6_000).contains(&own.1)), "{told:?}");
        // It is over.
        let rows = second.execute(look).await.unwrap().pop().unwrap().rows;
        assert!(rows.is_empty(), "{rows:?}");
    });
}
