//! The anomalies of Hermitage (Kleppmann, after Adya), by name, at each isolation of
//! [`Protocol::Snapshot`]: which cannot happen, and which a level allows. Two transactions, or
//! three, on two nodes, their steps in the order of the list. A test row has a number and a value:
//! row 1 begins as 10, row 2 as 20.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;

use selkie_txn::{Database, Direction, Isolation, KeyRange, Protocol, Table, Txn, TxnError, key};

use crate::common::{Account, BALANCE, account, balance, insert, with_each_protocol};

use Isolation::{ReadCommitted, RepeatableRead, Serializable};

const LEVELS: [Isolation; 3] = [ReadCommitted, RepeatableRead, Serializable];

/// Runs a test at each level, on new rows each time.
fn at_each_level(test: impl AsyncFn(&Rows<'_>, Isolation)) {
    with_each_protocol(2, async |protocol, databases, table| {
        if protocol != Protocol::Snapshot {
            return;
        }
        let mut txn = databases[0].begin();
        for (id, value) in [(1, 10), (2, 20)] {
            insert(&databases[0], &mut txn, table, id, &row(id, value)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let rows = Rows { databases, table };
        for level in LEVELS {
            rows.reset().await;
            test(&rows, level).await;
        }
    });
}

fn row(id: i32, value: i64) -> Account {
    Account { balance: value, ..account(id) }
}

struct Rows<'a> {
    databases: &'a [Database],
    table: Table,
}

impl Rows<'_> {
    /// Three transactions, on the first node, on the second, and on the first.
    fn begin(&self, level: Isolation) -> (Txn<'_>, Txn<'_>, Txn<'_>) {
        let [a, b] = self.databases else { panic!("two nodes") };
        (a.begin_with(level), b.begin_with(level), a.begin_with(level))
    }

    async fn reset(&self) {
        let mut txn = self.databases[0].begin();
        for (id, value) in [(1, 10), (2, 20)] {
            self.set(&mut txn, id, value).await.unwrap();
        }
        for id in 3..=6 {
            match txn.delete(self.table, &key![id]).await {
                Ok(()) | Err(TxnError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        txn.commit().await.unwrap();
    }

    async fn get(&self, txn: &mut Txn<'_>, id: i32) -> i64 {
        balance(txn, self.table, id).await.unwrap()
    }

    async fn set(&self, txn: &mut Txn<'_>, id: i32, value: i64) -> Result<(), TxnError> {
        txn.update(self.table, &key![id], |row| Ok(row.set_i64(BALANCE, value)?)).await
    }

    async fn insert(&self, txn: &mut Txn<'_>, id: i32, value: i64) -> Result<(), TxnError> {
        insert(&self.databases[0], txn, self.table, id, &row(id, value)).await
    }

    /// Numbers of the rows whose value is a multiple.
    async fn multiples(&self, txn: &mut Txn<'_>, of: i64) -> Vec<i32> {
        let mut found = Vec::new();
        txn.scan(self.table, &KeyRange::all(), Direction::Forward, |row| {
            if row.i64(BALANCE)? % of == 0 {
                found.push(row.i32(0)?);
            }
            Ok(ControlFlow::Continue(()))
        })
        .await
        .unwrap();
        found
    }

    /// The values of both rows, as they are now.
    async fn now(&self) -> (i64, i64) {
        let mut txn = self.databases[1].begin_to_read();
        let both = (self.get(&mut txn, 1).await, self.get(&mut txn, 2).await);
        txn.commit().await.unwrap();
        both
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, TxnError>) {
    let error = result.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn g0_write_cycles() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        rows.set(&mut a, 1, 11).await.unwrap();
        rows.set(&mut b, 1, 12).await.unwrap();
        rows.set(&mut a, 2, 21).await.unwrap();
        a.commit().await.unwrap();
        assert_eq!(rows.now().await, (11, 21), "{level:?}");
        // The second one has read the rows before the first changed them.
        let second = async {
            rows.set(&mut b, 2, 22).await?;
            b.commit().await
        };
        refused(second.await);
        assert_eq!(rows.now().await, (11, 21), "{level:?}");
    });
}

#[test]
fn g1a_aborted_reads() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        rows.set(&mut a, 1, 101).await.unwrap();
        assert_eq!(rows.get(&mut b, 1).await, 10);
        a.rollback().await;
        assert_eq!(rows.get(&mut b, 1).await, 10, "{level:?}");
        b.commit().await.unwrap();
    });
}

