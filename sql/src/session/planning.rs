//! The plan of a statement: the one that was made last, or a new one.

use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_txn::{Database, DefinitionId, SchemaError, Table, Txn, TxnError};
use sqlparser::ast::{Statement, visit_relations};

use super::parsed::{ParsedStatement, Planned, Verb};
use super::path::{CurrentPath, PathSource};
use crate::bind::{Binder, Bound, BoundCopy, changed_by, is_name};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::parse_depth::MAX_ENTRIES;
use crate::plan::{Plan, Statistics, optimize_by};
use crate::types::SqlType;

/// The plan of a statement, in the state of its tables that the transaction sees: the one that was
/// made last if it is right for that, else a new one.
pub(super) async fn plan_of(
    txn: &mut Txn<'_>,
    parsed: &ParsedStatement,
    types: &Arc<[Option<SqlType>]>,
    source: &PathSource<'_>,
) -> Result<SqlResult<Arc<Planned>>, TxnError> {
    // By the path that the session knows, and by what that is now.
    let mut now = None;
    for known in source.known().map(Some).into_iter().chain([None]) {
        let path = match known {
            Some(path) => path,
            None => match source.current(txn).await? {
                Ok(current) => Arc::clone(&now.insert(current).path),
                Err(error) => return Ok(Err(error)),
            },
        };
        if let Some(planned) = parsed.planned(types, &source.settings.format, &path)
            && is_right(txn, &planned).await?
        {
            match source.fits(txn, &planned).await? {
                Ok(true) => return Ok(Ok(planned)),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    let planned = plan_anew(txn, &parsed.statement, &parsed.sql, types, source, now);
    let planned = Box::pin(planned).await?;
    Ok(planned.map(|planned| {
        let planned = Arc::new(planned);
        parsed.keep(&planned);
        planned
    }))
}

/// A new plan of a statement, by the path that is right `now` if that is known.
pub(super) async fn plan_anew(
    txn: &mut Txn<'_>,
    statement: &Statement,
    sql: &str,
    types: &Arc<[Option<SqlType>]>,
    source: &PathSource<'_>,
    now: Option<CurrentPath>,
) -> Result<SqlResult<Planned>, TxnError> {
    let CurrentPath { path, schemas } = match now {
        Some(now) => now,
        None => match source.current(txn).await? {
            Ok(current) => current,
            Err(error) => return Ok(Err(error)),
        },
    };
    let format = &source.settings.format;
    let tables = match super::tables::load_tables(txn, statement, &path).await? {
        Ok(tables) => tables,
        Err(error) => return Ok(Err(error)),
    };
    let mut used = Vec::with_capacity(tables.defs.len());
    for table in tables.defs.values() {
        used.push((table.table, txn.definition_id(table.table).await?));
    }
    // One table alone is read in the same way whatever is known of it.
    let statistics = if used.len() > 1 || !used.is_empty() && names_several(statement) {
        statistics_of(source.database, &used).await?
    } else {
        Statistics::default()
    };
    let mut binder = Binder::new(sql, &tables, format, types);
    let bound = bind(&mut binder, statement).and_then(|(verb, bound)| {
        check_width(bound.columns.len())?;
        Ok((verb, bound))
    });
    Ok(bound.map(|(verb, Bound { plan, columns })| {
        let shows_names = columns.iter().any(|own| is_name(own.ty));
        Planned {
            types: Arc::clone(types),
            format: format.clone(),
            path: Arc::clone(&path),
            schemas,
            uses_path: binder.uses_path || binder.uses_catalogue || shows_names,
            absent: tables.absent.clone(),
            tables: used,
            parameters: binder.parameters,
            columns: columns.into(),
            plan: optimize_by(plan, &statistics),
            verb,
            uses_catalogue: binder.uses_catalogue || shows_names,
            needed: binder.needed,
        }
    }))
}

/// Whether a statement names tables more than once.
fn names_several(statement: &Statement) -> bool {
    let mut names = 0;
    let _ = visit_relations(statement, |_| {
        names += 1;
        ControlFlow::<()>::Continue(())
    });
    names > 1
}

/// What was found of tables when they were analyzed last.
pub(super) async fn statistics_of(
    database: &Database,
    tables: &[(Table, DefinitionId)],
) -> Result<Statistics, TxnError> {
    let mut statistics = Statistics::default();
    for (table, _) in tables {
        match database.statistics(*table).await {
            Ok(Some(found)) => statistics.add(*table, found),
            // It is new, or was dropped meanwhile; or what is kept cannot be read.
            Ok(None) | Err(TxnError::Schema(_) | TxnError::Catalogue(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(statistics)
}

/// Whether the tables of a plan are what they were when it was made, and there are none in their
/// place.
async fn is_right(txn: &mut Txn<'_>, planned: &Planned) -> Result<bool, TxnError> {
    for (table, definition) in &planned.tables {
        match txn.definition_id(*table).await {
            Ok(found) if found == *definition => {}
            Ok(_) | Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    for key in &planned.absent {
        match txn.table(key).await {
            Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn check_width(columns: usize) -> SqlResult<()> {
    if columns <= MAX_ENTRIES {
        return Ok(());
    }
    let message = format!("target lists can have at most {MAX_ENTRIES} entries");
    Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message))
}

/// Binds a statement with all that it changes.
fn bind(binder: &mut Binder<'_>, statement: &Statement) -> SqlResult<(Verb, Bound)> {
    binder.may_change = matches!(statement, Statement::Query(_) | Statement::Copy { .. });
    let (verb, mut bound) = bind_main(binder, statement)?;
    let changes = std::mem::take(&mut binder.changes);
    if !changes.is_empty() {
        let main = Box::new(std::mem::replace(&mut bound.plan, Plan::One));
        bound.plan = Plan::Together { changes, main };
    }
    Ok((verb, bound))
}

fn bind_main(binder: &mut Binder<'_>, statement: &Statement) -> SqlResult<(Verb, Bound)> {
    Ok(match statement {
        Statement::Query(query) => match changed_by(query) {
            Some(change) => {
                binder.before_change(query)?;
                return bind_main(binder, change);
            }
            None => (Verb::Select, binder.statement(query)?),
        },
        Statement::Insert(insert) => (Verb::Insert, binder.insert(insert)?),
        Statement::Update(update) => (Verb::Update, binder.update(update)?),
        Statement::Delete(delete) => (Verb::Delete, binder.delete(delete)?),
        Statement::Declare { stmts, separator: _ } => {
            let (new, bound) = binder.cursor(stmts)?;
            (Verb::Declare(Arc::new(new)), bound)
        }
        // The query that gives the values.
        Statement::Execute { parameters, .. } => {
            let name = super::execute::executed_name(statement)?;
            (Verb::Select, binder.given_values(&name, parameters)?)
        }
        copy @ Statement::Copy { .. } => {
            let BoundCopy { bound, out } = binder.copy(copy)?;
            (out.map_or(Verb::CopyIn, Verb::CopyOut), bound)
        }
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            return Err(SqlError::unsupported(words.join(" ").to_uppercase()));
        }
    })
}
