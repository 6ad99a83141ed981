//! The `tcp` fabric with TLS: who is trusted, what others can see and change, and that no caller
//! waits for ever.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail like tests"
)]

mod certificates;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use certificates::{Authority, Valid};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use selkie_fabric::tcp::{
    AccessKey, Admission, CERTIFICATE_FILE, KEY_FILE, NODE_NAME, Security, SecurityError,
    TcpConfig, TcpFabric, WireError,
};
use selkie_fabric::{
    Buf, CertificateFault, CertificateOwner, Completion, Domain, Endpoint, Fabric, FabricError,
    LocalRegion, PeerId, QueuePair, RealRuntime, Refusal, RemoteAddr, Rights, Role, Stream,
    TlsError, Verb,
};

const MEMORY: PeerId = PeerId::memory(0);
const NODE: PeerId = PeerId::compute(0);
const PATIENCE: Duration = Duration::from_secs(20);
const ECHO: u64 = u64::from_le_bytes(*b"TESTECHO");

/// What happens in time happens for another reason than silence.
fn config(security: Option<Arc<Security>>) -> TcpConfig {
    TcpConfig { dead_after: 12 * PATIENCE, security, ..TcpConfig::new(7) }
}

/// What a process of its own would have: a fabric with one node.
struct Process {
    fabric: Arc<TcpFabric>,
    endpoint: Arc<dyn Endpoint>,
    region: Arc<dyn LocalRegion>,
    runtime: RealRuntime,
}

impl Process {
    fn start(id: PeerId, config: TcpConfig) -> Process {
        let runtime = RealRuntime::new(1).unwrap();
        let fabric = TcpFabric::new(config, runtime.env());
        let endpoint = fabric.join(id).unwrap();
        let region = endpoint.register(1 << 20).unwrap();
        Process { fabric, endpoint, region, runtime }
    }

    fn addr(&self) -> SocketAddr {
        self.fabric.listen_addr(self.endpoint.id()).unwrap()
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.region.key(), offset)
    }

    fn connect(&self, addr: SocketAddr, key: Option<AccessKey>) -> Arc<dyn QueuePair> {
        self.fabric.introduce(MEMORY, addr, key);
        self.endpoint.connect(MEMORY).unwrap()
    }

    /// Waits for the outcome, but not for ever.
    fn wait(&self, completion: Completion) -> Result<selkie_fabric::Chain, FabricError> {
        let limit = self.runtime.env().sleep(PATIENCE);
        let result = self.runtime.block_on(async {
            let (mut completion, mut limit) = (completion, limit);
            std::future::poll_fn(|context| {
                assert!(limit.as_mut().poll(context).is_pending(), "a chain hangs");
                std::pin::Pin::new(&mut completion).poll(context)
            })
            .await
        });
        result.map_err(|error| error.error)
    }

    fn post(&self, queue_pair: &dyn QueuePair, verb: Verb) -> Result<u64, FabricError> {
        self.wait(queue_pair.post(verb.into())).map(|chain| chain.old(0).unwrap_or_default())
    }

    fn bad(&self) -> (u64, Option<WireError>) {
        let bad = self.fabric.bad_connections(self.endpoint.id());
        (bad.count, bad.latest)
    }
}

fn memory_of(pool: &Authority) -> Arc<Security> {
    pool.node_of(&[Role::Memory])
}

fn eventually(claim: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "never: {claim}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn theirs(fault: CertificateFault) -> TlsError {
    TlsError::Certificate { owner: CertificateOwner::Theirs, fault }
}

fn ours(fault: CertificateFault) -> TlsError {
    TlsError::Certificate { owner: CertificateOwner::Ours, fault }
}

