//! CREATE, DROP and ALTER SCHEMA, and comments on schemas.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_txn::{ColumnType, TableSchema, Txn, TxnError};
use sqlparser::ast::{
    AlterSchema, AlterSchemaOperation, Ident, ObjectName, ObjectNamePart, SchemaName, Statement,
    visit_relations_mut,
};

use super::super::Work;
use super::super::parsed::ParsedStatement;
use super::super::run::Run;
use super::lookup::{change_note, find};
use super::{define_within, new_owner, references, role, sequence, skip, texts, view};
use crate::bind::{check_name, fold, is_system_schema, name_parts, refuse};
use crate::catalogue::{Reference, SchemaId, TableDef, aside, load_all, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::parse_schemas::ELEMENTS;
use crate::roles::{BOOTSTRAP_NAME, Kind, Rights, Roles, denied, no_role};
use crate::schemas::{PUBLIC, SYSTEM, Schema, Schemas, change, no_schema, quoted};

const HINT: &str = "Use DROP ... CASCADE to drop the dependent objects too.";

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

/// The name of a schema.
pub(super) fn schema_name(name: &ObjectName) -> SqlResult<String> {
    match &*name_parts(name)? {
        [name] => Ok(name.clone()),
        _ => Err(SqlError::unsupported("a name of a schema of two parts")),
    }
}

/// Creates a schema.
pub(super) async fn create_schema(
    run: &Run,
    txn: &mut Txn<'_>,
    statement: &Statement,
) -> SqlResult<()> {
    let Statement::CreateSchema {
        schema_name: named,
        or_replace,
        if_not_exists,
        with,
        options,
        default_collate_spec,
        clone,
    } = statement
    else {
        return Err(SqlError::internal("a CREATE SCHEMA that is none"));
    };
    let is_odd =
        *or_replace || with.is_some() || options.is_some() || default_collate_spec.is_some();
    refuse(is_odd, "this form of CREATE SCHEMA")?;
    let elements = elements_of(run, clone.as_ref())?;
    refuse(*if_not_exists && !elements.is_empty(), "IF NOT EXISTS with elements of a schema")?;
    let (name, owner) = match named {
        SchemaName::Simple(name) => (schema_name(name)?, None),
        SchemaName::UnnamedAuthorization(owner) => {
            (role::role_named(run, owner)?, Some(owner_of(run, owner)?))
        }
        SchemaName::NamedAuthorization(name, owner) => {
            (schema_name(name)?, Some(owner_of(run, owner)?))
        }
    };
    let authority = run.authority()?;
    require_database(run)?;
    check_schema_name(&name)?;
    if *if_not_exists && (is_system_schema(&name) || run.path.id(&name).is_ok()) {
        let message = format!("schema \"{name}\" already exists");
        skip::skipped(run, &SqlError::new(SqlState::DUPLICATE_SCHEMA, message));
        return Ok(());
    }
    if let (Some(owner), Some(roles)) = (owner, authority.roles())
        && !authority.is_superuser()
        && !roles.memberships(authority.oid()).contains(&owner)
    {
        let owner = roles.of_oid(owner).map_or("", |(name, _)| name);
        return Err(denied(format!("must be member of role \"{owner}\"")));
    }
    let owner = owner.unwrap_or(authority.oid());
    if name == PUBLIC {
        change(txn, of_txn, Schemas::add_public).await?;
        give_public(txn, owner).await?;
    } else {
        let rights = Rights::of(owner);
        change(txn, of_txn, |all| all.add(&name, rights)).await?;
    }
    create_elements(run, txn, &name, elements).await
}

/// What is to be created within a schema, in the order in which PostgreSQL does it.
fn elements_of(run: &Run, clone: Option<&ObjectName>) -> SqlResult<Vec<Arc<ParsedStatement>>> {
    let Some(name) = clone else { return Ok(Vec::new()) };
    let mut parts = name.0.iter().filter_map(|part| part.as_ident());
    let is_list = parts.next().is_some_and(|own| own.value == ELEMENTS);
    refuse(!is_list, "this form of CREATE SCHEMA")?;
    let mut all = Vec::new();
    for part in parts {
        let parsed = run.plans.statements(&part.value);
        // The position would be one in the part.
        let parsed = parsed.map_err(|error| SqlError::new(error.state(), error.message()))?;
        all.extend(parsed.iter().cloned());
    }
    let place = |own: &ParsedStatement| match &own.statement {
        Statement::CreateSequence { .. } => Some(0),
        Statement::CreateTable(_) => Some(1),
        Statement::CreateView(_) => Some(2),
        Statement::CreateIndex(_) => Some(3),
        Statement::Grant(_) => Some(4),
        _ => None,
    };
    refuse(all.iter().any(|own| place(own).is_none()), "this element of a schema")?;
    all.sort_by_key(|own| place(own));
    Ok(all)
}

/// Creates what is in a schema from its beginning: names without a schema are looked for there
/// first.
async fn create_elements(
    run: &Run,
    txn: &mut Txn<'_>,
    schema: &str,
    elements: Vec<Arc<ParsedStatement>>,
) -> SqlResult<()> {
    if elements.is_empty() {
        return Ok(());
    }
    let mut settings = (*run.settings).clone();
    settings.search_path.insert(0, schema.to_owned());
    // An index is built within the transaction of the statement.
    let mut within = run.clone();
    (within.settings, within.is_alone) = (Arc::new(settings), false);
    for parsed in elements {
        let named = match &parsed.statement {
            Statement::CreateSequence { name, .. } => Some(name),
            Statement::CreateTable(own) => Some(&own.name),
            Statement::CreateView(own) => Some(&own.name),
            _ => None,
        };
        if let Some([other, _]) = named.map(name_parts).transpose()?.as_deref() {
            refuse(other != schema, "an element of another schema in CREATE SCHEMA")?;
        }
        within.work = Work::of(&parsed);
        let own = within.with_path(txn).await.map_err(of_txn)??;
        define_within(&own, txn).await?;
    }
    Ok(())
}

/// Superusers may create schemas, and those to whom CREATE of the database is granted.
fn require_database(run: &Run) -> SqlResult<()> {
    match run.authority()?.may_create_schemas() {
        true => Ok(()),
        false => Err(denied("permission denied for database selkie")),
    }
}

/// The number of a role, as it may be before there are roles.
pub(super) fn owner_of(run: &Run, owner: &Ident) -> SqlResult<u32> {
    let name = role::role_named(run, owner)?;
    let authority = run.authority()?;
    if authority.roles().is_none() {
        // Before there are roles everyone is the first superuser.
        let is_known = name == BOOTSTRAP_NAME || name == *run.user;
        return if is_known { Ok(authority.oid()) } else { Err(no_role(&name)) };
    }
    let found = authority.roles().and_then(|roles| roles.find(&name));
    found.map(|own| own.oid).ok_or_else(|| no_role(&name))
}

fn check_schema_name(name: &str) -> SqlResult<()> {
    check_name(name)?;
    let detail = match name {
        SYSTEM => "It is the name of what the system keeps for itself.",
        name if name.starts_with("pg_") => "The prefix \"pg_\" is reserved for system schemas.",
        _ => return Ok(()),
    };
    let message = format!("unacceptable schema name \"{name}\"");
    Err(SqlError::new(SqlState::RESERVED_NAME, message).detail(detail.to_owned()))
}

/// Gives `public` an owner.
async fn give_public(txn: &mut Txn<'_>, owner: u32) -> SqlResult<()> {
    let is_other = |roles: &Roles| roles.public.owner != owner;
    crate::roles::maybe_changed(txn, of_txn, is_other, |roles| roles.public.give_to(owner)).await
}

/// A schema that its owner changes, which may be `public`.
fn owned_id(run: &Run, name: &str) -> SqlResult<SchemaId> {
    if name != PUBLIC {
        return owned(run, name).map(Schema::id);
    }
    let id = run.path.id(name)?;
    let roles = run.authority()?.roles();
    let rights = roles.map_or_else(Rights::of_public_schema, |roles| roles.public.clone());
    run.authority()?.require_owner(Kind::Schema, name, &rights)?;
    Ok(id)
}

/// A schema that its owner changes.
fn owned<'r>(run: &'r Run, name: &str) -> SqlResult<&'r Schema> {
    if is_system_schema(name) {
        let message =
            format!("cannot change schema {name} because it is required by the database system");
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
    }
    refuse(name == PUBLIC, "another name of the schema public")?;
    let own = run.path.schema(name).ok_or_else(|| no_schema(name))?;
    run.authority()?.require_owner(Kind::Schema, name, &own.rights)?;
    Ok(own)
}

