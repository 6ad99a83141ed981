//! FOREIGN KEY constraints of tables that are changed: the constraint stands in the note of the
//! child, and a back reference in that of the parent.

use std::collections::BTreeSet;

use selkie_txn::Txn;

use super::super::run::Run;
use super::alter::Alteration;
use super::lookup::{change_note, find, found};
use super::rebuild::record_rows;
use super::skip;
use crate::catalogue::{ForeignKey, Reference, TableDef, name_of};
use crate::error::{SqlError, SqlResult, SqlState};

const HINT: &str = "Use DROP ... CASCADE to drop the dependent objects too.";

/// Tells parents of the constraints of a child.
pub(super) async fn refer(
    txn: &mut Txn<'_>,
    child: &str,
    constraints: &[ForeignKey],
) -> SqlResult<()> {
    for own in constraints {
        let parent = found(txn, &own.parent).await?;
        let reference = Reference { child: child.to_owned(), name: own.name.clone() };
        change_note(txn, &parent, |note| note.referenced_by.push(reference)).await?;
    }
    Ok(())
}

/// Has parents forget constraints of a child. A parent that is gone is none.
async fn unrefer(txn: &mut Txn<'_>, child: &str, constraints: &[ForeignKey]) -> SqlResult<()> {
    for own in constraints {
        let Some(parent) = find(txn, &own.parent).await? else { continue };
        change_note(txn, &parent, |note| {
            note.referenced_by.retain(|other| other.child != child || other.name != own.name);
        })
        .await?;
    }
    Ok(())
}

/// Drops constraints of a child, by name.
pub(super) async fn drop_constraints(
    txn: &mut Txn<'_>,
    child: &str,
    names: &[String],
) -> SqlResult<()> {
    let Some(table) = find(txn, child).await? else { return Ok(()) };
    let is_one = |own: &ForeignKey| names.contains(&own.name);
    let dropped: Vec<ForeignKey> =
        table.foreign_keys.iter().filter(|own| is_one(own)).cloned().collect();
    change_note(txn, &table, |note| {
        note.foreign_keys.retain(|own| !is_one(own));
        names.iter().for_each(|name| note.comments.drop_constraint(name));
        note.not_valid.retain(|own| !names.contains(own));
    })
    .await?;
    unrefer(txn, child, &dropped).await
}

/// A table is to be dropped, with those of `others`: no other may refer to it, unless `cascade`
/// drops the constraints. What that has taken along.
pub(super) async fn leave(
    run: &Run,
    txn: &mut Txn<'_>,
    table: &TableDef,
    others: &BTreeSet<String>,
    cascade: bool,
) -> SqlResult<Vec<String>> {
    let is_left = |own: &&Reference| own.child != table.key && !others.contains(&own.child);
    let left: Vec<&Reference> = table.referenced_by.iter().filter(is_left).collect();
    if !left.is_empty() && !cascade {
        let own = run.path.shown(&table.key);
        let message = format!("cannot drop table {own} because other objects depend on it");
        let line = |Reference { child, name }: &Reference| {
            let child = run.path.shown(child);
            format!("constraint {name} on table {child} depends on table {own}")
        };
        let lines: Vec<String> = left.into_iter().map(line).collect();
        return Err(dependent(message, lines.join("\n")));
    }
    let mut taken = Vec::new();
    for Reference { child, name } in left {
        drop_constraints(txn, child, std::slice::from_ref(name)).await?;
        taken.push(format!("constraint {name} on table {}", run.path.shown(child)));
    }
    let own = |own: &&ForeignKey| own.parent != table.key;
    let constraints: Vec<ForeignKey> = table.foreign_keys.iter().filter(own).cloned().collect();
    unrefer(txn, &table.key, &constraints).await?;
    Ok(taken)
}

fn dependent(message: String, detail: String) -> SqlError {
    SqlError::new(SqlState::DEPENDENT_OBJECTS, message).detail(detail).hint(HINT)
}

