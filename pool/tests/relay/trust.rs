//! Who may ask a relay for what: by the token of the pool, or by the role in a certificate.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::SplitMix;
use selkie_fabric::{NodeCertificate, PeerId, Role};
use selkie_pool::control::{
    Beat, Card, Connect, ControlError, ControlPlane, Expectation, FindToken, LocalPlane, PoolState,
    RELAY_MAGIC, RemotePlane, Stream, Token, host_number,
};

use crate::common::{block_on, make, pool};
use crate::relay_server::RelayServer;

/// A pool whose relays ask for a token.
fn guarded(token: &Token) -> Arc<dyn ControlPlane> {
    let plane = LocalPlane::default();
    make(&plane, 1).unwrap();
    let now = block_on(plane.load()).unwrap();
    let state = PoolState { token: Some(token.verifier()), ..PoolState::clone(&now.state) };
    block_on(plane.replace(now.version, state)).unwrap().unwrap();
    Arc::new(plane)
}

fn plain() -> Connect {
    Arc::new(|_, address, limit| Ok(Box::new(TcpStream::connect_timeout(&address, limit)?)))
}

fn with_token(server: &RelayServer, token: Option<&Token>) -> RemotePlane {
    let token = token.cloned();
    let find: FindToken = Arc::new(move |name| {
        assert_eq!(name, "test");
        token.clone()
    });
    RemotePlane::over(&[server.endpoint()], Expectation::default(), plain(), find).unwrap()
}

#[track_caller]
fn denied<T: std::fmt::Debug>(answer: Result<T, ControlError>, says: &str) {
    let error = answer.unwrap_err();
    assert!(matches!(error, ControlError::Denied { .. }), "{error}");
    assert!(!error.is_retryable() && error.to_string().contains(says), "{error}");
}

#[test]
fn an_anonymous_client_gets_nothing_and_its_replace_is_refused() {
    let (token, other) = (Token::random().unwrap(), Token::random().unwrap());
    let plane = guarded(&token);
    let server = RelayServer::start(Arc::clone(&plane), "test");
    let before = block_on(plane.load()).unwrap();
    let changed = || PoolState { next_index: 3, ..PoolState::clone(&before.state) };
    let beat = || Beat { node: PeerId::compute(1), host: 5, seen: 1, report: String::new() };
    for (token, says) in [
        (None, "pool test asks for its token: give --token FILE"),
        (Some(&other), "is not the one that the pool was made with"),
    ] {
        let anonymous = with_token(&server, token);
        denied(block_on(anonymous.load()), says);
        denied(block_on(anonymous.replace(before.version, changed())), says);
        denied(block_on(anonymous.beat(beat())), says);
        denied(block_on(anonymous.beats()), says);
    }
    assert_eq!(block_on(plane.load()).unwrap().version, before.version);
    assert!(block_on(plane.beats()).unwrap().is_empty());

    let known = with_token(&server, Some(&token));
    assert_eq!(block_on(known.load()).unwrap().version, before.version);
    assert_eq!(block_on(known.replace(before.version, changed())), Ok(Some(before.version + 1)));
    block_on(known.beat(beat())).unwrap();
}

#[test]
fn a_pool_without_a_token_lets_everybody_in() {
    let server = RelayServer::start(pool(1), "test");
    assert_eq!(block_on(with_token(&server, None).load()).unwrap().version, 1);
}

