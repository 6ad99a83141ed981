//! Schemas in several sessions, and what errors say.

use selkie_sql::{Session, SqlError};

use super::{with_database, with_nodes, with_session};

fn session(database: &selkie_txn::Database) -> Session {
    Session::new(database, "tester", || 0).unwrap()
}

async fn one(session: &mut Session, sql: &str) -> String {
    let outcomes = session.execute(sql).await.unwrap();
    format!("{:?}", outcomes.last().unwrap().rows)
}

async fn state(session: &mut Session, sql: &str) -> String {
    let error: SqlError = session.execute(sql).await.unwrap_err();
    error.state().code().to_owned()
}

/// Also of other nodes.
#[test]
fn two_that_create_one_schema_do_not_both_commit() {
    with_nodes(2, async |databases| {
        for round in 0..4 {
            let (mut one, mut other) = (session(&databases[0]), session(&databases[round % 2]));
            let sql = format!("create schema s{round}");
            one.execute("begin").await.unwrap();
            one.execute(&sql).await.unwrap();
            other.execute("begin").await.unwrap();
            let second = other.execute(&sql).await;
            let first = one.execute("commit").await;
            let second = match second {
                Ok(_) => other.execute("commit").await,
                failed => failed,
            };
            assert!(first.is_ok() != second.is_ok(), "round {round}: {first:?} {second:?}");
            let error = first.err().or(second.err()).unwrap();
            assert!(["40001", "42P06"].contains(&error.state().code()), "{error}");
            if let Err(error) = other.execute("rollback").await {
                panic!("{error}");
            }
            let again = session(&databases[1]).execute(&sql).await.unwrap_err();
            assert_eq!(again.state().code(), "42P06");
        }
    });
}

#[test]
fn a_schema_is_seen_at_every_node_once_it_is_committed() {
    with_nodes(2, async |databases| {
        let (mut one, mut other) = (session(&databases[0]), session(&databases[1]));
        one.execute("create table t (n text); insert into t values ('public')").await.unwrap();
        other.execute("set search_path = a, public").await.unwrap();
        let plain = "select n from t";
        assert!(self::one(&mut other, plain).await.contains("public"));
        one.execute("begin; create schema a; create table a.t (n text)").await.unwrap();
        one.execute("insert into a.t values ('a')").await.unwrap();
        assert_eq!(state(&mut other, "select n from a.t").await, "42P01");
        assert!(self::one(&mut other, plain).await.contains("public"));
        one.execute("commit").await.unwrap();
        assert!(self::one(&mut other, "select n from a.t").await.contains("\"a\""));
        assert!(self::one(&mut other, plain).await.contains("\"a\""));
        other.execute("alter schema a rename to b").await.unwrap();
        assert_eq!(state(&mut one, "select n from a.t").await, "42P01");
        assert!(self::one(&mut one, "select n from b.t").await.contains("\"a\""));
        assert!(self::one(&mut other, plain).await.contains("public"));
    });
}

/// A session that has looked before there were schemas, and plans that others have made.
#[test]
fn a_plan_is_made_anew_when_a_table_comes_before_its_own() {
    with_nodes(2, async |databases| {
        let plans = std::sync::Arc::default();
        let (mut early, mut other) = (
            session(&databases[0]).with_plans(&plans),
            Session::new(&databases[0], "else", || 0).unwrap().with_plans(&plans),
        );
        let mut maker = session(&databases[1]);
        maker.execute("create table t (n text); insert into t values ('public')").await.unwrap();
        maker.execute("create table u (n text); insert into u values ('public')").await.unwrap();
        for sql in ["select n from t", "select n from u"] {
            assert!(one(&mut early, sql).await.contains("public"));
            assert!(one(&mut other, sql).await.contains("public"));
        }
        assert!(one(&mut early, "select current_schema()").await.contains("public"));
        maker.execute("create schema tester").await.unwrap();
        assert!(one(&mut early, "select current_schema()").await.contains("tester"));
        maker.execute("create table tester.u (n text)").await.unwrap();
        maker.execute("insert into tester.u values ('mine')").await.unwrap();
        for _ in 0..2 {
            assert!(one(&mut other, "select n from u").await.contains("public"));
            assert!(one(&mut early, "select n from u").await.contains("mine"));
            assert!(one(&mut early, "select n from t").await.contains("public"));
        }
        maker.execute("create table tester.t (n text)").await.unwrap();
        assert_eq!(one(&mut early, "select n from t").await, "[]");
        assert!(one(&mut other, "select n from t").await.contains("public"));
        maker.execute("drop schema tester cascade").await.unwrap();
        for sql in ["select n from t", "select n from u"] {
            assert!(one(&mut early, sql).await.contains("public"));
        }
    });
}

