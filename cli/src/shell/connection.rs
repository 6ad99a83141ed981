//! The connection of a shell to a server: what is said at its beginning, and another one for one
//! that is lost.

use super::backend::wishing;
use super::error::{ShellError, notice_text};
use super::input::Input;
use super::run::{Shell, locked};
use super::sink::mention;

impl Shell {
    /// Says where statements are run, to a user who types them, and what the server has said.
    pub(super) fn greet(&self) {
        let mut backend = locked(self.backend());
        if let Some(client) = backend.server() {
            mention(&format!("Connected to {}. \\? lists commands.", client.place()));
            client.take_notices().iter().for_each(|notice| mention(&notice_text(notice)));
        }
    }

    /// Whether the session is still there. For a user who types, another is begun if it is not;
    /// that has nothing of the first, neither settings nor a transaction. A script ends: what
    /// follows was meant for the first.
    ///
    /// # Errors
    /// That it is lost, to a script; the signal that asks the process to end.
    pub(super) fn keeps_connection(&self, input: &Input) -> Result<bool, ShellError> {
        let mut backend = locked(self.backend());
        let Some(client) = backend.server().filter(|client| !client.is_connected()) else {
            return Ok(true);
        };
        if !self.is_typed {
            return Err(ShellError::Lost(client.host()));
        }
        // The file of a user who types ends, and then it is looked here again.
        if !input.is_typed() {
            return Ok(false);
        }
        let is_stopped = || self.interrupt().is_stopped();
        let again = client.reconnect(&mut wishing(self.interrupt(), is_stopped));
        if let Some(interrupted) = self.interrupt().signal() {
            return Err(interrupted.into());
        }
        match again {
            Ok(()) => mention(&format!(
                "The connection was lost; the session, its settings and its transaction are gone. \
                 Connected again, to {}.",
                client.place()
            )),
            Err(error) => mention(&format!(
                "The connection was lost, and there is no other: {error}. The next statement tries \
                 again."
            )),
        }
        Ok(false)
    }

    /// Whether there is a session for a statement. For a user who types, another is begun first if
    /// it is lost.
    ///
    /// # Errors
    /// As [`keeps_connection`](Self::keeps_connection).
    pub(super) fn is_ready(&self, input: &Input) -> Result<bool, ShellError> {
        let is_connected =
            || locked(self.backend()).server().is_none_or(|client| client.is_connected());
        Ok(is_connected() || {
            self.keeps_connection(input)?;
            is_connected()
        })
    }
}
