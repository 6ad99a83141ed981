//! How a process takes part in a pool over a network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use super::error::SharedPoolError;
use crate::fabric::tcp::{Admission, Security, TcpConfig};
use crate::pool::control::PoolState;

/// The fabrics that processes can meet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricKind {
    /// Memory shared by the processes of one host.
    Shm,
    /// TCP.
    Tcp,
}

impl FabricKind {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

impl FromStr for FabricKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "shm" => Ok(Self::Shm),
            "tcp" => Ok(Self::Tcp),
            _ => Err("a fabric is `shm` or `tcp`".to_owned()),
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
        match self {
            Self { listen: None, advertise: None, .. } if !is_secured => Ok(()),
            _ => Err(SharedPoolError::NoNetwork),
        }
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
