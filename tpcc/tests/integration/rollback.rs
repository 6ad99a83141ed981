//! Orders with an unused item leave nothing behind.

use std::ops::ControlFlow;

use selkie_tpcc::transactions::{StockLevelProgress, new_order, stock_level};
use selkie_tpcc::{LineInput, NewOrderInput, StockLevelInput, TpccNode, UNUSED_ITEM};
use selkie_txn::{AbortCause, Direction, Isolation, KeyRange};

use crate::setup::{session, small, with_loaded};

/// The bytes of every row of every table.
async fn everything(node: &TpccNode) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for table in node.db.tables() {
        let mut txn = node.db.begin_with(Isolation::ReadCommitted);
        txn.scan(table, &KeyRange::all(), Direction::Forward, |row| {
            rows.push(row.as_bytes().to_vec());
            Ok(ControlFlow::Continue(()))
        })
        .await
        .unwrap();
        txn.commit().await.unwrap();
    }
    rows
}

fn input(last_item: i32) -> NewOrderInput {
    let items = [3, 900, 17, 512, last_item];
    let lines = items.map(|item| LineInput { item, supply_warehouse: 1, quantity: 4 });
    NewOrderInput { warehouse: 1, district: 2, customer: 5, lines: lines.into_iter().collect() }
}

#[test]
fn an_unused_item_takes_everything_back() {
    with_loaded(&small(), |cluster| async move {
        let node = &cluster.nodes[0];
        let session = session(node, 1);
        let before = everything(node).await;
        let output = new_order(&session, &input(UNUSED_ITEM), 1).await.unwrap();
        assert_eq!(output.order, None);
        assert_eq!(node.db.stats().aborts.of(AbortCause::Requested), 1);
        assert!(before == everything(node).await, "the rollback left something");
        for index in [node.tables.orders_by_customer, node.tables.customer_by_name] {
            node.db.tree(index).unwrap().verify(&node.engine).await.unwrap();
        }

        // The number that was taken back is given to the next order.
        let output = new_order(&session, &input(44), 1).await.unwrap();
        assert_eq!(output.order, Some(31));
        let after = everything(node).await;
        assert_eq!(after.len(), before.len() + 1 + 1 + 5);
        let looked_at = StockLevelInput { warehouse: 1, district: 2, threshold: 10 };
        assert!(
            stock_level(&session, &looked_at, &StockLevelProgress::default()).await.unwrap().items
                > 5
        );
    });
}
