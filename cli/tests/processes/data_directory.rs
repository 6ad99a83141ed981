//! Databases of one process that are kept in a directory.

use rustix::process::Signal;

use crate::harness::{fails, succeeds};
use crate::server::{block_on, connect, insert_rows, rows, start};

#[test]
fn a_server_is_killed_and_the_next_has_all_that_it_acknowledged() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("data");
    let url = format!("embedded:{}", directory.display());
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let (mut server, addr) = start(&url);
        block_on(async {
            let here = connect(addr).await;
            if round == 0 {
                let table = "create table t (a int primary key); create sequence s;";
                here.batch_execute(table).await.unwrap();
            }
            let there = rows(&here, "select a from t order by a").await;
            let there: Vec<i32> =
                there.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
            let is_lost = |id: &&i32| there.binary_search(id).is_err();
            let lost: Vec<_> = acknowledged.iter().filter(is_lost).collect();
            assert!(lost.is_empty(), "{lost:?} of {} rows", acknowledged.len());
            assert!(there.len() <= acknowledged.len() + round, "{} rows", there.len());
            let at = 1_000_000 * round as i32;
            let inserting = tokio::spawn(insert_rows(addr, at..at + 1_000_000));
            let count = format!("select count(*) from t where a >= {at}");
            while rows(&here, &count).await[0][0].as_ref().unwrap().parse::<i32>().unwrap() < 200 {}
            server.kill();
            acknowledged.extend(inserting.await.unwrap());
        });
    }
    // In each round one may have been there whose client was not told so.
    assert!(acknowledged.len() >= 597, "{}", acknowledged.len());

    // A shell is another way in; one of them at a time.
    let count = ["sql", "--pool", &url, "--format", "csv", "-c", "select count(*) >= 600 from t"];
    assert!(succeeds(&count).contains('t'), "{}", succeeds(&count));
    let (mut server, _) = start(&url);
    fails(&count, 1, "another process has this database open");
    server.signal(Signal::TERM);
    let (code, said) = server.ends();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("ends with this process"), "{said}");
    assert!(succeeds(&count).contains('t'));
    fails(&["tpcc", "--pool", &url], 2, "must be embedded: or a shared pool");
}

#[test]
fn a_server_without_a_directory_says_that_its_database_ends() {
    let (mut server, _) = start("embedded:");
    let wanted = "the database ends with this process; --pool embedded:DIR keeps it in a directory";
    server.finds(wanted);
    server.signal(Signal::TERM);
    assert_eq!(server.ends().0, Some(0));
}
