//! The access card of a node: its address, and the hash of the key that it shows. A card is no
//! secret: what is made of it knows the key when it sees it, and cannot show it.

use std::net::SocketAddr;

use super::key::KeyHash;
use crate::error::FabricError;
use crate::id::PeerId;

/// The card of one node. As text: `ADDRESS HASH`.
pub(crate) struct AccessCard {
    /// Where the node listens.
    pub(crate) addr: SocketAddr,
    /// Of the key that the node shows when it connects.
    pub(crate) key: KeyHash,
}

impl AccessCard {
    /// The card of `peer` from its text.
    pub(crate) fn parse(peer: PeerId, text: &str) -> Result<Self, FabricError> {
        let card = || {
            let (addr, key) = text.split_once(' ')?;
            Some(Self { addr: addr.parse().ok()?, key: KeyHash::parse(key).ok()? })
        };
        // The error does not repeat the text: it may hold a key.
        card().ok_or(FabricError::Network { peer, what: "its card is not `ADDRESS HASH`".into() })
    }

    /// The text that [`AccessCard::parse`] reads.
    pub(crate) fn to_text(&self) -> String {
        format!("{} {}", self.addr, self.key.to_text())
    }
}
