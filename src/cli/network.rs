//! Options of commands that take part in a pool over TCP.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use selkie::pool::{Network, SharedPoolError};

/// How this process is reached in a pool over TCP.
#[derive(Args)]
pub(crate) struct NetworkArguments {
    /// Address and port to listen at in a pool over TCP; port 0 lets the system choose [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Address by which others reach this host, if it is not that of --listen
    #[arg(long, value_name = "HOST")]
    advertise: Option<IpAddr>,
    /// Listen beyond loopback, also for --metrics: whoever comes is not authenticated and nothing is encrypted
    #[arg(long)]
    insecure: bool,
}

impl NetworkArguments {
    /// What they say.
    pub(crate) fn network(&self) -> Network {
        Network { listen: self.listen, advertise: self.advertise, insecure: self.insecure }
    }

    /// Whether to listen beyond loopback.
    pub(crate) fn insecure(&self) -> bool {
        self.insecure
    }

    /// Looks for values out of range.
    pub(crate) fn check(&self) -> Result<(), super::Refusal> {
        self.network().check().map_err(|error| match error {
            SharedPoolError::Address { option, address, why } => {
                super::Refusal::new(option.trim_start_matches('-'), &address, why)
            }
            error => super::Refusal { key: String::new(), what: error.to_string() },
        })
    }
}
