//! A connection that blocks its thread, with TLS or without: on the serving side, and for other
//! protocols.
//!
//! One read over TLS may take several reads of the socket, until a whole record is there. Together
//! they keep the time limit of the one read, by the clock of the system, like the limits of
//! sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv};

use super::pipe::send_parts;
use crate::role::NodeCertificate;
use crate::stream::Stream;
use crate::tcp::security::tls::Tls;
use crate::tls_error::TlsError;

/// Most bytes that are read and ignored before a connection is closed.
const MAX_IGNORED_BYTES: usize = 1 << 20;

pub(crate) struct Blocking {
    socket: Arc<TcpStream>,
    tls: Option<Box<Tls>>,
    /// Time limit of one call.
    limit: Option<Duration>,
    /// The read limit that is set on the socket.
    reads: Option<Duration>,
    /// The write limit that is set on the socket.
    writes: Option<Duration>,
}

impl Blocking {
    /// Wraps a socket that blocks and has no time limits.
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket: Arc::new(socket), tls: None, limit: None, reads: None, writes: None }
    }

    /// Connects to `addr`, and does the TLS handshake.
    pub(crate) fn connect(addr: SocketAddr, tls: Tls, limit: Duration) -> io::Result<Self> {
        let until = Instant::now() + limit;
        let socket = TcpStream::connect_timeout(&addr, limit)?;
        socket.set_nodelay(true)?;
        let mut stream = Self::new(socket);
        stream.secure(tls, left_until(until)?)?;
        stream.set_unlimited()?;
        Ok(stream)
    }

    /// The socket, so that another thread can shut it down.
    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// Does the TLS handshake within `limit`. Tells the other side of every failure but those of
    /// the network.
    pub(crate) fn secure(&mut self, tls: Tls, limit: Duration) -> io::Result<()> {
        let (tls, until) = (self.tls.insert(Box::new(tls)), Instant::now() + limit);
        let (socket, reads, writes) = (&self.socket, &mut self.reads, &mut self.writes);
        loop {
            flush(tls, socket, writes, Some(left_until(until)?))?;
            if tls.is_established() {
                return Ok(());
            }
            set_limit(reads, Some(left_until(until)?), |limit| socket.set_read_timeout(limit))?;
            match uninterrupted(|| (&**socket).read(tls.room()))? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => tls.received(count),
            }
            if let Err(why) = tls.shake_hands() {
                // The connection may be closed already.
                let _ = flush(tls, socket, writes, left_until(until).ok());
                return Err(as_io_error(why));
            }
        }
    }

    /// Removes the time limits.
    pub(crate) fn set_unlimited(&mut self) -> io::Result<()> {
        self.limit = None;
        let socket = &self.socket;
        set_limit(&mut self.reads, None, |limit| socket.set_read_timeout(limit))?;
        set_limit(&mut self.writes, None, |limit| socket.set_write_timeout(limit))
    }

    /// Reads without blocking; `None` if there is nothing to read.
    pub(crate) fn read_now(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else { return receive_now(&self.socket, room) };
        if let Some(count) = tls.open(room).map_err(as_io_error)? {
            return Ok(Some(count));
        }
        match receive_now(&self.socket, tls.room())? {
            None => Ok(None),
            Some(0) => Ok(Some(0)),
            Some(count) => {
                tls.received(count);
                self.open(room)
            }
        }
    }

    /// Opens received TLS bytes, and sends what TLS has to answer.
    fn open(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else { return Ok(None) };
        let opened = tls.open(room);
        if tls.wants_flush() {
            let flushed = flush(tls, &self.socket, &mut self.writes, self.limit);
            if opened.is_ok() {
                flushed?;
            }
        }
        opened.map_err(as_io_error)
    }

    /// Sends `last`, not sealed, and reads until the peer closes the connection, at most for
    /// `limit`. With unread bytes the system would reset the connection, and the peer might miss
    /// `last`.
    pub(crate) fn send_last(mut self, last: &[u8], limit: Duration) {
        let until = Instant::now() + limit;
        let socket = &self.socket;
        // The connection ends in any case.
        let _ = set_limit(&mut self.writes, Some(limit), |limit| socket.set_write_timeout(limit));
        let _ = (&**socket).write_all(last);
        let _ = socket.shutdown(Shutdown::Write);
        let (mut ignored, mut room) = (0, [0; 4096]);
        while let (Ok(left), true) = (left_until(until), ignored < MAX_IGNORED_BYTES) {
            let set = |limit| socket.set_read_timeout(limit);
            if set_limit(&mut self.reads, Some(left), set).is_err() {
                return;
            }
            match uninterrupted(|| (&**socket).read(&mut room)) {
                Ok(0) | Err(_) => return,
                Ok(count) => ignored += count,
            }
        }
    }
}

