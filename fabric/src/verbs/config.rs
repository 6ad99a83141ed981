//! The settings of a fabric on RDMA devices.

use std::time::Duration;

use crate::tcp::TcpConfig;

/// Which device, port and address are used. What is not said is chosen: see
/// [`VerbsFabric::open`](super::VerbsFabric::open).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceChoice {
    /// Name of the device, as `ibv_devices` shows it.
    pub device: Option<String>,
    /// Number of its port, from 1 on.
    pub port: Option<u8>,
    /// Index of the address in the port's table, as `ibv_devinfo -v` shows it.
    pub gid_index: Option<u8>,
}

/// Settings of a [`VerbsFabric`](super::VerbsFabric).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsConfig {
    /// The connections over which queue pairs are set up, and who is let in over them. Their
    /// deadlines hold for queue pairs, too.
    pub tcp: TcpConfig,
    /// Device, port and address.
    pub device: DeviceChoice,
    /// How long a poll of the only outstanding chain of a node asks for its completion before it
    /// lets a thread wait for it: longer than a round trip takes. By default 200 us.
    pub poll_for: Duration,
}

impl VerbsConfig {
    /// The defaults, over these connections.
    pub fn new(tcp: TcpConfig) -> Self {
        let poll_for = Duration::from_micros(200);
        Self { tcp, device: DeviceChoice::default(), poll_for }
    }
}
