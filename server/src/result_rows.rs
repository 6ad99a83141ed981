//! Rows of statements, on their way to a client.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use parking_lot::Mutex;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::CommandComplete;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::types::binary_format::to_binary;
use selkie_sql::types::text_format::to_text;
use selkie_sql::{Datum, OutputColumn, RowSink, SqlError, SqlResult, SqlState};

use crate::columns::{format_of, row_description};
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
}

/// The statement that runs.
#[derive(Default)]
struct Present {
    /// Where it began in what is sent.
    mark: Option<Mark>,
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
    pub(crate) fn described(output: &Arc<Output>) -> Self {
        Self { describes: true, ..Self::of(output, Vec::new()) }
    }

    /// For a portal, of which the client knows the columns.
    pub(crate) fn of(output: &Arc<Output>, formats: Vec<i16>) -> Self {
        let (output, present) = (Arc::clone(output), Mutex::default());
        Self { output, formats, describes: false, present }
    }
}

impl RowSink for ResultRows {
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings) {
        let mut present = self.present.lock();
        if let Some(mark) = present.mark {
            self.output.take_back(mark);
        }
        present.mark = Some(self.output.mark());
        present.encoder.columns = Arc::clone(columns);
        present.encoder.format = format.clone();
        if self.describes && !columns.is_empty() {
            self.output.send(&row_description(columns, &self.formats));
        }
    }

    fn rows(&self, rows: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        let mut present = self.present.lock();
        let mut added = Ok(());
        self.output.add(|bytes| added = present.encoder.add_all(&rows, &self.formats, bytes));
        match added {
            Ok(()) => self.output.write_if_much(),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn is_final(&self) -> bool {
        self.present.lock().mark.is_some_and(|mark| self.output.is_written(mark))
    }

    fn end(&self, tag: &str) {
        self.present.lock().mark = None;
        self.output.send(&complete(tag));
    }
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
