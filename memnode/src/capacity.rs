//! The capacity of a memory node.

use selkie_pool::FailureDomain;

/// The memory that a memory node offers to a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of its region, headers and control page included; only whole ranges are used.
    pub bytes: u64,
    /// Its failure domain.
    pub domain: FailureDomain,
    /// Memory of its host that is to stay free: see [`crate::MemoryServer::start_monitor`].
    pub headroom: Option<u64>,
}

impl From<u64> for Capacity {
    /// A capacity of so many bytes, of a node that fails alone.
    fn from(bytes: u64) -> Self {
        Self { bytes, domain: FailureDomain::ALONE, headroom: None }
    }
}
