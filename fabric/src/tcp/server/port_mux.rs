//! Other protocols on the port of the fabric: the first word of a connection tells its protocol,
//! and the handler of that protocol gets the connection.
//!
//! A connection is a newcomer until its protocol lets it in ([`Stream::let_in`]). Then it has one
//! of [`MAX_FOREIGN_CONNECTIONS`] places. If all are taken, a connection that waits for a request
//! makes room: that of a client which has more of them than the newcomer, or else one that has
//! waited for long. Clients are told apart by their certificates, and without those by their
//! addresses.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::newcomers::{Newcomer, shut_down};
use crate::role::NodeCertificate;
use crate::stream::Stream;
use crate::tcp::transport::blocking::Blocking;

/// Serves a connection on a thread of its own, until the connection is shut down.
pub type ProtocolHandler = Arc<dyn Fn(Box<dyn Stream>, SocketAddr) + Send + Sync>;

/// Most connections of other protocols that an endpoint serves at a time, besides those that have
/// not been let in.
pub const MAX_FOREIGN_CONNECTIONS: usize = 64;

/// A connection that has waited for a request for so long makes room for any other. Longer than
/// the pause between two requests of a process that follows a pool closely.
const IDLE_FOR: Duration = Duration::from_millis(500);

/// Handlers by the first word of their protocol.
#[derive(Default)]
pub(crate) struct ProtocolHandlers(RwLock<HashMap<u64, ProtocolHandler>>);

impl ProtocolHandlers {
    pub(crate) fn set(&self, magic: u64, handler: ProtocolHandler) {
        let replaced = self.0.write().insert(magic, handler);
        // Dropped without the lock: its drop runs code of the caller.
        drop(replaced);
    }

    pub(crate) fn of(&self, magic: u64) -> Option<ProtocolHandler> {
        self.0.read().get(&magic).map(Arc::clone)
    }
}

/// The connections of one endpoint that handlers have let in.
#[derive(Default)]
pub(crate) struct ForeignConnections(Mutex<OpenConnections>);

#[derive(Default)]
struct OpenConnections {
    by_token: HashMap<u64, OpenConnection>,
    next_token: u64,
    is_closed: bool,
}

struct OpenConnection {
    client: Client,
    socket: Arc<TcpStream>,
    reading: Arc<Reading>,
}

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    Certificate([u8; 32]),
    Address(IpAddr),
}

/// Since when a connection waits for bytes.
#[derive(Default)]
struct Reading(Mutex<Option<Instant>>);

impl Reading {
    /// For how long it has waited; `None` if it does not.
    fn waits_for(&self, now: Instant) -> Option<Duration> {
        self.0.lock().map(|since| now.saturating_duration_since(since))
    }
}

impl ForeignConnections {
    /// Calls the handler, and returns when it returns. Until then [`ForeignConnections::close`]
    /// shuts the connection down, if it was let in.
    pub(crate) fn serve(
        self: &Arc<Self>,
        stream: Blocking,
        addr: SocketAddr,
        handler: &ProtocolHandler,
        newcomer: Newcomer,
    ) {
        let place = Arc::new(Mutex::new(ConnectionState::Outside(newcomer)));
        let _guard = PlaceGuard { connections: self, place: &place };
        let (connections, reading) = (Arc::clone(self), Arc::default());
        let from = addr.ip();
        let place = Arc::clone(&place);
        handler(Box::new(ForeignStream { stream, from, connections, place, reading }), addr);
    }

    /// Gives a connection a place; `None` if none can be had.
    fn enter(&self, connection: OpenConnection) -> Option<u64> {
        let mut open = self.0.lock();
        if open.is_closed {
            return None;
        }
        if open.by_token.len() >= MAX_FOREIGN_CONNECTIONS {
            let displaced = open.displaced(connection.client, Instant::now())?;
            if let Some(displaced) = open.by_token.remove(&displaced) {
                shut_down(&displaced.socket);
            }
        }
        let token = open.next_token;
        open.next_token += 1;
        open.by_token.insert(token, connection);
        Some(token)
    }

    /// Shuts all connections down, and refuses further ones.
    pub(crate) fn close(&self) {
        let mut open = self.0.lock();
        open.is_closed = true;
        open.by_token.values().for_each(|open| shut_down(&open.socket));
    }
}

impl OpenConnections {
    /// The connection that makes room for one of `client`.
    fn displaced(&self, client: Client, now: Instant) -> Option<u64> {
        let mut counts: HashMap<Client, usize> = HashMap::new();
        self.by_token.values().for_each(|open| *counts.entry(open.client).or_default() += 1);
        let count = |client: &Client| counts.get(client).copied().unwrap_or(0);
        let most = counts.values().copied().max()?;
        let is_greedy =
            |open: &OpenConnection| count(&open.client) == most && most > count(&client) + 1;
        let waiting = self.by_token.iter().filter_map(|(token, open)| {
            let waited = open.reading.waits_for(now)?;
            Some((is_greedy(open), waited, *token))
        });
        let chosen = waiting.filter(|(is_greedy, waited, _)| *is_greedy || *waited >= IDLE_FOR);
        chosen.max().map(|(.., token)| token)
    }
}

/// Where a connection is.
enum ConnectionState {
    /// Not let in.
    Outside(#[expect(dead_code, reason = "its drop gives the place up")] Newcomer),
    Inside(u64),
    Nowhere,
}

/// A connection in the hands of a handler.
struct ForeignStream {
    stream: Blocking,
    from: IpAddr,
    connections: Arc<ForeignConnections>,
    place: Arc<Mutex<ConnectionState>>,
    reading: Arc<Reading>,
}

impl Read for ForeignStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        *self.reading.0.lock() = Some(Instant::now());
        let read = self.stream.read(room);
        *self.reading.0.lock() = None;
        read
    }
}

impl Write for ForeignStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Stream for ForeignStream {
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
        self.stream.set_timeouts(limit)
    }

    fn certificate(&self) -> Option<NodeCertificate> {
        self.stream.certificate()
    }

    fn let_in(&mut self) -> bool {
        let mut place = self.place.lock();
        match *place {
            ConnectionState::Inside(_) => return true,
            ConnectionState::Nowhere => return false,
            ConnectionState::Outside(_) => {}
        }
        let shown = self.stream.certificate().map(|shown| Client::Certificate(shown.fingerprint));
        let client = shown.unwrap_or(Client::Address(self.from));
        let (socket, reading) = (Arc::clone(self.stream.socket()), Arc::clone(&self.reading));
        let entered = self.connections.enter(OpenConnection { client, socket, reading });
        if let Some(token) = entered {
            *place = ConnectionState::Inside(token);
        }
        entered.is_some()
    }
}

/// Gives the place of a connection up when its handler returns or panics.
struct PlaceGuard<'h> {
    connections: &'h ForeignConnections,
    place: &'h Mutex<ConnectionState>,
}

impl Drop for PlaceGuard<'_> {
    fn drop(&mut self) {
        if let ConnectionState::Inside(token) =
            std::mem::replace(&mut *self.place.lock(), ConnectionState::Nowhere)
        {
            self.connections.0.lock().by_token.remove(&token);
        }
    }
}
