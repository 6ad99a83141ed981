//! Other protocols on the port of the fabric: the first word of a connection tells its protocol,
//! and the handler of that protocol gets the connection.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::stream::Stream;
use crate::tcp::transport::blocking::Blocking;

/// Serves a connection on a thread of its own, until the connection is shut down.
pub type ProtocolHandler = Arc<dyn Fn(Box<dyn Stream>, SocketAddr) + Send + Sync>;

/// Most connections of other protocols that an endpoint serves at a time. Further ones are closed.
pub const MAX_FOREIGN_CONNECTIONS: usize = 64;

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

/// The connections of one endpoint that handlers serve.
#[derive(Default)]
pub(crate) struct ForeignConnections(Mutex<OpenConnections>);

#[derive(Default)]
struct OpenConnections {
    by_token: HashMap<u64, Arc<TcpStream>>,
    next_token: u64,
    is_closed: bool,
}

impl ForeignConnections {
    /// Calls the handler, unless too many run. Returns when the handler returns. Until then
    /// [`ForeignConnections::close`] shuts the connection down.
    pub(crate) fn serve(&self, stream: Blocking, addr: SocketAddr, handler: &ProtocolHandler) {
        let mut open = self.0.lock();
        if open.is_closed || open.by_token.len() >= MAX_FOREIGN_CONNECTIONS {
            return;
        }
        let token = open.next_token;
        open.next_token += 1;
        open.by_token.insert(token, Arc::clone(stream.socket()));
        drop(open);
        let _guard = OpenGuard { connections: self, token };
        handler(Box::new(stream), addr);
    }

    /// Shuts all connections down, and refuses further ones.
    pub(crate) fn close(&self) {
        let mut open = self.0.lock();
        open.is_closed = true;
        for stream in open.by_token.values() {
            // It fails if the peer closed the connection first.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Removes a connection when its handler returns or panics.
struct OpenGuard<'h> {
    connections: &'h ForeignConnections,
    token: u64,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.connections.0.lock().by_token.remove(&self.token);
    }
}
