//! `TcpFabric` and its endpoints.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::client::driver::Driver;
use super::config::{Admission, TcpConfig};
use super::endpoint::TcpEndpoint;
use super::node::{Directory, PeerLocation, TcpNode, random_bits};
use super::process::ProcessState;
use super::security::access_card::AccessCard;
use super::security::key::AccessKey;
use super::server::admissions::Invitation;
use super::server::host::{BadConnections, Host};
use super::server::port_mux::ProtocolHandler;
use super::server::setup::SetupService;
use crate::api::{Endpoint, Fabric, FenceScope};
use crate::domain::Domain;
use crate::env::Env;
use crate::error::FabricError;
use crate::id::PeerId;

/// A fabric between processes and machines, over TCP. See the module.
pub struct TcpFabric {
    process: Arc<ProcessState>,
    directory: Arc<Directory>,
}

impl TcpFabric {
    /// A fabric without nodes that knows no peers.
    pub fn new(config: TcpConfig, env: Env) -> Arc<Self> {
        let process = Arc::new(ProcessState::new(config, env));
        Arc::new(Self { process, directory: Arc::default() })
    }

    /// Says that `peer` listens at `addr` and gave this process `key` to show there. This holds for
    /// connections that are made from now on. Of an endpoint of this process only the key changes:
    /// its address is known. A peer that was fenced counts as a new incarnation from now on.
    pub fn introduce(&self, peer: PeerId, addr: SocketAddr, key: Option<AccessKey>) {
        let mut directory = self.directory.write();
        let local = match directory.get_mut(&peer) {
            Some(PeerLocation::Local { node, key: known, .. }) => {
                *known = key;
                node.upgrade()
            }
            _ => None,
        };
        if local.as_ref().is_none_or(|node| node.host.node().is_dead()) {
            directory.insert(peer, PeerLocation::Remote { addr, key });
        }
        drop(directory);
        // Dropped without the lock: this may be the last reference to the node.
        drop(local);
    }

    /// Where an endpoint of this process listens.
    pub fn listen_addr(&self, peer: PeerId) -> Option<SocketAddr> {
        self.local(peer).map(|node| node.host.listen_addr())
    }

    /// Invites `guest` to the endpoint `at` of this process. With [`Admission::Invited`] the
    /// endpoint then admits the guest if it shows the key of the invitation, and lets it do what
    /// the domain of the invitation allows, by default everything. An invitation replaces an
    /// earlier one that differs, and closes the connections of the earlier one. The same invitation
    /// again changes nothing. An incarnation that was revoked or fenced stays out: invite its
    /// successor by another key.
    ///
    /// # Errors
    /// `UnknownPeer` if no such endpoint lives in this process.
    pub fn invite(
        &self,
        at: PeerId,
        guest: PeerId,
        invitation: impl Into<Invitation>,
    ) -> Result<(), FabricError> {
        let node = self.local(at).ok_or(FabricError::UnknownPeer { peer: at })?;
        node.host.invite(guest, invitation.into());
        Ok(())
    }

    /// Withdraws the invitation of `guest` to the endpoint `at` of this process, and closes its
    /// connections there. Once this returns, no verb of the guest executes there until it is
    /// admitted again. Blocks for the duration of a chain. Does nothing if there is no such
    /// endpoint.
    pub fn uninvite(&self, at: PeerId, guest: PeerId) {
        if let Some(at) = self.local(at) {
            at.host.uninvite(guest);
        }
    }

    /// Declares an endpoint of this process dead: it stops listening, its connections are closed,
    /// and every outstanding and later operation to it or from it ends with `PeerDead`. Once this
    /// returns, no verb changes its memory, and it changes no memory of the other endpoints of this
    /// process. Blocks for a chain or two. Does nothing if there is no such endpoint.
    pub fn kill(&self, peer: PeerId) {
        let Some(node) = self.local(peer) else { return };
        node.leave();
        for other in self.local_nodes() {
            other.host.revoke(peer, Some(node.host.incarnation()));
        }
    }

