//! The connection of a client, in the clear or secured.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::frames::{FrameError, Reader};
use crate::frontend::violation;
use crate::output::Writer;
use crate::tls::Tls;

/// How a record of TLS begins that begins a connection.
const HANDSHAKE: u8 = 0x16;

/// After how long without a byte a client is asked whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// How long it has to answer until it is asked again.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How often it is asked before it is taken for gone.
const KEEPALIVE_PROBES: u32 = 6;

/// Sets up the socket of a client. One that is gone without a word, as by the loss of its power or
/// of its network, is found out in two minutes, so that it keeps neither its place nor its locks.
/// While it has not taken in what was sent, the system finds that out by itself. `TCP_USER_TIMEOUT`
/// would do that sooner, but would also end clients that are there and pause in reading.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

/// The connection of a client that has not said what it wants.
pub(crate) enum Transport {
    Clear(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
}

impl Transport {
    pub(crate) fn is_secured(&self) -> bool {
        matches!(self, Self::Secured(_))
    }

    /// The next packet of the beginning of a connection, which says its length only. No byte behind
    /// it is read: so nothing that came in the clear can be taken for something that was secured.
    pub(crate) async fn packet(&mut self, longest: usize) -> Result<Bytes, FrameError> {
        let mut header = [0; 4];
        self.read(&mut header).await?;
        if header.first() == Some(&HANDSHAKE) {
            let message = "a connection begins with a request for TLS, not with TLS itself";
            return Err(FrameError::Broken(violation(message)));
        }
        let length = usize::try_from((&header[..]).get_i32()).ok();
        let length = length.filter(|length| (8..=longest).contains(length));
        let length = length
            .ok_or_else(|| FrameError::Broken(violation("invalid length of startup packet")))?;
        let mut packet = vec![0; length - header.len()];
        self.read(&mut packet).await?;
        Ok(packet.into())
    }

    async fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.read_exact(bytes).await?,
            Self::Secured(stream) => stream.read_exact(bytes).await?,
        };
        Ok(())
    }

    /// Writes a byte that answers a request for a secured connection.
    pub(crate) async fn answer(&mut self, answer: u8) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.write_all(&[answer]).await,
            Self::Secured(stream) => {
                stream.write_all(&[answer]).await?;
                stream.flush().await
            }
        }
    }

    /// Secures a connection that is in the clear.
    pub(crate) async fn secured(self, tls: &Tls) -> Result<Self, FrameError> {
        match self {
            Self::Clear(stream) => Ok(Self::Secured(Box::new(tls.accept(stream).await?))),
            // It was not offered.
            secured @ Self::Secured(_) => Ok(secured),
        }
    }

    /// Its two halves.
    pub(crate) fn split(self) -> (Reader, Writer) {
        match self {
            Self::Clear(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            }
            Self::Secured(stream) => {
                let (reader, writer) = tokio::io::split(*stream);
                (Box::new(reader), Box::new(writer))
            }
        }
    }
}
