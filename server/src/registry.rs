//! All connections of a server.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_sql::{CancelHandle, SessionList};

/// The connections that there are, by their numbers.
pub(crate) struct Registry {
    most: usize,
    connections: Mutex<Connections>,
    sessions: Arc<SessionList>,
}

#[derive(Default)]
struct Connections {
    last: i32,
    open: HashMap<i32, Cancellation>,
}

/// How the statement of a connection is cancelled.
struct Cancellation {
    secret: i32,
    handle: CancelHandle,
}

/// The place of a connection in the registry, as long as it is kept.
pub(crate) struct Place {
    registry: Arc<Registry>,
    /// What the client is told, so that it can cancel its statements.
    pub(crate) number: i32,
    pub(crate) secret: i32,
}

impl Registry {
    /// Of at most so many connections.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, connections: Mutex::default(), sessions: Arc::default() }
    }

    /// What the sessions of all connections do.
    pub(crate) fn sessions(&self) -> &Arc<SessionList> {
        &self.sessions
    }

    /// Takes a connection in; `None` if there are as many as are allowed.
    pub(crate) fn enter(self: &Arc<Self>, handle: CancelHandle) -> Option<Place> {
        let mut connections = self.connections.lock();
        if connections.open.len() >= self.most {
            return None;
        }
        let number = connections.free_number();
        // By keys of the system's randomness: none can be told from those of others.
        let secret = RandomState::new().hash_one(number) as i32;
        connections.open.insert(number, Cancellation { secret, handle });
        drop(connections);
        Some(Place { registry: Arc::clone(self), number, secret })
    }

    /// How many connections there are.
    pub(crate) fn open(&self) -> usize {
        self.connections.lock().open.len()
    }

    /// Cancels the statement of a connection, if the secret is its own.
    pub(crate) fn cancel(&self, number: i32, secret: i32) {
        let connections = self.connections.lock();
        let found = connections.open.get(&number).filter(|own| own.secret == secret);
        let handle = found.map(|own| own.handle.clone());
        drop(connections);
        handle.iter().for_each(CancelHandle::cancel);
    }

    /// Cancels the statements of all connections.
    pub(crate) fn cancel_all(&self) {
        let connections = self.connections.lock();
        let handles: Vec<_> = connections.open.values().map(|own| own.handle.clone()).collect();
        drop(connections);
        handles.iter().for_each(CancelHandle::cancel);
    }
}

impl Connections {
    /// A number that no connection has.
    fn free_number(&mut self) -> i32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.open.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.connections.lock().open.remove(&self.number);
    }
}
