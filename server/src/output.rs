//! What is sent to a client: gathered, and written when the server would wait or when it is much.

use std::io;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use parking_lot::Mutex;
use pgwire::messages::PgWireBackendMessage;
use selkie_fabric::BoxFuture;
use selkie_sql::{SqlError, SqlResult, SqlState};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// The writing half of a connection.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// As much is written without waiting for more.
const MUCH: usize = 64 << 10;

/// How long a client may take to take in the last bytes.
const LAST: Duration = Duration::from_secs(1);

/// Messages to a client that were not written yet, and where they go.
pub(crate) struct Output {
    pending: Mutex<Pending>,
    writer: tokio::sync::Mutex<Writer>,
}

#[derive(Default)]
struct Pending {
    bytes: BytesMut,
    /// How often it was written.
    writes: u64,
}

/// A place in what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    writes: u64,
    at: usize,
}

impl Output {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { pending: Mutex::default(), writer: tokio::sync::Mutex::new(writer) }
    }

    /// Adds a message.
    pub(crate) fn send(&self, message: &PgWireBackendMessage) {
        let mut pending = self.pending.lock();
        let before = pending.bytes.len();
        if let Err(error) = message.encode(&mut pending.bytes) {
            // One that is too long for the protocol.
            pending.bytes.truncate(before);
            tracing::warn!(%error, "a message to a client was left out");
        }
    }

    /// Adds bytes of whole messages.
    pub(crate) fn add(&self, write: impl FnOnce(&mut BytesMut)) {
        write(&mut self.pending.lock().bytes);
    }

    /// Where the next message begins.
    pub(crate) fn mark(&self) -> Mark {
        let pending = self.pending.lock();
        Mark { writes: pending.writes, at: pending.bytes.len() }
    }

    /// Whether something behind a mark was written.
    pub(crate) fn is_written(&self, mark: Mark) -> bool {
        self.pending.lock().writes != mark.writes
    }

    /// Takes back what is behind a mark, of which nothing was written.
    pub(crate) fn take_back(&self, mark: Mark) {
        let mut pending = self.pending.lock();
        if pending.writes == mark.writes {
            pending.bytes.truncate(mark.at);
        }
    }

    /// Writes if there is much.
    pub(crate) fn write_if_much(&self) -> BoxFuture<'_, SqlResult<()>> {
        if self.pending.lock().bytes.len() < MUCH {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async {
            self.write().await.map_err(|error| {
                let message = format!("could not send data to client: {error}");
                SqlError::new(SqlState::CONNECTION_FAILURE, message)
            })
        })
    }

    /// Writes all. Waits until the system has taken it.
    pub(crate) async fn write(&self) -> io::Result<()> {
        let mut writer = self.writer.lock().await;
        let bytes = {
            let mut pending = self.pending.lock();
            if pending.bytes.is_empty() {
                return Ok(());
            }
            pending.writes += 1;
            pending.bytes.split()
        };
        writer.write_all(&bytes).await?;
        writer.flush().await
    }

    /// Tells the client that nothing follows. It has not long to take that in.
    pub(crate) async fn end(&self) {
        let end = async { self.writer.lock().await.shutdown().await };
        if let Ok(Err(error)) = tokio::time::timeout(LAST, end).await {
            tracing::debug!(%error, "a client is gone");
        }
    }
}

/// Adds a message of a kind, with a body that is written behind it.
pub(crate) fn framed(bytes: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    bytes.put_u8(kind);
    let at = bytes.len();
    bytes.put_i32(0);
    body(bytes);
    let length = bytes.len() - at;
    if let Some(mut place) = bytes.get_mut(at..at + 4) {
        place.put_i32(i32::try_from(length).unwrap_or(i32::MAX));
    }
}
