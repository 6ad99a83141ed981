//! Rows of statements, on their way to a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, BytesMut};
use parking_lot::Mutex;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::response::CommandComplete;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::types::binary_format::to_binary;
use selkie_sql::types::text_format::to_text;
use selkie_sql::{Client, Datum, Notice, OutputColumn, SqlError, SqlResult, SqlState};

use crate::columns::{format_of, row_description};
use crate::error_response::notice_response;
use crate::frames::{Frames, SharedFrames};
use crate::frontend::{FrontendMessage, decode, violation};
use crate::output::{Mark, Output, framed};

/// Longest row, in bytes: the protocol counts them in 32 bits, and clients take no more.
const LONGEST_ROW: usize = (1 << 30) - 1;

/// Gives rows to a client as they come.
pub(crate) struct ResultRows {
    output: Arc<Output>,
    /// Of the columns.
    formats: Vec<i16>,
    /// Whether the client is told of the columns.
    describes: bool,
    present: Mutex<Present>,
    /// Where the data of COPY comes from.
    frames: Arc<tokio::sync::Mutex<Frames>>,
    /// Whether that was asked for.
    has_copied: AtomicBool,
}

/// The statement that runs.
#[derive(Default)]
struct Present {
    /// Where it began in what is sent.
    mark: Option<Mark>,
    /// It gives data of COPY.
    is_copy: bool,
    /// The client was told of its columns.
    is_described: bool,
    encoder: RowEncoder,
}

/// Writes rows as messages.
#[derive(Default)]
pub(crate) struct RowEncoder {
    columns: Arc<[OutputColumn]>,
    format: FormatSettings,
    text: String,
    binary: Vec<u8>,
}

impl ResultRows {
    /// For statements that come as text: their columns are said, and all values are text.
    pub(crate) fn described(output: &Arc<Output>, frames: &SharedFrames) -> Self {
        Self { describes: true, ..Self::of(output, frames, Vec::new()) }
    }

    /// For a portal, of which the client knows the columns.
    pub(crate) fn of(output: &Arc<Output>, frames: &SharedFrames, formats: Vec<i16>) -> Self {
        let (output, frames) = (Arc::clone(output), Arc::clone(frames));
        let (present, has_copied) = (Mutex::default(), AtomicBool::new(false));
        Self { output, formats, describes: false, present, frames, has_copied }
    }

    /// The next data of COPY.
    async fn data(&self) -> SqlResult<Option<Vec<u8>>> {
        let gone = |error: &dyn std::fmt::Display| {
            let message = format!("unexpected EOF on client connection: {error}");
            SqlError::new(SqlState::CONNECTION_FAILURE, message)
        };
        let mut frames = self.frames.lock().await;
        loop {
            let (kind, body) = loop {
                if let Some(frame) = frames.buffered().map_err(|error| gone(&error))? {
                    break frame;
                }
                self.output.write().await.map_err(|error| gone(&error))?;
                frames.read().await.map_err(|error| gone(&error))?;
            };
            match decode(kind, body)? {
                FrontendMessage::CopyData(data) => return Ok(Some(data.into())),
                FrontendMessage::CopyDone => return Ok(None),
                FrontendMessage::CopyFail(why) => {
                    let message = format!("COPY from stdin failed: {why}");
                    return Err(SqlError::new(SqlState::QUERY_CANCELED, message));
                }
                // Clients send them behind Execute without waiting.
                FrontendMessage::Flush | FrontendMessage::Sync => {}
                _ => {
                    let kind = char::from(kind);
                    let message =
                        format!("unexpected message type {kind:?} during COPY from stdin");
                    return Err(violation(message));
                }
            }
        }
    }
}

