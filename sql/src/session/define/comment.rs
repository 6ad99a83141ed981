//! COMMENT ON. What is said stands in the note of the table that it is about; of sequences, roles
//! and the database, which have none, it stands with the schemas.

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{CommentObject, ObjectName};

use super::super::run::Run;
use super::lookup::{change_note, find_named, found_named, last_part};
use super::{index, owner, schema, sequence, skip, view};
use crate::bind::{is_constraint, name_parts, no_relation};
use crate::catalogue::{TableDef, set_comment};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::roles::{denied, no_role};
use crate::schemas::change;

/// The name of the database.
pub(super) const DATABASE: &str = "selkie";

/// Sets a comment, or takes it away. On a constraint if `is_constraint` says so, whose name is the
/// last part.
pub(super) async fn comment_on(
    run: &Run,
    txn: &mut Txn<'_>,
    kind: CommentObject,
    is_constraint: bool,
    name: &ObjectName,
    text: Option<String>,
) -> SqlResult<()> {
    match kind {
        CommentObject::Table if is_constraint => {
            let (table, constraint) = member(run, txn, name).await?;
            on_constraint(txn, &table, &constraint, text).await
        }
        CommentObject::Table | CommentObject::View => {
            let table = found_named(run, txn, name).await?;
            let is_view = kind == CommentObject::View;
            if table.view.is_some() != is_view {
                return Err(view::not_a(&table, if is_view { "view" } else { "table" }));
            }
            check_owner(run, &table)?;
            let text = text.filter(|text| !text.is_empty());
            change_note(txn, &table, |note| note.comments.table = text).await
        }
        CommentObject::Column => {
            if name.0.len() < 2 {
                let message = "column name must be qualified";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            let (table, column) = member(run, txn, name).await?;
            if !table.columns.iter().any(|own| own.name == column && !own.is_hidden) {
                let message =
                    format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
            }
            change_note(txn, &table, |note| {
                set_comment(&mut note.comments.columns, &column, text);
            })
            .await
        }
        CommentObject::Index => {
            let Some((table, index)) = index::table_of(run, txn, name).await? else {
                let table = found_named(run, txn, name).await?;
                let message = format!("\"{}\" is not an index", table.name);
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            };
            check_owner(run, &table)?;
            change_note(txn, &table, |note| {
                set_comment(&mut note.comments.indexes, &index, text);
            })
            .await
        }
        CommentObject::Schema => schema::comment_on(run, txn, name, text).await,
        CommentObject::Sequence => on_sequence(run, txn, name, text).await,
        CommentObject::Database => on_database(run, txn, name, text).await,
        CommentObject::Role | CommentObject::User => on_role(run, txn, name, text).await,
        other => Err(SqlError::unsupported(format!("COMMENT ON {other}"))),
    }
}

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

async fn on_sequence(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    text: Option<String>,
) -> SqlResult<()> {
    let Some(key) = sequence::find_sequence(run, txn, name, false).await? else {
        return match find_named(run, txn, name).await? {
            Some(table) => Err(view::not_a(&table, "sequence")),
            None => Err(no_relation(&name_parts(name)?)),
        };
    };
    owner::require_owner_of_sequence(run, txn, name).await?;
    change(txn, of_txn, |all| {
        set_comment(&mut all.comments.sequences, &key, text);
        Ok(())
    })
    .await
}

/// There is one database.
async fn on_database(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    text: Option<String>,
) -> SqlResult<()> {
    let name = last_part(name)?;
    // A dump has the name of the database that it was made of: that is no error in PostgreSQL.
    if name != DATABASE {
        let message = format!("database \"{name}\" does not exist");
        skip::tell(run, &Notice::warning(SqlState::INVALID_CATALOG_NAME, message));
        return Ok(());
    }
    if !run.authority()?.is_superuser() {
        return Err(denied(format!("must be owner of database {name}")));
    }
    change(txn, of_txn, |all| {
        all.comments.database = text.filter(|text| !text.is_empty());
        Ok(())
    })
    .await
}

async fn on_role(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    text: Option<String>,
) -> SqlResult<()> {
    let [part] = &*name.0 else { return Err(SqlError::unsupported("a name of a role of parts")) };
    let Some(ident) = part.as_ident() else { return Err(no_role(&last_part(name)?)) };
    let (oid, authority) = (schema::owner_of(run, ident)?, run.authority()?);
    let is_superuser = authority.roles().is_none_or(|roles| roles.is_superuser(oid));
    if is_superuser && !authority.is_superuser() {
        return Err(denied("must be superuser"));
    }
    if !authority.is_superuser() && !authority.creates_roles() {
        return Err(denied("must have CREATEROLE privilege"));
    }
    change(txn, of_txn, |all| {
        match text.filter(|text| !text.is_empty()) {
            Some(text) => all.comments.roles.insert(oid, text),
            None => all.comments.roles.remove(&oid),
        };
        Ok(())
    })
    .await
}

async fn on_constraint(
    txn: &mut Txn<'_>,
    table: &TableDef,
    name: &str,
    text: Option<String>,
) -> SqlResult<()> {
    if !is_constraint(table, name) {
        let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    }
    change_note(txn, table, |note| set_comment(&mut note.comments.constraints, name, text)).await
}

/// The table that a name begins with, and what it ends with.
async fn member(run: &Run, txn: &mut Txn<'_>, name: &ObjectName) -> SqlResult<(TableDef, String)> {
    let mut table = name.clone();
    let last = table.0.pop().into_iter().collect();
    let last = name_parts(&ObjectName(last))?.pop().unwrap_or_default();
    let table = found_named(run, txn, &table).await?;
    check_owner(run, &table)?;
    Ok((table, last))
}

/// Who does not own a table says nothing about it.
fn check_owner(run: &Run, table: &TableDef) -> SqlResult<()> {
    run.authority()?.require_owner(table.kind(), &table.name, &table.rights)
}
