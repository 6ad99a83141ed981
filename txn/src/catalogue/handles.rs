//! Handles of tables and indexes: plain numbers, valid on every node that opened the database.

/// A table of a [`Database`](crate::Database). A plain number: resolve it once, use it in every
/// transaction, on any node that opened the same database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table(pub(super) usize);

/// A secondary index of a table; as cheap as [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index {
    pub(super) table: usize,
    pub(super) index: usize,
}

impl Index {
    /// The table it belongs to.
    #[must_use]
    pub fn table(self) -> Table {
        Table(self.table)
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
    /// The table whose rows it leads to.
    #[must_use]
    pub fn table(self) -> Table {
        match self {
            Self::Table(table) => table,
            Self::Index(index) => index.table(),
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
