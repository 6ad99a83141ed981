//! A connection on which a thread blocks, plain or with TLS: on the side that serves, and where a
//! connection is none of the fabric's.
//!
//! One read over TLS may take several of the socket, until a whole record is there. They share the
//! limit of the one, by the clock of the system, like the limits of sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv};

use super::pipe::send_parts;
use super::tls::Tls;
use crate::distrust::Distrust;
use crate::stream::Stream;

/// Most bytes heard in vain before a connection is closed.
const MAX_IGNORED_BYTES: usize = 1 << 20;

pub(super) struct Blocking {
    socket: Arc<TcpStream>,
    tls: Option<Box<Tls>>,
    /// Bound of a call.
    limit: Option<Duration>,
    /// The limits that the socket has.
    reads: Option<Duration>,
    writes: Option<Duration>,
}

impl Blocking {
    /// Over a socket that blocks and has no limits.
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket: Arc::new(socket), tls: None, limit: None, reads: None, writes: None }
    }

    /// Connects to `addr`, and shakes hands.
    pub(super) fn connect(addr: SocketAddr, tls: Tls, limit: Duration) -> io::Result<Self> {
        let until = Instant::now() + limit;
        let socket = TcpStream::connect_timeout(&addr, limit)?;
        socket.set_nodelay(true)?;
        let mut stream = Self::new(socket);
        stream.secure(tls, left_until(until)?)?;
        stream.set_unlimited()?;
        Ok(stream)
    }

    /// For who has to end it from elsewhere.
    pub(super) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// Shakes hands within `limit`. Whatever fails but the network, the other side has been told.
    pub(super) fn secure(&mut self, tls: Tls, limit: Duration) -> io::Result<()> {
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
                // It may be gone already.
                let _ = flush(tls, socket, writes, left_until(until).ok());
                return Err(untrusted(why));
            }
        }
    }

    /// Nothing is bounded from now on.
    pub(super) fn set_unlimited(&mut self) -> io::Result<()> {
        self.limit = None;
        let socket = &self.socket;
        set_limit(&mut self.reads, None, |limit| socket.set_read_timeout(limit))?;
        set_limit(&mut self.writes, None, |limit| socket.set_write_timeout(limit))
    }

    /// As a read, if something has come; `None` if not.
    pub(super) fn read_now(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else { return receive_now(&self.socket, room) };
        if let Some(count) = tls.open(room).map_err(untrusted)? {
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

    /// Opens what has come over TLS, and says what that calls for.
    fn open(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else { return Ok(None) };
        let opened = tls.open(room);
        if tls.wants_flush() {
            let flushed = flush(tls, &self.socket, &mut self.writes, self.limit);
            if opened.is_ok() {
                flushed?;
            }
        }
        opened.map_err(untrusted)
    }

    /// Says `last` past TLS, and hears for so long until the peer has closed the connection: with
    /// bytes nobody has heard it would be closed so that the peer may not hear what was said.
    pub(super) fn part(mut self, last: &[u8], limit: Duration) {
        let until = Instant::now() + limit;
        let socket = &self.socket;
        // Whatever fails here, the connection is over.
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
            Some(tls) => tls.open(room).map_err(untrusted)?,
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
            // The write before broke off in the middle of a record.
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
}

/// Tells the system of a limit that it does not know.
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

/// Sends what is sealed within `limit`.
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

fn untrusted(why: Distrust) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// What was wrong with the other side, if that is what an error of a stream says.
pub(super) fn distrust_of(error: &io::Error) -> Option<Distrust> {
    error.get_ref()?.downcast_ref().copied()
}
