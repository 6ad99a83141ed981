//! What a terminal would enter: the inputs of the five transactions (clauses 2.4.1 to 2.8.1).
//!
//! Inputs are drawn before a transaction begins and stay the same when it is tried again.

use smallvec::SmallVec;

use crate::tpcc::nurand::NuConstants;
use crate::tpcc::scale::{DISTRICTS, MAX_LINES, MIN_LINES};
use crate::workload::{Random, Text};

/// How a customer is named.
#[derive(Clone, Copy, Debug)]
pub enum CustomerBy {
    /// By number.
    Id(i32),
    /// By last name: the middle one of those who bear it.
    LastName(Text<16>),
}

/// A line of a new order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInput {
    /// The item; [`UNUSED_ITEM`] for the one that must not be found.
    pub item: i32,
    /// The warehouse that supplies it.
    pub supply_warehouse: i32,
    /// How many.
    pub quantity: i32,
}

/// An item number that no item has (clause 2.4.1.5).
pub const UNUSED_ITEM: i32 = i32::MAX;

/// Lines of an order, on the stack.
pub type Lines = SmallVec<[LineInput; MAX_LINES as usize]>;

/// Input of NewOrder.
#[derive(Clone, Debug)]
pub struct NewOrderInput {
    /// Home warehouse.
    pub warehouse: i32,
    /// District.
    pub district: i32,
    /// Customer.
    pub customer: i32,
    /// The lines.
    pub lines: Lines,
}

/// Input of Payment.
#[derive(Clone, Debug)]
pub struct PaymentInput {
    /// Where it is paid.
    pub warehouse: i32,
    /// District where it is paid.
    pub district: i32,
    /// Warehouse the customer belongs to.
    pub customer_warehouse: i32,
    /// District the customer belongs to.
    pub customer_district: i32,
    /// Who pays.
    pub customer: CustomerBy,
    /// Cents.
    pub amount: i64,
}

/// Input of OrderStatus.
#[derive(Clone, Debug)]
pub struct OrderStatusInput {
    /// Warehouse.
    pub warehouse: i32,
    /// District.
    pub district: i32,
    /// Customer.
    pub customer: CustomerBy,
}

/// Input of Delivery.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryInput {
    /// Warehouse.
    pub warehouse: i32,
    /// Who carries it, 1 to 10.
    pub carrier: i32,
}

/// Input of StockLevel.
#[derive(Clone, Copy, Debug)]
pub struct StockLevelInput {
    /// Warehouse.
    pub warehouse: i32,
    /// District.
    pub district: i32,
    /// Quantities below it run short.
    pub threshold: i32,
}

/// Draws inputs for one worker.
#[derive(Clone, Debug)]
pub struct InputSource {
    /// The worker's generator.
    pub random: Random,
    constants: NuConstants,
    warehouses: i32,
    home: Vec<i32>,
    /// See [`with_remote_percent`](Self::with_remote_percent).
    remote_percent: Option<i32>,
    /// The warehouses that are no terminal's home here.
    away: Vec<i32>,
}

impl InputSource {
    /// Inputs for the given home warehouses, out of all `warehouses`. A terminal of the
    /// specification has one home warehouse; without think times few terminals make all the load,
    /// so the home is drawn for each transaction.
    #[must_use]
    pub fn new(random: Random, constants: NuConstants, warehouses: i32, home: Vec<i32>) -> Self {
        let away = (1..=warehouses).filter(|warehouse| !home.contains(warehouse)).collect();
        Self { random, constants, warehouses, home, remote_percent: None, away }
    }

    /// The same, but of a hundred NewOrder, and of as many Payment transactions, so many have to do
    /// with a warehouse that is none of the homes, or if all are, with another than their own: a
    /// NewOrder by one of its lines, and never by that with an unused item. There are others if
    /// there are to be any such.
    #[must_use]
    pub fn with_remote_percent(self, percent: Option<u32>) -> Self {
        let remote_percent = percent.map(|percent| i32::try_from(percent).unwrap_or(100));
        Self { remote_percent, ..self }
    }

