//! Registers: rows that come and go, with an index by which they can be found as well.
//!
//! The version of a register is a number that no other write of the run uses. That of a deleted one
//! stands in its tombstone. Each row is in one of some *groups*, drawn anew with every write; the
//! index is by group and version, so that every write moves the row's entry. Notes of varying
//! length make rows grow and shrink, and leaves split.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_fabric::env::SplitMix;
use selkie_txn::{
    ColumnType, Database, Index, KeyRange, RowMut, RowRef, Table, TableSchema, TxnError, key,
};

use super::access::Access;
use super::column_changes;
use super::journal::Notes;
use super::values::Values;
use crate::check::serial::Op;
use crate::error::{SimError, ensure};

/// Columns of a row.
const ID: usize = 0;
const GROUP: usize = 1;
const VERSION: usize = 2;
const NOTE: usize = 3;
/// Column of a tombstone's version.
const TOMBSTONE: usize = 1;

/// Groups that rows are in.
pub(super) const GROUPS: u64 = 3;
/// The longest note, bytes.
const NOTE_BYTES: u32 = 40;

/// The tables; `rows_a_page` at most, so that leaves split, and become empty.
pub(super) fn schemas(rows_a_page: u16) -> Vec<TableSchema> {
    let row = TableSchema::new("register")
        .column("id", ColumnType::I64)
        .column("group", ColumnType::I64)
        .column("version", ColumnType::I64)
        .column("note", ColumnType::Text(NOTE_BYTES))
        .primary_key([ID])
        .index("by_group", [GROUP, VERSION])
        .max_rows_per_page(rows_a_page);
    let tombstone = TableSchema::new("tombstone")
        .column("id", ColumnType::I64)
        .column("version", ColumnType::I64)
        .primary_key([ID]);
    vec![row, tombstone]
}

/// The tables of the registers.
pub(super) struct Registers {
    pub(super) rows: Table,
    pub(super) by_group: Index,
    pub(super) tombstones: Table,
}

/// What a write stores, beside the version.
struct Filling {
    group: i64,
    note: String,
}

impl Filling {
    fn draw(random: &SplitMix) -> Self {
        let length = random.below(u64::from(NOTE_BYTES) + 1) as usize;
        Self { group: random.below(GROUPS).cast_signed(), note: "x".repeat(length) }
    }
}

/// A row as a scan of the index sees it.
pub(super) struct Member {
    pub(super) group: u64,
    pub(super) id: u64,
    pub(super) version: u64,
}

impl Member {
    pub(super) fn of(row: RowRef<'_>) -> Result<Self, TxnError> {
        let column = |column| row.i64(column).map(i64::cast_unsigned);
        Ok(Self { group: column(GROUP)?, id: column(ID)?, version: column(VERSION)? })
    }
}

impl Registers {
    pub(super) fn of(db: &Database) -> Result<Self, TxnError> {
        Ok(Self {
            rows: db.table("register")?,
            by_group: db.index("register", "by_group")?,
            tombstones: db.table("tombstone")?,
        })
    }

    /// Sets every other register; what that was.
    pub(super) async fn fill(&self, db: &Database, keys: u64) -> Result<Vec<Op>, TxnError> {
        let (mut txn, mut notes) = (db.begin(), Notes::default());
        let random = &SplitMix::of_stream(keys, 0);
        let mut access = Access { db, txn: &mut txn, notes: &mut notes, random };
        for key in (0..keys).step_by(2) {
            self.insert(&mut access, key, key + 1, &Filling::draw(random)).await?;
        }
        txn.commit().await?;
        Ok(notes.into_parts().0)
    }

    /// Reads a register by its key.
    ///
    /// # Errors
    /// What the transaction reports; so do all of these.
    pub(super) async fn read(&self, access: &mut Access<'_, '_>, key: u64) -> Result<(), TxnError> {
        let row = access.txn.get(self.rows, &key![key.cast_signed()]).await?;
        let version = match row.map(version_of).transpose()? {
            Some(version) => Some(version),
            None => self.tombstone(access, key).await?,
        };
        access.notes.read(key, version);
        Ok(())
    }

