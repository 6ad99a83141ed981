//! A database on one compute node: tables by name, and where transactions begin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use selkie_btree::Tree;
use selkie_engine::Engine;

use crate::catalogue::{self, Catalogue, CatalogueError, Present};
use crate::clock::Clock;
use crate::error::TxnError;
use crate::protocol::Protocol;
use crate::row_write::RowBuilder;
use crate::schema::{DatabaseSchema, SchemaError, TableSchema};
use crate::stats::{SHARDS, StatsShards, TxnStats, shard_here};
use crate::structure::{IndexInfo, TableInfo, check_sizes};
use crate::transaction::{Txn, Work};
use crate::upkeep::Upkeep;

/// Most tree upkeep kept for later; what does not fit is left to later traversals.
const BACKLOG: usize = 1024;

/// Most sets of scratch memory kept in a shard: about the transactions open at once on one thread.
const POOLED: usize = 64;

/// A table of a [`Database`]. Plain numbers: resolve it once, use it in every transaction, on any
/// node that opened the same database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table(usize);

/// A secondary index of a table; as cheap as [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index {
    table: usize,
    index: usize,
}

impl Index {
    /// The table it belongs to.
    #[must_use]
    pub fn table(self) -> Table {
        Table(self.table)
    }
}

/// What a scan goes over: a table in the order of its primary key, or an index in its own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The rows in the order of the primary key.
    Table(Table),
    /// The rows in the order of an index.
    Index(Index),
}

impl From<Table> for Source {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Index> for Source {
    fn from(index: Index) -> Self {
        Self::Index(index)
    }
}

/// What transactions see of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// As if transactions ran one after the other. Under [`Protocol::TwoPhase`] every latch is held
    /// to the end, also those of reads; under [`Protocol::Optimistic`] whoever has read what others
    /// have changed since does not commit; under [`Protocol::Timestamp`] whoever has read something
    /// is in the way of earlier ones that would change it.
    #[default]
    Serializable,
    /// Only committed data, but another read may find other data: the latches of reads are released
    /// when the next operation begins, those of changes are held to the end. Under
    /// [`Protocol::Optimistic`] reads are not looked at again, and under [`Protocol::Timestamp`]
    /// they leave no timestamp, but for those that changes are made by and those for update.
    ReadCommitted,
}

/// A database, opened on one compute node. A cheap handle: clones share everything.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
    /// One that goes with that of the catalogue.
    protocol: Protocol,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    tables: Vec<TableInfo>,
    /// Every tree by its number.
    trees: Vec<Tree>,
    /// Gives the timestamps of transactions that are ordered by them.
    pub(crate) clock: Clock,
    pub(crate) stats: StatsShards,
    scratch: [ScratchShard; SHARDS],
    backlog: Mutex<VecDeque<Upkeep>>,
    /// Length of the backlog, to look at without the lock.
    backlog_len: AtomicUsize,
    /// The number of the next savepoint: none is taken for that of another transaction. Handles of
    /// other nodes begin elsewhere.
    savepoints: AtomicU64,
}

/// Memory of ended transactions, alone on its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct ScratchShard(Mutex<Vec<Work<'static>>>);

