//! Reads of some columns of a row: what they see, and what others may change meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, NamedRowError, Protocol, RowError, Table,
    TableSchema, Txn, TxnError, key,
};

use crate::common::{
    BALANCE, Cluster, NOTE, OPENING, OWNER, TAG, account, add, bank, check, failed_by, insert,
    with_each_protocol,
};

/// Changes account 2, and commits. What was read may be found changed at either.
async fn change_and_commit(mut txn: Txn<'_>, table: Table) -> Result<(), TxnError> {
    txn.update(table, &key![2], add(1)).await?;
    txn.commit().await
}

/// Reads these columns of account 1, lets `other` do something there, changes account 2, and
/// commits.
async fn read_beside(
    [here, there]: [&Database; 2],
    table: Table,
    columns: &[usize],
    other: impl AsyncFn(&mut Txn<'_>),
) -> Result<(), TxnError> {
    let mut txn = here.begin();
    assert!(txn.get_columns(table, &key![1], columns).await?.is_some());
    let mut beside = there.begin();
    other(&mut beside).await;
    beside.commit().await.unwrap();
    change_and_commit(txn, table).await
}

#[test]
fn a_column_that_was_not_read_may_change_and_one_that_was_may_not() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let nodes = [&databases[0], &databases[1]];
    cluster.runtime.block_on(async {
        let pay = async |txn: &mut Txn<'_>| txn.update(table, &key![1], add(5)).await.unwrap();
        let note = async |txn: &mut Txn<'_>| {
            let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(NOTE, "changed")?);
            txn.update(table, &key![1], set).await.unwrap();
        };
        let delete = async |txn: &mut Txn<'_>| txn.delete(table, &key![1]).await.unwrap();
        read_beside(nodes, table, &[OWNER, TAG], pay).await.unwrap();
        read_beside(nodes, table, &[], pay).await.unwrap();
        read_beside(nodes, table, &[OWNER, BALANCE], note).await.unwrap();
        let stale = |result| failed_by(result, AbortCause::Stale);
        assert!(stale(read_beside(nodes, table, &[OWNER, BALANCE], pay).await));
        // It has the same note again, and another one.
        read_beside(nodes, table, &[NOTE], note).await.unwrap();
        let null = async |txn: &mut Txn<'_>| {
            let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_null(NOTE)?);
            txn.update(table, &key![1], set).await.unwrap();
        };
        assert!(stale(read_beside(nodes, table, &[NOTE], null).await));
        assert!(stale(read_beside(nodes, table, &[NOTE], note).await));
        // That there is a row was read in any case.
        assert!(stale(read_beside(nodes, table, &[], delete).await));
        let mut txn = databases[0].begin();
        assert!(txn.get_columns(table, &key![1], &[TAG]).await.unwrap().is_none());
        let mut beside = databases[1].begin();
        insert(&databases[1], &mut beside, table, 1, &account(1)).await.unwrap();
        beside.commit().await.unwrap();
        assert!(stale(change_and_commit(txn, table).await));
        check(&databases[0]).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn other_columns_cannot_be_read_from_the_row() {
    with_each_protocol(1, async |protocol, databases, table| {
        let mut txn = databases[0].begin();
        insert(&databases[0], &mut txn, table, 1, &account(1)).await.unwrap();
        for columns in [&[5][..], &[BALANCE, 64], &[usize::MAX]] {
            let refused = txn.get_columns(table, &key![1], columns).await.unwrap_err();
            let named = matches!(
                refused,
                TxnError::Row(NamedRowError {
                    error: RowError::NoSuchColumn { columns: 5, .. },
                    ..
                })
            );
            assert!(named && refused.abort_cause().is_none(), "{protocol}: {refused}");
        }
        // Of a row in the tree, and of one that the transaction has changed.
        for balance in [OPENING, OPENING + 7] {
            let row = txn.get_columns(table, &key![1], &[BALANCE]).await.unwrap().unwrap();
            assert_eq!(row.i64(BALANCE).unwrap(), balance);
            assert_eq!(row.i32(TAG).unwrap_err().error, RowError::NotRead { column: TAG });
            assert_eq!(row.is_null(NOTE).unwrap_err().error, RowError::NotRead { column: NOTE });
            assert_eq!(row.value(OWNER).unwrap_err().error, RowError::NotRead { column: OWNER });
            assert_eq!(
                row.value_bytes(NOTE).unwrap_err().error,
                RowError::NotRead { column: NOTE }
            );
            txn.update(table, &key![1], add(7)).await.unwrap();
        }
        txn.delete(table, &key![1]).await.unwrap();
        assert!(txn.get_columns(table, &key![1], &[BALANCE]).await.unwrap().is_none());
        txn.rollback().await;
    });
}

