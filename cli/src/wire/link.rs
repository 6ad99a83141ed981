//! A connection to a server: messages out and in. It looks around while it waits, so that a signal
//! is seen and a statement can be cancelled, and it reads while it sends: a server that waits for
//! what it has written to be read reads nothing meanwhile.
//!
//! A server that has gone without a word is found out by probes of the system ([`IDLE`]), so that a
//! wait for it ends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use postgres_protocol::message::backend::{Header, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::address::Host;
use super::report::Report;
use super::secured::{Secured, TlsError};

/// How often it is looked around.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The same for `poll`.
const POLLED_FOR: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const _: () = assert!(POLLED_FOR.tv_nsec as u128 == LOOK_EVERY.as_nanos());
/// A connection on which nothing has come for so long is probed.
const IDLE: Duration = Duration::from_secs(30);
/// How often it is probed then.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// It is lost if so many probes are not answered.
const MOST_PROBES: u32 = 6;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Longest message of a server: PostgreSQL keeps values to 1 GiB, and a row may have several.
const LONGEST_MESSAGE: i32 = 1 << 30;
/// Most bytes that are kept of what a server says while it is sent something.
const MOST_UNHEARD: usize = 256 << 20;

/// What is to become of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Wait,
    /// The statement is to be cancelled; its end is waited for.
    Cancel,
    /// Nothing more is waited for.
    Leave,
}

/// Asked every now and then while something is waited for.
pub(crate) type Look<'l> = &'l mut dyn FnMut() -> Wish;

/// Why there is no connection, or none any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("{name}: {error}")]
    Name { name: String, error: io::Error },
    #[error("there is no server at {host}: {error}; selkie server --listen {host} starts one")]
    Refused { host: Host, error: io::Error },
    #[error("{host}: {error}")]
    Unreachable { host: Host, error: io::Error },
    #[error("{host} does not answer within {} s", after.as_secs())]
    Silent { host: Host, after: Duration },
    /// One after the other.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Each(Vec<WireError>),
    #[error("{host}: {error}")]
    Tls { host: Host, error: Box<TlsError> },
    #[error("{0} does not do TLS: sslmode=disable does without, for all on the way to read")]
    NoTls(Host),
    /// The server lets nobody in.
    #[error("{host}: {}: {}: {}", report.level, report.state, report.message)]
    Denied { host: Host, report: Box<Report> },
    #[error("{host} asks for the password of {user}: give it by PGPASSWORD or in ~/.pgpass")]
    NoPassword { host: Host, user: String },
    #[error("{0}")]
    Login(String),
    #[error("the password: {0}")]
    Terminal(io::Error),
    #[error("the server closed the connection unexpectedly{}", why(.0))]
    Lost(#[source] io::Error),
    #[error("the server sent what is no message of PostgreSQL's protocol: {0}")]
    Garbled(String),
    /// Nobody waits any more.
    #[error("interrupted")]
    Left,
}

/// What is known of why a connection is lost: nothing, if it has ended.
fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => String::new(),
        _ => format!(": {error}"),
    }
}

