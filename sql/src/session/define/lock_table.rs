//! LOCK TABLE.
//!
//! Who changes a table has no lock of it until the commit, which waits for the lock of the whole
//! table if another transaction has that: so the modes from SHARE on, which keep others from
//! changing the table, are that lock. The weaker ones keep others from nothing that a statement in
//! the transaction does not keep them from anyway: a transaction that has used a table fails if
//! that was changed. Readers wait for nobody, so they cannot be kept out.

use std::sync::Arc;

use selkie_txn::{LockOutcome, LockWait, Txn, TxnError};
use sqlparser::ast::{Lock, LockTableMode};

use super::super::Ran;
use super::super::run::Run;
use super::lookup::found_named;
use crate::bind::refuse;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::roles::{Privileges, no_privilege};

impl Run {
    /// Locks tables to the end of the transaction.
    pub(in crate::session) async fn lock_tables(
        &self,
        txn: &mut Txn<'_>,
        statement: &Lock,
    ) -> Result<SqlResult<Ran>, TxnError> {
        self.client.begin(&Arc::default(), &self.settings.format);
        let run = match self.with_authority(txn).await? {
            Ok(run) => run,
            Err(error) => return Ok(Err(error)),
        };
        Ok(match run.with_path(txn).await? {
            Ok(run) => lock(&run, txn, statement).await,
            Err(error) => Err(error),
        })
    }
}

async fn lock(run: &Run, txn: &mut Txn<'_>, lock: &Lock) -> SqlResult<Ran> {
    if run.is_alone {
        let message = "LOCK TABLE can only be used in transaction blocks";
        return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message));
    }
    let mode = lock.lock_mode.as_ref().unwrap_or(&LockTableMode::AccessExclusive);
    let keeps_writers = match mode {
        LockTableMode::AccessShare | LockTableMode::RowShare | LockTableMode::RowExclusive => false,
        LockTableMode::Share | LockTableMode::ShareRowExclusive | LockTableMode::Exclusive => true,
        LockTableMode::ShareUpdateExclusive | LockTableMode::AccessExclusive => {
            return Err(SqlError::unsupported(format!("LOCK TABLE IN {mode} MODE"))
                .hint("EXCLUSIVE MODE keeps others from changing the table."));
        }
    };
    if keeps_writers && run.modes.read_only {
        let what = format!("LOCK TABLE IN {mode} MODE in a transaction that only reads");
        return Err(SqlError::unsupported(what));
    }
    let wait = if lock.nowait { LockWait::NoWait } else { LockWait::Wait };
    for target in &lock.tables {
        let table = found_named(run, txn, &target.name).await?;
        refuse(table.view.is_some(), "LOCK TABLE of a view")?;
        check(run, mode, &table)?;
        // It is used from now on.
        let used = txn.definition_id(table.table).await;
        used.map_err(|error| from_txn(error, Some(&table)))?;
        if !keeps_writers {
            continue;
        }
        let locked = txn.lock_table(table.table, wait).await;
        if locked.map_err(|error| from_txn(error, Some(&table)))? == LockOutcome::NotAvailable {
            let message = format!("could not obtain lock on relation \"{}\"", table.name);
            return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
        }
    }
    Ok(Ran::Done("LOCK TABLE".to_owned()))
}

/// Refuses a role that could not do what the lock is for.
fn check(run: &Run, mode: &LockTableMode, table: &TableDef) -> SqlResult<()> {
    let changes = Privileges::UPDATE.with(Privileges::DELETE).with(Privileges::TRUNCATE);
    let any_of = match mode {
        LockTableMode::AccessShare => Privileges::SELECT,
        LockTableMode::RowExclusive => changes.with(Privileges::INSERT),
        _ => changes,
    };
    let held = run.authority()?.held(table.kind(), &table.rights);
    if held.and(any_of).is_empty() {
        return Err(no_privilege(table.kind(), &table.name));
    }
    Ok(())
}
