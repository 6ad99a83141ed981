//! Rows of a portal of which its client reads some at a time. The statement is run to its end, and
//! what the client has not read is kept: within bounds for a connection, and for a server.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::{Client, Datum, Notice, OutputColumn, SqlResult};

use crate::error_response::notice_response;
use crate::memory_limit::{Counted, MemoryLimit};
use crate::output::{Mark, Output};
use crate::result_rows::RowEncoder;

/// Most bytes of rows that the portals of a connection keep.
pub(crate) const MOST_KEPT_BYTES: usize = 1 << 30;

/// Rows that are kept, and counted as long as they are.
struct KeptRows {
    limit: Arc<MemoryLimit>,
    parts: VecDeque<Part>,
    /// How many rows there are.
    rows: usize,
}

/// Some rows, as the messages that the client gets.
struct Part {
    bytes: BytesMut,
    rows: usize,
    /// Its memory.
    _counted: Counted,
}

/// Keeps the rows of a statement, and sends what is said of it at once.
pub(crate) struct PortalRows {
    output: Arc<Output>,
    limit: Arc<MemoryLimit>,
    /// Of the columns.
    formats: Vec<i16>,
    present: Mutex<Present>,
}

struct Present {
    /// Where the statement began in what is sent.
    mark: Option<Mark>,
    encoder: RowEncoder,
    kept: KeptRows,
    has_columns: bool,
    tag: String,
}

/// What is left of a statement.
pub(crate) struct Rest {
    kept: KeptRows,
    /// Whether it gives rows, be they none.
    has_columns: bool,
    tag: String,
}

impl KeptRows {
    fn new(limit: &Arc<MemoryLimit>) -> Self {
        Self { limit: Arc::clone(limit), parts: VecDeque::new(), rows: 0 }
    }

    fn push(&mut self, bytes: BytesMut, rows: usize) -> SqlResult<()> {
        if rows == 0 {
            return Ok(());
        }
        let mut counted = Counted::new(&self.limit);
        counted.set(bytes.capacity()).map_err(|error| {
            error.hint("Close portals, or read all rows of a statement at once.")
        })?;
        self.parts.push_back(Part { bytes, rows, _counted: counted });
        self.rows += rows;
        Ok(())
    }

    /// Takes some of the first rows, at most so many. How many they are; none if there are no more.
    fn take(&mut self, most: usize) -> (BytesMut, usize) {
        let Some(part) = self.parts.front_mut() else { return (BytesMut::new(), 0) };
        if part.rows > most {
            let bytes = part.bytes.split_to(length_of(&part.bytes, most));
            part.rows -= most;
            self.rows -= most;
            return (bytes, most);
        }
        let (bytes, rows) = (std::mem::take(&mut part.bytes), part.rows);
        self.parts.pop_front();
        self.rows -= rows;
        (bytes, rows)
    }
}

/// How long so many messages are.
fn length_of(bytes: &[u8], messages: usize) -> usize {
    let mut rest = bytes;
    for _ in 0..messages {
        let length = rest.get(1..5).map_or(0, |mut length| length.get_u32());
        let length = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(1);
        rest = rest.get(length..).unwrap_or_default();
    }
    bytes.len() - rest.len()
}

impl PortalRows {
    pub(crate) fn new(output: &Arc<Output>, limit: &Arc<MemoryLimit>, formats: Vec<i16>) -> Self {
        let (encoder, kept) = (RowEncoder::default(), KeptRows::new(limit));
        let present = Present { mark: None, encoder, kept, has_columns: false, tag: String::new() };
        let present = Mutex::new(present);
        let (output, limit) = (Arc::clone(output), Arc::clone(limit));
        Self { output, limit, formats, present }
    }

    /// What the statement has given.
    pub(crate) fn rest(&self) -> Rest {
        let mut present = self.present.lock();
        let kept = std::mem::replace(&mut present.kept, KeptRows::new(&self.limit));
        let tag = std::mem::take(&mut present.tag);
        Rest { kept, has_columns: present.has_columns, tag }
    }
}

