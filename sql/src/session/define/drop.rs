//! DROP TABLE and TRUNCATE.

use std::collections::BTreeSet;

use selkie_txn::Txn;
use sqlparser::ast::{self, ObjectName};

use super::super::run::Run;
use super::lookup::{find_named, found_named, last_part};
use super::{references, sequence, skip, view};
use crate::bind::refuse;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::roles::Privileges;

pub(super) async fn drop_tables(
    run: &Run,
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    let mut dropped = BTreeSet::new();
    for name in names {
        dropped.extend(find_to_drop(run, txn, name, if_exists).await?.map(|own| own.key));
    }
    let mut taken = Vec::new();
    for name in names {
        match find_to_drop(run, txn, name, if_exists).await? {
            Some(table) if table.view.is_some() => return Err(view::not_a(&table, "table")),
            Some(table) => {
                taken.extend(references::leave(run, txn, &table, &dropped, cascade).await?);
                let views = view::drop_with_views(run, txn, &table, &dropped, cascade).await?;
                taken.extend(views);
            }
            None if if_exists => skip::missing(run, "table", name)?,
            None => {
                let message = format!("table \"{}\" does not exist", last_part(name)?);
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
        }
    }
    skip::cascaded(run, &taken);
    Ok(())
}

/// What is to be dropped, if it is there. With IF EXISTS a schema that is not there is no error.
pub(super) async fn find_to_drop(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &ObjectName,
    if_exists: bool,
) -> SqlResult<Option<TableDef>> {
    match find_named(run, txn, name).await {
        Err(error) if if_exists && error.state() == SqlState::INVALID_SCHEMA_NAME => Ok(None),
        found => found,
    }
}

pub(super) async fn truncate(
    run: &Run,
    txn: &mut Txn<'_>,
    truncate: &ast::Truncate,
) -> SqlResult<()> {
    let ast::Truncate {
        table_names,
        partitions,
        table: _,
        if_exists,
        identity,
        cascade,
        on_cluster,
    } = truncate;
    let is_odd = partitions.is_some() || *if_exists || on_cluster.is_some();
    refuse(is_odd, "this form of TRUNCATE")?;
    let restarts = matches!(identity, Some(ast::TruncateIdentityOption::Restart));
    let mut tables = Vec::new();
    for own in table_names {
        let table = found_named(run, txn, &own.name).await?;
        if table.view.is_some() {
            return Err(view::not_a(&table, "table"));
        }
        tables.push(table);
    }
    let cascade = matches!(cascade, Some(ast::CascadeOption::Cascade));
    let named: BTreeSet<String> = tables.iter().map(|own| own.key.clone()).collect();
    for table in references::with_children(txn, tables, cascade).await? {
        // Also those that CASCADE adds.
        if !named.contains(&table.key) {
            let name = run.path.shown(&table.key);
            let message = format!("truncate cascades to table \"{name}\"");
            let notice = Notice::note(SqlState::SUCCESSFUL_COMPLETION, message);
            skip::tell(run, &notice);
        }
        let (kind, wanted) = (table.kind(), Privileges::TRUNCATE);
        run.authority()?.require(wanted, kind, &table.name, &table.rights)?;
        let emptied = txn.truncate(table.table).await;
        emptied.map_err(|error| from_txn(error, Some(&table)))?;
        if restarts {
            sequence::restart(txn, &table).await?;
        }
    }
    Ok(())
}