/// What is in a schema.
struct Contents {
    tables: Vec<TableDef>,
    /// Those that are not of columns.
    sequences: Vec<String>,
}

impl Contents {
    async fn of(txn: &mut Txn<'_>, schema: SchemaId) -> SqlResult<Self> {
        let mut tables = Vec::new();
        for (key, table) in load_all(txn).await.map_err(of_txn)? {
            if split_key(&key).0 == schema {
                tables.push(table?);
            }
        }
        // In the order in which they were created.
        tables.sort_by_key(|own| own.table.number());
        let owned: BTreeSet<String> = tables.iter().flat_map(sequence::sequences_of).collect();
        let all = txn.sequences().await.map_err(of_txn)?.into_iter().map(|own| own.name);
        let is_one = |key: &String| split_key(key).0 == schema && !owned.contains(key);
        Ok(Self { tables, sequences: all.filter(is_one).collect() })
    }

    /// What depends on the schema, as messages call it: also what is elsewhere, and uses a table
    /// that is in it. Those of `keys` are dropped with their own schemas.
    async fn lines(
        &self,
        run: &Run,
        txn: &mut Txn<'_>,
        schema: &str,
        keys: &BTreeSet<String>,
    ) -> SqlResult<Vec<String>> {
        let mut lines = Vec::new();
        for own in &self.tables {
            let (kind, name) = (own.kind().name(), run.path.shown(&own.key));
            lines.push(format!("{kind} {name} depends on schema {schema}"));
            for Reference { child, name: constraint } in &own.referenced_by {
                if !keys.contains(child) {
                    let child = run.path.shown(child);
                    lines.push(format!(
                        "constraint {constraint} on table {child} depends on {kind} {name}"
                    ));
                }
            }
            for (view, table) in view::views_over(txn, &own.key).await? {
                let is_direct = table.view.is_some_and(|view| view.uses.contains(&own.key));
                if is_direct && !keys.contains(&view) {
                    let view = run.path.shown(&view);
                    lines.push(format!("view {view} depends on {kind} {name}"));
                }
            }
        }
        let sequences = self.sequences.iter().map(|key| run.path.shown(key));
        lines.extend(sequences.map(|name| format!("sequence {name} depends on schema {schema}")));
        Ok(lines)
    }
}

