//! Notices, and connections that end because their clients do nothing.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::error::DbError;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use crate::harness::{run, text};
use crate::server::{block_on, start};

/// A client, the notices that it is sent, and the error with which its connection ends.
async fn listen(
    addr: SocketAddr,
) -> (Client, UnboundedReceiver<DbError>, tokio::task::JoinHandle<Option<DbError>>) {
    let mut config = Config::new();
    config.host("127.0.0.1").port(addr.port()).user("tester").dbname("selkie");
    let (client, mut connection) = config.connect(NoTls).await.unwrap();
    let (tell, told) = unbounded_channel();
    let ended = tokio::spawn(async move {
        loop {
            match poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notice(notice))) => drop(tell.send(notice)),
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.as_db_error().cloned(),
                None => return None,
            }
        }
    });
    (client, told, ended)
}

#[test]
fn a_client_is_sent_notices_before_the_end_of_their_statement() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let (client, mut told, _ended) = listen(addr).await;
        for (sql, severity, code, message) in [
            (
                "drop table if exists nothing",
                "NOTICE",
                "00000",
                "table \"nothing\" does not exist, skipping",
            ),
            ("commit", "WARNING", "25P01", "there is no transaction in progress"),
        ] {
            client.batch_execute(sql).await.unwrap();
            let notice = told.try_recv().unwrap();
            assert_eq!(
                (notice.severity(), notice.code().code(), notice.message()),
                (severity, code, message)
            );
        }
        // By the extended protocol, too; that of the name comes when it is parsed.
        client.execute("drop table if exists nothing", &[]).await.unwrap();
        assert_eq!(told.try_recv().unwrap().severity(), "NOTICE");
        let long = format!("select 1 as {}", "n".repeat(64));
        client.prepare(&long).await.unwrap();
        assert_eq!(told.try_recv().unwrap().code().code(), "42622");
        client.batch_execute("set client_min_messages = error").await.unwrap();
        client.batch_execute("drop table if exists nothing; commit").await.unwrap();
        assert!(told.try_recv().is_err());
        // Where in the data of COPY an error is, is a field of its own.
        client.batch_execute("create table t (a int)").await.unwrap();
        let sink = client.copy_in::<_, &[u8]>("copy t from stdin").await.unwrap();
        let mut sink = Box::pin(sink);
        futures_util::SinkExt::send(&mut sink, &b"1\nx\n"[..]).await.unwrap();
        let error = sink.as_mut().finish().await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.where_(), Some("COPY t, line 2, column a: \"x\""));
    });
}

#[test]
fn a_client_that_does_nothing_for_too_long_is_ended() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let (keeper, _told, _ended) = listen(addr).await;
        keeper.batch_execute("create table t (a int)").await.unwrap();
        for (sql, code) in [
            ("set idle_session_timeout = '200ms'", "57P05"),
            (
                "set idle_in_transaction_session_timeout = 200; begin; insert into t values (1)",
                "25P03",
            ),
        ] {
            let (client, _told, ended) = listen(addr).await;
            client.batch_execute(sql).await.unwrap();
            let error = ended.await.unwrap().unwrap();
            assert_eq!((error.severity(), error.code().code()), ("FATAL", code), "{sql}");
        }
        // Each is for its own state, and a statement that runs is not idle.
        let (client, _told, _ended) = listen(addr).await;
        client.batch_execute("set idle_session_timeout = '400ms'").await.unwrap();
        client.batch_execute("begin").await.unwrap();
        tokio::time::sleep(Duration::from_millis(800)).await;
        client.batch_execute("set idle_in_transaction_session_timeout = '400ms'").await.unwrap();
        client.batch_execute("set local idle_session_timeout = 0; commit").await.unwrap();
        client.batch_execute("set idle_session_timeout = 0").await.unwrap();
        tokio::time::sleep(Duration::from_millis(800)).await;
        let found = client.query_one("select count(*) from t", &[]).await.unwrap();
        assert_eq!(found.get::<_, i64>(0), 0);
    });
}

#[test]
fn the_shell_shows_notices_on_stderr() {
    let output = run(&["sql", "-c", "drop table if exists nothing", "-c", "commit"]);
    assert!(output.status.success());
    let expected = "NOTICE:  table \"nothing\" does not exist, skipping\n\
                    WARNING:  there is no transaction in progress\n";
    let said = text(&output.stderr);
    assert!(said.ends_with(expected), "{said}");
}