/// Nothing tells it of them but the table that its plan reads.
#[test]
fn a_session_that_knows_of_no_schemas_finds_a_table_that_comes_before_its_own() {
    with_nodes(2, async |databases| {
        let (mut early, mut maker) = (session(&databases[0]), session(&databases[1]));
        maker.execute("create table t (n text); insert into t values ('public')").await.unwrap();
        assert!(one(&mut early, "select n from t").await.contains("public"));
        maker.execute("create schema tester; create table tester.t (n text)").await.unwrap();
        assert_eq!(one(&mut early, "select n from t").await, "[]");
    });
}

/// Whatever is created in a schema meanwhile.
#[test]
fn a_transaction_elsewhere_commits_beside_one_that_creates_a_table_in_a_schema() {
    with_nodes(2, async |databases| {
        let (mut writer, mut maker) = (session(&databases[0]), session(&databases[1]));
        maker
            .execute("create schema s; create table s.t (n int); create table x (n int)")
            .await
            .unwrap();
        writer.execute("begin; insert into x select n from s.t").await.unwrap();
        writer.execute("insert into x values (1)").await.unwrap();
        maker.execute("create table s.other (i serial)").await.unwrap();
        writer.execute("insert into s.t values (2)").await.unwrap();
        writer.execute("commit").await.unwrap();
    });
}

/// In each order of the two.
#[test]
fn a_view_over_a_schema_and_a_new_name_of_that_do_not_both_commit() {
    with_database(async |database| {
        let (mut one, mut other) = (session(database), session(database));
        one.execute("create schema s; create table s.t (n int)").await.unwrap();
        one.execute("begin; alter schema s rename to u").await.unwrap();
        other.execute("begin; create view v as select n from s.t").await.unwrap();
        other.execute("commit").await.unwrap();
        assert_eq!(one.execute("commit").await.unwrap_err().state().code(), "40001");
        one.execute("begin; alter schema s rename to u").await.unwrap();
        other.execute("begin; create view w as select n from s.t").await.unwrap();
        one.execute("commit").await.unwrap();
        assert_eq!(other.execute("commit").await.unwrap_err().state().code(), "40001");
        assert_eq!(self::one(&mut one, "select * from v").await, "[]");
    });
}

#[test]
fn a_sequence_of_a_schema_that_comes_later_is_found() {
    with_nodes(2, async |databases| {
        let (mut early, mut maker) = (session(&databases[0]), session(&databases[1]));
        let prepared = early.prepare("select nextval('s.q')", &[]).await.unwrap();
        let early_run = early.run_prepared(&prepared, Vec::new()).await;
        assert_eq!(early_run.unwrap_err().state().code(), "3F000");
        maker.execute("create schema s; create sequence s.q").await.unwrap();
        early.run_prepared(&prepared, Vec::new()).await.unwrap().unwrap();
    });
}

/// All names of tables in the catalogue.
async fn keys(database: &selkie_txn::Database) -> Vec<String> {
    let mut session = database.session().unwrap();
    session.begin(selkie_txn::Isolation::ReadCommitted).unwrap();
    let tables = session.run(|txn| Box::pin(async move { txn.tables().await }));
    let keys = tables.await.unwrap().into_iter().map(|(key, _)| key).collect();
    session.commit().await.unwrap();
    keys
}

