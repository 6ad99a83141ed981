//! `TcpFabric` and its endpoints.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use rustix::rand::{GetRandomFlags, getrandom};

use super::common::Common;
use super::config::{Admission, TcpConfig};
use super::driver::Driver;
use super::guests::Invitation;
use super::hello::{Hello, VERSION};
use super::host::{BadConnections, Host};
use super::key::AccessKey;
use super::link::Link;
use super::others::Handler;
use super::queue_pair::TcpQueuePair;
use crate::access::Domain;
use crate::api::{Endpoint, Fabric, LocalRegion, QueuePair, Reach};
use crate::doorbell::Doorbell;
use crate::env::Env;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::mem::node::{MAX_REGION_BYTES, MAX_REGIONS, MemRegion, SLOT_BITS};
use crate::mem::words::{PAGE_BYTES, Words};

/// A fabric between processes and machines, over TCP. See the module.
pub struct TcpFabric {
    common: Arc<Common>,
    directory: Arc<Directory>,
}

/// Where peers are.
type Directory = RwLock<HashMap<PeerId, Whereabouts>>;

enum Whereabouts {
    /// In this process; gone when it is.
    Here {
        own: Weak<Own>,
        addr: SocketAddr,
        key: Option<AccessKey>,
    },
    There {
        addr: SocketAddr,
        key: Option<AccessKey>,
    },
    /// Was elsewhere, and was fenced.
    Fenced,
}

impl TcpFabric {
    /// A fabric that knows nobody.
    pub fn new(config: TcpConfig, env: Env) -> Arc<Self> {
        Arc::new(Self { common: Arc::new(Common::new(config, env)), directory: Arc::default() })
    }

    /// Says that `peer` listens at `addr`, and has given this process `key` to be shown there, for
    /// connections made from now on. An endpoint that lives in this process has introduced itself:
    /// only its key changes. Who was fenced is taken for another from now on.
    pub fn introduce(&self, peer: PeerId, addr: SocketAddr, key: Option<AccessKey>) {
        let mut directory = self.directory.write();
        let own = match directory.get_mut(&peer) {
            Some(Whereabouts::Here { own, key: known, .. }) => {
                *known = key;
                own.upgrade()
            }
            _ => None,
        };
        if own.as_ref().is_none_or(|own| own.host.node().is_dead()) {
            directory.insert(peer, Whereabouts::There { addr, key });
        }
        drop(directory);
        // Not under the lock: it may be the last.
        drop(own);
    }

    /// Where an endpoint that lives in this process listens.
    pub fn listen_addr(&self, peer: PeerId) -> Option<SocketAddr> {
        self.own(peer).map(|own| own.host.listen_addr())
    }

    /// Invites `guest` to the endpoint `at` of this process: with
    /// [`Admission::Invited`](super::Admission) it is admitted there, and nowhere else, if it shows
    /// the key of the invitation, and does there what the domain of the invitation allows, by
    /// default everything. An invitation replaces an earlier one that differs, and closes the
    /// connections that came by it; the same one again changes nothing. A guest that was revoked or
    /// fenced stays out as it is; invite the next of its name by another key.
    ///
    /// # Errors
    /// `UnknownPeer` if no such endpoint lives in this process.
    pub fn invite(
        &self,
        at: PeerId,
        guest: PeerId,
        invitation: impl Into<Invitation>,
    ) -> Result<(), FabricError> {
        let own = self.own(at).ok_or(FabricError::UnknownPeer { peer: at })?;
        own.host.invite(guest, invitation.into());
        Ok(())
    }

    /// Withdraws the invitation of `guest` to the endpoint `at` of this process, and closes its
    /// connections there: once this returns none of its verbs executes there before it is admitted
    /// again. Blocks for a chain. Nothing happens if there is no such endpoint.
    pub fn uninvite(&self, at: PeerId, guest: PeerId) {
        if let Some(at) = self.own(at) {
            at.host.uninvite(guest);
        }
    }

    /// Declares an endpoint of this process dead: it listens no more, its connections are closed,
    /// and every outstanding and later operation to it or of it ends with `PeerDead`. Once this
    /// returns its memory is not changed by verbs, and it changes no memory of the other endpoints
    /// of this process. Blocks for a chain or two. Nothing happens if there is no such endpoint.
    pub fn kill(&self, peer: PeerId) {
        let Some(own) = self.own(peer) else { return };
        own.leave();
        for other in self.here() {
            other.host.revoke(peer, Some(own.host.incarnation()));
        }
    }

    /// Closes all connections from the peer `of` to the endpoint `at` of this process, which
    /// refuses new ones of the same incarnation of `of` from now on, and withdraws its invitation:
    /// once this returns no verb of `of` executes there. Blocks for a chain. Nothing happens if
    /// there is no such endpoint.
    ///
    /// If `at` has never met `of`, the first incarnation that comes is the one it refuses.
    pub fn revoke(&self, at: PeerId, of: PeerId) {
        if let Some(at) = self.own(at) {
            let known = self.own(of).map(|own| own.host.incarnation());
            at.host.revoke(of, known);
        }
    }

