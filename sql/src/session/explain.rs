//! EXPLAIN.

use std::sync::Arc;

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{self, AnalyzeFormatKind, Statement, UtilityOption};

use super::Ran;
use super::parsed::{Planned, Verb};
use super::planning::{plan_anew, statistics_of};
use super::run::Run;
use super::transaction::check_writes;
use crate::bind::{OutputColumn, fold, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::explain::{lines, measured};
use crate::plan::Statistics;
use crate::types::{Datum, SqlType};

/// What is to be explained, and whether it is run.
pub(super) struct Explain<'s> {
    statement: &'s Statement,
    analyze: bool,
    /// Whether it is shown how many rows each node is supposed to give.
    costs: bool,
}

/// The columns of what EXPLAIN gives.
pub(super) fn columns() -> Arc<[OutputColumn]> {
    [OutputColumn::new("QUERY PLAN", SqlType::TEXT)].into()
}

/// What a statement wants explained; `None` if it is no EXPLAIN.
pub(super) fn explained(statement: &Statement) -> SqlResult<Option<Explain<'_>>> {
    let Statement::Explain {
        describe_alias,
        analyze,
        verbose: _,
        query_plan,
        estimate,
        statement,
        format,
        options,
    } = statement
    else {
        return Ok(None);
    };
    let is_explain = matches!(describe_alias, ast::DescribeAlias::Explain);
    refuse(!is_explain || *query_plan || *estimate, "this form of EXPLAIN")?;
    let is_text = |format: &AnalyzeFormatKind| {
        let (AnalyzeFormatKind::Keyword(format) | AnalyzeFormatKind::Assignment(format)) = format;
        matches!(format, ast::AnalyzeFormat::TEXT)
    };
    refuse(!format.as_ref().is_none_or(is_text), "a format of EXPLAIN other than TEXT")?;
    let (mut analyze, mut costs) = (*analyze, true);
    for option in options.iter().flatten() {
        let UtilityOption { name, arg } = option;
        let value = arg.as_ref().map(ToString::to_string).map(|arg| arg.to_lowercase());
        let is_on = !matches!(value.as_deref(), Some("false" | "off" | "0"));
        match &*fold(name) {
            "analyze" => analyze = is_on,
            "format" => refuse(value.as_deref() != Some("text"), "a format other than TEXT")?,
            "costs" => costs = is_on,
            // What the others would add or leave out is always there.
            "verbose" | "settings" | "buffers" | "timing" | "summary" | "wal" => {}
            other => {
                let message = format!("unrecognized EXPLAIN option \"{other}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        }
    }
    Ok(Some(Explain { statement, analyze, costs }))
}

impl Run {
    /// Explains a statement.
    pub(super) async fn explain(
        &self,
        txn: &mut Txn<'_>,
        explain: &Explain<'_>,
    ) -> Result<SqlResult<Ran>, TxnError> {
        let Explain { statement, analyze, costs } = explain;
        if let Statement::Execute { .. } = statement {
            let work = match Box::pin(self.named_work(txn, statement)).await? {
                Ok(work) => work,
                Err(error) => return Ok(Err(error)),
            };
            let (parsed, mut run) = (Arc::clone(&work.parsed), self.clone());
            run.work = work;
            let named = Explain { statement: &parsed.statement, analyze: *analyze, costs: *costs };
            return Box::pin(run.explain(txn, &named)).await;
        }
        let sql = &self.work.parsed.sql;
        let source = self.path_source();
        let planned = match plan_anew(txn, statement, sql, &self.work.types, &source, None).await? {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        let run = match self.allowed(txn, &planned).await? {
            Ok(run) => run,
            Err(error) => return Ok(Err(error)),
        };
        let statistics = if *costs {
            statistics_of(&self.database, &planned.tables).await?
        } else {
            Statistics::default()
        };
        if !analyze {
            return Ok(self.show(lines(&planned.plan, &[], &statistics)).await);
        }
        if let Err(error) = check_writes(self.modes, statement, &planned.verb) {
            return Ok(Err(error));
        }
        if matches!(planned.verb, Verb::CopyIn) {
            return Ok(Err(SqlError::unsupported("EXPLAIN ANALYZE of COPY")));
        }
        let (plan, _) = measured(planned.plan.clone());
        let planned = Planned { plan, ..planned };
        let before = self.env.now();
        let run = run.unwrap_or_else(|| self.clone());
        let run = match planned.uses_catalogue {
            true => match run.with_catalogue(txn, &planned.path).await? {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            },
            false => run,
        };
        let (counted, did) = self.database.engine().account(run.measure(txn, &planned)).await;
        let counted = match counted {
            Ok(counted) => counted,
            Err(error) => return Ok(Err(error)),
        };
        let took = self.env.now().saturating_sub(before);
        let mut text = lines(&planned.plan, &counted, &statistics);
        text.push(format!(
            "Pages: {} cache hits, {} fetched, {} rights to write, {} read ahead",
            did.hits, did.misses, did.upgrades, did.prefetches
        ));
        text.push(format!(
            "Network: {} round trips, {} invalidations",
            did.round_trips, did.invalidations_sent
        ));
        text.push(format!("Execution Time: {:.3} ms", took.as_secs_f64() * 1e3));
        Ok(self.show(text).await)
    }

    async fn show(&self, text: Vec<String>) -> SqlResult<Ran> {
        self.client.begin(&columns(), &self.settings.format);
        let rows = text.into_iter().map(|line| vec![Datum::text(line)]);
        self.client.rows(rows.collect()).await?;
        Ok(Ran::Done("EXPLAIN".to_owned()))
    }
}
