//! What is in each initial row (clause 4.3.3.1).

use selkie_txn::RowBuilder;

use crate::tpcc::nurand::{NuConstants, last_name};
use crate::tpcc::scale::{DISTRICTS, MAX_LINES, MIN_LINES, Scale};
use crate::tpcc::schema::C_DATA_BYTES;
use crate::tpcc::transactions::BAD_CREDIT;
use crate::workload::{Random, Text};

/// Point in time of everything loaded: before the environment began.
const LOADED_AT: i64 = 0;
/// What every customer has paid once, cents (`H_AMOUNT`, `C_YTD_PAYMENT`).
const FIRST_PAYMENT: i64 = 1_000;
/// `C_CREDIT_LIM`, cents.
const CREDIT_LIMIT: i64 = 5_000_000;
/// `H_WRITER` of loaded rows; workers are numbered from 1.
const LOADER: i32 = 0;

/// What all rows are made from.
pub(super) struct RowGenerator {
    pub(super) seed: u64,
    pub(super) scale: Scale,
    pub(super) constants: NuConstants,
}

/// Kinds of rows, each with streams of its own.
#[derive(Clone, Copy)]
enum RowStream {
    Item = 1,
    Warehouse,
    District,
    Stock,
    Customer,
    Order,
    Permutation,
}

/// A loaded order.
pub(super) struct LoadedOrder {
    pub(super) warehouse: i32,
    pub(super) district: i32,
    pub(super) number: i32,
    pub(super) lines: i32,
    pub(super) delivered: bool,
    random: Random,
}

impl RowGenerator {
    /// The generator for one row: stream numbers are `part | warehouse | district | id`.
    fn random(&self, part: RowStream, warehouse: i32, district: i32, id: i32) -> Random {
        let bits = |value: i32| u64::from(value.unsigned_abs());
        let key = bits(warehouse) << 26 | bits(district) << 22 | bits(id);
        Random::stream(self.seed, (part as u64) << 58 | key)
    }

    pub(super) fn item(&self, row: &mut RowBuilder<'_>, id: i32) {
        let mut random = self.random(RowStream::Item, 0, 0, id);
        row.clear();
        row.i32(id).i32(random.uniform(1, 10_000)).text(&random.letters::<24>(14, 24));
        row.i64(random.amount(100, 10_000)).text(&random.data_with_original());
    }

    pub(super) fn warehouse(&self, row: &mut RowBuilder<'_>, id: i32) {
        let mut random = self.random(RowStream::Warehouse, id, 0, 0);
        row.clear();
        row.i32(id).text(&random.letters::<10>(6, 10));
        address(row, &mut random);
        row.i64(random.amount(0, 2000)).i64(self.district_ytd() * i64::from(DISTRICTS));
    }

    pub(super) fn district(&self, row: &mut RowBuilder<'_>, warehouse: i32, id: i32) {
        let mut random = self.random(RowStream::District, warehouse, id, 0);
        row.clear();
        row.i32(warehouse).i32(id).text(&random.letters::<10>(6, 10));
        address(row, &mut random);
        row.i64(random.amount(0, 2000)).i64(self.district_ytd());
        row.i32(self.scale.customers_per_district + 1);
    }

    /// What the customers of a district have paid: 30,000.00 by the standard.
    fn district_ytd(&self) -> i64 {
        i64::from(self.scale.customers_per_district) * FIRST_PAYMENT
    }

    pub(super) fn stock(&self, row: &mut RowBuilder<'_>, warehouse: i32, item: i32) {
        let mut random = self.random(RowStream::Stock, warehouse, 0, item);
        row.clear();
        row.i32(warehouse).i32(item).i32(random.uniform(10, 100));
        for _ in 0..DISTRICTS {
            row.text(&random.letters::<24>(24, 24));
        }
        row.i64(0).i32(0).i32(0).text(&random.data_with_original());
    }

    /// A customer, the customer's `C_DATA` and first payment.
    pub(super) fn customer(
        &self,
        (row, data, history): (&mut RowBuilder<'_>, &mut RowBuilder<'_>, &mut RowBuilder<'_>),
        (warehouse, district, id): (i32, i32, i32),
    ) {
        let mut random = self.random(RowStream::Customer, warehouse, district, id);
        // Every name is borne by one of the first customers, so each can be found.
        let last = if id <= self.scale.last_names() {
            last_name(id - 1)
        } else {
            self.constants.last_name(&mut random)
        };
        row.clear();
        row.i32(warehouse).i32(district).i32(id);
        row.text(&random.letters::<16>(8, 16)).text("OE").text(&last);
        address(row, &mut random);
        let credit = if random.percent(10) { BAD_CREDIT } else { "GC" };
        row.text(&random.digits::<16>(16, 16)).i64(LOADED_AT).text(credit);
        row.i64(CREDIT_LIMIT).i64(random.amount(0, 5000));
        row.i64(-FIRST_PAYMENT).i64(FIRST_PAYMENT).i32(1).i32(0);
        data.clear();
        data.i32(warehouse).i32(district).i32(id);
        data.text(&random.letters::<C_DATA_BYTES>(300, C_DATA_BYTES));
        let sequence = i64::from(district - 1) * i64::from(self.scale.customers_per_district);
        history.clear();
        history.i32(warehouse).i32(LOADER).i64(sequence + i64::from(id)).i32(district);
        history.i32(warehouse).i32(district).i32(id);
        history.i64(LOADED_AT).i64(FIRST_PAYMENT).text(&random.letters::<24>(12, 24));
    }

    /// The customers of a district in the order in which they have ordered.
    pub(super) fn ordering_customers(&self, warehouse: i32, district: i32) -> Vec<i32> {
        let mut random = self.random(RowStream::Permutation, warehouse, district, 0);
        random.permutation(self.scale.customers_per_district)
    }

    pub(super) fn order(
        &self,
        row: &mut RowBuilder<'_>,
        (warehouse, district, number): (i32, i32, i32),
        customer: i32,
    ) -> LoadedOrder {
        let mut random = self.random(RowStream::Order, warehouse, district, number);
        let lines = random.uniform(MIN_LINES, MAX_LINES);
        let delivered = number < self.scale.first_undelivered();
        row.clear();
        row.i32(warehouse).i32(district).i32(number).i32(customer).i64(LOADED_AT);
        if delivered {
            row.i32(random.uniform(1, 10));
        } else {
            row.null();
        }
        row.i32(lines).i32(1);
        LoadedOrder { warehouse, district, number, lines, delivered, random }
    }

    /// The next line of an order.
    pub(super) fn line(&self, row: &mut RowBuilder<'_>, order: &mut LoadedOrder, number: i32) {
        let random = &mut order.random;
        row.clear();
        row.i32(order.warehouse).i32(order.district).i32(order.number).i32(number);
        row.i32(random.uniform(1, self.scale.items)).i32(order.warehouse);
        if order.delivered {
            row.i64(LOADED_AT).i32(5).i64(0);
        } else {
            row.null().i32(5).i64(random.amount(1, 999_999));
        }
        row.text(&random.letters::<24>(24, 24));
    }
}

/// Two streets, city, state and zip code.
fn address(row: &mut RowBuilder<'_>, random: &mut Random) {
    for _ in 0..3 {
        row.text(&random.letters::<20>(10, 20));
    }
    let state: Text<2> = random.letters(2, 2);
    row.text(&state).text(&random.zip());
}
