//! ALTER SEQUENCE, and the columns that own sequences.

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{
    AlterTableOperation, ObjectName, Owner, RenameTableNameKind, SequenceOptions,
};

use super::super::run::Run;
use super::lookup::{
    already_exists, change_note, find_named, found_named, hold_schema, key_in, require_create,
};
use super::move_schema::{move_sequence, rename_in_columns};
use super::sequence::find_sequence;
use super::{names, new_owner, owner, skip, view};
use crate::bind::{altered_sequence, name_parts, no_relation};
use crate::catalogue::{ColumnNote, TableDef, load_all, name_of, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::parse_sequences::{ALTER, mark_of};
use crate::roles::maybe_changed;

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

/// The name of a sequence that is changed, where that stands as one that is created.
pub(super) fn altered_name(name: &ObjectName) -> Option<ObjectName> {
    let (last, parts) = name.0.split_last()?;
    let is_altered = last.as_ident().is_some_and(|own| own.value == ALTER);
    is_altered.then(|| ObjectName(parts.to_vec()))
}

/// ALTER SEQUENCE with options.
pub(super) async fn alter_named(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    options: &[SequenceOptions],
    if_exists: bool,
) -> SqlResult<()> {
    let Some(key) = find_sequence(run, txn, name, if_exists).await? else {
        if let Some(table) = find_named(run, txn, name).await? {
            return Err(view::not_a(&table, "sequence"));
        }
        return match if_exists {
            true => skip::missing_relation(run, name),
            false => Err(no_relation(&name_parts(name)?)),
        };
    };
    owner::require_owner_of_sequence(run, txn, name).await?;
    let (owned, options) = split_owner(options);
    if !options.is_empty() {
        alter_sequence(txn, &key, &options).await?;
    }
    match owned {
        None => Ok(()),
        Some(by) => {
            let owner = owner::rights_of_sequence(run, &key)?.owner;
            own_by(run, txn, &key, owner, by).await
        }
    }
}

/// Who owns a sequence, if that is said, and the other options.
pub(super) fn split_owner(
    options: &[SequenceOptions],
) -> (Option<Option<&ObjectName>>, Vec<SequenceOptions>) {
    let (mut owned, mut others) = (None, Vec::new());
    for option in options {
        match option {
            SequenceOptions::OwnedBy(by) if mark_of(option).is_none() => owned = Some(by.as_ref()),
            option => others.push(option.clone()),
        }
    }
    (owned, others)
}

/// Changes a sequence.
pub(super) async fn alter_sequence(
    txn: &mut Txn<'_>,
    key: &str,
    options: &[SequenceOptions],
) -> SqlResult<()> {
    let old = txn.sequence(key).await.map_err(of_txn)?;
    let (new, restart) = altered_sequence(&old, options)?;
    txn.alter_sequence(key, |own| *own = new, restart).await.map_err(of_txn)
}

/// Has a sequence, which a role owns, dropped with a column, or with none.
pub(super) async fn own_by(
    run: &Run,
    txn: &mut Txn<'_>,
    key: &str,
    owner: u32,
    by: Option<&ObjectName>,
) -> SqlResult<()> {
    let wrong = |message: &str| Err(SqlError::new(SqlState::OBJECT_NOT_READY, message));
    let Some(by) = by else { return disown(txn, key).await };
    let mut table = by.clone();
    let column: ObjectName = ObjectName(table.0.pop().into_iter().collect());
    let column = name_parts(&column)?.pop().unwrap_or_default();
    if table.0.is_empty() {
        let error = SqlError::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option");
        return Err(error.hint("Specify OWNED BY table.column or OWNED BY NONE."));
    }
    let table = found_named(run, txn, &table).await?;
    if table.view.is_some() {
        let message = format!("sequence cannot be owned by relation \"{}\"", table.name);
        let error = SqlError::new(SqlState::WRONG_OBJECT_TYPE, message);
        return Err(error.detail("This operation is not supported for views.".to_owned()));
    }
    if table.rights.owner != owner {
        return wrong("sequence must have same owner as table it is linked to");
    }
    if split_key(&table.key).0 != split_key(key).0 {
        return wrong("sequence must be in same schema as table it is linked to");
    }
    let found = table.columns.iter().find(|own| own.name == column && !own.is_hidden);
    let Some(found) = found else {
        let table = &table.name;
        let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
    };
    if found.sequence.as_deref() == Some(key) && found.identity.is_none() {
        return Ok(());
    }
    if found.sequence.is_some() && found.sequence.as_deref() != Some(key) {
        return Err(SqlError::unsupported("a column that owns several sequences"));
    }
    let ty = found.ty;
    disown(txn, key).await?;
    let key = key.to_owned();
    change_note(txn, &table, |note| {
        let own = note.columns.entry(column).or_insert_with(|| ColumnNote {
            oid: ty.oid(),
            modifier: ty.modifier,
            ..ColumnNote::default()
        });
        own.sequence = Some(key);
    })
    .await
}

/// The table whose column owns a sequence.
async fn owning(txn: &mut Txn<'_>, key: &str) -> SqlResult<Option<TableDef>> {
    for (_, table) in load_all(txn).await.map_err(of_txn)? {
        let table = table?;
        if table.columns.iter().any(|own| own.sequence.as_deref() == Some(key)) {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

fn is_linked(key: &str, table: &TableDef, message: &str) -> SqlError {
    let (sequence, table) = (name_of(key), &table.name);
    let detail = format!("Sequence \"{sequence}\" is linked to table \"{table}\".");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).detail(detail)
}

/// No column owns a sequence any more. That of an identity column stays its.
async fn disown(txn: &mut Txn<'_>, key: &str) -> SqlResult<()> {
    let Some(table) = owning(txn, key).await? else { return Ok(()) };
    let is_its = |own: &&crate::catalogue::ColumnDef| own.sequence.as_deref() == Some(key);
    if table.columns.iter().filter(is_its).any(|own| own.identity.is_some()) {
        return Err(is_linked(key, &table, "cannot change ownership of identity sequence"));
    }
    change_note(txn, &table, |note| {
        let columns = note.columns.values_mut();
        for own in columns.filter(|own| own.sequence.as_deref() == Some(key)) {
            own.sequence = None;
        }
    })
    .await
}

/// Gives a sequence another name or owner, which ALTER TABLE does, too. Whether there is a sequence
/// of that name.
pub(super) async fn alter_as_table(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    operations: &[AlterTableOperation],
) -> SqlResult<bool> {
    let Some(key) = find_sequence(run, txn, name, true).await? else { return Ok(false) };
    owner::require_owner_of_sequence(run, txn, name).await?;
    match operations {
        [AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(new) }] => {
            let [new] = &*name_parts(new)? else {
                return Err(SqlError::unsupported("another schema for a sequence"));
            };
            rename(run, txn, &key, new).await?;
        }
        [AlterTableOperation::OwnerTo { new_owner }] => give(run, txn, &key, new_owner).await?,
        _ => {
            let message = format!("this form of ALTER TABLE for sequence \"{}\"", name_of(&key));
            return Err(SqlError::unsupported(message));
        }
    }
    Ok(true)
}

async fn rename(run: &Run, txn: &mut Txn<'_>, key: &str, name: &str) -> SqlResult<()> {
    let (schema, _) = split_key(key);
    require_create(run, schema)?;
    let new = key_in(schema, name)?;
    if names::is_relation(txn, &new).await? {
        return Err(already_exists(&new));
    }
    hold_schema(txn, schema).await?;
    if let Some(table) = owning(txn, key).await? {
        rename_in_columns(run, txn, &table, key, &new).await?;
    }
    move_sequence(run, txn, key, &new).await
}

async fn give(run: &Run, txn: &mut Txn<'_>, key: &str, owner: &Owner) -> SqlResult<()> {
    let owner = new_owner::new_owner(run, owner)?;
    if owner::rights_of_sequence(run, key)?.owner == owner {
        return Ok(());
    }
    if let Some(table) = owning(txn, key).await? {
        return Err(is_linked(key, &table, "cannot change owner of sequence"));
    }
    new_owner::require_create_of(run, owner, split_key(key).0)?;
    maybe_changed(
        txn,
        of_txn,
        |_| true,
        |roles| roles.sequences.entry(key.to_owned()).or_default().give_to(owner),
    )
    .await
}