    /// Input of NewOrder (clause 2.4.1).
    pub fn new_order(&mut self) -> NewOrderInput {
        let warehouse = self.home();
        let district = self.district();
        let customer = self.constants.customer(&mut self.random);
        let count = self.random.uniform(MIN_LINES, MAX_LINES);
        let rolled_back = self.random.percent(1);
        let used = count - i32::from(rolled_back);
        let remote_line = match self.remote_percent {
            Some(percent) if self.random.percent(percent) => Some(self.random.uniform(1, used)),
            _ => None,
        };
        let mut lines = Lines::new();
        for number in 1..=count {
            let unused = rolled_back && number == count;
            let item = if unused { UNUSED_ITEM } else { self.constants.item(&mut self.random) };
            let supply_warehouse = match self.remote_percent {
                Some(_) if remote_line == Some(number) => self.away_from(warehouse),
                None if self.warehouses > 1 && self.random.percent(1) => self.other_than(warehouse),
                _ => warehouse,
            };
            let quantity = self.random.uniform(1, 10);
            lines.push(LineInput { item, supply_warehouse, quantity });
        }
        NewOrderInput { warehouse, district, customer, lines }
    }

    /// Input of Payment (clause 2.5.1).
    pub fn payment(&mut self) -> PaymentInput {
        let warehouse = self.home();
        let district = self.district();
        let remote = match self.remote_percent {
            Some(percent) => self.random.percent(percent).then(|| self.away_from(warehouse)),
            None if self.warehouses > 1 && self.random.percent(15) => {
                Some(self.other_than(warehouse))
            }
            None => None,
        };
        let (customer_warehouse, customer_district) = match remote {
            Some(other) => (other, self.district()),
            None => (warehouse, district),
        };
        let customer = self.customer();
        let amount = self.random.amount(100, 500_000);
        PaymentInput {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer,
            amount,
        }
    }

    /// Input of OrderStatus (clause 2.6.1).
    pub fn order_status(&mut self) -> OrderStatusInput {
        let (warehouse, district) = (self.home(), self.district());
        OrderStatusInput { warehouse, district, customer: self.customer() }
    }

    /// Input of Delivery (clause 2.7.1).
    pub fn delivery(&mut self) -> DeliveryInput {
        DeliveryInput { warehouse: self.home(), carrier: self.random.uniform(1, 10) }
    }

    /// Input of StockLevel (clause 2.8.1).
    pub fn stock_level(&mut self) -> StockLevelInput {
        let (warehouse, district) = (self.home(), self.district());
        StockLevelInput { warehouse, district, threshold: self.random.uniform(10, 20) }
    }

    fn home(&mut self) -> i32 {
        let last = i32::try_from(self.home.len()).unwrap_or(i32::MAX) - 1;
        let at = if last > 0 { self.random.uniform(0, last) } else { 0 };
        usize::try_from(at).ok().and_then(|at| self.home.get(at)).copied().unwrap_or(1)
    }

    fn district(&mut self) -> i32 {
        self.random.uniform(1, DISTRICTS)
    }

    /// 60 % by last name (clauses 2.5.1.2, 2.6.1.2).
    fn customer(&mut self) -> CustomerBy {
        if self.random.percent(60) {
            CustomerBy::LastName(self.constants.last_name(&mut self.random))
        } else {
            CustomerBy::Id(self.constants.customer(&mut self.random))
        }
    }

    /// A warehouse that is no terminal's home here; if there is none, one other than `home`.
    fn away_from(&mut self, home: i32) -> i32 {
        let last = i32::try_from(self.away.len()).unwrap_or(i32::MAX) - 1;
        if last < 0 {
            return self.other_than(home);
        }
        let at = usize::try_from(self.random.uniform(0, last)).unwrap_or(0);
        self.away.get(at).copied().unwrap_or(home)
    }

