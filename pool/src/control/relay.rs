//! Bytes between a process without a control plane of its own and a relay, a process that forwards
//! its calls to one.
//!
//! Numbers are little-endian. The client says hello, and the relay replies. The first two fields of
//! both are the same in every version:
//!
//! ```text
//! hello                                 reply
//! 0   magic    u64  RELAY_MAGIC         0   magic    u64  REPLY_MAGIC
//! 8   version  u32  VERSION             8   version  u32  VERSION of the relay
//! 12                                    12  verdict  u32
//!                                       16  after two of the verdicts a frame:
//!                                           WELCOME     Welcome, the pool's name and id
//!                                           NOT_SERVED  ControlError of the plane behind it,
//!                                                       or why the client is not let in
//!                                           CHALLENGE   Asked, the pool's name and a challenge
//!                                           ELSEWHERE   Elsewhere, where other relays are
//! frame
//! 0   bytes    u32  at most MAX_FRAME_BYTES
//! 4   JSON
//! ```
//! After a challenge the client sends a frame with a [`Proof`] that it has the token of the pool,
//! and a second reply follows, which is no challenge. After a welcome there follow frames with a
//! [`Request`] each, every one answered by a frame with a [`Response`] before the next is read. Any
//! other verdict ends the connection, and so do malformed bytes.
//!
//! Nothing here waits without a bound: every read and write is told how much time is left
//! ([`Stream`]).

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use selkie_fabric::{Role, Stream, TlsError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::ControlError;
use super::plane::{Beat, Change, Version};
use crate::document::{FORMAT, PoolState};
use crate::token::{Challenge, Proof, Token};

/// First word, little-endian, of a connection to a relay. A process that accepts connections of
/// several kinds at one port tells by it that the rest is for
/// [`Relay::serve`](super::Relay::serve).
pub const RELAY_MAGIC: u64 = u64::from_le_bytes(*b"SELKCTL?");
/// First word of a reply.
const REPLY_MAGIC: u64 = u64::from_le_bytes(*b"SELKCTL!");
/// Grows with every change of the messages.
const MESSAGES: u32 = 2;
/// Version of everything behind the first fields, the states in it included.
pub(super) const VERSION: u32 = MESSAGES << 16 | FORMAT;
/// Most bytes of JSON in a frame.
pub(super) const MAX_FRAME_BYTES: usize = 16 << 20;
/// Bound of the rest of a frame whose first byte has come, and of sending one.
pub(super) const FRAME_LIMIT: Duration = Duration::from_secs(5);
/// A relay closes a connection without a request for so long.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(60);

const REPLY_BYTES: usize = 16;
const LENGTH_BYTES: usize = 4;

const WELCOME: u32 = 0;
const OTHER_VERSION: u32 = 1;
const FULL: u32 = 2;
const NOT_SERVED: u32 = 3;
const CHALLENGE: u32 = 4;
const ELSEWHERE: u32 = 5;

const _: () = {
    assert!(REPLY_BYTES == 8 + 4 + 4);
    assert!(FORMAT < 1 << 16, "the version has room for both");
    assert!(MAX_FRAME_BYTES <= u32::MAX as usize);
};

/// What is wrong with a connection between a relay and its client. The connection is closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The connection broke.
    #[error("the connection broke: {source}")]
    Io {
        /// What the system said.
        source: io::Error,
    },
    /// No byte came, or none was taken, within the bound.
    #[error("the other end is silent")]
    Silent,
    /// The connection ended inside a message.
    #[error("the connection ended in the middle of a message")]
    Cut,
    /// The other end speaks something else.
    #[error("the connection starts with {found:#018x}, which is not of a relay")]
    Magic {
        /// Its first word.
        found: u64,
    },
    /// The other end is of another version of this software.
    #[error("version {theirs:#x} of the relay's messages, not {ours:#x}")]
    Version {
        /// Of this process.
        ours: u32,
        /// Of the other end.
        theirs: u32,
    },
    /// A message is longer than 16 MiB.
    #[error("a message of {bytes} bytes; at most {MAX_FRAME_BYTES} are allowed")]
    Length {
        /// How many.
        bytes: usize,
    },
    /// The bytes are not the message they should be.
    #[error("not understood: {what}")]
    Content {
        /// What is wrong with them.
        what: String,
    },
    /// The connection is not secured as those of the pool are.
    #[error("{why}")]
    Distrusted {
        /// What is wrong, and on which side.
        why: TlsError,
    },
    /// The other end shows the certificate of a node that serves no relay.
    #[error("it shows a certificate of role {role}, and relays are memory nodes")]
    Role {
        /// The role in it.
        role: Role,
    },
    /// The relay asks for the token of the pool, and this process has none.
    #[error(
        "pool {pool} asks for its token: give --token FILE with the token that it was made with, or \
         --tls DIR where its nodes have certificates"
    )]
    NoToken {
        /// The name of the pool.
        pool: String,
    },
    /// The relay does not serve clients with certificates.
    #[error("it asks another relay itself, and names where others are")]
    Elsewhere {
        /// Where: `HOST:PORT`.
        endpoints: Vec<String>,
    },
    /// The client is not let in.
    #[error("the other end is not let in: {why}")]
    Denied {
        /// Why.
        why: ControlError,
    },
    /// The client was asked for the token of the pool, and gave none.
    #[error(
        "the other end is not let in: pool {pool} asked it for its token, and it gave none (it needs --token FILE)"
    )]
    TokenWithheld {
        /// The name of the pool.
        pool: String,
    },
    /// The relay serves as many connections as it can.
    #[error("the relay has no room for another connection")]
    Full,
    /// The plane behind the relay keeps another pool than when the connection was made.
    #[error("the relay's pool has been replaced by another")]
    PoolReplaced,
}

