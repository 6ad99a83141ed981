//! A link outlives its connections: what ends a connection, what ends the link, and how the next
//! connection begins.
//!
//! ```text
//!                  reply                       closed, broken, or silent
//! Connecting ----------------> Accepted --------------------------------+
//!     ^    \                                                            v
//!     |     +--------------- closed, broken, or silent -------------> Broken
//!     +----------------------- at once, then with pauses ---------------+
//! any of them -----> ended: no process listens there, or it refuses; bad bytes; the peer was
//!                    fenced here; it showed no sign of life for `dead_after`; the queue pair was
//!                    dropped and its chains are done
//! ```
//! The link connects to where the peer was introduced first, and the hello names the session. So
//! another process there refuses, also one of the same name.

use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::link_failure::LinkFailure;
use super::link_state::FIRST_INTEREST;
use crate::error::FabricError;
use crate::tcp::transport::pipe::Pipe;
use crate::tcp::wire::error::WireError;

/// The pause before the third connection in a row; the second is made at once. It doubles with each
/// further one.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between connections.
const MAX_PAUSE: Duration = Duration::from_millis(160);
/// Pauses that are shorter than the longest one.
const DOUBLINGS: u32 = 5;

const _: () = assert!(FIRST_PAUSE.as_millis() << DOUBLINGS == MAX_PAUSE.as_millis());

/// The pause after this many connections in a row that came to nothing, the broken one included.
fn pause_after(failures: u32) -> Duration {
    match failures.checked_sub(2) {
        None => Duration::ZERO,
        Some(paused) => FIRST_PAUSE * 2_u32.pow(paused.min(DOUBLINGS)),
    }
}

impl Link {
    /// A send or a receive over a connection of this number failed.
    pub(super) fn fail(&self, connection: u32, failure: LinkFailure) {
        let peer = self.peer();
        let dead = FabricError::PeerDead { peer };
        match failure {
            LinkFailure::Closed => self.break_off(connection),
            LinkFailure::NotListening => self.end(dead),
            // A peer that has accepted the queue pair once, and now does not, is another one.
            LinkFailure::Refused(_) if self.state.lock().is_known => self.end(dead),
            LinkFailure::Refused(why) => self.end(FabricError::Refused { peer, why }),
            LinkFailure::Tls(why) => {
                self.reactor.note_bad_link(WireError::Tls { why });
                self.end(FabricError::Tls { peer, why });
            }
            LinkFailure::Wire(error) => {
                self.reactor.note_bad_link(error);
                self.end(dead);
            }
        }
    }

    /// Gives the connection up if it is still the present one. The driver makes another.
    fn break_off(&self, connection: u32) {
        // The inbox: no thread is taking a response out of it now.
        let inbox = self.inbox.lock();
        let mut state = self.state.lock();
        if !state.is_connected() || state.connection != connection {
            return;
        }
        state.break_off();
        let (pipe, pause) = (Arc::clone(&state.pipe), pause_after(state.failures));
        drop(state);
        drop(inbox);
        pipe.shutdown();
        self.reactor.remove(pipe.socket());
        if let Some(table) = self.table.upgrade() {
            table.reconnect(self.token(), pause);
        }
    }

    /// The present connection is silent for too long, though the peer may live.
    pub(crate) fn give_connection_up(&self) {
        let connection = self.state.lock().connection;
        self.break_off(connection);
    }

    /// Connects again over `pipe`, which is connecting, unless the link has ended.
    pub(crate) fn connect_over(&self, pipe: Pipe) {
        let pipe = Arc::new(pipe);
        let mut inbox = self.inbox.lock();
        let mut state = self.state.lock();
        if state.is_connected() || state.end.is_some() {
            return;
        }
        state.connect(Arc::clone(&pipe));
        inbox.frames.clear();
        (inbox.pipe, inbox.connection) = (Arc::clone(&pipe), state.connection);
        // Under the locks: a thread that changes the interest then finds the socket.
        let added = self.reactor.add(self.token(), pipe.socket(), FIRST_INTEREST);
        let connection = state.connection;
        drop(state);
        drop(inbox);
        if added.is_err() {
            self.break_off(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_connections_is_made_at_once_and_pauses_are_bounded() {
        let pauses: Vec<_> = (0..10).map(|failures| pause_after(failures).as_millis()).collect();
        assert_eq!(pauses, [0, 0, 5, 10, 20, 40, 80, 160, 160, 160]);
        assert_eq!(pause_after(u32::MAX), MAX_PAUSE);
    }
}
