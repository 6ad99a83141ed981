//! Options of commands that take part in a pool over TCP.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use selkie::shared::{Credentials, Network, RdmaChoice, SharedPoolError};

use crate::support::exit;

/// What this process shows to the nodes of a pool over TCP.
#[derive(Args)]
pub(crate) struct TlsArguments {
    /// Directory with ca.pem, node.pem and node.key, as `selkie cert node` makes it. Connections of
    /// a pool over TCP are then encrypted, only nodes with a certificate of the pool's authority
    /// take part, and the role in it says as what
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// File with the token of a pool over TCP without --tls, copied from the host that the pool was
    /// made on; `selkie pool create` says where it is. The calling user's processes on that host
    /// find it without this option
    #[arg(long, value_name = "FILE", conflicts_with = "tls")]
    token: Option<PathBuf>,
}

impl TlsArguments {
    /// Whether there are certificates.
    pub(crate) fn are_given(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether there is something that is for pools over TCP only.
    pub(crate) fn need_tcp(&self) -> bool {
        self.tls.is_some() || self.token.is_some()
    }

    /// Reads the files.
    pub(crate) fn credentials(&self) -> Result<Credentials, SharedPoolError> {
        Credentials::load(self.tls.as_deref(), self.token.as_deref())
    }
}

/// How this process is reached in a pool over TCP.
#[derive(Args)]
pub(crate) struct NetworkArguments {
    /// Address and port to listen at in a pool over TCP; port 0 lets the system choose [default:
    /// 127.0.0.1:0]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Address by which others reach this host, if it is not that of --listen
    #[arg(long, value_name = "HOST")]
    advertise: Option<IpAddr>,
    /// Listen beyond loopback without --tls, also for --metrics. Clients are not authenticated, and
    /// nothing is encrypted
    #[arg(long)]
    insecure: bool,
    /// RDMA device of a pool over RDMA, as `ibv_devices` shows it [default: the first that can be
    /// used]
    #[arg(long, value_name = "NAME")]
    rdma_device: Option<String>,
    /// Port of the RDMA device, from 1 on [default: the first that is active]
    #[arg(long, value_name = "PORT")]
    rdma_port: Option<u8>,
    /// Index of the port's address, as `ibv_devinfo -v` shows it [default: the one that reaches
    /// furthest]
    #[arg(long, value_name = "INDEX")]
    rdma_gid: Option<u8>,
    #[command(flatten)]
    tls: TlsArguments,
}

impl NetworkArguments {
    /// The network that they describe.
    pub(crate) fn network(&self) -> Network {
        let rdma = RdmaChoice {
            device: self.rdma_device.clone(),
            port: self.rdma_port,
            gid_index: self.rdma_gid,
        };
        let Self { listen, advertise, insecure, .. } = *self;
        Network { listen, advertise, insecure, rdma }
    }

    /// Whether to listen beyond loopback without certificates.
    pub(crate) fn insecure(&self) -> bool {
        self.insecure
    }

    /// How connections are secured.
    pub(crate) fn tls(&self) -> &TlsArguments {
        &self.tls
    }

    /// Looks for values out of range, and for values that contradict each other. `--insecure` may
    /// be for the metrics.
    pub(crate) fn check(&self, has_metrics: bool) -> Result<(), exit::Refusal> {
        if self.insecure && self.tls.are_given() && !has_metrics {
            let what = "insecure: contradicts --tls: give one of them".to_owned();
            return Err(exit::Refusal { key: "insecure".to_owned(), what });
        }
        self.network().check(self.tls.are_given()).map_err(|error| match error {
            SharedPoolError::Address { option, address, why } => {
                exit::Refusal::new(option.trim_start_matches('-'), &address, why)
            }
            error => exit::Refusal { key: String::new(), what: error.to_string() },
        })
    }
}
