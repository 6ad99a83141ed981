//! Statements that change tables.
//!
//! Each is a change of the transaction that it is in, and a rollback takes it back; but for CREATE
//! INDEX alone, which works in transactions of its own while others change the table. What
//! `selkie_txn` cannot change where it is, such as a primary key, is changed by
//! [another table](rebuild) in the place of the one that is there.

mod alter;
mod alter_column;
mod alter_constraint;
mod alter_identity;
mod alter_sequence;
mod alter_type;
mod comment;
mod drop;
mod grant;
mod index;
mod lock_table;
mod lookup;
mod move_schema;
mod names;
mod new_owner;
mod owner;
mod rebuild;
mod references;
mod role;
mod schema;
mod sequence;
mod skip;
mod texts;
mod view;

use std::sync::Arc;

use selkie_fabric::BoxFuture;
use selkie_txn::{TableSchema, Txn};
use sqlparser::ast::{AlterTable, CreateTable, ObjectType, Statement};

use self::alter::Alteration;
use self::lookup::{already_exists, bound, create_new, found, new_key};
use super::Ran;
use super::run::Run;
use crate::bind::{bind_create_table, refuse};
use crate::catalogue::TableNote;
use crate::error::{SqlError, SqlResult};
use crate::parse_alter::VIEW;
use crate::parse_sequences::SEQUENCE;
use crate::plan::{Plan, optimize};
use crate::roles::Kind;

/// Whether a statement changes tables.
pub(super) fn is_definition(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateTable(_)
            | Statement::AlterTable(_)
            | Statement::Drop { .. }
            | Statement::Truncate(_)
            | Statement::CreateIndex(_)
            | Statement::CreateSequence { .. }
            | Statement::CreateView(_)
            | Statement::AlterIndex { .. }
            | Statement::AlterView(_)
            | Statement::CreateSchema { .. }
            | Statement::AlterSchema(_)
            | Statement::Comment { .. }
    ) || is_about_roles(statement)
}

/// Whether a statement changes roles, or what they may do.
pub(super) fn is_about_roles(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateRole(_)
            | Statement::AlterRole { .. }
            | Statement::Grant(_)
            | Statement::Revoke(_)
            | Statement::GrantRole(_)
            | Statement::RevokeRole(_)
    )
}

/// Whether tables, columns or constraints that are there may have other names afterwards, or be
/// gone.
pub(super) fn changes_names(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::AlterTable(_)
            | Statement::AlterView(_)
            | Statement::CreateIndex(_)
            | Statement::Drop { .. }
            | Statement::Truncate(_)
    )
}

/// What a statement that changes tables is called.
pub(super) fn command(statement: &Statement) -> String {
    match statement {
        Statement::CreateTable(create) if create.query.is_some() => "CREATE TABLE AS",
        Statement::CreateTable(_) => "CREATE TABLE",
        Statement::AlterTable(alter) => altered(alter),
        Statement::Drop { object_type, .. } => return format!("DROP {object_type}"),
        Statement::Truncate(_) => "TRUNCATE TABLE",
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::CreateSequence { name, .. } => match alter_sequence::altered_name(name) {
            Some(_) => "ALTER SEQUENCE",
            None => "CREATE SEQUENCE",
        },
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::AlterIndex { .. } => "ALTER INDEX",
        Statement::AlterView(_) => "ALTER VIEW",
        Statement::CreateSchema { .. } => "CREATE SCHEMA",
        Statement::AlterSchema(_) => "ALTER SCHEMA",
        Statement::Comment { .. } => "COMMENT",
        Statement::CreateRole(_) => "CREATE ROLE",
        Statement::AlterRole { .. } => "ALTER ROLE",
        Statement::Grant(_) => "GRANT",
        Statement::Revoke(_) => "REVOKE",
        Statement::GrantRole(_) => "GRANT ROLE",
        Statement::RevokeRole(_) => "REVOKE ROLE",
        _ => "this statement",
    }
    .to_owned()
}

/// What an ALTER is called that is parsed as that of a table.
fn altered(alter: &AlterTable) -> &'static str {
    match alter.on_cluster.as_ref().map(|own| &*own.value) {
        Some(SEQUENCE) => "ALTER SEQUENCE",
        Some(VIEW) => "ALTER VIEW",
        _ => "ALTER TABLE",
    }
}

