//! The tables of an open database, found by name, by handle, or by the number of a tree.

use std::sync::Arc;

use selkie_btree::Tree;

use crate::catalogue::handles::{Index, Source, Table};
use crate::catalogue::schema::SchemaError;
use crate::catalogue::store::Catalogue;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::error::TxnError;

/// Every table of one database, with its trees.
pub(crate) struct TableDirectory {
    tables: Vec<Arc<TableInfo>>,
    /// Every tree by its number.
    trees: Vec<Tree>,
}

impl TableDirectory {
    /// Every tree, of tables and of indexes.
    pub(crate) fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// Resolves a stored catalogue. Trees are numbered table by table, the primary index first.
    pub(crate) fn resolve(catalogue: Catalogue) -> Result<Self, TxnError> {
        let mut tables = Vec::with_capacity(catalogue.tables.len());
        let mut trees = Vec::new();
        for stored in catalogue.tables {
            let table = TableInfo::resolve(stored, trees.len())?;
            trees.push(table.primary.tree);
            trees.extend(table.indexes.iter().map(|index| index.tree));
            tables.push(Arc::new(table));
        }
        Ok(Self { tables, trees })
    }

    /// All tables, in the order of the schema.
    pub(crate) fn handles(&self) -> impl Iterator<Item = Table> + use<> {
        (0..self.tables.len()).map(Table)
    }

    /// The table of that name.
    pub(crate) fn table_named(&self, name: &str) -> Result<Table, TxnError> {
        let found = self.tables.iter().position(|table| table.schema.name == name);
        let missing = || SchemaError::NoSuchTable { name: name.to_owned() };
        Ok(Table(found.ok_or_else(missing)?))
    }

    /// The index of that name.
    pub(crate) fn index_named(&self, table: &str, name: &str) -> Result<Index, TxnError> {
        let Table(number) = self.table_named(table)?;
        let indexes = self.tables.get(number).map(|table| &table.indexes);
        let found = indexes.and_then(|all| all.iter().position(|index| index.name == name));
        let (table, name) = (table.to_owned(), name.to_owned());
        let index = found.ok_or(SchemaError::NoSuchIndex { table, name })?;
        Ok(Index { table: number, index })
    }

    /// The table behind a handle.
    pub(crate) fn table(&self, table: Table) -> Result<&TableInfo, TxnError> {
        self.shared_table(table).map(|info| &**info)
    }

    /// The same, for an owner that outlives the transaction.
    pub(crate) fn shared_table(&self, table: Table) -> Result<&Arc<TableInfo>, TxnError> {
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

    /// The index whose tree has this number.
    pub(crate) fn index_of_tree(&self, tree: usize) -> Result<&IndexInfo, TxnError> {
        let all =
            self.tables.iter().flat_map(|table| [&table.primary].into_iter().chain(&table.indexes));
        let missing = || SchemaError::NoSuchTable { name: format!("tree {tree}") };
        Ok(all.into_iter().nth(tree).ok_or_else(missing)?)
    }

    /// The tree of that number, which [`resolve`](Self::resolve) gave.
    #[expect(clippy::expect_used, reason = "tree numbers come from this directory")]
    pub(crate) fn tree(&self, number: usize) -> Tree {
        *self.trees.get(number).expect("a tree number of another database")
    }
}