/// A key of a table is to be dropped, which is called `what`: constraints that rest on it are
/// dropped if `cascade` says so.
pub(super) async fn leave_key(
    run: &Run,
    txn: &mut Txn<'_>,
    table: &TableDef,
    index: Option<usize>,
    what: &str,
    cascade: bool,
) -> SqlResult<()> {
    let name = match index.and_then(|at| table.indexes.get(at)) {
        Some(index) => index.name.clone(),
        None => table.primary_key_name(),
    };
    let mut taken = Vec::new();
    for (Reference { child, name: constraint }, columns) in referring(txn, table).await? {
        if table.positions(&columns).and_then(|own| table.unique_key(&own)) != Some(index) {
            continue;
        }
        if !cascade {
            let message = format!("cannot drop {what} because other objects depend on it");
            let child = run.path.shown(&child);
            let detail =
                format!("constraint {constraint} on table {child} depends on index {name}");
            return Err(dependent(message, detail));
        }
        let shown = run.path.shown(&child);
        taken.push(format!("constraint {constraint} on table {shown}"));
        drop_constraints(txn, &child, &[constraint]).await?;
    }
    skip::cascaded(run, &taken);
    Ok(())
}

/// The constraints that refer to a table, with the columns that they refer to.
async fn referring(
    txn: &mut Txn<'_>,
    table: &TableDef,
) -> SqlResult<Vec<(Reference, Vec<String>)>> {
    let mut all = Vec::new();
    for reference in &table.referenced_by {
        let child = found(txn, &reference.child).await?;
        let own = child.foreign_keys.into_iter().find(|own| own.name == reference.name);
        all.extend(own.map(|own| (reference.clone(), own.parent_columns)));
    }
    Ok(all)
}

/// All tables that have to be emptied with these.
pub(super) async fn with_children(
    txn: &mut Txn<'_>,
    tables: Vec<TableDef>,
    cascade: bool,
) -> SqlResult<Vec<TableDef>> {
    let mut keys: BTreeSet<String> = tables.iter().map(|own| own.key.clone()).collect();
    let (mut tables, mut at) = (tables, 0);
    while let Some(table) = tables.get(at).cloned() {
        at += 1;
        for Reference { child, .. } in table.referenced_by {
            if keys.contains(&child) {
                continue;
            }
            if !cascade {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                let child = name_of(&child);
                let detail = format!("Table \"{child}\" references \"{}\".", table.name);
                let hint = format!(
                    "Truncate table \"{child}\" at the same time, or use TRUNCATE ... CASCADE."
                );
                let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                return Err(error.detail(detail).hint(hint));
            }
            tables.push(found(txn, &child).await?);
            keys.insert(child);
        }
    }
    Ok(tables)
}

/// The constraints that refer to a table: its children by name in the catalogue, and their names.
pub(super) fn children_of(table: &TableDef) -> Vec<(String, String)> {
    let all = table.referenced_by.iter();
    all.map(|own| (own.child.clone(), own.name.clone())).collect()
}

impl Alteration<'_, '_> {
    /// Adds constraints, which the rows that are there have to fulfil unless `is_valid` says that
    /// they need not.
    pub(super) async fn add_foreign_keys(
        &mut self,
        added: Vec<ForeignKey>,
        is_valid: bool,
    ) -> SqlResult<()> {
        if added.is_empty() {
            return Ok(());
        }
        let new = added.clone();
        change_note(self.txn, &self.table, |note| {
            if !is_valid {
                note.not_valid.extend(new.iter().map(|own| own.name.clone()));
            }
            note.foreign_keys.extend(new);
        })
        .await?;
        refer(self.txn, &self.key, &added).await?;
        if !is_valid {
            return Ok(());
        }
        record_rows(self.txn, &self.table).await?;
        self.table = found(self.txn, &self.key).await?;
        let first = self.table.foreign_keys.len() - added.len();
        for at in first..self.table.foreign_keys.len() {
            let run: &Run = self.run;
            run.check_references(self.txn, &self.table, at).await?;
        }
        Ok(())
    }

