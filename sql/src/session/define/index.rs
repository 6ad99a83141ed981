//! CREATE, DROP and ALTER INDEX.

use std::sync::Arc;

use selkie_txn::{IndexSchema, NewIndex, Txn};
use sqlparser::ast::{self, AlterIndexOperation, ObjectName};

use super::super::Ran;
use super::super::build_index::NewIndexBuild;
use super::super::run::Run;
use super::lookup::{
    already_exists, bound, change_note, find, found, keys_of, last_part, schema_of,
};
use super::rebuild::{NewForm, rebuild};
use super::{names, references, skip};
use crate::bind::{
    Binder, check_name, check_operator_class, index_column, is_index_parameter, made_name,
    name_parts, no_relation, refuse,
};
use crate::catalogue::{TableDef, load_all, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;

/// What is to be built.
struct BoundIndex {
    key: String,
    /// As it is said.
    name: Option<String>,
    /// What it is called if nothing is said.
    base: String,
    /// Without its name.
    index: IndexSchema,
}

pub(super) async fn create_index(
    run: &Run,
    txn: &mut Txn<'_>,
    create: &ast::CreateIndex,
) -> SqlResult<Ran> {
    let done = Ran::Done("CREATE INDEX".to_owned());
    if create.concurrently && !run.is_alone {
        let message = "CREATE INDEX CONCURRENTLY cannot run inside a transaction block";
        return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
    }
    let BoundIndex { key, name, base, index } =
        bound(run, txn, |binder| bind_index(binder, create)).await?;
    let table = found(txn, &key).await?;
    let named = names::of_index(txn, (&key, table.table), name.as_deref(), &base).await;
    let name = match named {
        Err(error) if create.if_not_exists && error.state() == SqlState::DUPLICATE_TABLE => {
            skip::skipped(run, &error);
            return Ok(done);
        }
        named => named?,
    };
    check_name(&name)?;
    let index = IndexSchema { name, ..index };
    if run.is_alone {
        let index = by_names(&table, &index);
        let (table, is_concurrent) = (Arc::new(table), create.concurrently);
        return Ok(Ran::BuildIndex(NewIndexBuild { table, index, is_concurrent }));
    }
    // What is built while others change the table is not taken back by a rollback.
    let (schema, note) = schema_of(txn, &table).await?;
    let mut form = NewForm::of(schema, note);
    form.schema.indexes.push(index);
    rebuild(run, txn, &table, &key, form).await?;
    Ok(done)
}

/// An index that is built in transactions of its own, in which the columns may have moved.
fn by_names(table: &TableDef, index: &IndexSchema) -> NewIndex {
    let columns = index.columns.iter().filter_map(|at| table.columns.get(*at));
    let mut new = NewIndex::new(&index.name, columns.map(|own| own.name.clone()));
    new = new.order(index.order.clone());
    if index.unique {
        new = new.unique();
    }
    if index.nulls_distinct { new.nulls_distinct() } else { new }
}

fn bind_index(binder: &mut Binder<'_>, create: &ast::CreateIndex) -> SqlResult<BoundIndex> {
    let ast::CreateIndex {
        name,
        table_name,
        using,
        columns,
        unique,
        concurrently: _,
        r#async,
        if_not_exists: _,
        include,
        nulls_distinct,
        with,
        predicate,
        index_options,
        alter_options,
    } = create;
    let is_odd = *r#async
        || !include.is_empty()
        || !with.iter().all(is_index_parameter)
        || !index_options.is_empty()
        || !alter_options.is_empty();
    refuse(is_odd, "this form of CREATE INDEX")?;
    refuse(predicate.is_some(), "an index over some rows")?;
    let is_tree = matches!(using, None | Some(ast::IndexType::BTree));
    refuse(!is_tree, "an index that is no btree")?;
    let table = binder.table(table_name)?;
    let key = table.key.clone();
    let (mut order, mut names, mut positions) = (Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        let (name, direction, class) = index_column(column)?;
        let missing = || {
            let message = format!("column \"{name}\" does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        };
        let at = table.column(&name).ok_or_else(missing)?;
        if let (Some(class), Some(own)) = (class, table.columns.get(at)) {
            check_operator_class(class, own.ty)?;
        }
        positions.push(at);
        order.push(direction);
        names.push(name);
    }
    let name = match name.as_ref().map(name_parts).transpose()?.as_deref() {
        None => None,
        Some([name]) => Some(name.clone()),
        // It is in the schema of its table.
        Some(_) => {
            let message = "syntax error at or near \".\"";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
    };
    let base = made_name(&table.name, &names.join("_"), "idx");
    let mut index = IndexSchema::new(String::new(), positions).order(order);
    if *unique {
        index = index.unique();
    }
    if *unique && *nulls_distinct != Some(false) {
        index = index.nulls_distinct();
    }
    Ok(BoundIndex { key, name, base, index })
}

pub(super) async fn drop_indexes(
    run: &Run,
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    for name in names {
        let found = match index_of(run, txn, name).await {
            Err(error) if if_exists && error.state() == SqlState::INVALID_SCHEMA_NAME => None,
            found => found?,
        };
        let Some(FoundIndex { table, name: index, is_complete }) = found else {
            if if_exists {
                skip::missing(run, "index", name)?;
                continue;
            }
            let message = format!("index \"{}\" does not exist", last_part(name)?);
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        if !is_complete {
            // Nothing is said of it anywhere else.
            let dropped = txn.drop_index(table.table, &index).await;
            dropped.map_err(|error| from_txn(error, Some(&table)))?;
            continue;
        }
        let own = table.indexes.iter().find(|own| own.name == index);
        if own.is_none_or(|own| own.is_constraint) {
            let owner = &table.name;
            let message = format!(
                "cannot drop index {index} because constraint {index} on table {owner} requires it"
            );
            let hint = format!("You can drop constraint {index} on table {owner} instead.");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).hint(hint));
        }
        let at = table.indexes.iter().position(|own| own.name == index);
        references::leave_key(run, txn, &table, at, &format!("index {index}"), cascade).await?;
        change_note(txn, &table, |note| note.comments.drop_constraint(&index)).await?;
        let dropped = txn.drop_index(table.table, &index).await;
        dropped.map_err(|error| from_txn(error, Some(&table)))?;
    }
    Ok(())
}

pub(super) async fn rename_index(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    operation: &AlterIndexOperation,
) -> SqlResult<()> {
    let AlterIndexOperation::RenameIndex { index_name } = operation;
    let new = match &*name_parts(index_name)? {
        [name] => name.clone(),
        _ => return Err(SqlError::unsupported("another schema for an index")),
    };
    let Some((table, index)) = table_of(run, txn, name).await? else {
        return Err(no_relation(&name_parts(name)?));
    };
    rename_in(txn, &table, &index, new).await
}

/// Gives an index, or the primary key, another name.
pub(super) async fn rename_in(
    txn: &mut Txn<'_>,
    table: &TableDef,
    index: &str,
    new: String,
) -> SqlResult<()> {
    check_name(&new)?;
    if names::is_relation(txn, &split_key(&table.key).0.key(&new)).await? {
        return Err(already_exists(&new));
    }
    if !table.indexes.iter().any(|own| own.name == index) {
        return change_note(txn, table, |note| {
            note.comments.rename_constraint(index, &new);
            note.primary_key_name = Some(new);
        })
        .await;
    }
    let renamed = txn.rename_index(table.table, index, &new).await;
    renamed.map_err(|error| from_txn(error, Some(table)))?;
    change_note(txn, table, |note| {
        note.comments.rename_constraint(index, &new);
        if note.unique.remove(index) {
            note.unique.insert(new);
        }
    })
    .await
}

/// An index, or a primary key, with its name in its table.
pub(super) struct FoundIndex {
    pub(super) table: TableDef,
    pub(super) name: String,
    /// If not, it is being built, or was left by who built it.
    pub(super) is_complete: bool,
}

/// As [`table_of`], and also finds an index that is not complete, if there is no other.
pub(super) async fn index_of(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
) -> SqlResult<Option<FoundIndex>> {
    if let Some((table, name)) = table_of(run, txn, name).await? {
        return Ok(Some(FoundIndex { table, name, is_complete: true }));
    }
    let failed = |error| from_txn(error, None);
    let all = load_all(txn).await.map_err(failed)?;
    for key in keys_of(run, name)? {
        let (schema, index) = split_key(&key);
        for (key, table) in all.iter().filter(|(key, _)| split_key(key).0 == schema) {
            let Ok(table) = table else { continue };
            let left = txn.incomplete_indexes(table.table).await.map_err(failed)?;
            if left.iter().any(|own| own == index) {
                let Some(table) = find(txn, key).await? else { continue };
                return Ok(Some(FoundIndex { table, name: index.to_owned(), is_complete: false }));
            }
        }
    }
    Ok(None)
}

/// The table that has an index of this name, or a primary key, and its name there.
pub(super) async fn table_of(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
) -> SqlResult<Option<(TableDef, String)>> {
    let mut all = Vec::new();
    for (key, table) in load_all(txn).await.map_err(|error| from_txn(error, None))? {
        all.push((split_key(&key).0, table?));
    }
    for key in keys_of(run, name)? {
        let (schema, index) = split_key(&key);
        let has = |table: &TableDef| {
            let is_key = table.view.is_none()
                && !table.has_hidden_key()
                && table.primary_key_name() == index;
            is_key || table.indexes.iter().any(|own| own.name == index)
        };
        if let Some(at) = all.iter().position(|(own, table)| *own == schema && has(table)) {
            return Ok(Some((all.swap_remove(at).1, index.to_owned())));
        }
    }
    Ok(None)
}