    /// Hands connections to endpoints of this process over whose first 8 bytes, little-endian, are
    /// `magic`, though not if it is that of a hello: the handler gets the stream behind those
    /// bytes, with TLS if the fabric's connections have it, blocking and without time limits, on a
    /// thread of its own, and should return once the stream is shut down. That is done when the
    /// endpoint leaves. Nobody is asked for a key. Of each endpoint [`MAX_HANDED_OVER`] run at a
    /// time; further connections are closed. Replaces an earlier handler of the same magic.
    ///
    /// The fabric keeps the handler: one that needs the fabric has to hold it weakly.
    ///
    /// [`MAX_HANDED_OVER`]: super::MAX_HANDED_OVER
    pub fn serve_other(&self, magic: u64, handler: Handler) {
        self.common.handlers.set(magic, handler);
    }

    /// Connections that an endpoint of this process closed for what came over them.
    pub fn bad_connections(&self, at: PeerId) -> BadConnections {
        self.own(at).map(|own| own.host.bad_connections()).unwrap_or_default()
    }

    /// The endpoints of this process.
    fn here(&self) -> Vec<Arc<Own>> {
        let directory = self.directory.read();
        let here = directory.values().filter_map(|whereabouts| match whereabouts {
            Whereabouts::Here { own, .. } => own.upgrade(),
            Whereabouts::There { .. } | Whereabouts::Fenced => None,
        });
        here.collect()
    }

    /// Has `own`, which is new, and the other endpoints of this process admit each other, and those
    /// that this process has met admitted by it.
    fn acquaint(&self, own: &Arc<Own>) {
        let id = own.host.id();
        let here;
        let met = self.common.met.lock();
        here = self.here();
        for other in &here {
            other.host.invite(id, own.access.into());
            own.host.invite(other.host.id(), other.access.into());
        }
        for (peer, invitation) in &*met {
            own.host.invite(*peer, invitation.clone());
        }
    }

    fn own(&self, peer: PeerId) -> Option<Arc<Own>> {
        match self.directory.read().get(&peer) {
            Some(Whereabouts::Here { own, .. }) => own.upgrade(),
            _ => None,
        }
    }
}

impl Fabric for TcpFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let failed = |what: String| FabricError::Network { peer: id, what };
        let mut directory = self.directory.write();
        let before = match directory.get(&id) {
            Some(Whereabouts::Here { own, .. }) => own.upgrade(),
            _ => None,
        };
        if before.as_ref().is_some_and(|own| !own.host.node().is_dead()) {
            drop(directory);
            return Err(FabricError::AlreadyJoined { peer: id });
        }
        let (config, env) = (&self.common.config, &self.common.env);
        let incarnation = random(id)?.max(1);
        let host = Host::listen(id, incarnation, Arc::clone(&self.common))
            .map_err(|error| failed(format!("cannot listen at {}: {error}", config.listen)))?;
        let addr = reachable(host.listen_addr());
        let driver = Driver::start(Arc::clone(&host), config.clone(), env.clone())
            .map_err(|error| failed(format!("no driver: {error}")))?;
        let (registered, directory_of) = (Mutex::new(0), Arc::clone(&self.directory));
        let access = AccessKey::random()
            .map_err(|error| failed(format!("no randomness for a key: {error}")))?;
        let common = Arc::clone(&self.common);
        let own =
            Arc::new(Own { host, driver, registered, directory: directory_of, access, common });
        let here = Whereabouts::Here { own: Arc::downgrade(&own), addr, key: None };
        directory.insert(id, here);
        drop(directory);
        drop(before);
        if config.admission == Admission::Met {
            self.acquaint(&own);
        }
        Ok(Arc::new(TcpEndpoint { own }))
    }

    /// Reaches this process: the peer is revoked at all its endpoints, those included that join
    /// later, and their queue pairs to it end. Blocks for a chain. [`TcpFabric::introduce`] makes a
    /// peer that was fenced one that can be connected to again: introduce its next incarnation, not
    /// the one that was fenced.
    fn fence(&self, peer: PeerId) -> Result<Reach, FabricError> {
        let mut met = self.common.met.lock();
        met.remove(&peer);
        if let Some(whereabouts @ Whereabouts::There { .. }) = self.directory.write().get_mut(&peer)
        {
            *whereabouts = Whereabouts::Fenced;
        }
        let own = self.own(peer);
        // From here to its end nobody is admitted anywhere: an endpoint that joins now asks it
        // first.
        let mut fenced = self.common.fenced.lock();
        let here = self.here();
        let mut known: Vec<_> = own.iter().map(|own| own.host.incarnation()).collect();
        let (mut connections, mut links) = (Vec::new(), Vec::new());
        for other in &here {
            let mut guests = other.host.guests();
            known.extend(guests.known(peer));
            connections.extend(guests.dismiss(peer));
            links.extend(other.driver.links_to(peer));
        }
        fenced.add(peer, &known);
        drop(fenced);
        drop(met);
        // Not under locks: what follows calls wakers, which may fence as well.
        if let Some(own) = &own {
            own.leave();
        }
        connections.iter().for_each(|connection| connection.close());
        links.iter().for_each(|link| link.end(FabricError::PeerDead { peer }));
        Ok(Reach::ThisProcess)
    }

    fn meet(
        &self,
        peer: PeerId,
        card: &str,
        within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        let Card { addr, key } = Card::parse(peer, card)?;
        let mut invitation = Invitation::new(key);
        if let Some(domain) = within {
            invitation = invitation.within(Arc::clone(domain));
        }
        // Dropped after the lock is, as they may be the last, whose end wakes tasks.
        let (here, before);
        let mut met = self.common.met.lock();
        // By contract it is another process's now, whatever had the name here.
        before = self.directory.write().insert(peer, Whereabouts::There { addr, key: None });
        met.insert(peer, invitation.clone());
        here = self.here();
        here.iter().for_each(|own| own.host.invite(peer, invitation.clone()));
        drop(met);
        if let Some(Whereabouts::Here { own, .. }) = before
            && let Some(own) = own.upgrade()
        {
            own.leave();
        }
        Ok(())
    }

    fn forget(&self, peer: PeerId) -> bool {
        let here;
        let mut met = self.common.met.lock();
        met.remove(&peer);
        let mut directory = self.directory.write();
        if matches!(directory.get(&peer), Some(Whereabouts::There { .. })) {
            directory.remove(&peer);
        }
        drop(directory);
        here = self.here();
        here.iter().for_each(|own| own.host.uninvite(peer));
        drop(met);
        true
    }
}