impl From<io::Error> for RelayError {
    fn from(source: io::Error) -> Self {
        let said = source.get_ref().and_then(|said| said.downcast_ref());
        if let Some(why) = said {
            return Self::Distrusted { why: *why };
        }
        match source.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Self::Silent,
            ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Io { source },
        }
    }
}

/// The pool that a relay serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) name: String,
    pub(super) id: u64,
}

/// What a relay asks of a client without a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The pool whose token it is.
    pub(super) name: String,
    pub(super) challenge: Challenge,
}

/// Where the relays of a pool are, as far as this one knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Elsewhere {
    pub(super) endpoints: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The state, unless it is the one that is known.
    Load {
        known: Option<Version>,
    },
    Replace {
        change: Change,
        expected: Version,
        state: Box<PoolState>,
    },
    Beat(Beat),
    Beats,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    /// To `Load`.
    Unchanged,
    /// To `Load`.
    State { version: Version, state: Box<PoolState> },
    /// To `Replace`.
    Replaced(Option<Version>),
    /// To `Beat`.
    Noted,
    /// To `Beats`, with their ages when they were read.
    Beats(Vec<(Beat, Duration)>),
    /// To any request.
    Failed(ControlError),
}

/// What a relay says to a hello.
pub(super) enum RelayVerdict {
    Welcome(Welcome),
    OtherVersion,
    Full,
    NotServed(ControlError),
    Challenge(Asked),
    Elsewhere(Elsewhere),
}

/// A stream with a deadline.
struct Until<'a> {
    stream: &'a mut dyn Stream,
    until: Instant,
}

impl Until<'_> {
    fn limit(&mut self) -> io::Result<()> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => self.stream.set_timeouts(left),
        }
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.read(bytes)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.limit()?;
        self.stream.flush()
    }
}

pub(super) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, RelayError> {
    let content = |error: serde_json::Error| RelayError::Content { what: error.to_string() };
    let text = serde_json::to_vec(message).map_err(content)?;
    let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
    check_length(bytes)?;
    Ok([&bytes.to_le_bytes()[..], &text].concat())
}

pub(super) fn send(
    stream: &mut dyn Stream,
    bytes: &[u8],
    until: Instant,
) -> Result<(), RelayError> {
    let mut stream = Until { stream, until };
    stream.write_all(bytes)?;
    Ok(stream.flush()?)
}

/// A whole frame, before a deadline.
pub(super) fn receive<T: DeserializeOwned>(
    stream: &mut dyn Stream,
    until: Instant,
) -> Result<T, RelayError> {
    let length = Until { stream, until }.array()?;
    receive_rest(stream, length, until)
}

/// The next frame, which has to be complete soon after its first byte; `None` if none begins until
/// `first`, or the other end has closed the connection.
pub(super) fn receive_next<T: DeserializeOwned>(
    stream: &mut dyn Stream,
    first: Instant,
) -> Result<Option<T>, RelayError> {
    let mut byte = [0];
    loop {
        match (Until { stream, until: first }).read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => match error.into() {
                RelayError::Silent => return Ok(None),
                error => return Err(error),
            },
        }
    }
    let until = Instant::now() + FRAME_LIMIT;
    let ([first], [second, third, fourth]) = (byte, Until { stream, until }.array()?);
    receive_rest(stream, [first, second, third, fourth], until).map(Some)
}

fn receive_rest<T: DeserializeOwned>(
    stream: &mut dyn Stream,
    length: [u8; LENGTH_BYTES],
    until: Instant,
) -> Result<T, RelayError> {
    let bytes = check_length(u32::from_le_bytes(length))?;
    // Room is made for what comes, not for what is announced.
    let mut text = Vec::new();
    Until { stream, until }.take(bytes as u64).read_to_end(&mut text)?;
    if text.len() < bytes {
        return Err(RelayError::Cut);
    }
    let content = |error: serde_json::Error| RelayError::Content { what: error.to_string() };
    serde_json::from_slice(&text).map_err(content)
}

fn check_length(bytes: u32) -> Result<usize, RelayError> {
    let bytes = bytes as usize;
    if bytes > MAX_FRAME_BYTES { Err(RelayError::Length { bytes }) } else { Ok(bytes) }
}

