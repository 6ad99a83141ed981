//! Reading and changing the schemas of a database.
//!
//! They are the note of a table of the system, whose name no statement can say. A second one has a
//! note that all write who rely on schemas staying as they are, or change them: who creates
//! something in a schema does not commit beside one who drops it. Plans do not look at that one.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_txn::{ColumnType, DefinitionId, SchemaError, Table, TableSchema, Txn, TxnError};

use super::document::Schemas;
use crate::error::{SqlError, SqlResult};

/// The name of the table of schemas in the catalogue.
const KEY: &str = "selkie_system.schemas";

/// The name of the table whose note is written to keep schemas as they are.
const HOLD_KEY: &str = "selkie_system.schemas_held";

/// The schemas that were read last. The sessions of one database may share it.
#[derive(Default)]
pub(crate) struct SchemasCache(Mutex<Option<Loaded>>);

/// The schemas, and of which definition of their table they are.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) table: Table,
    pub(crate) definition: DefinitionId,
    pub(crate) schemas: Arc<Schemas>,
}

/// The schemas in the state that a transaction sees; `None` if none was ever made.
pub(crate) async fn load(
    txn: &mut Txn<'_>,
    cache: &SchemasCache,
) -> Result<SqlResult<Option<Loaded>>, TxnError> {
    let known = cache.0.lock().clone();
    if let Some(known) = known {
        match txn.definition_id(known.table).await {
            Ok(found) if found == known.definition => return Ok(Ok(Some(known))),
            Ok(_) | Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    let Some((table, schemas)) = read(txn).await? else { return Ok(Ok(None)) };
    let schemas = match schemas {
        Ok(schemas) => Arc::new(schemas),
        Err(error) => return Ok(Err(error)),
    };
    let definition = txn.definition_id(table).await?;
    let loaded = Loaded { table, definition, schemas };
    *cache.0.lock() = Some(loaded.clone());
    Ok(Ok(Some(loaded)))
}

async fn read(txn: &mut Txn<'_>) -> Result<Option<(Table, SqlResult<Schemas>)>, TxnError> {
    let table = match txn.table(KEY).await {
        Ok(table) => table,
        Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => return Ok(None),
        Err(error) => return Err(error),
    };
    let schema = txn.schema(table).await?;
    Ok(Some((table, Schemas::from_stored(&schema.note))))
}

/// Keeps the schemas as they are until the transaction has committed, or changes them alone.
pub(crate) async fn hold(txn: &mut Txn<'_>, of_txn: fn(TxnError) -> SqlError) -> SqlResult<()> {
    match txn.table(HOLD_KEY).await {
        Ok(table) => {
            let schema = txn.schema(table).await.map_err(of_txn)?;
            txn.set_note(table, &schema.note).await.map_err(of_txn)
        }
        Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => {
            let schema =
                TableSchema::new(HOLD_KEY).column("none", ColumnType::Bool).primary_key([0]);
            txn.create_table(schema).await.map(drop).map_err(of_txn)
        }
        Err(error) => Err(of_txn(error)),
    }
}

/// Changes the schemas if there are any and `is_wanted` of them says so.
pub(crate) async fn maybe_changed(
    txn: &mut Txn<'_>,
    of_txn: fn(TxnError) -> SqlError,
    is_wanted: impl FnOnce(&Schemas) -> bool,
    make: impl FnOnce(&mut Schemas),
) -> SqlResult<()> {
    match read(txn).await.map_err(of_txn)? {
        None => Ok(()),
        Some((_, schemas)) => match is_wanted(&schemas?) {
            false => Ok(()),
            true => {
                change(txn, of_txn, |schemas| {
                    make(schemas);
                    Ok(())
                })
                .await
            }
        },
    }
}

/// Changes the schemas, as a change of the transaction.
pub(crate) async fn change<T>(
    txn: &mut Txn<'_>,
    of_txn: fn(TxnError) -> SqlError,
    change: impl FnOnce(&mut Schemas) -> SqlResult<T>,
) -> SqlResult<T> {
    let (table, mut schemas) = match read(txn).await.map_err(of_txn)? {
        Some((table, schemas)) => (Some(table), schemas?),
        None => (None, Schemas::initial()),
    };
    let changed = change(&mut schemas)?;
    hold(txn, of_txn).await?;
    let note = schemas.to_stored()?;
    match table {
        Some(table) => txn.set_note(table, &note).await.map_err(of_txn)?,
        None => {
            let schema = TableSchema::new(KEY).column("none", ColumnType::Bool).primary_key([0]);
            txn.create_table(schema.note(note)).await.map_err(of_txn)?;
        }
    }
    Ok(changed)
}
