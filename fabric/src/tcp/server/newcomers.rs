//! Connections that have not been let in: they have said nothing yet, or nothing that admits them.
//! They have few places of their own, so they take none from those that were let in; and when
//! these places are taken, the oldest of them makes room for the next. So connections that say
//! nothing keep no other out. The oldest is that of the address with most of them: an address that
//! connects again and again displaces its own connections. IPv6 hosts have a network of addresses,
//! which counts as one.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// Connections that an endpoint serves at a time before they are let in.
pub(crate) const MAX_NEWCOMERS: usize = 64;

/// The newcomers of one endpoint.
#[derive(Default)]
pub(crate) struct Newcomers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// By age, the oldest first.
    by_token: BTreeMap<u64, (IpAddr, Arc<TcpStream>)>,
    next_token: u64,
    is_closed: bool,
}

impl Newcomers {
    /// Gives a connection a place until the value is dropped. Shuts another one down if it takes
    /// that. `None` if the endpoint has left.
    pub(crate) fn enter(
        self: &Arc<Self>,
        from: IpAddr,
        socket: Arc<TcpStream>,
    ) -> Option<Newcomer> {
        let mut waiting = self.0.lock();
        if waiting.is_closed {
            return None;
        }
        if waiting.by_token.len() >= MAX_NEWCOMERS
            && let Some(displaced) = waiting.displaced()
            && let Some((_, socket)) = waiting.by_token.remove(&displaced)
        {
            shut_down(&socket);
        }
        let token = waiting.next_token;
        waiting.next_token += 1;
        waiting.by_token.insert(token, (host_of(from), socket));
        Some(Newcomer { newcomers: Arc::clone(self), token })
    }

    /// Shuts all down, and refuses further ones.
    pub(crate) fn close(&self) {
        let mut waiting = self.0.lock();
        waiting.is_closed = true;
        waiting.by_token.values().for_each(|(_, socket)| shut_down(socket));
    }
}

impl Waiting {
    /// The oldest connection of the address that has most.
    fn displaced(&self) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        self.by_token.values().for_each(|(from, _)| *counts.entry(*from).or_default() += 1);
        let most = counts.values().copied().max()?;
        let mut oldest = self.by_token.iter();
        oldest.find(|(_, (from, _))| counts.get(from) == Some(&most)).map(|(token, _)| *token)
    }
}

/// The place of a connection that has not been let in.
pub(crate) struct Newcomer {
    newcomers: Arc<Newcomers>,
    token: u64,
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.newcomers.0.lock().by_token.remove(&self.token);
    }
}

/// The same for all addresses that one host has for itself: of IPv6 its network of 64 bits.
fn host_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V4(addr) => IpAddr::V4(addr),
        IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() >> 64 << 64)),
    }
}

/// Ends the reads and writes of a connection in whatever thread they are.
pub(crate) fn shut_down(socket: &TcpStream) {
    // It fails if the peer closed the connection first.
    let _ = socket.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::TcpListener;

    use super::*;

    /// A connection, and its other end.
    fn connection(listener: &TcpListener) -> (Arc<TcpStream>, TcpStream) {
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        other.set_nonblocking(true).unwrap();
        (Arc::new(listener.accept().unwrap().0), other)
    }

    fn is_open(mut end: &TcpStream) -> bool {
        matches!(end.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let host = |addr: &str| host_of(addr.parse().unwrap());
        assert_eq!(host("2001:db8:1:2:3:4:5:6"), host("2001:db8:1:2::9"));
        assert_ne!(host("2001:db8:1:2::1"), host("2001:db8:1:3::1"));
        assert_eq!(host("::ffff:10.0.0.1"), host("10.0.0.1"));
        assert_ne!(host("10.0.0.1"), host("10.0.0.2"));
    }

    #[test]
    fn the_oldest_of_the_address_with_most_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let newcomers = Arc::new(Newcomers::default());
        let [flood, other] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let (first, first_end) = connection(&listener);
        let first = newcomers.enter(other, first).unwrap();
        let mut crowd = Vec::new();
        for _ in 0..2 * MAX_NEWCOMERS {
            let (socket, end) = connection(&listener);
            crowd.push((newcomers.enter(flood, socket).unwrap(), end));
        }
        assert!(is_open(&first_end), "the oldest of all, and its address has no other");
        let open = crowd.iter().map(|(_, end)| is_open(end)).collect::<Vec<_>>();
        let (displaced, kept) = open.split_at(MAX_NEWCOMERS + 1);
        assert!(displaced.iter().all(|is_open| !is_open) && kept.iter().all(|is_open| *is_open));
        assert_eq!(newcomers.0.lock().by_token.len(), MAX_NEWCOMERS);

        drop(first);
        let (socket, _end) = connection(&listener);
        let last = newcomers.enter(flood, socket);
        assert!(is_open(&crowd[MAX_NEWCOMERS + 1].1), "there was room");
        newcomers.close();
        assert!(crowd.iter().all(|(_, end)| !is_open(end)));
        drop((last, crowd));
        assert!(newcomers.0.lock().by_token.is_empty());
        let (socket, _end) = connection(&listener);
        assert!(newcomers.enter(other, socket).is_none());
    }
}
