//! What is entered: whose accounts, and how much.

use super::config::Config;
use super::kind::Kind;
use crate::random::Random;

/// Largest amount of a transaction, in cents.
const MAX_AMOUNT: i64 = 10_000;
/// Draws of an account before any is taken.
const DRAWS: usize = 64;

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

/// Draws inputs.
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
    pub(super) fn draw(&mut self, kind: Kind) -> Input {
        let customer = self.customer();
        let amount = self.random.amount(1, MAX_AMOUNT);
        match kind {
            Kind::Balance => Input::Balance { customer },
            Kind::DepositChecking => Input::DepositChecking { customer, amount },
            Kind::TransactSavings => {
                let amount = if self.random.percent(50) { amount } else { -amount };
                Input::TransactSavings { customer, amount }
            }
            Kind::Amalgamate => Input::Amalgamate { from: customer, to: self.other(customer) },
            Kind::WriteCheck => Input::WriteCheck { customer, amount },
            Kind::SendPayment => {
                Input::SendPayment { from: customer, to: self.other(customer), amount }
            }
        }
    }

    /// A hot one as often as the share says, else one that is not, each with the same probability among its like.
    fn customer(&mut self) -> i32 {
        let hot = self.random.fraction() <= self.hot_share;
        if hot || self.hot == self.accounts {
            let at = self.random.amount(0, self.hot - 1);
            return number(self.place(at));
        }
        let mut place = 0;
        for _ in 0..DRAWS {
            place = self.random.amount(0, self.accounts - 1);
            if !self.is_hot(place) {
                break;
            }
        }
        number(place)
    }

    /// Another than that.
    fn other(&mut self, than: i32) -> i32 {
        for _ in 0..DRAWS {
            let customer = self.customer();
            if customer != than {
                return customer;
            }
        }
        // The only hot account: its neighbour then.
        number(i64::from(than) % self.accounts)
    }

    /// Where the so-manieth hot account is among all, from 0.
    fn place(&self, hot: i64) -> i64 {
        hot * self.accounts / self.hot
    }

    fn is_hot(&self, place: i64) -> bool {
        let next = (place * self.hot + self.accounts - 1) / self.accounts;
        next < self.hot && self.place(next) == place
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
    use crate::mix::Mix;

    fn inputs(accounts: u32, hot_accounts: u32, hot_share: f64) -> Inputs {
        let config = Config { accounts, hot_accounts, hot_share, ..Config::default() };
        Inputs::new(&config, Random::stream(3, 4))
    }

    #[test]
    fn hot_accounts_have_their_share_and_the_others_the_rest() {
        let mut inputs = inputs(1_003, 10, 0.9);
        let mut counts = BTreeMap::new();
        for _ in 0..100_000 {
            *counts.entry(inputs.customer()).or_insert(0u32) += 1;
        }
        let hot: BTreeSet<i32> = (0..10).map(|at| number(inputs.place(at))).collect();
        assert_eq!(hot.len(), 10);
        assert!((1..=1_003).all(|n| inputs.is_hot(i64::from(n) - 1) == hot.contains(&n)));
        // Each 9,000 and 10 times, with standard deviations of 91 and 3.
        for (customer, count) in &counts {
            let expected = if hot.contains(customer) { 8_500..9_500 } else { 1..30 };
            assert!(expected.contains(count), "{customer}: {count}");
        }
        assert!(counts.keys().all(|customer| (1..=1_003).contains(customer)));
        assert!(counts.len() > 990);
    }

    #[test]
    fn extremes_of_the_hot_set_are_served() {
        let mut all_hot = inputs(7, 7, 0.0);
        let drawn: BTreeSet<_> = (0..500).map(|_| all_hot.customer()).collect();
        assert_eq!(drawn, (1..=7).collect());
        let mut one_hot = inputs(2, 1, 1.0);
        assert!((0..100).all(|_| one_hot.customer() == 1));
        assert_eq!((one_hot.other(1), one_hot.other(2)), (2, 1));
    }

    #[test]
    fn inputs_are_as_their_types_need_them() {
        let mut inputs = inputs(50, 5, 0.9);
        let (mut paid_in, mut paid_out) = (0, 0);
        for _ in 0..2_000 {
            for kind in Kind::ALL {
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
