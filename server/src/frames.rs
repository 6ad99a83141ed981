//! Reading what a client sends, a frame at a time.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use selkie_sql::SqlError;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::frontend::{longest, violation};
use crate::memory_limit::{Counted, MemoryLimit};

/// The reading half of a connection.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// How much is read at a time at least.
const CHUNK: usize = 16 << 10;

/// Of each connection, as much is not counted.
const FREE: usize = 1 << 20;

/// Those of a connection, which the data of COPY is read from, too.
pub(crate) type SharedFrames = Arc<tokio::sync::Mutex<Frames>>;

/// Bytes that were read, and where more come from.
pub(crate) struct Frames {
    reader: Reader,
    bytes: BytesMut,
    /// The memory of those, if it is much.
    counted: Counted,
}

/// Why there is no frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the client is gone: {0}")]
    Gone(#[from] io::Error),
    /// No frame can be told from the next any more.
    #[error("{0}")]
    Broken(SqlError),
}

impl Frames {
    pub(crate) fn new(reader: Reader, memory: &Arc<MemoryLimit>) -> Self {
        Self { reader, bytes: BytesMut::new(), counted: Counted::new(memory) }
    }

    /// The next frame, its kind and its body, if it has been read.
    pub(crate) fn buffered(&mut self) -> Result<Option<(u8, Bytes)>, FrameError> {
        let Some((kind, length)) = self.header()? else { return Ok(None) };
        if self.bytes.len() < length + 1 {
            // Room is made as bytes come, not as a client says that they will.
            return Ok(None);
        }
        let mut frame = self.bytes.split_to(length + 1);
        frame.advance(5);
        self.count()?;
        Ok(Some((kind, frame.freeze())))
    }

    /// Whether all of the next frame has been read.
    pub(crate) fn has_next(&self) -> Result<bool, FrameError> {
        Ok(self.header()?.is_some_and(|(_, length)| self.bytes.len() > length))
    }

    /// The kind of the next frame, if all of that has been read.
    pub(crate) fn next_kind(&self) -> Option<u8> {
        match self.header() {
            Ok(Some((kind, length))) if self.bytes.len() > length => Some(kind),
            _ => None,
        }
    }

    /// The kind of the next frame, and its length without the byte of its kind.
    fn header(&self) -> Result<Option<(u8, usize)>, FrameError> {
        let Some((kind, rest)) = self.bytes.split_first() else { return Ok(None) };
        let Some(mut length) = rest.get(..4) else { return Ok(None) };
        let most = longest(*kind).ok_or_else(|| {
            FrameError::Broken(violation(format!("invalid frontend message type {kind}")))
        })?;
        let length =
            usize::try_from(length.get_i32()).ok().filter(|length| (4..=most).contains(length));
        let length =
            length.ok_or_else(|| FrameError::Broken(violation("invalid message length")))?;
        Ok(Some((*kind, length)))
    }

    /// Waits for more bytes.
    pub(crate) async fn read(&mut self) -> Result<(), FrameError> {
        self.bytes.reserve(CHUNK);
        self.count()?;
        match self.reader.read_buf(&mut self.bytes).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(()),
        }
    }

    /// Counts the memory of a long message that has not come as a whole.
    fn count(&mut self) -> Result<(), FrameError> {
        let bytes = self.bytes.capacity();
        let counted = if bytes > FREE { bytes } else { 0 };
        self.counted.set(counted).map_err(FrameError::Broken)
    }

    /// The next message, which has to be the answer of a client that is asked for a password.
    /// Others are not waited for: they may be long.
    pub(crate) async fn password(&mut self) -> Result<Bytes, FrameError> {
        loop {
            match self.header()? {
                Some((b'p', _)) => {
                    if let Some((_, body)) = self.buffered()? {
                        return Ok(body);
                    }
                }
                Some((kind, _)) => {
                    let message = format!("expected SASL response, got message type {kind}");
                    return Err(FrameError::Broken(violation(message)));
                }
                None => {}
            }
            self.read().await?;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use selkie_sql::SqlState;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Reads a message of so many bytes under a limit; gives what counts when it has come, and when
    /// it is gone.
    async fn read(length: usize, limit: usize) -> Result<(usize, usize), FrameError> {
        let memory = Arc::new(MemoryLimit::new(limit));
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let mut frames = Frames::new(Box::new(server), &memory);
        let header = u32::try_from(length + 4).unwrap().to_be_bytes();
        let message = [&b"Q"[..], &header, &vec![b'x'; length]].concat();
        let write = async move {
            // It may not be read to its end.
            let _ = client.write_all(&message).await;
            client
        };
        let read = async {
            let mut most = 0;
            loop {
                if let Some((kind, body)) = frames.buffered()? {
                    assert_eq!((kind, body.len()), (b'Q', length));
                    break;
                }
                frames.read().await?;
                most = most.max(memory.used());
            }
            drop(frames);
            Ok((most, memory.used()))
        };
        let (_client, read) = tokio::join!(write, read);
        read
    }

    #[test]
    fn long_messages_count_while_they_come() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert_eq!(read(100_000, 0).await.unwrap(), (0, 0));
            let (most, after) = read(3 << 20, 64 << 20).await.unwrap();
            assert!(most >= 3 << 20 && after == 0, "{most} {after}");
            match read(3 << 20, 2 << 20).await {
                Err(FrameError::Broken(error)) => {
                    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
                }
                other => panic!("{other:?}"),
            }
        });
    }
}
