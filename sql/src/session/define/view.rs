//! CREATE and DROP VIEW, and what depends on tables and views.

use std::collections::BTreeSet;
use std::sync::Arc;

use selkie_txn::{ColumnType, TableSchema, Txn};
use sqlparser::ast::{self, ObjectName};

use super::super::run::Run;
use super::super::tables::{load_key, load_named};
use super::drop::find_to_drop;
use super::lookup::{already_exists, change_note, create_new, find, hold, last_part, new_key};
use super::{names, owner, sequence, skip, texts};
use crate::bind::{Binder, HIDDEN_KEY, MOMENT_OF_DEFINITION, bind_view, refuse, relations_of};
use crate::catalogue::{SchemaId, TableDef, TableNote, ViewNote, load_all, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::roles::Kind;
use crate::schemas::SearchPath;
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
    let key = new_key(run, &create.name)?;
    let tables = load_named(txn, &relations_of(&create.query), &run.path).await;
    let tables = tables.map_err(|error| from_txn(error, None))??;
    let parsed = &run.work.parsed;
    let mut binder = Binder::new(&parsed.sql, &tables, &run.settings.format, &run.work.types);
    let mut view = bind_view(&mut binder, create)?;
    refuse(binder.uses_now, MOMENT_OF_DEFINITION)?;
    for own in binder.needed.iter().filter(|own| own.kind == Kind::Schema) {
        own.check(run.authority()?)?;
    }
    view.query = texts::pinned_query(run, txn, &view.query).await?;
    if view.uses.iter().any(|key| split_key(key).0 != SchemaId::PUBLIC) {
        hold(txn).await?;
    }
    if sequence::is_sequence(txn, &key).await? || names::is_index(txn, &key, None).await? {
        return Err(already_exists(&key));
    }
    match find(txn, &key).await? {
        None => {
            let note = TableNote { view: Some(view), ..TableNote::default() };
            let mut schema = TableSchema::new(&key)
                .column(HIDDEN_KEY, ColumnType::Bool)
                .primary_key([0])
                .note(note.to_stored()?);
            owner::mark(run, &mut schema)?;
            create_new(txn, schema).await
        }
        Some(_) if !create.or_replace => Err(already_exists(&key)),
        Some(old) => {
            let Some(before) = &old.view else { return Err(not_a(&old, "view")) };
            if tables.defs.contains_key(&key) {
                let message =
                    format!("infinite recursion detected in rules for relation \"{}\"", old.name);
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
    run: &Run,
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    let mut dropped = BTreeSet::new();
    for name in names {
        match find_to_drop(run, txn, name, if_exists).await? {
            Some(table) if table.view.is_none() => return Err(not_a(&table, "view")),
            Some(table) => drop(dropped.insert(table.key)),
            None if if_exists => skip::missing(run, "view", name)?,
            None => {
                let message = format!("view \"{}\" does not exist", last_part(name)?);
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
        }
    }
    let mut taken = Vec::new();
    for key in &dropped {
        // One before it may have taken it along.
        if let Some(view) = find(txn, key).await? {
            taken.extend(drop_with_views(run, txn, &view, &dropped, cascade).await?);
        }
    }
    skip::cascaded(run, &taken);
    Ok(())
}

/// Drops a table or view, with the views that use it if `cascade` says so. Those of `others` are
/// dropped, too. What `cascade` has taken along.
pub(super) async fn drop_with_views(
    run: &Run,
    txn: &mut Txn<'_>,
    table: &TableDef,
    others: &BTreeSet<String>,
    cascade: bool,
) -> SqlResult<Vec<String>> {
    let views = views_over(txn, &table.key).await?;
    if let Some((view, _)) = views.iter().find(|(view, _)| !others.contains(view))
        && !cascade
    {
        return Err(is_used(run, table, view));
    }
    // Those that use a view go before it.
    for (_, view) in views.iter().rev() {
        drop_one(txn, view).await?;
    }
    drop_one(txn, table).await?;
    sequence::drop_of_columns(txn, sequence::sequences_of(table)).await?;
    let taken = views.iter().filter(|(view, _)| !others.contains(view));
    Ok(taken.map(|(view, _)| format!("view {}", run.path.shown(view))).collect())
}

async fn drop_one(txn: &mut Txn<'_>, table: &TableDef) -> SqlResult<()> {
    let dropped = txn.drop_table(table.table).await;
    dropped.map_err(|error| from_txn(error, Some(table)))
}

fn is_used(run: &Run, table: &TableDef, view: &str) -> SqlError {
    let kind = if table.view.is_some() { "view" } else { "table" };
    let (key, view) = (run.path.shown(&table.key), run.path.shown(view));
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
        let sql = format!("select 1 from {}", run.path.written(key));
        let mut statements = crate::parse::parse(&sql)?;
        let stored = Arc::new(SearchPath::stored(run.path.schemas().cloned()));
        let tables = load_key(txn, key, &stored).await;
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
