//! Places of clients that have not been let in: a client that connects and says nothing costs
//! little, but nobody may take all places with such.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Fewest places, however few clients are let in.
const FEWEST: usize = 256;

/// The places, and who has them.
pub(crate) struct Newcomers {
    most: usize,
    /// Most of one address: so many that all clients that may be let in can come from there.
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// The place of a client, until it is dropped.
pub(crate) struct NewcomerPlace {
    of: Arc<Newcomers>,
    source: IpAddr,
}

impl Newcomers {
    /// For a server of at most so many clients.
    pub(crate) fn new(max_connections: usize) -> Self {
        let most = max_connections.saturating_mul(2).max(FEWEST);
        Self { most, most_of_one: most / 2, taken: Mutex::default() }
    }

    /// A place for a client from an address; `None` if there are no more, or no more for those from
    /// there.
    pub(crate) fn enter(self: &Arc<Self>, from: IpAddr) -> Option<NewcomerPlace> {
        let source = source(from);
        let mut taken = self.taken.lock();
        if taken.all >= self.most {
            return None;
        }
        let of_one = taken.by_source.entry(source).or_default();
        if *of_one >= self.most_of_one {
            return None;
        }
        *of_one += 1;
        taken.all += 1;
        Some(NewcomerPlace { of: Arc::clone(self), source })
    }
}

impl Drop for NewcomerPlace {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(of_one) = taken.by_source.get_mut(&self.source) {
            *of_one = of_one.saturating_sub(1);
            if *of_one == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

/// What counts as one address: an IPv6 network of 64 bits, of which a machine may have all.
fn source(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() & !u128::from(u64::MAX)).into(),
        own @ IpAddr::V4(_) => own,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_all_places() {
        let newcomers = Arc::new(Newcomers::new(100));
        let enter = |from: &str| newcomers.enter(from.parse().unwrap());
        let mut places = Vec::new();
        while let Some(place) = enter("192.0.2.1") {
            places.push(place);
        }
        assert_eq!(places.len(), FEWEST / 2);
        // As an address of IPv6 it is no other.
        assert!(enter("::ffff:192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some());
        for at in 0_u16.. {
            let Some(place) = enter(&format!("2001:db8::{at:x}")) else { break };
            places.push(place);
        }
        assert_eq!(places.len(), FEWEST);
        assert!(enter("192.0.2.2").is_none());
        places.pop();
        assert!(enter("2001:db8:0:1::1").is_some());
        drop(places);
        assert!(newcomers.taken.lock().by_source.is_empty());
        assert!(enter("192.0.2.1").is_some());
    }

    #[test]
    fn all_clients_of_a_server_may_come_from_one_address_at_once() {
        let newcomers = Arc::new(Newcomers::new(1_000));
        let enter = || newcomers.enter("127.0.0.1".parse().unwrap());
        let places: Vec<_> = (0..1_000).map(|_| enter().unwrap()).collect();
        assert!(enter().is_none());
        drop(places);
    }
}
