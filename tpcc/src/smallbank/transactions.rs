//! The six transactions.
//!
//! Each begins with looking customers up by name, then reads and changes balances, those first on
//! which it depends whether the rest is done, and says what it has changed. A conflict comes back
//! as a retryable error with everything rolled back.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use selkie_txn::{Table, Txn, TxnError, key};

use super::config::Config;
use super::input::{Input, Inputs};
use super::ledger::{Account, CommittedChanges};
use super::rows::name;
use super::schema::{BALANCE, CUSTOMER, Tables};
use super::transaction_type::TransactionType;
use crate::benchmark::WorkerContext;
use crate::cluster::Node;
use crate::error::{TpccError, missing};
use crate::run::{Terminal, TransactionOutcome};
use crate::workload::Random;

/// What a check that is not covered costs beside its amount, in cents.
const PENALTY: i64 = 100;

/// A worker.
pub(super) struct Teller<'a> {
    pub(super) place: WorkerContext<'a, Config>,
    pub(super) inputs: Inputs,
}

impl Terminal for Teller<'_> {
    type TransactionType = TransactionType;

    fn random(&mut self) -> &mut Random {
        &mut self.inputs.random
    }

    async fn transact(
        &mut self,
        kind: TransactionType,
        _started: Duration,
        attempts: &AtomicU64,
    ) -> Result<TransactionOutcome, TpccError> {
        let (input, place) = (self.inputs.draw(kind), &self.place);
        let execute = || execute(place.node, &input);
        place.transact(kind, attempts, execute, |done| place.ledger.note(&done)).await
    }
}

/// Runs a transaction; nothing if an account does not cover it, and it was rolled back.
pub(super) async fn execute(
    node: &Node<Tables>,
    input: &Input,
) -> Result<Option<CommittedChanges>, TpccError> {
    let mut work =
        ActiveTransaction { node, txn: node.db.begin(), done: CommittedChanges::default() };
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
struct ActiveTransaction<'a> {
    node: &'a Node<Tables>,
    txn: Txn<'a>,
    done: CommittedChanges,
}

impl ActiveTransaction<'_> {
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
        let Some(before) = self.change(account, |_| Ok(Some(0))).await? else {
            panic!("a balance that was to be emptied was not changed");
        };
        Ok(before)
    }

    /// Gives a balance the value that `change` returns for it, if it returns any, and notes the
    /// difference. Returns the balance before.
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

#[cfg(test)]
mod tests {
    use super::super::ledger::BalanceLedger;
    use super::super::rows::Balances;
    use super::Account::{Checking, Savings};
    use super::*;
    use crate::benchmark::Benchmark;
    use crate::benchmark::tests::{on_loaded, one_node};

    const CUSTOMERS: i32 = 20;