/// Does a statement that changes tables.
pub(super) async fn define(run: &Run, txn: &mut Txn<'_>) -> SqlResult<Ran> {
    let statement = &run.work.parsed.statement;
    owner::check(run, txn, statement).await?;
    let ran = define_allowed(run, txn, statement).await?;
    owner::keep(run, txn, statement).await?;
    Ok(ran)
}

/// As [`define`], for statements that another consists of.
fn define_within<'r>(run: &'r Run, txn: &'r mut Txn<'_>) -> BoxFuture<'r, SqlResult<Ran>> {
    Box::pin(define(run, txn))
}

async fn define_allowed(run: &Run, txn: &mut Txn<'_>, statement: &Statement) -> SqlResult<Ran> {
    let tag = match statement {
        Statement::CreateTable(create) if create.query.is_some() => {
            return create_as(run, txn, create).await.map(Ran::Done);
        }
        Statement::CreateTable(create) => {
            create_plain(run, txn, create).await?;
            "CREATE TABLE"
        }
        Statement::AlterTable(alter) => {
            Alteration::run(run, txn, alter).await?;
            altered(alter)
        }
        Statement::Drop { object_type: ObjectType::Role | ObjectType::User, .. } => {
            role::drop_roles(run, txn, statement).await?
        }
        Statement::Drop { .. } => drop_all(run, txn, statement).await?,
        Statement::Truncate(truncate) => {
            drop::truncate(run, txn, truncate).await?;
            "TRUNCATE TABLE"
        }
        Statement::CreateIndex(create) => return index::create_index(run, txn, create).await,
        Statement::CreateView(create) => {
            view::create_view(run, txn, create).await?;
            "CREATE VIEW"
        }
        Statement::CreateSequence { temporary, if_not_exists, name, sequence_options } => {
            if let Some(name) = alter_sequence::altered_name(name) {
                let (options, if_exists) = (sequence_options, *if_not_exists);
                alter_sequence::alter_named(run, txn, &name, options, if_exists).await?;
                return Ok(Ran::Done("ALTER SEQUENCE".to_owned()));
            }
            refuse(*temporary, "a temporary sequence")?;
            let created =
                sequence::create_sequence(run, txn, name, sequence_options, *if_not_exists);
            if let Some(key) = created.await? {
                owner::own_sequence(run, txn, key).await?;
            }
            "CREATE SEQUENCE"
        }
        Statement::AlterIndex { name, operation } => {
            index::rename_index(run, txn, name, operation).await?;
            "ALTER INDEX"
        }
        Statement::Comment { object_type, object_name, comment, if_exists } => {
            let (kind, text) = (*object_type, comment.clone());
            comment::comment_on(run, txn, kind, *if_exists, object_name, text).await?;
            "COMMENT"
        }
        Statement::AlterView(alter) => move_schema::alter_view(run, txn, alter).await?,
        Statement::CreateSchema { .. } => {
            schema::create_schema(run, txn, statement).await?;
            "CREATE SCHEMA"
        }
        Statement::AlterSchema(alter) => {
            schema::alter_schema(run, txn, alter).await?;
            "ALTER SCHEMA"
        }
        other if is_about_roles(other) => role::run(run, txn, other).await?,
        other => return Err(SqlError::unsupported(other)),
    };
    Ok(Ran::Done(tag.to_owned()))
}

