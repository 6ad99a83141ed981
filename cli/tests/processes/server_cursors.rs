//! Prepared statements and cursors of SQL beside those of the protocol: one set of names.

use crate::server::{block_on, connect, frame, rows, start};
use crate::server_limits::{Raw, bind, execute, kinds, parse, sync};

/// A message about a portal.
fn portal(kind: u8, name: &str) -> Vec<u8> {
    frame(kind, &[b"P", name.as_bytes(), b"\0"].concat())
}

#[test]
fn prepared_statements_have_one_set_of_names() {
    let (_server, addr) = start("embedded:");
    let mut client = Raw::connect(addr);
    client.query("prepare s (integer) as select $1 + 1");
    assert_eq!(kinds(&client.answers()), "C Z");
    client.send(&[parse("s", "select 1"), sync()]);
    assert_eq!(kinds(&client.answers()), "E42P05 Z");
    client.send(&[parse("p", "select 7"), parse("", "execute s (2)"), sync()]);
    assert_eq!(kinds(&client.answers()), "1 1 Z");
    // What EXECUTE gives is described.
    client.send(&[bind("", ""), portal(b'D', ""), execute("", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "2 T D C Z");
    client.query("execute p");
    assert_eq!(kinds(&client.answers()), "T D C Z");
    client.query("select name, from_sql, generic_plans from pg_prepared_statements order by 1");
    let answers = client.answers();
    let shown: Vec<_> = answers.iter().filter(|own| own.0 == b'D').map(|own| &*own.1).collect();
    assert_eq!(
        shown,
        [
            &b"\0\x03\0\0\0\x01p\0\0\0\x01f\0\0\0\x011"[..],
            &b"\0\x03\0\0\0\x01s\0\0\0\x01t\0\0\0\x011"[..],
        ]
    );
    client.query("deallocate p");
    client.answers();
    client.send(&[bind("", "p"), sync()]);
    assert_eq!(kinds(&client.answers()), "E26000 Z");
    // The one without a name is no prepared statement of SQL.
    client.send(&[parse("", "select 1"), sync()]);
    client.answers();
    client.send(&[parse("all", "deallocate all"), bind("", "all"), execute("", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "1 2 C Z");
    client.send(&[parse("s", "select 1"), bind("", ""), sync()]);
    assert_eq!(kinds(&client.answers()), "1 2 Z");
}

#[test]
fn cursors_and_portals_have_one_set_of_names() {
    let (_server, addr) = start("embedded:");
    let mut client = Raw::connect(addr);
    client.query("begin; declare c cursor for select n from generate_series(1, 5) n");
    assert_eq!(kinds(&client.answers()), "C C Z");
    client.send(&[parse("s", "select 1"), bind("c", "s"), sync()]);
    assert_eq!(kinds(&client.answers()), "1 E42P03 Z");
    client.query("rollback; begin; declare c cursor for select n from generate_series(1, 5) n");
    client.answers();
    // The protocol runs a cursor as it runs a portal.
    client.send(&[portal(b'D', "c"), execute("c", 2), execute("c", 0), execute("c", 1), sync()]);
    let answers = client.answers();
    assert_eq!(kinds(&answers), "T D D s D D D C C Z");
    let tags: Vec<_> = answers.iter().filter(|own| own.0 == b'C').map(|own| &*own.1).collect();
    assert_eq!(tags, [&b"SELECT 3\0"[..], b"SELECT 0\0"]);
    // FETCH is described as its cursor is.
    client.send(&[parse("f", "fetch backward 2 c"), bind("", "f"), portal(b'D', "")]);
    client.send(&[execute("", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "1 2 T D D C Z");
    client.send(&[portal(b'C', "c"), execute("c", 0), sync()]);
    assert_eq!(kinds(&client.answers()), "3 E34000 Z");
    client.query("rollback; begin");
    client.answers();
    client.send(&[parse("t", "select 1"), bind("p", "t"), sync()]);
    assert_eq!(kinds(&client.answers()), "1 2 Z");
    client.query("select name, is_holdable, is_scrollable from pg_cursors");
    let answers = client.answers();
    assert_eq!(kinds(&answers), "T D C Z");
    assert_eq!(&*answers[1].1, b"\0\x03\0\0\0\x01p\0\0\0\x01f\0\0\0\x01f");
    client.query("declare p cursor for select 1");
    assert_eq!(kinds(&client.answers()), "E42P03 Z");
    client.query("rollback; begin");
    client.answers();
    client.send(&[bind("p", "t"), execute("p", 1), sync()]);
    assert_eq!(kinds(&client.answers()), "2 D s Z");
    client.query("close p");
    assert_eq!(kinds(&client.answers()), "C Z");
    client.send(&[execute("p", 1), sync()]);
    assert_eq!(kinds(&client.answers()), "E34000 Z");
    client.query("rollback");
    client.answers();
    // A name of a portal is free again, also if no transaction has run.
    client.send(&[bind("q", "t"), sync()]);
    assert_eq!(kinds(&client.answers()), "2 Z");
    client.query("begin; declare q cursor for select 1; fetch q");
    assert_eq!(kinds(&client.answers()), "C C T D C Z");
}

#[test]
fn a_cursor_takes_the_values_of_its_parameters() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let mut client = connect(addr).await;
        let transaction = client.transaction().await.unwrap();
        let declare = "declare c cursor for select n from generate_series(1, 9) n where n > $1";
        transaction.execute(declare, &[&6]).await.unwrap();
        let fetched = transaction.query("fetch 2 from c", &[]).await.unwrap();
        let fetched: Vec<i32> = fetched.iter().map(|row| row.get(0)).collect();
        assert_eq!(fetched, [7, 8]);
        transaction.commit().await.unwrap();
        assert!(rows(&client, "select * from pg_cursors").await.is_empty());
    });
}
