//! CREATE and DROP SEQUENCE, and the sequences of columns.

use selkie_txn::{SequenceError, SequenceSchema, TableSchema, Txn, TxnError};
use sqlparser::ast::{ObjectName, SequenceOptions};

use super::super::run::Run;
use super::alter_sequence::{own_by, split_owner};
use super::lookup::{already_exists, hold_schema, key_in, keys_of, last_part, new_key};
use super::{names, skip, texts};
use crate::bind::{NewSequence, made_name, sequence_schema};
use crate::catalogue::{TableDef, TableNote, load_all, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::schemas::{Schemas, maybe_changed};

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

/// Creates a sequence. Its name in the catalogue, unless it was there before.
pub(super) async fn create_sequence(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    options: &[SequenceOptions],
    if_not_exists: bool,
) -> SqlResult<Option<String>> {
    let key = new_key(run, name)?;
    let (owned, options) = split_owner(options);
    let schema = sequence_schema(&key, None, &options)?;
    if names::is_relation(txn, &key).await? {
        return skip::if_wanted(run, if_not_exists, already_exists(&key)).map(|()| None);
    }
    create(txn, schema).await?;
    if let Some(by) = owned {
        own_by(run, txn, &key, run.authority()?.oid(), by).await?;
    }
    Ok(Some(key))
}

/// The name in the catalogue of a sequence, if there is one.
pub(super) async fn find_sequence(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    if_exists: bool,
) -> SqlResult<Option<String>> {
    let keys = match keys_of(run, name) {
        Err(error) if if_exists && error.state() == SqlState::INVALID_SCHEMA_NAME => Vec::new(),
        keys => keys?,
    };
    for key in keys {
        if is_sequence(txn, &key).await? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

pub(super) async fn create(txn: &mut Txn<'_>, schema: SequenceSchema) -> SqlResult<()> {
    let name = schema.name.clone();
    hold_schema(txn, split_key(&name).0).await?;
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

/// Creates the sequence of a column, which has its values by default. Its name, and the default.
pub(super) async fn create_for_column(
    run: &Run,
    txn: &mut Txn<'_>,
    table: &str,
    new: NewSequence,
) -> SqlResult<(String, String)> {
    let (schema, table) = split_key(table);
    let base = made_name(table, &new.column, "seq");
    let mut key = key_in(schema, &base)?;
    let mut number = 0;
    while names::is_relation(txn, &key).await? {
        number += 1;
        key = key_in(schema, &format!("{base}{number}"))?;
    }
    create(txn, SequenceSchema { name: key.clone(), ..new.schema }).await?;
    let default = texts::next_value_of(&run.path.written(&key));
    Ok((key, default))
}

/// Creates the sequences of a table that is to be created.
pub(super) async fn create_for_table(
    run: &Run,
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
        let (name, default) = create_for_column(run, txn, &schema.name, new).await?;
        if let Some(own) = note.columns.get_mut(&column) {
            (own.sequence, own.default) = (Some(name), Some(default));
        }
    }
    schema.note = note.to_stored()?;
    Ok(())
}

/// Drops the sequences of columns.
pub(super) async fn drop_of_columns(
    txn: &mut Txn<'_>,
    sequences: impl IntoIterator<Item = String>,
) -> SqlResult<()> {
    for name in sequences {
        txn.drop_sequence(&name).await.map_err(of_txn)?;
        let has_comment = |all: &Schemas| all.comments.sequences.contains_key(&name);
        let forget = |all: &mut Schemas| drop(all.comments.sequences.remove(&name));
        maybe_changed(txn, of_txn, has_comment, forget).await?;
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
    run: &Run,
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    for name in names {
        let Some(key) = find_sequence(run, txn, name, if_exists).await? else {
            if if_exists {
                skip::missing(run, "sequence", name)?;
                continue;
            }
            let message = format!("sequence \"{}\" does not exist", last_part(name)?);
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        };
        drop_sequence(run, txn, key, cascade).await?;
    }
    Ok(())
}

/// Drops a sequence, and defaults that have its values if `cascade` says so.
pub(super) async fn drop_sequence(
    run: &Run,
    txn: &mut Txn<'_>,
    key: String,
    cascade: bool,
) -> SqlResult<()> {
    for (_, table) in load_all(txn).await.map_err(|error| from_txn(error, None))? {
        release(run, txn, &table?, &key, cascade).await?;
    }
    drop_of_columns(txn, [key]).await
}

/// Takes defaults away that are values of a sequence, or refuses that.
async fn release(
    run: &Run,
    txn: &mut Txn<'_>,
    table: &TableDef,
    key: &str,
    cascade: bool,
) -> SqlResult<()> {
    let (mut users, mut is_owned) = (Vec::new(), false);
    let shown = run.path.shown(key);
    for column in &table.columns {
        if column.identity.is_some() && column.sequence.as_deref() == Some(key) {
            let (column, table) = (&column.name, run.path.shown(&table.key));
            let message = format!(
                "cannot drop sequence {shown} because column {column} of table {table} requires it"
            );
            let hint = format!("You can drop column {column} of table {table} instead.");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).hint(hint));
        }
        is_owned |= column.sequence.as_deref() == Some(key);
        if let Some(default) = &column.default
            && texts::takes_from(run, default, column.sequence.as_deref(), key)?
        {
            users.push(column.name.clone());
        }
    }
    if users.is_empty() && !is_owned {
        return Ok(());
    }
    if let Some(first) = users.first()
        && !cascade
    {
        let message = format!("cannot drop sequence {shown} because other objects depend on it");
        let detail = format!(
            "default value for column {first} of table {} depends on sequence {shown}",
            run.path.shown(&table.key)
        );
        let hint = "Use DROP ... CASCADE to drop the dependent objects too.";
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).detail(detail).hint(hint));
    }
    super::lookup::change_note(txn, table, |note| {
        for (name, own) in &mut note.columns {
            if users.contains(name) {
                own.default = None;
            }
            if own.sequence.as_deref() == Some(key) {
                own.sequence = None;
            }
        }
    })
    .await
}