/// Drops schemas.
pub(super) async fn drop_schemas(
    run: &Run,
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    let mut dropped: Vec<(String, Contents)> = Vec::new();
    for name in names {
        let name = schema_name(name)?;
        let is_there = match &*name {
            PUBLIC => run.path.has_public(),
            name => is_system_schema(name) || run.path.schema(name).is_some(),
        };
        if !is_there && if_exists {
            skip::tell(run, &Notice::missing(format!("schema \"{name}\"")));
            continue;
        }
        if dropped.iter().any(|(own, _)| *own == name) {
            continue;
        }
        let contents = Contents::of(txn, owned_id(run, &name)?).await?;
        dropped.push((name, contents));
    }
    let keys = dropped.iter().flat_map(|(_, own)| own.tables.iter().map(|own| own.key.clone()));
    let keys: BTreeSet<String> = keys.collect();
    let lines = dependents(run, txn, &dropped, &keys).await?;
    if !cascade {
        check_empty(&dropped, &lines)?;
    }
    for key in &keys {
        // A view may be gone with what it uses.
        let Some(table) = find(txn, key).await? else { continue };
        references::leave(run, txn, &table, &keys, true).await?;
        view::drop_with_views(run, txn, &table, &keys, true).await?;
    }
    for (name, contents) in dropped {
        for key in contents.sequences {
            sequence::drop_sequence(run, txn, key, true).await?;
        }
        if name == PUBLIC {
            meet_creators(txn).await?;
        }
        change(txn, of_txn, |all| {
            match &*name {
                PUBLIC => all.remove_public(),
                name => all.remove(name),
            }
            Ok(())
        })
        .await?;
    }
    let taken = lines.iter().filter_map(|line| line.split_once(" depends on "));
    let taken: Vec<String> = taken.map(|(what, _)| what.to_owned()).collect();
    skip::cascaded(run, &taken);
    Ok(())
}

/// Does not commit beside one that creates a table: who creates something in `public` does not keep
/// that as it is, and of two that create tables one fails. So this one creates one.
async fn meet_creators(txn: &mut Txn<'_>) -> SqlResult<()> {
    let name = aside(usize::MAX);
    let schema = TableSchema::new(&name).column("none", ColumnType::Bool).primary_key([0]);
    let table = txn.create_table(schema).await.map_err(of_txn)?;
    txn.drop_table(table).await.map_err(of_txn)
}

