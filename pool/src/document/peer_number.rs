//! Peers as numbers, for `#[serde(with = "...")]`.

use selkie_fabric::PeerId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(peer: &PeerId, serializer: S) -> Result<S::Ok, S::Error> {
    peer.to_raw().serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PeerId, D::Error> {
    u16::deserialize(deserializer).map(PeerId::from_raw)
}
