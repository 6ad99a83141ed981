//! A proxy between a node and its peer, which breaks the network when a test says so.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support, which the engine's tests use, too"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt;

/// How often a thread that waits looks again.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToPeer,
    FromPeer,
}

#[derive(Default)]
struct Faults {
    /// Bytes of these ways are held back.
    is_cut: [AtomicBool; 2],
    /// The next bytes of these ways are forwarded by half, and then the connection is reset.
    halves: [AtomicBool; 2],
    /// Connections that were made.
    connections: AtomicU64,
    ends: AtomicBool,
    streams: Mutex<Vec<[TcpStream; 2]>>,
}

/// See the module. New connections go through it as well.
pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    faults: Arc<Faults>,
}

impl Proxy {
    pub(crate) fn start(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let faults = Arc::new(Faults::default());
        let own = Arc::clone(&faults);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.ends.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(near) = stream else { continue };
                // A peer that listens no more: this connection is closed.
                let Ok(far) = TcpStream::connect(to) else { continue };
                own.connections.fetch_add(1, Ordering::Relaxed);
                join(near, far, &own);
            }
        });
        Proxy { addr, faults }
    }

    /// How many connections were made through it.
    pub(crate) fn connections(&self) -> u64 {
        self.faults.connections.load(Ordering::Relaxed)
    }

    /// Holds bytes back, or lets them pass.
    pub(crate) fn cut(&self, ways: &[Way], is_cut: bool) {
        for way in ways {
            self.faults.is_cut[*way as usize].store(is_cut, Ordering::Relaxed);
        }
    }

    /// Resets the connection behind half of the next bytes of this way.
    pub(crate) fn reset_within_a_frame(&self, way: Way) {
        self.faults.halves[way as usize].store(true, Ordering::Relaxed);
    }

    /// Resets all connections.
    pub(crate) fn reset(&self) {
        let streams = std::mem::take(&mut *self.faults.streams.lock().unwrap());
        streams.iter().flatten().for_each(reset);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults.ends.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.addr));
        self.reset();
    }
}

/// Ends a connection without a farewell: bytes on their way are lost.
fn reset(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}

fn join(near: TcpStream, far: TcpStream, faults: &Arc<Faults>) {
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    }
    let pair = || [near.try_clone().unwrap(), far.try_clone().unwrap()];
    let (to, from) = (pair(), pair());
    faults.streams.lock().unwrap().push(pair());
    for ([from, to], way) in [(to, Way::ToPeer), (from.map_reversed(), Way::FromPeer)] {
        let faults = Arc::clone(faults);
        std::thread::spawn(move || forward(from, to, way, &faults));
    }
}

trait Reversed {
    fn map_reversed(self) -> Self;
}

impl Reversed for [TcpStream; 2] {
    fn map_reversed(self) -> Self {
        let [first, second] = self;
        [second, first]
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, way: Way, faults: &Faults) {
    let mut room = vec![0; 16 << 10];
    loop {
        let count = match from.read(&mut room) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => continue,
                _ => break,
            },
        };
        while faults.is_cut[way as usize].load(Ordering::Relaxed) {
            if faults.ends.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if faults.halves[way as usize].swap(false, Ordering::Relaxed) {
            let _ = to.write_all(&room[..count / 2]);
            // Time for the half to be received: a reset may overtake it.
            std::thread::sleep(LOOK_EVERY);
            break;
        }
        if to.write_all(&room[..count]).is_err() {
            break;
        }
    }
    reset(&from);
    reset(&to);
}
