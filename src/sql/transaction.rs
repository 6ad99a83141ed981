//! Transactions: an object that rolls back when it is dropped, and closures that are run again when
//! others make them fail.

use std::fmt::Write;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use selkie_sql::{SqlError, SqlState, TransactionState};
use selkie_txn::Isolation;

use super::connection::Connection;
use super::error::QueryError;

/// How often a closure is run unless [`TransactionOptions`] says something else.
const ATTEMPTS: u32 = 20;
/// The first pause before a closure is run again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// How often a pause is doubled.
const DOUBLINGS: u32 = 8;

/// How a transaction is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionOptions {
    isolation: Option<Isolation>,
    read_only: Option<bool>,
    attempts: Option<u32>,
}

impl TransactionOptions {
    /// As the settings of the connection have it: read committed, if nothing else was set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Of this isolation.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Self { isolation: Some(isolation), ..self }
    }

    /// Whether it only reads.
    #[must_use]
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only: Some(read_only), ..self }
    }

    /// How often a closure is run at most, at least once; 20 times by default.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts: Some(attempts.max(1)), ..self }
    }

    fn begin(self) -> String {
        let mut text = "begin".to_owned();
        if let Some(isolation) = self.isolation {
            let level = match isolation {
                Isolation::ReadCommitted => "read committed",
                Isolation::RepeatableRead => "repeatable read",
                Isolation::Serializable => "serializable",
            };
            // A string takes all that is written to it.
            let _ = write!(text, " isolation level {level}");
        }
        match self.read_only {
            Some(true) => text.push_str(" read only"),
            Some(false) => text.push_str(" read write"),
            None => {}
        }
        text
    }
}

/// A transaction of a connection, which is used through it. It is rolled back when it is dropped
/// without a [`commit`](Self::commit), at once and without waiting.
#[derive(Debug)]
pub struct Transaction<'c> {
    connection: &'c mut Connection,
    is_over: bool,
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection
    }
}

impl Transaction<'_> {
    /// Commits.
    ///
    /// # Errors
    /// As [`Connection::commit`]. 25P01 means that a statement has ended the transaction: by itself
    /// that one, and each after it, has committed or rolled back.
    pub async fn commit(mut self) -> Result<(), QueryError> {
        let committed = self.connection.commit().await;
        self.is_over = self.state() == TransactionState::Idle;
        committed
    }

    /// Rolls back.
    ///
    /// # Errors
    /// What the engine reports.
    pub async fn rollback(mut self) -> Result<(), QueryError> {
        self.connection.batch("rollback").await?;
        self.is_over = true;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.abandon();
        }
    }
}

impl Connection {
    /// Begins a transaction.
    ///
    /// # Errors
    /// 25001 if one is in progress.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, QueryError> {
        self.begin_with(TransactionOptions::new()).await
    }

    /// Begins a transaction of some kind.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn begin_with(
        &mut self,
        options: TransactionOptions,
    ) -> Result<Transaction<'_>, QueryError> {
        if self.state() == TransactionState::InTransaction {
            // The statement BEGIN warns only, and the guard would end what it has not begun.
            let message = "there is already a transaction in progress";
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into());
        }
        self.batch(&options.begin()).await?;
        self.take_lost();
        Ok(Transaction { connection: self, is_over: false })
    }

    /// Commits the transaction in progress, however it was begun. The statement `commit` does so
    /// too, but is no error when a statement has failed and it rolls back.
    ///
    /// # Errors
    /// Those of a commit: 40001 if the transaction has to be run again. 25P02 if a statement of it
    /// has failed: nothing is committed, and it is over. 25P01 if none is in progress. 08007 if it
    /// is not known whether it will last.
    pub async fn commit(&mut self) -> Result<(), QueryError> {
        let before = self.state();
        if before == TransactionState::Idle {
            let message = "no transaction is in progress";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message).into());
        }
        self.batch("commit").await?;
        if before == TransactionState::Failed {
            let message = "the transaction was rolled back, as a statement of it has failed";
            return Err(SqlError::new(SqlState::IN_FAILED_TRANSACTION, message).into());
        }
        Ok(())
    }

    /// Runs a closure as a transaction and commits. It is run again, up to 20 times with growing
    /// pauses, when others made it fail: with 40001 (their changes) or 40P01 (a deadlock). So it
    /// should do nothing that cannot be done again. If it fails otherwise, the transaction is
    /// rolled back. A closure that ends the transaction itself (25P01) is not run again: what it
    /// did after that may have been committed.
    ///
    /// ```
    /// # selkie::block_on(async {
    /// # let db = selkie::SqlDatabase::open("embedded:").await?;
    /// # let mut conn = db.connect()?;
    /// conn.batch("create table account (id int primary key, cents bigint)").await?;
    /// conn.batch("insert into account values (1, 100), (2, 0)").await?;
    /// let left = conn.transaction(async |txn| {
    ///     txn.execute("update account set cents = cents + 5 where id = 2", &[]).await?;
    ///     let take = "update account set cents = cents - 5 where id = 1 returning cents";
    ///     let (cents,) = txn.query_one::<(i64,)>(take, &[]).await?;
    ///     Ok::<_, selkie::sql::QueryError>(cents)
    /// }).await?;
    /// assert_eq!(left, 95);
    /// # db.close().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the closure, and of [`begin`](Self::begin) and [`Transaction::commit`].
    pub async fn transaction<T, E: From<QueryError>>(
        &mut self,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transaction_with(TransactionOptions::new(), body).await
    }

    /// As [`transaction`](Self::transaction), with options.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    pub async fn transaction_with<T, E: From<QueryError>>(
        &mut self,
        options: TransactionOptions,
        mut body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempt = 1;
        loop {
            let mut transaction = self.begin_with(options).await?;
            let ran = body(&mut transaction).await;
            // Statements after the end of the transaction have committed by themselves.
            let has_ended = transaction.state() == TransactionState::Idle;
            let ran = match ran {
                Ok(value) => transaction.commit().await.map(|()| value).map_err(E::from),
                Err(error) => {
                    // Why the closure failed says more.
                    let _ = transaction.rollback().await;
                    Err(error)
                }
            };
            // The closure may have made another error out of it.
            if !(ran.is_err() && self.take_lost())
                || has_ended
                || attempt >= options.attempts.unwrap_or(ATTEMPTS)
            {
                return ran;
            }
            self.pause(attempt).await;
            attempt += 1;
        }
    }

    /// Waits before a transaction is run again: between half of a time and all of it, so that two
    /// that meet do not meet again.
    async fn pause(&self, attempt: u32) {
        let most = FIRST_PAUSE * (1 << (attempt - 1).min(DOUBLINGS));
        let part = self.env().random_u64() % 1024;
        let pause = most / 2 + most / 2 * part as u32 / 1024;
        self.env().sleep(pause).await;
    }
}
