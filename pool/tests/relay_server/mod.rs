//! A relay at a port of its own, for tests.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use selkie_pool::control::{ControlPlane, Relay, RelayError};

/// What became of connections, in the order in which they ended.
pub(crate) type Ends = mpsc::Receiver<Result<(), RelayError>>;

/// Serves until it is dropped.
pub(crate) struct RelayServer {
    state: Arc<State>,
    ends: Mutex<Option<Ends>>,
}

struct State {
    address: SocketAddr,
    is_away: AtomicBool,
    accepted: AtomicUsize,
    connections: Mutex<Vec<TcpStream>>,
}

impl RelayServer {
    pub(crate) fn start(plane: Arc<dyn ControlPlane>, name: &str) -> RelayServer {
        let serve = |relay: &Relay, stream: TcpStream| relay.serve_from_start(stream);
        RelayServer::start_with(plane, name, serve)
    }

    /// `serve` gets every connection from its first byte on.
    pub(crate) fn start_with(
        plane: Arc<dyn ControlPlane>,
        name: &str,
        serve: impl Fn(&Relay, TcpStream) -> Result<(), RelayError> + Send + Sync + 'static,
    ) -> RelayServer {
        let relay = Arc::new(Relay::new(plane, name).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = Arc::new(State {
            address: listener.local_addr().unwrap(),
            is_away: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            connections: Mutex::default(),
        });
        let (sender, ends) = mpsc::channel();
        let (serve, accepting) = (Arc::new(serve), Arc::clone(&state));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut connections = accepting.connections.lock().unwrap();
                // Read under the lock, so that none is forgotten.
                if accepting.is_away.load(Ordering::SeqCst) {
                    return;
                }
                connections.push(stream.try_clone().unwrap());
                accepting.accepted.fetch_add(1, Ordering::SeqCst);
                let (relay, serve, sender) =
                    (Arc::clone(&relay), Arc::clone(&serve), sender.clone());
                thread::spawn(move || {
                    let served = serve(&relay, stream.try_clone().unwrap());
                    let _ = stream.shutdown(Shutdown::Both);
                    let _ = sender.send(served);
                });
            }
        });
        RelayServer { state, ends: Mutex::new(Some(ends)) }
    }

    pub(crate) fn endpoint(&self) -> String {
        self.state.address.to_string()
    }

    #[allow(dead_code, reason = "not every test that uses this module counts connections")]
    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// To be had once.
    #[allow(dead_code, reason = "not every test that uses this module asks what became of them")]
    pub(crate) fn ends(&self) -> Ends {
        self.ends.lock().unwrap().take().unwrap()
    }

    /// Ends all connections and accepts no more, for a caller that has to do it from elsewhere.
    pub(crate) fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move || {
            let connections = {
                let mut connections = state.connections.lock().unwrap();
                state.is_away.store(true, Ordering::SeqCst);
                std::mem::take(&mut *connections)
            };
            for connection in connections {
                let _ = connection.shutdown(Shutdown::Both);
            }
            // Wakes the thread that accepts, and learns when it has ended.
            if let Ok(mut last) = TcpStream::connect(state.address) {
                last.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let _ = last.read(&mut [0]);
            }
        }
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        self.stopper()();
    }
}
