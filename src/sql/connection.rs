//! A connection: statements of one program, one after the other.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::{BoxFuture, Env};
use selkie_sql::types::FormatSettings;
use selkie_sql::{
    CancelHandle, Client, Datum, OutputColumn, Session, SqlError, SqlResult, TransactionState,
};

use super::database::SqlDatabase;
use super::error::QueryError;
use super::row::{FromRow, Row, RowShape};
use super::statement::{Params, Runnable, Source, Statement};
use super::stream::RowStream;
use super::tag;

/// A connection to an [`SqlDatabase`]: statements, one after the other.
///
/// A statement outside of a transaction is one of its own, and is run again when others have made
/// it fail. The transaction of a connection that is dropped is rolled back.
///
/// # Dropped futures
/// A future of a connection may be dropped at any time; the connection is of use afterwards. What
/// its statement has done is rolled back, unless its commit had begun: then nobody knows whether it
/// will last. In a transaction that began before, the statement has failed, and each further one
/// does so, too (25P02), until the transaction is rolled back.
pub struct Connection {
    session: Session,
    database: SqlDatabase,
    /// Whether others made a statement fail since the transaction began.
    is_lost: bool,
}

/// A statement that runs: what it leaves is brought in order if its future is dropped.
struct Running<'s> {
    session: &'s mut Session,
    before: TransactionState,
    is_over: bool,
}

impl<'s> Running<'s> {
    fn begin(session: &'s mut Session) -> Self {
        let before = session.state();
        Self { session, before, is_over: false }
    }

    /// It is over, and nothing has to be brought in order.
    fn over<T>(mut self, ran: T) -> T {
        self.is_over = true;
        ran
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.session.abandon(self.before);
        }
    }
}

/// Counts rows, and drops them.
#[derive(Default)]
struct Counted(Mutex<u64>);

impl Client for Counted {
    fn begin(&self, _: &Arc<[OutputColumn]>, _: &FormatSettings) {}

    fn rows(&self, _: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_final(&self) -> bool {
        false
    }

    fn end(&self, tag: &str) {
        *self.0.lock() += tag::count(tag);
    }
}

impl Connection {
    pub(super) fn new(session: Session, database: SqlDatabase) -> Self {
        Self { session, database, is_lost: false }
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &SqlDatabase {
        &self.database
    }

    /// Whether a transaction is in progress, and whether it has failed.
    #[must_use]
    pub fn state(&self) -> TransactionState {
        self.session.state()
    }

    /// What ends a statement of this connection from another task or thread, with 57014.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        self.session.cancel_handle()
    }

    /// How values are written as text.
    #[must_use]
    pub fn format(&self) -> &FormatSettings {
        self.session.format()
    }

    /// Notes how something of the session has ended.
    fn ended<T>(&mut self, ran: SqlResult<T>) -> SqlResult<T> {
        self.is_lost |= ran.as_ref().is_err_and(SqlError::is_retryable);
        ran
    }

    /// Prepares a statement: parses it, and finds the types of its parameters and columns.
    ///
    /// # Errors
    /// Those of the statement; 42601 if there are several; 42P18 if the type of a parameter cannot
    /// be told: write it as `$1::bigint`.
    pub async fn prepare(&mut self, sql: &str) -> Result<Statement, QueryError> {
        let running = Running::begin(&mut self.session);
        let prepared = running.session.prepare(sql, &[]).await;
        let prepared = running.over(prepared);
        Ok(Statement::new(self.ended(prepared)?, self.database.plans()))
    }

    async fn statement(
        &mut self,
        statement: &(impl Runnable + ?Sized),
    ) -> Result<Statement, QueryError> {
        match statement.source() {
            Source::Text(sql) => self.prepare(sql).await,
            Source::Prepared(statement) => Ok(statement.clone()),
        }
    }

    /// Runs a statement and gives what it gives to a client.
    pub(super) async fn run_into(
        &mut self,
        statement: &Statement,
        values: Vec<Datum>,
        client: &Arc<dyn Client>,
    ) -> SqlResult<()> {
        let prepared = statement.prepared(self.database.plans())?;
        let running = Running::begin(&mut self.session);
        let ran = running.session.run_prepared_into(prepared, values, client).await;
        let ran = running.over(ran);
        self.ended(ran)
    }

    /// Runs a statement. How many rows it has changed; of a query, how many it gave.
    ///
    /// ```
    /// # selkie::block_on(async {
    /// let db = selkie::SqlDatabase::open("embedded:").await?;
    /// let mut conn = db.connect()?;
    /// conn.execute("create table note (id bigint primary key, text text)", &[]).await?;
    /// let added = conn.execute("insert into note values ($1, $2)", &[&1_i64, &"first"]).await?;
    /// assert_eq!(added, 1);
    /// # db.close().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`QueryError::Sql`]; [`QueryError::Parameter`] and [`QueryError::ParameterCount`] of values
    /// that do not fit.
    pub async fn execute(
        &mut self,
        statement: &(impl Runnable + ?Sized),
        params: Params<'_>,
    ) -> Result<u64, QueryError> {
        let statement = self.statement(statement).await?;
        let values = statement.bind(params)?;
        let counted = Arc::new(Counted::default());
        let client: Arc<dyn Client> = Arc::clone(&counted) as _;
        self.run_into(&statement, values, &client).await?;
        let count = *counted.0.lock();
        Ok(count)
    }

