//! The connection of a handle, which a statement has while it runs.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use selkie::sql::{CancelHandle, Connection, SqlState};

use crate::call::Failure;

/// Where a connection is between two statements.
pub(crate) struct Place {
    state: Mutex<State>,
    pub(crate) cancel: CancelHandle,
}

enum State {
    Here(Box<Connection>),
    /// A statement has it.
    Lent,
    /// The program has closed it.
    Closed,
}

impl Place {
    pub(crate) fn new(connection: Connection) -> Arc<Self> {
        let cancel = connection.cancel_handle();
        Arc::new(Self { state: Mutex::new(State::Here(Box::new(connection))), cancel })
    }

    /// Takes the connection, until what is given is dropped.
    pub(crate) fn lend(self: &Arc<Self>) -> Result<Lent, Failure> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Lent) {
            State::Here(connection) => {
                let place = Arc::clone(self);
                Ok(Lent { connection: Some(connection), place })
            }
            State::Lent => Err(Failure::in_use(
                "the connection is in use: by another thread, or by a statement with unread rows",
            )),
            State::Closed => {
                *state = State::Closed;
                Err(Failure::new(SqlState::CONNECTION_EXCEPTION, "the connection was closed"))
            }
        }
    }

    /// Closes it: at once, or when the statement is over that has it.
    pub(crate) fn close(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Closed);
        // Rolls back, without the lock.
        drop(before);
    }
}

/// A connection that was taken, and is given back when this is dropped.
pub(crate) struct Lent {
    /// `None` while it is given back.
    connection: Option<Box<Connection>>,
    place: Arc<Place>,
}

impl Deref for Lent {
    type Target = Connection;

    #[expect(clippy::expect_used, reason = "it is there until the drop")]
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a connection that is lent is there")
    }
}

impl DerefMut for Lent {
    #[expect(clippy::expect_used, reason = "it is there until the drop")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a connection that is lent is there")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut state = self.place.state.lock();
        if let State::Lent = *state
            && let Some(connection) = self.connection.take()
        {
            *state = State::Here(connection);
        }
    }
}
