//! `selkie server` as clients of PostgreSQL meet it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use crate::harness::{Pool, Process, Setup, run, text, until};

/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server of a pool, and where it listens.
pub(crate) fn start(pool: &str) -> (Process, SocketAddr) {
    start_with(pool, &[])
}

pub(crate) fn start_with(pool: &str, options: &[&str]) -> (Process, SocketAddr) {
    let arguments = ["server", "--pool", pool, "--listen", "127.0.0.1:0", "--max-connections", "8"];
    let server = Process::start(&[&arguments[..], options].concat());
    let line = server.finds("serving ");
    let addr = line.rsplit_once(" at ").unwrap().1.parse().unwrap();
    (server, addr)
}

/// Runs what waits for a client's answers.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
}

pub(crate) fn config(addr: SocketAddr) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(addr.port()).user("tester").dbname("selkie");
    config
}

pub(crate) async fn connect(addr: SocketAddr) -> Client {
    let (client, connection) = config(addr).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn state(error: &Error) -> &str {
    error.code().unwrap_or_else(|| panic!("{error}")).code()
}

/// The rows that statements give, as text.
pub(crate) async fn rows(client: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(sql).await.unwrap();
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
        }
        _ => None,
    });
    rows.collect()
}

#[test]
fn clients_prepare_bind_and_read_in_binary() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let client = connect(addr).await;
        let table = "create table t (id int primary key, name text, at timestamptz, n numeric)";
        client.batch_execute(table).await.unwrap();
        let insert = client.prepare("insert into t (id, name) values ($1, $2)").await.unwrap();
        for id in 0..1_000_i32 {
            let name = (id % 3 > 0).then(|| format!("name {id}"));
            assert_eq!(client.execute(&insert, &[&id, &name]).await.unwrap(), 1);
        }
        let select =
            client.prepare("select id, name from t where id between $1 and $2 order by id");
        let select = select.await.unwrap();
        let found = client.query(&select, &[&10_i32, &700_i32]).await.unwrap();
        assert_eq!(found.len(), 691);
        for (row, id) in found.iter().zip(10..) {
            assert_eq!(row.get::<_, i32>(0), id);
            let name = (id % 3 > 0).then(|| format!("name {id}"));
            assert_eq!(row.get::<_, Option<String>>(1), name);
        }
        let values = client.query_one(
            "select $1::bigint + 1, $2::float8 * 2, $3::bool",
            &[&(1_i64 << 40), &1.25_f64, &true],
        );
        let values = values.await.unwrap();
        assert_eq!(values.get::<_, i64>(0), (1 << 40) + 1);
        assert_eq!((values.get::<_, f64>(1), values.get::<_, bool>(2)), (2.5, true));
        let none = client.query("select id from t where id = $1", &[&-1_i32]).await.unwrap();
        assert!(none.is_empty());
        let duplicate = client.execute(&insert, &[&5_i32, &"again"]).await.unwrap_err();
        assert_eq!(duplicate.code(), Some(&SqlState::UNIQUE_VIOLATION));
        assert_eq!(rows(&client, "select count(*) from t").await, [[Some("1000".to_owned())]]);
        let bare = rows(&client, "select from (values (1), (2)) x").await;
        assert_eq!(bare, [Vec::<Option<String>>::new(), Vec::new()]);
    });
}

#[test]
fn a_prepared_statement_notices_that_its_table_was_changed() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let (client, other) = (connect(addr).await, connect(addr).await);
        client.batch_execute("create table t (a int primary key, b int)").await.unwrap();
        client.batch_execute("insert into t values (1, 2)").await.unwrap();
        let all = client.prepare("select * from t").await.unwrap();
        let one = client.prepare("select b from t where a = $1").await.unwrap();
        assert_eq!(client.query(&all, &[]).await.unwrap().len(), 1);
        other.batch_execute("drop table t").await.unwrap();
        let gone = client.query(&one, &[&1_i32]).await.unwrap_err();
        assert_eq!(state(&gone), "42P01");
        other.batch_execute("create table t (z text, a int primary key, b int)").await.unwrap();
        other.batch_execute("insert into t values ('x', 1, 7)").await.unwrap();
        assert_eq!(client.query_one(&one, &[&1_i32]).await.unwrap().get::<_, i32>(0), 7);
        let changed = client.query(&all, &[]).await.unwrap_err();
        assert_eq!(state(&changed), "0A000");
        assert!(changed.to_string().contains("db error"), "{changed}");
        assert_eq!(client.query("select * from t", &[]).await.unwrap()[0].len(), 3);
    });
}

