//! Pools that several processes share, by their URLs.
//!
//! ```no_run
//! use selkie::shared::{Network, PoolUrl, SharedPool};
//!
//! # async fn example(env: &selkie::fabric::Env) -> Result<(), Box<dyn std::error::Error>> {
//! let PoolUrl::Shared(place) = "tcp:10.0.0.1:7000,10.0.0.2:7000".parse()? else { return Ok(()) };
//! let shared = SharedPool::at(&place, None)?;
//! let (fabric, pool) = shared.open(env, &Network::default()).await?;
//! println!("{} memory nodes", pool.descriptor().memory_nodes.len());
//! # let _ = fabric;
//! # Ok(())
//! # }
//! ```

mod arrivals;
mod credentials;
mod destroy;
mod error;
mod explain;
mod network;
mod pool;
mod remains;
mod url;

pub use credentials::Credentials;
pub use error::SharedPoolError;
pub use network::{FabricKind, Network, RdmaChoice};
pub use pool::{OpenedPool, SharedPool};
pub use url::{HostPort, Place, PoolName, PoolUrl, UrlError};
