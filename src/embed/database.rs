//! A database that is open, with all that it stands on.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::error::OpenError;
use super::options::PoolOptions;
use super::pool::Pool;
use crate::engine::{EngineError, EnteredUser};
use crate::txn::{self, CatalogueError, DatabaseSchema, TxnError};

/// For how long a node that closes does what its transactions have left to trees.
const MAINTENANCE_BEFORE_CLOSE: Duration = Duration::from_millis(333);

/// A database, opened on one compute node of this process. A cheap handle: clones share everything.
///
/// It is the [`txn::Database`] of the layer below, with the pool that it is in: tables, rows and
/// transactions are found there.
///
/// ```
/// use selkie::Database;
/// use selkie::txn::{ColumnType, TableSchema, key};
///
/// # selkie::block_on(async {
/// let account = TableSchema::new("account")
///     .column("id", ColumnType::I32)
///     .column("cents", ColumnType::I64)
///     .primary_key([0]);
/// let db = Database::create("embedded:", vec![account]).await?;
/// let account = db.table("account")?;
/// let mut txn = db.begin();
/// txn.insert(account, db.row(account)?.i32(7).i64(1_000).finish()?).await?;
/// txn.commit().await?;
/// db.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {
    database: txn::Database,
    /// Its transactions are in the reports of the node. Shared with what counts the same ones.
    counted: Arc<EnteredUser>,
    pool: Pool,
}

impl Database {
    pub(super) fn new(pool: Pool, database: txn::Database) -> Self {
        let counting = database.clone();
        database.maintain_when_idle();
        let counted = Arc::new(pool.add_user(Arc::new(move || counting.stats().into())));
        Self { database, counted, pool }
    }

    /// Makes a database of a pool that was opened for it. The node leaves the pool if that fails.
    pub(super) async fn from_opened(
        pool: Pool,
        open: impl AsyncFnOnce(&Pool) -> Result<Self, TxnError>,
    ) -> Result<Self, OpenError> {
        let opened = open(&pool).await;
        if opened.is_err()
            && let Err(error) = pool.close().await
        {
            // Why there is no database says more.
            tracing::warn!(%error, "cannot close a pool without a database");
        }
        Ok(opened?)
    }

    /// Opens the database of the pool at `url`, as one more compute node of the pool, with the
    /// default options ([`PoolOptions`] has others).
    ///
    /// # Errors
    /// [`OpenError::Url`] naming the part of the URL that is wrong, [`OpenError::Database`] if the
    /// pool has no database (so has each new `embedded:` pool); else why the pool cannot be used.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        PoolOptions::new().open_database(url).await
    }

    /// Creates a database with these tables in the pool at `url`.
    ///
    /// # Errors
    /// As [`Database::open`], but that the pool must have no database.
    pub async fn create(url: &str, schema: impl Into<DatabaseSchema>) -> Result<Self, OpenError> {
        PoolOptions::new().create_database(url, schema).await
    }

    /// Opens the database of the pool at `url`, whatever its tables are, or creates it with these
    /// tables if the pool has none.
    ///
    /// # Errors
    /// As [`Database::open`], but for a missing database.
    pub async fn open_or_create(
        url: &str,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Self, OpenError> {
        PoolOptions::new().open_or_create_database(url, schema).await
    }

    /// Closes the database and the compute node below it: see [`Pool::close`]. Transactions that
    /// are open must have ended. Before that, leaves that they have emptied are given back, as far
    /// as that is done in a third of a second.
    ///
    /// # Errors
    /// As [`Pool::close`].
    pub async fn close(&self) -> Result<(), EngineError> {
        self.database.finish_maintenance(MAINTENANCE_BEFORE_CLOSE).await;
        self.pool.close().await
    }

    /// Runs a future on the calling thread: see [`block_on`](super::block_on).
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.pool.block_on(future)
    }

    /// The pool that the database is in, with the layers below.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl PoolOptions {
    /// Opens the database of a pool.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub async fn open_database(&self, url: &str) -> Result<Database, OpenError> {
        Database::from_opened(self.open(url).await?, async |pool| pool.open_database().await).await
    }

    /// Creates a database in a pool.
    ///
    /// # Errors
    /// As [`Database::create`].
    pub async fn create_database(
        &self,
        url: &str,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Database, OpenError> {
        let schema = schema.into();
        let create = async |pool: &Pool| pool.create_database(schema).await;
        Database::from_opened(self.open(url).await?, create).await
    }

    /// Opens the database of a pool, or creates it if the pool has none.
    ///
    /// # Errors
    /// As [`Database::open_or_create`].
    pub async fn open_or_create_database(
        &self,
        url: &str,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Database, OpenError> {
        let schema = schema.into();
        let open = async |pool: &Pool| pool.open_or_create_database(schema).await;
        Database::from_opened(self.open(url).await?, open).await
    }
}

impl Pool {
    /// Opens the database of the pool.
    ///
    /// # Errors
    /// [`CatalogueError::Missing`] if the pool has none, and what the engine reports.
    pub async fn open_database(&self) -> Result<Database, TxnError> {
        Ok(Database::new(self.clone(), txn::Database::open(self.engine()).await?))
    }

    /// Creates a database with these tables in the pool, for all nodes.
    ///
    /// # Errors
    /// [`CatalogueError::Exists`] if the pool has one, [`TxnError::Schema`] if a table cannot work,
    /// and what the engine reports.
    pub async fn create_database(
        &self,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Database, TxnError> {
        Ok(Database::new(self.clone(), txn::Database::create(self.engine(), schema).await?))
    }

    /// Opens the database of the pool, whatever its tables are, or creates it with these tables if
    /// the pool has none.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if a table cannot work, and what the engine reports.
    pub async fn open_or_create_database(
        &self,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Database, TxnError> {
        match self.open_database().await {
            Err(TxnError::Catalogue(CatalogueError::Missing)) => {}
            opened => return opened,
        }
        match self.create_database(schema).await {
            // Another node was faster.
            Err(TxnError::Catalogue(CatalogueError::Exists)) => self.open_database().await,
            created => created,
        }
    }
}

impl Database {
    /// The same database, whose transactions this handle begins by another protocol.
    ///
    /// # Errors
    /// As [`txn::Database::with_protocol`].
    pub fn with_protocol(&self, protocol: txn::Protocol) -> Result<Self, TxnError> {
        let database = self.database.clone().with_protocol(protocol)?;
        let (counted, pool) = (Arc::clone(&self.counted), self.pool.clone());
        Ok(Self { database, counted, pool })
    }
}

impl Deref for Database {
    type Target = txn::Database;

    fn deref(&self) -> &txn::Database {
        &self.database
    }
}
