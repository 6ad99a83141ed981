//! Clients that read slowly or never, that say nothing, or that ask for too much: what becomes of
//! them, and that others are served meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio_postgres::NoTls;

use crate::server::{PATIENCE, block_on, config, connect, frame, rows, start, startup, state};

/// A client by the bytes that it sends and reads.
pub(crate) struct Raw {
    stream: TcpStream,
    /// What is to be sent to cancel its statements.
    cancel: Vec<u8>,
}

impl Raw {
    /// A client that was let in.
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&startup()).unwrap();
        let mut raw = Self { stream, cancel: Vec::new() };
        loop {
            let (kind, body) = raw.frame();
            match kind {
                b'K' => raw.cancel = [&b"\0\0\0\x10\x04\xd2\x16\x2e"[..], &body].concat(),
                b'Z' => return raw,
                _ => {}
            }
        }
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        self.stream.write_all(&frames.concat()).unwrap();
    }

    pub(crate) fn query(&mut self, sql: &str) {
        self.send(&[frame(b'Q', &[sql.as_bytes(), b"\0"].concat())]);
    }

    /// The next message.
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(length).unwrap().checked_sub(4).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        (head[0], body)
    }

    /// The messages up to one that says that the server is ready.
    pub(crate) fn answers(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut answers = Vec::new();
        loop {
            answers.push(self.frame());
            if answers.last().unwrap().0 == b'Z' {
                return answers;
            }
        }
    }
}

/// The kinds of messages, and the codes of errors among them.
pub(crate) fn kinds(answers: &[(u8, Vec<u8>)]) -> String {
    let kind = |(kind, body): &(u8, Vec<u8>)| match kind {
        b'E' => {
            let mut fields = body.split(|byte| *byte == 0);
            let code = fields.find_map(|field| field.strip_prefix(b"C")).unwrap();
            format!("E{}", String::from_utf8_lossy(code))
        }
        kind => char::from(*kind).to_string(),
    };
    answers.iter().map(kind).collect::<Vec<_>>().join(" ")
}

pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    frame(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat())
}