    /// Runs all statements of a text, which take no values, up to the first that fails. Unless they
    /// begin a transaction themselves, they are one. How many rows they have changed and given.
    ///
    /// # Errors
    /// Those of the statement that fails.
    pub async fn batch(&mut self, sql: &str) -> Result<u64, QueryError> {
        let counted = Arc::new(Counted::default());
        let client: Arc<dyn Client> = Arc::clone(&counted) as _;
        let running = Running::begin(&mut self.session);
        let ran = running.session.execute_into(sql, &client).await;
        let ran = running.over(ran);
        let ran = self.ended(ran);
        ran?;
        let count = *counted.0.lock();
        Ok(count)
    }

    /// Runs a statement and keeps its rows.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); 54000 if it gives more than 1 GiB.
    pub async fn query(
        &mut self,
        statement: &(impl Runnable + ?Sized),
        params: Params<'_>,
    ) -> Result<Vec<Row>, QueryError> {
        let statement = self.statement(statement).await?;
        let values = statement.bind(params)?;
        let prepared = statement.prepared(self.database.plans())?;
        let running = Running::begin(&mut self.session);
        let ran = running.session.run_prepared(prepared, values).await;
        let ran = running.over(ran);
        let ran = self.ended(ran);
        let Some(outcome) = ran? else { return Ok(Vec::new()) };
        let shape = RowShape { columns: outcome.columns, format: self.session.format().clone() };
        let shape = Arc::new(shape);
        Ok(outcome.rows.into_iter().map(|values| Row::new(&shape, values)).collect())
    }

    /// Runs a statement and reads its rows as a type: a tuple of the columns, or one of the
    /// program ([`FromRow`]).
    ///
    /// # Errors
    /// As [`query`](Self::query), and [`QueryError::Column`].
    pub async fn query_as<T: FromRow>(
        &mut self,
        statement: &(impl Runnable + ?Sized),
        params: Params<'_>,
    ) -> Result<Vec<T>, QueryError> {
        let rows = self.query(statement, params).await?;
        rows.iter().map(T::from_row).collect()
    }

    /// Runs a statement that gives one row.
    ///
    /// # Errors
    /// As [`query_as`](Self::query_as), and [`QueryError::RowCount`]. What a statement changes that
    /// gives another number of rows lasts all the same.
    pub async fn query_one<T: FromRow>(
        &mut self,
        statement: &(impl Runnable + ?Sized),
        params: Params<'_>,
    ) -> Result<T, QueryError> {
        match &*self.query(statement, params).await? {
            [row] => T::from_row(row),
            rows => Err(QueryError::RowCount { found: rows.len(), wanted: "one" }),
        }
    }

    /// Runs a statement that gives one row or none.
    ///
    /// # Errors
    /// As [`query_one`](Self::query_one).
    pub async fn query_opt<T: FromRow>(
        &mut self,
        statement: &(impl Runnable + ?Sized),
        params: Params<'_>,
    ) -> Result<Option<T>, QueryError> {
        match &*self.query(statement, params).await? {
            [] => Ok(None),
            [row] => T::from_row(row).map(Some),
            rows => Err(QueryError::RowCount { found: rows.len(), wanted: "at most one" }),
        }
    }

    /// Runs a statement whose rows are read one after the other: few are in memory.
    ///
    /// ```
    /// # selkie::block_on(async {
    /// # let db = selkie::SqlDatabase::open("embedded:").await?;
    /// # let mut conn = db.connect()?;
    /// let mut rows = conn.stream("select * from generate_series(1, 100000)", &[]).await?;
    /// let mut sum = 0;
    /// while let Some(row) = rows.next().await? {
    ///     sum += row.get::<i64>(0)?;
    /// }
    /// assert_eq!(sum, 5_000_050_000);
    /// # drop(rows);
    /// # db.close().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn stream(
        &mut self,
        statement: &(impl Runnable + ?Sized),
        params: Params<'_>,
    ) -> Result<RowStream<'_>, QueryError> {
        let statement = self.statement(statement).await?;
        RowStream::over(self, &statement, params)
    }

    /// Rolls back what is in progress, without waiting.
    pub(super) fn abandon(&mut self) {
        self.session.abandon(TransactionState::Idle);
    }

    /// Whether others made a statement fail since the last call.
    pub(super) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    pub(super) fn env(&self) -> &Env {
        self.database.database().pool().env()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("state", &self.state()).finish_non_exhaustive()
    }
}
