//! SQL from Rust: values and their types, errors, streams, transactions, dropped futures.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

#[path = "sql/dropped.rs"]
mod dropped;
#[path = "sql/streams.rs"]
mod streams;
#[path = "sql/transactions.rs"]
mod transactions;
#[path = "sql/values.rs"]
mod values;

use selkie::sql::{Connection, QueryError, SqlState};
use selkie::txn::Protocol;
use selkie::{Database, PoolOptions, SqlDatabase, block_on};

async fn open() -> SqlDatabase {
    let options = PoolOptions::new().memory_bytes(64 << 20).cache_bytes(16 << 20).threads(1);
    options.open_sql_database("embedded:").await.unwrap()
}

/// A database with a table `note` of so many rows.
async fn notes(rows: i64) -> (SqlDatabase, Connection) {
    let db = open().await;
    let mut conn = db.connect().unwrap();
    conn.batch("create table note (id bigint primary key, text text)").await.unwrap();
    let fill = "insert into note select i, 'note ' || i from generate_series(1, $1::bigint) i";
    assert_eq!(conn.execute(fill, &[&rows]).await.unwrap(), u64::try_from(rows).unwrap());
    (db, conn)
}

async fn count(conn: &mut Connection) -> i64 {
    conn.query_one::<(i64,)>("select count(*) from note", &[]).await.unwrap().0
}

#[test]
fn statements_run_as_texts_prepared_and_in_batches() {
    block_on(async {
        let (db, mut conn) = notes(3).await;
        let add = conn.prepare("insert into note values ($1, $2)").await.unwrap();
        assert_eq!(add.parameters().len(), 2);
        // A statement of one connection runs in another.
        let mut other = db.connect().unwrap();
        assert_eq!(other.execute(&add, &[&4_i64, &None::<String>]).await.unwrap(), 1);
        let found = "select id, text from note where id >= $1 order by id";
        let rows = conn.query_as::<(i64, Option<String>)>(found, &[&3_i16]).await.unwrap();
        assert_eq!(rows, [(3, Some("note 3".to_owned())), (4, None)]);
        assert_eq!(conn.batch("delete from note where id = 1; delete from note").await.unwrap(), 4);
        // Statements of a batch are one transaction.
        let failed = conn.batch("insert into note values (1, ''); select 1 / 0").await.unwrap_err();
        assert_eq!(failed.state(), SqlState::DIVISION_BY_ZERO);
        assert_eq!(count(&mut conn).await, 0);
        assert_eq!(conn.query("", &[]).await.unwrap().len(), 0);
        db.close().await.unwrap();
        let closed = conn.execute("select * from note", &[]).await.unwrap_err();
        assert!(!closed.is_retryable(), "{closed:?}");
    });
}

#[test]
fn what_does_not_fit_is_a_typed_error_and_the_connection_goes_on() {
    block_on(async {
        let (_db, mut conn) = notes(3).await;
        let get = "select text from note where id = $1";
        let error = conn.query(get, &[]).await.unwrap_err();
        assert!(matches!(error, QueryError::ParameterCount { wanted: 1, given: 0 }), "{error}");
        let error = conn.query(get, &[&"one"]).await.unwrap_err();
        assert!(matches!(error, QueryError::Parameter { number: 1, .. }), "{error}");
        assert_eq!(error.state(), SqlState::INVALID_TEXT);
        let error = conn.query("select 1; select 2", &[]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::SYNTAX_ERROR);
        let error = conn.query("selec", &[]).await.unwrap_err();
        assert_eq!(
            (error.state(), error.sql().unwrap().position()),
            (SqlState::SYNTAX_ERROR, Some(1))
        );
        let all = "select id from note";
        let error = conn.query_one::<(i64,)>(all, &[]).await.unwrap_err();
        assert!(matches!(error, QueryError::RowCount { found: 3, .. }), "{error}");
        let error = conn.query_opt::<(i64,)>(all, &[]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::CARDINALITY_VIOLATION);
        let none = conn.query_opt::<(String,)>(get, &[&9_i64]).await.unwrap();
        assert_eq!(none, None);
        let changed = conn.prepare("select * from note").await.unwrap();
        conn.batch("alter table note add column more int").await.unwrap();
        let error = conn.query(&changed, &[]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
        conn.batch("create table other (id int)").await.unwrap();
        let changed = conn.prepare("insert into other values ($1)").await.unwrap();
        conn.batch("drop table other; create table other (id text)").await.unwrap();
        let error = conn.execute(&changed, &[&1]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(conn.execute("insert into other values ($1)", &[&"1"]).await.unwrap(), 1);
        let (other, _) = notes(1).await;
        let mut other = other.connect().unwrap();
        let all = conn.prepare("select count(*) from note").await.unwrap();
        let error = other.query(&all, &[]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_STATEMENT_NAME);
        let error = other.execute(&all, &[]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_STATEMENT_NAME);
        assert_eq!(conn.query_one::<(i64,)>(&all, &[]).await.unwrap().0, 3);
    });
}

#[test]
fn connections_are_listed_and_cancelled_from_another_thread() {
    block_on(async {
        let (db, mut conn) = notes(1).await;
        let mut other = db.connect().unwrap();
        let listed = "select count(*) from pg_stat_activity";
        assert_eq!(other.query_one::<(i64,)>(listed, &[]).await.unwrap().0, 2);
        let handle = conn.cancel_handle();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Cancelling does nothing until the statement runs.
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    handle.cancel();
                    std::thread::yield_now();
                }
            });
            let long = "select count(*) from generate_series(1, 2000000000)";
            let ended = block_on(conn.query(long, &[])).unwrap_err();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(ended.state(), SqlState::QUERY_CANCELED);
        });
        assert_eq!(count(&mut conn).await, 1);
    });
}

#[test]
fn a_database_without_sessions_is_refused() {
    block_on(async {
        let schema = selkie::txn::DatabaseSchema::from(vec![]).protocol(Protocol::Snapshot);
        let db = Database::create("embedded:", schema).await.unwrap();
        assert!(SqlDatabase::from(db.clone()).connect().is_ok());
        let table = selkie::txn::TableSchema::new("row")
            .column("id", selkie::txn::ColumnType::I32)
            .primary_key([0]);
        let schema = selkie::txn::DatabaseSchema::from(vec![table]).protocol(Protocol::TwoPhase);
        let db = Database::create("embedded:", schema).await.unwrap();
        let refused = SqlDatabase::from(db).connect().unwrap_err();
        assert!(!refused.is_retryable(), "{refused}");
    });
}

/// Futures may be moved between the threads of an executor.
#[test]
fn futures_may_be_sent() {
    fn is_sent<T: Send>(value: T) -> T {
        value
    }
    block_on(async {
        let (_db, mut conn) = notes(1).await;
        is_sent(conn.query_as::<(i64,)>("select id from note", &[])).await.unwrap();
        is_sent(is_sent(conn.stream("select 1", &[])).await.unwrap().next()).await.unwrap();
        let moved = is_sent(async move {
            let delete = async |txn: &mut selkie::sql::Transaction<'_>| {
                txn.execute("delete from note", &[]).await
            };
            conn.transaction(delete).await
        });
        assert_eq!(moved.await.unwrap(), 1);
    });
}
