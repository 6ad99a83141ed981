//! Statements that change tables.

use std::sync::Arc;

use selkie_txn::{CatalogueError, NewIndex, SchemaError, Txn, TxnError};
use sqlparser::ast::{self, ObjectType, Statement};

use super::{Ran, Work};
use crate::bind::{
    Binder, bind_create_table, check_name, index_column, name_parts, refuse, table_key,
};
use crate::catalogue::{TableDef, load};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::FormatSettings;

/// Changes of tables that were bound.
enum Change {
    Create(selkie_txn::TableSchema, bool),
    Drop { keys: Vec<String>, if_exists: bool },
    Truncate(Vec<String>),
    CreateIndex { key: String, name: String, index: NewIndex, if_not_exists: bool },
}

/// Does a statement that changes tables.
pub(super) async fn define(
    txn: &mut Txn<'_>,
    work: &Work,
    format: &FormatSettings,
) -> Result<SqlResult<Ran>, TxnError> {
    let parsed = &work.parsed;
    let tables = match super::tables::load_tables(txn, &parsed.statement).await? {
        Ok(tables) => tables,
        Err(error) => return Ok(Err(error)),
    };
    let mut binder = Binder::new(&parsed.sql, &tables, format, &work.types);
    let change = match bind(&mut binder, &parsed.statement) {
        Ok(change) => change,
        Err(error) => return Ok(Err(error)),
    };
    let done: SqlResult<&str> = match change {
        Change::Create(schema, if_not_exists) => {
            let name = schema.name.clone();
            match txn.create_table(schema).await {
                Ok(_) => Ok("CREATE TABLE"),
                Err(TxnError::Schema(SchemaError::TableExists { .. })) if if_not_exists => {
                    Ok("CREATE TABLE")
                }
                Err(TxnError::Schema(SchemaError::TableExists { .. })) => {
                    let message = format!("relation \"{name}\" already exists");
                    Err(SqlError::new(SqlState::DUPLICATE_TABLE, message))
                }
                Err(error @ TxnError::Schema(_)) => {
                    let message = format!("table \"{name}\" cannot be created: {error}");
                    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
                }
                Err(TxnError::Catalogue(error @ CatalogueError::FixedTables)) => {
                    Err(SqlError::new(SqlState::OBJECT_NOT_READY, error.to_string()))
                }
                Err(error) => return Err(error),
            }
        }
        Change::Drop { keys, if_exists } => {
            for key in keys {
                match found(txn, &key).await? {
                    Ok(table) => txn.drop_table(table.table).await?,
                    Err(_) if if_exists => {}
                    Err(_) => {
                        let message = format!("table \"{key}\" does not exist");
                        return Ok(Err(SqlError::new(SqlState::UNDEFINED_TABLE, message)));
                    }
                }
            }
            Ok("DROP TABLE")
        }
        Change::Truncate(keys) => {
            for key in keys {
                match found(txn, &key).await? {
                    Ok(table) => txn.truncate(table.table).await?,
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok("TRUNCATE TABLE")
        }
        Change::CreateIndex { key, name, index, if_not_exists } => {
            let table = match found(txn, &key).await? {
                Ok(table) => table,
                Err(error) => return Ok(Err(error)),
            };
            if !table.indexes.iter().any(|own| own.name == name) {
                return Ok(Ok(Ran::BuildIndex { table: Arc::new(table), index }));
            }
            if if_not_exists {
                Ok("CREATE INDEX")
            } else {
                let message = format!("relation \"{name}\" already exists");
                Err(SqlError::new(SqlState::DUPLICATE_TABLE, message))
            }
        }
    };
    Ok(done.map(|tag| Ran::Done(tag.to_owned())))
}

/// Whether a statement changes tables.
pub(super) fn is_definition(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateTable(_)
            | Statement::Drop { .. }
            | Statement::Truncate(_)
            | Statement::CreateIndex(_)
    )
}

async fn found(txn: &mut Txn<'_>, key: &str) -> Result<SqlResult<TableDef>, TxnError> {
    let missing = || {
        let message = format!("relation \"{key}\" does not exist");
        Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
    };
    Ok(load(txn, key).await?.unwrap_or_else(missing))
}

fn bind(binder: &mut Binder<'_>, statement: &Statement) -> SqlResult<Change> {
    Ok(match statement {
        Statement::CreateTable(create) => {
            Change::Create(bind_create_table(binder, create)?, create.if_not_exists)
        }
        Statement::Drop {
            object_type: ObjectType::Table,
            if_exists,
            names,
            cascade: _,
            restrict: _,
            purge,
            temporary,
            table,
        } => {
            refuse(*purge || *temporary || table.is_some(), "this form of DROP")?;
            let keys = names.iter().map(table_key).collect::<SqlResult<_>>()?;
            Change::Drop { keys, if_exists: *if_exists }
        }
        Statement::Truncate(truncate) => {
            let ast::Truncate {
                table_names,
                partitions,
                table: _,
                if_exists,
                identity,
                cascade,
                on_cluster,
            } = truncate;
            let is_odd = partitions.is_some() || *if_exists || on_cluster.is_some();
            refuse(is_odd || identity.is_some() || cascade.is_some(), "this form of TRUNCATE")?;
            let keys = table_names.iter().map(|own| table_key(&own.name));
            Change::Truncate(keys.collect::<SqlResult<_>>()?)
        }
        Statement::CreateIndex(create) => bind_index(binder, create)?,
        other => return Err(SqlError::unsupported(other)),
    })
}

fn bind_index(binder: &Binder<'_>, create: &ast::CreateIndex) -> SqlResult<Change> {
    let ast::CreateIndex {
        name,
        table_name,
        using,
        columns,
        unique,
        concurrently: _,
        r#async,
        if_not_exists,
        include,
        nulls_distinct,
        with,
        predicate,
        index_options,
        alter_options,
    } = create;
    let is_odd = *r#async
        || !include.is_empty()
        || !with.is_empty()
        || !index_options.is_empty()
        || !alter_options.is_empty();
    refuse(is_odd, "this form of CREATE INDEX")?;
    refuse(predicate.is_some(), "an index over some rows")?;
    let is_tree = matches!(using, None | Some(ast::IndexType::BTree));
    refuse(!is_tree, "an index that is no btree")?;
    let key = table_key(table_name)?;
    let table = binder.table(table_name)?;
    let (mut order, mut names) = (Vec::new(), Vec::new());
    for column in columns {
        let (name, direction) = index_column(column)?;
        let missing = || {
            let message = format!("column \"{name}\" does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        };
        table.column(&name).ok_or_else(missing)?;
        order.push(direction);
        names.push(name);
    }
    let name = match name {
        Some(name) => name_parts(name)?.pop().unwrap_or_default(),
        None => format!("{}_{}_idx", table.name, names.join("_")),
    };
    check_name(&name)?;
    let mut index = NewIndex::new(&name, names).order(order);
    if *unique {
        index = index.unique();
    }
    if *unique && *nulls_distinct != Some(false) {
        index = index.nulls_distinct();
    }
    Ok(Change::CreateIndex { key, name, index, if_not_exists: *if_not_exists })
}