/// Every pair of a node that is trusted and one that is not: what the latter's host and the
/// former's say.
#[test]
fn an_untrusted_peer_is_told_why_on_either_side_and_harms_no_other() {
    let (pool, other, twin) = (Authority::new("pool"), Authority::new("x"), Authority::new("pool"));
    let bad = |authority: &Authority, name: &str, valid| {
        Some(authority.node_trusting(&pool, name, valid))
    };
    let cases = [
        (bad(&other, NODE_NAME, Valid::Now), CertificateFault::Foreign, CertificateFault::Foreign),
        (bad(&twin, NODE_NAME, Valid::Now), CertificateFault::Foreign, CertificateFault::Foreign),
        (
            bad(&pool, NODE_NAME, Valid::Once),
            CertificateFault::Expired,
            CertificateFault::OutOfDate,
        ),
        (
            bad(&pool, NODE_NAME, Valid::Later),
            CertificateFault::NotYetValid,
            CertificateFault::OutOfDate,
        ),
    ];
    let good = Process::start(NODE, config(Some(pool.node())));
    let memory = Process::start(MEMORY, config(Some(memory_of(&pool))));
    let living = good.connect(memory.addr(), None);
    let add = || Verb::fetch_and_add(memory.at(0), 1);
    for (round, (security, seen, told)) in cases.into_iter().enumerate() {
        // It connects.
        let stranger = Process::start(NODE, config(security.clone()));
        let queue_pair = stranger.connect(memory.addr(), None);
        let distrusted = |why| Err(FabricError::Tls { peer: MEMORY, why });
        assert_eq!(stranger.post(&*queue_pair, add()), distrusted(ours(told)));
        assert_eq!(stranger.post(&*queue_pair, add()), distrusted(ours(told)), "still");
        let counted = (round as u64 + 1, Some(WireError::Tls { why: theirs(seen) }));
        eventually("it is counted", || memory.bad() == counted);

        // It is connected to.
        let stranger = Process::start(MEMORY, config(security));
        let before = good.bad().0;
        let queue_pair = good.connect(stranger.addr(), None);
        assert_eq!(good.post(&*queue_pair, add()), distrusted(theirs(seen)));
        assert_eq!(good.bad().0, before + 1);
        assert_eq!(stranger.region.load(0), 0);
        eventually("it learns why", || {
            stranger.bad().1 == Some(WireError::Tls { why: ours(told) })
        });
        assert_eq!(good.post(&*living, add()), Ok(round as u64), "harmed");
    }
}

#[test]
fn a_certificate_for_another_name_is_none_of_a_node() {
    let pool = Authority::new("pool");
    let web = Some(pool.node_trusting(&pool, "www.example.org", Valid::Now));
    let memory = Process::start(MEMORY, config(web));
    let node = Process::start(NODE, config(Some(pool.node())));
    let queue_pair = node.connect(memory.addr(), None);
    let error = node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)).unwrap_err();
    assert_eq!(error, FabricError::Tls { peer: MEMORY, why: theirs(CertificateFault::Unfit) });
    let text = error.to_string();
    assert!(text.contains("its certificate is none of a node: make one with"), "{text}");
}

#[test]
fn a_certificate_without_one_role_is_refused_on_either_side() {
    let pool = Authority::new("pool");
    let add = |memory: &Process| Verb::fetch_and_add(memory.at(0), 1);
    let distrusted = |why| Err(FabricError::Tls { peer: MEMORY, why });
    for roles in [&[][..], &[Role::Memory, Role::Compute]] {
        assert!(pool.node_of(roles).certificate().is_none());
        let memory = Process::start(MEMORY, config(Some(memory_of(&pool))));
        let stranger = Process::start(NODE, config(Some(pool.node_of(roles))));
        let queue_pair = stranger.connect(memory.addr(), None);
        let told = distrusted(ours(CertificateFault::NoRole));
        assert_eq!(stranger.post(&*queue_pair, add(&memory)), told, "{roles:?}");
        let why = theirs(CertificateFault::NoRole);
        eventually("it is counted", || memory.bad() == (1, Some(WireError::Tls { why })));

        let stranger = Process::start(MEMORY, config(Some(pool.node_of(roles))));
        let node = Process::start(NODE, config(Some(pool.node())));
        let queue_pair = node.connect(stranger.addr(), None);
        assert_eq!(node.post(&*queue_pair, add(&stranger)), distrusted(why), "{roles:?}");
        assert_eq!((memory.region.load(0), stranger.region.load(0)), (0, 0));
    }
    let names = [NODE_NAME.to_owned(), format!("*.{NODE_NAME}")];
    let (certificate, key) = pool.issue_for(&names, Valid::Now);
    let authority = pool.certificate();
    let any = [authority, certificate, key];
    let any = Security::from_pem(any[0].as_bytes(), any[1].as_bytes(), any[2].as_bytes());
    assert!(any.unwrap().certificate().is_none(), "one for all roles has none");
}

