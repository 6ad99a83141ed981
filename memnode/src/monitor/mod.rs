//! Memory pressure on the host of a memory node: the resource monitor of Hydra §4.2.
//!
//! ```text
//! free_memory: bytes free on the host --> policy: which slabs to take back or to offer again
//!     --> resource_monitor: asks the pool for that, gives memory back to the host
//! ```

mod free_memory;
mod policy;
mod resource_monitor;

pub use free_memory::{FreeMemory, HostMemory};
pub use policy::{Observation, ReclaimPolicy, SlabObservation, SlabUse};
pub use resource_monitor::MonitorConfig;
pub(crate) use resource_monitor::{ResourceMonitor, check_can_reclaim};
