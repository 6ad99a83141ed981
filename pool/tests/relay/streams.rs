//! How relays are reached: over any stream, by name, and only at endpoints that are well formed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie_pool::PoolError;
use selkie_pool::control::{Connect, ControlError, ControlPlane, Expectation, RemotePlane, Stream};

use crate::common::{block_on, no_token, pool, remote, replace};
use crate::relay_server::RelayServer;

/// Stands for encryption: nothing is on the wire as it was written.
struct Masked(TcpStream);

impl Read for Masked {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(bytes)?;
        bytes.iter_mut().take(read).for_each(|byte| *byte ^= 0x5a);
        Ok(read)
    }
}

impl Write for Masked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes.iter().map(|byte| byte ^ 0x5a).collect::<Vec<_>>())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Masked {
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
        self.0.set_timeouts(limit)
    }
}

#[test]
fn both_ends_talk_over_any_stream_and_names_are_looked_up() {
    let serve =
        |relay: &selkie_pool::control::Relay, stream| relay.serve_from_start(Masked(stream));
    let server = RelayServer::start_with(pool(1), "test", serve);
    let port = server.endpoint().rsplit_once(':').unwrap().1.to_owned();
    let hosts: Arc<Mutex<Vec<String>>> = Arc::default();
    let connect: Connect = {
        let hosts = Arc::clone(&hosts);
        Arc::new(move |host, address, limit| {
            hosts.lock().unwrap().push(host.to_owned());
            Ok(Box::new(Masked(TcpStream::connect_timeout(&address, limit)?)))
        })
    };
    let endpoints = [format!("localhost:{port}")];
    let masked =
        RemotePlane::over(&endpoints, Expectation::default(), connect, no_token()).unwrap();
    let known = block_on(masked.load()).unwrap();
    assert_eq!(replace(&masked, &known, 2), Ok(Some(2)));
    assert!(hosts.lock().unwrap().iter().all(|host| host == "localhost"));
    let plain = block_on(remote(&[server.endpoint()]).load());
    assert!(matches!(plain, Err(ControlError::Unavailable { .. })), "{plain:?}");
}

#[test]
fn planes_without_a_relay_to_ask_are_refused() {
    let refused = RemotePlane::new(&[""; 0], Expectation::default()).err().unwrap();
    assert!(matches!(refused, PoolError::Config { key: "endpoints", .. }), "{refused}");
    let refused = RemotePlane::new(&["h:1", "h"], Expectation::default()).err().unwrap();
    assert!(matches!(refused, PoolError::Config { key: "endpoints", .. }), "{refused}");
}