/// What a card says.
struct Card {
    addr: SocketAddr,
    key: AccessKey,
}

impl Card {
    fn parse(peer: PeerId, text: &str) -> Result<Self, FabricError> {
        let card = || {
            let (addr, key) = text.split_once(' ')?;
            Some(Self { addr: addr.parse().ok()?, key: AccessKey::parse(key).ok()? })
        };
        // The text is not repeated: it may hold a key.
        card().ok_or(FabricError::Network { peer, what: "its card is not `ADDRESS KEY`".into() })
    }

    fn text(&self) -> String {
        format!("{} {}", self.addr, self.key.to_text())
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
pub(super) struct Own {
    host: Arc<Host>,
    driver: Arc<Driver>,
    /// Regions registered; its lock orders registrations.
    registered: Mutex<u32>,
    directory: Arc<Directory>,
    /// What it shows where it was [met](Fabric::meet).
    access: AccessKey,
    common: Arc<Common>,
}

impl Own {
    fn leave(&self) {
        self.host.close();
        self.driver.stop(FabricError::PeerDead { peer: self.host.id() });
    }

    /// Begins to connect to `peer`, unless it is known to be dead.
    fn connect(&self, peer: PeerId) -> Result<Arc<Link>, FabricError> {
        let config = self.driver.config();
        let mut hello = Hello {
            version: VERSION,
            keepalive_ms: config.keepalive_ms(),
            pool: config.pool,
            from: self.host.id(),
            to: peer,
            incarnation: self.host.incarnation(),
            key: None,
        };
        // Locked until the link is there: a fence behind it finds and ends it.
        let directory = self.directory.read();
        let mut target = None;
        let place = match directory.get(&peer) {
            None => Err(FabricError::UnknownPeer { peer }),
            Some(Whereabouts::Fenced) => Err(FabricError::PeerDead { peer }),
            Some(Whereabouts::There { addr, key }) => Ok((*addr, *key)),
            Some(Whereabouts::Here { own, addr, key }) => {
                target = own.upgrade();
                match &target {
                    Some(own) if !own.host.node().is_dead() => Ok((*addr, *key)),
                    _ => Err(FabricError::PeerDead { peer }),
                }
            }
        };
        let link = place.and_then(|(addr, key)| {
            let own = (self.common.config.admission == Admission::Met).then_some(self.access);
            hello.key = key.or(own);
            self.driver.connect(peer, addr, hello.encode())
        });
        drop(directory);
        // Not under the lock: it may be the last.
        drop(target);
        link
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

    fn card(&self) -> Option<String> {
        let config = &self.own.common.config;
        let listens = self.own.host.listen_addr();
        let ip = config.advertise.unwrap_or(listens.ip());
        let addr = SocketAddr::new(ip, listens.port());
        let card = Card { addr, key: self.own.access };
        (config.admission == Admission::Met).then(|| card.text())
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
        self.own.host.node().check_alive()?;
        let link = self.own.connect(peer)?;
        Ok(Arc::new(TcpQueuePair::new(Arc::clone(&self.own), link)))
    }
}
