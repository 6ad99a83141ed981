//! `TcpFabric`, its endpoints, queue pairs and completions.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::{Mutex, RwLock};
use rustix::rand::{GetRandomFlags, getrandom};

use super::config::TcpConfig;
use super::driver::Driver;
use super::host::{BadConnections, Host};
use super::link::Link;
use super::slot::Slot;
use super::wire::{Hello, VERSION};
use crate::api::{Endpoint, Fabric, LocalRegion, QueuePair};
use crate::completion::{Completion, Outstanding};
use crate::doorbell::Doorbell;
use crate::env::Env;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::mem::node::{MAX_REGION_BYTES, MAX_REGIONS, MemRegion, SLOT_BITS};
use crate::mem::words::{PAGE_BYTES, Words};
use crate::verb::{Chain, ChainResult};

/// A fabric between processes and machines, over TCP. See the module.
pub struct TcpFabric {
    config: TcpConfig,
    env: Env,
    directory: Arc<Directory>,
}

/// Where peers are.
type Directory = RwLock<HashMap<PeerId, Whereabouts>>;

enum Whereabouts {
    /// In this process; gone when it is.
    Here(Weak<Own>, SocketAddr),
    There(SocketAddr),
}

impl TcpFabric {
    /// A fabric that knows nobody.
    pub fn new(config: TcpConfig, env: Env) -> Arc<Self> {
        Arc::new(Self { config, env, directory: Arc::default() })
    }

    /// Says that `peer` listens at `addr`, for connections made from now on. An endpoint that lives in this
    /// process has introduced itself, and stays as it is.
    pub fn introduce(&self, peer: PeerId, addr: SocketAddr) {
        let mut directory = self.directory.write();
        let own = match directory.get(&peer) {
            Some(Whereabouts::Here(own, _)) => own.upgrade(),
            _ => None,
        };
        if own.as_ref().is_none_or(|own| own.host.node().is_dead()) {
            directory.insert(peer, Whereabouts::There(addr));
        }
        drop(directory);
        // Not under the lock: it may be the last.
        drop(own);
    }

    /// Where an endpoint that lives in this process listens.
    pub fn listen_addr(&self, peer: PeerId) -> Option<SocketAddr> {
        self.own(peer).map(|own| own.host.listen_addr())
    }

    /// Declares an endpoint of this process dead: it listens no more, its connections are closed, and every
    /// outstanding and later operation to it or of it ends with `PeerDead`. Once this returns its memory is
    /// not changed by verbs, and it changes no memory of the other endpoints of this process. Blocks for a
    /// chain or two. Nothing happens if there is no such endpoint.
    pub fn kill(&self, peer: PeerId) {
        let Some(own) = self.own(peer) else { return };
        own.leave();
        let directory = self.directory.read();
        let here = directory.values().filter_map(|whereabouts| match whereabouts {
            Whereabouts::Here(other, _) => other.upgrade(),
            Whereabouts::There(_) => None,
        });
        let here: Vec<_> = here.collect();
        drop(directory);
        for other in here {
            other.host.revoke(peer, Some(own.host.incarnation()));
        }
    }

    /// Closes all connections from the peer `of` to the endpoint `at` of this process, which refuses new
    /// ones of the same incarnation of `of` from now on: once this returns no verb of `of` executes there.
    /// Blocks for a chain. Nothing happens if there is no such endpoint.
    ///
    /// If `at` has never met `of`, the first incarnation that comes is the one it refuses.
    pub fn revoke(&self, at: PeerId, of: PeerId) {
        if let Some(at) = self.own(at) {
            let known = self.own(of).map(|own| own.host.incarnation());
            at.host.revoke(of, known);
        }
    }

    /// Connections that an endpoint of this process closed for what came over them.
    pub fn bad_connections(&self, at: PeerId) -> BadConnections {
        self.own(at).map(|own| own.host.bad_connections()).unwrap_or_default()
    }

    fn own(&self, peer: PeerId) -> Option<Arc<Own>> {
        match self.directory.read().get(&peer) {
            Some(Whereabouts::Here(own, _)) => own.upgrade(),
            _ => None,
        }
    }
}

impl Fabric for TcpFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let failed = |what: String| FabricError::Network { peer: id, what };
        let mut directory = self.directory.write();
        let before = match directory.get(&id) {
            Some(Whereabouts::Here(own, _)) => own.upgrade(),
            _ => None,
        };
        if before.as_ref().is_some_and(|own| !own.host.node().is_dead()) {
            drop(directory);
            return Err(FabricError::AlreadyJoined { peer: id });
        }
        let (config, env) = (&self.config, &self.env);
        let incarnation = random(id)?.max(1);
        let host = Host::listen(id, incarnation, config.clone(), env.clone())
            .map_err(|error| failed(format!("cannot listen at {}: {error}", config.listen)))?;
        let addr = reachable(host.listen_addr());
        let driver = Driver::start(Arc::clone(&host), config.clone(), env.clone())
            .map_err(|error| failed(format!("no driver: {error}")))?;
        let (registered, directory_of) = (Mutex::new(0), Arc::clone(&self.directory));
        let own = Arc::new(Own { host, driver, registered, directory: directory_of });
        directory.insert(id, Whereabouts::Here(Arc::downgrade(&own), addr));
        drop(directory);
        drop(before);
        Ok(Arc::new(TcpEndpoint { own }))
    }
}

/// The address at which this process reaches what listens at `addr`.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// Bits that nobody can guess.
fn random(peer: PeerId) -> Result<u64, FabricError> {
    let mut bytes = [0; 8];
    let failed =
        |what: &dyn Display| FabricError::Network { peer, what: format!("no randomness: {what}") };
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(u64::from_le_bytes(bytes)),
        Ok(count) => Err(failed(&format_args!("{count} bytes"))),
        Err(error) => Err(failed(&error)),
    }
}