/// In the clear, or secured.
pub(super) enum Stream {
    Clear(TcpStream),
    Secured(Box<Secured>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Clear(stream) => stream,
            Self::Secured(stream) => &stream.sock,
        }
    }

    fn both(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Clear(stream) => stream,
            Self::Secured(stream) => &mut **stream,
        }
    }

    /// Whether what was written has left.
    fn is_flushed(&self) -> bool {
        match self {
            Self::Clear(_) => true,
            Self::Secured(stream) => !stream.conn.wants_write(),
        }
    }

    /// Reads and writes nothing, as [`Read::read`] of a secured stream may.
    fn read_only(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let stream = match self {
            Self::Clear(stream) => return stream.read(bytes),
            Self::Secured(stream) => &mut **stream,
        };
        loop {
            match stream.conn.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            stream.conn.read_tls(&mut stream.sock)?;
            let processed = stream.conn.process_new_packets();
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// A connection.
pub(super) struct Link {
    stream: Stream,
    received: BytesMut,
    /// What is to be sent.
    pub(super) unsent: BytesMut,
    scratch: Box<[u8]>,
    looked: Instant,
}

/// Whether a socket has nothing to do yet. One that has timed out has been given up by the system.
pub(super) fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Looks around.
pub(super) fn goes_on(look: Look<'_>) -> Result<(), WireError> {
    match look() {
        Wish::Leave => Err(WireError::Left),
        Wish::Wait | Wish::Cancel => Ok(()),
    }
}

/// A connection in the clear.
pub(super) fn dialed(
    host: &Host,
    within: Duration,
    look: Look<'_>,
) -> Result<TcpStream, WireError> {
    let (sender, connected) = channel();
    let own = host.clone();
    // To look up a name and to connect ends for no signal.
    let dial = move || {
        let connected = match addresses_of(&own) {
            Ok(addresses) => {
                let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
                let mut each = addresses.into_iter().filter_map(|address| {
                    let stream = TcpStream::connect_timeout(&address, within);
                    stream.map_err(|error| last = error).ok()
                });
                let stream = each.next();
                drop(each);
                stream.ok_or_else(|| match last.kind() {
                    ErrorKind::ConnectionRefused => WireError::Refused { host: own, error: last },
                    ErrorKind::TimedOut => WireError::Silent { host: own, after: within },
                    _ => WireError::Unreachable { host: own, error: last },
                })
            }
            Err(error) => Err(WireError::Name { name: own.name, error }),
        };
        // Nobody may wait any more.
        let _ = sender.send(connected);
    };
    let failed = |error| WireError::Unreachable { host: host.clone(), error };
    std::thread::Builder::new().name("dial".to_owned()).spawn(dial).map_err(failed)?;
    let stream = loop {
        match connected.recv_timeout(LOOK_EVERY) {
            Ok(connected) => break connected?,
            Err(RecvTimeoutError::Timeout) => match look() {
                Wish::Wait => {}
                // There is no statement that could be cancelled.
                Wish::Cancel | Wish::Leave => return Err(WireError::Left),
            },
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed(ErrorKind::NotConnected.into()));
            }
        }
    };
    set_up(&stream).map_err(failed)?;
    Ok(stream)
}

/// Where a server may be: where it was reached, else all that its name stands for.
fn addresses_of(host: &Host) -> io::Result<Vec<SocketAddr>> {
    match host.at {
        Some(at) => Ok(vec![at]),
        None => (host.name.as_str(), host.port).to_socket_addrs().map(Iterator::collect),
    }
}

/// What a connection needs: no wait in it is long, and none is for a server that is gone.
///
/// `TCP_USER_TIMEOUT` is not set: it ends a connection also to a server that answers, but reads
/// nothing for so long, as one does whose COPY waits for a lock. What is sent to a server that is
/// gone is given up by the system itself, after a quarter of an hour.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    stream.set_write_timeout(Some(LOOK_EVERY))?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, MOST_PROBES)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