impl Read for Blocking {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return (&*self.socket).read(room);
        }
        if room.is_empty() {
            return Ok(0);
        }
        let until = self.limit.map(|limit| Instant::now() + limit);
        let mut left = self.limit;
        let mut opened = match &mut self.tls {
            Some(tls) => tls.open(room).map_err(as_io_error)?,
            None => None,
        };
        while opened.is_none() {
            let (Some(tls), socket) = (&mut self.tls, &self.socket) else { break };
            set_limit(&mut self.reads, left, |limit| socket.set_read_timeout(limit))?;
            match uninterrupted(|| (&**socket).read(tls.room()))? {
                0 => return Ok(0),
                count => tls.received(count),
            }
            opened = self.open(room)?;
            if opened.is_none() {
                left = until.map(left_until).transpose()?;
            }
        }
        Ok(opened.unwrap_or(0))
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return (&*self.socket).write(bytes) };
        if tls.wants_flush() {
            // The write before ended in the middle of a record.
            return Err(ErrorKind::BrokenPipe.into());
        }
        let count = tls.seal(bytes);
        flush(tls, &self.socket, &mut self.writes, self.limit)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Blocking {
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
        self.limit = Some(limit);
        let socket = &self.socket;
        set_limit(&mut self.reads, Some(limit), |limit| socket.set_read_timeout(limit))?;
        set_limit(&mut self.writes, Some(limit), |limit| socket.set_write_timeout(limit))
    }

    fn certificate(&self) -> Option<NodeCertificate> {
        self.tls.as_ref()?.certificate()
    }
}

/// Sets a time limit on the socket, unless it is set already.
fn set_limit(
    known: &mut Option<Duration>,
    limit: Option<Duration>,
    set: impl FnOnce(Option<Duration>) -> io::Result<()>,
) -> io::Result<()> {
    if *known != limit {
        set(limit)?;
        *known = limit;
    }
    Ok(())
}

/// Sends the sealed bytes within `limit`.
fn flush(
    tls: &mut Tls,
    socket: &TcpStream,
    writes: &mut Option<Duration>,
    limit: Option<Duration>,
) -> io::Result<()> {
    let until = limit.map(|limit| Instant::now() + limit);
    let mut is_first = true;
    tls.flush(|parts| {
        let left = if is_first { limit } else { until.map(left_until).transpose()? };
        is_first = false;
        set_limit(writes, left, |limit| socket.set_write_timeout(limit))?;
        send_parts(socket.as_fd(), parts, SendFlags::NOSIGNAL)
    })
}

fn receive_now(socket: &TcpStream, room: &mut [u8]) -> io::Result<Option<usize>> {
    match recv(socket, room, RecvFlags::DONTWAIT) {
        Ok((_, count)) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn left_until(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

fn as_io_error(why: TlsError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// The TLS error in an error of a stream, if it has one.
pub(crate) fn tls_error_of(error: &io::Error) -> Option<TlsError> {
    error.get_ref()?.downcast_ref().copied()
}
