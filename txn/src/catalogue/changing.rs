//! The definitions of tables that may change, as this node has read them.
//!
//! A definition stays in memory, at its place, as long as the handle of the database lives: so a
//! transaction may keep a reference to the one that it uses, and looking one up counts nothing. It
//! is some kilobytes for each change of a table that this node has used.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use selkie_btree::Stamp;

use crate::catalogue::handles::Table;
use crate::catalogue::table_info::TableInfo;
use crate::protocol::row_reads::{Digest, LeafVersion};

/// Where the row with the version of a definition was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionSeen {
    /// The leaf of `tables` that has it: as long as that is unchanged, so is the definition.
    pub(crate) leaf: LeafVersion,
    /// When that leaf was changed last.
    pub(crate) stamp: Stamp,
}

/// One definition of a table.
pub(crate) struct KnownTable {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) table: Table,
    /// Of the row of `tables`.
    pub(crate) digest: Digest,
    pub(crate) seen: Mutex<VersionSeen>,
}

/// Where definitions are, by their tables.
#[derive(Default)]
struct Positions {
    /// By the number of the table and the version.
    all: BTreeMap<(usize, i64), usize>,
    /// The one that was read last of what is committed, of tables that were there.
    current: BTreeMap<usize, usize>,
}

/// Every definition that this node has read.
#[derive(Default)]
pub(crate) struct ChangingTables {
    known: boxcar::Vec<KnownTable>,
    positions: RwLock<Positions>,
}

impl ChangingTables {
    /// The definition at a position that this has returned.
    #[expect(clippy::expect_used, reason = "nothing is ever removed")]
    pub(crate) fn at(&self, position: usize) -> &KnownTable {
        self.known.get(position).expect("a position of another database")
    }

    /// Where a definition is that was read before.
    pub(crate) fn position(&self, table: Table, version: i64) -> Option<usize> {
        self.positions.read().all.get(&(table.number(), version)).copied()
    }

    /// Where the definition is that was in force when this node looked last.
    pub(crate) fn current(&self, table: Table) -> Option<usize> {
        self.positions.read().current.get(&table.number()).copied()
    }

    /// Keeps a definition that no other transaction sees yet.
    pub(crate) fn add_own(&self, known: KnownTable) -> usize {
        self.known.push(known)
    }

    /// Keeps a definition that was committed.
    pub(crate) fn add(&self, version: i64, known: KnownTable) -> usize {
        let number = known.table.number();
        let mut positions = self.positions.write();
        // Another transaction may have read it meanwhile.
        *positions.all.entry((number, version)).or_insert_with(|| self.known.push(known))
    }

    /// Notes that a definition is in force.
    pub(crate) fn set_current(&self, position: usize, seen: VersionSeen) {
        let known = self.at(position);
        let number = known.table.number();
        *known.seen.lock() = seen;
        // Mostly it is noted already.
        if self.positions.read().current.get(&number) != Some(&position) {
            self.positions.write().current.insert(number, position);
        }
    }

    /// Notes that a table is not there any more.
    pub(crate) fn forget(&self, table: Table) {
        self.positions.write().current.remove(&table.number());
    }

    /// The tables of which the latest definition that this node knows is in force, or was.
    pub(crate) fn tables(&self) -> Vec<Table> {
        self.positions.read().current.keys().map(|number| Table::of_number(*number)).collect()
    }

    /// The tables that this node knows, with their definitions.
    pub(crate) fn all_current(&self) -> Vec<&KnownTable> {
        self.positions.read().current.values().map(|position| self.at(*position)).collect()
    }
}
