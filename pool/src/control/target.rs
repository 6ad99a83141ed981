//! A relay as a target of connections: its name, its addresses, a connection.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use selkie_fabric::{Stream, TlsError};

use crate::error::PoolError;

/// Connects to a relay: `(host, address, limit)`, where `host` is the name or address in the
/// endpoint, without the port, and `address` one of those it stands for. It may block its thread,
/// for no longer than `limit`. This is where encryption is put in; an error that holds a
/// [`TlsError`] says that it is no use to try again.
pub type Connect =
    Arc<dyn Fn(&str, SocketAddr, Duration) -> io::Result<Box<dyn Stream>> + Send + Sync>;

/// Why there is no connection to a relay.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreached {
    /// It is there, and one side does not trust the other.
    Distrusted(TlsError),
    /// The network does not reach it.
    Lost(String),
}

/// A relay.
pub(super) struct Target {
    endpoint: String,
    host: String,
    /// The result of the attempts of the call that is under way.
    pub(super) said: Option<String>,
    /// A lookup that takes longer than any call waits. There is one at a time.
    lookup: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
}

impl Target {
    pub(super) fn parse(endpoint: &str) -> Result<Self, PoolError> {
        let host = match endpoint.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 => Some(address.ip().to_string()),
            Ok(_) => None,
            Err(_) => endpoint.rsplit_once(':').and_then(|(host, port)| {
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
                let is_host = !host.is_empty() && host.chars().all(is_name);
                let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
                (is_host && is_port).then(|| host.to_owned())
            }),
        };
        let host = host.ok_or_else(|| bad_endpoint(endpoint))?;
        Ok(Self { endpoint: endpoint.to_owned(), host, said: None, lookup: None })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Tries all addresses, each for its share of the time.
    pub(super) fn connect(
        &mut self,
        connect: &Connect,
        until: Instant,
    ) -> Result<Box<dyn Stream>, Unreached> {
        let addresses = self.look_up(until).map_err(Unreached::Lost)?;
        let (mut said, mut distrust) = (Vec::new(), None);
        for (tried, address) in addresses.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            if share.is_zero() {
                said.push(format!("no time for {address}"));
                continue;
            }
            match connect(&self.host, *address, share) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    let why = error.get_ref().and_then(|said| said.downcast_ref()).copied();
                    distrust = distrust.or(why);
                    // Which of them it was is known where there is one.
                    said.push(match addresses.len() {
                        1 => error.to_string(),
                        _ => format!("at {address}: {error}"),
                    });
                }
            }
        }
        let lost = || Unreached::Lost(format!("cannot be connected to: {}", said.join(", ")));
        Err(distrust.map_or_else(lost, Unreached::Distrusted))
    }

    /// The addresses of the endpoint; names are looked up in a thread, because nothing bounds how
    /// long it takes.
    fn look_up(&mut self, until: Instant) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = self.endpoint.parse() {
            return Ok(vec![address]);
        }
        let failed = |error: io::Error| format!("cannot be looked up: {error}");
        let lookup = match self.lookup.take() {
            Some(lookup) => lookup,
            None => spawn_lookup(self.endpoint.clone()).map_err(failed)?,
        };
        match lookup.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Ok(addresses)) if addresses.is_empty() => Err(failed(ErrorKind::NotFound.into())),
            Ok(addresses) => addresses.map_err(failed),
            Err(RecvTimeoutError::Timeout) => {
                self.lookup = Some(lookup);
                Err(failed(ErrorKind::TimedOut.into()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(failed(ErrorKind::Interrupted.into())),
        }
    }
}

fn spawn_lookup(endpoint: String) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
    let (sender, found) = mpsc::sync_channel(1);
    let look_up = move || {
        // The caller may be gone.
        let _ = sender.send(endpoint.to_socket_addrs().map(Iterator::collect));
    };
    thread::Builder::new().name("selkie-lookup".into()).spawn(look_up)?;
    Ok(found)
}

pub(super) fn bad_endpoint(endpoint: &str) -> PoolError {
    let allowed = "HOST:PORT of one or more relays".to_owned();
    PoolError::Config { key: "endpoints", value: endpoint.to_owned(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_a_host_and_a_port() {
        for (endpoint, host) in [
            ("10.0.0.1:7000", "10.0.0.1"),
            ("[::1]:3", "::1"),
            ("db-1.example.org:65535", "db-1.example.org"),
        ] {
            assert_eq!(Target::parse(endpoint).map(|target| target.host).ok().unwrap(), host);
        }
        for endpoint in [
            "",
            "h",
            ":1",
            "h:",
            "h:0",
            "1.2.3.4:0",
            "h:65536",
            "::1:3",
            "h/x:1",
            "a b:1",
            "http://h:1",
        ] {
            let refused = Target::parse(endpoint).err().unwrap();
            assert!(
                matches!(&refused, PoolError::Config { key: "endpoints", value, .. } if value == endpoint),
                "{endpoint}"
            );
        }
    }

    fn target(endpoint: &str) -> Target {
        Target::parse(endpoint).ok().unwrap()
    }

    #[test]
    fn a_name_that_is_never_resolved_is_waited_for_within_the_bound_and_looked_up_once() {
        let mut target = target("h:1");
        let (sender, lookup) = mpsc::sync_channel(1);
        target.lookup = Some(lookup);
        let said = target.look_up(Instant::now() + Duration::from_millis(1)).unwrap_err();
        assert!(said.contains("timed out"), "{said}");
        let address: SocketAddr = "10.0.0.1:1".parse().unwrap();
        sender.send(Ok(vec![address])).unwrap();
        let found = target.look_up(Instant::now() + Duration::from_secs(60));
        assert_eq!(found, Ok(vec![address]), "the lookup that was under way");
        assert!(target.lookup.is_none(), "the next connection looks again");
    }

    #[test]
    fn all_addresses_are_tried_each_for_a_share_of_the_time() {
        let mut target = target("h:1");
        let (sender, lookup) = mpsc::sync_channel(1);
        target.lookup = Some(lookup);
        let addresses = ["[::1]:1", "10.0.0.1:1"].map(|address| address.parse().unwrap());
        sender.send(Ok(addresses.to_vec())).unwrap();
        let (asked, received) = mpsc::channel();
        let asked = parking_lot::Mutex::new(asked);
        let connect: Connect = Arc::new(move |host, address, limit| {
            asked.lock().send((host.to_owned(), address, limit)).unwrap();
            Err(io::Error::other(format!("no {}", address.is_ipv6())))
        });
        let said =
            target.connect(&connect, Instant::now() + Duration::from_secs(60)).err().unwrap();
        let Unreached::Lost(said) = said else { panic!("{said:?}") };
        assert!(said.contains("[::1]:1: no true, at 10.0.0.1:1: no false"), "{said}");
        let received: Vec<_> = received.try_iter().collect();
        assert_eq!(received.iter().map(|(_, address, _)| *address).collect::<Vec<_>>(), addresses);
        let [(host, _, first), (_, _, second)] = &received[..] else { panic!("{received:?}") };
        assert_eq!(host, "h");
        assert!(*first <= Duration::from_secs(30), "time is left for the second: {first:?}");
        assert!(*second > Duration::from_secs(30), "what the first did not use: {second:?}");
    }
}
