//! The tables that a statement names.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{CopySource, ObjectName, Statement, visit_relations};

use crate::bind::{parents_of, table_key};
use crate::catalogue::{TableDef, load};
use crate::error::SqlResult;

/// The definitions of the tables that a statement names, by their names in the catalogue. Names
/// of which there is no table are left out: they may be those of common table expressions. With
/// views come the tables that they use.
pub(super) async fn load_tables(
    txn: &mut Txn<'_>,
    statement: &Statement,
) -> Result<SqlResult<HashMap<String, Arc<TableDef>>>, TxnError> {
    let mut names: Vec<ObjectName> = Vec::new();
    let _ = visit_relations(statement, |name| {
        names.push(name.clone());
        ControlFlow::<()>::Continue(())
    });
    // The parser's walk passes it by.
    if let Statement::Copy { source: CopySource::Table { table_name, .. }, .. } = statement {
        names.push(table_name.clone());
    }
    let mut keys = match parents_of(statement) {
        Ok(parents) => parents,
        Err(error) => return Ok(Err(error)),
    };
    for name in &names {
        match table_key(name) {
            Ok(key) => keys.push(key),
            Err(error) => return Ok(Err(error)),
        }
    }
    load_with_used(txn, keys).await
}

/// The definitions of tables and views, and of those that the views use.
pub(super) async fn load_with_used(
    txn: &mut Txn<'_>,
    mut keys: Vec<String>,
) -> Result<SqlResult<HashMap<String, Arc<TableDef>>>, TxnError> {
    let mut tables = HashMap::new();
    while let Some(key) = keys.pop() {
        if tables.contains_key(&key) {
            continue;
        }
        match load(txn, &key).await? {
            None => {}
            Some(Ok(table)) => {
                keys.extend(table.view.iter().flat_map(|view| view.uses.iter().cloned()));
                tables.insert(key, Arc::new(table));
            }
            Some(Err(error)) => return Ok(Err(error)),
        }
    }
    Ok(Ok(tables))
}
