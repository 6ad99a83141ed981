//! A database on one compute node: tables by name, and where transactions begin.

use std::collections::HashSet;
use std::sync::Arc;

use selkie_btree::Tree;
use selkie_engine::{Engine, GAddr};
use selkie_fabric::BoxFuture;

use crate::catalogue::directory::TableDirectory;
use crate::catalogue::error::CatalogueError;
use crate::catalogue::handles::{Index, Source, Table};
use crate::catalogue::schema::{DatabaseSchema, TableSchema};
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::sizes::check_sizes;
use crate::catalogue::store::{self, Catalogue, ExistingDatabase};
use crate::encoding::key::KeyBuf;
use crate::encoding::row_builder::RowBuilder;
use crate::encoding::row_layout::MAX_NUMBER_BYTES;
use crate::encoding::row_ref::RowRef;
use crate::encoding::value::Value;
use crate::error::TxnError;
use crate::locks::advisory::AdvisoryLocks;
use crate::protocol::choice::{Isolation, Protocol};
use crate::stats::{TxnStats, shard_here};
use crate::transaction::bulk_load::{BulkLoad, BulkLoadOptions};
use crate::transaction::database_state::DatabaseState;
use crate::transaction::txn::Txn;

/// A database, opened on one compute node. A cheap handle: clones share everything.
#[derive(Clone)]
pub struct Database {
    state: Arc<DatabaseState>,
    /// Of its transactions; it goes with the protocol of the catalogue.
    protocol: Protocol,
}

impl Database {
    /// A new owner of advisory locks, which all nodes of the pool see.
    ///
    /// # Errors
    /// [`TxnError::NoRowLocks`] of a database of another protocol than
    /// [`Protocol::Snapshot`].
    pub fn advisory_locks(&self) -> Result<AdvisoryLocks, TxnError> {
        let Some(table) = &self.state.locks else { return Err(TxnError::NoRowLocks) };
        Ok(AdvisoryLocks::new(table, self.state.lock_owner(None)))
    }