#[test]
fn g1b_intermediate_reads() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        rows.set(&mut a, 1, 101).await.unwrap();
        assert_eq!(rows.get(&mut b, 1).await, 10);
        rows.set(&mut a, 1, 11).await.unwrap();
        a.commit().await.unwrap();
        match level {
            ReadCommitted => assert_eq!(rows.get(&mut b, 1).await, 11),
            RepeatableRead => assert_eq!(rows.get(&mut b, 1).await, 10),
            Serializable => return refused(b.get(rows.table, &key![1]).await.map(drop)),
        }
        b.commit().await.unwrap();
    });
}

#[test]
fn g1c_circular_information_flow() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        rows.set(&mut a, 1, 11).await.unwrap();
        rows.set(&mut b, 2, 22).await.unwrap();
        assert_eq!(rows.get(&mut a, 2).await, 20);
        assert_eq!(rows.get(&mut b, 1).await, 10);
        a.commit().await.unwrap();
        match level {
            ReadCommitted | RepeatableRead => b.commit().await.unwrap(),
            Serializable => refused(b.commit().await),
        }
    });
}

#[test]
fn otv_observed_transaction_vanishes() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, mut c) = rows.begin(level);
        rows.set(&mut a, 1, 11).await.unwrap();
        rows.set(&mut a, 2, 19).await.unwrap();
        a.commit().await.unwrap();
        assert_eq!(rows.get(&mut c, 1).await, 11);
        rows.set(&mut b, 1, 12).await.unwrap();
        rows.set(&mut b, 2, 18).await.unwrap();
        assert_eq!(rows.get(&mut c, 2).await, 19);
        b.commit().await.unwrap();
        match level {
            // Each operation sees one state, and none an earlier one than before.
            ReadCommitted => {
                assert_eq!((rows.get(&mut c, 2).await, rows.get(&mut c, 1).await), (18, 12));
            }
            RepeatableRead => {
                assert_eq!((rows.get(&mut c, 2).await, rows.get(&mut c, 1).await), (19, 11));
            }
            Serializable => return refused(c.get(rows.table, &key![2]).await.map(drop)),
        }
        c.commit().await.unwrap();
    });
}

#[test]
fn pmp_predicate_many_preceders() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        assert!(rows.multiples(&mut a, 30).await.is_empty());
        rows.insert(&mut b, 3, 30).await.unwrap();
        b.commit().await.unwrap();
        match level {
            ReadCommitted => assert_eq!(rows.multiples(&mut a, 3).await, [3]),
            RepeatableRead => assert!(rows.multiples(&mut a, 3).await.is_empty()),
            Serializable => {
                let scanned = a.first(rows.table, &KeyRange::all()).await.map(drop);
                return refused(match scanned {
                    Ok(()) => a.commit().await,
                    failed => failed,
                });
            }
        }
        a.commit().await.unwrap();
    });
}

#[test]
fn pmp_for_write_predicates() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        rows.set(&mut a, 1, 20).await.unwrap();
        rows.set(&mut a, 2, 30).await.unwrap();
        let twenty = rows.multiples(&mut b, 20).await;
        assert_eq!(twenty, [2], "{level:?}");
        a.commit().await.unwrap();
        let deleted = async {
            b.delete(rows.table, &key![2]).await?;
            b.commit().await
        };
        match level {
            // What it deletes is what it finds then.
            ReadCommitted => deleted.await.unwrap(),
            RepeatableRead | Serializable => refused(deleted.await),
        }
        // The row is there again for the next level.
        let mut txn = rows.databases[0].begin();
        match rows.insert(&mut txn, 2, 20).await {
            Ok(()) | Err(TxnError::Duplicate { .. }) => txn.commit().await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn p4_lost_update() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        let (of_a, of_b) = (rows.get(&mut a, 1).await, rows.get(&mut b, 1).await);
        rows.set(&mut a, 1, of_a + 1).await.unwrap();
        rows.set(&mut b, 1, of_b + 1).await.unwrap();
        a.commit().await.unwrap();
        // Also at read committed: what an update has read stays until it commits.
        refused(b.commit().await);
        assert_eq!(rows.now().await.0, 11, "{level:?}");
    });
}

