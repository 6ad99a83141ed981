//! The tables of an open database, found by name, by handle, or by the number of a tree.

use std::sync::Arc;

use selkie_btree::Tree;
use selkie_engine::{Engine, GAddr};

use crate::catalogue::changing::{ChangingTables, KnownTable};
use crate::catalogue::definition::{TABLES, VERSION_COLUMN};
use crate::catalogue::handles::{Index, Source, Table};
use crate::catalogue::known_tree::KnownTree;
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::store::Catalogue;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;

/// Every table of one database, with its trees.
pub(crate) struct TableDirectory {
    /// The tables that never change, by their numbers: all of them, or those of the catalogue.
    fixed: Vec<Arc<TableInfo>>,
    /// The other tables, if there may be any.
    changing: Option<ChangingTables>,
    /// The locks of rows.
    locks: Option<Tree>,
}

impl TableDirectory {
    /// Resolves what the superblock has of a catalogue.
    pub(crate) fn resolve(catalogue: Catalogue) -> Result<Self, TxnError> {
        let locks =
            (catalogue.locks != 0).then(|| Tree::open(GAddr::from_u64(catalogue.locks), u16::MAX));
        let tables = catalogue.tables.into_iter().enumerate();
        let fixed = tables
            .map(|(at, stored)| TableInfo::resolve(Table::of_number(at), stored).map(Arc::new));
        Ok(Self {
            fixed: fixed.collect::<Result<_, _>>()?,
            changing: catalogue.has_changing_tables.then(ChangingTables::default),
            locks,
        })
    }

    /// A table that never changes.
    #[inline]
    pub(crate) fn fixed(&self, table: Table) -> Option<&Arc<TableInfo>> {
        self.fixed.get(table.number())
    }

    /// The tree of the locks of rows.
    pub(crate) fn locks(&self) -> Option<Tree> {
        self.locks
    }

    /// The tables that may change, if there may be any.
    pub(crate) fn changing(&self) -> Option<&ChangingTables> {
        self.changing.as_ref()
    }

    /// Whether a tree is one of the definition in force. Else, and if this node does not know that
    /// definition yet, what the tree was to be used for is left undone. At most a few round trips.
    ///
    /// # Errors
    /// What the engine and the tree of the catalogue report.
    pub(crate) async fn is_there(
        &self,
        engine: &Engine,
        tree: &KnownTree,
    ) -> Result<bool, TxnError> {
        if tree.is_fixed() {
            return Ok(true);
        }
        let table = tree.table();
        let (Some(changing), Some(tables)) = (&self.changing, self.fixed(TABLES)) else {
            return Ok(false);
        };
        let row = tables.primary.tree.get(engine, &table.catalogue_key()).await?;
        let Some(row) = row else { return Ok(false) };
        let version = RowRef::new(&tables.layout, &row).i64(VERSION_COLUMN)?;
        let known = changing.position(table, version).map(|position| changing.at(position));
        let index = known.and_then(|known| known.info.index_of_tree(tree.number()));
        Ok(index.is_some_and(|index| index.known == *tree))
    }

    /// Every tree, also of the catalogue, as this node knows them.
    pub(crate) fn trees(&self) -> Vec<Tree> {
        let changing = self.changing.iter().flat_map(ChangingTables::all_current);
        let all = self.fixed.iter().chain(changing.map(|known| &known.info));
        let trees = all.flat_map(|info| info.all_indexes()).map(|index| index.tree);
        trees.chain(self.locks).collect()
    }

    /// Notes that these are all tables that may change.
    pub(crate) fn forget_others(&self, tables: &[Table]) {
        let Some(changing) = &self.changing else { return };
        let gone = changing.tables().into_iter().filter(|table| !tables.contains(table));
        gone.for_each(|table| changing.forget(table));
    }

    /// All tables of the user, as this node knows them: in the order of the schema, or in the order
    /// in which they were created.
    pub(crate) fn handles(&self) -> Vec<Table> {
        match &self.changing {
            Some(changing) => changing.tables(),
            None => (0..self.fixed.len()).map(Table::of_number).collect(),
        }
    }

    /// The table of that name, as this node knows it.
    pub(crate) fn table_named(&self, name: &str) -> Result<Table, TxnError> {
        let is_named = |info: &TableInfo| info.schema.name == name;
        let found = match &self.changing {
            Some(changing) => {
                let mut all = changing.all_current().into_iter();
                all.find(|known| is_named(&known.info)).map(|known| known.table)
            }
            None => self.fixed.iter().position(|info| is_named(info)).map(Table::of_number),
        };
        Ok(found.ok_or_else(|| SchemaError::NoSuchTable { name: name.to_owned() })?)
    }

    /// The index of that name, as this node knows it.
    pub(crate) fn index_named(&self, table: &str, name: &str) -> Result<Index, TxnError> {
        let handle = self.table_named(table)?;
        let mut indexes = self.table(handle)?.indexes.iter();
        let found = indexes.find(|index| index.is_complete && index.name == name);
        let (table, name) = (table.to_owned(), name.to_owned());
        let index = found.ok_or(SchemaError::NoSuchIndex { table, name })?;
        Ok(handle.index_of_tree(index.number))
    }

    /// The definition of a table that may change, as this node knows it.
    pub(crate) fn known(&self, table: Table) -> Option<&KnownTable> {
        let changing = self.changing.as_ref()?;
        Some(changing.at(changing.current(table)?))
    }

    /// The table behind a handle, as this node knows it.
    pub(crate) fn table(&self, table: Table) -> Result<&TableInfo, TxnError> {
        self.shared_table(table).map(|info| &**info)
    }

    /// The same, for an owner that outlives the transaction.
    pub(crate) fn shared_table(&self, table: Table) -> Result<&Arc<TableInfo>, TxnError> {
        let changing = || self.known(table).map(|known| &known.info);
        let missing = || SchemaError::NoSuchTable { name: format!("number {}", table.number()) };
        Ok(self.fixed(table).or_else(changing).ok_or_else(missing)?)
    }

    /// The table and the index behind a source, as this node knows them.
    pub(crate) fn source(&self, source: Source) -> Result<(&TableInfo, &IndexInfo), TxnError> {
        let info = self.table(source.table())?;
        Ok((info, info.source(source)?))
    }
}
