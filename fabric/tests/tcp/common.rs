//! What the tests of this folder share: nodes with a fabric of their own, and a peer that answers
//! with given bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use selkie_fabric::tcp::{AccessKey, Admission, MAX_CHAIN_VERBS, TcpConfig, TcpFabric};
use selkie_fabric::{
    Buf, Chain, ChainResult, Completion, Endpoint, Fabric, FabricError, LocalRegion, PeerId,
    QueuePair, RealRuntime, RemoteAddr, Verb,
};

pub(crate) const MEMORY: PeerId = PeerId::memory(0);
pub(crate) const NODE: PeerId = PeerId::compute(0);
pub(crate) const POOL: u64 = 0x5e1c;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn dead<T>(peer: PeerId) -> Result<T, FabricError> {
    Err(FabricError::PeerDead { peer })
}

/// No peer is given up for its silence before a test fails.
pub(crate) fn config() -> TcpConfig {
    TcpConfig { dead_after: 12 * PATIENCE, ..TcpConfig::new(POOL) }
}

/// Admits the nodes that were invited.
pub(crate) fn invited() -> TcpConfig {
    TcpConfig { admission: Admission::Invited, ..config() }
}

/// What a process of its own would have: a fabric with one node.
pub(crate) struct Process {
    pub(crate) fabric: Arc<TcpFabric>,
    pub(crate) endpoint: Arc<dyn Endpoint>,
    pub(crate) region: Arc<dyn LocalRegion>,
    runtime: RealRuntime,
}

impl Process {
    pub(crate) fn start(id: PeerId, config: TcpConfig) -> Process {
        let runtime = RealRuntime::new(1).unwrap();
        let fabric = TcpFabric::new(config, runtime.env());
        let endpoint = fabric.join(id).unwrap();
        let region = endpoint.register(1 << 16).unwrap();
        Process { fabric, endpoint, region, runtime }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.fabric.listen_addr(self.endpoint.id()).unwrap()
    }

    pub(crate) fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.region.key(), offset)
    }

    pub(crate) fn connect(&self, peer: PeerId, addr: SocketAddr) -> Arc<dyn QueuePair> {
        self.connect_with(peer, addr, None)
    }

    pub(crate) fn connect_with(
        &self,
        peer: PeerId,
        addr: SocketAddr,
        key: Option<AccessKey>,
    ) -> Arc<dyn QueuePair> {
        self.fabric.introduce(peer, addr, key);
        self.endpoint.connect(peer).unwrap()
    }

    /// Waits for the outcome, but not for ever.
    pub(crate) fn wait(&self, completion: Completion) -> ChainResult {
        let limit = self.runtime.env().sleep(PATIENCE);
        self.runtime.block_on(async {
            let (mut completion, mut limit) = (completion, limit);
            std::future::poll_fn(|context| {
                assert!(limit.as_mut().poll(context).is_pending(), "a chain hangs");
                std::pin::Pin::new(&mut completion).poll(context)
            })
            .await
        })
    }

    /// Posts one verb; the old value of an atomic.
    pub(crate) fn post(&self, queue_pair: &dyn QueuePair, verb: Verb) -> Result<u64, FabricError> {
        let chain = self.wait(queue_pair.post(verb.into())).map_err(|error| error.error)?;
        Ok(chain.old(0).unwrap_or_default())
    }
}

/// A memory node, and a compute node of another fabric connected to it.
pub(crate) fn two() -> (Process, Process, Arc<dyn QueuePair>) {
    let (memory, node) = (Process::start(MEMORY, config()), Process::start(NODE, config()));
    let queue_pair = node.connect(MEMORY, memory.addr());
    (memory, node, queue_pair)
}

pub(crate) fn eventually(claim: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        let waited = started.elapsed();
        assert!(waited < PATIENCE, "never: {claim}");
        // At first so often that what follows meets what has just begun.
        match waited < Duration::from_millis(20) {
            true => std::thread::yield_now(),
            false => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The hello of a node that joins no fabric.
pub(crate) fn hello(version: u32, pool: u64, from: PeerId, to: PeerId) -> Vec<u8> {
    let mut bytes = b"SELKTCP?".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(1_000_u32.to_le_bytes());
    bytes.extend(pool.to_le_bytes());
    bytes.extend(from.to_raw().to_le_bytes());
    bytes.extend(to.to_raw().to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(4711_u64.to_le_bytes());
    if version > 1 {
        bytes.extend([0; 24]);
    }
    if version > 2 {
        bytes.truncate(56);
        // The first connection of a session.
        bytes.extend(23_u64.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    }
    bytes
}

pub(crate) fn reply(version: u32, verdict: u32) -> Vec<u8> {
    let mut bytes = b"SELKTCP!".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(verdict.to_le_bytes());
    if version > 2 {
        bytes.extend(0_u64.to_le_bytes());
    }
    bytes
}

/// A peer that answers every hello with `answer`, and then neither reads nor writes until dropped.
pub(crate) struct Impostor {
    pub(crate) addr: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    /// It listens no more once it has its first connection, and closes that.
    ends: bool,
}

impl Impostor {
    pub(crate) fn start(answer: Vec<u8>, ends: bool) -> Impostor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::downgrade(&streams);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Some(kept), Ok(mut stream)) = (kept.upgrade(), stream) else { return };
                let mut hello = [0; 80];
                let _ = stream.read_exact(&mut hello);
                let _ = stream.write_all(&answer);
                kept.lock().unwrap().push(stream);
                if ends {
                    return;
                }
            }
        });
        Impostor { addr, streams, ends }
    }

    pub(crate) fn close(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn waits_for_connection(&self) {
        eventually("a connection", || !self.streams.lock().unwrap().is_empty());
        if self.ends {
            self.close();
        }
    }
}

/// A chain that executes for milliseconds, between adding to one word and to another.
pub(crate) fn long_chain(first: RemoteAddr, last: RemoteAddr) -> Chain {
    let mut chain = Chain::from(Verb::fetch_and_add(first, 1));
    for _ in 0..MAX_CHAIN_VERBS - 2 {
        chain.push(Verb::read(RemoteAddr::new(first.region, 0), Buf::zeroed(1 << 14)));
    }
    chain.push(Verb::fetch_and_add(last, 1));
    chain
}
