//! What a session says to its client, and asks of it.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;

use crate::bind::OutputColumn;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{Row, row_bytes};
use crate::notice::Notice;
use crate::types::FormatSettings;

/// Most bytes of rows that are kept until the last is there.
const MAX_KEPT_BYTES: usize = 1 << 30;

/// A client of a session, which takes what statements give, one statement after the other.
pub trait Client: Send + Sync {
    /// A statement begins, which gives rows of these columns; none if it gives no rows. If another
    /// has begun and not [ended](Self::end), it is that one, run again: what it gave is void.
    /// `format` is how the session wants values as text.
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings);

    /// Takes rows. The statement waits until that is done.
    fn rows(&self, rows: Vec<Row>) -> BoxFuture<'_, SqlResult<()>>;

    /// Whether rows of the present statement have gone where they cannot be taken back, or data for
    /// it was read that cannot be read again: it is not run again then.
    fn is_final(&self) -> bool;

    /// Whether the client wants more rows of the present statement. Else a query ends here, as by a
    /// LIMIT; what changes rows is run to its end.
    fn wants_more(&self) -> bool {
        true
    }

    /// The statement is `COPY FROM STDIN`, and wants data with so many columns.
    ///
    /// # Errors
    /// If the client has no data; 0A000 unless it does something about this.
    fn copy_in(&self, columns: usize, is_binary: bool) -> SqlResult<()> {
        let _ = (columns, is_binary);
        Err(SqlError::unsupported("COPY FROM STDIN by this client"))
    }

    /// The next of that data; `None` at its end.
    fn copy_data(&self) -> BoxFuture<'_, SqlResult<Option<Vec<u8>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The statement is `COPY TO STDOUT`: it gives data with so many columns instead of rows.
    ///
    /// # Errors
    /// If the client takes no data; 0A000 unless it does something about this.
    fn copy_out(&self, columns: usize, is_binary: bool) -> SqlResult<()> {
        let _ = (columns, is_binary);
        Err(SqlError::unsupported("COPY TO STDOUT to this client"))
    }

    /// Takes that data, a row or more. The statement waits until that is done.
    fn copy_rows(&self, data: Vec<u8>) -> BoxFuture<'_, SqlResult<()>> {
        drop(data);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Of the rows that the present statement has to go through, of which there are about so many,
    /// these are done: of CREATE INDEX. Told every now and then. A client that shows nothing drops
    /// it.
    fn progress(&self, rows_done: u64, rows_total: u64) {
        let _ = (rows_done, rows_total);
    }

    /// Takes a message that is no error, of a level that the session wants
    /// (`client_min_messages`). One that comes after [`begin`](Self::begin) is of that statement,
    /// and as void as its rows if that is run again. A client that has nobody to tell drops it.
    fn notice(&self, notice: &Notice) {
        let _ = notice;
    }

    /// The statement has done what the tag says, as PostgreSQL does: `INSERT 0 1`.
    fn end(&self, tag: &str);
}

/// What a statement gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The columns of its rows; none if it gives no rows.
    pub columns: Arc<[OutputColumn]>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What was done, as PostgreSQL says it: `INSERT 0 1`.
    pub tag: String,
}

/// Keeps the rows of each statement until the last is there.
#[derive(Default)]
pub(crate) struct Collected {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    over: Vec<Outcome>,
    columns: Arc<[OutputColumn]>,
    rows: Vec<Row>,
    bytes: usize,
}

impl Collected {
    /// What the statements gave that have ended.
    pub(crate) fn take(&self) -> Vec<Outcome> {
        std::mem::take(&mut self.kept.lock().over)
    }
}

impl Client for Collected {
    fn begin(&self, columns: &Arc<[OutputColumn]>, _format: &FormatSettings) {
        let mut kept = self.kept.lock();
        (kept.columns, kept.bytes) = (Arc::clone(columns), 0);
        kept.rows.clear();
    }

    fn rows(&self, rows: Vec<Row>) -> BoxFuture<'_, SqlResult<()>> {
        let mut kept = self.kept.lock();
        kept.bytes += rows.iter().map(|row| row_bytes(row)).sum::<usize>();
        let fits = kept.bytes <= MAX_KEPT_BYTES;
        if fits {
            kept.rows.extend(rows);
        }
        Box::pin(std::future::ready(if fits { Ok(()) } else { Err(too_many()) }))
    }

    fn is_final(&self) -> bool {
        false
    }

    fn end(&self, tag: &str) {
        let mut kept = self.kept.lock();
        let (columns, rows) = (Arc::clone(&kept.columns), std::mem::take(&mut kept.rows));
        kept.over.push(Outcome { columns, rows, tag: tag.to_owned() });
    }
}

fn too_many() -> SqlError {
    let message = format!("the rows of the statement take more than {MAX_KEPT_BYTES} bytes");
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        .hint("Ask for fewer rows at a time, with LIMIT and a condition on a key.")
}
