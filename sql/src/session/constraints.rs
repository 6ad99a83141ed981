//! SET CONSTRAINTS, and what is looked at when a transaction commits.

use std::sync::Arc;

use selkie_txn::Txn;
use sqlparser::ast::Expr;

use super::run::Run;
use super::{Session, TransactionState, Work};
use crate::bind::{fold, is_constraint};
use crate::catalogue::{TableDef, load_all, split_key};
use crate::client::Collected;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;

impl Session {
    /// SET CONSTRAINTS, as [`parse_set_constraints`](crate::parse_constraints) gives it.
    pub(super) async fn set_constraints(&mut self, values: &[Expr]) -> SqlResult<&'static str> {
        let tag = "SET CONSTRAINTS";
        if self.state != TransactionState::InTransaction {
            // As in PostgreSQL it is over with the statement.
            return Ok(tag);
        }
        let mut names = values.iter().map(|value| match value {
            Expr::Identifier(name) => Ok(vec![fold(name)]),
            Expr::CompoundIdentifier(names) => Ok(names.iter().map(fold).collect()),
            other => Err(SqlError::unsupported(format!("the constraint {other}"))),
        });
        let mode = names.next().transpose()?.unwrap_or_default();
        let is_deferred = mode.first().is_some_and(|mode| mode == "deferred");
        let names: Vec<Vec<String>> = names.collect::<SqlResult<_>>()?;
        let run = self.bare_run()?;
        let set = self.txn.run(move |txn| {
            Box::pin(async move { Ok(run.set_constraints(txn, &names, is_deferred).await) })
        });
        set.await.map_err(|error| from_txn(error, None))??;
        if !is_deferred {
            self.settle_deferred().await?;
            if self.savepoints.is_empty() {
                self.deferred.lock().clear();
            }
        }
        Ok(tag)
    }

    /// Looks at what constraints have put off.
    pub(super) async fn settle_deferred(&mut self) -> SqlResult<()> {
        if !self.deferred.lock().has_waiting() {
            return Ok(());
        }
        let run = self.bare_run()?;
        let settled = self
            .txn
            .run(move |txn| Box::pin(async move { Ok(run.settle_deferred(txn).await) }))
            .await;
        settled.map_err(|error| from_txn(error, None))?
    }

    /// What runs nothing of a client.
    pub(super) fn bare_run(&mut self) -> SqlResult<Run> {
        let statements = self.plans.statements("commit")?;
        let Some(parsed) = statements.first() else {
            return Err(SqlError::internal("COMMIT is no statement"));
        };
        Ok(self.new_run(&Work::of(parsed), &(Arc::new(Collected::default()) as _), false))
    }
}

impl Run {
    async fn set_constraints(
        &self,
        txn: &mut Txn<'_>,
        names: &[Vec<String>],
        is_deferred: bool,
    ) -> SqlResult<()> {
        if names.is_empty() {
            self.deferred.lock().modes().set_all(is_deferred);
            return Ok(());
        }
        let current =
            self.path_source().current(txn).await.map_err(|error| from_txn(error, None))??;
        let path = current.path;
        let tables = load_all(txn).await.map_err(|error| from_txn(error, None))?;
        for name in names {
            let last = name.last().map_or("", |last| &**last);
            let (mut is_there, mut found) = (false, false);
            for place in path.keys_of(name)? {
                let (schema, _) = split_key(&place);
                let has_one = |(key, table): &(&String, &TableDef)| {
                    split_key(key).0 == schema && is_constraint(table, last)
                };
                let all = tables.iter().filter_map(|(key, own)| Some((key, own.as_ref().ok()?)));
                for (key, table) in all.filter(has_one) {
                    is_there = true;
                    let mut own = table.foreign_keys.iter().filter(|own| own.name == last);
                    if own.any(|own| own.is_deferrable) {
                        found = true;
                        self.deferred.lock().modes().set(key, last, is_deferred);
                    }
                }
                // Those of the first schema that has some.
                if is_there {
                    break;
                }
            }
            let (state, what) = match (is_there, found) {
                (_, true) => continue,
                (true, _) => (SqlState::WRONG_OBJECT_TYPE, "is not deferrable"),
                _ => (SqlState::UNDEFINED_OBJECT, "does not exist"),
            };
            return Err(SqlError::new(state, format!("constraint \"{last}\" {what}")));
        }
        Ok(())
    }
}
