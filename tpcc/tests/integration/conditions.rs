//! Each consistency condition finds a violation planted in the database.

use std::sync::Arc;

use selkie_tpcc::check;
use selkie_tpcc::columns::{
    customer as c, district as d, history as h, order_line as ol, orders as o, warehouse as w,
};
use selkie_tpcc::schema::Tables;
use selkie_tpcc::{Config, TpccCluster};
use selkie_txn::{RowMut, Table, Txn, TxnError, key};

use crate::setup::{silent, small, with_loaded};

/// Numbers of the conditions that do not hold.
async fn broken(cluster: &TpccCluster, config: &Config) -> Vec<u8> {
    let facts = check::collect(&cluster.nodes, 1, 1, &silent()).await.unwrap();
    assert_eq!(facts.lost_pages(), 0, "no node died");
    check::check(&facts, &config.scale).iter().map(|broken| broken.condition).collect()
}

async fn change(
    txn: &mut Txn<'_>,
    table: Table,
    key: &[u8],
    change: impl FnOnce(&mut RowMut<'_>) -> Result<(), TxnError> + Send,
) {
    txn.update(table, key, change).await.unwrap();
}

/// Adds 1 to an amount.
fn more(column: usize) -> impl FnOnce(&mut RowMut<'_>) -> Result<(), TxnError> + Send {
    move |row| Ok(row.set_i64(column, row.i64(column)? + 1)?)
}

/// Adds 1 to a count.
fn one_more(column: usize) -> impl FnOnce(&mut RowMut<'_>) -> Result<(), TxnError> + Send {
    move |row| Ok(row.set_i32(column, row.i32(column)? + 1)?)
}

/// Violations, and the conditions each must break: those that speak about the row, and no other.
/// At this scale a district has orders 1 to 30, of which 22 to 30 are not delivered.
const VIOLATIONS: [(&str, &[u8]); 13] = [
    ("w_ytd", &[1, 8]),
    ("d_ytd", &[1, 9]),
    ("d_next_o_id", &[2]),
    ("new_order in between deleted", &[3, 5, 11]),
    ("o_ol_cnt", &[4, 6]),
    ("order line deleted", &[4, 6]),
    ("o_carrier_id", &[5, 7]),
    ("ol_delivery_d", &[7]),
    ("h_amount", &[8, 9, 10]),
    ("h_c_id", &[10]),
    ("c_balance", &[10, 12]),
    ("c_delivery_cnt", &[11]),
    ("c_ytd_payment", &[12]),
];

/// Plants one of them.
async fn plant(txn: &mut Txn<'_>, tables: &Tables, name: &str) {
    let customer = key![1, 4, 17];
    // Loaded HISTORY rows are numbered through: the 17th customer of the 4th district.
    let payment = key![1, 0, 3 * 30 + 17i64];
    match name {
        "w_ytd" => change(txn, tables.warehouse, &key![1], more(w::W_YTD)).await,
        "d_ytd" => change(txn, tables.district, &key![1, 4], more(d::D_YTD)).await,
        "d_next_o_id" => {
            change(txn, tables.district, &key![1, 4], one_more(d::D_NEXT_O_ID)).await;
        }
        "new_order in between deleted" => {
            txn.delete(tables.new_order, &key![1, 4, 25]).await.unwrap();
        }
        "o_ol_cnt" => change(txn, tables.orders, &key![1, 4, 5], one_more(o::O_OL_CNT)).await,
        "order line deleted" => {
            txn.delete(tables.order_line, &key![1, 4, 5, 1]).await.unwrap();
        }
        "o_carrier_id" => {
            let set = |row: &mut RowMut<'_>| Ok(row.set_i32(o::O_CARRIER_ID, 3)?);
            change(txn, tables.orders, &key![1, 4, 28], set).await;
        }
        "ol_delivery_d" => {
            // A line of a delivered order; its amount is zero, so no balance is wrong.
            let set = |row: &mut RowMut<'_>| Ok(row.set_null(ol::OL_DELIVERY_D)?);
            change(txn, tables.order_line, &key![1, 4, 5, 2], set).await;
        }
        "h_amount" => change(txn, tables.history, &payment, more(h::H_AMOUNT)).await,
        "h_c_id" => change(txn, tables.history, &payment, one_more(h::H_C_ID)).await,
        "c_balance" => change(txn, tables.customer, &customer, more(c::C_BALANCE)).await,
        "c_delivery_cnt" => {
            change(txn, tables.customer, &customer, one_more(c::C_DELIVERY_CNT)).await;
        }
        "c_ytd_payment" => change(txn, tables.customer, &customer, more(c::C_YTD_PAYMENT)).await,
        other => panic!("no violation called {other}"),
    }
}

/// Conditions broken after the violation was rolled back, and after it was committed.
async fn scenario(cluster: &Arc<TpccCluster>, config: &Config, name: &str) -> (Vec<u8>, Vec<u8>) {
    let node = &cluster.nodes[0];
    let mut txn = node.db.begin();
    plant(&mut txn, &node.tables, name).await;
    txn.rollback().await;
    let rolled_back = broken(cluster, config).await;
    let mut txn = node.db.begin();
    plant(&mut txn, &node.tables, name).await;
    txn.commit().await.unwrap();
    (rolled_back, broken(cluster, config).await)
}

#[test]
fn every_condition_finds_its_violation() {
    let config = small();
    for (name, expected) in VIOLATIONS {
        with_loaded(&config, |cluster| async move {
            let (rolled_back, committed) = scenario(&cluster, &small(), name).await;
            assert_eq!(rolled_back, [0; 0], "{name} was rolled back");
            assert_eq!(committed, expected, "{name}");
        });
    }
    let mut all: Vec<u8> =
        VIOLATIONS.iter().flat_map(|(_, broken)| broken.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..=check::CONDITIONS).collect::<Vec<_>>(), "a condition was not tried");
}

#[test]
fn offending_keys_are_named() {
    let config = small();
    with_loaded(&config, |cluster| async move {
        let node = &cluster.nodes[0];
        let mut txn = node.db.begin();
        plant(&mut txn, &node.tables, "d_next_o_id").await;
        txn.commit().await.unwrap();
        let facts = check::collect(&cluster.nodes, 1, 2, &silent()).await.unwrap();
        let broken = check::check(&facts, &small().scale);
        assert_eq!(broken[0].examples, ["district (1, 4): 31, 30 and 30"]);
    });
}
