//! The tables that a statement names.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{CopySource, ObjectName, Statement, visit_relations};

use crate::bind::{Tables, name_parts, parents_of};
use crate::catalogue::{TableDef, load};
use crate::error::SqlResult;
use crate::schemas::{SearchPath, Searched};

/// The definitions of the tables that a statement names. Names of which there is no table are left
/// out: they may be those of common table expressions. With views come the tables that they use.
pub(super) async fn load_tables(
    txn: &mut Txn<'_>,
    statement: &Statement,
    path: &Arc<SearchPath>,
) -> Result<SqlResult<Tables>, TxnError> {
    let mut names: Vec<ObjectName> = Vec::new();
    let _ = visit_relations(statement, |name| {
        names.push(name.clone());
        ControlFlow::<()>::Continue(())
    });
    // The parser's walk passes it by.
    if let Statement::Copy { source: CopySource::Table { table_name, .. }, .. } = statement {
        names.push(table_name.clone());
    }
    names.extend(parents_of(statement));
    load_named(txn, &names, path).await
}

/// The definitions of the tables and views of these names, and of those that the views use.
pub(super) async fn load_named(
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    path: &Arc<SearchPath>,
) -> Result<SqlResult<Tables>, TxnError> {
    let (mut defs, mut absent) = (HashMap::new(), Vec::new());
    let has_system = path.searched().iter().any(|own| matches!(own, Searched::System(_)));
    for name in names {
        let keys = match name_parts(name).and_then(|parts| path.keys_of(&parts)) {
            Ok(keys) => keys,
            Err(error) => return Ok(Err(error)),
        };
        let (mut missed, mut is_found) = (Vec::new(), false);
        for key in keys {
            match with_used(txn, &key, &mut defs).await? {
                Ok(true) => {
                    is_found = true;
                    break;
                }
                Ok(false) => missed.push(key),
                Err(error) => return Ok(Err(error)),
            }
        }
        // It may be found in a schema of the system, behind these.
        if is_found || has_system {
            absent.append(&mut missed);
        }
    }
    absent.sort_unstable();
    absent.dedup();
    Ok(Ok(Tables { defs, path: Arc::clone(path), absent }))
}

/// The definitions of a table or view, and of those that it uses.
pub(super) async fn load_key(
    txn: &mut Txn<'_>,
    key: &str,
    path: &Arc<SearchPath>,
) -> Result<SqlResult<Tables>, TxnError> {
    let mut defs = HashMap::new();
    let loaded = with_used(txn, key, &mut defs).await?;
    Ok(loaded.map(|_| Tables { defs, path: Arc::clone(path), absent: Vec::new() }))
}

/// Adds the definition of a table or view, and of those that it uses. Whether it is there.
async fn with_used(
    txn: &mut Txn<'_>,
    key: &str,
    defs: &mut HashMap<String, Arc<TableDef>>,
) -> Result<SqlResult<bool>, TxnError> {
    let mut keys = vec![key.to_owned()];
    while let Some(key) = keys.pop() {
        if defs.contains_key(&key) {
            continue;
        }
        match load(txn, &key).await? {
            None => {}
            Some(Ok(table)) => {
                keys.extend(table.view.iter().flat_map(|view| view.uses.iter().cloned()));
                defs.insert(key, Arc::new(table));
            }
            Some(Err(error)) => return Ok(Err(error)),
        }
    }
    Ok(Ok(defs.contains_key(key)))
}
