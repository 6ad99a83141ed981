//! COPY with data of a client.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::{Client, Datum, OutputColumn, Session, SqlError, SqlResult};

use super::with_session;

/// Gives data, and takes it.
#[derive(Default)]
struct Copier {
    given: Mutex<Option<Vec<u8>>>,
    taken: Mutex<Vec<u8>>,
}

impl Client for Copier {
    fn begin(&self, _: &Arc<[OutputColumn]>, _: &FormatSettings) {}

    fn rows(&self, _: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_final(&self) -> bool {
        true
    }

    fn copy_in(&self, _: usize, _: bool) -> SqlResult<()> {
        Ok(())
    }

    fn copy_data(&self) -> BoxFuture<'_, SqlResult<Option<Vec<u8>>>> {
        Box::pin(std::future::ready(Ok(self.given.lock().take())))
    }

    fn copy_out(&self, _: usize, _: bool) -> SqlResult<()> {
        Ok(())
    }

    fn copy_rows(&self, data: Vec<u8>) -> BoxFuture<'_, SqlResult<()>> {
        self.taken.lock().extend(data);
        Box::pin(std::future::ready(Ok(())))
    }

    fn end(&self, _: &str) {}
}

/// Runs a COPY with data. What it gives.
async fn copy(session: &mut Session, sql: &str, data: &str) -> Result<String, SqlError> {
    let copier = Arc::new(Copier::default());
    *copier.given.lock() = Some(data.as_bytes().to_vec());
    let client: Arc<dyn Client> = Arc::clone(&copier) as _;
    session.execute_into(sql, &client).await?;
    let taken = std::mem::take(&mut *copier.taken.lock());
    Ok(String::from_utf8(taken).unwrap())
}

async fn text_of(session: &mut Session) -> String {
    let given = copy(session, "copy (select * from t order by a, b) to stdout csv", "").await;
    session.execute("truncate t").await.unwrap();
    given.unwrap()
}

#[test]
fn rows_are_let_in_by_a_condition() {
    with_session(async |session| {
        session.execute("create table t (a integer, b text default 'd')").await.unwrap();
        let data = "1,x\n2,y\n3,z\n";
        copy(session, "copy t from stdin csv where a > 1 and t.b <> 'z'", data).await.unwrap();
        assert_eq!(text_of(session).await, "2,y\n");
        let sql = "copy public.t (b, a) from stdin with (format csv) where a = 7";
        copy(session, sql, "x,7\ny,8\n").await.unwrap();
        assert_eq!(text_of(session).await, "7,x\n");
        for (sql, state) in [
            ("copy t (a) from stdin where b = 'd'", "0A000"),
            ("copy t from stdin where a in (select 1)", "0A000"),
            ("copy t from stdin where nothing = 1", "42703"),
            ("copy t from stdin where a", "42804"),
            ("copy t to stdout where a = 1", "42601"),
            ("copy (select 1) from stdin", "42601"),
        ] {
            let error = copy(session, sql, "1\n").await.unwrap_err();
            assert_eq!(error.state().code(), state, "{sql}: {error}");
        }
    });
}

#[test]
fn options_of_old_are_taken() {
    with_session(async |session| {
        session.execute("create table t (a integer, b text)").await.unwrap();
        copy(session, "copy t from stdin csv force null b", "1,\"\"\n").await.unwrap();
        copy(session, "copy t from stdin csv force not null b", "2,\n").await.unwrap();
        assert_eq!(text_of(session).await, "1,\n2,\"\"\n");
        copy(session, "copy t from stdin with (header match)", "a\tb\n1\tx\n").await.unwrap();
        for (sql, expected) in [
            ("copy t to stdout csv force quote a, b", "\"1\",\"x\"\n"),
            ("copy t to stdout csv header force quote *", "a,b\n\"1\",\"x\"\n"),
        ] {
            assert_eq!(copy(session, sql, "").await.unwrap(), expected, "{sql}");
        }
        let sql = "copy t to stdout with (header match)";
        assert_eq!(copy(session, sql, "").await.unwrap_err().state().code(), "0A000");
    });
}

#[test]
fn an_error_says_where_in_the_data_it_is() {
    with_session(async |session| {
        session.execute("create table t (a integer, b text)").await.unwrap();
        let error = copy(session, "copy t from stdin csv", "1,x\ny,z\n").await.unwrap_err();
        assert_eq!(error.context_text(), Some("COPY t, line 2, column a: \"y\""));
        let error = copy(session, "copy t from stdin", "1\tx\n2\n").await.unwrap_err();
        assert_eq!(error.context_text(), Some("COPY t, line 2: \"2\""));
        assert_eq!(error.detail_text(), None);
        session.execute("create table u (a integer primary key check (a > 0))").await.unwrap();
        for (data, state, place) in [
            ("1\n2\n1\n", "23505", Some("COPY u, line 3")),
            ("1\n0\n", "23514", Some("COPY u, line 2")),
            ("\\N\n", "23502", Some("COPY u, line 1")),
        ] {
            let error = copy(session, "copy u from stdin", data).await.unwrap_err();
            assert_eq!((error.state().code(), error.context_text()), (state, place));
        }
        // It is not known of rows that a condition has let in beside others.
        let sql = "copy u from stdin where a <> 1";
        let error = copy(session, sql, "1\n2\n2\n").await.unwrap_err();
        assert_eq!((error.state().code(), error.context_text()), ("23505", None));
    });
}