#[test]
fn nodes_are_of_the_role_in_their_certificate() {
    let pool = Authority::new("pool");
    let memory = Process::start(MEMORY, config(Some(memory_of(&pool))));
    let add = |at: &Process| Verb::fetch_and_add(at.at(0), 1);
    for (role, name, expected) in [
        (Role::Compute, NODE, Ok(0)),
        (Role::Memory, PeerId::memory(1), Ok(1)),
        (Role::Memory, NODE, Err(Refusal::Role)),
        (Role::Compute, PeerId::memory(1), Err(Refusal::Role)),
        (Role::Operator, NODE, Err(Refusal::Role)),
        // Memory is open to readers within a domain only.
        (Role::Reader, NODE, Err(Refusal::Role)),
    ] {
        let node = Process::start(name, config(Some(pool.node_of(&[role]))));
        let queue_pair = node.connect(memory.addr(), None);
        let expected = expected.map_err(|why| FabricError::Refused { peer: MEMORY, why });
        assert_eq!(node.post(&*queue_pair, add(&memory)), expected, "{role} as {name}");
    }
    assert_eq!(memory.region.load(0), 2);
    assert_eq!(memory.bad().0, 0);

    let node = Process::start(NODE, config(Some(pool.node())));
    for role in [Role::Compute, Role::Reader, Role::Operator] {
        let impostor = Process::start(MEMORY, config(Some(pool.node_of(&[role]))));
        let queue_pair = node.connect(impostor.addr(), None);
        let error = node.post(&*queue_pair, add(&impostor)).unwrap_err();
        let why = theirs(CertificateFault::WrongRole(role));
        assert_eq!(error, FabricError::Tls { peer: MEMORY, why });
        let text = error.to_string();
        assert!(text.contains(&format!("is of role {role}")), "{text}");
    }
}

#[test]
fn a_reader_does_not_write_even_with_the_key_of_a_node_that_writes() {
    let pool = Authority::new("pool");
    let (reader, writer) = (PeerId::compute(1), PeerId::compute(2));
    let keys = [(); 2].map(|()| AccessKey::random().unwrap());
    let invited = TcpConfig { admission: Admission::Invited, ..config(Some(memory_of(&pool))) };
    let memory = Process::start(MEMORY, invited);
    let domain = Domain::new([(0..4096, Rights::READ)]).unwrap();
    let reading = selkie_fabric::tcp::Invitation::new(keys[0]).within(domain);
    memory.fabric.invite(MEMORY, reader, reading).unwrap();
    memory.fabric.invite(MEMORY, writer, keys[1]).unwrap();
    let as_reader = || config(Some(pool.node_of(&[Role::Reader])));
    let write = || Verb::write(memory.at(64), Buf::zeroed(8));

    let own = Process::start(reader, as_reader());
    let queue_pair = own.connect(memory.addr(), Some(keys[0]));
    let read = Verb::read(memory.at(64), Buf::zeroed(8));
    own.post(&*queue_pair, read).unwrap();
    let refused = own.post(&*queue_pair, write()).unwrap_err();
    assert!(matches!(refused, FabricError::Forbidden { .. }), "{refused}");

    let thief = Process::start(writer, as_reader());
    let queue_pair = thief.connect(memory.addr(), Some(keys[1]));
    let refused = FabricError::Refused { peer: MEMORY, why: Refusal::Role };
    assert_eq!(thief.post(&*queue_pair, write()), Err(refused));
}

