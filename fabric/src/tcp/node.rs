//! A node of this process: its server, its driver, and what the process knows of where peers are.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use rustix::rand::{GetRandomFlags, getrandom};

use super::client::driver::Driver;
use super::client::link::Link;
use super::config::Admission;
use super::process::ProcessState;
use super::security::key::AccessKey;
use super::server::host::Host;
use super::wire::hello::{Hello, SessionHello, VERSION};
use crate::error::FabricError;
use crate::id::PeerId;

/// Where peers are, by name.
pub(super) type Directory = RwLock<HashMap<PeerId, PeerLocation>>;

/// Where one peer is.
pub(super) enum PeerLocation {
    /// In this process; gone when the node is gone.
    Local { node: Weak<TcpNode>, addr: SocketAddr, key: Option<AccessKey> },
    /// In another process.
    Remote { addr: SocketAddr, key: Option<AccessKey> },
    /// It was in another process, and was fenced.
    Fenced,
}

/// A node of this process. It leaves when its endpoint and its queue pairs are gone.
pub(super) struct TcpNode {
    pub(super) host: Arc<Host>,
    pub(super) driver: Arc<Driver>,
    /// Count of registered regions. Its lock orders registrations.
    pub(super) registered: Mutex<u32>,
    pub(super) directory: Arc<Directory>,
    /// The key of its access card, which it shows when it connects.
    pub(super) access: AccessKey,
    pub(super) process: Arc<ProcessState>,
}

impl TcpNode {
    /// Closes all connections of the node, in both directions.
    pub(super) fn leave(&self) {
        self.host.close();
        self.driver.stop(FabricError::PeerDead { peer: self.host.id() });
    }

    /// Begins to connect to `peer`, unless it is known to be dead.
    pub(super) fn connect(&self, peer: PeerId) -> Result<Arc<Link>, FabricError> {
        let config = self.driver.config();
        let mut hello = Hello {
            version: VERSION,
            keepalive_ms: config.keepalive_ms(),
            pool: config.pool,
            from: self.host.id(),
            to: peer,
            incarnation: self.host.incarnation(),
            key: None,
            session: SessionHello {
                id: random_bits(peer)?.max(1),
                received: 0,
                attempt: 1,
                resumes: false,
            },
        };
        // Locked until the link exists: a fence that waits for the lock then finds and ends it.
        let directory = self.directory.read();
        let mut target = None;
        let address = match directory.get(&peer) {
            None => Err(FabricError::UnknownPeer { peer }),
            Some(PeerLocation::Fenced) => Err(FabricError::PeerDead { peer }),
            Some(PeerLocation::Remote { addr, key }) => Ok((*addr, *key)),
            Some(PeerLocation::Local { node, addr, key }) => {
                target = node.upgrade();
                match &target {
                    Some(node) if !node.host.node().is_dead() => Ok((*addr, *key)),
                    _ => Err(FabricError::PeerDead { peer }),
                }
            }
        };
        let link = address.and_then(|(addr, key)| {
            let own = (self.process.config.admission == Admission::ByCard).then_some(self.access);
            hello.key = key.or(own);
            self.driver.connect(peer, addr, hello)
        });
        drop(directory);
        // Dropped without the lock: this may be the last reference to the node.
        drop(target);
        link
    }
}

impl Drop for TcpNode {
    fn drop(&mut self) {
        self.leave();
    }
}

/// 64 random bits of the operating system.
pub(super) fn random_bits(peer: PeerId) -> Result<u64, FabricError> {
    let mut bytes = [0; 8];
    let failed =
        |what: &dyn Display| FabricError::Network { peer, what: format!("no randomness: {what}") };
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(u64::from_le_bytes(bytes)),
        Ok(count) => Err(failed(&format_args!("{count} bytes"))),
        Err(error) => Err(failed(&error)),
    }
}
