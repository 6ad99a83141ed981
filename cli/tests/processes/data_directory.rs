//! Databases of one process that are kept in a directory.

use rustix::process::Signal;

use crate::harness::{fails, may_mount, succeeds};
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

/// Of a disk that is too small nothing is taken, not even a directory.
#[test]
fn a_directory_without_room_is_refused_before_it_is_made() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("disk")).unwrap();
    let script = "mount -t tmpfs -o size=16M tmpfs disk
        $selkie sql --pool embedded:disk/new/data -c 'select 1' 2> said; code=$?
        ls disk > left
        exit $code";
    let mut bash = std::process::Command::new("timeout");
    let bash = bash.args(["120", "unshare", "-rm", "bash", "-c", script]);
    let bash = bash.env("selkie", env!("CARGO_BIN_EXE_selkie")).current_dir(place.path());
    let status = bash.stdin(std::process::Stdio::null()).status().unwrap();
    let read = |file: &str| std::fs::read_to_string(place.path().join(file)).unwrap();
    let said = read("said");
    assert_eq!(status.code(), Some(1), "{said}");
    let room = "disk/new/data: opening the database takes 64.0 MiB, and 16.0 MiB are free there: make room";
    assert!(said.starts_with("error: ") && said.contains(room), "{said}");
    assert_eq!(read("left"), "", "{said}");
}

#[test]
fn a_server_without_a_directory_says_that_its_database_ends() {
    let (mut server, _) = start("embedded:");
    let wanted = "the database ends with this process; --pool embedded:DIR keeps it in a directory";
    server.finds(wanted);
    server.signal(Signal::TERM);
    assert_eq!(server.ends().0, Some(0));
}