#[test]
fn who_shows_no_certificate_is_refused() {
    let pool = Authority::new("pool");
    let memory = Process::start(MEMORY, config(Some(memory_of(&pool))));
    let mut roots = rustls::RootCertStore::empty();
    let root = rustls::pki_types::CertificateDer::from_pem_slice(pool.certificate().as_bytes());
    roots.add(root.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(NODE_NAME).unwrap();
    let client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let socket = TcpStream::connect(memory.addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = rustls::StreamOwned::new(client, socket);
    stream.write_all(b"SELKTCP?").unwrap();
    let refused = stream.read(&mut [0; 16]).unwrap_err();
    assert!(refused.to_string().contains("CertificateRequired"), "{refused}");
    let why = theirs(CertificateFault::Missing);
    eventually("it is counted", || memory.bad() == (1, Some(WireError::Tls { why })));
}

#[test]
fn a_secured_node_and_one_that_is_not_tell_each_other() {
    let pool = Authority::new("pool");
    for is_secured in [false, true] {
        let memory = is_secured.then(|| memory_of(&pool));
        let memory = Process::start(MEMORY, config(memory));
        let node = Process::start(NODE, config((!is_secured).then(|| pool.node())));
        let queue_pair = node.connect(memory.addr(), None);
        let (sees, shows, text) = if is_secured {
            (TlsError::PeerSpeaksTls, TlsError::PeerIsPlain, "it speaks TLS")
        } else {
            (TlsError::PeerIsPlain, TlsError::PeerSpeaksTls, "it does not speak TLS")
        };
        let error = node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)).unwrap_err();
        assert_eq!(error, FabricError::Tls { peer: MEMORY, why: sees });
        assert!(error.to_string().contains(text) && error.to_string().contains("--tls DIR"));
        eventually("it is counted", || memory.bad() == (1, Some(WireError::Tls { why: shows })));
        assert_eq!(memory.region.load(0), 0);
    }
}