    /// A column is to be dropped: constraints that it is in go with it, and those that refer to it
    /// if `cascade` says so.
    pub(super) async fn leave_column(&mut self, column: &str, cascade: bool) -> SqlResult<()> {
        for (Reference { child, name }, columns) in referring(self.txn, &self.table).await? {
            let is_own = child == self.key
                && self
                    .table
                    .foreign_keys
                    .iter()
                    .any(|own| own.name == name && own.columns.iter().any(|own| own == column));
            if is_own || !columns.iter().any(|own| own == column) {
                continue;
            }
            if !cascade {
                let table = self.run.path.shown(&self.key);
                let child = self.run.path.shown(&child);
                let message = format!(
                    "cannot drop column {column} of table {table} because other objects depend on it"
                );
                let detail = format!(
                    "constraint {name} on table {child} depends on column {column} of table {table}"
                );
                return Err(dependent(message, detail));
            }
            drop_constraints(self.txn, &child, &[name]).await?;
        }
        let own = self
            .table
            .foreign_keys
            .iter()
            .filter(|own| own.columns.iter().any(|own| own == column));
        let names: Vec<String> = own.map(|own| own.name.clone()).collect();
        if !names.is_empty() {
            drop_constraints(self.txn, &self.key, &names).await?;
        }
        self.table = found(self.txn, &self.key).await?;
        Ok(())
    }

    /// A column has another name.
    pub(super) async fn rename_in_references(&mut self, old: &str, new: &str) -> SqlResult<()> {
        let rename = |names: &mut Vec<String>| {
            names.iter_mut().filter(|own| *own == old).for_each(|own| new.clone_into(own));
        };
        if !self.table.foreign_keys.is_empty() {
            change_note(self.txn, &self.table, |note| {
                note.foreign_keys.iter_mut().for_each(|own| {
                    rename(&mut own.columns);
                    rename(&mut own.set_columns);
                });
            })
            .await?;
        }
        let key = self.key.clone();
        for child in self.children() {
            let child = found(self.txn, &child).await?;
            change_note(self.txn, &child, |note| {
                let own = note.foreign_keys.iter_mut().filter(|own| own.parent == key);
                own.for_each(|own| rename(&mut own.parent_columns));
            })
            .await?;
        }
        Ok(())
    }

    /// The table is to have another name.
    pub(super) async fn rename_table_in_references(&mut self, new: &str) -> SqlResult<()> {
        let key = self.key.clone();
        for child in self.children() {
            let child = found(self.txn, &child).await?;
            change_note(self.txn, &child, |note| {
                let own = note.foreign_keys.iter_mut().filter(|own| own.parent == key);
                own.for_each(|own| new.clone_into(&mut own.parent));
            })
            .await?;
        }
        let parents: BTreeSet<&str> =
            self.table.foreign_keys.iter().map(|own| &*own.parent).collect();
        for parent in parents {
            let parent = found(self.txn, parent).await?;
            change_note(self.txn, &parent, |note| {
                let own = note.referenced_by.iter_mut().filter(|own| own.child == key);
                own.for_each(|own| new.clone_into(&mut own.child));
            })
            .await?;
        }
        Ok(())
    }

    /// Gives a constraint another name.
    pub(super) async fn rename_foreign_key(&mut self, old: &str, new: &str) -> SqlResult<()> {
        let own = self.table.foreign_keys.iter().find(|own| own.name == old);
        let Some(parent) = own.map(|own| own.parent.clone()) else { return Ok(()) };
        change_note(self.txn, &self.table, |note| {
            let own = note.foreign_keys.iter_mut().filter(|own| own.name == old);
            own.for_each(|own| new.clone_into(&mut own.name));
            note.comments.rename_constraint(old, new);
            if note.not_valid.remove(old) {
                note.not_valid.insert(new.to_owned());
            }
        })
        .await?;
        let (parent, key) = (found(self.txn, &parent).await?, self.key.clone());
        change_note(self.txn, &parent, |note| {
            let own = note.referenced_by.iter_mut().filter(|own| own.child == key);
            own.filter(|own| own.name == old).for_each(|own| new.clone_into(&mut own.name));
        })
        .await
    }

    fn children(&self) -> BTreeSet<String> {
        self.table.referenced_by.iter().map(|own| own.child.clone()).collect()
    }
}
