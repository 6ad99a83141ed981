//! The socket of a link, with TLS or without. Nothing here blocks.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};

use crate::role::NodeCertificate;
use crate::tcp::security::tls::Tls;
use crate::tls_error::TlsError;

const SEND_NOW: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

pub(crate) struct Pipe {
    socket: OwnedFd,
    /// Locked for system calls that do not block, and for sealing and opening.
    tls: Option<Mutex<Tls>>,
}

/// What a receive gives.
pub(crate) enum Received {
    Bytes(usize),
    /// A part of a TLS record or handshake, without payload yet.
    Part {
        /// Whether the handshake is over.
        is_trusted: bool,
    },
    Nothing,
}

/// Why a receive failed for good.
pub(crate) enum ReceiveError {
    Closed,
    /// No process listens at the address.
    NotListening,
    Tls(TlsError),
}

impl Pipe {
    pub(crate) fn new(socket: OwnedFd, tls: Option<Tls>) -> Self {
        Self { socket, tls: tls.map(Mutex::new) }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn shutdown(&self) {
        // It fails if the peer closed the connection first.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Sends some of `bytes`, or seals them; [`Pipe::flush`] then sends them. Returns how many.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
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

    /// Sends the sealed bytes.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        match &self.tls {
            None => Ok(()),
            Some(tls) => flush(&mut tls.lock(), self.socket.as_fd()),
        }
    }

    /// Receives into `room`, which must not be empty.
    pub(crate) fn receive(&self, room: &mut [u8]) -> Result<Received, ReceiveError> {
        let Some(tls) = &self.tls else {
            return Ok(match self.receive_plain(room)? {
                0 => Received::Nothing,
                count => Received::Bytes(count),
            });
        };
        let mut tls = tls.lock();
        let received = self.receive_sealed(&mut tls, room);
        if tls.wants_flush() {
            // `wants_flush` tells of the bytes that the socket does not take now. If the socket is
            // broken, the next call fails.
            let _ = flush(&mut tls, self.socket.as_fd());
        }
        received
    }

    fn receive_sealed(&self, tls: &mut Tls, room: &mut [u8]) -> Result<Received, ReceiveError> {
        let bytes =
            |count| if count == 0 { Err(ReceiveError::Closed) } else { Ok(Received::Bytes(count)) };
        if let Some(count) = tls.open(room).map_err(ReceiveError::Tls)? {
            return bytes(count);
        }
        match self.receive_plain(tls.room())? {
            0 => return Ok(Received::Nothing),
            count => tls.received(count),
        }
        match tls.open(room).map_err(ReceiveError::Tls)? {
            Some(count) => bytes(count),
            None => Ok(Received::Part { is_trusted: tls.is_established() }),
        }
    }

    /// Returns 0 if there is nothing to receive.
    fn receive_plain(&self, room: &mut [u8]) -> Result<usize, ReceiveError> {
        loop {
            match recv(&self.socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(ReceiveError::Closed),
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::CONNREFUSED) => return Err(ReceiveError::NotListening),
                Err(_) => return Err(ReceiveError::Closed),
            }
        }
    }

    /// What the certificate of the other side says, once the handshake is over.
    pub(crate) fn certificate(&self) -> Option<NodeCertificate> {
        self.tls.as_ref()?.lock().certificate()
    }

    /// Whether TLS holds opened bytes back, so that more can be received without the socket.
    pub(crate) fn holds_back(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().holds_back())
    }

    /// Whether a receive left bytes to be sent that the socket did not take.
    pub(crate) fn wants_flush(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().wants_flush())
    }
}

fn flush(tls: &mut Tls, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let sent = tls.flush(|parts| send_parts(socket, parts, SEND_NOW));
    sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PIPE))
}

/// Sends some of the bytes of `parts`.
pub(crate) fn send_parts(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)?)
}
