//! CREATE and DROP SEQUENCE, and the sequences of columns.

use selkie_txn::{SequenceError, SequenceSchema, TableSchema, Txn, TxnError};
use sqlparser::ast::{Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArguments};
use sqlparser::ast::{ObjectName, SequenceOptions, Value, visit_expressions};

use super::lookup::{already_exists, find};
use crate::bind::{NewSequence, check_name, default_expr, sequence_schema, table_key};
use crate::catalogue::{TableDef, TableNote, load_all};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{from_txn, sequence_key};

/// Creates a sequence. Whether it was not there before.
pub(super) async fn create_sequence(
    txn: &mut Txn<'_>,
    name: &ObjectName,
    options: &[SequenceOptions],
    if_not_exists: bool,
) -> SqlResult<bool> {
    let key = table_key(name)?;
    check_name(key.rsplit('.').next().unwrap_or(&key))?;
    let schema = sequence_schema(&key, None, options)?;
    if is_taken(txn, &key).await? {
        return if if_not_exists { Ok(false) } else { Err(already_exists(&key)) };
    }
    create(txn, schema).await.map(|()| true)
}

async fn create(txn: &mut Txn<'_>, schema: SequenceSchema) -> SqlResult<()> {
    let name = schema.name.clone();
    txn.create_sequence(schema).await.map_err(|error| match error {
        TxnError::Sequence(SequenceError::Exists { .. }) => already_exists(&name),
        error => from_txn(error, None),
    })
}

/// Whether there is a sequence of that name.
pub(super) async fn is_sequence(txn: &mut Txn<'_>, key: &str) -> SqlResult<bool> {
    match txn.sequence(key).await {
        Ok(_) => Ok(true),
        Err(TxnError::Sequence(SequenceError::NoSuchSequence { .. })) => Ok(false),
        Err(error) => Err(from_txn(error, None)),
    }
}

async fn is_taken(txn: &mut Txn<'_>, key: &str) -> SqlResult<bool> {
    Ok(find(txn, key).await?.is_some() || is_sequence(txn, key).await?)
}

/// Creates the sequence of a column, which has its values by default. Its name, and the default.
pub(super) async fn create_for_column(
    txn: &mut Txn<'_>,
    table: &str,
    new: NewSequence,
) -> SqlResult<(String, String)> {
    let base = format!("{table}_{}_seq", new.column);
    let mut name = base.clone();
    let mut number = 0;
    while is_taken(txn, &name).await? {
        number += 1;
        name = format!("{base}{number}");
    }
    create(txn, SequenceSchema { name: name.clone(), ..new.schema }).await?;
    let default = format!("nextval('{}')", written(&name).replace('\'', "''"));
    Ok((name, default))
}

/// Creates the sequences of a table that is to be created.
pub(super) async fn create_for_table(
    txn: &mut Txn<'_>,
    schema: &mut TableSchema,
    sequences: Vec<NewSequence>,
) -> SqlResult<()> {
    if sequences.is_empty() {
        return Ok(());
    }
    let mut note = TableNote::from_stored(&schema.note)?;
    for new in sequences {
        let column = new.column.clone();
        let (name, default) = create_for_column(txn, &schema.name, new).await?;
        if let Some(own) = note.columns.get_mut(&column) {
            (own.sequence, own.default) = (Some(name), Some(default));
        }
    }
    schema.note = note.to_stored()?;
    Ok(())
}

/// A name in the catalogue as SQL writes it.
pub(super) fn written(key: &str) -> String {
    let plain = |part: &str| {
        part.starts_with(|own: char| own.is_ascii_lowercase() || own == '_')
            && part
                .chars()
                .all(|own| own.is_ascii_lowercase() || own.is_ascii_digit() || own == '_')
    };
    let parts = key.splitn(2, '.');
    let parts = parts.map(|part| if plain(part) { part.to_owned() } else { format!("\"{part}\"") });
    parts.collect::<Vec<_>>().join(".")
}

/// Drops the sequences of columns.
pub(super) async fn drop_of_columns(
    txn: &mut Txn<'_>,
    sequences: impl IntoIterator<Item = String>,
) -> SqlResult<()> {
    for name in sequences {
        txn.drop_sequence(&name).await.map_err(|error| from_txn(error, None))?;
    }
    Ok(())
}

/// The sequences of the columns of a table.
pub(super) fn sequences_of(table: &TableDef) -> Vec<String> {
    table.columns.iter().filter_map(|column| column.sequence.clone()).collect()
}

/// Lets the sequences of a table begin again.
pub(super) async fn restart(txn: &mut Txn<'_>, table: &TableDef) -> SqlResult<()> {
    for name in sequences_of(table) {
        let start = txn.sequence(&name).await.map_err(|error| from_txn(error, None))?.start;
        let altered = txn.alter_sequence(&name, |_| {}, Some(start)).await;
        altered.map_err(|error| from_txn(error, None))?;
    }
    Ok(())
}

pub(super) async fn drop_sequences(
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    for name in names {
        let key = table_key(name)?;
        if !is_sequence(txn, &key).await? {
            if if_exists {
                continue;
            }
            let message = format!("sequence \"{key}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        }
        for (_, table) in load_all(txn).await.map_err(|error| from_txn(error, None))? {
            release(txn, &table?, &key, cascade).await?;
        }
        drop_of_columns(txn, [key]).await?;
    }
    Ok(())
}

/// Takes defaults away that are values of a sequence, or refuses that.
async fn release(txn: &mut Txn<'_>, table: &TableDef, key: &str, cascade: bool) -> SqlResult<()> {
    let mut users = Vec::new();
    for column in &table.columns {
        if column.identity.is_some() && column.sequence.as_deref() == Some(key) {
            let (column, table) = (&column.name, &table.name);
            let message = format!(
                "cannot drop sequence {key} because column {column} of table {table} requires it"
            );
            let hint = format!("You can drop column {column} of table {table} instead.");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).hint(hint));
        }
        if let Some(default) = &column.default
            && takes_from(default, key)?
        {
            users.push(column.name.clone());
        }
    }
    let Some(first) = users.first() else { return Ok(()) };
    if !cascade {
        let message = format!("cannot drop sequence {key} because other objects depend on it");
        let detail = format!(
            "default value for column {first} of table {} depends on sequence {key}",
            table.name
        );
        let hint = "Use DROP ... CASCADE to drop the dependent objects too.";
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).detail(detail).hint(hint));
    }
    super::lookup::change_note(txn, table, |note| {
        for (name, own) in &mut note.columns {
            if users.contains(name) {
                (own.default, own.sequence) = (None, None);
            }
        }
    })
    .await
}

/// Whether a default has a value of a sequence.
fn takes_from(default: &str, key: &str) -> SqlResult<bool> {
    let expr = default_expr(default)?;
    let mut found = false;
    let _ = visit_expressions(&expr, |own: &Ast| {
        if let Ast::Function(Function { name, args: FunctionArguments::List(list), .. }) = own
            && name.to_string().to_lowercase().ends_with("nextval")
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first()
        {
            let first = match first {
                Ast::Cast { expr, .. } => expr,
                other => other,
            };
            if let Ast::Value(value) = first
                && let Value::SingleQuotedString(text) = &value.value
            {
                found |= sequence_key(text).is_ok_and(|own| own == key);
            }
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    Ok(found)
}
