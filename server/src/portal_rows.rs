//! Rows of a portal of which its client reads some at a time. The statement is run to its end, and
//! what the client has not read is kept: within bounds for a connection, and for a server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::{Client, Datum, OutputColumn, SqlError, SqlResult, SqlState};

use crate::extended::{SharedStatements, forget};
use crate::result_rows::RowEncoder;

/// Most bytes of rows that the portals of a connection keep.
const MOST_OF_CONNECTION: usize = 1 << 30;

/// The part of the memory of the machine that the portals of a server may take, one in so many.
const PART_OF_MEMORY: usize = 4;

/// What the portals of a server may take if the system does not say how much memory there is.
const UNKNOWN_MEMORY: usize = 1 << 30;

/// A bound to bytes that are kept, maybe within another.
pub(crate) struct KeptLimit {
    most: usize,
    used: AtomicUsize,
    whole: Option<Arc<Self>>,
    /// Of what it is the bound.
    what: &'static str,
}

/// Rows that are kept, and counted as long as they are.
struct KeptRows {
    limit: Arc<KeptLimit>,
    parts: VecDeque<Part>,
    /// How many rows there are.
    rows: usize,
}

/// Some rows, as the messages that the client gets.
struct Part {
    bytes: BytesMut,
    rows: usize,
    /// How many bytes are counted.
    counted: usize,
}

/// Keeps the rows of a statement.
pub(crate) struct PortalRows {
    limit: Arc<KeptLimit>,
    /// Of the columns.
    formats: Vec<i16>,
    statements: SharedStatements,
    present: Mutex<Present>,
}

struct Present {
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

impl KeptLimit {
    /// That of a server.
    pub(crate) fn of_server() -> Self {
        let system = rustix::system::sysinfo();
        let memory = u64::from(system.mem_unit).saturating_mul(system.totalram);
        let most = match usize::try_from(memory) {
            Ok(0) | Err(_) => UNKNOWN_MEMORY,
            Ok(memory) => memory / PART_OF_MEMORY,
        };
        Self { most, used: AtomicUsize::new(0), whole: None, what: "server" }
    }

    /// That of a connection of a server.
    pub(crate) fn of_connection(server: &Arc<Self>) -> Self {
        let whole = Some(Arc::clone(server));
        let what = "connection";
        Self { most: MOST_OF_CONNECTION, used: AtomicUsize::new(0), whole, what }
    }

    /// Counts bytes, unless they are too many.
    fn take(&self, bytes: usize) -> SqlResult<()> {
        // It counts and orders nothing else.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.used.fetch_update(set, fetch, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.most)
        });
        if taken.is_err() {
            let detail = format!(
                "Rows that the portals of the {} keep need more than {} bytes.",
                self.what, self.most
            );
            return Err(SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory")
                .detail(detail)
                .hint("Close portals, or read all rows of a statement at once."));
        }
        let within = self.whole.as_ref().map_or(Ok(()), |whole| whole.take(bytes));
        if within.is_err() {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        within
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.whole.iter().for_each(|whole| whole.give_back(bytes));
    }
}

impl KeptRows {
    fn new(limit: &Arc<KeptLimit>) -> Self {
        Self { limit: Arc::clone(limit), parts: VecDeque::new(), rows: 0 }
    }

    fn push(&mut self, bytes: BytesMut, rows: usize) -> SqlResult<()> {
        let counted = bytes.capacity();
        if rows == 0 {
            return Ok(());
        }
        self.limit.take(counted)?;
        self.parts.push_back(Part { bytes, rows, counted });
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
        self.limit.give_back(part.counted);
        self.parts.pop_front();
        self.rows -= rows;
        (bytes, rows)
    }
}

impl Drop for KeptRows {
    fn drop(&mut self) {
        self.parts.iter().for_each(|part| self.limit.give_back(part.counted));
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
    pub(crate) fn new(
        limit: &Arc<KeptLimit>,
        statements: &SharedStatements,
        formats: Vec<i16>,
    ) -> Self {
        let (encoder, kept) = (RowEncoder::default(), KeptRows::new(limit));
        let present = Present { encoder, kept, has_columns: false, tag: String::new() };
        let present = Mutex::new(present);
        Self { limit: Arc::clone(limit), formats, statements: Arc::clone(statements), present }
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

    fn is_final(&self) -> bool {
        false
    }

    fn deallocate(&self, name: Option<&str>) -> SqlResult<()> {
        forget(&self.statements, name)
    }

    fn end(&self, tag: &str) {
        tag.clone_into(&mut self.present.lock().tag);
    }
}

impl Rest {
    /// Whether there are rows that the client has not read.
    pub(crate) fn has_rows(&self) -> bool {
        self.kept.rows > 0
    }

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

    use super::*;
    use crate::output::framed;

    fn limit(most: usize, whole: Option<&Arc<KeptLimit>>) -> Arc<KeptLimit> {
        let whole = whole.map(Arc::clone);
        Arc::new(KeptLimit { most, used: AtomicUsize::new(0), whole, what: "test" })
    }

    fn used(limit: &KeptLimit) -> usize {
        limit.used.load(Ordering::Relaxed)
    }

    fn row(at: u8) -> BytesMut {
        let mut bytes = BytesMut::new();
        framed(&mut bytes, b'D', |bytes| bytes.put_slice(&vec![at; usize::from(at)]));
        bytes
    }

    #[test]
    fn rows_come_in_their_order_however_many_are_read() {
        let whole: Vec<u8> = (0..100).flat_map(|at| row(at).to_vec()).collect();
        for most in [1, 2, 7, 10, 100] {
            let limit = limit(1 << 20, None);
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
            assert_eq!((read == whole, kept.rows, used(&limit)), (true, 0, 0), "{most}");
        }
    }

    #[test]
    fn what_is_kept_is_within_both_bounds() {
        let server = limit(1_000, None);
        let (first, second) = (limit(700, Some(&server)), limit(700, Some(&server)));
        let push = |kept: &mut KeptRows, bytes: usize| kept.push(BytesMut::zeroed(bytes), 1);
        let (mut one, mut other) = (KeptRows::new(&first), KeptRows::new(&second));
        push(&mut one, 600).unwrap();
        let of_connection = push(&mut one, 200).unwrap_err();
        let of_server = push(&mut other, 500).unwrap_err();
        for error in [of_connection, of_server] {
            assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
        }
        // What was refused is not counted.
        assert_eq!((used(&first), used(&second), used(&server)), (600, 0, 600));
        drop(one);
        push(&mut other, 500).unwrap();
        assert_eq!((used(&first), used(&second), used(&server)), (0, 500, 500));
    }

    #[test]
    fn a_tag_counts_the_rows_that_were_read() {
        let kept = || KeptRows::new(&limit(0, None));
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
