//! Reading and changing the roles of a database.
//!
//! They are the note of a table of the system, whose name no statement can say.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use selkie_txn::{ColumnType, DefinitionId, SchemaError, Table, TableSchema, Txn, TxnError};

use super::document::Roles;
use super::verifier::fill_random;
use crate::error::{SqlError, SqlResult};

/// How the names of tables of the system begin, in the catalogue.
pub(crate) const KEY_PREFIX: &str = "selkie_system.";
/// The name of the table of roles in the catalogue.
const KEY: &str = "selkie_system.roles";

/// The roles that were read last, and of which definition of their table they are. The sessions of
/// one database may share it.
#[derive(Default)]
pub(crate) struct RolesCache(Mutex<Option<Known>>);

#[derive(Clone)]
struct Known {
    table: Table,
    definition: DefinitionId,
    roles: Arc<Roles>,
}

/// The roles in the state that a transaction sees; `None` if none was ever made.
pub(crate) async fn load(
    txn: &mut Txn<'_>,
    cache: &RolesCache,
) -> Result<SqlResult<Option<Arc<Roles>>>, TxnError> {
    let known = cache.0.lock().clone();
    if let Some(known) = known {
        match txn.definition_id(known.table).await {
            Ok(found) if found == known.definition => return Ok(Ok(Some(known.roles))),
            Ok(_) | Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    let Some((table, roles)) = read(txn).await? else { return Ok(Ok(None)) };
    let roles = match roles {
        Ok(roles) => Arc::new(roles),
        Err(error) => return Ok(Err(error)),
    };
    let definition = txn.definition_id(table).await?;
    *cache.0.lock() = Some(Known { table, definition, roles: Arc::clone(&roles) });
    Ok(Ok(Some(roles)))
}

/// The same without a cache.
pub(crate) async fn load_fresh(txn: &mut Txn<'_>) -> Result<SqlResult<Option<Roles>>, TxnError> {
    Ok(read(txn).await?.map(|(_, roles)| roles).transpose())
}

async fn read(txn: &mut Txn<'_>) -> Result<Option<(Table, SqlResult<Roles>)>, TxnError> {
    let table = match txn.table(KEY).await {
        Ok(table) => table,
        Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => return Ok(None),
        Err(error) => return Err(error),
    };
    let schema = txn.schema(table).await?;
    Ok(Some((table, Roles::from_stored(&schema.note))))
}

/// Changes the roles, as a change of the transaction.
pub(crate) async fn change<T>(
    txn: &mut Txn<'_>,
    of_txn: fn(TxnError) -> SqlError,
    change: impl FnOnce(&mut Roles) -> SqlResult<T>,
) -> SqlResult<T> {
    let found = read(txn).await.map_err(of_txn)?;
    let (table, mut roles) = match found {
        Some((table, roles)) => (Some(table), roles?),
        None => (None, Roles::initial(new_secret()?)),
    };
    let changed = change(&mut roles)?;
    roles.enforce_if_possible();
    let note = roles.to_stored()?;
    match table {
        Some(table) => txn.set_note(table, &note).await.map_err(of_txn)?,
        None => {
            let schema = TableSchema::new(KEY).column("none", ColumnType::Bool).primary_key([0]);
            txn.create_table(schema.note(note)).await.map_err(of_txn)?;
        }
    }
    Ok(changed)
}

/// Changes the roles if there are any and `is_wanted` of them says so.
pub(crate) async fn maybe_changed(
    txn: &mut Txn<'_>,
    of_txn: fn(TxnError) -> SqlError,
    is_wanted: impl FnOnce(&Roles) -> bool,
    make: impl FnOnce(&mut Roles),
) -> SqlResult<()> {
    match load_fresh(txn).await.map_err(of_txn)?? {
        Some(roles) if is_wanted(&roles) => {
            change(txn, of_txn, |roles| {
                make(roles);
                Ok(())
            })
            .await
        }
        _ => Ok(()),
    }
}

fn new_secret() -> SqlResult<String> {
    let mut bytes = [0; 32];
    fill_random(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}