    /// Creates a database with these tables in the engine's pool, for all nodes. The protocol of
    /// the schema decides which protocols its transactions may use, and is that of the handle.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if a table cannot work (nothing is changed then),
    /// [`CatalogueError::Exists`](crate::CatalogueError::Exists) if there is a database already,
    /// and what the engine reports.
    pub fn create(
        engine: &Engine,
        schema: impl Into<DatabaseSchema>,
    ) -> BoxFuture<'_, Result<Self, TxnError>> {
        Self::write(engine, schema.into(), ExistingDatabase::Refuse)
    }

    /// Creates a database in place of the one that is there, if there is one. A node that opens
    /// it from then on finds the new one; the pages of the old one stay allocated, unused. No node
    /// may have the old one open: its transactions would continue there, unnoticed.
    ///
    /// # Errors
    /// As [`create`](Self::create), but for
    /// [`CatalogueError::Exists`](crate::CatalogueError::Exists).
    pub fn replace(
        engine: &Engine,
        schema: impl Into<DatabaseSchema>,
    ) -> BoxFuture<'_, Result<Self, TxnError>> {
        Self::write(engine, schema.into(), ExistingDatabase::Abandon)
    }

    fn write(
        engine: &Engine,
        schema: DatabaseSchema,
        existing: ExistingDatabase,
    ) -> BoxFuture<'_, Result<Self, TxnError>> {
        Box::pin(async move {
            let (schemas, protocol) = (&schema.tables, schema.protocol);
            // Rows of tables that may change begin with a layout number.
            let has_layouts = protocol == Protocol::Snapshot;
            let number_bytes = if has_layouts { MAX_NUMBER_BYTES } else { 0 };
            for (at, schema) in schemas.iter().enumerate() {
                schema.validate()?;
                check_sizes(schema, number_bytes, engine.page_bytes())?;
                if schemas.iter().position(|other| other.name == schema.name) != Some(at) {
                    let (table, name) = (schema.name.clone(), schema.name.clone());
                    return Err(SchemaError::DuplicateName { table, name }.into());
                }
            }
            let trees = schemas.iter().map(|schema| 1 + schema.indexes.len()).sum();
            // Where tables may change, they may come later.
            let is_empty = trees == 0 && protocol != Protocol::Snapshot;
            if is_empty || trees > usize::from(u16::MAX) {
                return Err(SchemaError::TooManyTrees { trees }.into());
            }
            let catalogue = store::create(engine, schema, existing).await?;
            Self::resolve(engine, catalogue, protocol).await
        })
    }

    /// Opens the database that another node (or this one) created in the engine's pool. Its
    /// transactions are of the protocol that it was created for; of two-phase locking, if that was
    /// it or [`Protocol::Optimistic`].
    ///
    /// # Errors
    /// [`CatalogueError`](crate::CatalogueError) if there is none or its catalogue is damaged, and
    /// what the engine reports.
    pub fn open(engine: &Engine) -> BoxFuture<'_, Result<Self, TxnError>> {
        Box::pin(async move {
            let catalogue = store::read(engine).await?;
            let protocol = catalogue.protocol();
            Self::resolve(engine, catalogue, protocol).await
        })
    }

    async fn resolve(
        engine: &Engine,
        catalogue: Catalogue,
        protocol: Protocol,
    ) -> Result<Self, TxnError> {
        let directory = TableDirectory::resolve(catalogue)?;
        let has_snapshots = protocol == Protocol::Snapshot;
        let state = Arc::new_cyclic(|this| {
            DatabaseState::new(this.clone(), engine, directory, has_snapshots)
        });
        let database = Self { state, protocol };
        database.refresh().await?;
        if database.state.directory.changing().is_some() {
            // A node may have died that was giving pages back.
            database.state.dropped.look();
        }
        Ok(database)
    }

    /// Learns which tables there are, and their definitions. Where tables may change
    /// ([`Protocol::Snapshot`]), [`table`](Self::table) and the other methods that do not wait know
    /// what this node has read last; transactions look at the definitions that are in force by
    /// themselves. One round trip, and one for each page of the catalogue that is not cached.
    ///
    /// # Errors
    /// What the engine reports; [`CatalogueError`](crate::CatalogueError) if the catalogue is
    /// damaged.
    pub async fn refresh(&self) -> Result<(), TxnError> {
        if self.state.directory.changing().is_none() {
            return Ok(());
        }
        let mut txn = self.begin_to_read();
        let tables = txn.all_tables().await?;
        self.state.directory.forget_others(&tables);
        for table in tables {
            txn.open_read()?;
            txn.table_info(table).await?;
        }
        txn.commit().await
    }

    /// All pages of the database: nothing leads to a page of the pool that is not among them. No
    /// node may change the database meanwhile. Reads and checks every page once.
    ///
    /// # Errors
    /// What cannot be read, as a page that is lost, or is not as it should be: the pages behind it
    /// are unknown.
    pub fn pages<'a>(
        &'a self,
        engine: &'a Engine,
    ) -> BoxFuture<'a, Result<HashSet<GAddr>, TxnError>> {
        Box::pin(async move {
            self.refresh().await?;
            let mut pages: HashSet<GAddr> = store::pages(engine).await?.into_iter().collect();
            for tree in self.state.directory.trees() {
                pages.extend(tree.pages(engine).await?);
            }
            Ok(pages)
        })
    }

    /// The table of that name.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchTable`].
    pub fn table(&self, name: &str) -> Result<Table, TxnError> {
        self.state.directory.table_named(name)
    }

    /// The index of that name.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchTable`], [`SchemaError::NoSuchIndex`].
    pub fn index(&self, table: &str, name: &str) -> Result<Index, TxnError> {
        self.state.directory.index_named(table, name)
    }

    /// A table's schema.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchTable`] if the handle is of another database.
    pub fn schema(&self, table: Table) -> Result<&TableSchema, TxnError> {
        Ok(&self.state.directory.table(table)?.schema)
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = Table> + use<> {
        self.state.directory.handles().into_iter()
    }

    /// An empty row of a table, to be filled and inserted. Where the columns of the table may
    /// change, [`Txn::row`] makes one of those that the transaction sees.
    ///
    /// # Errors
    /// As [`schema`](Self::schema).
    pub fn row(&self, table: Table) -> Result<RowBuilder<'_>, TxnError> {
        Ok(RowBuilder::new(&self.state.directory.table(table)?.layout))
    }

    /// The key of a table or an index that begins with these values, in the order of its columns:
    /// all of them, or the first ones for a range over a prefix. It has the types and the
    /// [orders](crate::KeyOrder) of the columns. Where a column is descending, the key of the
    /// greater value is the lower bound of a range.
    ///
    /// ```
    /// # use selkie_txn::{Database, KeyRange, Txn, TxnError, Value};
    /// # async fn example(db: &Database) -> Result<(), TxnError> {
    /// // If the first column of `by_age` is descending: ages from 30 to 20.
    /// let by_age = db.index("person", "by_age")?;
    /// let (first, last) = ([Value::I32(30)], [Value::I32(20)]);
    /// let range = KeyRange::between(&db.key(by_age, &first)?, &db.key(by_age, &last)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TxnError::Row`] if a value is of another type than its column, out of its range, or NULL
    /// where the column is not nullable; [`TxnError::KeyMismatch`] if there are more values than
    /// columns; and as [`schema`](Self::schema).
    pub fn key(&self, source: impl Into<Source>, values: &[Value<'_>]) -> Result<KeyBuf, TxnError> {
        let (table, index) = self.state.directory.source(source.into())?;
        table.key(index, values)
    }

    /// The key that a row has in its table or an index of it, of the columns of that. A row that a
    /// [`Cursor`](crate::Cursor) has shown is updated or deleted by its key in the table.
    ///
    /// # Errors
    /// [`TxnError::ForeignRow`] if the row is of another table; [`TxnError::Row`] if it is damaged;
    /// and as [`schema`](Self::schema).
    pub fn key_of(&self, source: impl Into<Source>, row: RowRef<'_>) -> Result<KeyBuf, TxnError> {
        let (table, index) = self.state.directory.source(source.into())?;
        table.key_of(index, row)
    }

    /// The tree behind a table or an index, to verify it or read its statistics.
    ///
    /// # Errors
    /// As [`schema`](Self::schema).
    pub fn tree(&self, source: impl Into<Source>) -> Result<Tree, TxnError> {
        Ok(self.state.directory.source(source.into())?.1.tree)
    }

    /// The tree of the values of a table that its rows have no room for, if it can have such: to
    /// verify it or read its statistics.
    ///
    /// # Errors
    /// As [`schema`](Self::schema).
    pub fn values_tree(&self, table: Table) -> Result<Option<Tree>, TxnError> {
        let values = &self.state.directory.table(table)?.values;
        Ok(values.as_ref().map(|values| values.tree))
    }

    /// The same database with transactions of this protocol. Handles of different
    /// protocols may be used side by side, here and on other nodes, where the database was made for
    /// both.
    ///
    /// # Errors
    /// [`CatalogueError::Protocol`] if it was not made for this one.
    pub fn with_protocol(self, protocol: Protocol) -> Result<Self, TxnError> {
        if !protocol.goes_with(self.protocol) {
            let (wanted, made_for) = (protocol, self.protocol);
            return Err(CatalogueError::Protocol { wanted, made_for }.into());
        }
        Ok(Self { protocol, ..self })
    }

    /// The protocol of its transactions.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The engine underneath.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.state.engine
    }

    /// How the transactions of this handle and its clones ended.
    #[must_use]
    pub fn stats(&self) -> TxnStats {
        let mut stats = self.state.stats.snapshot();
        if let Some(locks) = &self.state.locks {
            locks.counts.add_to(&mut stats);
        }
        self.state.turns.add_to(&mut stats);
        stats
    }

    /// Begins a serializable transaction. No round trip, no waiting. Under [`Protocol::Timestamp`]
    /// it is its first access that decides on its place in the order.
    #[must_use]
    pub fn begin(&self) -> Txn<'_> {
        self.begin_with(Isolation::Serializable)
    }

    /// Begins a transaction with the given isolation. [`Isolation::RepeatableRead`] is of
    /// [`Protocol::Snapshot`]; under the other protocols such a transaction is serializable.
    #[must_use]
    pub fn begin_with(&self, isolation: Isolation) -> Txn<'_> {
        self.begin_by(self.protocol, isolation)
    }

    /// Begins a serializable transaction that only reads, and never blocks writers for long: it
    /// latches a leaf only while it reads it (in a scan, while `visit` is shown its rows), whatever
    /// the protocol of the handle. So, but for [`Protocol::Snapshot`], it may itself have to be run
    /// again.
    ///
    /// Under [`Protocol::Snapshot`] it reads the state of one point in time, at its first access:
    /// one round trip. That state has every commit that was acknowledged before, on any node. The
    /// transaction waits for no other but while that one commits a change of a leaf that it reads,
    /// and meets no conflict, however long it takes. Images of leaves that are changed meanwhile
    /// are kept in memory of the nodes that change them, up to
    /// [a bound](selkie_engine::EngineConfig::image_bytes). If one that it needs is gone, for want
    /// of room or with its node, it ends in [`TxnError::SnapshotTooOld`].
    ///
    /// A commit has all the leaves that it changes latched until it has changed them. That is a
    /// moment for a few. For tens of thousands, as of an update of all rows of a large table, it
    /// takes seconds, and longer if most of them are to be fetched from other hosts, which is one
    /// round trip after the other. A reader that comes to one of them waits as long, and after
    /// [`request_timeout`](selkie_engine::EngineConfig::request_timeout) ends in
    /// [`EngineError::Timeout`](selkie_engine::EngineError::Timeout): it may be run again. Large
    /// changes in transactions of some thousand rows each keep that short; so does a cache that has
    /// the leaves. They also keep the images few that its snapshot needs.
    ///
    /// Where the handle is two-phase locked or optimistic, it reads as under
    /// [`Protocol::Optimistic`]. It waits for a leaf that is being changed: under
    /// [`Protocol::TwoPhase`] to the end of that transaction, which must not be one of the same
    /// task. It ends in [`TxnError::Stale`] if what it has read was changed before its end. A long
    /// scan of rows that change all the time may never succeed; one of [`begin`](Self::begin) under
    /// [`Protocol::TwoPhase`] keeps others out, of as many leaves as it may
    /// [keep latched](Self::set_latched_reads).
    ///
    /// Under [`Protocol::Timestamp`] it leaves its timestamp at what it reads, for which it briefly
    /// latches the leaf exclusively. It ends in [`TxnError::TooLate`] where a later transaction has
    /// written, and earlier ones that write what it has read are run again with a later timestamp.
    ///
    /// Operations that change something, or are for update, do nothing and return
    /// [`TxnError::ReadOnly`]. No round trip, no waiting.
    #[must_use]
    pub fn begin_to_read(&self) -> Txn<'_> {
        let protocol = self.protocol.rules().for_reading();
        self.begin_by(protocol, Isolation::Serializable).read_only()
    }

    /// As [`begin_to_read`](Self::begin_to_read), but under
    /// [`Protocol::Snapshot`] each operation sees what is committed when it begins, or each
    /// [statement](Txn::begin_statement), as under
    /// [`ReadCommitted`](crate::Isolation::ReadCommitted).
    #[must_use]
    pub fn begin_to_read_committed(&self) -> Txn<'_> {
        let protocol = self.protocol.rules().for_reading();
        if self.protocol != Protocol::Snapshot {
            return self.begin_to_read();
        }
        let mut begun = self.begin_by(protocol, Isolation::ReadCommitted);
        // With the view of its isolation.
        begun.read_only = true;
        begun
    }

    /// Begins to load an empty table from rows in the order of their primary keys: several times as
    /// fast as inserts, and all at once for others. The table may be used meanwhile.
    ///
    /// ```
    /// # use selkie_txn::{BulkLoadOptions, Database, TxnError};
    /// # async fn example(db: &Database) -> Result<(), TxnError> {
    /// let table = db.table("person")?;
    /// let mut load = db.bulk_load(table, BulkLoadOptions::default()).await?;
    /// for id in 0..1_000_000 {
    ///     let mut row = db.row(table)?;
    ///     row.i32(id).text("nobody");
    ///     load.push(row.finish()?).await?;
    /// }
    /// assert_eq!(load.finish().await?, 1_000_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BulkLoadError::NotEmpty`](crate::BulkLoadError::NotEmpty); as [`schema`](Self::schema);
    /// what the engine reports.
    pub async fn bulk_load(
        &self,
        table: Table,
        options: BulkLoadOptions,
    ) -> Result<BulkLoad<'_>, TxnError> {
        BulkLoad::begin(&self.state, self.protocol.rules().reads(), table, options).await
    }

    pub(crate) fn state(&self) -> &DatabaseState {
        &self.state
    }

    /// Leaves that a two-phase locked transaction holds beyond which it keeps no more latches of
    /// leaves that it only reads: it validates these at commit, and so may end in
    /// [`TxnError::Stale`]. A quarter of the cache unless set.
    pub fn set_latched_reads(&self, leaves: usize) {
        self.state.leaf_budget.set_latched_reads(leaves);
    }

    /// Leaves that all large transactions of this handle together keep latched in the cache, beside
    /// the first 64 of each, in whole 64; those beyond leave the cache
    /// ([`leave_cache`](selkie_engine::ExclusiveGuard::leave_cache)). Half of the cache unless set.
    pub fn set_cached_leaves(&self, leaves: usize) {
        self.state.leaf_budget.set_cached_leaves(leaves);
    }

    /// Pages that one scan, cursor or [`get_many`](Txn::get_many) of this handle and its clones
    /// fetches ahead at most, so that it waits for several of them at a time: up to 256, and 16
    /// unless set. With 0 each page is fetched when it is needed.
    pub fn set_read_ahead(&self, pages: usize) {
        self.state.set_read_ahead(pages);
    }

    fn begin_by(&self, protocol: Protocol, isolation: Isolation) -> Txn<'_> {
        Txn::new(&self.state, protocol, isolation, shard_here())
    }
}