impl Client for PortalRows {
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings) {
        let mut present = self.present.lock();
        // Its notices; nothing writes while it runs.
        if let Some(mark) = present.mark {
            self.output.take_back(mark);
        }
        present.mark = Some(self.output.mark());
        present.encoder = RowEncoder::new(columns, format);
        present.has_columns = !columns.is_empty();
        present.kept = KeptRows::new(&self.limit);
    }

    fn rows(&self, rows: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        let mut present = self.present.lock();
        let mut bytes = BytesMut::new();
        let added = present.encoder.add_all(&rows, &self.formats, &mut bytes);
        let kept = added.and_then(|()| present.kept.push(bytes, rows.len()));
        Box::pin(std::future::ready(kept))
    }

    fn notice(&self, notice: &Notice) {
        self.output.send(&notice_response(notice));
    }

    fn is_final(&self) -> bool {
        false
    }

    fn end(&self, tag: &str) {
        tag.clone_into(&mut self.present.lock().tag);
    }
}

impl Rest {
    /// Takes some of the first rows, at most so many, and how many they are; none if there are no
    /// more.
    pub(crate) fn take(&mut self, most: usize) -> (BytesMut, usize) {
        self.kept.take(most)
    }

    /// What was done, if so many rows were read at last: of a statement that gives rows PostgreSQL
    /// counts those, also if it changes rows.
    pub(crate) fn tag(&self, given: usize) -> String {
        let is_digit = |byte: u8| byte.is_ascii_digit();
        match self.tag.rsplit_once(' ') {
            Some((done, count)) if self.has_columns && count.bytes().all(is_digit) => {
                format!("{done} {given}")
            }
            _ => self.tag.clone(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use bytes::BufMut;
    use selkie_sql::SqlState;

    use super::*;
    use crate::output::framed;

    fn row(at: u8) -> BytesMut {
        let mut bytes = BytesMut::new();
        framed(&mut bytes, b'D', |bytes| bytes.put_slice(&vec![at; usize::from(at)]));
        bytes
    }

    #[test]
    fn rows_come_in_their_order_however_many_are_read() {
        let whole: Vec<u8> = (0..100).flat_map(|at| row(at).to_vec()).collect();
        for most in [1, 2, 7, 10, 100] {
            let limit = Arc::new(MemoryLimit::new(1 << 20));
            let mut kept = KeptRows::new(&limit);
            for part in 0..10 {
                let mut bytes = BytesMut::new();
                (0..10).for_each(|at| bytes.extend_from_slice(&row(part * 10 + at)));
                kept.push(bytes, 10).unwrap();
            }
            let mut read = Vec::new();
            loop {
                let (bytes, rows) = kept.take(most);
                if rows == 0 {
                    break;
                }
                assert!(rows <= most);
                read.extend_from_slice(&bytes);
            }
            assert_eq!((read == whole, kept.rows, limit.used()), (true, 0, 0), "{most}");
        }
    }

    #[test]
    fn rows_that_are_too_many_are_refused() {
        let limit = Arc::new(MemoryLimit::new(1_000));
        let mut kept = KeptRows::new(&limit);
        kept.push(BytesMut::zeroed(600), 1).unwrap();
        let refused = kept.push(BytesMut::zeroed(600), 1).unwrap_err();
        assert_eq!(refused.state(), SqlState::OUT_OF_MEMORY);
        assert_eq!((kept.rows, limit.used()), (1, 600));
        drop(kept);
        assert_eq!(limit.used(), 0);
    }

    #[test]
    fn a_tag_counts_the_rows_that_were_read() {
        let kept = || KeptRows::new(&Arc::new(MemoryLimit::new(0)));
        for (has_columns, tag, expected) in [
            (true, "SELECT 9", "SELECT 3"),
            (true, "INSERT 0 9", "INSERT 0 3"),
            (true, "SHOW", "SHOW"),
            (false, "INSERT 0 9", "INSERT 0 9"),
        ] {
            assert_eq!(Rest { kept: kept(), has_columns, tag: tag.to_owned() }.tag(3), expected);
        }
    }
}
