//! A pool that several processes share: made, joined, opened, looked at.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::process::getuid;

use crate::fabric::shm::ShmFabric;
use crate::fabric::tcp::Security;
use crate::fabric::{BoxFuture, Env, Fabric, PeerId, Role};
use crate::memnode::{
    Capacity, MemoryServer,
    monitor::{HostMemory, MonitorConfig},
};
use crate::pool::control::{
    self, Connect, ControlError, ControlPlane, Expectation, FilePlane, Identity, PoolState,
    RELAY_MAGIC, Relay, RemotePlane, Timing, Token, host_number,
};
use crate::pool::{self, Pool, PoolConfig, PoolError, Residency};
use crate::report;

use super::arrivals::Arrivals;
use super::credentials::{self, Credentials};
use super::error::SharedPoolError;
use super::network::{FabricKind, Network};
use super::url::{HostPort, Place, PoolName};

/// The file system for shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The fabric on which the nodes of a pool meet, and the pool as this process sees it.
pub type OpenedPool = (Arc<dyn Fabric>, Arc<Pool>);

/// A pool that processes share. The value names a pool, which may or may not exist.
pub struct SharedPool {
    pub(super) place: Place,
    pub(super) plane: Arc<dyn ControlPlane>,
    credentials: Credentials,
}

impl SharedPool {
    /// Names the pool at a place; a pool on this host is the calling user's. It does no I/O yet.
    /// `credentials` are for the nodes of the pool, on TCP.
    ///
    /// # Errors
    /// If this build knows no etcd, or the system refuses a thread.
    pub fn at(place: &Place, credentials: impl Into<Credentials>) -> Result<Self, SharedPoolError> {
        let credentials = credentials.into();
        let plane: Arc<dyn ControlPlane> = match place {
            Place::Host { name, .. } => Arc::new(FilePlane::at(directory_of(name))),
            Place::Relays(hosts) => {
                let endpoints: Vec<&str> = hosts.iter().map(HostPort::as_str).collect();
                Arc::new(remote(&endpoints, Expectation::default(), &credentials)?)
            }
            #[cfg(feature = "etcd")]
            Place::Etcd { endpoints, name } => {
                let endpoints: Vec<String> =
                    endpoints.iter().map(|endpoint| format!("http://{endpoint}")).collect();
                Arc::new(pool::control::EtcdPlane::at(&endpoints, name.as_str())?)
            }
            #[cfg(not(feature = "etcd"))]
            Place::Etcd { .. } => return Err(SharedPoolError::NoEtcd),
        };
        Ok(Self { place: place.clone(), plane, credentials })
    }

    /// The names of the pools that the calling user has made on this host, in order.
    ///
    /// # Errors
    /// If the file system of shared memory cannot be looked at.
    pub fn names_on_this_host() -> io::Result<Vec<PoolName>> {
        let own = format!("selkie-{}-", getuid().as_raw());
        let name = |file: &OsStr| file.to_str()?.strip_prefix(&own)?.parse::<PoolName>().ok();
        let entries = std::fs::read_dir(SHARED_MEMORY)?.filter_map(Result::ok);
        let pools = entries.filter(|entry| entry.path().join(control::STATE_FILE).exists());
        let mut names: Vec<_> = pools.filter_map(|entry| name(&entry.file_name())).collect();
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        Ok(names)
    }

    /// Its control plane.
    #[must_use]
    pub fn plane(&self) -> &dyn ControlPlane {
        &*self.plane
    }

    /// The state of the pool.
    ///
    /// # Errors
    /// If there is no such pool, or it cannot be looked at.
    pub async fn load(&self) -> Result<Arc<PoolState>, SharedPoolError> {
        self.plane.load().await.map(|now| now.state).map_err(|error| self.explain(error))
    }

