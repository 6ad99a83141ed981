//! What is entered: whose accounts, and how much.

use super::config::Config;
use super::transaction_type::TransactionType;
use crate::workload::Random;

/// Largest amount of a transaction, in cents.
const MAX_AMOUNT: i64 = 10_000;

/// The input of a transaction. Customers by their numbers, amounts in cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Balance {
        customer: i32,
    },
    DepositChecking {
        customer: i32,
        amount: i64,
    },
    /// Below zero it is a withdrawal.
    TransactSavings {
        customer: i32,
        amount: i64,
    },
    Amalgamate {
        from: i32,
        to: i32,
    },
    WriteCheck {
        customer: i32,
        amount: i64,
    },
    SendPayment {
        from: i32,
        to: i32,
        amount: i64,
    },
}

/// Accounts that are drawn with the same probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccountClass {
    Hot,
    Cold,
    All,
}

/// Draws inputs.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) random: Random,
    accounts: i64,
    hot: i64,
    hot_share: f64,
}

impl Inputs {
    pub(super) fn new(config: &Config, random: Random) -> Self {
        let (accounts, hot) = (config.accounts.into(), config.hot_accounts.into());
        Self { random, accounts, hot, hot_share: config.hot_share }
    }

    /// The input of a transaction of that type.
    pub(super) fn draw(&mut self, kind: TransactionType) -> Input {
        match kind {
            TransactionType::Balance => Input::Balance { customer: self.customer() },
            TransactionType::DepositChecking => {
                Input::DepositChecking { customer: self.customer(), amount: self.amount() }
            }
            TransactionType::TransactSavings => {
                let (customer, amount) = (self.customer(), self.amount());
                let amount = if self.random.percent(50) { amount } else { -amount };
                Input::TransactSavings { customer, amount }
            }
            TransactionType::Amalgamate => {
                let (from, to) = self.customers();
                Input::Amalgamate { from, to }
            }
            TransactionType::WriteCheck => {
                Input::WriteCheck { customer: self.customer(), amount: self.amount() }
            }
            TransactionType::SendPayment => {
                let (from, to) = self.customers();
                Input::SendPayment { from, to, amount: self.amount() }
            }
        }
    }

    fn amount(&mut self) -> i64 {
        self.random.amount(1, MAX_AMOUNT)
    }

    fn customer(&mut self) -> i32 {
        let class = self.class();
        let at = self.random.amount(0, self.members(class) - 1);
        number(self.place(class, at))
    }

    /// Two of the same class, or any other for the second if the first is the only one of its
    /// class.
    fn customers(&mut self) -> (i32, i32) {
        let mut class = self.class();
        let mut at = self.random.amount(0, self.members(class) - 1);
        let first = self.place(class, at);
        if self.members(class) == 1 {
            (class, at) = (AccountClass::All, first);
        }
        let other = self.random.amount(0, self.members(class) - 2);
        let second = self.place(class, other + i64::from(other >= at));
        (number(first), number(second))
    }

    /// Hot as often as the share says, and if there is nothing else.
    fn class(&mut self) -> AccountClass {
        let hot = self.random.fraction() <= self.hot_share;
        if hot || self.hot == self.accounts { AccountClass::Hot } else { AccountClass::Cold }
    }

    /// How many accounts there are of a class.
    fn members(&self, class: AccountClass) -> i64 {
        match class {
            AccountClass::Hot => self.hot,
            AccountClass::Cold => self.accounts - self.hot,
            AccountClass::All => self.accounts,
        }
    }

    /// The position among all accounts of the n-th account of a class, both from 0. Hot ones are as
    /// far apart as they can be, cold ones are in all places between: before a place `p` there are
    /// `ceil(p hot / accounts)` hot ones, so the rest is `floor(p (accounts - hot) / accounts)`,
    /// which exceeds `at` behind the place that is wanted and behind no earlier.
    fn place(&self, class: AccountClass, at: i64) -> i64 {
        match class {
            AccountClass::Hot => at * self.accounts / self.hot,
            AccountClass::Cold => {
                let cold = self.accounts - self.hot;
                ((at + 1) * self.accounts + cold - 1) / cold - 1
            }
            AccountClass::All => at,
        }
    }
}

