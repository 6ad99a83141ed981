//! Names of relations. Tables, views, sequences and indexes, also those of keys, have one set of
//! names in each schema, as in PostgreSQL.

use std::collections::BTreeSet;

use selkie_txn::{Table, TableSchema, Txn, TxnError};
use sqlparser::ast::{ColumnDef, ColumnOption, CreateTable, TableConstraint};

use super::lookup::{already_exists, find};
use super::sequence::is_sequence;
use crate::bind::{Added, fold};
use crate::catalogue::{TableNote, load, name_of, split_key};
use crate::error::{SqlError, SqlResult};
use crate::exec::from_txn;
use crate::roles::KEY_PREFIX;

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

/// Whether a name in the catalogue is that of a table, a view, a sequence or an index.
pub(super) async fn is_relation(txn: &mut Txn<'_>, key: &str) -> SqlResult<bool> {
    Ok(find(txn, key).await?.is_some()
        || is_sequence(txn, key).await?
        || is_index(txn, key, None).await?)
}

/// Whether a name in the catalogue is that of an index or a primary key. One that is being built
/// for the table `own` is none: who builds it anew goes on with it.
pub(super) async fn is_index(txn: &mut Txn<'_>, key: &str, own: Option<Table>) -> SqlResult<bool> {
    let (wanted, name) = split_key(key);
    for (other, table) in txn.tables().await.map_err(of_txn)? {
        if other.starts_with(KEY_PREFIX) || split_key(&other).0 != wanted {
            continue;
        }
        let schema = txn.schema(table).await.map_err(of_txn)?;
        if schema.indexes.iter().any(|index| index.name == name) {
            return Ok(true);
        }
        if may_name_key(&schema, name) && is_primary_key(txn, &other, name).await? {
            return Ok(true);
        }
        let begun = match own == Some(table) {
            true => Vec::new(),
            false => txn.incomplete_indexes(table).await.map_err(of_txn)?,
        };
        if begun.iter().any(|index| index == name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the primary key of a table may have a name. Most tables are told by this alone, without
/// their notes being read.
fn may_name_key(schema: &TableSchema, name: &str) -> bool {
    let by_default = name.strip_suffix("_pkey").is_some_and(|table| table == name_of(&schema.name));
    let stored = serde_json::to_string(name).unwrap_or_default();
    by_default || schema.note.contains(&stored)
}

async fn is_primary_key(txn: &mut Txn<'_>, table: &str, name: &str) -> SqlResult<bool> {
    let Some(table) = load(txn, table).await.map_err(of_txn)?.transpose()? else {
        return Ok(false);
    };
    Ok(table.view.is_none() && !table.has_hidden_key() && table.primary_key_name() == name)
}

/// The name of a relation that is to be in the schema of a table, with a number behind it if it is
/// taken. Those of `taken` are, too.
async fn free(
    txn: &mut Txn<'_>,
    table: &str,
    base: &str,
    taken: &BTreeSet<String>,
) -> SqlResult<String> {
    let (schema, _) = split_key(table);
    let (mut name, mut number) = (base.to_owned(), 0_u64);
    while taken.contains(&name) || is_relation(txn, &schema.key(&name)).await? {
        number += 1;
        name = format!("{base}{number}");
    }
    Ok(name)
}

/// What an index of a table is called: as it is said, or by its columns.
///
/// # Errors
/// 42P07 if there is a relation of the name that is said.
pub(super) async fn of_index(
    txn: &mut Txn<'_>,
    (key, table): (&str, Table),
    said: Option<&str>,
    base: &str,
) -> SqlResult<String> {
    let Some(name) = said else { return free(txn, key, base, &BTreeSet::new()).await };
    let own = split_key(key).0.key(name);
    let is_there = find(txn, &own).await?.is_some() || is_sequence(txn, &own).await?;
    if is_there || is_index(txn, &own, Some(table)).await? {
        return Err(already_exists(&own));
    }
    Ok(name.to_owned())
}

/// Gives the keys of a table that is to be created names that no other relation has.
///
/// # Errors
/// 42P07 if one has a name that a statement says.
pub(super) async fn of_new_table(
    txn: &mut Txn<'_>,
    schema: &mut TableSchema,
    create: &CreateTable,
) -> SqlResult<()> {
    let mut note = TableNote::from_stored(&schema.note)?;
    let said = said_by(&create.columns, &create.constraints);
    let mut taken = BTreeSet::from([name_of(&schema.name).to_owned()]);
    let has_key = !note.columns.values().any(|own| own.hidden);
    if has_key {
        let by_default = || format!("{}_pkey", name_of(&schema.name));
        let name = note.primary_key_name.clone().unwrap_or_else(by_default);
        let settled = settle(txn, &schema.name, &name, &said, &taken).await?;
        if settled != name {
            note.primary_key_name = Some(settled.clone());
        }
        taken.insert(settled);
    }
    for index in &mut schema.indexes {
        let settled = settle(txn, &schema.name, &index.name, &said, &taken).await?;
        if note.unique.remove(&index.name) {
            note.unique.insert(settled.clone());
        }
        taken.insert(settled.clone());
        index.name = settled;
    }
    schema.note = note.to_stored()?;
    Ok(())
}

/// Gives the keys that are added to a table names that no other relation has.
///
/// # Errors
/// As [`of_new_table`].
pub(super) async fn of_added(
    txn: &mut Txn<'_>,
    table: &str,
    added: &mut Added,
    said: &BTreeSet<String>,
) -> SqlResult<()> {
    let mut taken = BTreeSet::new();
    if let Some(key) = &mut added.primary_key {
        let by_default = || format!("{}_pkey", name_of(table));
        let name = key.name.clone().unwrap_or_else(by_default);
        let settled = settle(txn, table, &name, said, &taken).await?;
        if settled != name {
            key.name = Some(settled.clone());
        }
        taken.insert(settled);
    }
    for index in &mut added.unique {
        index.name = settle(txn, table, &index.name, said, &taken).await?;
        taken.insert(index.name.clone());
    }
    Ok(())
}

async fn settle(
    txn: &mut Txn<'_>,
    table: &str,
    name: &str,
    said: &BTreeSet<String>,
    taken: &BTreeSet<String>,
) -> SqlResult<String> {
    if !said.contains(name) {
        return free(txn, table, name, taken).await;
    }
    let key = split_key(table).0.key(name);
    if taken.contains(name) || is_relation(txn, &key).await? {
        return Err(already_exists(&key));
    }
    Ok(name.to_owned())
}

/// The names that a statement gives keys.
pub(super) fn said_by(columns: &[ColumnDef], constraints: &[TableConstraint]) -> BTreeSet<String> {
    let of_columns = columns.iter().flat_map(|own| &own.options).filter_map(|own| {
        let is_key = matches!(own.option, ColumnOption::PrimaryKey(_) | ColumnOption::Unique(_));
        own.name.as_ref().filter(|_| is_key)
    });
    let of_table = constraints.iter().filter_map(|own| match own {
        TableConstraint::PrimaryKey(own) => own.name.as_ref(),
        TableConstraint::Unique(own) => own.name.as_ref(),
        _ => None,
    });
    of_columns.chain(of_table).map(fold).collect()
}