/// DROP: what it says in the end.
async fn drop_all(run: &Run, txn: &mut Txn<'_>, statement: &Statement) -> SqlResult<&'static str> {
    let Statement::Drop {
        object_type,
        if_exists,
        names,
        cascade,
        // It is what is done without CASCADE.
        restrict: _,
        purge,
        temporary,
        table,
    } = statement
    else {
        return Err(SqlError::unsupported(statement));
    };
    refuse(*purge || *temporary || table.is_some(), "this form of DROP")?;
    Ok(match object_type {
        ObjectType::Table => {
            drop::drop_tables(run, txn, names, *if_exists, *cascade).await?;
            "DROP TABLE"
        }
        ObjectType::Index => {
            index::drop_indexes(run, txn, names, *if_exists, *cascade).await?;
            "DROP INDEX"
        }
        ObjectType::View => {
            view::drop_views(run, txn, names, *if_exists, *cascade).await?;
            "DROP VIEW"
        }
        ObjectType::Sequence => {
            sequence::drop_sequences(run, txn, names, *if_exists, *cascade).await?;
            "DROP SEQUENCE"
        }
        ObjectType::Schema => {
            schema::drop_schemas(run, txn, names, *if_exists, *cascade).await?;
            "DROP SCHEMA"
        }
        other => return Err(SqlError::unsupported(format!("DROP {other}"))),
    })
}

/// CREATE TABLE without a query.
async fn create_plain(run: &Run, txn: &mut Txn<'_>, create: &CreateTable) -> SqlResult<()> {
    let key = new_key(run, &create.name)?;
    let made = bound(run, txn, |binder| {
        let made = bind_create_table(binder, create, key)?;
        Ok((made, std::mem::take(&mut binder.needed)))
    });
    let ((mut schema, sequences), needed) = made.await?;
    // Schemas that its defaults name; later they are not asked for.
    for own in needed.iter().filter(|own| own.kind == Kind::Schema) {
        own.check(run.authority()?)?;
    }
    if names::is_relation(txn, &schema.name).await? {
        return skip::if_wanted(run, create.if_not_exists, already_exists(&schema.name));
    }
    names::of_new_table(txn, &mut schema, create).await?;
    owner::mark(run, &mut schema)?;
    let mut note = TableNote::from_stored(&schema.note)?;
    for column in note.columns.values_mut() {
        if let Some(default) = column.default.take() {
            column.default = Some(texts::pinned_default(run, txn, default).await?);
        }
    }
    schema.note = note.to_stored()?;
    sequence::create_for_table(run, txn, &mut schema, sequences).await?;
    create_with_references(txn, schema).await
}

/// CREATE TABLE AS: what it says in the end.
async fn create_as(run: &Run, txn: &mut Txn<'_>, create: &CreateTable) -> SqlResult<String> {
    let tag = "CREATE TABLE AS".to_owned();
    let Some(query) = &create.query else { return Ok(tag) };
    let key = new_key(run, &create.name)?;
    let (mut schema, _) = bound(run, txn, |binder| bind_create_table(binder, create, key)).await?;
    owner::mark(run, &mut schema)?;
    let key = schema.name.clone();
    if names::is_relation(txn, &key).await? {
        skip::if_wanted(run, create.if_not_exists, already_exists(&key))?;
        return Ok(tag);
    }
    create_new(txn, schema).await?;
    let table = Arc::new(found(txn, &key).await?);
    let shown = table.columns.iter().enumerate().filter(|(_, column)| !column.is_hidden);
    let targets: Vec<usize> = shown.map(|(at, _)| at).collect();
    let plan = bound(run, txn, |binder| {
        let (source, changes) = binder.changing_statement(query)?;
        let plan = binder.insert_rows(Arc::clone(&table), &targets, source)?;
        let plan = match changes.is_empty() {
            true => plan,
            false => Plan::Together { changes, main: Box::new(plan) },
        };
        Ok((plan, std::mem::take(&mut binder.needed)))
    });
    let (plan, needed) = plan.await?;
    for own in needed {
        own.check(run.authority()?)?;
    }
    if create.with_data.as_ref().is_some_and(|own| !own.data) {
        return Ok(tag);
    }
    let rows = match optimize(plan) {
        Plan::Insert(insert) => run.fill(txn, &table, &insert.source, false).await?,
        plan => run.perform(txn, &plan).await?,
    };
    Ok(format!("SELECT {rows}"))
}

/// Creates a table, and tells the parents of its constraints.
async fn create_with_references(txn: &mut Txn<'_>, schema: TableSchema) -> SqlResult<()> {
    let (key, note) = (schema.name.clone(), TableNote::from_stored(&schema.note)?);
    create_new(txn, schema).await?;
    references::refer(txn, &key, &note.foreign_keys).await
}
