//! The capacity of a memory node.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_pool::FailureDomain;

/// The memory that a memory node offers to a pool.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Bytes of its region, headers and control page included; only whole ranges are used.
    pub bytes: u64,
    /// Its failure domain.
    pub domain: FailureDomain,
    /// Memory of its host that is to stay free: see [`crate::MemoryServer::start_monitor`].
    pub headroom: Option<u64>,
    /// Is told how much of the memory is populated, before the node joins.
    pub watcher: PopulationWatcher,
}

impl From<u64> for Capacity {
    /// A capacity of so many bytes, of a node that fails alone.
    fn from(bytes: u64) -> Self {
        let (domain, watcher) = (FailureDomain::ALONE, PopulationWatcher::default());
        Self { bytes, domain, headroom: None, watcher }
    }
}

/// What is called with the bytes that are populated, and with how many are to be.
type Watch = dyn Fn(u64, u64) -> ControlFlow<()> + Send + Sync;

/// Watches how memory is populated that is to be lent, and may break that off.
#[derive(Clone, Default)]
pub struct PopulationWatcher(Option<Arc<Watch>>);

impl PopulationWatcher {
    /// Calls `watch` now and then with the bytes that are populated, and with how many are to be.
    pub fn new(watch: impl Fn(u64, u64) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(watch)))
    }

    pub(crate) fn told(&self, done: u64, of: u64) -> ControlFlow<()> {
        self.0.as_ref().map_or(ControlFlow::Continue(()), |watch| watch(done, of))
    }
}

impl fmt::Debug for PopulationWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "PopulationWatcher" } else { "none" })
    }
}
