//! Handles of tables and indexes: plain numbers, valid on every node that opened the database.

use crate::encoding::key::KeyBuf;

/// Bits of the number of a tree that say which tree of its table it is.
const TREE_BITS: u32 = 16;

/// A table of a [`Database`](crate::Database). A plain number: resolve it once, use it in every
/// transaction, on any node that opened the same database. No number is used again once its table
/// was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table(pub(super) usize);

/// A secondary index of a table; as cheap as [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index {
    pub(super) table: usize,
    pub(super) index: usize,
}

impl Table {
    /// The table of this number.
    pub(crate) const fn of_number(number: usize) -> Self {
        Self(number)
    }

    /// Its number among all tables that the database ever had.
    #[must_use]
    pub fn number(self) -> usize {
        self.0
    }

    /// Its number as the catalogue has it.
    pub(crate) fn catalogue_number(self) -> i64 {
        self.0 as i64
    }

    /// The key of its row in the catalogue, and of the beginning of its definition.
    pub(crate) fn catalogue_key(self) -> KeyBuf {
        KeyBuf::new().i64(self.catalogue_number())
    }

    /// The number of its primary index among all trees of the database.
    pub(crate) fn primary_tree(self) -> usize {
        self.0 << TREE_BITS
    }

    /// The number of the tree of its long values: that of an index which no table has.
    pub(crate) fn values_tree(self) -> usize {
        self.index(u16::MAX - 1).tree()
    }

    /// The table that the tree of this number belongs to.
    pub(crate) fn of_tree(tree: usize) -> Self {
        Self(tree >> TREE_BITS)
    }

    /// Its index whose tree has this number.
    pub(crate) fn index_of_tree(self, tree: usize) -> Index {
        Index { table: self.0, index: tree - self.primary_tree() - 1 }
    }

    /// Its index of this number.
    pub(crate) fn index(self, number: u16) -> Index {
        Index { table: self.0, index: usize::from(number) }
    }
}

impl Index {
    /// The table it belongs to.
    #[must_use]
    pub fn table(self) -> Table {
        Table(self.table)
    }

    /// Its number among all indexes that its table ever had.
    #[must_use]
    pub fn number(self) -> usize {
        self.index
    }

    /// The number of its tree among all trees of the database.
    pub(crate) fn tree(self) -> usize {
        self.table().primary_tree() + 1 + self.index
    }
}

/// What a scan reads: a table in the order of its primary key, or an index in its own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The rows in the order of the primary key.
    Table(Table),
    /// The rows in the order of an index.
    Index(Index),
}

impl Source {
    /// The table, or that of the index.
    #[must_use]
    pub fn table(self) -> Table {
        match self {
            Self::Table(table) => table,
            Self::Index(index) => index.table(),
        }
    }

    /// The number of its tree among all trees of the database.
    pub(crate) fn tree(self) -> usize {
        match self {
            Self::Table(table) => table.primary_tree(),
            Self::Index(index) => index.tree(),
        }
    }
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
