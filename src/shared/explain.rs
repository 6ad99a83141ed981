//! Errors of control planes in terms of how a pool is called: what is not there, or is there
//! already, and which command makes or shows it.

use crate::pool::PoolError;
use crate::pool::control::ControlError;

use super::error::SharedPoolError;
use super::pool::SharedPool;
use super::url::{Place, list};

impl SharedPool {
    /// An error of the pool in terms of how it is called: that there is no such pool, or one
    /// already.
    #[must_use]
    pub fn explain(&self, error: impl Into<SharedPoolError>) -> SharedPoolError {
        in_terms_of(&self.place, error.into())
    }
}

fn in_terms_of(place: &Place, error: SharedPoolError) -> SharedPoolError {
    match error {
        SharedPoolError::Pool(PoolError::Control { source: ControlError::NoPool { .. } }) => {
            no_pool(place)
        }
        SharedPoolError::Pool(PoolError::Control {
            source: source @ ControlError::PoolExists { .. },
        }) => pool_exists(place, source),
        error => error,
    }
}

fn no_pool(place: &Place) -> SharedPoolError {
    match place {
        Place::Host { name, .. } => {
            let others = SharedPool::names_on_this_host().unwrap_or_default();
            let others = others.into_iter().map(|other| other.to_string()).collect();
            SharedPoolError::NoPool { name: name.to_string(), others }
        }
        Place::Etcd { endpoints, name } => {
            SharedPoolError::NoPoolInEtcd { name: name.to_string(), endpoints: list(endpoints) }
        }
        Place::Relays(hosts) => SharedPoolError::NoPoolBehind { addresses: list(hosts) },
    }
}

fn pool_exists(place: &Place, source: ControlError) -> SharedPoolError {
    match place {
        Place::Host { name, .. } => SharedPoolError::PoolExists { name: name.to_string() },
        Place::Etcd { endpoints, name } => {
            SharedPoolError::PoolExistsInEtcd { name: name.to_string(), endpoints: list(endpoints) }
        }
        // None is made through a relay.
        Place::Relays(_) => source.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    use crate::fabric::RealRuntime;
    use crate::pool::control::{FilePlane, Relay};
    use crate::shared::Credentials;

    use super::*;

    fn explained(place: &str, error: ControlError) -> String {
        in_terms_of(&place.parse().unwrap(), error.into()).to_string()
    }

    #[test]
    fn a_pool_that_is_not_there_or_is_there_already_is_told_by_its_name_and_place() {
        let etcd = "etcd:10.0.0.1:2379,10.0.0.2:2379/prod";
        let place = || "a key or a file".to_owned();
        for (at, absent, there) in [
            (
                "test-explained",
                "no pool `test-explained` on this host; there are",
                "there is a pool `test-explained` on this host already: `selkie pool status",
            ),
            (
                etcd,
                "no pool `prod` in etcd at 10.0.0.1:2379,10.0.0.2:2379: `selkie pool create etcd:",
                "there is a pool `prod` in etcd at 10.0.0.1:2379,10.0.0.2:2379 already: `selkie",
            ),
        ] {
            for (error, start) in [
                (ControlError::NoPool { place: place() }, absent),
                (ControlError::PoolExists { place: place() }, there),
            ] {
                let error = explained(at, error);
                assert!(error.starts_with(start) && !error.contains("a key"), "{error}");
                assert!(error.contains(&format!(" {at}`")) || error.contains("; there are"));
            }
        }
        // What a plane says of itself stays.
        let away = ControlError::Unavailable { place: place(), what: "no answer".to_owned() };
        assert!(explained(etcd, away).contains("a key or a file: no answer"));
    }

    #[test]
    fn a_pool_that_is_gone_behind_a_memory_node_is_told_with_its_address() {
        let directory = tempfile::tempdir().unwrap();
        let plane = Arc::new(FilePlane::at(directory.path().join("gone")));
        let relay = Relay::new(plane, "gone").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                // The other end may be gone when it has its answer.
                let _ = relay.serve_from_start(stream.unwrap());
            }
        });
        let place = format!("tcp:{address}").parse().unwrap();
        let shared = SharedPool::at(&place, Credentials::default()).unwrap();
        let loaded = RealRuntime::new(1).unwrap().block_on(shared.load());
        let error = loaded.map(|state| state.id).unwrap_err().to_string();
        let expected = format!("no pool behind the memory nodes at {address}: it was destroyed, ");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.contains("`selkie pool create NAME --fabric tcp`"), "{error}");
    }
}
