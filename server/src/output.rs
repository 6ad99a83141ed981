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
///
/// A statement that is cancelled is dropped where it waits, which may be in the middle of a message
/// that the client takes in slowly. What has left `pending` is therefore kept beside the writer
/// until it is written: the next write goes on where the last has stopped.
pub(crate) struct Output {
    pending: Mutex<Pending>,
    sending: tokio::sync::Mutex<Sending>,
}

/// Where messages go.
struct Sending {
    writer: Writer,
    /// What is being written.
    unsent: BytesMut,
    /// Whether something was written that the writer may have kept.
    is_unflushed: bool,
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
        let sending = Sending { writer, unsent: BytesMut::new(), is_unflushed: false };
        Self { pending: Mutex::default(), sending: tokio::sync::Mutex::new(sending) }
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

    /// Whether there is so much that it is written without waiting for more.
    pub(crate) fn is_much(&self) -> bool {
        self.pending.lock().bytes.len() >= MUCH
    }

    /// Writes if there is much.
    pub(crate) fn write_if_much(&self) -> BoxFuture<'_, SqlResult<()>> {
        if !self.is_much() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async {
            self.write().await.map_err(|error| {
                let message = format!("could not send data to client: {error}");
                SqlError::new(SqlState::CONNECTION_FAILURE, message)
            })
        })
    }

    /// Writes all. Waits until the system has taken it. If it is dropped before, the next call goes
    /// on where it was.
    pub(crate) async fn write(&self) -> io::Result<()> {
        let mut sending = self.sending.lock().await;
        let Sending { writer, unsent, is_unflushed } = &mut *sending;
        {
            let mut pending = self.pending.lock();
            if !pending.bytes.is_empty() {
                pending.writes += 1;
                let bytes = pending.bytes.split();
                match unsent.is_empty() {
                    true => *unsent = bytes,
                    false => unsent.extend_from_slice(&bytes),
                }
            }
        }
        while !unsent.is_empty() {
            *is_unflushed = true;
            // What it takes is gone from the buffer, and it takes nothing if it is dropped.
            if writer.write_buf(unsent).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        if *is_unflushed {
            writer.flush().await?;
            *is_unflushed = false;
        }
        Ok(())
    }

    /// Writes the last of all, for which the client has not long.
    pub(crate) async fn write_last(&self) -> io::Result<()> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(LAST, self.write()).await.map_err(late)?
    }

    /// Tells the client that nothing follows. It has not long to take that in.
    pub(crate) async fn end(&self) {
        let end = async { self.sending.lock().await.writer.shutdown().await };
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::io::AsyncReadExt;

    use super::*;

    fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn nothing_is_lost_of_a_write_that_is_dropped_in_its_middle() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let output = Output::new(Box::new(server));
        let mut sent = Vec::new();
        let mut got: Vec<u8> = Vec::new();
        let mut buffer = [0_u8; 700];
        for round in 0..40_u8 {
            // Each write is dropped where it waits for a client that reads a part only.
            let part = vec![round; 1_000];
            sent.extend_from_slice(&part);
            output.add(|bytes| bytes.put_slice(&part));
            let _ = poll_once(output.write());
            if let Poll::Ready(count) = poll_once(client.read(&mut buffer)) {
                got.extend(buffer.iter().take(count.unwrap()));
            }
        }
        loop {
            let written = poll_once(output.write());
            match poll_once(client.read(&mut buffer)) {
                Poll::Ready(count) => got.extend(buffer.iter().take(count.unwrap())),
                Poll::Pending => {
                    assert!(written.is_ready());
                    break;
                }
            }
        }
        assert!(got == sent, "{} of {} bytes, or others", got.len(), sent.len());
    }

    #[test]
    fn the_last_is_not_waited_for_long() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (_client, server) = tokio::io::duplex(16);
            let output = Output::new(Box::new(server));
            output.add(|bytes| bytes.put_slice(&[0; 100]));
            let late = output.write_last().await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        });
    }
}
