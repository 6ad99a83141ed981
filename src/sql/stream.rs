//! Rows one after the other, of which few are in memory.
//!
//! A stream has the future of its statement, and polls it when it has no row left. The statement
//! puts a batch of rows into the *slot* and goes on; with the next batch it waits until the slot is
//! empty. So two batches are in memory at most, nothing runs that is not asked for, and no task or
//! thread is needed.
//!
//! ```text
//! statement --rows()--> slot --next()--> batch that is given out, row by row
//!     ^                   |
//!     +--- waits while ---+ full
//! ```
//! A batch is taken out of the slot only if the statement waits for room, or is over. So a
//! statement of one batch has committed before its first row is seen, and may be run again until
//! then.

use std::future::poll_fn;
use std::ops::DerefMut;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::{Client, Datum, OutputColumn, SqlResult};

use super::connection::Connection;
use super::error::QueryError;
use super::row::{Row, RowShape};
use super::statement::{Params, Statement};
use super::tag;

type Batch = Vec<Vec<Datum>>;

/// What is between a statement and who reads its rows.
#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    shape: Arc<RowShape>,
    batch: Option<Batch>,
    /// The statement waits until the batch was taken. Nobody wakes it: the stream polls it when it
    /// has no row left.
    waits: bool,
    /// Rows were given out: the statement cannot be run again.
    is_final: bool,
    /// No more rows are wanted.
    stops: bool,
    affected: u64,
}

impl SlotState {
    fn take(&mut self) -> Option<Batch> {
        let batch = self.batch.take()?;
        (self.is_final, self.waits) = (true, false);
        Some(batch)
    }
}

impl Client for Slot {
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings) {
        let mut state = self.state.lock();
        let shape = RowShape { columns: Arc::clone(columns), format: format.clone() };
        (state.shape, state.batch, state.waits) = (Arc::new(shape), None, false);
    }

    fn rows(&self, rows: Batch) -> BoxFuture<'_, SqlResult<()>> {
        let mut rows = Some(rows);
        Box::pin(poll_fn(move |_| {
            let mut state = self.state.lock();
            if state.stops {
                rows = None;
            } else if state.batch.is_some() {
                state.waits = true;
                return Poll::Pending;
            }
            if let Some(rows) = rows.take().filter(|rows| !rows.is_empty()) {
                state.batch = Some(rows);
            }
            Poll::Ready(Ok(()))
        }))
    }

    fn is_final(&self) -> bool {
        self.state.lock().is_final
    }

    fn wants_more(&self) -> bool {
        !self.state.lock().stops
    }

    fn end(&self, tag: &str) {
        self.state.lock().affected = tag::count(tag);
    }
}

/// The rows of a statement, as they are asked for.
///
/// The statement runs while [`next`](Self::next) is waited for, and no further than two batches of
/// rows ahead. The limits of the session (`statement_timeout`) count the time in between, too, but
/// end nothing before the stream is read again: no limit bounds a stream that nobody reads. It
/// keeps its snapshot and its locks until it is read, finished or dropped.
///
/// A stream that is dropped before its statement [is over](Self::is_over) rolls back what that has
/// done, and leaves a transaction failed (25P02): [`finish`](Self::finish) ends it in good order.
/// A statement of few rows is over, and has committed, before its first row is seen.
pub struct RowStream<'c> {
    /// `None` when the statement is over.
    run: Option<BoxFuture<'c, SqlResult<()>>>,
    rows: std::vec::IntoIter<Vec<Datum>>,
    slot: Arc<Slot>,
    statement: Statement,
}

impl<'c> RowStream<'c> {
    /// The rows of a statement over whatever gives access to its connection, for programs that
    /// cannot borrow it that long. Nothing runs yet.
    ///
    /// # Errors
    /// [`QueryError::Parameter`] and [`QueryError::ParameterCount`].
    pub fn over<C>(
        mut connection: C,
        statement: &Statement,
        params: Params<'_>,
    ) -> Result<Self, QueryError>
    where
        C: DerefMut<Target = Connection> + Send + 'c,
    {
        let values = statement.bind(params)?;
        let slot = Arc::new(Slot::default());
        let client: Arc<dyn Client> = Arc::clone(&slot) as _;
        let own = statement.clone();
        let run = Box::pin(async move { connection.run_into(&own, values, &client).await });
        Ok(Self {
            run: Some(run),
            rows: Vec::new().into_iter(),
            slot,
            statement: statement.clone(),
        })
    }

    /// The columns of the rows.
    #[must_use]
    pub fn columns(&self) -> &[OutputColumn] {
        self.statement.columns()
    }

    /// The next row; `None` at the end. A future that is dropped has taken no row.
    ///
    /// # Errors
    /// Those of the statement, which is over then.
    pub async fn next(&mut self) -> Result<Option<Row>, QueryError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for implementations of `Stream`.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Row>, QueryError>> {
        loop {
            if let Some(values) = self.rows.next() {
                let shape = Arc::clone(&self.slot.state.lock().shape);
                return Poll::Ready(Ok(Some(Row::new(&shape, values))));
            }
            let Some(run) = &mut self.run else {
                let Some(batch) = self.slot.state.lock().take() else {
                    return Poll::Ready(Ok(None));
                };
                self.rows = batch.into_iter();
                continue;
            };
            match run.as_mut().poll(cx) {
                Poll::Ready(ended) => {
                    self.run = None;
                    if ended.is_err() {
                        self.slot.state.lock().batch = None;
                    }
                    ended?;
                }
                Poll::Pending => {
                    let mut state = self.slot.state.lock();
                    if !state.waits {
                        return Poll::Pending;
                    }
                    if let Some(batch) = state.take() {
                        self.rows = batch.into_iter();
                    }
                }
            }
        }
    }

    /// Ends the statement without reading its other rows, and says how many it has changed or
    /// given. A query stops where it is, as by a LIMIT; what changes rows goes on to its end.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn finish(mut self) -> Result<u64, QueryError> {
        self.slot.state.lock().stops = true;
        while self.next().await?.is_some() {}
        Ok(self.affected())
    }

    /// How many rows the statement has changed, or given, once it is over.
    #[must_use]
    pub fn affected(&self) -> u64 {
        self.slot.state.lock().affected
    }

    /// Whether the statement is over, though there may be rows left of it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.run.is_none()
    }
}

impl std::fmt::Debug for RowStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowStream")
            .field("statement", &self.statement)
            .field("is_over", &self.is_over())
            .finish_non_exhaustive()
    }
}
