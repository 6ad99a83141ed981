//! ALTER TABLE, VIEW and SEQUENCE with SET SCHEMA.

use std::sync::Arc;

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{self, AlterViewOperation, ObjectName, Query, Statement};

use super::super::run::Run;
use super::super::tables::load_key;
use super::alter::Alteration;
use super::drop::find_to_drop;
use super::lookup::{change_note, find, found, hold, key_in, require_create};
use super::{names, new_owner, owner, sequence, skip, texts, view};
use crate::bind::{Binder, is_system_schema, name_parts, no_relation, with_schemas};
use crate::catalogue::{SchemaId, TableDef, name_of, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::parse_schemas::{SEQUENCE, TABLE, VIEW};
use crate::roles::maybe_changed;
use crate::schemas::SearchPath;

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

/// Changes a view, or puts what is named into another schema
/// ([`parse_schemas`](crate::parse_schemas)). What it says in the end.
pub(super) async fn alter_view(
    run: &Run,
    txn: &mut Txn<'_>,
    alter: &ast::AlterView,
) -> SqlResult<&'static str> {
    let ast::AlterView { materialized, name, if_exists, operation } = alter;
    let schema_name = match operation {
        AlterViewOperation::SetSchema { schema_name } => schema_name,
        AlterViewOperation::OwnerTo(owner) if !materialized => {
            let view = find_to_drop(run, txn, name, *if_exists).await?;
            match view {
                Some(view) if view.view.is_none() => return Err(view::not_a(&view, "view")),
                Some(view) => new_owner::give_table(run, txn, &view, owner).await?,
                None if *if_exists => skip::missing_relation(run, name)?,
                None => return Err(no_relation(&name_parts(name)?)),
            }
            return Ok("ALTER VIEW");
        }
        _ => return Err(SqlError::unsupported(format!("ALTER VIEW {operation}"))),
    };
    let (schema, kind) = match &*name_parts(schema_name)? {
        [schema, kind] if !materialized && [TABLE, VIEW, SEQUENCE].contains(&&**kind) => {
            (schema.clone(), kind.clone())
        }
        _ => return Err(SqlError::unsupported("this form of ALTER VIEW")),
    };
    if kind == SEQUENCE {
        move_named_sequence(run, txn, name, *if_exists, &schema).await?;
        return Ok("ALTER SEQUENCE");
    }
    let tag = if kind == VIEW { "ALTER VIEW" } else { "ALTER TABLE" };
    let Some(table) = find_to_drop(run, txn, name, *if_exists).await? else {
        if *if_exists {
            skip::missing_relation(run, name)?;
            return Ok(tag);
        }
        return Err(no_relation(&name_parts(name)?));
    };
    if kind == VIEW && table.view.is_none() {
        return Err(view::not_a(&table, "view"));
    }
    let to = target(run, &schema)?;
    if split_key(&table.key).0 != to {
        move_table(run, txn, table, to).await?;
    }
    Ok(tag)
}

/// The schema that something is to be put into.
fn target(run: &Run, schema: &str) -> SqlResult<SchemaId> {
    if is_system_schema(schema) {
        return Err(SqlError::unsupported("another table in a schema of the system"));
    }
    let id = run.path.id(schema)?;
    require_create(run, id)?;
    Ok(id)
}

async fn move_table(run: &Run, txn: &mut Txn<'_>, table: TableDef, to: SchemaId) -> SqlResult<()> {
    let key = free_key(run, txn, to, &table.name).await?;
    // Its indexes go with it.
    let primary =
        (table.view.is_none() && !table.has_hidden_key()).then(|| table.primary_key_name());
    for name in table.indexes.iter().map(|own| &own.name).chain(&primary) {
        free_key(run, txn, to, name).await?;
    }
    hold(txn).await?;
    let sequences = sequence::sequences_of(&table);
    let moved: Vec<(String, String)> = {
        let mut all = Vec::new();
        for own in sequences {
            let new = free_key(run, txn, to, name_of(&own)).await?;
            all.push((own, new));
        }
        all
    };
    // Their queries are read while the table has its old name.
    let views = users(run, txn, &table.key, &key).await?;
    let old = table.key.clone();
    let mut alteration = Alteration { run, txn: &mut *txn, key: old.clone(), table };
    alteration.take_name(key.clone()).await?;
    for (view, query) in views {
        let Some(view) = find(txn, &view).await? else { continue };
        change_note(txn, &view, |note| {
            if let Some(own) = &mut note.view {
                own.query.clone_from(&query);
                own.uses.remove(&old);
                own.uses.insert(key.clone());
            }
        })
        .await?;
    }
    for (from, new) in moved {
        let table = found(txn, &key).await?;
        rename_in_columns(run, txn, &table, &from, &new).await?;
        move_sequence(run, txn, &from, &new).await?;
    }
    Ok(())
}

