//! Why there is no fabric on RDMA devices here. Each says what to do about it.

use std::fmt;

use crate::verbs::ffi;

/// Why a fabric on RDMA devices cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The library is not installed.
    #[error(
        "libibverbs.so.1 cannot be loaded: install it (Debian: `apt install libibverbs1 \
         ibverbs-providers`)"
    )]
    NoLibrary,
    /// The host has no device.
    #[error(
        "this host has no RDMA device: `ibv_devices` lists them; Soft-RoCE makes one of an \
         Ethernet device: `rdma link add rxe0 type rxe netdev DEVICE`"
    )]
    NoDevice,
    /// There is no device of that name.
    #[error("no RDMA device is called {name:?}; there are: {}", found.join(", "))]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names of the devices.
        found: Vec<String>,
    },
    /// The device has no such port.
    #[error("RDMA device {device} has no port {port}; allowed are 1 to {ports}")]
    UnknownPort {
        /// The device.
        device: String,
        /// The number asked for.
        port: u8,
        /// How many it has.
        ports: u8,
    },
    /// The port cannot be used now.
    #[error(
        "port {port} of RDMA device {device} is {state}: connect it and bring its network device \
         up (`rdma link` shows which; `ip link set DEVICE up`)"
    )]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// What it is instead of active.
        state: PortState,
    },
    /// The device cannot compare and swap, or add.
    #[error(
        "RDMA device {device} has no atomics, which latches need: choose another by --rdma-device; \
         `ibv_devinfo -v` shows `atomic_cap`"
    )]
    NoAtomics {
        /// The device.
        device: String,
    },
    /// The port has no address, or not that one.
    #[error(
        "port {port} of RDMA device {device} has no address{}: give its network device an IP \
         address (`ip addr add`), or choose one of `ibv_devinfo -v` by --rdma-gid",
        index.map_or(String::new(), |index| format!(" of index {index}"))
    )]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The index asked for.
        index: Option<u8>,
    },
    /// The system refuses something of the device.
    #[error("RDMA device {device}: {what}: {why}")]
    Refused {
        /// The device.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// The system's reason.
        why: String,
    },
}

/// A state of a port other than active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortState(pub(super) u32);

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "down",
            2 => "initialising (InfiniBand: is there a subnet manager?)",
            3 => "armed",
            5 => "active, but deferred",
            _ => "in no known state",
        })
    }
}

impl VerbsError {
    pub(super) fn of_list(error: &std::io::Error) -> Self {
        // So the stub of the library says that there is none; a kernel without RDMA says ENOSYS.
        if error.raw_os_error() == Some(95) { Self::NoLibrary } else { Self::NoDevice }
    }

    pub(super) fn refused(device: &str, what: &'static str, why: &std::io::Error) -> Self {
        Self::Refused { device: device.into(), what, why: why.to_string() }
    }

    pub(super) fn down(device: &str, port: u8, info: &ffi::PortInfo) -> Self {
        Self::PortDown { device: device.into(), port, state: PortState(info.state) }
    }
}