#[test]
fn statements_up_to_a_sync_are_one_transaction() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let mut client = connect(addr).await;
        client.batch_execute("create table t (a int primary key)").await.unwrap();
        // One text of several statements is one, too.
        let both = client.batch_execute("insert into t values (1); insert into t values (1)").await;
        assert_eq!(state(&both.unwrap_err()), "23505");
        assert!(rows(&client, "select * from t").await.is_empty());
        // A transaction that has failed takes nothing but its end.
        let transaction = client.transaction().await.unwrap();
        transaction.execute("insert into t values (2)", &[]).await.unwrap();
        transaction.execute("insert into t values (2)", &[]).await.unwrap_err();
        let aborted = transaction.query("select 1", &[]).await.unwrap_err();
        assert_eq!(state(&aborted), "25P02");
        transaction.rollback().await.unwrap();
        assert!(rows(&client, "select * from t").await.is_empty());
        let transaction = client.transaction().await.unwrap();
        // A portal that is read in parts.
        transaction
            .execute("insert into t select * from generate_series(1, 1000)", &[])
            .await
            .unwrap();
        let portal = transaction.bind("select a from t order by a", &[]).await.unwrap();
        let mut all = Vec::new();
        loop {
            let part = transaction.query_portal(&portal, 300).await.unwrap();
            all.extend(part.iter().map(|row| row.get::<_, i32>(0)));
            if part.len() < 300 {
                break;
            }
        }
        assert_eq!(all, (1..=1000).collect::<Vec<_>>());
        transaction.commit().await.unwrap();
    });
}

#[test]
fn a_statement_is_cancelled_and_the_session_goes_on() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let client = connect(addr).await;
        let token = client.cancel_token();
        for endless in [
            "select count(*) from generate_series(1, 100000000) a, generate_series(1, 1000) b",
            "select pg_sleep(600)",
        ] {
            let cancel = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                token.cancel_query(NoTls).await.unwrap();
            };
            let (ended, ()) = tokio::join!(client.simple_query(endless), cancel);
            assert_eq!(ended.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED), "{endless}");
        }
        // One that comes too late has no effect.
        token.cancel_query(NoTls).await.unwrap();
        assert_eq!(rows(&client, "select 1").await, [[Some("1".to_owned())]]);
    });
}

#[test]
fn two_servers_on_one_pool_show_one_database() {
    let pool = Pool::start(&Setup { test: "server", ..Setup::default() });
    let (first, second) = (start(&pool.url), start(&pool.url));
    block_on(async {
        let (here, there) = (connect(first.1).await, connect(second.1).await);
        here.batch_execute("create table t (a int primary key, n int)").await.unwrap();
        here.batch_execute("insert into t values (1, 0)").await.unwrap();
        let add = "update t set n = n + 1 where a = 1";
        for _ in 0..50 {
            let (one, other) = tokio::join!(here.execute(add, &[]), there.execute(add, &[]));
            assert_eq!((one.unwrap(), other.unwrap()), (1, 1));
        }
        let all = [[Some("100".to_owned())]];
        assert_eq!(rows(&here, "select n from t").await, all);
        assert_eq!(rows(&there, "select n from t").await, all);
    });
    let (mut server, _) = first;
    server.signal(Signal::TERM);
    let (code, said) = server.ends();
    assert_eq!(code, Some(0), "{said}");
    block_on(async {
        let there = connect(second.1).await;
        assert_eq!(rows(&there, "select n from t").await, [[Some("100".to_owned())]]);
    });
}

