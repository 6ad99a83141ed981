//! The access card of a node: its address and the key by which other processes let it in.

use std::net::SocketAddr;

use super::key::AccessKey;
use crate::error::FabricError;
use crate::id::PeerId;

/// The credentials of one node. As text: `ADDRESS KEY`.
pub(crate) struct AccessCard {
    /// Where the node listens.
    pub(crate) addr: SocketAddr,
    /// What the node shows when it connects.
    pub(crate) key: AccessKey,
}

impl AccessCard {
    /// The card of `peer` from its text.
    pub(crate) fn parse(peer: PeerId, text: &str) -> Result<Self, FabricError> {
        let card = || {
            let (addr, key) = text.split_once(' ')?;
            Some(Self { addr: addr.parse().ok()?, key: AccessKey::parse(key).ok()? })
        };
        // The error does not repeat the text: it may hold a key.
        card().ok_or(FabricError::Network { peer, what: "its card is not `ADDRESS KEY`".into() })
    }

    /// The text that [`AccessCard::parse`] reads.
    pub(crate) fn to_text(&self) -> String {
        format!("{} {}", self.addr, self.key.to_text())
    }
}