impl Database {
    /// Creates a database with these tables in the engine's pool, for all nodes. What its
    /// transactions may be kept apart by is decided here, by the protocol of the schema, which is
    /// that of the handle.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if a table cannot work (nothing is changed then),
    /// [`CatalogueError::Exists`](crate::CatalogueError::Exists) if there is a database already,
    /// and what the engine reports.
    pub async fn create(
        engine: &Engine,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Self, TxnError> {
        Self::write(engine, schema.into(), Present::Refuse).await
    }

    /// Creates a database in place of the one that is there, if there is one. Whoever opens it from
    /// then on finds the new one; the pages of the old one stay allocated and are of no more use.
    /// No node may have that one open: what it does there would go on unnoticed.
    ///
    /// # Errors
    /// As [`create`](Self::create), but for
    /// [`CatalogueError::Exists`](crate::CatalogueError::Exists).
    pub async fn replace(
        engine: &Engine,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Self, TxnError> {
        Self::write(engine, schema.into(), Present::Abandon).await
    }

    async fn write(
        engine: &Engine,
        schema: DatabaseSchema,
        present: Present,
    ) -> Result<Self, TxnError> {
        let (schemas, protocol) = (&schema.tables, schema.protocol);
        for (at, schema) in schemas.iter().enumerate() {
            schema.validate()?;
            check_sizes(schema, engine.page_bytes())?;
            if schemas.iter().position(|other| other.name == schema.name) != Some(at) {
                let (table, name) = (schema.name.clone(), schema.name.clone());
                return Err(SchemaError::DuplicateName { table, name }.into());
            }
        }
        let trees = schemas.iter().map(|schema| 1 + schema.indexes.len()).sum();
        if trees == 0 || trees > usize::from(u16::MAX) {
            return Err(SchemaError::TooManyTrees { trees }.into());
        }
        let catalogue = catalogue::create(engine, schema, present).await?;
        Self::resolve(engine, catalogue, protocol)
    }

    /// Opens the database that another node (or this one) created in the engine's pool. Its
    /// transactions are two-phase locked, or ordered by timestamps if it was created for that.
    ///
    /// # Errors
    /// [`CatalogueError`](crate::CatalogueError) if there is none or its catalogue is damaged, and
    /// what the engine reports.
    pub async fn open(engine: &Engine) -> Result<Self, TxnError> {
        let catalogue = catalogue::read(engine).await?;
        let protocol = catalogue.protocol();
        Self::resolve(engine, catalogue, protocol)
    }

    fn resolve(
        engine: &Engine,
        catalogue: Catalogue,
        protocol: Protocol,
    ) -> Result<Self, TxnError> {
        let mut tables = Vec::with_capacity(catalogue.tables.len());
        let mut trees = Vec::new();
        for stored in catalogue.tables {
            let table = TableInfo::resolve(stored, trees.len())?;
            trees.push(table.primary.tree);
            trees.extend(table.indexes.iter().map(|index| index.tree));
            tables.push(table);
        }
        let first_savepoint = engine.env().random_u64();
        let inner = Arc::new(Inner {
            engine: engine.clone(),
            tables,
            trees,
            clock: Clock::new(),
            stats: StatsShards::default(),
            scratch: Default::default(),
            backlog: Mutex::default(),
            backlog_len: AtomicUsize::new(0),
            savepoints: AtomicU64::new(first_savepoint),
        });
        Ok(Self { inner, protocol })
    }

    /// The table of that name.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchTable`].
    pub fn table(&self, name: &str) -> Result<Table, TxnError> {
        let found = self.inner.tables.iter().position(|table| table.schema.name == name);
        let missing = || SchemaError::NoSuchTable { name: name.to_owned() };
        Ok(Table(found.ok_or_else(missing)?))
    }

    /// The index of that name.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchTable`], [`SchemaError::NoSuchIndex`].
    pub fn index(&self, table: &str, name: &str) -> Result<Index, TxnError> {
        let Table(number) = self.table(table)?;
        let indexes = self.inner.tables.get(number).map(|table| &table.indexes);
        let found = indexes.and_then(|all| all.iter().position(|index| index.name == name));
        let (table, name) = (table.to_owned(), name.to_owned());
        let index = found.ok_or(SchemaError::NoSuchIndex { table, name })?;
        Ok(Index { table: number, index })
    }

    /// A table's schema.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchTable`] if the handle is of another database.
    pub fn schema(&self, table: Table) -> Result<&TableSchema, TxnError> {
        Ok(&self.inner.table(table)?.schema)
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = Table> + use<> {
        (0..self.inner.tables.len()).map(Table)
    }

    /// An empty row of a table, to be filled and inserted.
    ///
    /// # Errors
    /// As [`schema`](Self::schema).
    pub fn row(&self, table: Table) -> Result<RowBuilder<'_>, TxnError> {
        Ok(RowBuilder::new(&self.inner.table(table)?.layout))
    }

    /// The tree behind a table or an index, to verify it or read its statistics.
    ///
    /// # Errors
    /// As [`schema`](Self::schema).
    pub fn tree(&self, source: impl Into<Source>) -> Result<Tree, TxnError> {
        Ok(self.inner.source(source.into())?.1.tree)
    }

    /// The same database with its transactions kept apart by this protocol. Handles of different
    /// protocols may be used side by side, here and on other nodes, where the database was made for
    /// both.
    ///
    /// # Errors
    /// [`CatalogueError::Protocol`] if it was not made for this one.
    pub fn with_protocol(self, protocol: Protocol) -> Result<Self, TxnError> {
        if !protocol.goes_with(self.protocol) {
            return Err(CatalogueError::Protocol { wanted: protocol }.into());
        }
        Ok(Self { protocol, ..self })
    }

    /// How transactions are kept apart.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The engine underneath.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// What became of the transactions of this handle and its clones.
    #[must_use]
    pub fn stats(&self) -> TxnStats {
        self.inner.stats.snapshot()
    }

    /// Begins a serializable transaction. No round trip, no waiting. Under [`Protocol::Timestamp`]
    /// it is its first access that decides on its place in the order.
    #[must_use]
    pub fn begin(&self) -> Txn<'_> {
        self.begin_with(Isolation::Serializable)
    }

    /// Begins a transaction with the given isolation.
    #[must_use]
    pub fn begin_with(&self, isolation: Isolation) -> Txn<'_> {
        self.begin_by(self.protocol, isolation)
    }