    /// A warehouse other than `home`; there are at least two.
    fn other_than(&mut self, home: i32) -> i32 {
        let drawn = self.random.uniform(1, self.warehouses - 1);
        if drawn >= home { drawn + 1 } else { drawn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::scale::Scale;

    fn source(warehouses: i32, home: Vec<i32>) -> InputSource {
        let constants = NuConstants::of_run(7, &Scale::STANDARD);
        InputSource::new(Random::stream(7, 77), constants, warehouses, home)
    }

    /// Share of `hits` in `all`, in percent.
    fn percent(hits: usize, all: usize) -> f64 {
        100.0 * hits as f64 / all as f64
    }

    #[test]
    fn new_orders_have_the_prescribed_shares() {
        let mut source = source(4, vec![1, 2, 3, 4]);
        let (mut lines, mut remote, mut unused) = (0, 0, 0);
        let all = 20_000;
        for _ in 0..all {
            let input = source.new_order();
            assert!((5..=15).contains(&input.lines.len()) && !input.lines.spilled());
            assert!((1..=10).contains(&input.district) && (1..=3000).contains(&input.customer));
            let last = input.lines.len() - 1;
            for (at, line) in input.lines.iter().enumerate() {
                assert!((1..=4).contains(&line.supply_warehouse));
                assert!((1..=10).contains(&line.quantity));
                assert!(line.item <= 100_000 || at == last, "only the last item may be unused");
                lines += 1;
                remote += usize::from(line.supply_warehouse != input.warehouse);
                unused += usize::from(line.item == UNUSED_ITEM);
            }
        }
        assert!((0.8..1.2).contains(&percent(remote, lines)), "{remote} of {lines}");
        assert!((0.7..1.3).contains(&percent(unused, all)), "{unused} of {all}");
        assert!((9.8..10.2).contains(&(lines as f64 / all as f64)));
    }

    #[test]
    fn payments_have_the_prescribed_shares() {
        let mut source = source(3, vec![2]);
        let (mut remote, mut by_name) = (0, 0);
        let all = 20_000;
        for _ in 0..all {
            let input = source.payment();
            assert_eq!(input.warehouse, 2);
            assert!((100..=500_000).contains(&input.amount));
            if input.customer_warehouse == 2 {
                assert_eq!(input.customer_district, input.district);
            } else {
                remote += 1;
            }
            by_name += usize::from(matches!(input.customer, CustomerBy::LastName(_)));
        }
        assert!((14.0..16.0).contains(&percent(remote, all)), "{remote}");
        assert!((58.5..61.5).contains(&percent(by_name, all)), "{by_name}");
    }

    #[test]
    fn so_many_are_remote_as_are_asked_for() {
        for (percent_asked, homes) in [(0, vec![1, 3]), (20, vec![1, 3]), (100, vec![1, 2, 3, 4])] {
            let mut source = source(4, homes.clone()).with_remote_percent(Some(percent_asked));
            let (mut orders, mut payments) = (0, 0);
            let all = 5_000;
            // Of the homes of others, where there are some.
            let is_remote = |own: i32, other: i32| {
                assert!(own == other || homes.len() == 4 || !homes.contains(&other));
                own != other
            };
            for _ in 0..all {
                let input = source.new_order();
                let remote =
                    input.lines.iter().filter(|l| is_remote(input.warehouse, l.supply_warehouse));
                let remote: Vec<_> = remote.collect();
                assert!(remote.len() <= 1 && remote.iter().all(|line| line.item != UNUSED_ITEM));
                orders += remote.len();
                let input = source.payment();
                payments += usize::from(is_remote(input.warehouse, input.customer_warehouse));
            }
            for remote in [orders, payments] {
                assert!((percent(remote, all) - f64::from(percent_asked)).abs() < 2.0, "{remote}");
            }
        }
    }

    #[test]
    fn one_warehouse_has_nothing_remote() {
        let mut source = source(1, vec![1]);
        for _ in 0..1000 {
            assert_eq!(source.payment().customer_warehouse, 1);
            assert!(source.new_order().lines.iter().all(|line| line.supply_warehouse == 1));
        }
    }

    #[test]
    fn homes_are_those_given() {
        let mut source = source(9, vec![3, 8]);
        let drawn: std::collections::BTreeSet<_> =
            (0..100).map(|_| source.delivery().warehouse).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 8]);
        assert!((0..100).all(|_| (10..=20).contains(&source.stock_level().threshold)));
    }
}
