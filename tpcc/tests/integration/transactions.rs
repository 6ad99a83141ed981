//! Each transaction does what its clause says, row by row.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use selkie_tpcc::columns::{
    customer as c, customer_data as cd, district as d, history as h, item as i, order_line as ol,
    orders as o, stock as s, warehouse as w,
};
use selkie_tpcc::transactions::{
    StockLevelProgress, deliver_district, new_order, order_status, payment, stock_level,
};
use selkie_tpcc::{
    CustomerBy, DeliveryInput, LineInput, NewOrderInput, OrderStatusInput, PaymentInput,
    StockLevelInput, Text, TpccNode,
};
use selkie_txn::{Direction, Isolation, KeyRange, RowRef, Table, key};

use crate::setup::{session, small, with_loaded};

/// What `read` takes from the row with this key.
async fn row<T>(
    node: &TpccNode,
    table: Table,
    key: &[u8],
    read: impl FnOnce(RowRef<'_>) -> T,
) -> T {
    let mut txn = node.db.begin();
    let value = read(txn.get(table, key).await.unwrap().expect("no such row"));
    txn.commit().await.unwrap();
    value
}

async fn rows<T: Send>(
    node: &TpccNode,
    table: Table,
    prefix: &[u8],
    mut read: impl FnMut(RowRef<'_>) -> T + Send,
) -> Vec<T> {
    let mut values = Vec::new();
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    txn.scan(table, &KeyRange::prefix(prefix), Direction::Forward, |row| {
        values.push(read(row));
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    values
}

fn stock_of(row: RowRef<'_>) -> (i32, i64, i32, i32) {
    (
        row.i32(s::S_QUANTITY).unwrap(),
        row.i64(s::S_YTD).unwrap(),
        row.i32(s::S_ORDER_CNT).unwrap(),
        row.i32(s::S_REMOTE_CNT).unwrap(),
    )
}

#[test]
fn new_order_takes_stock_and_prices_lines() {
    let config = selkie_tpcc::Config { warehouses: 2, ..small() };
    with_loaded(&config, |cluster| async move {
        let node = &cluster.nodes[0];
        let tables = node.tables;
        let wanted = [(3, 1, 10), (900, 1, 1), (17, 2, 7), (512, 1, 5), (44, 1, 9)];
        let mut stocks = Vec::new();
        let mut amounts = Vec::new();
        for (item, supplier, quantity) in wanted {
            stocks.push(row(node, tables.stock, &key![supplier, item], stock_of).await);
            let price =
                row(node, tables.item, &key![item], |row| row.i64(i::I_PRICE).unwrap()).await;
            amounts.push(price * i64::from(quantity));
        }
        let lines = wanted.map(|(item, supply_warehouse, quantity)| LineInput {
            item,
            supply_warehouse,
            quantity,
        });
        let input = NewOrderInput {
            warehouse: 1,
            district: 10,
            customer: 5,
            lines: lines.into_iter().collect(),
        };
        let output = new_order(&session(node, 1), &input, 777).await.unwrap();

        assert_eq!(output.order, Some(31));
        let next = |row: RowRef<'_>| (row.i32(d::D_NEXT_O_ID).unwrap(), row.i64(d::D_TAX).unwrap());
        let (next_order, d_tax) = row(node, tables.district, &key![1, 10], next).await;
        assert_eq!(next_order, 32);
        let w_tax = row(node, tables.warehouse, &key![1], |row| row.i64(w::W_TAX).unwrap()).await;
        let discount = row(node, tables.customer, &key![1, 10, 5], |row| {
            assert_eq!(row.text(c::C_LAST).unwrap(), &*output.customer_last);
            row.i64(c::C_DISCOUNT).unwrap()
        })
        .await;
        let sum: i64 = amounts.iter().sum();
        let rates = (1.0 - discount as f64 / 1e4) * (1.0 + (w_tax + d_tax) as f64 / 1e4);
        assert!((output.total as f64 - sum as f64 * rates).abs() <= 1.0, "{output:?}");

        for ((item, supplier, quantity), before) in wanted.into_iter().zip(stocks) {
            let after = row(node, tables.stock, &key![supplier, item], stock_of).await;
            let left = before.0 - quantity;
            let left = if left >= 10 { left } else { left + 91 };
            let remote = i32::from(supplier != 1);
            assert_eq!(after, (left, i64::from(quantity), 1, remote), "item {item}");
        }
        row(node, tables.orders, &key![1, 10, 31], |row| {
            assert_eq!(row.i32(o::O_C_ID).unwrap(), 5);
            assert_eq!(row.i64(o::O_ENTRY_D).unwrap(), 777);
            assert!(row.is_null(o::O_CARRIER_ID).unwrap());
            assert_eq!(row.i32(o::O_OL_CNT).unwrap(), 5);
            assert_eq!(row.i32(o::O_ALL_LOCAL).unwrap(), 0, "one line is remote");
        })
        .await;
        row(node, tables.new_order, &key![1, 10, 31], |_| ()).await;
        let dist =
            row(node, tables.stock, &key![2, 17], |row| row.text(s::S_DIST_10).unwrap().to_owned())
                .await;
        let lines = rows(node, tables.order_line, &key![1, 10, 31], |row| {
            assert!(row.is_null(ol::OL_DELIVERY_D).unwrap());
            let item = row.i32(ol::OL_I_ID).unwrap();
            if item == 17 {
                assert_eq!(row.text(ol::OL_DIST_INFO).unwrap(), dist);
            }
            let supplier = row.i32(ol::OL_SUPPLY_W_ID).unwrap();
            let quantity = row.i32(ol::OL_QUANTITY).unwrap();
            ((item, supplier, quantity), row.i64(ol::OL_AMOUNT).unwrap())
        })
        .await;
        assert_eq!(lines, wanted.into_iter().zip(amounts).collect::<Vec<_>>());
    });
}

#[test]
fn payment_books_everywhere_and_notes_bad_credit() {
    with_loaded(&small(), |cluster| async move {
        let node = &cluster.nodes[0];
        let tables = node.tables;
        let credits =
            rows(node, tables.customer, &key![1, 3], |row| row.text(c::C_CREDIT).unwrap() == "BC")
                .await;
        for bad in [true, false] {
            let Some(at) = credits.iter().position(|credit| *credit == bad) else {
                panic!("district 3 has no customer with bad credit {bad}: take another seed")
            };
            let id = i32::try_from(at).unwrap() + 1;
            let ytd = |row: RowRef<'_>| row.i64(w::W_YTD).unwrap();
            let before = row(node, tables.warehouse, &key![1], ytd).await;
            let data = |row: RowRef<'_>| row.text(cd::C_DATA).unwrap().to_owned();
            let old_data = row(node, tables.customer_data, &key![1, 3, id], data).await;
            let input = PaymentInput {
                warehouse: 1,
                district: 7,
                customer_warehouse: 1,
                customer_district: 3,
                customer: CustomerBy::Id(id),
                amount: 12_345,
            };
            let writer = 40 + i32::from(bad);
            let output = payment(&session(node, writer), &input, 9).await.unwrap();
            assert_eq!((output.customer, output.bad_credit), (id, bad));
            assert_eq!(output.balance, -1_000 - 12_345);
            assert_eq!(row(node, tables.warehouse, &key![1], ytd).await, before + 12_345);
            row(node, tables.customer, &key![1, 3, id], |row| {
                assert_eq!(row.i64(c::C_BALANCE).unwrap(), -1_000 - 12_345);
                assert_eq!(row.i64(c::C_YTD_PAYMENT).unwrap(), 1_000 + 12_345);
                assert_eq!(row.i32(c::C_PAYMENT_CNT).unwrap(), 2);
            })
            .await;
            let new_data = row(node, tables.customer_data, &key![1, 3, id], data).await;
            let note = format!("{id} 3 1 7 1 123.45|");
            let mut expected = if bad { format!("{note}{old_data}") } else { old_data };
            expected.truncate(500);
            assert_eq!(new_data, expected);
            let history = rows(node, tables.history, &key![1, writer], |row| {
                (
                    row.i32(h::H_D_ID).unwrap(),
                    row.i32(h::H_C_D_ID).unwrap(),
                    row.i64(h::H_AMOUNT).unwrap(),
                )
            })
            .await;
            assert_eq!(history, [(7, 3, 12_345)]);
        }
        let ytd = |row: RowRef<'_>| row.i64(d::D_YTD).unwrap();
        let paid = row(node, tables.district, &key![1, 7], ytd).await;
        assert_eq!(paid, 30 * 1_000 + 2 * 12_345, "booked where it was paid");
    });
}

#[test]
fn customers_by_name_are_the_middle_ones_by_first_name() {
    with_loaded(&small(), |cluster| async move {
        let node = &cluster.nodes[0];
        let mut bearers = rows(node, node.tables.customer, &key![1, 2], |row| {
            let text = |column| row.text(column).unwrap().to_owned();
            (text(c::C_LAST), text(c::C_FIRST), row.i32(c::C_ID).unwrap())
        })
        .await;
        bearers.sort();
        let names: BTreeSet<String> = bearers.iter().map(|bearer| bearer.0.clone()).collect();
        let session = session(node, 1);
        for name in &names {
            let same: Vec<_> = bearers.iter().filter(|bearer| bearer.0 == *name).collect();
            let customer = CustomerBy::LastName(Text::new().with(name));
            let input = OrderStatusInput { warehouse: 1, district: 2, customer };
            let output = order_status(&session, &input).await.unwrap();
            assert_eq!(output.customer, same[same.len().div_ceil(2) - 1].2, "{name}: {same:?}");
        }
    });
}

#[test]
fn order_status_shows_the_last_order_and_delivery_delivers_the_first() {
    with_loaded(&small(), |cluster| async move {
        let node = &cluster.nodes[0];
        let session = session(node, 1);
        // The first undelivered order is 22; give its customer a later one, which is then the last.
        let first = key![1, 1, 22];
        let customer = |row: RowRef<'_>| row.i32(o::O_C_ID).unwrap();
        let customer = row(node, node.tables.orders, &first, customer).await;
        let status =
            OrderStatusInput { warehouse: 1, district: 1, customer: CustomerBy::Id(customer) };
        let before = order_status(&session, &status).await.unwrap();
        assert_eq!((before.order, before.carrier, before.delivered_lines), (Some(22), None, 0));
        assert!(before.amount > 0 && before.lines >= 5);

        let delivery = DeliveryInput { warehouse: 1, carrier: 6 };
        let delivered = deliver_district(&session, &delivery, 1, 55).await.unwrap();
        assert_eq!((delivered.order, delivered.amount), (Some(22), before.amount));
        let after = order_status(&session, &status).await.unwrap();
        assert_eq!((after.carrier, after.delivered_lines), (Some(6), before.lines));
        assert_eq!(after.balance, before.balance + before.amount);

        let lines =
            [5, 6, 7, 8, 9].map(|item| LineInput { item, supply_warehouse: 1, quantity: 1 });
        let input = NewOrderInput {
            warehouse: 1,
            district: 1,
            customer,
            lines: lines.into_iter().collect(),
        };
        new_order(&session, &input, 60).await.unwrap();
        let latest = order_status(&session, &status).await.unwrap();
        assert_eq!((latest.order, latest.lines, latest.carrier), (Some(31), 5, None));

        // Eight loaded orders and the new one are left; then there is nothing to deliver.
        for expected in (23..=31).map(Some).chain([None, None]) {
            let delivered = deliver_district(&session, &delivery, 1, 70).await.unwrap();
            assert_eq!(delivered.order, expected);
        }
    });
}

#[test]
fn stock_level_counts_different_items_of_the_last_twenty_orders() {
    with_loaded(&small(), |cluster| async move {
        let node = &cluster.nodes[0];
        let mut items = BTreeSet::new();
        for order in 11..=30 {
            items.extend(
                rows(node, node.tables.order_line, &key![1, 5, order], |row| {
                    row.i32(ol::OL_I_ID).unwrap()
                })
                .await,
            );
        }
        for threshold in [10, 15, 20, 101] {
            let mut low = 0;
            for &item in &items {
                let quantity = |row: RowRef<'_>| row.i32(s::S_QUANTITY).unwrap();
                low += usize::from(
                    row(node, node.tables.stock, &key![1, item], quantity).await < threshold,
                );
            }
            let input = StockLevelInput { warehouse: 1, district: 5, threshold };
            let output = stock_level(&session(node, 1), &input, &StockLevelProgress::default())
                .await
                .unwrap();
            assert_eq!((output.low_stock, output.items), (low, items.len()), "below {threshold}");
        }
        assert!(items.len() > 100);
    });
}