/// It has the bytes of all.
#[test]
fn a_row_of_some_columns_is_not_taken_for_a_whole_one() {
    with_each_protocol(1, async |protocol, databases, table| {
        let mut txn = databases[0].begin();
        for id in [1, 2] {
            insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let mut txn = databases[0].begin();
        let row = txn.get_columns(table, &key![1], &[0, BALANCE]).await.unwrap().unwrap();
        let mut other = databases[0].begin();
        let refused = other.insert(table, row).await.unwrap_err();
        let is_named =
            matches!(refused, TxnError::Row(NamedRowError { error: RowError::NotRead { .. }, .. }));
        assert!(is_named && refused.abort_cause().is_none(), "{protocol}: {refused}");
        let refused = other.load_values(table, row, &[]).await.map(drop).unwrap_err();
        assert!(
            matches!(refused, TxnError::Row(NamedRowError { error: RowError::NotRead { .. }, .. })),
            "{protocol}: {refused}"
        );
        other.rollback().await;
        txn.rollback().await;
    });
}

#[test]
fn a_long_value_that_was_read_may_not_change() {
    const LONG: usize = 1;
    let cluster = Cluster::start(2, 2048);
    let schema = TableSchema::new("letter")
        .column("id", ColumnType::I32)
        .column("text", ColumnType::Text(1 << 20))
        .column("n", ColumnType::I64)
        .primary_key([0]);
    let schema = DatabaseSchema::from(vec![schema]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let table = databases[0].table("letter").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in [1, 2] {
            let mut row = databases[0].row(table).unwrap();
            row.i32(id).text(&"x".repeat(10_000)).i64(0);
            txn.insert(table, row.finish().unwrap()).await.unwrap();
        }
        txn.commit().await.unwrap();
        for (column, is_read) in [(2, false), (LONG, true)] {
            let mut txn = databases[0].begin();
            assert!(txn.get_columns(table, &key![1], &[LONG]).await.unwrap().is_some());
            let mut beside = databases[1].begin();
            let text = "y".repeat(10_000);
            let change = |row: &mut selkie_txn::RowMut<'_>| match column {
                LONG => Ok(row.set_text(LONG, &text)?),
                _ => Ok(row.set_i64(column, 5)?),
            };
            beside.update(table, &key![1], change).await.unwrap();
            beside.commit().await.unwrap();
            let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(2, 9)?);
            let committed = match txn.update(table, &key![2], set).await {
                Ok(()) => txn.commit().await,
                Err(error) => Err(error),
            };
            assert_eq!(committed.is_ok(), !is_read, "{committed:?}");
            assert!(!is_read || failed_by(committed, AbortCause::Stale));
        }
    });
    drop(databases);
    cluster.close();
}

/// The columns have the numbers that they had when they were read, also where the transaction
/// itself gives them others.
#[test]
fn columns_are_those_of_the_definition_that_was_used() {
    for is_same in [true, false] {
        let cluster = Cluster::start(2, 512);
        let schema = TableSchema::new("pair")
            .column("id", ColumnType::I32)
            .column("left", ColumnType::I64)
            .column("right", ColumnType::I64)
            .primary_key([0]);
        let schema = DatabaseSchema::from(vec![schema]).protocol(Protocol::Snapshot);
        let databases = cluster.create(schema);
        let table = databases[0].table("pair").unwrap();
        cluster.runtime.block_on(async {
            let mut txn = databases[0].begin();
            for id in [1, 2] {
                let mut row = databases[0].row(table).unwrap();
                row.i32(id).i64(3).i64(4);
                txn.insert(table, row.finish().unwrap()).await.unwrap();
            }
            txn.commit().await.unwrap();
            let mut txn = databases[0].begin();
            let row = txn.get_columns(table, &key![1], &[2]).await.unwrap().unwrap();
            assert_eq!(row.i64(2).unwrap(), 4);
            txn.drop_column(table, "left").await.unwrap();
            // The leaf of the row changes: another row, or what was read.
            let changed = key![if is_same { 2 } else { 1 }];
            let mut beside = databases[1].begin();
            beside.update(table, &changed, |row| Ok(row.set_i64(2, 9)?)).await.unwrap();
            beside.commit().await.unwrap();
            let committed = txn.commit().await;
            assert_eq!(committed.is_ok(), is_same, "{committed:?}");
        });
        drop(databases);
        cluster.close();
    }
}
