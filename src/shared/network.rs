//! How a process takes part in a pool over a network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use super::error::SharedPoolError;
use crate::fabric::tcp::{Admission, Security, TcpConfig, TcpFabric};
use crate::fabric::{Env, Fabric};
use crate::pool::control::PoolState;

/// The fabrics that processes can meet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricKind {
    /// Memory shared by the processes of one host.
    Shm,
    /// TCP.
    Tcp,
    /// RDMA cards, set up over TCP; only with the feature `verbs`.
    Verbs,
}

impl FabricKind {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        }
    }

    /// Whether its nodes may be on several hosts.
    #[must_use]
    pub fn is_network(self) -> bool {
        match self {
            Self::Shm => false,
            Self::Tcp | Self::Verbs => true,
        }
    }
}

impl FromStr for FabricKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "shm" => Ok(Self::Shm),
            "tcp" => Ok(Self::Tcp),
            "verbs" => Ok(Self::Verbs),
            _ => Err("a fabric is `shm`, `tcp` or `verbs`".to_owned()),
        }
    }
}

impl fmt::Display for FabricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where this process listens, in a pool over TCP. There is nothing to say in other pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Address and port; port 0 lets the system choose one. By default on the loopback interface.
    pub listen: Option<SocketAddr>,
    /// The address by which others reach this host, if it is not the one of `listen`.
    pub advertise: Option<IpAddr>,
    /// Whether to listen where others than the processes of this host can come, though connections
    /// are not secured: clients are not authenticated then.
    pub insecure: bool,
    /// Which RDMA device a process uses, in a pool over RDMA.
    pub rdma: RdmaChoice,
}

/// Which RDMA device, port and address are used. What is not said is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaChoice {
    /// Name of the device, as `ibv_devices` shows it.
    pub device: Option<String>,
    /// Number of its port, from 1 on.
    pub port: Option<u8>,
    /// Index of the address in the port's table, as `ibv_devinfo -v` shows it.
    pub gid_index: Option<u8>,
}

impl RdmaChoice {
    /// Whether anything is chosen.
    #[must_use]
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

impl Network {
    /// Looks for addresses that are not allowed, for a process whose connections are secured or
    /// not.
    ///
    /// # Errors
    /// [`SharedPoolError::Address`].
    pub fn check(&self, is_secured: bool) -> Result<(), SharedPoolError> {
        let refused =
            |option, address: String, why| Err(SharedPoolError::Address { option, address, why });
        let listen = self.listen();
        let ip = listen.ip();
        if !ip.is_loopback() && !self.insecure && !is_secured {
            let why = "is not a loopback address: every host that reaches it can use the \
                pool's memory; give --tls DIR, or allow that with --insecure";
            return refused("--listen", listen.to_string(), why);
        }
        match self.advertise {
            None if ip.is_unspecified() => {
                let why = "stands for all addresses: say by --advertise by which others reach it";
                refused("--listen", listen.to_string(), why)
            }
            Some(advertise) if advertise.is_unspecified() => {
                refused("--advertise", advertise.to_string(), "is not the address of a host")
            }
            _ => Ok(()),
        }
    }

    fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Refuses what has no meaning where memory is shared.
    pub(super) fn check_absent(&self, is_secured: bool) -> Result<(), SharedPoolError> {
        self.check_rdma(FabricKind::Shm)?;
        match self {
            Self { listen: None, advertise: None, .. } if !is_secured => Ok(()),
            _ => Err(SharedPoolError::NoNetwork),
        }
    }

    /// Refuses a choice of an RDMA device where none is used.
    fn check_rdma(&self, kind: FabricKind) -> Result<(), SharedPoolError> {
        let is_used = kind == FabricKind::Verbs || !self.rdma.is_given();
        if is_used { Ok(()) } else { Err(SharedPoolError::NoRdma) }
    }

    /// The fabric of a pool over a network, and the part of it that accepts connections.
    pub(super) fn open(
        &self,
        kind: FabricKind,
        state: &PoolState,
        security: Option<Arc<Security>>,
        env: &Env,
    ) -> Result<(Arc<dyn Fabric>, Arc<TcpFabric>), SharedPoolError> {
        self.check_rdma(kind)?;
        let config = self.config(state, security)?;
        if kind == FabricKind::Verbs {
            return self.open_verbs(config, env);
        }
        let tcp = TcpFabric::new(config, env.clone());
        Ok((Arc::clone(&tcp) as Arc<dyn Fabric>, tcp))
    }

    #[cfg(feature = "verbs")]
    fn open_verbs(
        &self,
        config: TcpConfig,
        env: &Env,
    ) -> Result<(Arc<dyn Fabric>, Arc<TcpFabric>), SharedPoolError> {
        use crate::fabric::verbs::{DeviceChoice, VerbsConfig, VerbsFabric};
        let RdmaChoice { device, port, gid_index } = self.rdma.clone();
        let device = DeviceChoice { device, port, gid_index };
        let verbs =
            VerbsFabric::open(VerbsConfig { device, ..VerbsConfig::new(config) }, env.clone())?;
        let tcp = Arc::clone(verbs.tcp());
        Ok((verbs, tcp))
    }

    #[cfg(not(feature = "verbs"))]
    fn open_verbs(
        &self,
        _config: TcpConfig,
        _env: &Env,
    ) -> Result<(Arc<dyn Fabric>, Arc<TcpFabric>), SharedPoolError> {
        Err(SharedPoolError::NoVerbs)
    }

    pub(super) fn config(
        &self,
        state: &PoolState,
        security: Option<Arc<Security>>,
    ) -> Result<TcpConfig, SharedPoolError> {
        self.check(security.is_some())?;
        Ok(TcpConfig {
            listen: self.listen(),
            advertise: self.advertise,
            admission: Admission::ByCard,
            security,
            silent_after: state.timing.lease / 2,
            dead_after: state.timing.unreachable_after(),
            ..TcpConfig::new(state.id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_reach_are_asked_for_and_named() {
        let network = |listen: &str, advertise: Option<&str>, insecure| Network {
            listen: Some(listen.parse().unwrap()),
            advertise: advertise.map(|ip| ip.parse().unwrap()),
            insecure,
            rdma: RdmaChoice::default(),
        };
        for good in [
            network("127.0.0.1:0", None, false),
            network("[::1]:7000", None, false),
            network("10.0.0.1:7000", None, true),
            network("0.0.0.0:7000", Some("10.0.0.1"), true),
        ] {
            assert!(good.check(false).is_ok(), "{good:?}");
            assert!(Network { insecure: false, ..good }.check(true).is_ok());
        }
        for (bad, what) in [
            (network("10.0.0.1:7000", None, false), "--listen 10.0.0.1:7000: is not a loopback"),
            (network("0.0.0.0:7000", None, true), "--advertise"),
            (network("0.0.0.0:7000", Some("0.0.0.0"), true), "--advertise 0.0.0.0: is not"),
        ] {
            let error = bad.check(false).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
