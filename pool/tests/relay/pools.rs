//! Which pool is behind a relay: another one than expected or known is refused.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selkie_pool::control::{
    Connect, ControlError, ControlPlane, Expectation, FilePlane, RemotePlane,
};
use tempfile::TempDir;

use crate::common::{block_on, make, no_token, pool, remote, replace};
use crate::relay_server::RelayServer;

#[test]
fn a_pool_of_another_name_or_id_is_refused_and_passed_over() {
    let [ours, other] =
        [(1, "ours"), (2, "other")].map(|(id, name)| RelayServer::start(pool(id), name));
    let expect = |name: Option<&str>, id| Expectation { name: name.map(str::to_owned), id };
    let load = |endpoints: &[String], expected: Expectation| {
        block_on(RemotePlane::new(endpoints, expected).unwrap().load())
    };
    for (expected, names) in [
        (expect(Some("ours"), None), "pool \"ours\""),
        (expect(Some("ours"), Some(1)), "pool \"ours\" of id 0x1"),
        (expect(Some("other"), Some(1)), "pool \"other\" of id 0x1"),
        (expect(None, Some(1)), "a pool of id 0x1"),
    ] {
        let error = load(&[other.endpoint()], expected).unwrap_err();
        let ControlError::OtherPool { place, expected, found } = &error else { panic!("{error}") };
        assert!(place.contains(&other.endpoint()), "{place}");
        assert_eq!((&expected[..], &found[..]), (names, "pool \"other\" of id 0x2"));
        assert!(!error.is_retryable());
    }
    let expected = || expect(Some("ours"), Some(1));
    assert_eq!(load(&[ours.endpoint()], expected()).unwrap().state.id, 1);
    assert_eq!(load(&[other.endpoint(), ours.endpoint()], expected()).unwrap().state.id, 1);

    // A client without an expectation stays with the first pool.
    let moved = Arc::new(AtomicBool::new(false));
    let addresses = [&ours, &other].map(|server| server.endpoint().parse().unwrap());
    let connect: Connect = {
        let moved = Arc::clone(&moved);
        Arc::new(move |_, _, limit| {
            let [ours, other] = &addresses;
            let address = if moved.load(Ordering::SeqCst) { other } else { ours };
            Ok(Box::new(TcpStream::connect_timeout(address, limit)?))
        })
    };
    let remote =
        RemotePlane::over(&["10.0.0.1:1"], Expectation::default(), connect, no_token()).unwrap();
    assert_eq!(block_on(remote.load()).unwrap().state.id, 1);
    moved.store(true, Ordering::SeqCst);
    drop(ours);
    let error = block_on(remote.load()).unwrap_err();
    let ControlError::OtherPool { expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!(expected, "pool \"ours\" of id 0x1");
    assert_eq!(found, "pool \"other\" of id 0x2");
}

#[test]
fn a_pool_that_replaces_another_behind_a_relay_is_another_pool() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("pool");
    let plane: Arc<dyn ControlPlane> = Arc::new(FilePlane::at(&path));
    make(&*plane, 1).unwrap();
    let server = RelayServer::start(Arc::clone(&plane), "test");
    let (one, two) = (remote(&[server.endpoint()]), remote(&[server.endpoint()]));
    let known = [&one, &two].map(|remote| block_on(remote.load()).unwrap())[0].clone();
    std::fs::remove_dir_all(&path).unwrap();
    let gone = block_on(one.load());
    assert!(matches!(gone, Err(ControlError::NoPool { .. })), "what is known does not stand in");
    make(&*plane, 2).unwrap();
    let replaced = replace(&two, &known, 9);
    assert!(matches!(replaced, Err(ControlError::OtherPool { .. })), "{replaced:?}");
    assert_eq!(block_on(plane.load()).unwrap().state.next_index, 0);
    for remote in [one, two] {
        let loaded = block_on(remote.load());
        assert!(matches!(loaded, Err(ControlError::OtherPool { .. })), "{loaded:?}");
    }
}