/// Passes bytes on, and keeps them.
struct Proxy {
    addr: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Proxy {
    /// `changes` what the client sends; it is told how many bytes went before.
    fn to(server: SocketAddr, changes: impl FnMut(usize, &mut [u8]) + Send + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, received) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let (to_server, to_client) = (Arc::clone(&received), Arc::clone(&received));
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let (back_from, back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pass(back_from, back_to, &to_client, |_, _| {}));
            pass(client, server, &to_server, changes);
        });
        Proxy { addr, received }
    }

    fn has_received(&self, bytes: &[u8]) -> bool {
        self.received.lock().unwrap().windows(bytes.len()).any(|window| window == bytes)
    }
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    received: &Mutex<Vec<u8>>,
    mut changes: impl FnMut(usize, &mut [u8]),
) {
    let (mut bytes, mut passed) = (vec![0; 64 << 10], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        changes(passed, &mut bytes[..count]);
        passed += count;
        received.lock().unwrap().extend(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[test]
fn who_listens_sees_neither_payloads_nor_keys() {
    const SECRET: &[u8; 32] = b"what only nodes of the pool read";
    let pool = Authority::new("pool");
    for is_secured in [false, true] {
        let memory = config(is_secured.then(|| memory_of(&pool)));
        let invited = TcpConfig { admission: Admission::Invited, ..memory };
        let memory = Process::start(MEMORY, invited);
        let node = Process::start(NODE, config(is_secured.then(|| pool.node())));
        let key = AccessKey::random().unwrap();
        memory.fabric.invite(MEMORY, NODE, key).unwrap();
        let proxy = Proxy::to(memory.addr(), |_, _| {});
        let queue_pair = node.connect(proxy.addr, Some(key));
        let mut payload = Buf::zeroed(SECRET.len());
        payload.copy_from_slice(SECRET);
        node.post(&*queue_pair, Verb::write(memory.at(64), payload)).unwrap();
        let read = Verb::read(memory.at(64), Buf::zeroed(SECRET.len()));
        let chain = node.wait(queue_pair.post(read.into())).unwrap();
        assert_eq!(chain.buf(0).map(|buf| &buf[..]), Some(&SECRET[..]));
        let digits = key.to_text();
        let raw: Vec<u8> =
            (0..16).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
        // Over a plain connection they are found, so they are looked for where they would be.
        assert_eq!(proxy.has_received(SECRET), !is_secured);
        assert_eq!(proxy.has_received(&raw), !is_secured);
    }
}

#[test]
fn what_is_changed_on_its_way_is_not_executed() {
    let pool = Authority::new("pool");
    let memory = Process::start(MEMORY, config(Some(memory_of(&pool))));
    let node = Process::start(NODE, config(Some(pool.node())));
    let corrupts = Arc::new(Mutex::new(false));
    let asked = Arc::clone(&corrupts);
    let proxy = Proxy::to(memory.addr(), move |_, bytes| {
        if *asked.lock().unwrap() {
            *bytes.last_mut().unwrap() ^= 1;
        }
    });
    let queue_pair = node.connect(proxy.addr, None);
    let add = || Verb::fetch_and_add(memory.at(0), 1);
    assert_eq!(node.post(&*queue_pair, add()), Ok(0));
    *corrupts.lock().unwrap() = true;
    assert!(node.post(&*queue_pair, add()).is_err());
    let broken = Some(WireError::Tls { why: TlsError::Broken });
    eventually("it is counted", || memory.bad() == (1, broken));
    assert_eq!(memory.region.load(0), 1);
}

#[test]
fn a_handshake_that_is_dragged_out_is_given_up_on_both_sides() {
    // Takes ten seconds, and is given up long before.
    const DRIPPED: usize = 500;
    let pool = Authority::new("pool");
    let memory = Process::start(MEMORY, config(Some(memory_of(&pool))));
    // A record that is announced, and comes byte by byte.
    let drip = |mut stream: TcpStream| {
        let mut record = vec![0x16, 3, 3, 2, 0];
        record.resize(DRIPPED, 1);
        record
            .iter()
            .take_while(|byte| {
                std::thread::sleep(Duration::from_millis(20));
                stream.write_all(&[**byte]).is_ok()
            })
            .count()
    };
    let sent = drip(TcpStream::connect(memory.addr()).unwrap());
    assert!(sent < DRIPPED, "it was waited for to its end");
    eventually("it is counted", || memory.bad() == (1, Some(WireError::NoHello)));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let drips = std::thread::spawn(move || drip(listener.accept().unwrap().0));
    let dead_after = Duration::from_millis(400);
    let node = Process::start(NODE, TcpConfig { dead_after, ..config(Some(pool.node())) });
    let queue_pair = node.connect(addr, None);
    let error = node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1));
    assert_eq!(error, Err(FabricError::PeerDead { peer: MEMORY }));
    drop(queue_pair);
    assert!(drips.join().unwrap() < DRIPPED);
}

#[test]
fn long_chains_pass_in_both_directions_at_once() {
    let pool = Authority::new("pool");
    let memory = Process::start(MEMORY, config(Some(memory_of(&pool))));
    let node = Process::start(NODE, config(Some(pool.node())));
    let queue_pair = node.connect(memory.addr(), None);
    const BYTES: usize = 600 << 10;
    let mut outstanding = Vec::new();
    for round in 0..24_u8 {
        let mut payload = Buf::zeroed(BYTES);
        payload.fill(round);
        let verbs = [
            Verb::write(memory.at(0), payload),
            Verb::fetch_and_add(memory.at(BYTES as u64), 1),
            Verb::read(memory.at(0), Buf::zeroed(BYTES)),
        ];
        outstanding.push(queue_pair.post(verbs.into()));
    }
    for (round, completion) in outstanding.into_iter().enumerate() {
        let chain = node.wait(completion).unwrap();
        assert_eq!(chain.old(1), Some(round as u64));
        assert!(chain.buf(2).unwrap().iter().all(|byte| *byte == round as u8), "{round}");
    }
}

/// A memory node that echoes what comes behind `ECHO`.
fn echoing(security: Arc<Security>) -> Process {
    let memory = Process::start(MEMORY, config(Some(security)));
    let echo = |mut stream: Box<dyn Stream>, _| {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..count]).unwrap();
        }
    };
    memory.fabric.serve_protocol(ECHO, Arc::new(echo));
    memory
}

#[test]
fn what_is_handed_over_is_secured_too() {
    let (pool, other) = (Authority::new("pool"), Authority::new("other"));
    let memory = echoing(memory_of(&pool));
    let mut stream = pool.node().connect(memory.addr(), PATIENCE).unwrap();
    stream.set_timeouts(PATIENCE).unwrap();
    stream.write_all(&ECHO.to_le_bytes()).unwrap();
    let long: Vec<u8> = (0..100_003_u32).map(|n| (n % 251) as u8).collect();
    for part in long.chunks(30_000) {
        stream.write_all(part).unwrap();
        let mut received = vec![0; part.len()];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, part);
    }
    stream.set_timeouts(Duration::from_millis(50)).unwrap();
    let silent = stream.read(&mut [0]).unwrap_err().kind();
    assert!(matches!(silent, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silent}");

    // The client's certificate is looked at behind its part of the handshake.
    let foreign = other.node_trusting(&pool, NODE_NAME, Valid::Now);
    let mut stream = foreign.connect(memory.addr(), PATIENCE).unwrap();
    stream.set_timeouts(PATIENCE).unwrap();
    let said = stream.read(&mut [0]).unwrap_err();
    let why = said.get_ref().and_then(|why| why.downcast_ref::<TlsError>());
    assert_eq!(why, Some(&ours(CertificateFault::Foreign)));
    let said = other.node().connect(memory.addr(), PATIENCE).err().unwrap();
    assert!(said.to_string().contains("its certificate is not of this pool's"), "{said}");
}

