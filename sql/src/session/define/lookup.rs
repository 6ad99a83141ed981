//! What statements that change tables look up, and the notes of tables.

use selkie_txn::{CatalogueError, SchemaError, TableSchema, Txn, TxnError};
use sqlparser::ast::ObjectName;

use super::super::run::Run;
use super::super::tables::load_tables;
use crate::bind::{Binder, MAX_NAME_BYTES, check_name, is_system_schema, name_parts, no_relation};
use crate::catalogue::{SchemaId, TableDef, TableNote, load, name_of, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::roles::{KEY_PREFIX, Kind, Privileges, denied};
use crate::schemas::{Searched, refuse_reserved};

/// Binds something of a statement, with the tables that the statement names.
pub(super) async fn bound<T>(
    run: &Run,
    txn: &mut Txn<'_>,
    bind: impl FnOnce(&mut Binder<'_>) -> SqlResult<T>,
) -> SqlResult<T> {
    let parsed = &run.work.parsed;
    let tables = load_tables(txn, &parsed.statement, &run.path).await;
    let tables = tables.map_err(|error| from_txn(error, None))??;
    bind(&mut Binder::new(&parsed.sql, &tables, &run.settings.format, &run.work.types))
}

/// Creates a table or view that was not there before.
pub(super) async fn create_new(txn: &mut Txn<'_>, schema: TableSchema) -> SqlResult<()> {
    hide(txn, &schema.name).await?;
    create_table(txn, schema).await
}

/// Creates a table.
pub(super) async fn create_table(txn: &mut Txn<'_>, schema: TableSchema) -> SqlResult<()> {
    let name = schema.name.clone();
    let error = match txn.create_table(schema).await {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    Err(match error {
        TxnError::Schema(SchemaError::TableExists { .. }) => already_exists(&name),
        TxnError::Schema(_) => {
            let name = name_of(&name);
            let message = format!("table \"{name}\" cannot be created: {error}");
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        }
        TxnError::Catalogue(error @ CatalogueError::FixedTables) => {
            SqlError::new(SqlState::OBJECT_NOT_READY, error.to_string())
        }
        error => from_txn(error, None),
    })
}

/// Makes plans void that would find a table of `public` where there is to be one in another schema
/// from now on: the table there gets another definition. Others look for themselves
/// ([`path`](crate::session)).
pub(super) async fn hide(txn: &mut Txn<'_>, key: &str) -> SqlResult<()> {
    let (schema, name) = split_key(key);
    hold_schema(txn, schema).await?;
    if schema != SchemaId::PUBLIC
        && !name.starts_with(KEY_PREFIX)
        && let Some(hidden) = find(txn, name).await?
    {
        return change_note(txn, &hidden, |_| {}).await;
    }
    Ok(())
}

/// Does not let a schema be dropped by who does not see what is created there.
pub(super) async fn hold_schema(txn: &mut Txn<'_>, schema: SchemaId) -> SqlResult<()> {
    if schema == SchemaId::PUBLIC { Ok(()) } else { hold(txn).await }
}

/// Keeps schemas as they are until the transaction has committed: of two that do this, one of which
/// does not see what the other did, one fails.
pub(super) async fn hold(txn: &mut Txn<'_>) -> SqlResult<()> {
    crate::schemas::hold(txn, |error| from_txn(error, None)).await
}

/// The table of a name in the catalogue, if there is one.
pub(super) async fn find(txn: &mut Txn<'_>, key: &str) -> SqlResult<Option<TableDef>> {
    load(txn, key).await.map_err(|error| from_txn(error, None))?.transpose()
}

/// The table of a name in the catalogue.
pub(super) async fn found(txn: &mut Txn<'_>, key: &str) -> SqlResult<TableDef> {
    find(txn, key).await?.ok_or_else(|| no_relation(&[name_of(key).to_owned()]))
}

/// The names in the catalogue that a name may stand for, those first that are found first.
///
/// # Errors
/// 3F000 if its schema is not there; 42501 if the role may not use that.
pub(super) fn keys_of(run: &Run, name: &ObjectName) -> SqlResult<Vec<String>> {
    let parts = name_parts(name)?;
    if let [schema, _] = &*parts
        && !is_system_schema(schema)
    {
        run.path.id(schema)?;
        if let Some(own) = run.path.schema(schema) {
            run.authority()?.require(Privileges::USAGE, Kind::Schema, schema, &own.rights)?;
        }
    }
    run.path.keys_of(&parts)
}

/// The table or view of a name.
pub(super) async fn find_named(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
) -> SqlResult<Option<TableDef>> {
    for key in keys_of(run, name)? {
        if let Some(table) = find(txn, &key).await? {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// The table or view of a name.
pub(super) async fn found_named(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
) -> SqlResult<TableDef> {
    match find_named(run, txn, name).await? {
        Some(table) => Ok(table),
        None => Err(no_relation(&name_parts(name)?)),
    }
}

/// What something is called that is not there, without its schema.
pub(super) fn last_part(name: &ObjectName) -> SqlResult<String> {
    Ok(name_parts(name)?.pop().unwrap_or_default())
}

/// The name in the catalogue of what is to be created: in the schema that is said, or in the first
/// of the search path.
///
/// # Errors
/// 3F000 if there is no such schema; 42501 if the role may not create anything there.
pub(super) fn new_key(run: &Run, name: &ObjectName) -> SqlResult<String> {
    let parts = name_parts(name)?;
    let (schema, name) = match &*parts {
        [name] => match run.path.searched().first() {
            Some(Searched::User(id)) => (*id, name),
            Some(Searched::System(schema)) => return Err(of_the_system(schema, name)),
            None => {
                let message = "no schema has been selected to create in";
                return Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message));
            }
        },
        [schema, name] if is_system_schema(schema) => return Err(of_the_system(schema, name)),
        [schema, name] => (run.path.id(schema)?, name),
        _ => return Err(SqlError::unsupported("a name of more than two parts")),
    };
    require_create(run, schema)?;
    key_in(schema, name)
}

/// The name in the catalogue of what is to be in a schema.
pub(super) fn key_in(schema: SchemaId, name: &str) -> SqlResult<String> {
    check_name(name)?;
    // In no schema: what is there is found by its name alone where it hides a table of `public`.
    refuse_reserved(name)?;
    let key = schema.key(name);
    if key.len() > MAX_NAME_BYTES {
        let most = MAX_NAME_BYTES - (key.len() - name.len());
        let message = format!(
            "the name \"{name}\" has {} bytes (allowed in this schema: {most})",
            name.len()
        );
        return Err(SqlError::new(SqlState::NAME_TOO_LONG, message));
    }
    Ok(key)
}

fn of_the_system(schema: &str, name: &str) -> SqlError {
    denied(format!("permission denied to create \"{schema}.{name}\""))
        .detail("System catalog modifications are currently disallowed.".to_owned())
}

/// Refuses to create something in a schema for those who may not.
pub(super) fn require_create(run: &Run, schema: SchemaId) -> SqlResult<()> {
    let authority = run.authority()?;
    let name = run.path.name(schema);
    match run.path.schema(name) {
        Some(own) => authority.require(Privileges::CREATE, Kind::Schema, name, &own.rights),
        None => authority.require_create(),
    }
}

/// That there is a table, view, index or sequence of a name in the catalogue.
pub(super) fn already_exists(key: &str) -> SqlError {
    let message = format!("relation \"{}\" already exists", name_of(key));
    SqlError::new(SqlState::DUPLICATE_TABLE, message)
}

/// The schema of a table, and its note.
pub(super) async fn schema_of(
    txn: &mut Txn<'_>,
    table: &TableDef,
) -> SqlResult<(TableSchema, TableNote)> {
    let schema = txn.schema(table.table).await;
    let schema = schema.map_err(|error| from_txn(error, Some(table)))?;
    let note = TableNote::from_stored(&schema.note)?;
    Ok((schema, note))
}

/// Changes the note of a table.
pub(super) async fn change_note(
    txn: &mut Txn<'_>,
    table: &TableDef,
    change: impl FnOnce(&mut TableNote),
) -> SqlResult<()> {
    let (_, mut note) = schema_of(txn, table).await?;
    change(&mut note);
    let set = txn.set_note(table.table, &note.to_stored()?).await;
    set.map_err(|error| from_txn(error, Some(table)))
}
