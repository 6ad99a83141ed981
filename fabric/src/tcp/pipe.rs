//! The socket of a link: plain, or with TLS. Nothing here blocks.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};

use super::tls::Tls;
use crate::distrust::Distrust;

const SEND_NOW: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

pub(super) struct Pipe {
    socket: OwnedFd,
    /// Held for a call into the system that does not block, and for what sealing and opening takes.
    tls: Option<Mutex<Tls>>,
}

/// What came.
pub(super) enum Received {
    Bytes(usize),
    /// Something of which no byte can be had yet. Whether the peer has shown who it is.
    Part {
        is_trusted: bool,
    },
    Nothing,
}

/// Why nothing can come any more.
pub(super) enum Lost {
    Closed,
    Distrusted(Distrust),
}

impl Pipe {
    pub(super) fn new(socket: OwnedFd, tls: Option<Tls>) -> Self {
        Self { socket, tls: tls.map(Mutex::new) }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn shutdown(&self) {
        // It fails if the peer was faster.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Sends some of `bytes`, or takes them over: [`Pipe::flush`] says whether all are gone.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(tls) = &self.tls else { return send(&self.socket, bytes, SEND_NOW) };
        let mut tls = tls.lock();
        flush(&mut tls, self.socket.as_fd())?;
        let count = tls.seal(bytes);
        match flush(&mut tls, self.socket.as_fd()) {
            Ok(()) | Err(Errno::AGAIN) if count > 0 => Ok(count),
            Ok(()) => Err(Errno::AGAIN),
            Err(error) => Err(error),
        }
    }

    /// Sends what was taken over.
    pub(super) fn flush(&self) -> Result<(), Errno> {
        match &self.tls {
            None => Ok(()),
            Some(tls) => flush(&mut tls.lock(), self.socket.as_fd()),
        }
    }

    /// Receives what has come to `room`, which must not be empty.
    pub(super) fn receive(&self, room: &mut [u8]) -> Result<Received, Lost> {
        let Some(tls) = &self.tls else {
            return Ok(match self.receive_plain(room)? {
                0 => Received::Nothing,
                count => Received::Bytes(count),
            });
        };
        let mut tls = tls.lock();
        let received = self.receive_sealed(&mut tls, room);
        if tls.wants_flush() {
            // What the socket does not take now is asked for by `wants_flush`; if it breaks, the
            // next call says so.
            let _ = flush(&mut tls, self.socket.as_fd());
        }
        received
    }

    fn receive_sealed(&self, tls: &mut Tls, room: &mut [u8]) -> Result<Received, Lost> {
        let bytes = |count| if count == 0 { Err(Lost::Closed) } else { Ok(Received::Bytes(count)) };
        if let Some(count) = tls.open(room).map_err(Lost::Distrusted)? {
            return bytes(count);
        }
        match self.receive_plain(tls.room())? {
            0 => return Ok(Received::Nothing),
            count => tls.received(count),
        }
        match tls.open(room).map_err(Lost::Distrusted)? {
            Some(count) => bytes(count),
            None => Ok(Received::Part { is_trusted: tls.is_established() }),
        }
    }

    /// 0 if nothing has come.
    fn receive_plain(&self, room: &mut [u8]) -> Result<usize, Lost> {
        loop {
            match recv(&self.socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(Lost::Closed),
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(_) => return Err(Lost::Closed),
            }
        }
    }

    /// Whether more can be received though the socket may have nothing.
    pub(super) fn holds_back(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().holds_back())
    }

    /// Whether a receipt has left something to be sent that the socket did not take.
    pub(super) fn wants_flush(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().wants_flush())
    }
}

fn flush(tls: &mut Tls, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let sent = tls.flush(|parts| send_parts(socket, parts, SEND_NOW));
    sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PIPE))
}

/// Sends some of what the parts hold.
pub(super) fn send_parts(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?)
}