/// Inserts rows one after the other until the server is gone, and says which it has acknowledged.
pub(crate) async fn insert_rows(addr: SocketAddr, ids: std::ops::Range<i32>) -> Vec<i32> {
    let client = connect(addr).await;
    let insert = client.prepare("insert into t values ($1)").await.unwrap();
    let mut acknowledged = Vec::new();
    for id in ids {
        // While others recover a statement may fail, although it is run again.
        while let Err(error) = client.execute(&insert, &[&id]).await {
            match error.code() {
                None => return acknowledged,
                Some(&SqlState::UNIQUE_VIOLATION) => break,
                Some(_) => {}
            }
        }
        acknowledged.push(id);
    }
    acknowledged
}

#[test]
fn no_row_of_a_server_is_lost_that_is_killed_and_the_other_goes_on() {
    let pool = Pool::start(&Setup { test: "server-killed", ..Setup::default() });
    let ((mut victim, doomed), (_survivor, other)) = (start(&pool.url), start(&pool.url));
    block_on(async {
        let here = connect(other).await;
        here.batch_execute("create table t (a int primary key)").await.unwrap();
        let of_victim = tokio::spawn(insert_rows(doomed, 0..1_000_000));
        let of_survivor = tokio::spawn(insert_rows(other, 1_000_000..1_002_000));
        let count = "select count(*) from t where a < 1000000";
        while rows(&here, count).await[0][0].as_ref().unwrap().parse::<i32>().unwrap() < 300 {}
        victim.kill();
        let killed = of_victim.await.unwrap();
        // The last that was counted may have been committed, and not acknowledged.
        assert!(killed.len() >= 299, "{}", killed.len());
        assert_eq!(of_survivor.await.unwrap().len(), 2_000);
        let there = rows(&here, "select a from t order by a").await;
        let there: Vec<i32> =
            there.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
        let lost: Vec<_> = killed.iter().filter(|id| there.binary_search(id).is_err()).collect();
        assert!(lost.is_empty(), "{lost:?} of {} rows", killed.len());
        // What was under way may have been committed, but no more than that.
        assert!(there.len() <= killed.len() + 2_001, "{} rows", there.len());
    });
}

#[test]
fn a_server_whose_node_was_declared_dead_ends() {
    let pool = Pool::start(&Setup { test: "server-out", ..Setup::default() });
    let ((mut server, addr), (_survivor, other)) = (start(&pool.url), start(&pool.url));
    block_on(async {
        let (client, connection) = config(addr).connect(NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute("create table t (a int primary key)").await.unwrap();
        client.batch_execute("insert into t values (1)").await.unwrap();
        server.signal(Signal::STOP);
        until("the stopped server is out of the pool", || {
            (pool.compute_nodes().len() == 1).then_some(())
        });
        let there = connect(other).await;
        there.batch_execute("insert into t values (2)").await.unwrap();
        server.signal(Signal::CONT);
        // Nothing of it is from before: it is told, or cut off.
        let stale = client.simple_query("select count(*) from t").await;
        assert!(stale.is_err(), "{stale:?}");
        let told = connection.await.unwrap();
        let is_told = |error: &Error| {
            error.code().is_none_or(|code| ["57P01", "57P02"].contains(&code.code()))
        };
        assert!(told.as_ref().err().is_none_or(is_told), "{told:?}");
        assert_eq!(rows(&there, "select count(*) from t").await, [[Some("2".to_owned())]]);
    });
    let (code, said) = server.ends();
    // It may have been ended, if it was stopped in the middle of a verb.
    if code.is_some() {
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("declared dead") || said.contains("is dead"), "{said}");
    }
}

#[test]
fn a_client_forgets_what_it_has_prepared() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let client = connect(addr).await;
        let (one, other) = ("select 1::int", "select 2::int");
        let (one, other) =
            (client.prepare(one).await.unwrap(), client.prepare(other).await.unwrap());
        // The library gives them names, one after the other over all clients of this process.
        let mut number = 0;
        while client.batch_execute(&format!("deallocate s{number}")).await.is_err() {
            number += 1;
        }
        let gone = client.query(&one, &[]).await.unwrap_err();
        assert_eq!(state(&gone), "26000");
        let twice = client.batch_execute(&format!("deallocate s{number}")).await.unwrap_err();
        assert_eq!(state(&twice), "26000");
        assert_eq!(client.query_one(&other, &[]).await.unwrap().get::<_, i32>(0), 2);
        client.batch_execute("set application_name to 'x'; set lock_timeout to 5").await.unwrap();
        client.batch_execute("discard all").await.unwrap();
        let gone = client.query(&other, &[]).await.unwrap_err();
        assert_eq!(state(&gone), "26000");
        assert_eq!(rows(&client, "show lock_timeout").await, [[Some("0".to_owned())]]);
    });
}

