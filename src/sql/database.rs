//! A database that SQL is run on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use selkie_sql::{PlanCache, Session, SessionList};
use selkie_txn::{DatabaseSchema, Protocol};

use super::connection::Connection;
use super::error::QueryError;
use super::value::clock;
use crate::engine::EngineError;
use crate::{Database, OpenError, PoolOptions};

/// The user of connections. A process that opens a pool is its operator: no role is asked for.
const USER: &str = "selkie";

/// A database that is open for SQL, on one compute node of this process. A cheap handle: clones
/// share everything, also the plans of statements.
///
/// ```
/// use selkie::SqlDatabase;
///
/// # selkie::block_on(async {
/// let db = SqlDatabase::open("embedded:").await?;
/// let mut conn = db.connect()?;
/// conn.batch("create table account (id bigint primary key, owner text)").await?;
/// conn.execute("insert into account values ($1, $2)", &[&1_i64, &"Ann"]).await?;
/// let found = conn.query_as::<(i64, Option<String>)>("select * from account", &[]).await?;
/// assert_eq!(found, [(1, Some("Ann".to_owned()))]);
/// drop(conn);
/// db.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqlDatabase {
    database: Database,
    plans: Arc<PlanCache>,
    sessions: Arc<SessionList>,
    /// The number of the last connection.
    last: Arc<AtomicI32>,
}

impl SqlDatabase {
    /// Opens the database of the pool at `url`, as one more compute node of the pool, with the
    /// default options; a pool without a database gets one.
    ///
    /// # Errors
    /// As [`Database::open_or_create`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        PoolOptions::new().open_sql_database(url).await
    }

    /// Connects: a session of its own, with a transaction of its own. No waiting.
    /// `pg_stat_activity` shows the connections of all clones of this handle.
    ///
    /// # Errors
    /// 0A000 and the like if the database was made for two-phase locking, which has no sessions.
    pub fn connect(&self) -> Result<Connection, QueryError> {
        let session = Session::new(&self.database, USER, clock)?.with_plans(&self.plans);
        // It names a row of `pg_stat_activity`, and orders nothing.
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let session = session.listed(&self.sessions, number, None);
        Ok(Connection::new(session, self.clone()))
    }

    /// Closes the database and the compute node below it: see [`Pool::close`](crate::Pool::close).
    /// Connections that are still there get errors.
    ///
    /// # Errors
    /// As [`Pool::close`](crate::Pool::close).
    pub async fn close(&self) -> Result<(), EngineError> {
        self.database.close().await
    }

    /// Runs a future on the calling thread: see [`block_on`](crate::block_on).
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.database.block_on(future)
    }

    pub(super) fn plans(&self) -> &Arc<PlanCache> {
        &self.plans
    }

    /// The database below: tables, the pool, the layers.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }
}

impl From<Database> for SqlDatabase {
    fn from(database: Database) -> Self {
        let (plans, sessions, last) = (Arc::default(), Arc::default(), Arc::default());
        Self { database, plans, sessions, last }
    }
}

impl PoolOptions {
    /// Opens the database of a pool for SQL; a pool without a database gets one.
    ///
    /// # Errors
    /// As [`Database::open_or_create`].
    pub async fn open_sql_database(&self, url: &str) -> Result<SqlDatabase, OpenError> {
        let schema = DatabaseSchema::from(Vec::new()).protocol(Protocol::Snapshot);
        Ok(self.open_or_create_database(url, schema).await?.into())
    }
}

impl std::fmt::Debug for SqlDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlDatabase").field("pool", self.database.pool()).finish_non_exhaustive()
    }
}
