//! Streams: few rows at once, and what becomes of a statement whose rows are not read.

use selkie::block_on;
use selkie::sql::{Row, SqlState, TransactionState};

use crate::{count, notes};

fn id(row: &Row) -> i64 {
    row.get("id").unwrap()
}

#[test]
fn a_stream_gives_all_rows_in_order_and_stops_where_it_is_told_to() {
    block_on(async {
        let (_db, mut conn) = notes(5_000).await;
        let all = "select id, text from note where id > $1 order by id";
        let mut rows = conn.stream(all, &[&10_i64]).await.unwrap();
        assert_eq!(rows.columns()[1].name, "text");
        for expected in 11..=5_000 {
            assert_eq!(id(&rows.next().await.unwrap().unwrap()), expected);
        }
        assert!(rows.next().await.unwrap().is_none() && rows.next().await.unwrap().is_none());
        assert_eq!((rows.affected(), rows.is_over()), (4_990, true));
        drop(rows);

        // The end of the statement is far away: it is not run until there.
        let far = "select i as id from generate_series(1, 4000000000) i";
        let mut rows = conn.stream(far, &[]).await.unwrap();
        assert_eq!(id(&rows.next().await.unwrap().unwrap()), 1);
        assert!(!rows.is_over());
        let given = rows.finish().await.unwrap();
        assert!((1..100_000).contains(&given), "{given} rows were made for the first one");

        let mut rows = conn.stream(far, &[]).await.unwrap();
        rows.next().await.unwrap();
        drop(rows);
        assert_eq!(count(&mut conn).await, 5_000);
    });
}

#[test]
fn a_change_is_run_to_its_end_though_its_rows_are_not_read() {
    block_on(async {
        let (_db, mut conn) = notes(5_000).await;
        let mut rows = conn.stream("delete from note returning id", &[]).await.unwrap();
        rows.next().await.unwrap().unwrap();
        assert!(!rows.is_over(), "the batches of a change have to be several for this test");
        assert_eq!(rows.finish().await.unwrap(), 5_000);
        assert_eq!(count(&mut conn).await, 0);

        conn.batch("insert into note select i, '' from generate_series(1, 5000) i").await.unwrap();
        let mut rows = conn.stream("delete from note returning id", &[]).await.unwrap();
        rows.next().await.unwrap().unwrap();
        drop(rows);
        assert_eq!(conn.state(), TransactionState::Idle);
        assert_eq!(count(&mut conn).await, 5_000, "a change that is dropped is rolled back");
    });
}

#[test]
fn in_a_transaction_a_finished_stream_leaves_it_and_a_dropped_one_has_failed_it() {
    block_on(async {
        let (_db, mut conn) = notes(5_000).await;
        let mut txn = conn.begin().await.unwrap();
        txn.execute("update note set text = 'new' where id = 1", &[]).await.unwrap();
        // All rows are in one batch: the statement is over before the first is given.
        let mut rows = txn.stream("select id from note where id < 9", &[]).await.unwrap();
        rows.next().await.unwrap().unwrap();
        assert!(rows.is_over());
        drop(rows);
        let mut rows = txn.stream("select id from note", &[]).await.unwrap();
        rows.next().await.unwrap().unwrap();
        rows.finish().await.unwrap();
        assert_eq!(txn.state(), TransactionState::InTransaction);
        txn.commit().await.unwrap();

        let mut txn = conn.begin().await.unwrap();
        txn.execute("delete from note where id = 1", &[]).await.unwrap();
        let mut rows = txn.stream("select id from note", &[]).await.unwrap();
        rows.next().await.unwrap().unwrap();
        drop(rows);
        let failed = txn.execute("select 1", &[]).await.unwrap_err();
        assert_eq!(failed.state(), SqlState::IN_FAILED_TRANSACTION);
        let failed = txn.commit().await.unwrap_err();
        assert_eq!(failed.state(), SqlState::IN_FAILED_TRANSACTION);
        let new = "select text from note where id = 1";
        assert_eq!(conn.query_one::<(String,)>(new, &[]).await.unwrap().0, "new");
    });
}

#[test]
fn an_error_of_a_late_row_ends_a_stream() {
    block_on(async {
        let (_db, mut conn) = notes(5_000).await;
        let late = "select 1 / (5000 - id) as id from note order by note.id";
        let mut rows = conn.stream(late, &[]).await.unwrap();
        let mut given = 0;
        let error = loop {
            match rows.next().await {
                Ok(Some(_)) => given += 1,
                Ok(None) => panic!("the statement has ended"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.state(), SqlState::DIVISION_BY_ZERO);
        assert!(given < 5_000 && rows.next().await.unwrap().is_none());
        drop(rows);
        assert_eq!(count(&mut conn).await, 5_000);
    });
}
