//! What a memory node brings into a pool.

use selkie_pool::FailureDomain;

/// What a memory node brings into a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes it lends, headers and control page included; only whole ranges are used.
    pub bytes: u64,
    /// What it fails together with.
    pub domain: FailureDomain,
    /// Memory of its host that is to stay free: see [`MemoryServer::start_monitor`].
    pub headroom: Option<u64>,
}

impl From<u64> for Capacity {
    /// So many bytes, of a node that fails alone.
    fn from(bytes: u64) -> Self {
        Self { bytes, domain: FailureDomain::ALONE, headroom: None }
    }
}
