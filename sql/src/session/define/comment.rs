//! COMMENT ON. What is said stands in the note of the table that it is about.

use selkie_txn::Txn;
use sqlparser::ast::{CommentObject, ObjectName};

use super::super::run::Run;
use super::lookup::{change_note, found_named};
use super::{index, schema, view};
use crate::bind::{is_constraint, name_parts};
use crate::catalogue::{TableDef, set_comment};
use crate::error::{SqlError, SqlResult, SqlState};

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
        other => Err(SqlError::unsupported(format!("COMMENT ON {other}"))),
    }
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
