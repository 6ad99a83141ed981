//! ANALYZE and VACUUM.

use std::time::Duration;

use selkie_txn::{AnalyzeOptions, SchemaError, Table, Txn, TxnError};
use sqlparser::ast;

use super::path::CurrentPath;
use super::run::Run;
use super::{Session, TransactionState};
use crate::bind::{fold, name_parts, no_relation};
use crate::catalogue::load;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;

/// How long VACUUM works on trees at most.
const MAINTENANCE: Duration = Duration::from_secs(2);

impl Session {
    /// Finds out what the rows of tables are like, or of all tables. It is no part of the
    /// transaction: what it finds is kept whatever becomes of that. VACUUM does what transactions
    /// have left to trees besides, such as separators of leaves that were split.
    pub(super) async fn analyze(&mut self, analyze: &ast::Analyze) -> SqlResult<&'static str> {
        let is_vacuum = analyze.compute_statistics;
        if is_vacuum {
            self.not_in_transaction("VACUUM")?;
        }
        let named = named_tables(analyze)?;
        if analyze.noscan && named.iter().any(|(_, columns)| !columns.is_empty()) {
            let message = "ANALYZE option must be specified when a column list is provided";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let database = self.txn.database().clone();
        let is_all = named.is_empty();
        let mut tables: Vec<Table> = Vec::new();
        for (name, columns) in named {
            tables.push(self.table_named(name, columns).await?);
        }
        if is_all {
            tables.extend(database.tables());
        }
        if is_vacuum {
            self.unless_ended(database.maintain(MAINTENANCE)).await?;
        }
        for table in tables.into_iter().filter(|_| !analyze.noscan) {
            let analyzed = database.analyze(table, AnalyzeOptions::default());
            match self.unless_ended(analyzed).await? {
                // One that was dropped meanwhile.
                Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) if is_all => {}
                found => drop(found.map_err(|error| from_txn(error, None))?),
            }
        }
        if !analyze.noscan {
            self.plans.forget_plans();
        }
        Ok(if is_vacuum { "VACUUM" } else { "ANALYZE" })
    }

    /// The table of a name, which has these columns.
    async fn table_named(&mut self, parts: Vec<String>, columns: Vec<String>) -> SqlResult<Table> {
        let is_alone = self.state == TransactionState::Idle;
        if is_alone {
            self.begin_to_look()?;
        }
        let run = self.bare_run()?;
        let found = self.txn.run(move |txn| {
            Box::pin(async move {
                txn.begin_statement()?;
                let found = run.table_named(txn, &parts, &columns).await;
                txn.end_statement();
                found
            })
        });
        let found = found.await;
        if is_alone {
            self.end_failed().await?;
        }
        found.map_err(|error| from_txn(error, None))?
    }
}

/// The tables that are named, and columns of them.
fn named_tables(analyze: &ast::Analyze) -> SqlResult<Vec<(Vec<String>, Vec<String>)>> {
    let mut named = Vec::new();
    if let Some(name) = &analyze.table_name {
        named.push((name_parts(name)?, analyze.columns.iter().map(fold).collect()));
    }
    for other in analyze.partitions.iter().flatten() {
        let ast::Expr::Tuple(parts) = other else { continue };
        let mut parts = parts.iter().map(|part| match part {
            ast::Expr::CompoundIdentifier(name) => name.iter().map(fold).collect(),
            ast::Expr::Identifier(column) => vec![fold(column)],
            _ => Vec::new(),
        });
        let name = parts.next().unwrap_or_default();
        named.push((name, parts.flatten().collect()));
    }
    Ok(named)
}

impl Run {
    async fn table_named(
        &self,
        txn: &mut Txn<'_>,
        parts: &[String],
        columns: &[String],
    ) -> Result<SqlResult<Table>, TxnError> {
        let current = self.path_source().current(txn).await?;
        let keys = match current.and_then(|CurrentPath { path, .. }| {
            if let [schema, _] = parts {
                path.id(schema)?;
            }
            path.keys_of(parts)
        }) {
            Ok(keys) => keys,
            Err(error) => return Ok(Err(error)),
        };
        for key in keys {
            let Some(found) = load(txn, &key).await? else { continue };
            return Ok(found.and_then(|table| {
                for name in columns {
                    if table.column(name).is_none() {
                        let table = &table.name;
                        let message =
                            format!("column \"{name}\" of relation \"{table}\" does not exist");
                        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
                    }
                }
                Ok(table.table)
            }));
        }
        Ok(Err(no_relation(parts)))
    }
}