    /// The document of the pool that had this id.
    ///
    /// # Errors
    /// [`SharedPoolError::Destroyed`] if it is there no more, though another of its name may be.
    pub async fn load_again(&self, id: u64) -> Result<Arc<PoolState>, SharedPoolError> {
        match self.plane.load().await {
            Ok(now) if now.state.id == id => Ok(now.state),
            Ok(_) | Err(ControlError::NoPool { .. }) => Err(SharedPoolError::Destroyed),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// When a pool that lies in files of this host was made.
    #[must_use]
    pub fn made_at(&self) -> Option<SystemTime> {
        let Place::Host { name, .. } = &self.place else { return None };
        // It is made with the pool, and nothing is ever written to it.
        directory_of(name).join(control::LOCK_FILE).metadata().ok()?.modified().ok()
    }

    /// Makes the pool. `config.bytes_per_node` is only checked: each memory node says itself what
    /// it lends. A pool over TCP gets a token, which memory nodes ask for before they relay
    /// requests on connections that are not secured, unless it `trusts_network`. Returns the file
    /// with the token, in a directory of the calling user.
    ///
    /// # Errors
    /// If there is one, a field is out of range, the token cannot be written, or pools are not made
    /// at such places.
    pub fn create<'a>(
        &'a self,
        env: &'a Env,
        fabric: FabricKind,
        config: &'a PoolConfig,
        timing: Timing,
        trusts_network: bool,
    ) -> BoxFuture<'a, Result<Option<PathBuf>, SharedPoolError>> {
        Box::pin(async move {
            let name = match &self.place {
                Place::Host { name, .. } | Place::Etcd { name, .. } => name.as_str(),
                Place::Relays(_) => "",
            };
            self.check_kind(fabric)?;
            let identity = Identity { name, id: random(env), fabric: fabric.name() };
            let has_token = fabric.is_network() && !trusts_network;
            let token = has_token.then(Token::random).transpose();
            let token = token.map_err(|error| {
                let path = self.directory().unwrap_or_default();
                SharedPoolError::Token { path, why: error.to_string() }
            })?;
            let verifier = token.as_ref().map(Token::verifier);
            let made = pool::create_with_token(&*self.plane, identity, config, timing, verifier);
            made.await.map_err(|error| self.explain(error))?;
            let (Some(token), Some(directory)) = (token, self.directory()) else {
                return Ok(None);
            };
            match credentials::write_token(&directory, &token) {
                Ok(path) => Ok(Some(path)),
                Err(error) => {
                    // Without the token no process could use it.
                    self.plane.destroy().await?;
                    Err(error)
                }
            }
        })
    }

