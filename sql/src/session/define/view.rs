//! CREATE and DROP VIEW, and what depends on tables and views.

use std::collections::BTreeSet;

use selkie_txn::{ColumnType, TableSchema, Txn};
use sqlparser::ast::{self, ObjectName};

use super::super::run::Run;
use super::super::tables::load_with_used;
use super::lookup::{already_exists, change_note, create_table, find};
use super::{owner, sequence};
use crate::bind::{Binder, HIDDEN_KEY, bind_view, check_name, refuse, relations_of, table_key};
use crate::catalogue::{TableDef, TableNote, ViewNote, load_all};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::types::SqlType;

pub(super) async fn create_view(
    run: &Run,
    txn: &mut Txn<'_>,
    create: &ast::CreateView,
) -> SqlResult<()> {
    let plain = ast::CreateView {
        or_alter: false,
        materialized: false,
        secure: false,
        name_before_not_exists: false,
        options: ast::CreateTableOptions::None,
        cluster_by: Vec::new(),
        comment: None,
        with_no_schema_binding: false,
        if_not_exists: false,
        temporary: false,
        copy_grants: false,
        to: None,
        params: None,
        ..create.clone()
    };
    refuse(create.materialized, "a materialized view")?;
    refuse(plain != *create, "this form of CREATE VIEW")?;
    let key = table_key(&create.name)?;
    check_name(key.rsplit('.').next().unwrap_or(&key))?;
    let names = relations_of(&create.query)?;
    let tables = load_with_used(txn, names.clone()).await;
    let tables = tables.map_err(|error| from_txn(error, None))??;
    let uses: BTreeSet<String> =
        names.into_iter().filter(|name| tables.contains_key(name)).collect();
    let parsed = &run.work.parsed;
    let mut binder = Binder::new(&parsed.sql, &tables, &run.settings.format, &run.work.types);
    let view = bind_view(&mut binder, create, uses)?;
    if sequence::is_sequence(txn, &key).await? {
        return Err(already_exists(&key));
    }
    match find(txn, &key).await? {
        None => {
            let note = TableNote { view: Some(view), ..TableNote::default() };
            let mut schema = TableSchema::new(key)
                .column(HIDDEN_KEY, ColumnType::Bool)
                .primary_key([0])
                .note(note.to_stored()?);
            owner::mark(run, &mut schema)?;
            create_table(txn, schema).await
        }
        Some(_) if !create.or_replace => Err(already_exists(&key)),
        Some(old) => {
            let Some(before) = &old.view else { return Err(not_a(&old, "view")) };
            if tables.contains_key(&key) {
                let message =
                    format!("infinite recursion detected in rules for relation \"{key}\"");
                return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
            }
            check_columns(before, &view)?;
            change_note(txn, &old, |note| note.view = Some(view)).await
        }
    }
}

/// A view that takes the place of another has its columns first.
fn check_columns(before: &ViewNote, after: &ViewNote) -> SqlResult<()> {
    let wrong = |message: String| Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if after.columns.len() < before.columns.len() {
        return wrong("cannot drop columns from view".to_owned());
    }
    for (old, new) in before.columns.iter().zip(&after.columns) {
        if old.name != new.name {
            let (old, new) = (&old.name, &new.name);
            return wrong(format!("cannot change name of view column \"{old}\" to \"{new}\""));
        }
        if (old.oid, old.modifier) != (new.oid, new.modifier) {
            let name = |oid, modifier| {
                SqlType::from_oid(oid)
                    .map_or_else(String::new, |ty| ty.with_modifier(modifier).name())
            };
            return wrong(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                old.name,
                name(old.oid, old.modifier),
                name(new.oid, new.modifier)
            ));
        }
    }
    Ok(())
}

/// The error for a table or view that is not of the kind that is needed.
pub(super) fn not_a(table: &TableDef, kind: &str) -> SqlError {
    let message = format!("\"{}\" is not a {kind}", table.name);
    SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
}

pub(super) async fn drop_views(
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    for name in names {
        let key = table_key(name)?;
        match find(txn, &key).await? {
            Some(table) if table.view.is_none() => return Err(not_a(&table, "view")),
            Some(table) => drop_with_views(txn, &key, &table, cascade).await?,
            None if if_exists => {}
            None => {
                let message = format!("view \"{key}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
        }
    }
    Ok(())
}

/// Drops a table or view, with the views that use it if `cascade` says so.
pub(super) async fn drop_with_views(
    txn: &mut Txn<'_>,
    key: &str,
    table: &TableDef,
    cascade: bool,
) -> SqlResult<()> {
    let views = views_over(txn, key).await?;
    if let Some((view, _)) = views.first()
        && !cascade
    {
        return Err(is_used(table, key, view));
    }
    // Those that use a view go before it.
    for (_, view) in views.iter().rev() {
        drop_one(txn, view).await?;
    }
    drop_one(txn, table).await?;
    sequence::drop_of_columns(txn, sequence::sequences_of(table)).await
}

async fn drop_one(txn: &mut Txn<'_>, table: &TableDef) -> SqlResult<()> {
    let dropped = txn.drop_table(table.table).await;
    dropped.map_err(|error| from_txn(error, Some(table)))
}

fn is_used(table: &TableDef, key: &str, view: &str) -> SqlError {
    let kind = if table.view.is_some() { "view" } else { "table" };
    let message = format!("cannot drop {kind} {key} because other objects depend on it");
    let detail = format!("view {view} depends on {kind} {key}");
    let hint = "Use DROP ... CASCADE to drop the dependent objects too.";
    SqlError::new(SqlState::DEPENDENT_OBJECTS, message).detail(detail).hint(hint)
}

/// The views that use a table or view, also by other views: each behind one that it uses.
pub(super) async fn views_over(txn: &mut Txn<'_>, key: &str) -> SqlResult<Vec<(String, TableDef)>> {
    let mut views = Vec::new();
    for (name, table) in load_all(txn).await.map_err(|error| from_txn(error, None))? {
        let table = table?;
        if table.view.is_some() {
            views.push((name, table));
        }
    }
    let (mut found, mut reached): (Vec<(String, TableDef)>, _) = (Vec::new(), vec![key.to_owned()]);
    let mut next = 0;
    while let Some(used) = reached.get(next).cloned() {
        next += 1;
        let uses =
            |table: &TableDef| table.view.as_ref().is_some_and(|own| own.uses.contains(&used));
        for (name, table) in views.iter().filter(|(_, table)| uses(table)) {
            // A view that is found again has to stand behind all that it uses.
            found.retain(|(own, _)| own != name);
            found.push((name.clone(), table.clone()));
            reached.push(name.clone());
        }
    }
    Ok(found)
}

/// Checks that views have the columns that they had, now that a table is another.
pub(super) async fn check_views(
    run: &Run,
    txn: &mut Txn<'_>,
    views: &[(String, TableDef)],
) -> SqlResult<()> {
    for (key, table) in views {
        let sql = format!("select 1 from \"{}\"", key.replace('.', "\".\""));
        let mut statements = crate::parse::parse(&sql)?;
        let tables = load_with_used(txn, vec![key.clone()]).await;
        let tables = tables.map_err(|error| from_txn(error, None))??;
        let mut binder = Binder::new(&sql, &tables, &run.settings.format, &[]);
        let Some(ast::Statement::Query(query)) = statements.pop() else { continue };
        if binder.statement(&query).is_err() {
            let message = format!("the view \"{}\" depends on what is to be changed", table.name);
            let hint = "Drop the view, and create it again afterwards.";
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).hint(hint));
        }
    }
    Ok(())
}