#[test]
fn what_clients_do_is_shown_and_counted() {
    let (server, addr) = start_with("embedded:", &["--metrics", "127.0.0.1:0"]);
    let line = server.finds("metrics at http://");
    let metrics = line.split_once("http://").unwrap().1.split_once('/').unwrap().0.to_owned();
    block_on(async {
        let (idle, busy, here) = (connect(addr).await, connect(addr).await, connect(addr).await);
        let number = async |client: &Client| {
            rows(client, "select pg_backend_pid()").await[0][0].clone().unwrap()
        };
        let (of_idle, of_busy) = (number(&idle).await, number(&busy).await);
        idle.batch_execute("set application_name to 'thinker'; begin").await.unwrap();
        rows(&idle, "select 'a thought'").await;
        let long = tokio::spawn(async move {
            let long = "select count(*) from generate_series(1, 10000000000)";
            busy.simple_query(long).await.unwrap_err()
        });
        let state = |of: &str| {
            format!(
                "select state, query, application_name, usename, xact_start is null \
                 from pg_stat_activity where pid = {of}"
            )
        };
        let shown = rows(&here, &state(&of_idle)).await;
        let wanted = ["idle in transaction", "select 'a thought'", "thinker", "tester", "f"];
        assert_eq!(shown, [wanted.map(|text| Some(text.to_owned()))]);
        let is_active =
            async || rows(&here, &state(&of_busy)).await[0][0].as_deref() == Some("active");
        while !is_active().await {}
        let cancelled = format!("select pg_cancel_backend({of_busy}), pg_cancel_backend(0)");
        let cancelled = rows(&here, &cancelled).await;
        assert_eq!(cancelled, [["t", "f"].map(|text| Some(text.to_owned()))]);
        assert_eq!(self::state(&long.await.unwrap()), "57014");
        idle.batch_execute("rollback").await.unwrap();
        assert_eq!(rows(&here, &state(&of_idle)).await[0][0].as_deref(), Some("idle"));
        drop(idle);
        let open = "select count(*) from pg_stat_activity";
        while rows(&here, open).await[0][0].as_deref() != Some("1") {}
        let mut told = String::new();
        let mut stream = TcpStream::connect(&metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        stream.read_to_string(&mut told).unwrap();
        for wanted in [
            "selkie_sql_clients_open 1\n",
            "selkie_sql_clients_total 3\n",
            "selkie_sql_errors_total{sqlstate=\"57014\"} 1\n",
            "selkie_sql_statement_time_seconds_total ",
            "selkie_hits_total{node=\"cn0\"} ",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
    });
}

/// One that idles in a transaction, and one that runs something.
#[test]
fn clients_are_ended_by_another() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let (idle, busy, here) = (connect(addr).await, connect(addr).await, connect(addr).await);
        let of = "select pg_backend_pid()";
        let [of_idle, of_busy] =
            [rows(&idle, of).await, rows(&busy, of).await].map(|rows| rows[0][0].clone().unwrap());
        idle.batch_execute("create table t (a int)").await.unwrap();
        idle.batch_execute("begin; insert into t values (1)").await.unwrap();
        let long = tokio::spawn(async move {
            let long = "select count(*) from generate_series(1, 10000000000)";
            busy.simple_query(long).await.unwrap_err()
        });
        let is_active =
            format!("select state = 'active' from pg_stat_activity where pid = {of_busy}");
        while rows(&here, &is_active).await[0][0].as_deref() != Some("t") {}
        for of in [&of_idle, &of_busy] {
            let ended = rows(&here, &format!("select pg_terminate_backend({of})")).await;
            assert_eq!(ended, [[Some("t".to_owned())]]);
        }
        assert_eq!(state(&long.await.unwrap()), "57P01");
        while !idle.is_closed() {
            tokio::task::yield_now().await;
        }
        assert_eq!(rows(&here, "select count(*) from t").await, [[Some("0".to_owned())]]);
    });
}