/// Customers are numbered from 1.
fn number(place: i64) -> i32 {
    i32::try_from(place + 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::smallbank::MAX_ACCOUNTS;
    use crate::workload::Mix;

    fn inputs_of(accounts: u32, hot_accounts: u32, hot_share: f64) -> Inputs {
        let config = Config { accounts, hot_accounts, hot_share, ..Config::default() };
        Inputs::new(&config, Random::stream(3, 4))
    }

    #[test]
    fn hot_accounts_have_their_share_and_the_others_the_rest() {
        let mut inputs = inputs_of(1_003, 10, 0.9);
        let mut counts = BTreeMap::new();
        for _ in 0..100_000 {
            *counts.entry(inputs.customer()).or_insert(0u32) += 1;
        }
        let hot: BTreeSet<i32> =
            (0..10).map(|at| number(inputs.place(AccountClass::Hot, at))).collect();
        assert_eq!(hot.len(), 10);
        // Each 9,000 and 10 times, with standard deviations of 91 and 3.
        for (customer, count) in &counts {
            let expected = if hot.contains(customer) { 8_500..9_500 } else { 1..30 };
            assert!(expected.contains(count), "{customer}: {count}");
        }
        assert!(counts.keys().all(|customer| (1..=1_003).contains(customer)));
        assert!(counts.len() > 990);
    }

    /// The places of a class, in their order.
    fn places(inputs: &Inputs, class: AccountClass) -> Vec<i64> {
        (0..inputs.members(class)).map(|at| inputs.place(class, at)).collect()
    }

    #[test]
    fn cold_accounts_are_all_that_are_not_hot() {
        let sizes = (2..60).flat_map(|accounts| (1..=accounts).map(move |hot| (accounts, hot)));
        for (accounts, hot) in sizes.chain([(100, 99), (1_000, 997), (99_991, 4_000)]) {
            let inputs = inputs_of(accounts, hot, 0.5);
            let hot: BTreeSet<_> = places(&inputs, AccountClass::Hot).into_iter().collect();
            assert_eq!(hot.len() as i64, inputs.hot, "{inputs:?}");
            let others = (0..i64::from(accounts)).filter(|place| !hot.contains(place));
            assert_eq!(
                places(&inputs, AccountClass::Cold),
                others.collect::<Vec<_>>(),
                "{inputs:?}"
            );
        }
        let mut one_cold = inputs_of(100, 99, 0.0);
        let cold = number(one_cold.place(AccountClass::Cold, 0));
        assert!((0..1_000).all(|_| one_cold.customer() == cold), "a hot one was drawn for it");
        let most = inputs_of(MAX_ACCOUNTS, 1, 0.5);
        assert_eq!(
            most.place(AccountClass::Cold, most.members(AccountClass::Cold) - 1),
            most.accounts - 1
        );
    }

    #[test]
    fn extremes_of_the_hot_set_are_served() {
        let mut all_hot = inputs_of(7, 7, 0.0);
        let drawn: BTreeSet<_> = (0..500).map(|_| all_hot.customer()).collect();
        assert_eq!(drawn, (1..=7).collect());
        let mut one_hot = inputs_of(2, 1, 1.0);
        assert!((0..100).all(|_| one_hot.customer() == 1));
        assert!((0..100).all(|_| one_hot.customers() == (1, 2)), "it has no like");
    }

    #[test]
    fn both_customers_of_a_transaction_are_hot_or_neither_is() {
        let mut inputs = inputs_of(1_000, 10, 0.5);
        let hot: BTreeSet<i32> =
            places(&inputs, AccountClass::Hot).into_iter().map(number).collect();
        let mut both = 0;
        let mut seconds = BTreeMap::new();
        for _ in 0..10_000 {
            let (from, to) = inputs.customers();
            assert!(from != to && (1..=1_000).contains(&to), "{from} and {to}");
            assert_eq!(hot.contains(&from), hot.contains(&to), "{from} and {to}");
            both += u32::from(hot.contains(&from));
            *seconds.entry(to).or_insert(0u32) += u32::from(hot.contains(&to));
        }
        // Half of them, with a standard deviation of 50; each of the ten 500 times, with one of 22.
        assert!((4_700..5_300).contains(&both), "{both} of 10,000");
        assert!(hot.iter().all(|to| (390..610).contains(&seconds[to])), "{seconds:?}");
        let mut nearly_all = inputs_of(100, 99, 0.0);
        let cold = number(nearly_all.place(AccountClass::Cold, 0));
        let others: BTreeSet<_> = (0..5_000).map(|_| nearly_all.customers()).collect();
        assert!(others.iter().all(|(from, to)| *from == cold && *to != cold));
        assert_eq!(others.len(), 99, "the whole range is open to the other");
    }

    #[test]
    fn inputs_are_as_their_types_need_them() {
        let mut inputs = inputs_of(50, 5, 0.9);
        let (mut paid_in, mut paid_out) = (0, 0);
        for _ in 0..2_000 {
            for kind in TransactionType::ALL {
                match inputs.draw(*kind) {
                    Input::Amalgamate { from, to } => assert_ne!(from, to),
                    Input::SendPayment { from, to, amount } => {
                        assert!(from != to && (1..=MAX_AMOUNT).contains(&amount));
                    }
                    Input::TransactSavings { amount, .. } => {
                        assert!((1..=MAX_AMOUNT).contains(&amount.abs()));
                        *(if amount > 0 { &mut paid_in } else { &mut paid_out }) += 1;
                    }
                    Input::DepositChecking { amount, .. } | Input::WriteCheck { amount, .. } => {
                        assert!((1..=MAX_AMOUNT).contains(&amount));
                    }
                    Input::Balance { customer } => assert!((1..=50).contains(&customer)),
                }
            }
        }
        assert!(paid_in > 800 && paid_out > 800, "{paid_in} and {paid_out}");
    }
}
