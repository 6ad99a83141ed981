//! The six transactions.
//!
//! Each begins with looking customers up by name, then reads and changes balances, those first on which it depends
//! whether the rest is done, and says what it has changed. A conflict comes back as a retryable error with everything
//! rolled back.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use selkie_txn::{Table, Txn, TxnError, key};
use smallvec::SmallVec;

use super::check::Account;
use super::config::Config;
use super::input::{Input, Inputs};
use super::kind::Kind;
use super::rows::name;
use super::schema::{BALANCE, CUSTOMER, Tables};
use crate::benchmark::Place;
use crate::cluster::Node;
use crate::error::TpccError;
use crate::random::Random;
use crate::run::{Outcome, Terminal};
use crate::transactions::missing;

/// What a check that is not covered costs beside its amount, in cents.
const PENALTY: i64 = 100;

/// What a committed transaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// What it added to balances.
    pub(super) changes: SmallVec<[(Account, i64); 3]>,
    /// What came into the bank by it, as its input says.
    pub(super) came_in: i64,
}

/// A worker.
pub(super) struct Teller<'a> {
    pub(super) place: Place<'a, Config>,
    pub(super) inputs: Inputs,
}

impl Terminal for Teller<'_> {
    type Kind = Kind;

    fn random(&mut self) -> &mut Random {
        &mut self.inputs.random
    }

    async fn transact(
        &mut self,
        kind: Kind,
        _started: Duration,
        attempts: &AtomicU64,
    ) -> Result<Outcome, TpccError> {
        let (input, place) = (self.inputs.draw(kind), &self.place);
        let execute = || execute(place.node, &input);
        place.transact(kind, attempts, execute, |done| place.ledger.note(&done)).await
    }
}

/// Runs a transaction; nothing if an account does not cover it, and it was rolled back.
pub(super) async fn execute(node: &Node<Tables>, input: &Input) -> Result<Option<Done>, TpccError> {
    let mut work = Work { node, txn: node.db.begin(), done: Done::default() };
    let covered = match *input {
        Input::Balance { customer } => {
            let customer = work.look_up(customer).await?;
            let savings = work.savings(customer).await?;
            std::hint::black_box(sum(savings, work.checking(customer).await?)?);
            true
        }
        Input::DepositChecking { customer, amount } => {
            let customer = work.look_up(customer).await?;
            work.done.came_in = amount;
            work.add(Account::Checking(customer), amount, None).await?
        }
        Input::TransactSavings { customer, amount } => {
            let customer = work.look_up(customer).await?;
            work.done.came_in = amount;
            work.add(Account::Savings(customer), amount, Some(0)).await?
        }
        Input::Amalgamate { from, to } => {
            let (from, to) = (work.look_up(from).await?, work.look_up(to).await?);
            let savings = work.empty(Account::Savings(from)).await?;
            let checking = work.empty(Account::Checking(from)).await?;
            work.add(Account::Checking(to), sum(savings, checking)?, None).await?
        }
        Input::WriteCheck { customer, amount } => {
            let customer = work.look_up(customer).await?;
            let savings = work.savings(customer).await?;
            let balance = sum(savings, work.checking_for_update(customer).await?)?;
            let paid = if balance < amount { sum(amount, PENALTY)? } else { amount };
            work.done.came_in = -paid;
            work.add(Account::Checking(customer), -paid, None).await?
        }
        Input::SendPayment { from, to, amount } => {
            let (from, to) = (work.look_up(from).await?, work.look_up(to).await?);
            work.add(Account::Checking(from), -amount, Some(0)).await?
                && work.add(Account::Checking(to), amount, None).await?
        }
    };
    if !covered {
        work.txn.rollback().await;
        return Ok(None);
    }
    work.txn.commit().await?;
    Ok(Some(work.done))
}

/// A transaction on its way.
struct Work<'a> {
    node: &'a Node<Tables>,
    txn: Txn<'a>,
    done: Done,
}

impl Work<'_> {
    /// The number of the customer with the name that belongs to this number.
    async fn look_up(&mut self, customer: i32) -> Result<i32, TpccError> {
        let name = name(customer);
        let row = self.txn.get(self.node.tables.account, &key![name.as_str()]).await?;
        let row = row.ok_or_else(|| missing("account", name.as_str()))?;
        Ok(row.i32(CUSTOMER)?)
    }

    async fn savings(&mut self, customer: i32) -> Result<i64, TpccError> {
        let row = self.txn.get(self.node.tables.savings, &key![customer]).await?;
        Ok(row.ok_or_else(|| missing("savings", customer))?.i64(BALANCE)?)
    }

    async fn checking(&mut self, customer: i32) -> Result<i64, TpccError> {
        let row = self.txn.get(self.node.tables.checking, &key![customer]).await?;
        Ok(row.ok_or_else(|| missing("checking", customer))?.i64(BALANCE)?)
    }

    /// The same of an account that will be changed.
    async fn checking_for_update(&mut self, customer: i32) -> Result<i64, TpccError> {
        let row = self.txn.get_for_update(self.node.tables.checking, &key![customer]).await?;
        Ok(row.ok_or_else(|| missing("checking", customer))?.i64(BALANCE)?)
    }

    /// Adds to a balance, unless that would leave less than `least`; whether it did.
    async fn add(
        &mut self,
        account: Account,
        amount: i64,
        least: Option<i64>,
    ) -> Result<bool, TpccError> {
        let added = self.change(account, |balance| {
            let after = sum(balance, amount)?;
            Ok(least.is_none_or(|least| after >= least).then_some(after))
        });
        Ok(added.await?.is_some())
    }

    /// Takes all out of an account; returns how much.
    async fn empty(&mut self, account: Account) -> Result<i64, TpccError> {
        let before = self.change(account, |_| Ok(Some(0))).await?;
        Ok(before.unwrap_or_default())
    }

    /// Gives a balance the value that `change` returns for it, if it returns any, and notes the difference. Returns
    /// the balance before.
    async fn change(
        &mut self,
        account: Account,
        change: impl FnOnce(i64) -> Result<Option<i64>, TpccError> + Send,
    ) -> Result<Option<i64>, TpccError> {
        let (table, name, customer) = place(&self.node.tables, account);
        let key = key![customer];
        let changed = self.txn.update(table, &key, |row| {
            let before = row.i64(BALANCE)?;
            let after = change(before);
            if let Ok(Some(after)) = after {
                row.set_i64(BALANCE, after)?;
            }
            Ok((before, after))
        });
        let (before, after) = changed.await.map_err(|error| match error {
            TxnError::NotFound { .. } => missing(name, customer),
            other => other.into(),
        })?;
        let Some(after) = after? else { return Ok(None) };
        self.done.changes.push((account, after.wrapping_sub(before)));
        Ok(Some(before))
    }
}

/// A balance with so much more.
fn sum(balance: i64, added: i64) -> Result<i64, TpccError> {
    balance.checked_add(added).ok_or(TpccError::Overflow { balance, added })
}

fn place(tables: &Tables, account: Account) -> (Table, &'static str, i32) {
    match account {
        Account::Savings(customer) => (tables.savings, "savings", customer),
        Account::Checking(customer) => (tables.checking, "checking", customer),
    }
}
