//! How a TCP fabric is set up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::security::Security;

/// Machines with so few processors have none to spare for polling.
const FEW_PROCESSORS: usize = 2;

/// Whom the endpoints of a process admit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// Every node of the pool that reaches the port. Invitations are kept, and neither their keys
    /// nor their domains asked for.
    #[default]
    Anyone,
    /// Who was invited, and shows the key of the invitation.
    Invited,
    /// Who was [met](crate::Fabric::meet), and shows the key of its card; and the endpoints of this
    /// process.
    Met,
}

/// Settings of a [`TcpFabric`](super::TcpFabric).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConfig {
    /// Where an endpoint listens; port 0 lets the system choose one. If several endpoints join in
    /// one process, it has to.
    pub listen: SocketAddr,
    /// The address by which others reach this host, for cards; `None` is that of `listen`, which
    /// must not be unspecified then.
    pub advertise: Option<IpAddr>,
    /// Number of the pool. Nodes of different pools refuse each other; it guards against mistakes,
    /// not against malice.
    pub pool: u64,
    /// Whom the endpoints admit. By default anyone.
    pub admission: Admission,
    /// How connections are secured, on both sides; all nodes of a pool have to agree. By default
    /// they are not.
    pub security: Option<Arc<Security>>,
    /// How long a thread looks at a socket again and again before it blocks: a serving thread for
    /// the next request, and a poll for the response to a chain that is alone under way at its
    /// node. It saves waking a thread, and costs processor time. By default nothing on machines
    /// with two processors or fewer, else 20 us.
    pub poll_for: Duration,
    /// How long the second poll of a chain that is alone under way at its node blocks the polling
    /// thread for the response, which saves the switch to the thread that otherwise receives it.
    /// The first poll lets other tasks run, so that they can post theirs. By default 100 us; 0
    /// never blocks.
    pub block_alone: Duration,
    /// A peer that owes an answer and gives no sign of life for so long is dead. By default 5 s.
    /// Silent connections are tried four times in this time.
    pub dead_after: Duration,
}

impl TcpConfig {
    /// The defaults, listening on the loopback interface.
    pub fn new(pool: u64) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let spare = processors > FEW_PROCESSORS;
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            pool,
            admission: Admission::default(),
            security: None,
            poll_for: if spare { Duration::from_micros(20) } else { Duration::ZERO },
            block_alone: Duration::from_micros(100),
            dead_after: Duration::from_secs(5),
        }
    }

    /// How often connections are looked after.
    pub(super) fn look_every(&self) -> Duration {
        (self.dead_after / 4).max(Duration::from_millis(1))
    }

    /// The longest silence of a living connection, for the peer.
    pub(super) fn keepalive_ms(&self) -> u32 {
        u32::try_from(2 * self.look_every().as_millis()).unwrap_or(u32::MAX)
    }
}