pub(crate) fn bind(portal: &str, statement: &str) -> Vec<u8> {
    frame(b'B', &[portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat())
}

pub(crate) fn execute(portal: &str, most: u32) -> Vec<u8> {
    frame(b'E', &[portal.as_bytes(), b"\0", &most.to_be_bytes()].concat())
}

pub(crate) fn sync() -> Vec<u8> {
    frame(b'S', b"")
}

#[test]
fn messages_are_whole_after_a_cancel_request_of_a_client_that_reads_slowly() {
    let (_server, addr) = start("embedded:");
    let mut slow = Raw::connect(addr);
    for _ in 0..3 {
        slow.query("select repeat('x', 1000) from generate_series(1, 1000000)");
        // Until all that is between it and the server is full.
        std::thread::sleep(Duration::from_secs(1));
        TcpStream::connect(addr).unwrap().write_all(&slow.cancel).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let answers = slow.answers();
        let (last, rest) = answers.split_last().unwrap();
        assert_eq!((last.0, &*last.1), (b'Z', &b"I"[..]));
        let (error, rest) = rest.split_last().unwrap();
        assert_eq!(kinds(std::slice::from_ref(error)), "E57014");
        let (columns, rows) = rest.split_first().unwrap();
        assert_eq!(columns.0, b'T');
        for (kind, body) in rows {
            assert_eq!((*kind, body.len()), (b'D', 1_006));
            assert!(body[6..].iter().all(|byte| *byte == b'x'));
        }
    }
    slow.query("select 1");
    assert_eq!(kinds(&slow.answers()), "T D C Z");
}

#[test]
fn clients_that_never_read_are_ended_by_another() {
    let (_server, addr) = start("embedded:");
    let mut deaf: Vec<Raw> = (0..7).map(|_| Raw::connect(addr)).collect();
    for (at, client) in deaf.iter_mut().enumerate() {
        if at % 2 == 0 {
            client.query("select repeat('x', 1000) from generate_series(1, 1000000)");
        } else {
            // Each answer is short, and all of them are not.
            for _ in 0..300 {
                client.query("select repeat('x', 60000)");
            }
        }
    }
    std::thread::sleep(Duration::from_secs(1));
    block_on(async {
        let here = connect(addr).await;
        let terminate = "select pg_terminate_backend(pid) from pg_stat_activity \
                         where pid <> pg_backend_pid()";
        assert_eq!(rows(&here, terminate).await.len(), 7);
        let open = "select count(*) from pg_stat_activity";
        while rows(&here, open).await[0][0].as_deref() != Some("1") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // All of their places are free.
        let mut others = Vec::new();
        for _ in 0..7 {
            others.push(connect(addr).await);
        }
    });
    drop(deaf);
}

#[test]
fn clients_that_say_nothing_do_not_keep_others_out_for_long() {
    let (_server, addr) = start("embedded:");
    // There are 256 places for those that were not let in, and half of them for an address.
    let silent = || TcpStream::connect(addr).unwrap();
    let mut all: Vec<_> = (0..128).map(|_| silent()).collect();
    block_on(async {
        // Connections may be taken in another order than they were made, and on a busy machine the
        // first have been ended before the last are there.
        let refused = loop {
            match config(addr).connect(NoTls).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => break error,
            }
            all.push(silent());
        };
        assert_eq!(state(&refused), "53300");
        drop(all);
        while let Err(error) = config(addr).connect(NoTls).await {
            assert_eq!(state(&error), "53300");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_client_of_a_later_protocol_is_told_which_there_is() {
    let (_server, addr) = start("embedded:");
    let body = [&196_610_u32.to_be_bytes()[..], b"user\0me\0_pq_.greased\0x\0\0"].concat();
    let packet = [&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], &body].concat();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&packet).unwrap();
    let mut raw = Raw { stream, cancel: Vec::new() };
    let (kind, body) = raw.frame();
    let expected = [&196_608_u32.to_be_bytes()[..], b"\0\0\0\x01_pq_.greased\0"].concat();
    assert_eq!((kind, body), (b'v', expected));
    assert_eq!(raw.answers().last().unwrap().1, b"I");
}

#[test]
fn portals_are_run_once_and_not_in_a_transaction_that_has_failed() {
    let (_server, addr) = start("embedded:");
    let mut client = Raw::connect(addr);
    client.query("create table t (a int primary key, b int)");
    assert_eq!(kinds(&client.answers()), "C Z");
    client.query("begin");
    client.answers();
    let series = "select a from generate_series(1, 10) a";
    let insert = "insert into t (a) select a from generate_series(1, 10) a";
    client.send(&[
        parse("read", series),
        parse("write", insert),
        parse("change", "update t set b = 1 returning a"),
        bind("r", "read"),
        bind("w", "write"),
        bind("c", "change"),
        execute("r", 3),
        execute("w", 3),
        execute("c", 3),
        execute("c", 0),
        sync(),
    ]);
    let answers = client.answers();
    assert_eq!(kinds(&answers), "1 1 1 2 2 2 D D D s C D D D s D D D D D D D C Z");
    let tags: Vec<_> = answers.iter().filter(|own| own.0 == b'C').map(|own| &*own.1).collect();
    assert_eq!(tags, [&b"INSERT 0 10\0"[..], b"UPDATE 7\0"]);
    // As many as there are: whether there are more is known when they are asked for.
    client.send(&[execute("r", 7), execute("r", 7), execute("c", 0), execute("w", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "D D D D D D D s C C E55000 Z");
    // The transaction has failed, and its portals give nothing.
    client.send(&[execute("r", 3), sync()]);
    assert_eq!(kinds(&client.answers()), "E25P02 Z");
    client.query("rollback");
    client.answers();
    client.send(&[execute("r", 3), sync()]);
    assert_eq!(kinds(&client.answers()), "E34000 Z");

    // What comes before an error of a message is undone with it.
    client.send(&[bind("", "write"), execute("", 0), execute("none", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "2 C E34000 Z");
    client.query("select a from t");
    assert_eq!(kinds(&client.answers()), "T C Z");

    // Those made before a savepoint go on, those made after it are undone with it.
    client.query("begin; savepoint s");
    client.answers();
    client.send(&[bind("kept", "read"), execute("kept", 3), sync()]);
    assert_eq!(kinds(&client.answers()), "2 D D D s Z");
    client.query("savepoint u");
    client.answers();
    client.send(&[bind("gone", "read"), execute("gone", 3), sync()]);
    assert_eq!(kinds(&client.answers()), "2 D D D s Z");
    client.query("select 1 / 0");
    client.answers();
    client.query("rollback to u");
    client.answers();
    client.send(&[execute("kept", 0), sync(), execute("gone", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "D D D D D D D C Z");
    assert_eq!(kinds(&client.answers()), "E34000 Z");

    // They end with their transaction, also if its end begins another.
    client.send(&[bind("kept", "read"), execute("kept", 3), sync()]);
    assert_eq!(kinds(&client.answers()), "E42P03 Z");
    client.query("rollback and chain");
    client.answers();
    client.send(&[execute("kept", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "E34000 Z");
}

#[test]
fn a_portal_of_which_rows_are_read_in_parts_tells_of_its_statement() {
    let (_server, addr) = start("embedded:");
    let mut client = Raw::connect(addr);
    client.send(&[
        parse("drop", "drop table if exists nothing"),
        bind("", "drop"),
        execute("", 1),
        sync(),
    ]);
    assert_eq!(kinds(&client.answers()), "1 2 N C Z");
}

#[test]
fn the_last_statement_of_a_text_is_done_when_its_commit_is() {
    let (_server, addr) = start("embedded:");
    let mut client = Raw::connect(addr);
    client.query(
        "create table p (a int primary key); \
         create table c (a int references p deferrable initially deferred)",
    );
    assert_eq!(kinds(&client.answers()), "C C Z");
    client.query("insert into p values (1); insert into c values (2)");
    assert_eq!(kinds(&client.answers()), "C E23503 Z");
    client.query("insert into p values (1); insert into c values (1)");
    assert_eq!(kinds(&client.answers()), "C C Z");
}

#[test]
fn statements_that_are_too_deep_or_too_long_are_refused_and_harm_nobody() {
    let (mut server, addr) = start("embedded:");
    block_on(async {
        let client = connect(addr).await;
        let other = connect(addr).await;
        let nested = |levels: usize, links: usize, link: &str| {
            let close = format!("){}", link.repeat(links));
            format!("select {}1{}", "(".repeat(levels), close.repeat(levels))
        };
        let unions = "select 1, 2 union all ".repeat(50_000);
        let tables = ", t".repeat(50_000);
        let queries = "(select 1), ".repeat(1_600);
        let ctes = (1..5_000).map(|at| format!(", c{at} as (select * from c{})", at - 1));
        for sql in [
            nested(15, 290, " + 1"),
            nested(60, 290, "::text"),
            nested(100, 20, " + 1"),
            format!("{unions} select 1, 2"),
            format!("select * from generate_series(1, 1) t{tables}"),
            format!("select {queries} 1"),
            format!("with c0 as (select 1){} select 1", ctes.collect::<String>()),
        ] {
            let error = client.simple_query(&sql).await.unwrap_err();
            assert_eq!(state(&error), "54001", "{}", &sql[..60]);
        }
        let error = client.simple_query(&format!("select 1{}", ",1".repeat(8 << 20))).await;
        assert_eq!(state(&error.unwrap_err()), "54000");
        let error = client.simple_query(&format!("select 1{}", ",1".repeat(1_664))).await;
        assert_eq!(state(&error.unwrap_err()), "54011");
        let branches: String = (0..5_000).map(|at| format!(" when {at} then {at} + 1")).collect();
        let conditions: Vec<_> = (0..9_000).map(|at| format!("a = {at}")).collect();
        let long = format!(
            "select case a{branches} end from generate_series(4998, 4999) a where {}",
            conditions.join(" or ")
        );
        let expected = ["4999", "5000"].map(|text| vec![Some(text.to_owned())]);
        assert_eq!(rows(&client, &long).await, expected);
        assert_eq!(rows(&other, "select 1").await, [[Some("1".to_owned())]]);
    });
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ends().0, Some(0));
}