    /// Sets a register, there or not. A `blind` write says nothing of what it replaces.
    pub(super) async fn write(
        &self,
        access: &mut Access<'_, '_>,
        key: u64,
        version: u64,
        blind: bool,
    ) -> Result<(), TxnError> {
        let filling = Filling::draw(access.random);
        let change = |row: &mut RowMut<'_>| {
            let old = row.i64(VERSION)?.cast_unsigned();
            row.set_i64(GROUP, filling.group)?;
            row.set_i64(VERSION, version.cast_signed())?;
            row.set_text(NOTE, &filling.note)?;
            column_changes::write(row, version)?;
            Ok(old)
        };
        match access.txn.update(self.rows, &key![key.cast_signed()], change).await {
            Ok(old) => {
                if !blind {
                    access.notes.read(key, Some(old));
                }
                access.notes.add(Op::Write { key, value: version });
                Ok(())
            }
            Err(TxnError::NotFound { .. }) => {
                if !blind {
                    let old = self.tombstone(access, key).await?;
                    access.notes.read(key, old);
                }
                self.insert(access, key, version, &filling).await
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes a register's row, if it is there, and leaves a tombstone of this version.
    pub(super) async fn delete(
        &self,
        access: &mut Access<'_, '_>,
        key: u64,
        version: u64,
    ) -> Result<(), TxnError> {
        let id = key![key.cast_signed()];
        if access.coin() {
            // As most programs do: look first.
            self.read(access, key).await?;
        }
        match access.txn.delete(self.rows, &id).await {
            Ok(()) => {}
            Err(TxnError::NotFound { .. }) => {
                let old = self.tombstone(access, key).await?;
                access.notes.read(key, old);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.bury(access, key, version).await
    }

    /// Empties the table of the rows, and leaves a tombstone of each that was there.
    pub(super) async fn truncate(
        &self,
        access: &mut Access<'_, '_>,
        keys: u64,
        values: &mut Values,
    ) -> Result<(), TxnError> {
        let rows = self.versions(access, self.rows, &KeyRange::all()).await?;
        let tombstones = self.versions(access, self.tombstones, &KeyRange::all()).await?;
        let seen = with_tombstones(rows.clone(), &tombstones);
        access.notes.add(Op::Scan { low: 0, high: keys - 1, seen });
        access.txn.truncate(self.rows).await?;
        for (key, _) in rows {
            self.bury(access, key, values.take()).await?;
        }
        Ok(())
    }

    /// Leaves a tombstone.
    async fn bury(
        &self,
        access: &mut Access<'_, '_>,
        key: u64,
        version: u64,
    ) -> Result<(), TxnError> {
        let set = |row: &mut RowMut<'_>| Ok(row.set_i64(TOMBSTONE, version.cast_signed())?);
        match access.txn.update(self.tombstones, &key![key.cast_signed()], set).await {
            Err(TxnError::NotFound { .. }) => {
                let mut row = access.db.row(self.tombstones)?;
                row.i64(key.cast_signed()).i64(version.cast_signed());
                access.txn.insert(self.tombstones, row.finish()?).await?;
            }
            other => other?,
        }
        access.notes.add(Op::Write { key, value: version });
        Ok(())
    }

    /// Scans a range of registers, with tombstones before or after the rows.
    pub(super) async fn scan(
        &self,
        access: &mut Access<'_, '_>,
        low: u64,
        high: u64,
    ) -> Result<(), TxnError> {
        let range = KeyRange::between(&key![low.cast_signed()], &key![high.cast_signed()]);
        let (first, second) =
            if access.coin() { (self.rows, self.tombstones) } else { (self.tombstones, self.rows) };
        let first_seen = self.versions(access, first, &range).await?;
        let second_seen = self.versions(access, second, &range).await?;
        let (rows, tombstones) =
            if first == self.rows { (first_seen, second_seen) } else { (second_seen, first_seen) };
        access.notes.add(Op::Scan { low, high, seen: with_tombstones(rows, &tombstones) });
        Ok(())
    }

    /// Scans one group by the index. Then, if `resolve`, looks for each other register by its key:
    /// it is not in the group.
    pub(super) async fn scan_group(
        &self,
        access: &mut Access<'_, '_>,
        group: u64,
        keys: u64,
        resolve: bool,
    ) -> Result<(), TxnError> {
        let members = self.members(access, group).await?;
        for member in &members {
            access.notes.read(member.id, Some(member.version));
        }
        let seen: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
        for key in (0..keys).filter(|key| resolve && !seen.contains(key)) {
            let row = access.txn.get(self.rows, &key![key.cast_signed()]).await?;
            match row.map(Member::of).transpose()? {
                Some(member) => {
                    if member.group == group {
                        access.notes.claim(format!(
                            "key {key} = {} was not in group {group} by the index, and is by its row",
                            member.version
                        ));
                    }
                    access.notes.read(key, Some(member.version));
                }
                None => {
                    let old = self.tombstone(access, key).await?;
                    access.notes.read(key, old);
                }
            }
        }
        Ok(())
    }

    /// Scans all groups by the index, in turn, and the tombstones: all registers.
    pub(super) async fn scan_groups(
        &self,
        access: &mut Access<'_, '_>,
        keys: u64,
    ) -> Result<(), TxnError> {
        let (mut rows, first) = (Vec::new(), access.random.below(GROUPS));
        for group in (first..GROUPS).chain(0..first) {
            let members = self.members(access, group).await?;
            rows.extend(members.iter().map(|member| (member.id, member.version)));
        }
        let tombstones = self.versions(access, self.tombstones, &KeyRange::all()).await?;
        let seen = with_tombstones(rows, &tombstones);
        access.notes.add(Op::Scan { low: 0, high: keys - 1, seen });
        Ok(())
    }

    /// Reads the keys of all rows off the index, without the rows, and then each register by its
    /// key: exactly those are there.
    pub(super) async fn scan_keys(
        &self,
        access: &mut Access<'_, '_>,
        keys: u64,
    ) -> Result<(), TxnError> {
        let (mut found, direction) = (BTreeSet::new(), access.direction());
        let visit = |primary: &[u8]| {
            found.insert(primary.to_vec());
            Ok(ControlFlow::Continue(()))
        };
        access.txn.scan_keys(self.by_group, &KeyRange::all(), direction, visit).await?;
        for key in 0..keys {
            let id = key![key.cast_signed()];
            let is_there = access.txn.get(self.rows, &id).await?.is_some();
            let was_there = found.contains(&id[..]);
            if is_there != was_there {
                access.notes.claim(format!(
                    "row {key} is there: {was_there} by the index, {is_there} by its key"
                ));
            }
            self.read(access, key).await?;
        }
        Ok(())
    }

    async fn tombstone(
        &self,
        access: &mut Access<'_, '_>,
        key: u64,
    ) -> Result<Option<u64>, TxnError> {
        let row = access.txn.get(self.tombstones, &key![key.cast_signed()]).await?;
        row.map(tombstone_of).transpose()
    }

    async fn insert(
        &self,
        access: &mut Access<'_, '_>,
        key: u64,
        version: u64,
        filling: &Filling,
    ) -> Result<(), TxnError> {
        let mut row = access.txn.row(self.rows).await?;
        row.i64(key.cast_signed()).i64(filling.group).i64(version.cast_signed());
        row.text(&filling.note).default_values();
        access.txn.insert(self.rows, row.finish()?).await?;
        access.notes.add(Op::Write { key, value: version });
        Ok(())
    }

    /// The members of a group, by the index.
    async fn members(
        &self,
        access: &mut Access<'_, '_>,
        group: u64,
    ) -> Result<Vec<Member>, TxnError> {
        let range = KeyRange::prefix(&key![group.cast_signed()]);
        let members = access.rows(self.by_group, &range, Member::of).await?;
        for Member { id, group: other, .. } in members.iter().filter(|own| own.group != group) {
            access.notes.claim(format!("row {id} of group {other} is indexed in group {group}"));
        }
        Ok(members)
    }

    /// The versions in a range of rows or of tombstones, by key.
    async fn versions(
        &self,
        access: &mut Access<'_, '_>,
        table: Table,
        range: &KeyRange,
    ) -> Result<Vec<(u64, u64)>, TxnError> {
        let column = if table == self.rows { VERSION } else { TOMBSTONE };
        let of =
            |row: RowRef<'_>| Ok((row.i64(ID)?.cast_unsigned(), row.i64(column)?.cast_unsigned()));
        access.rows(table, range, of).await
    }
}

/// The version of a register that is there.
pub(super) fn version_of(row: RowRef<'_>) -> Result<u64, TxnError> {
    Ok(row.i64(VERSION)?.cast_unsigned())
}

/// The version of one that was deleted, from its tombstone.
pub(super) fn tombstone_of(row: RowRef<'_>) -> Result<u64, TxnError> {
    Ok(row.i64(TOMBSTONE)?.cast_unsigned())
}

/// What a scan has seen: the rows, and the tombstones of those that are not there.
fn with_tombstones(mut rows: Vec<(u64, u64)>, tombstones: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let there: BTreeMap<u64, u64> = rows.iter().copied().collect();
    rows.extend(tombstones.iter().filter(|(key, _)| !there.contains_key(key)));
    rows
}

/// Checks the trees at every node, and that the index has as many entries as there are rows.
pub(super) async fn check_trees(databases: &[Arc<Database>]) -> Result<(), SimError> {
    for database in databases {
        database.refresh().await?;
        let engine = database.engine();
        for table in database.tables() {
            let in_table = database.tree(table)?.verify(engine).await?.entries;
            let schema = database.schema(table)?;
            for index in &schema.indexes {
                // One that was not completed may lack entries.
                let Ok(index) = database.index(&schema.name, &index.name) else { continue };
                let in_index = database.tree(index)?.verify(engine).await?.entries;
                ensure(in_table == in_index, || {
                    format!("{}: {in_table} rows, {in_index} index entries", schema.name)
                })?;
            }
        }
    }
    Ok(())
}
