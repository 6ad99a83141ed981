//! Pools over TCP without certificates: who has their token.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Over, Pool, Setup, prints, refused, succeeds};

/// Where the token of a pool is on this host.
fn token_of(pool: &Pool) -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    PathBuf::from(format!("/dev/shm/selkie-{user}-{}/token", pool.name))
}

#[track_caller]
fn start(test: &str, create: &[&str]) -> Pool {
    let setup = Setup { test, over: Over::Tcp, memory_nodes: 2, create, ..Setup::default() };
    // The second joins through the relay of the first.
    Pool::start(&setup)
}

#[test]
fn who_has_not_the_token_of_a_pool_is_told_how_to_be_let_in() {
    let pool = start("token", &[]);
    let status = ["pool", "status", &pool.url, "--json"];
    assert_eq!(prints(&status)["memory_nodes"][1]["lives"], true, "it is found on this host");

    // As on another host.
    let directory = tempfile::TempDir::new().unwrap();
    let copy = directory.path().join("token");
    let text = fs::read_to_string(token_of(&pool)).unwrap();
    fs::remove_file(token_of(&pool)).unwrap();
    let expected = format!("pool {} asks for its token: give --token FILE", pool.name);
    let lend = ["memnode", "--pool", &pool.url, "--memory", "10M"];
    for command in [&status[..], &pool.tpcc(&[]), &["top", &pool.url, "--once"], &lend] {
        refused(command, 1, &expected);
    }
    // Who runs the pool learns why it was left.
    let said = pool.memory[0].finds("a connection to the control plane ends");
    let why = format!("pool {} asked it for its token, and it gave none", pool.name);
    assert!(said.contains(&why), "{said}");
    fs::write(&copy, text).unwrap();
    let copy = copy.to_str().unwrap();
    let with_token = [&status[..], &["--token", copy]].concat();
    refused(&with_token, 1, "chmod 600");
    fs::set_permissions(copy, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(prints(&with_token)["memory_nodes"][1]["lives"], true);
    succeeds(&pool.tpcc(&["--duration", "1", "--token", copy]));

    fs::write(copy, "0".repeat(64)).unwrap();
    refused(&with_token, 1, "is not the one that the pool was made with");
}

#[test]
fn a_pool_that_trusts_its_network_has_no_token() {
    let pool = start("no-token", &["--trust-network"]);
    assert!(!token_of(&pool).exists());
    succeeds(&["pool", "status", &pool.url]);
    let shm = ["pool", "create", "test-no-token-shm", "--trust-network"];
    refused(&shm, 2, "trust-network: is for pools over TCP");
}
