//! Where the rows of statements go.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;

use crate::bind::OutputColumn;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{Row, row_bytes};
use crate::types::FormatSettings;

/// Most bytes of rows that are kept until the last is there.
const MAX_KEPT_BYTES: usize = 1 << 30;

/// Takes what statements give, one statement after the other.
pub trait RowSink: Send + Sync {
    /// A statement begins, which gives rows of these columns; none if it gives no rows. If another
    /// has begun and not [ended](Self::end), it is that one, run again: what it gave is void.
    /// `format` is how the session wants values as text.
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings);

    /// Takes rows. The statement waits until that is done.
    fn rows(&self, rows: Vec<Row>) -> BoxFuture<'_, SqlResult<()>>;

    /// Whether rows of the present statement have gone where they cannot be taken back: it is not
    /// run again then.
    fn is_final(&self) -> bool;

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
pub(super) struct Collected {
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
    pub(super) fn take(&self) -> Vec<Outcome> {
        std::mem::take(&mut self.kept.lock().over)
    }
}

impl RowSink for Collected {
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
