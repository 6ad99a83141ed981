//! Connections that are not the fabric's, on the port of the fabric: whoever serves their magic
//! gets them.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::blocking::Blocking;
use crate::stream::Stream;

/// Serves a connection on a thread of its own, until the connection is shut down.
pub type Handler = Arc<dyn Fn(Box<dyn Stream>, SocketAddr) + Send + Sync>;

/// Most connections of an endpoint that handlers have at a time; more are closed.
pub const MAX_HANDED_OVER: usize = 64;

/// Who serves what begins with which word.
#[derive(Default)]
pub(super) struct Handlers(RwLock<HashMap<u64, Handler>>);

impl Handlers {
    pub(super) fn set(&self, magic: u64, handler: Handler) {
        let replaced = self.0.write().insert(magic, handler);
        // Not under the lock: it is somebody else's.
        drop(replaced);
    }

    pub(super) fn of(&self, magic: u64) -> Option<Handler> {
        self.0.read().get(&magic).map(Arc::clone)
    }
}

/// The connections of an endpoint that handlers have.
#[derive(Default)]
pub(super) struct HandedOver(Mutex<Streams>);

#[derive(Default)]
struct Streams {
    by_token: HashMap<u64, Arc<TcpStream>>,
    next_token: u64,
    is_closed: bool,
}

impl HandedOver {
    /// Calls the handler, unless there are too many; returns when it does. Keeps the stream in
    /// sight meanwhile.
    pub(super) fn hand(&self, stream: Blocking, addr: SocketAddr, handler: &Handler) {
        let mut streams = self.0.lock();
        if streams.is_closed || streams.by_token.len() >= MAX_HANDED_OVER {
            return;
        }
        let token = streams.next_token;
        streams.next_token += 1;
        streams.by_token.insert(token, Arc::clone(stream.socket()));
        drop(streams);
        let _returns = Returns { handed_over: self, token };
        handler(Box::new(stream), addr);
    }

    /// Shuts all of them down, and takes no more.
    pub(super) fn close(&self) {
        let mut streams = self.0.lock();
        streams.is_closed = true;
        for stream in streams.by_token.values() {
            // It fails if the peer was faster.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Strikes a connection off when its handler returns, however it does.
struct Returns<'h> {
    handed_over: &'h HandedOver,
    token: u64,
}

impl Drop for Returns<'_> {
    fn drop(&mut self) {
        self.handed_over.0.lock().by_token.remove(&self.token);
    }
}