/// In each order of the two.
#[test]
fn no_table_is_left_in_a_schema_that_is_dropped() {
    with_database(async |database| {
        let (mut one, mut other) = (session(database), session(database));
        for drops_first in [false, true] {
            one.execute("create schema a").await.unwrap();
            one.execute("begin").await.unwrap();
            other.execute("begin").await.unwrap();
            one.execute("create table a.t (n int)").await.unwrap();
            other.execute("drop schema a cascade").await.unwrap();
            let (first, second) =
                if drops_first { (&mut other, &mut one) } else { (&mut one, &mut other) };
            first.execute("commit").await.unwrap();
            let last = second.execute("commit").await;
            assert_eq!(last.unwrap_err().state().code(), "40001", "{drops_first}");
            let sql = "select count(*) from pg_class where relname = 't'";
            assert_eq!(
                self::one(&mut one, sql).await,
                format!("[[I64({})]]", i32::from(!drops_first))
            );
            // No row of the catalogue is left that nothing shows.
            one.execute("drop schema if exists a cascade").await.unwrap();
            assert_eq!(
                keys(database).await.into_iter().filter(|key| key.ends_with('t')).count(),
                0
            );
        }
    });
}

/// Databases in which `a.b` was a name as any other: tables, defaults, and views.
#[test]
fn tables_with_dots_of_earlier_versions_are_found() {
    with_database(async |database| {
        let mut session = session(database);
        session.execute("create table \"a.b\" (n serial, m int)").await.unwrap();
        session.execute("create view v as select m from \"a.b\"").await.unwrap();
        let mut earlier = database.session().unwrap();
        earlier.begin(selkie_txn::Isolation::ReadCommitted).unwrap();
        let noted = earlier.run(|txn| {
            Box::pin(async move {
                for (key, new, old) in
                    [("a.b", "'\\\"a.b_n_seq\\\"'", "'a.b_n_seq'"), ("v", "\\\"a.b\\\"", "a.b")]
                {
                    let table = txn.table(key).await?;
                    let note = txn.schema(table).await?.note;
                    assert!(note.contains(new), "{note}");
                    txn.set_note(table, &note.replace(new, old)).await?;
                }
                Ok(())
            })
        });
        noted.await.unwrap();
        earlier.commit().await.unwrap();
        session.execute("insert into \"a.b\" (m) values (5)").await.unwrap();
        assert_eq!(one(&mut session, "select * from \"a.b\"").await, "[[I32(1), I32(5)]]");
        assert_eq!(one(&mut session, "select * from v").await, "[[I32(5)]]");
        assert_eq!(state(&mut session, "select * from a.b").await, "42P01");
        session.execute("create schema a; create table a.b (x int)").await.unwrap();
        assert_eq!(one(&mut session, "select * from a.b").await, "[]");
        assert_eq!(one(&mut session, "select * from v").await, "[[I32(5)]]");
        assert_eq!(state(&mut session, "drop sequence \"a.b_n_seq\"").await, "2BP01");
        session.execute("drop table \"a.b\" cascade").await.unwrap();
        assert_eq!(state(&mut session, "select nextval('\"a.b_n_seq\"')").await, "42P01");
    });
}

