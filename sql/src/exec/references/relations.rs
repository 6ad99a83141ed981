//! Definitions of tables that constraints refer to.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use selkie_txn::{DefinitionId, Table};

use super::super::context::ExecContext;
use super::super::txn_error::from_txn;
use crate::catalogue::{TableDef, load};
use crate::error::{SqlError, SqlResult};

/// Most definitions that are kept.
const MOST: usize = 512;

type Known = HashMap<String, (Table, DefinitionId, Arc<TableDef>), RandomState>;

/// Definitions by the names of their tables in the catalogue. One is used as long as the table is
/// defined as it was when it was read. Sessions of one database may share it.
#[derive(Debug, Default)]
pub(crate) struct RelationCache(Mutex<Known>);

/// The definition of a table that a constraint names.
pub(super) async fn relation(
    context: &mut ExecContext<'_, '_>,
    key: &str,
) -> SqlResult<Arc<TableDef>> {
    let failed = |error| from_txn(error, None);
    let table = context.txn.table(key).await.map_err(failed)?;
    let definition = context.txn.definition_id(table).await.map_err(failed)?;
    let known = context.relations.0.lock().get(key).cloned();
    if let Some((known_table, known_definition, def)) = known
        && (known_table, known_definition) == (table, definition)
    {
        return Ok(def);
    }
    let loaded = load(context.txn, key).await.map_err(failed)?;
    let missing = || SqlError::internal(format!("a constraint names the table {key}"));
    let def = Arc::new(loaded.ok_or_else(missing)??);
    let mut all = context.relations.0.lock();
    if all.len() >= MOST {
        all.clear();
    }
    all.insert(key.to_owned(), (table, definition, Arc::clone(&def)));
    Ok(def)
}