#[test]
fn a_server_that_ends_tells_its_clients() {
    let (mut server, addr) = start("embedded:");
    // One that has not begun is told, too.
    let mut silent = TcpStream::connect(addr).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    block_on(async {
        let (client, connection) = config(addr).connect(NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute("begin").await.unwrap();
        server.signal(Signal::TERM);
        let ended = connection.await.unwrap().unwrap_err();
        assert_eq!(state(&ended), "57P01");
    });
    let mut told = Vec::new();
    silent.read_to_end(&mut told).unwrap();
    assert!(String::from_utf8_lossy(&told).contains("57P01"), "{told:?}");
    let (code, said) = server.ends();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn there_are_no_more_clients_than_are_allowed() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(connect(addr).await);
        }
        let refused = config(addr).connect(NoTls).await.err().unwrap();
        assert_eq!(state(&refused), "53300");
        clients.pop();
        // Its place is free when the server has seen that it is gone.
        while let Err(error) = config(addr).connect(NoTls).await {
            assert_eq!(state(&error), "53300");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn what_a_client_may_not_ask_for_is_refused_with_its_name() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        for (database, options, expected) in [
            ("other", "", "3D000"),
            ("selkie", "-c nothing_such=1", "42704"),
            ("selkie", "-c statement_timeout=soon", "22023"),
            ("selkie", "nonsense", "42601"),
        ] {
            let mut config = config(addr);
            config.dbname(database).options(options);
            let refused = config.connect(NoTls).await.err().unwrap();
            assert_eq!(state(&refused), expected);
        }
        let mut config = config(addr);
        config.options("-c statement_timeout=7s").application_name("it");
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(rows(&client, "show statement_timeout").await, [[Some("7s".to_owned())]]);
        assert_eq!(rows(&client, "show application_name").await, [[Some("it".to_owned())]]);
    });
    for listen in ["0.0.0.0:0", "nowhere"] {
        let output = run(&["server", "--listen", listen]);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains("--listen"), "{}", text(&output.stderr));
    }
    for (options, named) in [
        (&["--tls-cert", "a"][..], "goes with --tls-key"),
        (&["--tls-key", "a"], "goes with --tls-cert"),
        (&["--require-tls"], "goes with --tls-cert and --tls-key"),
        (&["--insecure"], "goes with --metrics only"),
        (&["--client-memory", "1M"], "is 16M at least"),
    ] {
        let output = run(&[&["server"], options].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
}

/// What a server answers to bytes, until it closes the connection.
pub(crate) fn answer(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // It may close before it has read all.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// A frame of a message.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

pub(crate) fn startup() -> Vec<u8> {
    let body = [&196_608_u32.to_be_bytes()[..], b"user\0me\0\0"].concat();
    [&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], &body].concat()
}

#[test]
fn bytes_that_are_no_messages_are_answered_and_harm_no_other_client() {
    let (mut server, addr) = start("embedded:");
    let contains = |answer: &[u8], what: &str| String::from_utf8_lossy(answer).contains(what);
    // Before a session has begun.
    for bytes in [
        &b"\0\0\0\x04"[..],
        b"\x7f\xff\xff\xff\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x08\0\x02\0\0",
        b"\0\0\0\x0c\0\x03\0\0user",
    ] {
        let answer = answer(addr, bytes);
        assert!(contains(&answer, "FATAL"), "{bytes:?}: {}", String::from_utf8_lossy(&answer));
    }
    // Messages that end the connection, as no next one can be told from them.
    for bad in [&b"Q\0\0\0\x03"[..], b"Q\x7f\xff\xff\xff", b"?\0\0\0\x04", b"S\0\x01\0\0"] {
        let answer = answer(addr, &[&startup()[..], bad].concat());
        assert!(contains(&answer, "FATAL") && contains(&answer, "08P01"), "{bad:?}");
    }
    // And messages that do not.
    let many = [0_u8, 0, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff];
    for bad in [
        frame(b'B', &many),
        frame(b'B', b""),
        frame(b'P', b"\0select 1\0\xff\xff"),
        frame(b'D', b"X\0"),
        frame(b'E', b"\0"),
        frame(b'Q', b"select '\xff'\0"),
        frame(b'Q', b"select 1"),
    ] {
        let sync = frame(b'S', b"");
        let good = frame(b'Q', b"select 'still ' || 'here'\0");
        let end = frame(b'X', b"");
        let answer = answer(addr, &[startup(), bad.clone(), sync, good, end].concat());
        assert!(contains(&answer, "ERROR"), "{bad:?}");
        assert!(contains(&answer, "still here"), "{bad:?}: {}", String::from_utf8_lossy(&answer));
    }
    block_on(async {
        let client = connect(addr).await;
        assert_eq!(rows(&client, "select 1").await, [[Some("1".to_owned())]]);
    });
    server.signal(Signal::TERM);
    let (code, said) = server.ends();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn data_is_copied_in_and_out_in_every_format() {
    use bytes::{Bytes, BytesMut};
    use futures_util::{SinkExt, TryStreamExt};

    let (_server, addr) = start("embedded:");
    block_on(async {
        let client = connect(addr).await;
        let table = "create table t (id int primary key, name text default 'none', n numeric)";
        client.batch_execute(table).await.unwrap();
        let mut data = BytesMut::new();
        for id in 0..20_000 {
            let name =
                if id % 3 == 0 { "\\N".to_owned() } else { format!("tab\\tand,\"quote\" {id}") };
            data.extend_from_slice(format!("{id}\t{name}\t{id}.5\n").as_bytes());
        }
        let data = data.freeze();
        let sink = client.copy_in("copy t from stdin").await.unwrap();
        let mut sink = std::pin::pin!(sink);
        // Pieces that end anywhere.
        for at in (0..data.len()).step_by(7_001) {
            sink.send(data.slice(at..data.len().min(at + 7_001))).await.unwrap();
        }
        assert_eq!(sink.finish().await.unwrap(), 20_000);
        for format in ["", " with (format csv, header)", " with (format binary)"] {
            let copy = format!("copy (select * from t order by id) to stdout{format}");
            let out = client.copy_out(&copy);
            let pieces: Vec<Bytes> = out.await.unwrap().try_collect().await.unwrap();
            let copied = pieces.concat();
            if format.is_empty() {
                assert_eq!(copied, data);
            }
            client.batch_execute("truncate t").await.unwrap();
            let sink = client.copy_in(&format!("copy t from stdin{format}")).await.unwrap();
            let mut sink = std::pin::pin!(sink);
            sink.send(Bytes::from(copied)).await.unwrap();
            assert_eq!(sink.finish().await.unwrap(), 20_000);
        }
        let all = rows(&client, "select count(*), count(name), sum(n) from t").await;
        let expected = ["20000", "13333", "200000000.0"];
        assert_eq!(all, [expected.map(|text| Some(text.to_owned()))]);

        // A row that cannot be: none of them is there, and the session goes on.
        for (copy, bad, expected) in [
            ("copy t from stdin", &b"30001\ta\t1\n5\tagain\t1\n"[..], "23505"),
            ("copy t from stdin", b"30001\ta\tx\n", "22P02"),
            ("copy t from stdin", b"30001\ta\n", "22P04"),
            ("copy t (id) from stdin with (format csv)", b"30001\n\n", "23502"),
        ] {
            let sink = client.copy_in(copy).await.unwrap();
            let mut sink = std::pin::pin!(sink);
            sink.send(Bytes::from_static(bad)).await.unwrap();
            let error = sink.finish().await.unwrap_err();
            assert_eq!(state(&error), expected, "{error}");
        }
        // One that is given up by its client.
        {
            let sink = client.copy_in("copy t (id) from stdin").await.unwrap();
            let mut sink = std::pin::pin!(sink);
            sink.send(Bytes::from_static(b"30001\n")).await.unwrap();
        }
        assert_eq!(rows(&client, "select count(*) from t").await, [[Some("20000".to_owned())]]);
        let sink = client.copy_in("copy t (id) from stdin").await.unwrap();
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from_static(b"30001\n")).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 1);
        let one = rows(&client, "select name, n from t where id = 30001").await;
        assert_eq!(one, [[Some("none".to_owned()), None]]);
    });
}