    /// Closes all connections from the peer `of` to the endpoint `at` of this process, refuses new
    /// ones of the same incarnation of `of`, and withdraws its invitation. Once this returns, no
    /// verb of `of` executes there. Blocks for the duration of a chain. Does nothing if there is no
    /// such endpoint.
    ///
    /// If `of` never connected to `at`, the first incarnation that connects is refused.
    pub fn revoke(&self, at: PeerId, of: PeerId) {
        if let Some(at) = self.local(at) {
            let known = self.local(of).map(|node| node.host.incarnation());
            at.host.revoke(of, known);
        }
    }

    /// Serves another protocol on the ports of this process. `handler` gets every connection whose
    /// first 8 bytes, little-endian, are `magic`, unless that is the magic of the fabric's own
    /// hello. It gets the stream behind those bytes, with TLS if the fabric's connections have it,
    /// blocking and without time limits, on a thread of its own. The endpoint shuts the stream down
    /// when it leaves; the handler should return then. No key is asked for. Until the handler lets
    /// the other side in ([`Stream::let_in`](crate::Stream::let_in)) the connection may have to
    /// make room for any other; then it has one of [`MAX_FOREIGN_CONNECTIONS`] places of its
    /// endpoint, of which one that waits in a read makes room. Replaces an earlier handler of the
    /// same magic.
    ///
    /// The fabric keeps the handler: a handler that needs the fabric has to hold it weakly.
    ///
    /// [`MAX_FOREIGN_CONNECTIONS`]: super::MAX_FOREIGN_CONNECTIONS
    pub fn serve_protocol(&self, magic: u64, handler: ProtocolHandler) {
        self.process.handlers.set(magic, handler);
    }

    /// How many connections an endpoint of this process closed because of bad bytes.
    pub fn bad_connections(&self, at: PeerId) -> BadConnections {
        self.local(at).map(|node| node.host.bad_connections()).unwrap_or_default()
    }

    /// The nodes of this process.
    fn local_nodes(&self) -> Vec<Arc<TcpNode>> {
        let directory = self.directory.read();
        let nodes = directory.values().filter_map(|location| match location {
            PeerLocation::Local { node, .. } => node.upgrade(),
            PeerLocation::Remote { .. } | PeerLocation::Fenced => None,
        });
        nodes.collect()
    }

    /// The node `peer` of this process.
    fn local(&self, peer: PeerId) -> Option<Arc<TcpNode>> {
        match self.directory.read().get(&peer) {
            Some(PeerLocation::Local { node, .. }) => node.upgrade(),
            _ => None,
        }
    }

    /// Lets the new node `own` and the other nodes of this process admit each other, and lets
    /// `own` admit the peers whose access cards are known.
    fn admit_known_peers(&self, own: &Arc<TcpNode>) {
        let id = own.host.id();
        let others;
        let cards = self.process.cards.lock();
        others = self.local_nodes();
        for other in &others {
            other.host.invite(id, own.access.into());
            own.host.invite(other.host.id(), other.access.into());
        }
        for (peer, invitation) in &*cards {
            own.host.invite(*peer, invitation.clone());
        }
    }
}