impl Link {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            unsent: BytesMut::new(),
            scratch: vec![0; READ_BYTES].into(),
            looked: Instant::now(),
        }
    }

    pub(super) fn is_secured(&self) -> bool {
        matches!(self.stream, Stream::Secured(_))
    }

    /// Where the server is.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.stream.tcp().peer_addr().ok()
    }

    /// The certificate that the server has shown.
    pub(super) fn certificate(&self) -> Option<&[u8]> {
        match &self.stream {
            Stream::Clear(_) => None,
            Stream::Secured(stream) => Some(stream.conn.peer_certificates()?.first()?.as_ref()),
        }
    }

    /// Sends all of [`unsent`](Self::unsent), and reads what comes meanwhile.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Garbled`] and [`WireError::Left`].
    pub(super) fn send(&mut self, look: Look<'_>) -> Result<(), WireError> {
        self.unblocked(|own| own.send_all(look))
    }

    fn send_all(&mut self, look: Look<'_>) -> Result<(), WireError> {
        loop {
            let written = match self.unsent.is_empty() {
                true => self.stream.both().flush().map(|()| None),
                false => self.stream.both().write(&self.unsent).map(Some),
            };
            match written {
                Ok(None) if self.stream.is_flushed() => return Ok(()),
                Ok(Some(0)) if self.stream.is_flushed() => {
                    return Err(WireError::Lost(ErrorKind::WriteZero.into()));
                }
                Ok(Some(count)) if count > 0 => {
                    self.unsent.advance(count);
                    if self.looked.elapsed() < LOOK_EVERY {
                        continue;
                    }
                }
                // TLS has more of it than the connection takes.
                Ok(_) => self.hear_or_wait()?,
                Err(error) if is_wait(&error) => self.hear_or_wait()?,
                Err(error) => return Err(WireError::Lost(error)),
            }
            self.looked = Instant::now();
            goes_on(look)?;
        }
    }

    /// Reads what has come, and else waits a little until something comes or can be written.
    fn hear_or_wait(&mut self) -> Result<(), WireError> {
        if self.received.len() >= MOST_UNHEARD {
            let message = format!("{MOST_UNHEARD} bytes while it is sent something");
            return Err(WireError::Garbled(message));
        }
        if self.hear()? {
            return Ok(());
        }
        let mut waiting = [PollFd::new(self.stream.tcp(), PollFlags::IN | PollFlags::OUT)];
        match poll(&mut waiting, Some(&POLLED_FOR)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(WireError::Lost(error.into())),
        }
    }

    /// Reads what has come. Whether there was something.
    fn hear(&mut self) -> Result<bool, WireError> {
        match self.stream.read_only(&mut self.scratch) {
            Ok(0) => Err(WireError::Lost(ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.keep(count);
                Ok(true)
            }
            Err(error) if is_wait(&error) => Ok(false),
            Err(error) => Err(WireError::Lost(error)),
        }
    }

    /// Does what is not to wait in the connection.
    fn unblocked<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        self.stream.tcp().set_nonblocking(true).map_err(WireError::Lost)?;
        let done = work(self);
        self.stream.tcp().set_nonblocking(false).map_err(WireError::Lost)?;
        done
    }

    /// The next message.
    ///
    /// # Errors
    /// [`WireError::Lost`], [`WireError::Garbled`] and [`WireError::Left`].
    pub(super) fn next(&mut self, look: Look<'_>) -> Result<Message, WireError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            match self.stream.both().read(&mut self.scratch) {
                Ok(0) => return Err(WireError::Lost(ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    self.keep(count);
                    if self.looked.elapsed() < LOOK_EVERY {
                        continue;
                    }
                }
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(WireError::Lost(error)),
            }
            self.looked = Instant::now();
            goes_on(look)?;
        }
    }

    fn keep(&mut self, count: usize) {
        self.received.extend_from_slice(self.scratch.get(..count).unwrap_or_default());
    }

    /// A message that has come already, without a wait.
    ///
    /// # Errors
    /// [`WireError::Garbled`].
    pub(super) fn buffered(&mut self) -> Result<Option<Message>, WireError> {
        let garbled = |error: io::Error| WireError::Garbled(error.to_string());
        match Header::parse(&self.received).map_err(garbled)? {
            Some(header) if header.len() > LONGEST_MESSAGE => {
                Err(WireError::Garbled(format!("{} bytes in one message", header.len())))
            }
            _ => Message::parse(&mut self.received).map_err(garbled),
        }
    }

    /// A message that has come by now.
    ///
    /// # Errors
    /// [`WireError::Lost`] and [`WireError::Garbled`].
    pub(super) fn arrived(&mut self) -> Result<Option<Message>, WireError> {
        if let Some(message) = self.buffered()? {
            return Ok(Some(message));
        }
        match self.unblocked(Self::hear)? {
            true => self.buffered(),
            false => Ok(None),
        }
    }

    /// Waits until the server has closed the connection, but not longer than that. Whether it has.
    pub(super) fn until_closed(&mut self, until: Instant) -> bool {
        while Instant::now() < until {
            match self.stream.both().read(&mut self.scratch) {
                Ok(0) => return true,
                Err(error) if !is_wait(&error) => return true,
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn host(name: &str, listener: &TcpListener) -> Host {
        let at = listener.local_addr().unwrap();
        Host { name: name.to_owned(), port: at.port(), at: Some(at) }
    }

    #[test]
    fn a_server_is_reached_where_it_was_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = host("no-such-host.invalid", &listener);
        let stream = dialed(&host, Duration::from_secs(60), &mut || Wish::Wait).unwrap();
        assert_eq!(stream.peer_addr().ok(), host.at);
        assert_eq!(Link::new(Stream::Clear(stream)).peer(), host.at);
    }

    #[test]
    fn a_server_that_is_gone_is_found_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = host("localhost", &listener);
        let stream = dialed(&host, Duration::from_secs(60), &mut || Wish::Wait).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), PROBE_EVERY);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), MOST_PROBES);
        // What the system says then is no wait that goes on.
        assert!(!is_wait(&rustix::io::Errno::TIMEDOUT.into()));
        assert!(is_wait(&rustix::io::Errno::AGAIN.into()));
    }
}