/// A node of this process. It leaves when its endpoint and queue pairs are gone.
struct Own {
    host: Arc<Host>,
    driver: Arc<Driver>,
    /// Regions registered; its lock orders registrations.
    registered: Mutex<u32>,
    directory: Arc<Directory>,
}

impl Own {
    fn leave(&self) {
        self.host.close();
        self.driver.stop(FabricError::PeerDead { peer: self.host.id() });
    }

    fn addr_of(&self, peer: PeerId) -> Result<SocketAddr, FabricError> {
        let directory = self.directory.read();
        match directory.get(&peer) {
            None => Err(FabricError::UnknownPeer { peer }),
            Some(Whereabouts::There(addr)) => Ok(*addr),
            Some(Whereabouts::Here(own, addr)) => {
                let (own, addr) = (own.upgrade(), *addr);
                drop(directory);
                match own {
                    Some(own) if !own.host.node().is_dead() => Ok(addr),
                    _ => Err(FabricError::PeerDead { peer }),
                }
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.leave();
    }
}

struct TcpEndpoint {
    own: Arc<Own>,
}

impl Endpoint for TcpEndpoint {
    fn id(&self) -> PeerId {
        self.own.host.id()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        let node = self.own.host.node();
        node.check_alive()?;
        if !(1..=MAX_REGION_BYTES).contains(&(bytes as u64)) {
            return Err(FabricError::RegionBytes { bytes: bytes as u64, limit: MAX_REGION_BYTES });
        }
        let mut registered = self.own.registered.lock();
        let full = FabricError::TooManyRegions { peer: self.id(), limit: MAX_REGIONS };
        if *registered == MAX_REGIONS {
            return Err(full);
        }
        let words = Words::zeroed(bytes.div_ceil(PAGE_BYTES))
            .ok_or(FabricError::OutOfMemory { bytes: bytes as u64 })?;
        let secret = loop {
            let secret = (random(self.id())? as u32) << SLOT_BITS;
            if secret != 0 {
                break secret;
            }
        };
        let key = RegionKey::from_raw(secret | *registered);
        let region = MemRegion::new(key, words, Doorbell::new());
        let region = node.enter(*registered as usize, region).ok_or(full)?;
        *registered += 1;
        Ok(Arc::clone(region) as Arc<dyn LocalRegion>)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let own = &self.own;
        own.host.node().check_alive()?;
        let addr = own.addr_of(peer)?;
        let config = own.driver.config();
        let hello = Hello {
            version: VERSION,
            keepalive_ms: config.keepalive_ms(),
            pool: config.pool,
            from: own.host.id(),
            to: peer,
            incarnation: own.host.incarnation(),
        };
        let link = own.driver.connect(peer, addr, hello.encode())?;
        Ok(Arc::new(TcpQueuePair { _own: Arc::clone(own), link }))
    }
}

struct TcpQueuePair {
    /// The node is there while its queue pairs are.
    _own: Arc<Own>,
    link: Arc<Link>,
}

impl QueuePair for TcpQueuePair {
    fn peer(&self) -> PeerId {
        self.link.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        match self.link.post(chain) {
            Ok(slot) => {
                let link = Arc::clone(&self.link);
                let stage = Stage::Fresh;
                Completion::outstanding(Box::new(Waiting { link, slot, stage }))
            }
            Err(error) => Completion::ready(Err(error)),
        }
    }
}

impl Drop for TcpQueuePair {
    fn drop(&mut self) {
        self.link.retire();
    }
}

/// The completion of a chain.
struct Waiting {
    link: Arc<Link>,
    slot: Arc<Slot>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not polled yet.
    Fresh,
    Polled,
    /// The outcome was handed out.
    Taken,
}

impl Waiting {
    fn take(&mut self) -> Option<ChainResult> {
        let result = self.slot.take();
        if result.is_some() {
            self.stage = Stage::Taken;
        }
        result
    }

    /// Receives what has come; if the chain is alone under way, for a bounded time.
    fn take_now(&self) -> Option<ChainResult> {
        let driver = self.link.driver();
        if !driver.one_is_alone() {
            self.link.drive();
            return self.slot.take();
        }
        let (poll_for, block) = (driver.config().poll_for, driver.config().block_alone);
        if !poll_for.is_zero() {
            let until = driver.now() + poll_for;
            while driver.now() < until {
                std::hint::spin_loop();
                self.link.drive();
                if let Some(result) = self.slot.take() {
                    return Some(result);
                }
            }
        }
        if block.is_zero() {
            return None;
        }
        let until = driver.now() + block;
        let mut rest = block;
        while !rest.is_zero() && self.link.block_alone(&self.slot, rest) {
            if let Some(result) = self.slot.take() {
                return Some(result);
            }
            rest = until.saturating_sub(driver.now());
        }
        None
    }
}

impl Outstanding for Waiting {
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        if self.stage == Stage::Fresh {
            // Others may have chains to post, which then go out together with this one.
            self.stage = Stage::Polled;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.link.flush();
        let taken = match self.take_now() {
            Some(result) => Some(result),
            None => self.slot.take_or_enlist(context.waker()),
        };
        if let Some(result) = taken {
            self.stage = Stage::Taken;
            return Poll::Ready(result);
        }
        self.link.arm();
        Poll::Pending
    }

    fn try_result(&mut self) -> Option<ChainResult> {
        if let Some(result) = self.take() {
            return Some(result);
        }
        self.link.flush();
        self.link.drive();
        self.take()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.stage != Stage::Taken {
            self.slot.strike();
            self.link.flush();
            self.link.arm();
        }
    }
}
