//! ANALYZE.

use selkie_txn::{AnalyzeOptions, SchemaError, Table, Txn, TxnError};
use sqlparser::ast;

use super::path::CurrentPath;
use super::run::Run;
use super::{Session, TransactionState};
use crate::bind::{name_parts, no_relation, refuse};
use crate::error::SqlResult;
use crate::exec::from_txn;

impl Session {
    /// Finds out what the rows of a table are like, or of all tables. It is no part of the
    /// transaction: what it finds is kept whatever becomes of that.
    pub(super) async fn analyze(&mut self, analyze: &ast::Analyze) -> SqlResult<&'static str> {
        let ast::Analyze {
            table_name,
            partitions,
            for_columns,
            columns: _,
            cache_metadata,
            noscan,
            compute_statistics,
            has_table_keyword,
        } = analyze;
        let is_odd = partitions.is_some()
            || *for_columns
            || *cache_metadata
            || *noscan
            || *has_table_keyword;
        refuse(is_odd, "this form of ANALYZE")?;
        let database = self.txn.database().clone();
        let tables: Vec<Table> = match table_name {
            Some(name) => vec![self.table_named(name_parts(name)?).await?],
            None => database.tables().collect(),
        };
        for table in tables {
            let analyzed = database.analyze(table, AnalyzeOptions::default());
            match self.unless_ended(analyzed).await? {
                // One that was dropped meanwhile.
                Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) if table_name.is_none() => {}
                found => drop(found.map_err(|error| from_txn(error, None))?),
            }
        }
        Ok(if *compute_statistics { "VACUUM" } else { "ANALYZE" })
    }

    /// The table of a name.
    async fn table_named(&mut self, parts: Vec<String>) -> SqlResult<Table> {
        let is_alone = self.state == TransactionState::Idle;
        if is_alone {
            self.begin(self.settings.isolation, true)?;
        }
        let run = self.bare_run()?;
        let found = self.txn.run(move |txn| {
            Box::pin(async move {
                txn.begin_statement()?;
                let found = run.table_named(txn, &parts).await;
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

impl Run {
    async fn table_named(
        &self,
        txn: &mut Txn<'_>,
        parts: &[String],
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
            match txn.table(&key).await {
                Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => {}
                found => return found.map(Ok),
            }
        }
        Ok(Err(no_relation(parts)))
    }
}