/// As PostgreSQL 15 says it.
#[test]
fn errors_say_what_is_wrong() {
    with_session(async |session| {
        for sql in [
            "create schema a",
            "create schema b",
            "create table a.t (id serial primary key)",
            "create table b.c (of int references a.t)",
            "create view b.v as select * from a.t",
        ] {
            session.execute(sql).await.unwrap();
        }
        for (sql, message, detail) in [
            ("create schema a", "schema \"a\" already exists", ""),
            (
                "create schema pg_x",
                "unacceptable schema name \"pg_x\"",
                "The prefix \"pg_\" is reserved for system schemas.",
            ),
            ("select * from nosuch.t", "relation \"nosuch.t\" does not exist", ""),
            ("select * from a.nosuch", "relation \"a.nosuch\" does not exist", ""),
            ("create table nosuch.t (x int)", "schema \"nosuch\" does not exist", ""),
            ("drop table nosuch.t", "schema \"nosuch\" does not exist", ""),
            ("drop table a.nosuch", "table \"nosuch\" does not exist", ""),
            ("create table a.t (x int)", "relation \"t\" already exists", ""),
            (
                "drop schema a",
                "cannot drop schema a because other objects depend on it",
                "table a.t depends on schema a\n\
                 constraint c_of_fkey on table b.c depends on table a.t\n\
                 view b.v depends on table a.t",
            ),
            (
                "drop schema a, b",
                "cannot drop desired object(s) because other objects depend on them",
                "table a.t depends on schema a\n\
                 table b.c depends on schema b\n\
                 view b.v depends on schema b",
            ),
            (
                "drop table a.t",
                "cannot drop table a.t because other objects depend on it",
                "constraint c_of_fkey on table b.c depends on table a.t",
            ),
            ("alter table a.t set schema nosuch", "schema \"nosuch\" does not exist", ""),
            (
                "alter sequence a.t_id_seq set schema b",
                "cannot move an owned sequence into another schema",
                "Sequence \"t_id_seq\" is linked to table \"t\".",
            ),
            ("alter view a.t set schema b", "\"t\" is not a view", ""),
            ("set search_path = nosuch; create table t (x int)", NOWHERE, ""),
            (
                "select set_config('search_path', 'a,', false)",
                "invalid value for parameter \"search_path\": \"a,\"",
                "List syntax is invalid.",
            ),
            (
                "create table pg_catalog.t (x int)",
                "permission denied to create \"pg_catalog.t\"",
                "System catalog modifications are currently disallowed.",
            ),
        ] {
            let error = session.execute(sql).await.unwrap_err();
            assert_eq!(error.message(), message, "{sql}");
            assert_eq!(error.detail_text().unwrap_or_default(), detail, "{sql}");
        }
    });
}

/// What drivers read without looking at the message.
#[test]
fn errors_say_which_table_column_or_constraint_they_are_about() {
    with_session(async |session| {
        for sql in [
            "create schema a",
            "create table p (id int primary key)",
            "create table a.\"T\" (id int primary key, n int not null check (n > 0), u int unique, \
             p int constraint to_p references p deferrable)",
            "insert into p values (1)",
            "insert into a.\"T\" values (1, 1, 1, 1)",
        ] {
            session.execute(sql).await.unwrap();
        }
        let insert = "insert into a.\"T\" values";
        for (sql, column, constraint) in [
            (format!("{insert} (1, 1, 2, null)"), "", "T_pkey"),
            (format!("{insert} (2, 1, 1, null)"), "", "T_u_key"),
            (format!("{insert} (2, 0, 2, null)"), "", "T_n_check"),
            (format!("{insert} (2, null, 2, null)"), "n", ""),
            (format!("{insert} (2, 1, 2, 7)"), "", "to_p"),
            (
                format!("begin; set constraints all deferred; {insert} (2, 1, 2, 7); commit"),
                "",
                "to_p",
            ),
            ("delete from p".to_owned(), "", "to_p"),
            ("alter table a.\"T\" add check (n > 1)".to_owned(), "", "T_n_check1"),
            (
                "alter table a.\"T\" add unique (n), alter u set not null; \
              insert into a.\"T\" values (3, 1, 3)"
                    .to_owned(),
                "",
                "T_n_key",
            ),
        ] {
            let error = session.execute(&sql).await.unwrap_err();
            let _ = session.execute("rollback").await;
            let subject = error.subject();
            let shown = [&subject.schema, &subject.table, &subject.column, &subject.constraint];
            let shown = shown.map(|own| own.as_deref().unwrap_or_default());
            assert_eq!(shown, ["a", "T", column, constraint], "{sql}: {error}");
        }
        let error = session.execute("insert into p values (1)").await.unwrap_err();
        assert_eq!(error.subject().schema.as_deref(), Some("public"));
        assert_eq!(session.execute("select 1 / 0").await.unwrap_err().subject().table, None);
    });
}

const NOWHERE: &str = "no schema has been selected to create in";