/// A sequence of a column of a table gets another name in the catalogue.
pub(super) async fn rename_in_columns(
    run: &Run,
    txn: &mut Txn<'_>,
    table: &TableDef,
    from: &str,
    new: &str,
) -> SqlResult<()> {
    let mut takes = false;
    for own in table.columns.iter().filter(|own| own.sequence.as_deref() == Some(from)) {
        let default = own.default.as_deref().unwrap_or("NULL");
        takes |= texts::takes_from(run, default, Some(from), from)?;
    }
    change_note(txn, table, |note| {
        let columns = note.columns.values_mut();
        for own in columns.filter(|own| own.sequence.as_deref() == Some(from)) {
            own.sequence = Some(new.to_owned());
            if takes {
                own.default = Some(texts::next_value_of(&run.path.written(new)));
            }
        }
    })
    .await
}

/// The name in the catalogue of what is put into a schema.
async fn free_key(run: &Run, txn: &mut Txn<'_>, to: SchemaId, name: &str) -> SqlResult<String> {
    let key = key_in(to, name)?;
    if names::is_relation(txn, &key).await? {
        let schema = run.path.name(to);
        let message = format!("relation \"{name}\" already exists in schema \"{schema}\"");
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
    }
    Ok(key)
}

/// The views whose queries name a table, and these queries with its new name in the catalogue.
async fn users(
    run: &Run,
    txn: &mut Txn<'_>,
    key: &str,
    new: &str,
) -> SqlResult<Vec<(String, String)>> {
    let mut all = Vec::new();
    let stored = Arc::new(SearchPath::stored(run.path.schemas().cloned()));
    for (name, table) in view::views_over(txn, key).await? {
        let Some(own) = table.view.filter(|own| own.uses.contains(key)) else { continue };
        let Statement::Query(query) = texts::query_of(&own.query)? else { continue };
        let tables = load_key(txn, &name, &stored).await.map_err(of_txn)??;
        let mut binder = Binder::new(&own.query, &tables, &run.settings.format, &[]);
        binder.uses = Some(&own.uses);
        binder.named = Some(Vec::new());
        binder.statement(&query)?;
        let mut named = binder.named.take().unwrap_or_default();
        named.retain(|(_, own)| own == key);
        named.iter_mut().for_each(|(_, own)| new.clone_into(own));
        let mut query: Query = with_schemas(&query, &named, |id| run.path.name(id).to_owned());
        let ((old, table), (to, _)) = (split_key(key), split_key(new));
        let (old, to) = (run.path.name(old), run.path.name(to));
        texts::rename_qualifiers(&mut query, &mut |schema, own| {
            (schema == old && own == table).then(|| to.to_owned())
        });
        all.push((name, query.to_string()));
    }
    Ok(all)
}

async fn move_named_sequence(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    if_exists: bool,
    schema: &str,
) -> SqlResult<()> {
    let Some(key) = sequence::find_sequence(run, txn, name, if_exists).await? else {
        return match if_exists {
            true => skip::missing_relation(run, name),
            false => Err(no_relation(&name_parts(name)?)),
        };
    };
    owner::require_owner_of_sequence(run, txn, name).await?;
    let to = target(run, schema)?;
    for (_, table) in crate::catalogue::load_all(txn).await.map_err(of_txn)? {
        let table = table?;
        if sequence::sequences_of(&table).contains(&key) {
            let message = "cannot move an owned sequence into another schema";
            let (name, table) = (name_of(&key), &table.name);
            let detail = format!("Sequence \"{name}\" is linked to table \"{table}\".");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).detail(detail));
        }
    }
    if split_key(&key).0 == to {
        return Ok(());
    }
    let new = free_key(run, txn, to, name_of(&key)).await?;
    hold(txn).await?;
    move_sequence(run, txn, &key, &new).await
}

/// Gives a sequence another name in the catalogue, with its rights, where defaults name it, too.
pub(super) async fn move_sequence(
    run: &Run,
    txn: &mut Txn<'_>,
    key: &str,
    new: &str,
) -> SqlResult<()> {
    let renamed = txn.alter_sequence(key, |own| new.clone_into(&mut own.name), None).await;
    renamed.map_err(of_txn)?;
    let stored = SearchPath::stored(run.path.schemas().cloned());
    let written = run.path.written(new);
    texts::rename_sequences(txn, |parts, of_column| {
        // Earlier versions wrote a dot in a name as it was.
        let is_it = match of_column {
            Some(own) if own == parts.join(".") => own == key,
            _ => stored.keys_of(parts).ok()?.iter().any(|own| own == key),
        };
        is_it.then(|| written.clone())
    })
    .await?;
    maybe_changed(
        txn,
        of_txn,
        |roles| roles.sequences.contains_key(key),
        |roles| {
            if let Some(rights) = roles.sequences.remove(key) {
                roles.sequences.insert(new.to_owned(), rights);
            }
        },
    )
    .await?;
    crate::schemas::maybe_changed(
        txn,
        of_txn,
        |all| all.comments.sequences.contains_key(key),
        |all| {
            if let Some(comment) = all.comments.sequences.remove(key) {
                all.comments.sequences.insert(new.to_owned(), comment);
            }
        },
    )
    .await
}