    /// A bank, what its transactions have done, and what its customers were loaded with.
    struct Bank<'a> {
        node: &'a Node<Tables>,
        ledger: BalanceLedger,
        seed: u64,
    }

    /// Lets `test` work on a bank, in which every rule must hold then.
    fn with_bank(test: impl AsyncFnOnce(&Bank<'_>)) {
        let accounts = CUSTOMERS.unsigned_abs();
        let config = Config { accounts, hot_accounts: 1, setup: one_node(), ..Config::default() };
        on_loaded(config.clone(), async |nodes| {
            let (ledger, seed) = (config.ledger(), config.setup.seed);
            let bank = Bank { node: &nodes[0], ledger, seed };
            test(&bank).await;
            bank.ledger
        });
    }

    impl Bank<'_> {
        fn loaded(&self, customer: i32) -> Balances {
            Balances::loaded(self.seed, customer)
        }

        async fn balances(&self, customer: i32) -> Balances {
            let mut txn = self.node.db.begin();
            let mut balance = async |table| {
                let row = txn.get(table, &key![customer]).await.unwrap().unwrap();
                row.i64(BALANCE).unwrap()
            };
            let (savings, checking) =
                (balance(self.node.tables.savings).await, balance(self.node.tables.checking).await);
            Balances { savings, checking }
        }

        /// Executes a transaction that is to do this.
        async fn does(&self, input: Input, changes: &[(Account, i64)], came_in: i64) {
            let done = execute(self.node, &input).await.unwrap();
            let done = done.unwrap_or_else(|| panic!("{input:?} failed"));
            assert_eq!(done, CommittedChanges { changes: changes.into(), came_in }, "{input:?}");
            self.ledger.note(&done);
        }

        /// Executes a transaction that an account is not to cover.
        async fn fails(&self, input: Input) {
            assert_eq!(execute(self.node, &input).await.unwrap(), None, "{input:?}");
        }
    }

    #[test]
    fn a_payment_is_covered_by_the_checking_account_alone() {
        with_bank(async |bank| {
            let (payer, payee) = (bank.loaded(3), bank.loaded(17));
            let pay = |amount| Input::SendPayment { from: 3, to: 17, amount };
            bank.fails(pay(payer.checking + 1)).await;
            assert_eq!((bank.balances(3).await, bank.balances(17).await), (payer, payee));
            let all = payer.checking;
            bank.does(pay(all), &[(Checking(3), -all), (Checking(17), all)], 0).await;
            assert_eq!(bank.balances(3).await, Balances { checking: 0, ..payer });
            let paid = Balances { checking: payee.checking + all, ..payee };
            assert_eq!(bank.balances(17).await, paid);
            bank.fails(pay(1)).await;
            assert_eq!(bank.balances(17).await, paid);
        });
    }

    #[test]
    fn savings_pay_out_what_they_have() {
        with_bank(async |bank| {
            let loaded = bank.loaded(5);
            let transact = |amount| Input::TransactSavings { customer: 5, amount };
            bank.fails(transact(-loaded.savings - 1)).await;
            assert_eq!(bank.balances(5).await, loaded);
            let all = -loaded.savings;
            bank.does(transact(all), &[(Savings(5), all)], all).await;
            assert_eq!(bank.balances(5).await, Balances { savings: 0, ..loaded });
            bank.fails(transact(-1)).await;
            bank.does(transact(7), &[(Savings(5), 7)], 7).await;
            assert_eq!(bank.balances(5).await, Balances { savings: 7, ..loaded });
            let deposit = Input::DepositChecking { customer: 5, amount: 9 };
            bank.does(deposit, &[(Checking(5), 9)], 9).await;
            assert_eq!(bank.balances(5).await.checking, loaded.checking + 9);
        });
    }

    #[test]
    fn a_check_costs_more_if_both_accounts_do_not_cover_it() {
        with_bank(async |bank| {
            let loaded = bank.loaded(1);
            let both = loaded.savings + loaded.checking;
            let write = |amount| Input::WriteCheck { customer: 1, amount };
            bank.does(write(both), &[(Checking(1), -both)], -both).await;
            let left = Balances { checking: -loaded.savings, ..loaded };
            assert_eq!(bank.balances(1).await, left, "it is paid from the checking account");
            bank.does(write(1), &[(Checking(1), -101)], -101).await;
            let other = bank.loaded(2);
            let more = other.savings + other.checking + 1;
            let write = Input::WriteCheck { customer: 2, amount: more };
            bank.does(write, &[(Checking(2), -more - 100)], -more - 100).await;
            let left = Balances { checking: other.checking - more - 100, ..other };
            assert_eq!(bank.balances(2).await, left);
        });
    }

    #[test]
    fn amalgamating_moves_all_of_one_customer_to_another() {
        with_bank(async |bank| {
            let (one, other) = (bank.loaded(4), bank.loaded(9));
            let debt = one.checking + 50;
            let write = Input::WriteCheck { customer: 4, amount: debt };
            bank.does(write, &[(Checking(4), -debt)], -debt).await;
            let moved = one.savings - 50;
            let changes = [(Savings(4), -one.savings), (Checking(4), 50), (Checking(9), moved)];
            bank.does(Input::Amalgamate { from: 4, to: 9 }, &changes, 0).await;
            assert_eq!(bank.balances(4).await, Balances { savings: 0, checking: 0 });
            let checking = other.checking + moved;
            assert_eq!(bank.balances(9).await, Balances { checking, ..other });
        });
    }

    #[test]
    fn looking_at_a_balance_changes_nothing() {
        with_bank(async |bank| {
            for customer in [1, CUSTOMERS] {
                bank.does(Input::Balance { customer }, &[], 0).await;
                assert_eq!(bank.balances(customer).await, bank.loaded(customer));
            }
            let missing = execute(bank.node, &Input::Balance { customer: CUSTOMERS + 1 }).await;
            assert!(matches!(missing, Err(TpccError::Missing { table: "account", .. })));
        });
    }

    #[test]
    fn a_balance_that_overflows_is_an_error_and_stays() {
        with_bank(async |bank| {
            let loaded = bank.loaded(8);
            for input in [
                Input::DepositChecking { customer: 8, amount: i64::MAX },
                Input::TransactSavings { customer: 8, amount: i64::MAX },
            ] {
                let error = execute(bank.node, &input).await.unwrap_err();
                assert!(matches!(error, TpccError::Overflow { added: i64::MAX, .. }), "{error}");
                assert!(!error.is_retryable());
                assert_eq!(bank.balances(8).await, loaded);
            }
        });
    }
}
