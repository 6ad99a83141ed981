//! What a layer above keeps with tables, and the keys that it asks a transaction for.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_txn::{ColumnType, KeyOrder, Protocol, SchemaError, TableSchema, TxnError, Value};

use crate::common::bank;

#[test]
fn a_note_is_seen_with_the_rest_of_the_definition() {
    let (cluster, databases, _) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin();
        let schema = TableSchema::new("t").column("a", ColumnType::I32).primary_key([0]);
        let table = txn.create_table(schema.note("first")).await.unwrap();
        txn.commit().await.unwrap();

        let mut earlier = there.begin();
        assert_eq!(earlier.schema(table).await.unwrap().note, "first");
        let mut txn = here.begin();
        txn.set_note(table, "second").await.unwrap();
        assert_eq!(txn.schema(table).await.unwrap().note, "second");
        txn.rollback().await;
        let mut txn = here.begin();
        txn.set_note(table, "third").await.unwrap();
        txn.commit().await.unwrap();
        // It has used the table as it was.
        let mut row = earlier.row(table).await.unwrap();
        let changed = match earlier.insert(table, row.i32(1).finish().unwrap()).await {
            Ok(()) => earlier.commit().await,
            failed => failed,
        };
        assert!(changed.is_err_and(|error| error.is_retryable()));
        assert_eq!(there.begin().schema(table).await.unwrap().note, "third");
    });
}

#[test]
fn a_transaction_gives_keys_by_the_definition_that_it_uses() {
    let (cluster, databases, _) = bank(Protocol::Snapshot);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let schema = TableSchema::new("t")
            .column("a", ColumnType::I32)
            .column("b", ColumnType::Text(8))
            .primary_key([0, 1])
            .primary_key_order([KeyOrder::DESCENDING, KeyOrder::ASCENDING]);
        let mut txn = db.begin();
        let table = txn.create_table(schema).await.unwrap();
        let mut row = txn.row(table).await.unwrap();
        let row = row.i32(7).text("x").finish().unwrap();
        txn.insert(table, row).await.unwrap();
        let key = txn.key(table, &[Value::I32(7), Value::Text("x")]).unwrap();
        assert_eq!(key, txn.key_of(table, row).unwrap());
        assert!(txn.get(table, &key).await.unwrap().is_some());
        let prefix = txn.key(table, &[Value::I32(7)]).unwrap();
        assert!(key.as_bytes().starts_with(prefix.as_bytes()));
        let wrong = txn.key(table, &[Value::Text("x")]).unwrap_err();
        assert!(matches!(wrong, TxnError::Row(_)), "{wrong}");
        txn.rollback().await;
    });
}

#[test]
fn a_definition_keeps_its_number_until_it_is_changed() {
    let (cluster, databases, _) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin();
        let schema = TableSchema::new("t").column("a", ColumnType::I32).primary_key([0]);
        let table = txn.create_table(schema).await.unwrap();
        let own = txn.definition_id(table).await.unwrap();
        assert_eq!(txn.definition_id(table).await.unwrap(), own);
        txn.commit().await.unwrap();

        let first = there.begin().definition_id(table).await.unwrap();
        assert_eq!(there.begin_to_read().definition_id(table).await.unwrap(), first);
        let mut earlier = there.begin_to_read();
        assert_eq!(earlier.definition_id(table).await.unwrap(), first);
        let mut txn = here.begin();
        txn.set_note(table, "changed").await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(earlier.definition_id(table).await.unwrap(), first, "its snapshot is older");
        assert_ne!(there.begin().definition_id(table).await.unwrap(), first);

        let mut txn = here.begin();
        txn.drop_table(table).await.unwrap();
        txn.commit().await.unwrap();
        let gone = there.begin().definition_id(table).await.unwrap_err();
        assert!(matches!(gone, TxnError::Schema(SchemaError::NoSuchTable { .. })), "{gone}");
    });
}
