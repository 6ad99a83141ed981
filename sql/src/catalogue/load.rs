//! Reading what SQL knows of a table.

use std::collections::BTreeSet;

use selkie_txn::{ColumnType, SchemaError, Table, TableSchema, Txn, TxnError};

use super::comments::Comments;
use super::key::name_of;
use super::note::{TableNote, ViewNote};
use super::table_def::{ColumnDef, IndexDef, TableDef};
use crate::error::SqlResult;
use crate::roles::{KEY_PREFIX, Rights};
use crate::types::{Scalar, SqlType};

/// The table of a name in the catalogue, in the state that a transaction sees; `None` if there is
/// none.
pub(crate) async fn load(
    txn: &mut Txn<'_>,
    key: &str,
) -> Result<Option<SqlResult<TableDef>>, TxnError> {
    let table = match txn.table(key).await {
        Ok(table) => table,
        Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => return Ok(None),
        Err(error) => return Err(error),
    };
    let schema = txn.schema(table).await?;
    Ok(Some(definition(table, &schema)))
}

/// All tables with their names in the catalogue, in the state that a transaction sees.
pub(crate) async fn load_all(
    txn: &mut Txn<'_>,
) -> Result<Vec<(String, SqlResult<TableDef>)>, TxnError> {
    let mut all = Vec::new();
    for (name, table) in txn.tables().await? {
        if name.starts_with(KEY_PREFIX) {
            continue;
        }
        let schema = txn.schema(table).await?;
        all.push((schema.name.clone(), definition(table, &schema)));
    }
    Ok(all)
}

fn definition(table: Table, schema: &TableSchema) -> SqlResult<TableDef> {
    let note = TableNote::from_stored(&schema.note)?;
    let name = name_of(&schema.name);
    let columns = schema.columns.iter().map(|column| {
        let own = note.columns.get(&column.name);
        let known = own.and_then(|own| {
            Some(SqlType { modifier: own.modifier, ..SqlType::from_oid(own.oid)? })
        });
        ColumnDef {
            name: column.name.clone(),
            ty: known.unwrap_or_else(|| natural_type(column.ty)),
            nullable: column.nullable,
            default: own.and_then(|own| own.default.clone()),
            is_hidden: own.is_some_and(|own| own.hidden),
            sequence: own.and_then(|own| own.sequence.clone()),
            identity: own.and_then(|own| own.identity),
        }
    });
    let indexes = schema.indexes.iter().map(|index| IndexDef {
        name: index.name.clone(),
        columns: index.columns.clone(),
        order: index.order.clone(),
        unique: index.unique,
        is_constraint: note.unique.contains(&index.name),
    });
    if let Some(view) = note.view {
        let mut view = view_definition(table, name, view, note.rights);
        (view.key, view.comments) = (schema.name.clone(), note.comments);
        return Ok(view);
    }
    Ok(TableDef {
        table,
        key: schema.name.clone(),
        name: name.to_owned(),
        columns: columns.collect(),
        primary_key: schema.primary_key.clone(),
        primary_order: schema.primary_key_order.clone(),
        indexes: indexes.collect(),
        checks: note.checks,
        not_valid: note.not_valid,
        primary_key_name: note.primary_key_name,
        foreign_keys: note.foreign_keys,
        referenced_by: note.referenced_by,
        comments: note.comments,
        view: None,
        rights: note.rights,
    })
}

fn view_definition(table: Table, name: &str, view: ViewNote, rights: Rights) -> TableDef {
    let columns = view.columns.iter().map(|own| {
        let known = SqlType::from_oid(own.oid).unwrap_or(SqlType::TEXT);
        ColumnDef {
            name: own.name.clone(),
            ty: SqlType { modifier: own.modifier, ..known },
            nullable: true,
            default: None,
            is_hidden: false,
            sequence: None,
            identity: None,
        }
    });
    TableDef {
        table,
        key: name.to_owned(),
        name: name.to_owned(),
        columns: columns.collect(),
        primary_key: Vec::new(),
        primary_order: Vec::new(),
        indexes: Vec::new(),
        checks: Vec::new(),
        not_valid: BTreeSet::new(),
        primary_key_name: None,
        foreign_keys: Vec::new(),
        referenced_by: Vec::new(),
        comments: Comments::default(),
        view: Some(view),
        rights,
    }
}

/// The type of a column that SQL did not make.
fn natural_type(stored: ColumnType) -> SqlType {
    SqlType::new(match stored {
        ColumnType::Bool => Scalar::Bool,
        ColumnType::I16 => Scalar::Int2,
        ColumnType::I32 => Scalar::Int4,
        ColumnType::I64 => Scalar::Int8,
        ColumnType::F32 => Scalar::Float4,
        ColumnType::F64 => Scalar::Float8,
        ColumnType::Date => Scalar::Date,
        ColumnType::Time => Scalar::Time,
        ColumnType::Timestamp => Scalar::Timestamp,
        ColumnType::Interval => Scalar::Interval,
        ColumnType::Uuid => Scalar::Uuid,
        ColumnType::Decimal(_) => Scalar::Numeric,
        ColumnType::Json(_) => Scalar::Json,
        ColumnType::Bytes(_) => Scalar::Bytea,
        // There is no other at present.
        _ => Scalar::Text,
    })
}