/// Requests in place of a proof, and a proof that was heard before, get no answer.
#[test]
fn what_comes_in_place_of_a_proof_is_not_answered() {
    let server = RelayServer::start(guarded(&Token::random().unwrap()), "test");
    let ends = server.ends();
    let version = 2_u32 << 16 | 7;
    let hello = [&RELAY_MAGIC.to_le_bytes()[..], &version.to_le_bytes()].concat();
    let frame = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let numbers = format!("[{}0]", "0,".repeat(31));
    for instead in ["\"Beats\"", "{\"Load\":{\"known\":null}}", "[]", "null", &numbers] {
        let mut stream = TcpStream::connect(server.endpoint()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(&[&hello[..], &frame(instead), &frame("\"Beats\"")].concat()).unwrap();
        let mut said = Vec::new();
        // It may be closed with bytes unread.
        let _ = stream.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(!said.contains("Beats") && !said.contains("compute_nodes"), "{said}");
        assert!(ends.recv().unwrap().is_err(), "{instead}");
    }
}

#[test]
fn random_proofs_let_nobody_in() {
    let token = Token::random().unwrap();
    let server = RelayServer::start(guarded(&token), "test");
    let ends = server.ends();
    let hello = [&RELAY_MAGIC.to_le_bytes()[..], &(2_u32 << 16 | 7).to_le_bytes()].concat();
    let random = SplitMix::new(3);
    for _ in 0..200 {
        let numbers: Vec<String> =
            (0..random.below(40)).map(|_| random.below(300).to_string()).collect();
        let mut text = format!("[{}]", numbers.join(","));
        text.truncate(random.below(text.len() as u64 + 1) as usize);
        let frame = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let mut stream = TcpStream::connect(server.endpoint()).unwrap();
        let _ = stream.write_all(&[&hello[..], &frame].concat());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(ends.recv().unwrap().is_err(), "{text}");
    }
    assert!(block_on(with_token(&server, Some(&token)).load()).is_ok());
}

/// Stands for a connection with certificates: what the other side has shown.
struct Shown(TcpStream, NodeCertificate);

impl Read for Shown {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Shown {
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
        self.0.set_timeouts(limit)
    }

    fn certificate(&self) -> Option<NodeCertificate> {
        Some(self.1)
    }
}

fn shown(role: Role) -> NodeCertificate {
    NodeCertificate { role, fingerprint: [role as u8; 32] }
}

/// A relay to clients of a role, and the way of such a client to it. The relay shows `relay`.
fn secured(plane: &Arc<dyn ControlPlane>, client: Role, relay: Role) -> (RelayServer, RemotePlane) {
    let server = RelayServer::start_with(Arc::clone(plane), "test", move |relay, stream| {
        relay.serve_from_start(Shown(stream, shown(client)))
    });
    let connect: Connect = Arc::new(move |_, address, limit| {
        Ok(Box::new(Shown(TcpStream::connect_timeout(&address, limit)?, shown(relay))))
    });
    let no_token: FindToken = Arc::new(|_: &str| panic!("certificates say who it is"));
    let endpoints = [server.endpoint()];
    let remote = RemotePlane::over(&endpoints, Expectation::default(), connect, no_token).unwrap();
    (server, remote)
}

/// Tries a change of the present state.
fn change(remote: &RemotePlane, change: impl Fn(&mut PoolState)) -> Result<(), ControlError> {
    let now = block_on(remote.load())?;
    let mut state = PoolState::clone(&now.state);
    change(&mut state);
    let version = block_on(remote.replace(now.version, state))?;
    assert_eq!(version, Some(now.version + 1));
    Ok(())
}

#[test]
fn each_role_reads_and_changes_what_it_takes() {
    let plane = guarded(&Token::random().unwrap());
    let label = |state: &mut PoolState| {
        state.labels.insert("a".into(), "b".into());
    };
    for role in Role::ALL {
        let (_server, remote) = secured(&plane, role, Role::Memory);
        assert_eq!(block_on(remote.load()).unwrap().state.name, "test");
        block_on(remote.beats()).unwrap();
        let own = host_number(&shown(role), 77 << 40);
        let beat = |host| Beat { node: PeerId::compute(1), host, seen: 1, report: String::new() };
        let is_compute = matches!(role, Role::Compute | Role::Reader);
        assert_eq!(block_on(remote.beat(beat(own))).is_ok(), is_compute, "{role}");
        denied(block_on(remote.beat(beat(own ^ 1))), "must not change the sign of life of cn1");

        let changed = change(&remote, label);
        match role {
            Role::Compute | Role::Operator => changed.unwrap(),
            _ => {
                let says =
                    format!("of role {role} must not change labels: that takes role compute");
                denied(changed, &says);
            }
        }
        let _ = change(&remote, |state| state.labels.clear());
    }
}

#[test]
fn a_reader_enters_only_as_one_that_reads() {
    let plane = guarded(&Token::random().unwrap());
    let (_server, remote) = secured(&plane, Role::Reader, Role::Memory);
    let host = host_number(&shown(Role::Reader), 77 << 40);
    let enter = |reads_only| {
        let raw = PeerId::compute(1).to_raw();
        let card = Card { host, card: "127.0.0.1:1 x".to_owned(), reads_only };
        change(&remote, move |state| {
            state.cards.insert(raw, card.clone());
        })
    };
    denied(enter(false), "joins with more than reads: that takes role compute");
    enter(true).unwrap();
}

#[test]
fn a_change_that_was_made_is_known_again_and_a_late_one_is_not_judged() {
    let plane = guarded(&Token::random().unwrap());
    let (_server, remote) = secured(&plane, Role::Compute, Role::Memory);
    let now = block_on(remote.load()).unwrap();
    let number = selkie_pool::control::Change::random();
    let state = || PoolState { next_index: 1, ..PoolState::clone(&now.state) };
    let made = Some(now.version + 1);
    for _ in 0..2 {
        assert_eq!(block_on(remote.replace_as(number, now.version, state())), Ok(made));
    }
    assert_eq!(block_on(remote.replace(now.version, state())), Ok(None));
    assert_eq!(block_on(remote.replace(now.version + 5, state())), Ok(None), "not there yet");
}

/// A relay of a process that asks another relay would be judged by that process's role.
#[test]
fn a_relay_behind_another_names_the_one_with_the_plane() {
    let plane = guarded(&Token::random().unwrap());
    let (first, to_first) = secured(&plane, Role::Memory, Role::Memory);
    let by_certificates =
        |plane: &Arc<dyn ControlPlane>| secured(plane, Role::Compute, Role::Memory);
    let (direct, _) = by_certificates(&plane);
    // The memory node that has the plane is in the pool.
    let host = host_number(&shown(Role::Memory), 9 << 40);
    change(&to_first, |state| {
        state.memory_nodes[0] = Some(memory_node(host));
        let card = Card { host, card: format!("{} x", direct.endpoint()), reads_only: false };
        state.cards.insert(PeerId::memory(0).to_raw(), card);
    })
    .unwrap();

    let behind: Arc<dyn ControlPlane> = Arc::new(to_first);
    let (_second, remote) = by_certificates(&behind);
    change(&remote, |state| {
        state.labels.insert("a".into(), "b".into());
    })
    .unwrap();
    assert_eq!(block_on(plane.load()).unwrap().state.labels.len(), 1);
    drop(first);
}

fn memory_node(host: u64) -> selkie_pool::control::MemoryMember {
    let descriptor = selkie_pool::MemoryNodeDescriptor {
        peer: PeerId::memory(0),
        region: selkie_fabric::RegionKey::from_raw(1),
        ranges: 1,
    };
    selkie_pool::control::MemoryMember {
        host,
        descriptor,
        dead: false,
        domain: selkie_pool::FailureDomain::default(),
        stay: selkie_pool::Residency::Stays,
        reclaim: selkie_pool::Reclaim::default(),
    }
}

#[test]
fn a_relay_is_a_memory_node() {
    let plane = guarded(&Token::random().unwrap());
    for role in [Role::Compute, Role::Reader, Role::Operator] {
        let (_server, remote) = secured(&plane, Role::Compute, role);
        denied(block_on(remote.load()), &format!("a certificate of role {role}, and relays are"));
    }
}
