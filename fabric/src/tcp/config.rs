//! The settings of a TCP fabric.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::security::certificates::Security;

/// Machines with at most this many processors have none to spare for polling.
const FEW_PROCESSORS: usize = 2;

/// Which peers the endpoints of a process admit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// Every node of the pool that reaches the port. Invitations are kept, but neither their keys
    /// nor their domains are checked.
    #[default]
    Anyone,
    /// Invited peers that show the key of the invitation.
    Invited,
    /// Peers whose access card was [added](crate::Fabric::add_peer) and that show its key; and the
    /// endpoints of this process.
    ByCard,
}

/// Settings of a [`TcpFabric`](super::TcpFabric).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConfig {
    /// Where an endpoint listens. Port 0 lets the system choose one, which several endpoints of one
    /// process need.
    pub listen: SocketAddr,
    /// The address of this host in access cards. `None` takes the address of `listen`, which must
    /// not be unspecified then.
    pub advertise: Option<IpAddr>,
    /// Number of the pool. Nodes of different pools refuse each other. This guards against
    /// mistakes, not against malice.
    pub pool: u64,
    /// Which peers the endpoints admit. By default all.
    pub admission: Admission,
    /// How connections are secured, in both directions. All nodes of a pool have to agree. By
    /// default they are not secured.
    pub security: Option<Arc<Security>>,
    /// How long a thread spins on a socket before it blocks: a serving thread for the next request,
    /// and a poll for the response to the only outstanding chain of its node. Spinning saves the
    /// wake-up of a thread, and costs processor time. By default 0 on machines with two processors
    /// or fewer, else 20 us.
    pub poll_for: Duration,
    /// How long the second poll of the only outstanding chain of a node blocks its thread for the
    /// response. This saves the switch to the driver, which else receives it. The first poll lets
    /// other tasks run, so that they can post. By default 100 us; 0 never blocks.
    pub block_alone: Duration,
    /// A connection whose peer owes an answer and shows no sign of life for this long is replaced
    /// by another, over which the chains go on. Silent connections are probed twice in this time.
    /// By default 1 s.
    pub silent_after: Duration,
    /// A peer that owes an answer and shows no sign of life for this long is dead: the last resort,
    /// if nothing else tells of its death. It has to be longer than others take to find a dead
    /// node. By default 5 s.
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
            silent_after: Duration::from_secs(1),
            dead_after: Duration::from_secs(5),
        }
    }

    /// How often the driver checks its connections.
    pub(super) fn check_every(&self) -> Duration {
        (self.silent_after / 2).min(self.dead_after / 4).max(Duration::from_millis(1))
    }

    /// For how long a host keeps a session without a connection: longer than its node tries to
    /// connect.
    pub(super) fn keeps_sessions_for(&self) -> Duration {
        2 * self.dead_after
    }

    /// The longest silence of a living connection, which the hello tells the peer.
    pub(super) fn keepalive_ms(&self) -> u32 {
        u32::try_from(2 * self.check_every().as_millis()).unwrap_or(u32::MAX)
    }
}
