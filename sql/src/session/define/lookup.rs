//! What statements that change tables look up, and the notes of tables.

use selkie_txn::{CatalogueError, SchemaError, TableSchema, Txn, TxnError};

use super::super::run::Run;
use super::super::tables::load_tables;
use crate::bind::Binder;
use crate::catalogue::{TableDef, TableNote, load};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;

/// Binds something of a statement, with the tables that the statement names.
pub(super) async fn bound<T>(
    run: &Run,
    txn: &mut Txn<'_>,
    bind: impl FnOnce(&mut Binder<'_>) -> SqlResult<T>,
) -> SqlResult<T> {
    let parsed = &run.work.parsed;
    let tables = load_tables(txn, &parsed.statement).await;
    let tables = tables.map_err(|error| from_txn(error, None))??;
    bind(&mut Binder::new(&parsed.sql, &tables, &run.settings.format, &run.work.types))
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
            let message = format!("table \"{name}\" cannot be created: {error}");
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        }
        TxnError::Catalogue(error @ CatalogueError::FixedTables) => {
            SqlError::new(SqlState::OBJECT_NOT_READY, error.to_string())
        }
        error => from_txn(error, None),
    })
}

/// The table of a name in the catalogue, if there is one.
pub(super) async fn find(txn: &mut Txn<'_>, key: &str) -> SqlResult<Option<TableDef>> {
    load(txn, key).await.map_err(|error| from_txn(error, None))?.transpose()
}

/// The table of a name in the catalogue.
pub(super) async fn found(txn: &mut Txn<'_>, key: &str) -> SqlResult<TableDef> {
    find(txn, key).await?.ok_or_else(|| {
        let message = format!("relation \"{key}\" does not exist");
        SqlError::new(SqlState::UNDEFINED_TABLE, message)
    })
}

pub(super) fn already_exists(name: &str) -> SqlError {
    let message = format!("relation \"{name}\" already exists");
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