#[test]
fn one_read_lasts_no_longer_than_said_however_slowly_its_record_comes() {
    let pool = Authority::new("pool");
    let memory = echoing(memory_of(&pool));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, server) = (listener.local_addr().unwrap(), memory.addr());
    let (slow, is_slow) = std::sync::mpsc::channel::<()>();
    let drips = std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let (mut bytes, mut dripped) = ([0; 4096], 0);
        while let Ok(count @ 1..) = (&server).read(&mut bytes) {
            for byte in &bytes[..count] {
                if (&client).write_all(&[*byte]).is_err() {
                    return dripped;
                }
                if is_slow.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) {
                    dripped += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        dripped
    });
    let mut stream = pool.node().connect(addr, PATIENCE).unwrap();
    stream.set_timeouts(PATIENCE).unwrap();
    stream.write_all(&ECHO.to_le_bytes()).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    drop(slow);
    let limit = Duration::from_millis(200);
    stream.set_timeouts(limit).unwrap();
    stream.write_all(&[7; 4000]).unwrap();
    let said = stream.read(&mut [0; 4000]).unwrap_err().kind();
    assert!(matches!(said, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{said}");
    drop(stream);
    let dripped = drips.join().unwrap();
    assert!(dripped < 4000, "all of the record was waited for");
}

#[test]
fn files_are_checked_before_any_peer_is_met() {
    use std::os::unix::fs::PermissionsExt;
    let (pool, other) = (Authority::new("pool"), Authority::new("other"));
    let write = |(certificate, key): (String, String)| {
        let directory = tempfile::tempdir().unwrap();
        let at = |file| directory.path().join(file);
        std::fs::write(at("ca.pem"), pool.certificate()).unwrap();
        std::fs::write(at(CERTIFICATE_FILE), certificate).unwrap();
        std::fs::write(at(KEY_FILE), key).unwrap();
        std::fs::set_permissions(at(KEY_FILE), PermissionsExt::from_mode(0o600)).unwrap();
        directory
    };
    let good = write(pool.issue(NODE_NAME, Valid::Now));
    assert!(Security::load(good.path()).is_ok());
    let refused =
        |directory: &tempfile::TempDir| Security::load(directory.path()).err().unwrap().to_string();
    let (certificate, _) = pool.issue(NODE_NAME, Valid::Now);
    let (_, key) = pool.issue(NODE_NAME, Valid::Now);
    let no_node = || pool.issue("www.example.org", Valid::Now);
    for (files, expected) in [
        (other.issue(NODE_NAME, Valid::Now), "node's certificate is not of this pool's authority"),
        (pool.issue(NODE_NAME, Valid::Once), "this node's certificate has expired: make another"),
        (pool.issue(NODE_NAME, Valid::Later), "this node's certificate is not valid yet"),
        (no_node(), "this node's certificate is none of a node"),
        (
            pool.issue_for(&[NODE_NAME.to_owned()], Valid::Now),
            "this node's certificate says no role: make another with `selkie cert node --role",
        ),
        ((certificate.clone(), key), "it is not the key of"),
        (("nonsense".into(), no_node().1), "node.pem holds no certificate in PEM"),
        ((certificate, "nonsense".into()), "node.key holds no key in PEM"),
    ] {
        let text = refused(&write(files));
        assert!(text.contains(expected), "{text}");
    }
    let key = good.path().join(KEY_FILE);
    for mode in [0o640, 0o604, 0o620] {
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        assert!(refused(&good).ends_with(&format!("chmod 600 {}", key.display())));
    }
    std::fs::remove_file(&key).unwrap();
    let missing = Security::load(good.path());
    assert!(matches!(missing, Err(SecurityError::File { path, .. }) if path == key));
}