/// What depends on schemas, and on what, in lines.
async fn dependents(
    run: &Run,
    txn: &mut Txn<'_>,
    dropped: &[(String, Contents)],
    keys: &BTreeSet<String>,
) -> SqlResult<Vec<String>> {
    let mut lines = Vec::new();
    for (name, own) in dropped {
        lines.extend(own.lines(run, txn, &quoted(name), keys).await?);
    }
    Ok(lines)
}

fn check_empty(dropped: &[(String, Contents)], lines: &[String]) -> SqlResult<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let message = match dropped {
        [(name, _)] => {
            let name = quoted(name);
            format!("cannot drop schema {name} because other objects depend on it")
        }
        _ => "cannot drop desired object(s) because other objects depend on them".to_owned(),
    };
    let error = SqlError::new(SqlState::DEPENDENT_OBJECTS, message);
    Err(error.detail(lines.join("\n")).hint(HINT))
}

/// Changes a schema.
pub(super) async fn alter_schema(
    run: &Run,
    txn: &mut Txn<'_>,
    alter: &AlterSchema,
) -> SqlResult<()> {
    let AlterSchema { name, if_exists, operations } = alter;
    let old = schema_name(name)?;
    for operation in operations {
        match operation {
            AlterSchemaOperation::Rename { name } if !if_exists => {
                let new = schema_name(name)?;
                owned(run, &old)?;
                require_database(run)?;
                check_schema_name(&new)?;
                change(txn, of_txn, |all| all.rename(&old, &new)).await?;
                rename_in_texts(txn, &old, &new).await?;
            }
            AlterSchemaOperation::OwnerTo { owner } if !if_exists => {
                owned_id(run, &old)?;
                let owner = new_owner::new_owner(run, owner)?;
                require_database(run)?;
                if old == PUBLIC {
                    give_public(txn, owner).await?;
                    continue;
                }
                change(txn, of_txn, |all| {
                    all.find_mut(&old)?.rights.give_to(owner);
                    Ok(())
                })
                .await?;
            }
            other => return Err(SqlError::unsupported(format!("ALTER SCHEMA {other}"))),
        }
    }
    Ok(())
}

fn last_name(part: &ObjectNamePart) -> String {
    match part {
        ObjectNamePart::Identifier(name) => fold(name),
        ObjectNamePart::Function(_) => String::new(),
    }
}

/// Texts in the catalogue name a schema as it is called now.
async fn rename_in_texts(txn: &mut Txn<'_>, old: &str, new: &str) -> SqlResult<()> {
    texts::rename_sequences(txn, |parts, of_column| match parts {
        // Earlier versions wrote a dot in a name as it was.
        _ if of_column == Some(&*parts.join(".")) => None,
        [schema, name] if schema == old => Some(format!("{}.{}", quoted(new), quoted(name))),
        _ => None,
    })
    .await?;
    for (_, table) in load_all(txn).await.map_err(of_txn)? {
        let table = table?;
        let Some(own) = &table.view else { continue };
        let Statement::Query(mut query) = texts::query_of(&own.query)? else { continue };
        let mut is_named = texts::rename_qualifiers(&mut query, &mut |schema, _| {
            (schema == old).then(|| new.to_owned())
        });
        let _ = visit_relations_mut(&mut query, |name| {
            if let [ObjectNamePart::Identifier(schema), last] = &mut *name.0
                && fold(schema) == old
                // Earlier versions wrote a dot in a name as it was.
                && !own.uses.contains(&format!("{old}.{}", last_name(last)))
            {
                *schema = Ident::from(&*quoted(new));
                is_named = true;
            }
            ControlFlow::<()>::Continue(())
        });
        if is_named {
            let query = query.to_string();
            change_note(txn, &table, |note| {
                note.view.iter_mut().for_each(|own| own.query.clone_from(&query));
            })
            .await?;
        }
    }
    Ok(())
}

/// Sets the comment on a schema, or takes it away.
pub(super) async fn comment_on(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    text: Option<String>,
) -> SqlResult<()> {
    let (name, text) = (schema_name(name)?, text.filter(|text| !text.is_empty()));
    owned_id(run, &name)?;
    change(txn, of_txn, |all| {
        match &*name {
            PUBLIC => all.public_comment = text,
            name => all.find_mut(name)?.comment = text,
        }
        Ok(())
    })
    .await
}
