//! The directory of a memory node: it takes mail in, its cores serve requests, and pages move from
//! and to its memory.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_channels::{Mailbox, MailboxConfig};
use selkie_fabric::env::{Env, yield_now};
use selkie_fabric::{Doorbell, Endpoint, LocalRegion};
use selkie_pool::{ComputeIndex, LineHasher, Pool, layout::SlabGeometry};

use super::directory::DirectoryEntry;
use super::message::{decode_from, encode_to};
use crate::EngineError;
use crate::addressing::placement::PlacementMap;
use crate::coherence::word::ComputeId;

/// Messages handed to the cores before other tasks get a turn.
const MAIL_BUDGET: usize = 64;
/// Messages a compute node's full ring may hold up at a directory before sending fails.
const OUTBOX_LIMIT: usize = 1 << 16;

/// How the directories of a pool are served.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DirectoryConfig {
    /// Cores of each memory node; below 1 it is that share of one core.
    pub cores: f64,
    /// Processor time of one core a message; in virtual time only.
    pub message: Duration,
    /// Ring that each compute node writes its messages into, bytes.
    pub ring_bytes: usize,
}

/// What a directory uses of the memory node that it runs at.
pub struct DirectoryHost {
    /// The node's place on the fabric.
    pub endpoint: Arc<dyn Endpoint>,
    /// The node's memory as its own processor sees it.
    pub region: Arc<dyn LocalRegion>,
}

/// Starts a directory at every memory node of the pool, which `hosts` are by index, in the
/// environment `env_of` gives for its index. Needed before engines with [`crate::Coherence::Rpc`]
/// start; ends with the environment.
///
/// # Errors
/// `Config` for cores that are not above 0, `Pool`, `Message`.
pub async fn start_directories(
    pool: &Arc<Pool>,
    hosts: impl IntoIterator<Item = DirectoryHost>,
    env_of: impl Fn(usize) -> Env,
    config: DirectoryConfig,
) -> Result<(), EngineError> {
    if !(config.cores > 0.0 && config.cores.is_finite()) {
        let (key, allowed) = ("cores", "above 0".to_owned());
        return Err(EngineError::Config { key, value: config.cores as u64, allowed });
    }
    let descriptor = pool.descriptor();
    let computes = descriptor.max_compute_nodes;
    let peers = computes + descriptor.memory_nodes.len();
    for (index, DirectoryHost { endpoint, region }) in hosts.into_iter().enumerate() {
        let env = env_of(index);
        let mailbox =
            MailboxConfig { peers, ring_bytes: config.ring_bytes, outbox_limit: OUTBOX_LIMIT };
        let me = computes + index;
        let failed = |source| EngineError::Message { to: me, source };
        let mailbox = Mailbox::open(&endpoint, me, mailbox).map_err(failed)?;
        pool.register_directory(index, mailbox.descriptor()).await?;
        let cores = (config.cores.ceil() as usize).max(1);
        let server = Arc::new(Server {
            me,
            pool: Arc::clone(pool),
            endpoint,
            region,
            placement: PlacementMap::new(descriptor),
            geometry: descriptor.geometry(),
            mailbox,
            connected: (0..computes).map(|_| OnceLock::new()).collect(),
            cores: (0..cores).map(|_| DirectoryCore::default()).collect(),
            failed: Mutex::new(None),
        });
        let work = config.message.div_f64(config.cores.min(1.0));
        for core in 0..cores {
            let (server, env) = (Arc::clone(&server), env.clone());
            let clock = env.clone();
            drop(
                env.spawn("directory core", async move { server.serve(core, &clock, work).await }),
            );
        }
        drop(env.spawn("directory mail", async move { server.take_mail().await }));
    }
    Ok(())
}

/// A message that waits for its core, with its sender.
type QueuedMessage = (usize, Vec<u8>);

/// One core: its queue, and the entries of its pages.
#[derive(Default)]
struct DirectoryCore {
    queue: Mutex<VecDeque<QueuedMessage>>,
    bell: Doorbell,
    entries: Mutex<HashMap<u64, DirectoryEntry, BuildHasherDefault<LineHasher>>>,
}