impl TcpFabric {
    /// As [`Fabric::join`], for a node that sets something up for its guests.
    pub(crate) fn join_as(
        &self,
        id: PeerId,
        setup: Option<Arc<dyn SetupService>>,
    ) -> Result<Arc<TcpEndpoint>, FabricError> {
        let failed = |what: String| FabricError::Network { peer: id, what };
        let mut directory = self.directory.write();
        let before = match directory.get(&id) {
            Some(PeerLocation::Local { node, .. }) => node.upgrade(),
            _ => None,
        };
        if before.as_ref().is_some_and(|node| !node.host.node().is_dead()) {
            drop(directory);
            return Err(FabricError::AlreadyJoined { peer: id });
        }
        let (config, env) = (&self.process.config, &self.process.env);
        let incarnation = random_bits(id)?.max(1);
        let host = Host::listen(id, incarnation, Arc::clone(&self.process), setup)
            .map_err(|error| failed(format!("cannot listen at {}: {error}", config.listen)))?;
        let addr = reachable(host.listen_addr());
        let driver = Driver::start(Arc::clone(&host), config.clone(), env.clone())
            .map_err(|error| failed(format!("no driver: {error}")))?;
        let access = AccessKey::random()
            .map_err(|error| failed(format!("no randomness for a key: {error}")))?;
        let node = Arc::new(TcpNode {
            host,
            driver,
            registered: Mutex::new(0),
            directory: Arc::clone(&self.directory),
            access,
            process: Arc::clone(&self.process),
        });
        let location = PeerLocation::Local { node: Arc::downgrade(&node), addr, key: None };
        directory.insert(id, location);
        drop(directory);
        drop(before);
        if config.admission == Admission::ByCard {
            self.admit_known_peers(&node);
        }
        Ok(Arc::new(TcpEndpoint::new(node)))
    }
}

impl Fabric for TcpFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        Ok(self.join_as(id, None)?)
    }

    /// Holds in this process: the peer is revoked at all endpoints of the process, also at those
    /// that join later, and their queue pairs to it end. Blocks for the duration of a chain. After
    /// [`TcpFabric::introduce`] nodes can connect to that name again: introduce the successor, not
    /// the incarnation that was fenced.
    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        let mut cards = self.process.cards.lock();
        cards.remove(&peer);
        if let Some(location @ PeerLocation::Remote { .. }) = self.directory.write().get_mut(&peer)
        {
            *location = PeerLocation::Fenced;
        }
        let local = self.local(peer);
        // No endpoint admits a connection while this is locked: also one that joins now asks it
        // first.
        let mut fenced = self.process.fenced.lock();
        let nodes = self.local_nodes();
        let mut known: Vec<_> = local.iter().map(|node| node.host.incarnation()).collect();
        let (mut sessions, mut links) = (Vec::new(), Vec::new());
        for node in &nodes {
            let mut admissions = node.host.admissions();
            known.extend(admissions.known(peer));
            sessions.extend(admissions.dismiss(peer));
            links.extend(node.driver.links_to(peer));
        }
        fenced.add(peer, &known);
        drop(fenced);
        drop(cards);
        // Without locks: what follows calls wakers, and a waker may fence as well.
        if let Some(node) = &local {
            node.leave();
        }
        sessions.iter().for_each(|session| session.close());
        links.iter().for_each(|link| link.end(FabricError::PeerDead { peer }));
        Ok(FenceScope::ThisProcess)
    }

    fn add_peer(
        &self,
        peer: PeerId,
        card: &str,
        within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        let AccessCard { addr, key } = AccessCard::parse(peer, card)?;
        let mut invitation = Invitation::by_hash(key);
        if let Some(domain) = within {
            invitation = invitation.within(Arc::clone(domain));
        }
        // Dropped after the lock: they may be the last references, and their drop wakes tasks.
        let (nodes, before);
        let mut cards = self.process.cards.lock();
        // By contract the name belongs to another process now, also if a local node had it.
        before = self.directory.write().insert(peer, PeerLocation::Remote { addr, key: None });
        cards.insert(peer, invitation.clone());
        nodes = self.local_nodes();
        nodes.iter().for_each(|node| node.host.invite(peer, invitation.clone()));
        drop(cards);
        if let Some(PeerLocation::Local { node, .. }) = before
            && let Some(node) = node.upgrade()
        {
            node.leave();
        }
        Ok(())
    }

    fn remove_peer(&self, peer: PeerId) -> bool {
        let nodes;
        let mut cards = self.process.cards.lock();
        cards.remove(&peer);
        let mut directory = self.directory.write();
        if matches!(directory.get(&peer), Some(PeerLocation::Remote { .. })) {
            directory.remove(&peer);
        }
        drop(directory);
        nodes = self.local_nodes();
        nodes.iter().for_each(|node| node.host.uninvite(peer));
        drop(cards);
        true
    }
}

/// The address by which this process reaches a listener at `addr`.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}