    /// Joins the pool as a memory node, which lends the offered memory for as long as the returned
    /// value lives. On TCP it also relays requests of other hosts to the pool's control plane.
    /// Blocks the calling thread while the memory is populated, about a second for each GiB.
    ///
    /// # Errors
    /// If there is no such pool, all its memory nodes have joined, it has another fabric than
    /// `expected`, the host has not so much memory, or the pool is destroyed meanwhile.
    pub fn lend<'a>(
        &'a self,
        env: &'a Env,
        offer: impl Into<Capacity>,
        expected: Option<FabricKind>,
        network: &'a Network,
    ) -> BoxFuture<'a, Result<Arc<MemoryServer>, SharedPoolError>> {
        let offer = offer.into();
        Box::pin(async move {
            let state = self.load().await?;
            let lent = self.lend_to(&state, env, offer, expected, network).await;
            self.unless_destroyed(&state, lent).await
        })
    }

    fn lend_to<'a>(
        &'a self,
        state: &'a PoolState,
        env: &'a Env,
        offer: Capacity,
        expected: Option<FabricKind>,
        network: &'a Network,
    ) -> BoxFuture<'a, Result<Arc<MemoryServer>, SharedPoolError>> {
        Box::pin(async move {
            let kind = self.kind_of(state)?;
            self.check_memory(env, state).await?;
            if let Some(expected) = expected.filter(|expected| *expected != kind) {
                let (pool, asked) = (kind.name().to_owned(), expected.name().to_owned());
                return Err(PoolError::OtherFabric { pool, asked }.into());
            }
            let fabric: Arc<dyn Fabric> = match kind {
                FabricKind::Shm => {
                    network.check_absent(self.credentials.are_given())?;
                    self.shm(state)?
                }
                FabricKind::Tcp | FabricKind::Verbs => {
                    self.credentials.check_role("to lend memory", &[Role::Memory])?;
                    self.check_trust(state).await?;
                    let (fabric, tcp) = network.open(kind, state, self.security(), env)?;
                    let relay = Relay::new(Arc::clone(&self.plane), &state.name)?;
                    let serve = move |stream, from| {
                        if let Err(error) = relay.serve(stream) {
                            tracing::warn!(%from, %error, "a connection to the control plane ends");
                        }
                    };
                    tcp.serve_protocol(RELAY_MAGIC, Arc::new(serve));
                    fabric
                }
            };
            let (plane, headroom) = (Arc::clone(&self.plane), offer.headroom);
            let lent = MemoryServer::join(&fabric, plane, env, self.host(env), offer).await?;
            lent.follow(env);
            if let Some(headroom) = headroom {
                lent.start_monitor(env, MonitorConfig::new(headroom, HostMemory::default()));
            }
            report::publish_memory(&lent, env);
            Ok(lent)
        })
    }

    /// Opens the pool as soon as all its memory nodes have joined; the process can then start
    /// compute nodes in it. [`report::publish`] publishes reports of these nodes.
    ///
    /// # Errors
    /// If there is no such pool, memory nodes are still missing after half a minute, one is dead,
    /// or the pool is destroyed meanwhile.
    pub fn open<'a>(
        &'a self,
        env: &'a Env,
        network: &'a Network,
    ) -> BoxFuture<'a, Result<OpenedPool, SharedPoolError>> {
        Box::pin(async move {
            let state = self.load().await?;
            let opened = self.open_in(&state, env, network).await;
            self.unless_destroyed(&state, opened).await
        })
    }

    fn open_in<'a>(
        &'a self,
        state: &'a PoolState,
        env: &'a Env,
        network: &'a Network,
    ) -> BoxFuture<'a, Result<OpenedPool, SharedPoolError>> {
        Box::pin(async move {
            let started = env.now();
            let kind = self.kind_of(state)?;
            let shm = match kind {
                FabricKind::Shm => {
                    network.check_absent(self.credentials.are_given())?;
                    Some(self.shm(state)?)
                }
                FabricKind::Tcp | FabricKind::Verbs => {
                    let allowed = &[Role::Compute, Role::Reader];
                    self.credentials.check_role("to run a compute node", allowed)?;
                    None
                }
            };
            let fabric: Arc<dyn Fabric> = match &shm {
                Some(shm) => Arc::clone(shm) as Arc<dyn Fabric>,
                None => network.open(kind, state, self.security(), env)?.0,
            };
            self.check_memory(env, state).await?;
            let mut arrivals = Arrivals::new(started);
            let pool = loop {
                let (fabric, plane) = (Arc::clone(&fabric), Arc::clone(&self.plane));
                match Pool::open(fabric, plane, self.host(env)).await {
                    Err(PoolError::Incomplete { joined, nodes })
                        if arrivals.are_awaited((joined, nodes), env.now(), &self.place) =>
                    {
                        env.sleep(self.plane.pace()).await;
                    }
                    Err(PoolError::Incomplete { joined, nodes }) => {
                        let place = self.place.to_string();
                        return Err(SharedPoolError::Incomplete { place, joined, nodes });
                    }
                    opened => break opened?,
                }
            };
            let state = pool.state();
            for (node, member) in state.memory_nodes.iter().flatten().enumerate() {
                // The data of a node that left is elsewhere, and a coded pool repairs that of a
                // node that died.
                if member.stay == Residency::Left || !state.coding.is_plain() {
                    continue;
                }
                let lives = match &shm {
                    Some(shm) => shm.lives(member.descriptor.peer)?,
                    None => !member.dead,
                };
                if !lives {
                    return Err(SharedPoolError::MemoryLost { node });
                }
            }
            if shm.is_none() {
                self.check_trust(&pool.state()).await?;
            }
            pool.follow(env);
            Ok((fabric, pool))
        })
    }

    /// Checks whether this process and the live memory nodes trust each other, before it changes
    /// anything in the pool that others would have to clean up: all nodes of a pool secure their
    /// connections, or none. A node that does not answer is skipped.
    async fn check_trust(&self, state: &PoolState) -> Result<(), SharedPoolError> {
        let living = self.living().await?;
        for member in state.memory_nodes.iter().flatten() {
            let peer = member.descriptor.peer;
            let card = state.cards.get(&peer.to_raw()).filter(|_| living.contains(&peer));
            let Some((address, _)) = card.and_then(|card| card.card.split_once(' ')) else {
                continue;
            };
            let same = Expectation { name: None, id: Some(state.id) };
            let relay = remote(&[address], same, &self.credentials)?;
            if let Err(error @ ControlError::Refused { .. }) = relay.load().await {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Returns the nodes that live: by their segments in shared memory, else by their beats.
    ///
    /// # Errors
    /// If there is no such pool, or it cannot be looked at.
    pub fn living(&self) -> BoxFuture<'_, Result<Vec<PeerId>, SharedPoolError>> {
        Box::pin(async move {
            let state = self.load().await?;
            let memory = state.memory_nodes.iter().flatten().filter(|node| !node.dead);
            let memory = memory.map(|node| node.descriptor.peer);
            let compute = state.compute_nodes.keys().map(|index| PeerId::compute(*index));
            let nodes = memory.chain(compute);
            let mut living = Vec::new();
            if self.kind_of(&state)?.is_network() {
                let beats = self.plane.beats().await?;
                let is_fresh = |peer: &PeerId| {
                    beats.iter().any(|(beat, age)| beat.node == *peer && *age <= state.timing.lease)
                };
                living.extend(nodes.filter(is_fresh));
                return Ok(living);
            }
            let shm = self.shm(&state)?;
            for peer in nodes {
                if shm.lives(peer)? {
                    living.push(peer);
                }
            }
            Ok(living)
        })
    }

    fn security(&self) -> Option<Arc<Security>> {
        self.credentials.security.clone()
    }

    /// The number of a new member of the pool, of its certificate if it has one.
    fn host(&self, env: &Env) -> u64 {
        let shown = self.credentials.security.as_ref().and_then(|own| own.certificate());
        let number = random(env);
        shown.map_or(number, |shown| host_number(&shown, number))
    }

    /// What a pool that was made here has on this host.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Host { name, .. } | Place::Etcd { name, .. } => Some(directory_of(name)),
            Place::Relays(_) => None,
        }
    }

    pub(super) fn kind_of(&self, state: &PoolState) -> Result<FabricKind, SharedPoolError> {
        let kind = state.fabric.parse().map_err(|_| {
            let place = self.place.to_string();
            SharedPoolError::UnknownFabric { place, fabric: state.fabric.clone() }
        })?;
        self.check_kind(kind)?;
        Ok(kind)
    }

    fn check_kind(&self, kind: FabricKind) -> Result<(), SharedPoolError> {
        match (&self.place, kind) {
            (Place::Host { is_shm: true, .. }, kind) if kind.is_network() => {
                let (pool, asked) = (kind.name().to_owned(), "shm".to_owned());
                Err(PoolError::OtherFabric { pool, asked }.into())
            }
            _ => Ok(()),
        }
    }

    /// Opens the fabric of a pool that exists. It creates nothing.
    pub(super) fn shm(&self, state: &PoolState) -> Result<Arc<ShmFabric>, SharedPoolError> {
        let name: PoolName = match &self.place {
            Place::Host { name, .. } | Place::Etcd { name, .. } => name.clone(),
            Place::Relays(_) => state.name.parse().map_err(|_| SharedPoolError::UnknownFabric {
                place: self.place.to_string(),
                fabric: format!("shm of pool {:?}", state.name),
            })?,
        };
        Ok(ShmFabric::open(directory_of(&name))?)
    }
}

/// The control plane behind relays.
fn remote(
    endpoints: &[&str],
    pool: Expectation,
    credentials: &Credentials,
) -> Result<RemotePlane, PoolError> {
    let connect: Connect = match credentials.security.clone() {
        Some(security) => Arc::new(move |_, address, limit| security.connect(address, limit)),
        None => control::plain_connect(),
    };
    RemotePlane::over(endpoints, pool, connect, credentials.find_token(directory_of))
}

/// The directory of a pool of the calling user.
fn directory_of(name: &PoolName) -> PathBuf {
    PathBuf::from(format!("{SHARED_MEMORY}/selkie-{}-{name}", getuid().as_raw()))
}

/// A random number that is not 0, which stands for a pool within one process.
fn random(env: &Env) -> u64 {
    let process = u64::from(std::process::id());
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = time.map_or(0, |time| time.as_nanos() as u64);
    (env.random_u64() ^ nanoseconds.rotate_left(17) ^ process.rotate_left(40)).max(1)
}