/// Says hello, proves to have the token if the relay asks for it, and learns which pool the relay
/// serves. `token` knows the tokens of pools.
pub(super) fn greet(
    stream: &mut dyn Stream,
    token: impl Fn(&str) -> Option<Token>,
    until: Instant,
) -> Result<Result<Welcome, ControlError>, RelayError> {
    if let Some(shown) = stream.certificate().filter(|shown| shown.role != Role::Memory) {
        return Err(RelayError::Role { role: shown.role });
    }
    let hello = [&RELAY_MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes()].concat();
    send(stream, &hello, until)?;
    match receive_verdict(stream, until)? {
        RelayVerdict::Welcome(welcome) => return Ok(Ok(welcome)),
        RelayVerdict::NotServed(error) => return Ok(Err(error)),
        RelayVerdict::Full => return Err(RelayError::Full),
        RelayVerdict::Challenge(Asked { name, challenge }) => {
            let token = token(&name).ok_or(RelayError::NoToken { pool: name })?;
            send(stream, &encode(&token.prove(&challenge))?, until)?;
        }
        RelayVerdict::Elsewhere(Elsewhere { endpoints }) => {
            return Err(RelayError::Elsewhere { endpoints });
        }
        RelayVerdict::OtherVersion => return Err(unexpected(OTHER_VERSION)),
    }
    match receive_verdict(stream, until)? {
        RelayVerdict::Welcome(welcome) => Ok(Ok(welcome)),
        RelayVerdict::NotServed(error) => Ok(Err(error)),
        RelayVerdict::Full => Err(RelayError::Full),
        RelayVerdict::Challenge(_) => Err(unexpected(CHALLENGE)),
        RelayVerdict::Elsewhere(_) => Err(unexpected(ELSEWHERE)),
        RelayVerdict::OtherVersion => Err(unexpected(OTHER_VERSION)),
    }
}

fn unexpected(verdict: u32) -> RelayError {
    RelayError::Content { what: format!("a verdict {verdict}") }
}

fn receive_verdict(stream: &mut dyn Stream, until: Instant) -> Result<RelayVerdict, RelayError> {
    let mut reply = Until { stream, until };
    let first: [u8; 2] = reply.array()?;
    if let Some(why) = TlsError::in_reply(&first) {
        return Err(RelayError::Distrusted { why });
    }
    let ([a, b], [c, d, e, f, g, h]) = (first, reply.array()?);
    check_magic(u64::from_le_bytes([a, b, c, d, e, f, g, h]), REPLY_MAGIC)?;
    let (version, verdict) = (reply.u32()?, reply.u32()?);
    check_version(version)?;
    match verdict {
        WELCOME => receive(stream, until).map(RelayVerdict::Welcome),
        NOT_SERVED => receive(stream, until).map(RelayVerdict::NotServed),
        CHALLENGE => receive(stream, until).map(RelayVerdict::Challenge),
        ELSEWHERE => receive(stream, until).map(RelayVerdict::Elsewhere),
        FULL => Ok(RelayVerdict::Full),
        _ => Err(unexpected(verdict)),
    }
}

/// The answer to a challenge.
pub(super) fn receive_proof(stream: &mut dyn Stream, until: Instant) -> Result<Proof, RelayError> {
    receive(stream, until)
}

/// The first word of a connection.
pub(super) fn receive_magic(stream: &mut dyn Stream, until: Instant) -> Result<(), RelayError> {
    check_magic(Until { stream, until }.u64()?, RELAY_MAGIC)
}

/// What follows the first word of a connection.
pub(super) fn receive_version(stream: &mut dyn Stream, until: Instant) -> Result<(), RelayError> {
    check_version(Until { stream, until }.u32()?)
}

pub(super) fn reply(
    stream: &mut dyn Stream,
    verdict: &RelayVerdict,
    until: Instant,
) -> Result<(), RelayError> {
    let (number, frame) = match verdict {
        RelayVerdict::Welcome(welcome) => (WELCOME, encode(welcome)?),
        RelayVerdict::OtherVersion => (OTHER_VERSION, Vec::new()),
        RelayVerdict::Full => (FULL, Vec::new()),
        RelayVerdict::NotServed(error) => (NOT_SERVED, encode(error)?),
        RelayVerdict::Challenge(asked) => (CHALLENGE, encode(asked)?),
        RelayVerdict::Elsewhere(elsewhere) => (ELSEWHERE, encode(elsewhere)?),
    };
    let mut bytes = Vec::with_capacity(REPLY_BYTES + frame.len());
    bytes.extend(REPLY_MAGIC.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(frame);
    send(stream, &bytes, until)
}

fn check_magic(found: u64, expected: u64) -> Result<(), RelayError> {
    if found == expected { Ok(()) } else { Err(RelayError::Magic { found }) }
}

fn check_version(theirs: u32) -> Result<(), RelayError> {
    let ours = VERSION;
    if theirs == ours { Ok(()) } else { Err(RelayError::Version { ours, theirs }) }
}
