//! A session: what a queue pair of a peer has done here, over any number of connections.
//!
//! One connection at a time executes chains. A later one takes the session over: then the earlier
//! one executes nothing more. Every chain executes once, in order, because the session counts them,
//! and the peer sends only those again that were not executed.
//!
//! Every chain executes under the *gate*, the lock of the session's state. Once the gate is closed,
//! no chain of the session executes over any connection.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::answers::Answers;
use super::setup::SetupSession;
use crate::error::Refusal;
use crate::tcp::wire::hello::SessionHello;

/// See the module.
#[derive(Default)]
pub(crate) struct Session {
    /// Kept apart from the gate, so that a thread that is blocked under the gate, as it sends, can
    /// be stopped. Locked before the gate, or alone.
    present: Mutex<Present>,
    gate: Mutex<Gate>,
}

/// The present connection of a session.
#[derive(Default)]
struct Present {
    /// Its number, or that of the last one; 0 before the first.
    number: u32,
    socket: Option<Arc<TcpStream>>,
}

/// What the lock of a session guards.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: bool,
    /// Number of the connection that may pass.
    connection: u32,
    /// Since when there is no connection.
    unconnected_since: Option<Duration>,
    pub(super) answers: Answers,
    /// What was set up beside the session.
    pub(super) setup: Option<Box<dyn SetupSession>>,
}

impl Session {
    /// The connection over `socket` takes the session over. Returns how many chains were executed.
    pub(crate) fn take_over(
        &self,
        socket: &Arc<TcpStream>,
        hello: SessionHello,
    ) -> Result<u64, Refusal> {
        let mut present = self.present.lock();
        if hello.attempt <= present.number {
            return Err(Refusal::Session);
        }
        // The thread of the earlier connection may hold the gate until it can send no more.
        present.shut_down();
        let mut gate = self.gate.lock();
        if gate.is_closed || !gate.answers.forget_before(hello.received) {
            return Err(Refusal::Session);
        }
        gate.connection = hello.attempt;
        gate.unconnected_since = None;
        gate.answers.send_again();
        *present = Present { number: hello.attempt, socket: Some(Arc::clone(socket)) };
        Ok(gate.answers.executed())
    }

    /// The gate, for a chain or an answer over this connection; `None` if it is closed for it.
    pub(super) fn open(&self, connection: u32) -> Option<MutexGuard<'_, Gate>> {
        let gate = self.gate.lock();
        (!gate.is_closed && gate.connection == connection).then_some(gate)
    }

    /// A connection has ended. The session goes on if another one takes it over.
    pub(super) fn lose(&self, connection: u32, now: Duration) {
        let mut present = self.present.lock();
        if present.number == connection {
            present.shut_down();
            self.gate.lock().unconnected_since = Some(now);
        }
    }

    /// Closes the session. Once this returns, no chain of it executes.
    pub(crate) fn close(&self) {
        let mut present = self.present.lock();
        present.shut_down();
        let mut gate = self.gate.lock();
        gate.is_closed = true;
        gate.answers = Answers::default();
        // Under the gate, so that nothing of it executes, either, once this returns.
        drop(gate.setup.take());
    }

    /// Since when the session has no connection; `None` if it has one.
    pub(crate) fn unconnected_since(&self) -> Option<Duration> {
        // The thread that has the gate has a connection.
        self.gate.try_lock()?.unconnected_since
    }
}

impl Present {
    fn shut_down(&mut self) {
        if let Some(socket) = self.socket.take() {
            // It fails if the peer closed the connection first.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn hello(attempt: u32, received: u64) -> SessionHello {
        SessionHello { id: 1, received, attempt, resumes: attempt > 1 }
    }

    #[test]
    fn one_connection_at_a_time_and_none_once_it_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let session = Session::default();
        assert_eq!(session.take_over(&socket, hello(2, 0)), Ok(0));
        assert_eq!(session.unconnected_since(), None);
        for earlier in [1, 2] {
            assert_eq!(session.take_over(&socket, hello(earlier, 0)), Err(Refusal::Session));
        }
        assert!(session.open(2).is_some());
        assert_eq!(session.take_over(&socket, hello(3, 7)), Err(Refusal::Session), "not executed");
        assert_eq!(session.take_over(&socket, hello(3, 0)), Ok(0));
        assert!(session.open(2).is_none() && session.open(3).is_some());
        session.lose(2, Duration::from_secs(1));
        assert_eq!(session.unconnected_since(), None, "another has taken over");
        session.lose(3, Duration::from_secs(2));
        assert_eq!(session.unconnected_since(), Some(Duration::from_secs(2)));
        assert_eq!(session.take_over(&socket, hello(4, 0)), Ok(0));
        session.close();
        assert!(session.open(4).is_none());
        assert_eq!(session.take_over(&socket, hello(5, 0)), Err(Refusal::Session));
    }
}