    /// Begins a serializable transaction that only reads, and is never long in the way of those
    /// that write: it latches a leaf for as long as it looks at it, in a scan as long as `visit` is
    /// shown what is there, whatever the protocol of the handle. So it may itself have to be run
    /// again. Where that is two-phase locked or optimistic, it reads as under
    /// [`Protocol::Optimistic`]: it waits for a leaf that is being changed, under [`Protocol::TwoPhase`] to the end of that
    /// transaction, which must not be one of the same task; and it ends in [`TxnError::Stale`] when
    /// what it has read was changed before its end: a long scan of what changes all the time may
    /// find no end, where one of [`begin`](Self::begin) under [`Protocol::TwoPhase`] keeps others
    /// out. Under [`Protocol::Timestamp`] it leaves its timestamp at what it reads, for which it
    /// has the leaf exclusively for that moment, ends in [`TxnError::TooLate`] where a later
    /// transaction has written, and earlier ones that come to write what it has read are run again
    /// with a later timestamp.
    ///
    /// Operations that change something, or are for update, do nothing and return
    /// [`TxnError::ReadOnly`]. No round trip, no waiting.
    #[must_use]
    pub fn begin_to_read(&self) -> Txn<'_> {
        self.begin_by(self.protocol.control().for_reading(), Isolation::Serializable)
            .that_only_reads()
    }

    fn begin_by(&self, protocol: Protocol, isolation: Isolation) -> Txn<'_> {
        let shard = shard_here();
        Txn::new(&self.inner, protocol, isolation, shard, self.inner.take_work(shard))
    }
}

impl Inner {
    pub(crate) fn table(&self, table: Table) -> Result<&TableInfo, TxnError> {
        let missing = || SchemaError::NoSuchTable { name: format!("number {}", table.0) };
        Ok(self.tables.get(table.0).ok_or_else(missing)?)
    }

    /// The table and the index behind a source.
    pub(crate) fn source(&self, source: Source) -> Result<(&TableInfo, &IndexInfo), TxnError> {
        match source {
            Source::Table(table) => self.table(table).map(|info| (info, &info.primary)),
            Source::Index(index) => {
                let info = self.table(Table(index.table))?;
                let missing = || SchemaError::NoSuchIndex {
                    table: info.schema.name.clone(),
                    name: format!("number {}", index.index),
                };
                Ok((info, info.indexes.get(index.index).ok_or_else(missing)?))
            }
        }
    }

    pub(crate) fn savepoint_number(&self) -> u64 {
        // Relaxed: only that no number is given twice.
        self.savepoints.fetch_add(1, Ordering::Relaxed)
    }

    /// The index whose tree has this number.
    pub(crate) fn index_of(&self, tree: usize) -> Result<&IndexInfo, TxnError> {
        let all =
            self.tables.iter().flat_map(|table| [&table.primary].into_iter().chain(&table.indexes));
        let missing = || SchemaError::NoSuchTable { name: format!("tree {tree}") };
        Ok(all.into_iter().nth(tree).ok_or_else(missing)?)
    }

    /// The tree of that number.
    pub(crate) fn tree(&self, number: usize) -> Option<Tree> {
        self.trees.get(number).copied()
    }

    fn take_work<'db>(&'db self, shard: usize) -> Work<'db> {
        let pooled = self.scratch.get(shard).and_then(|shard| shard.0.lock().pop());
        pooled.unwrap_or_default().emptied()
    }

    pub(crate) fn give_work(&self, shard: usize, work: Work<'_>) {
        let work = work.emptied();
        if let Some(shard) = self.scratch.get(shard) {
            let mut pool = shard.0.lock();
            if pool.len() < POOLED {
                pool.push(work);
            }
        }
    }

    /// Keeps upkeep for a later transaction.
    pub(crate) fn postpone(&self, upkeep: Upkeep) {
        let mut backlog = self.backlog.lock();
        if backlog.len() < BACKLOG {
            backlog.push_back(upkeep);
        }
        self.backlog_len.store(backlog.len(), Ordering::Relaxed);
    }

    /// The oldest postponed upkeep.
    pub(crate) fn take_postponed(&self) -> Option<Upkeep> {
        if self.backlog_len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut backlog = self.backlog.lock();
        let upkeep = backlog.pop_front();
        self.backlog_len.store(backlog.len(), Ordering::Relaxed);
        upkeep
    }
}
