//! `Stream`: a connection on which a thread blocks, whatever is below it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::role::NodeCertificate;

/// A connection whose reads and writes block: TCP, or TLS over TCP.
pub trait Stream: Read + Write + Send {
    /// No read and no write that is called from now on lasts longer than `limit`, which is never
    /// zero: it ends in an error of kind `TimedOut` or `WouldBlock`. Without such a call nothing is
    /// bounded.
    ///
    /// A layer that makes several reads of the socket in one of its own must bound them together.
    ///
    /// # Errors
    /// What the system says.
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()>;

    /// The certificate that the other side has shown; `None` where connections are not secured.
    fn certificate(&self) -> Option<NodeCertificate> {
        None
    }

    /// Says that the other side may ask for more: the node that serves it keeps it apart from
    /// those any process can make. Returns `false` if there is no room for it; then it should end.
    fn let_in(&mut self) -> bool {
        true
    }
}

impl Stream for TcpStream {
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

impl<S: Stream + ?Sized> Stream for Box<S> {
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
        (**self).set_timeouts(limit)
    }

    fn certificate(&self) -> Option<NodeCertificate> {
        (**self).certificate()
    }

    fn let_in(&mut self) -> bool {
        (**self).let_in()
    }
}