impl Client for ResultRows {
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings) {
        let mut present = self.present.lock();
        if let Some(mark) = present.mark {
            self.output.take_back(mark);
        }
        present.mark = Some(self.output.mark());
        present.encoder.columns = Arc::clone(columns);
        present.encoder.format = format.clone();
        present.is_described = !columns.is_empty();
        if self.describes && !columns.is_empty() {
            self.output.send(&row_description(columns, &self.formats));
        }
    }

    fn rows(&self, rows: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        let mut present = self.present.lock();
        // Rows without columns are rows, too.
        if self.describes && !std::mem::replace(&mut present.is_described, true) {
            self.output.send(&row_description(&present.encoder.columns, &self.formats));
        }
        let mut added = Ok(());
        self.output.add(|bytes| added = present.encoder.add_all(&rows, &self.formats, bytes));
        match added {
            Ok(()) => self.output.write_if_much(),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn notice(&self, notice: &Notice) {
        self.output.send(&notice_response(notice));
    }

    fn is_final(&self) -> bool {
        self.has_copied.load(Ordering::Relaxed)
            || self.present.lock().mark.is_some_and(|mark| self.output.is_written(mark))
    }

    fn copy_in(&self, columns: usize, is_binary: bool) -> SqlResult<()> {
        self.has_copied.store(true, Ordering::Relaxed);
        let (format, count, formats) = copy_columns(columns, is_binary)?;
        self.output.send(&PgWireBackendMessage::CopyInResponse(CopyInResponse::new(
            format, count, formats,
        )));
        Ok(())
    }

    fn copy_data(&self) -> BoxFuture<'_, SqlResult<Option<Vec<u8>>>> {
        Box::pin(self.data())
    }

    fn copy_out(&self, columns: usize, is_binary: bool) -> SqlResult<()> {
        self.present.lock().is_copy = true;
        let (format, count, formats) = copy_columns(columns, is_binary)?;
        self.output.send(&PgWireBackendMessage::CopyOutResponse(CopyOutResponse::new(
            format, count, formats,
        )));
        Ok(())
    }

    fn copy_rows(&self, data: Vec<u8>) -> BoxFuture<'_, SqlResult<()>> {
        self.output.add(|bytes| framed(bytes, b'd', |bytes| bytes.put_slice(&data)));
        self.output.write_if_much()
    }

    fn end(&self, tag: &str) {
        let mut present = self.present.lock();
        present.mark = None;
        if std::mem::take(&mut present.is_copy) {
            self.output.send(&PgWireBackendMessage::CopyDone(CopyDone::new()));
        }
        drop(present);
        self.output.send(&complete(tag));
    }
}

/// The format of data of COPY, the number of its columns, and their formats.
fn copy_columns(columns: usize, is_binary: bool) -> SqlResult<(i8, i16, Vec<i16>)> {
    let count = i16::try_from(columns).map_err(|_| violation("too many columns for COPY"))?;
    let format = i8::from(is_binary);
    Ok((format, count, vec![format.into(); columns]))
}

/// That a statement has done what its tag says.
pub(crate) fn complete(tag: &str) -> PgWireBackendMessage {
    PgWireBackendMessage::CommandComplete(CommandComplete::new(tag.to_owned()))
}

impl RowEncoder {
    /// For rows of these columns.
    pub(crate) fn new(columns: &Arc<[OutputColumn]>, format: &FormatSettings) -> Self {
        let (columns, format) = (Arc::clone(columns), format.clone());
        Self { columns, format, ..Self::default() }
    }

    /// Adds messages of rows.
    pub(crate) fn add_all(
        &mut self,
        rows: &[Vec<Datum>],
        formats: &[i16],
        bytes: &mut BytesMut,
    ) -> SqlResult<()> {
        rows.iter().try_for_each(|row| self.add(row, formats, bytes))
    }

    fn add(&mut self, row: &[Datum], formats: &[i16], bytes: &mut BytesMut) -> SqlResult<()> {
        let before = bytes.len();
        let mut written = Ok(());
        framed(bytes, b'D', |bytes| {
            bytes.put_u16(u16::try_from(row.len()).unwrap_or(u16::MAX));
            written = self.values(row, formats, bytes);
        });
        if written.is_ok() && bytes.len() - before > LONGEST_ROW {
            let message = format!("a row takes more than {LONGEST_ROW} bytes");
            written = Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        if written.is_err() {
            // Nothing of it may be sent.
            bytes.truncate(before);
        }
        written
    }

    fn values(&mut self, row: &[Datum], formats: &[i16], bytes: &mut BytesMut) -> SqlResult<()> {
        for (at, (value, column)) in row.iter().zip(&*self.columns).enumerate() {
            if value.is_null() {
                bytes.put_i32(-1);
                continue;
            }
            let written = if format_of(formats, at) == 0 {
                self.text.clear();
                to_text(value, column.ty, &self.format, &mut self.text);
                self.text.as_bytes()
            } else {
                self.binary.clear();
                to_binary(value, column.ty, &mut self.binary)?;
                &self.binary
            };
            let length = i32::try_from(written.len()).ok();
            bytes.put_i32(length.filter(|length| *length < 1 << 30).ok_or_else(|| {
                let message = format!("a value takes {} bytes", written.len());
                SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            })?);
            bytes.put_slice(written);
        }
        Ok(())
    }
}