/// The directory of one memory node.
struct Server {
    me: usize,
    pool: Arc<Pool>,
    endpoint: Arc<dyn Endpoint>,
    region: Arc<dyn LocalRegion>,
    placement: PlacementMap,
    geometry: SlabGeometry,
    mailbox: Mailbox,
    connected: Vec<OnceLock<()>>,
    cores: Vec<DirectoryCore>,
    /// The error that ended the service.
    failed: Mutex<Option<EngineError>>,
}

impl Server {
    /// Hands each message to a core; all messages for a page go to the same core.
    async fn take_mail(&self) {
        loop {
            let polled = self.mailbox.poll(MAIL_BUDGET, &mut |from, bytes| {
                // A message without an address goes to some core, which refuses it.
                let addr: [u8; 8] =
                    bytes.get(8..16).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
                // Pages of one memory node differ in the bits above a range's.
                let page = u64::from_le_bytes(addr) / self.geometry.gcl_bytes() as u64;
                let spread = page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                if let Some(core) = self.cores.get(spread as usize % self.cores.len()) {
                    core.queue.lock().push_back((from, bytes.to_vec()));
                    core.bell.ring();
                }
            });
            match polled {
                Ok(0) => self.mailbox.wait_mail().await,
                Ok(_) => yield_now().await,
                Err(source) => return self.fail(EngineError::Message { to: self.me, source }),
            }
        }
    }

    async fn serve(&self, core: usize, env: &Env, work: Duration) {
        let Some(core) = self.cores.get(core) else { return };
        loop {
            let seen = core.bell.count();
            let message = core.queue.lock().pop_front();
            let Some((from, bytes)) = message else {
                core.bell.wait_past(seen).await;
                continue;
            };
            env.spend(work).await;
            if let Err(error) = self.handle(core, from, &bytes) {
                return self.fail(error);
            }
        }
    }

    fn fail(&self, error: EngineError) {
        // The first error counts. Nodes that wait for an answer have their own bound.
        self.failed.lock().get_or_insert(error);
    }

    fn handle(&self, core: &DirectoryCore, from: usize, bytes: &[u8]) -> Result<(), EngineError> {
        let mail = |what| EngineError::Mail { from, what };
        let (addr, message, page) = decode_from(bytes, self.geometry.gcl_bytes()).map_err(mail)?;
        let node = ComputeId::new(from).ok_or(mail("sender is no compute node"))?;
        let home = self.placement.home(addr);
        let home = home.filter(|home| home.page.region == self.region.key());
        let at = home.ok_or(mail("about a page of another node"))?.page.offset as usize;
        let answers = {
            let mut entries = core.entries.lock();
            let entry = entries.entry(addr.to_u64()).or_default();
            if message.carries_page() {
                self.region.write(at, page);
            }
            let answers = entry.receive(node, message);
            if entry.is_blank() {
                entries.remove(&addr.to_u64());
            }
            answers.map_err(|_| mail("does not follow from what was asked"))?
        };
        let mut page = Vec::new();
        for (to, message) in answers {
            if message.carries_page() {
                page.resize(self.geometry.gcl_bytes(), 0);
                self.region.read(at, &mut page);
            }
            let payload = if message.carries_page() { &page[..] } else { &[] };
            self.send(to, &encode_to(addr, message), payload)?;
        }
        Ok(())
    }

    fn send(&self, to: ComputeId, header: &[u8], page: &[u8]) -> Result<(), EngineError> {
        let to = to.index();
        let failed = |source| EngineError::Message { to, source };
        let connected = self.connected.get(to).ok_or(EngineError::NoSuchNode { index: to })?;
        if connected.get().is_none() {
            let descriptor = self.pool.mailbox_of(ComputeIndex::new(to as u16), self.me);
            let descriptor = descriptor.ok_or(EngineError::PeerGone { node: to })?;
            match self.mailbox.connect(to, &descriptor, &self.endpoint) {
                Ok(()) | Err(selkie_channels::ChannelError::AlreadyConnected { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
            // Another core may have set it meanwhile.
            let _ = connected.set(());
        }
        self.mailbox.send(to, header, page).map_err(failed)
    }
}