#[test]
fn g_single_read_skew() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        assert_eq!(rows.get(&mut a, 1).await, 10);
        rows.set(&mut b, 1, 12).await.unwrap();
        rows.set(&mut b, 2, 18).await.unwrap();
        b.commit().await.unwrap();
        match level {
            ReadCommitted => assert_eq!(rows.get(&mut a, 2).await, 18),
            RepeatableRead => assert_eq!(rows.get(&mut a, 2).await, 20),
            Serializable => return refused(a.get(rows.table, &key![2]).await.map(drop)),
        }
        a.commit().await.unwrap();
    });
}

#[test]
fn g_single_with_a_predicate() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        assert_eq!(rows.multiples(&mut a, 5).await, [1, 2]);
        rows.set(&mut b, 1, 12).await.unwrap();
        b.commit().await.unwrap();
        match level {
            ReadCommitted => assert_eq!(rows.multiples(&mut a, 3).await, [1]),
            RepeatableRead => assert!(rows.multiples(&mut a, 3).await.is_empty()),
            Serializable => return refused(a.first(rows.table, &KeyRange::all()).await.map(drop)),
        }
        a.commit().await.unwrap();
    });
}

#[test]
fn g_single_with_a_write_predicate() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        assert_eq!(rows.get(&mut a, 1).await, 10);
        let all = rows.multiples(&mut b, 1).await;
        assert_eq!(all, [1, 2]);
        rows.set(&mut b, 1, 12).await.unwrap();
        rows.set(&mut b, 2, 18).await.unwrap();
        b.commit().await.unwrap();
        let deleted = async {
            // The row whose value was 20.
            if balance(&mut a, rows.table, 2).await? == 20 {
                a.delete(rows.table, &key![2]).await?;
            }
            a.commit().await
        };
        match level {
            ReadCommitted => deleted.await.unwrap(),
            RepeatableRead | Serializable => refused(deleted.await),
        }
        assert_eq!(rows.now().await, (12, 18), "{level:?}");
    });
}

#[test]
fn g2_item_write_skew() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        for txn in [&mut a, &mut b] {
            assert_eq!((rows.get(txn, 1).await, rows.get(txn, 2).await), (10, 20));
        }
        rows.set(&mut a, 1, 11).await.unwrap();
        rows.set(&mut b, 2, 21).await.unwrap();
        a.commit().await.unwrap();
        match level {
            ReadCommitted | RepeatableRead => b.commit().await.unwrap(),
            Serializable => refused(b.commit().await),
        }
    });
}

#[test]
fn g2_anti_dependency_cycles() {
    at_each_level(async |rows, level| {
        let (mut a, mut b, _) = rows.begin(level);
        for txn in [&mut a, &mut b] {
            assert!(rows.multiples(txn, 3).await.is_empty());
        }
        rows.insert(&mut a, 3, 30).await.unwrap();
        rows.insert(&mut b, 4, 42).await.unwrap();
        a.commit().await.unwrap();
        match level {
            ReadCommitted | RepeatableRead => b.commit().await.unwrap(),
            Serializable => refused(b.commit().await),
        }
    });
}

#[test]
fn g2_with_a_reader_of_the_cycle() {
    // Fekete's example: a reader makes the two writers a circle.
    at_each_level(async |rows, level| {
        let (mut a, mut b, mut reader) = rows.begin(level);
        let withdrawn = async {
            assert_eq!((rows.get(&mut a, 1).await, rows.get(&mut a, 2).await), (10, 20));
            rows.set(&mut b, 2, 25).await.unwrap();
            b.commit().await.unwrap();
            assert_eq!((rows.get(&mut reader, 1).await, rows.get(&mut reader, 2).await), (10, 25));
            reader.commit().await.unwrap();
            rows.set(&mut a, 1, 0).await?;
            a.commit().await
        };
        match level {
            ReadCommitted | RepeatableRead => withdrawn.await.unwrap(),
            Serializable => refused(withdrawn.await),
        }
    });
}
