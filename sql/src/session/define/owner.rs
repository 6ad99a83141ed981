//! Who may change which table, and who owns what is created.

use selkie_txn::{TableSchema, Txn};
use sqlparser::ast::{
    AlterTableOperation, ColumnOption, ObjectName, ObjectType, Statement, TableConstraint,
};

use super::super::run::Run;
use super::drop::find_to_drop;
use super::lookup::{find, find_named, new_key, require_create};
use super::{index, sequence};
use crate::catalogue::{TableNote, name_of, split_key};
use crate::error::SqlResult;
use crate::exec::from_txn;
use crate::roles::{BOOTSTRAP, Kind, Privileges, Rights, maybe_changed};

/// Refuses a statement whose role may not change what it names. What is not there is for the
/// statement to say.
pub(super) async fn check(run: &Run, txn: &mut Txn<'_>, statement: &Statement) -> SqlResult<()> {
    if run.authority()?.is_superuser() {
        return Ok(());
    }
    match statement {
        Statement::CreateTable(create) => {
            new_key(run, &create.name)?;
            let options = create.columns.iter().flat_map(|column| &column.options);
            let columns = options.filter_map(|own| match &own.option {
                ColumnOption::ForeignKey(key) => Some(&key.foreign_table),
                _ => None,
            });
            let named = columns.chain(create.constraints.iter().filter_map(referenced)).collect();
            require_references(run, txn, named).await
        }
        Statement::CreateView(create) => {
            let key = new_key(run, &create.name)?;
            match find(txn, &key).await? {
                Some(old) if create.or_replace => {
                    run.authority()?.require_owner(old.kind(), &old.name, &old.rights)
                }
                _ => Ok(()),
            }
        }
        Statement::AlterTable(alter) => {
            require_owner(run, txn, &alter.name).await?;
            let named = alter.operations.iter().filter_map(|own| match own {
                AlterTableOperation::AddConstraint { constraint, .. } => referenced(constraint),
                AlterTableOperation::AddColumn { column_def, .. } => {
                    column_def.options.iter().find_map(|own| match &own.option {
                        ColumnOption::ForeignKey(key) => Some(&key.foreign_table),
                        _ => None,
                    })
                }
                _ => None,
            });
            let named = named.collect();
            require_references(run, txn, named).await
        }
        Statement::CreateIndex(create) => {
            let table = find_named(run, txn, &create.table_name).await?;
            require_owner(run, txn, &create.table_name).await?;
            match table {
                Some(table) => require_create(run, split_key(&table.key).0),
                None => Ok(()),
            }
        }
        Statement::AlterView(alter) => require_owner(run, txn, &alter.name).await,
        Statement::AlterIndex { name, .. } => require_owner_of_index(run, txn, name).await,
        Statement::Drop { object_type, names, .. } => {
            for name in names {
                match object_type {
                    ObjectType::Table | ObjectType::View => require_owner(run, txn, name).await?,
                    ObjectType::Index => require_owner_of_index(run, txn, name).await?,
                    ObjectType::Sequence => require_owner_of_sequence(run, txn, name).await?,
                    _ => {}
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The table that a FOREIGN KEY refers to.
fn referenced(constraint: &TableConstraint) -> Option<&ObjectName> {
    match constraint {
        TableConstraint::ForeignKey(key) => Some(&key.foreign_table),
        _ => None,
    }
}

/// Refuses foreign keys to tables of which a role may not know which rows there are.
async fn require_references(
    run: &Run,
    txn: &mut Txn<'_>,
    tables: Vec<&ObjectName>,
) -> SqlResult<()> {
    for name in tables {
        if let Some(table) = find_named(run, txn, name).await? {
            let wanted = Privileges::REFERENCES;
            run.authority()?.require(wanted, table.kind(), &table.name, &table.rights)?;
        }
    }
    Ok(())
}

/// Refuses to change a sequence that a role does not own.
pub(super) async fn require_owner_of_sequence(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
) -> SqlResult<()> {
    let Some(key) = sequence::find_sequence(run, txn, name, true).await? else { return Ok(()) };
    let rights = rights_of_sequence(run, &key)?;
    run.authority()?.require_owner(Kind::Sequence, name_of(&key), &rights)
}

async fn require_owner(run: &Run, txn: &mut Txn<'_>, name: &ObjectName) -> SqlResult<()> {
    match find_to_drop(run, txn, name, true).await? {
        None => Ok(()),
        Some(table) => run.authority()?.require_owner(table.kind(), &table.name, &table.rights),
    }
}

async fn require_owner_of_index(run: &Run, txn: &mut Txn<'_>, name: &ObjectName) -> SqlResult<()> {
    let Some(index) = index::index_of(run, txn, name).await? else { return Ok(()) };
    if run.authority()?.owns(&index.table.rights) {
        return Ok(());
    }
    Err(crate::roles::denied(format!("must be owner of index {}", index.name)))
}

/// The rights of a sequence.
pub(super) fn rights_of_sequence(run: &Run, key: &str) -> SqlResult<Rights> {
    let roles = run.authority()?.roles();
    Ok(roles.map(|roles| roles.sequence(key)).unwrap_or_default())
}

/// Makes the role of a statement the owner of a table or view that it is to create.
pub(super) fn mark(run: &Run, schema: &mut TableSchema) -> SqlResult<()> {
    let owner = run.authority()?.oid();
    if owner != BOOTSTRAP {
        let mut note = TableNote::from_stored(&schema.note)?;
        note.rights = Rights::of(owner);
        schema.note = note.to_stored()?;
    }
    Ok(())
}

/// Notes who owns the sequences that a statement has created, and forgets those that it has
/// dropped.
pub(super) async fn keep(run: &Run, txn: &mut Txn<'_>, statement: &Statement) -> SqlResult<()> {
    let Some(roles) = run.authority()?.roles() else { return Ok(()) };
    match statement {
        Statement::CreateTable(create) => own_of_table(run, txn, &create.name).await,
        Statement::AlterTable(alter) => {
            own_of_table(run, txn, &alter.name).await?;
            forget(txn, roles.sequences.keys().cloned().collect()).await
        }
        Statement::Drop { .. } => forget(txn, roles.sequences.keys().cloned().collect()).await,
        _ => Ok(()),
    }
}

/// Makes the role of a statement the owner of a sequence that it has created.
pub(super) async fn own_sequence(run: &Run, txn: &mut Txn<'_>, key: String) -> SqlResult<()> {
    own_sequences(txn, vec![key], run.authority()?.oid()).await
}

/// The sequences of the columns of a table belong to its owner.
async fn own_of_table(run: &Run, txn: &mut Txn<'_>, name: &ObjectName) -> SqlResult<()> {
    match find_to_drop(run, txn, name, true).await? {
        None => Ok(()),
        Some(table) => own_sequences(txn, sequence::sequences_of(&table), table.rights.owner).await,
    }
}

async fn own_sequences(txn: &mut Txn<'_>, keys: Vec<String>, owner: u32) -> SqlResult<()> {
    if keys.is_empty() || owner == BOOTSTRAP {
        return Ok(());
    }
    let of_txn = |error| from_txn(error, None);
    let has_all =
        |roles: &crate::roles::Roles| keys.iter().all(|key| roles.sequences.contains_key(key));
    maybe_changed(
        txn,
        of_txn,
        |roles| !has_all(roles),
        |roles| {
            for key in keys.clone() {
                roles.sequences.entry(key).or_insert_with(|| Rights::of(owner));
            }
        },
    )
    .await
}

/// Takes the rights of sequences out that are gone.
async fn forget(txn: &mut Txn<'_>, keys: Vec<String>) -> SqlResult<()> {
    let mut gone = Vec::new();
    for key in keys {
        if !sequence::is_sequence(txn, &key).await? {
            gone.push(key);
        }
    }
    if gone.is_empty() {
        return Ok(());
    }
    let of_txn = |error| from_txn(error, None);
    maybe_changed(
        txn,
        of_txn,
        |_| true,
        |roles| {
            roles.sequences.retain(|key, _| !gone.contains(key));
        },
    )
    .await
}
