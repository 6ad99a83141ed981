//! A connection to a server: messages out and in. It looks around while it waits, so that a signal
//! is seen and a statement can be cancelled.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use postgres_protocol::message::backend::{Header, Message};

use super::address::Host;
use super::report::Report;
use super::secured::{Secured, TlsError};

/// How often it is looked around.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Longest message of a server: PostgreSQL keeps values to 1 GiB, and a row may have several.
const LONGEST_MESSAGE: i32 = 1 << 30;

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
    Tls { host: Host, error: TlsError },
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

/// Whether a socket has nothing to do yet.
pub(super) fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
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
        let addresses = (own.name.as_str(), own.port).to_socket_addrs();
        let connected = match addresses {
            Ok(addresses) => {
                let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
                let mut each = addresses.filter_map(|address| {
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
    let set_up = || {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(LOOK_EVERY))
    };
    set_up().map_err(failed)?;
    Ok(stream)
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

    /// The certificate that the server has shown.
    pub(super) fn certificate(&self) -> Option<&[u8]> {
        match &self.stream {
            Stream::Clear(_) => None,
            Stream::Secured(stream) => Some(stream.conn.peer_certificates()?.first()?.as_ref()),
        }
    }

    /// Sends all of [`unsent`](Self::unsent).
    ///
    /// # Errors
    /// [`WireError::Lost`] and [`WireError::Left`].
    pub(super) fn send(&mut self, look: Look<'_>) -> Result<(), WireError> {
        loop {
            let written = match self.unsent.is_empty() {
                true => self.stream.both().flush().map(|()| None),
                false => self.stream.both().write(&self.unsent).map(Some),
            };
            match written {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err(WireError::Lost(ErrorKind::WriteZero.into())),
                Ok(Some(count)) => self.unsent.advance(count),
                Err(error) if is_wait(&error) => goes_on(look)?,
                Err(error) => return Err(WireError::Lost(error)),
            }
        }
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
        self.stream.tcp().set_nonblocking(true).map_err(WireError::Lost)?;
        let read = self.stream.both().read(&mut self.scratch);
        self.stream.tcp().set_nonblocking(false).map_err(WireError::Lost)?;
        match read {
            Ok(0) => Err(WireError::Lost(ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.keep(count);
                self.buffered()
            }
            Err(error) if is_wait(&error) => Ok(None),
            Err(error) => Err(WireError::Lost(error)),
        }
    }

    /// Waits until the server has closed the connection, but not for long.
    pub(super) fn until_closed(&mut self, within: Duration) {
        let until = Instant::now() + within;
        while Instant::now() < until {
            match self.stream.both().read(&mut self.scratch) {
                Ok(0) => return,
                Err(error) if !is_wait(&error) => return,
                _ => {}
            }
        }
    }
}
