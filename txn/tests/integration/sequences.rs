//! Sequences: no value comes twice, on no node, whatever ends.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_txn::{
    AbortCause, CatalogueError, Database, Isolation, Protocol, RetryPolicy, SequenceError,
    SequenceSchema, TxnError, retry,
};

use crate::common::{Cluster, bank, failed_by, pay, poll_times, with_each_protocol};

fn two_nodes() -> (Cluster, Vec<Database>) {
    let (cluster, databases, _) = bank(Protocol::Snapshot);
    (cluster, databases)
}

async fn create(db: &Database, schema: SequenceSchema) {
    let mut txn = db.begin();
    txn.create_sequence(schema).await.unwrap();
    txn.commit().await.unwrap();
}

/// The next value, in a transaction of its own.
async fn next(db: &Database, name: &str) -> Result<i64, TxnError> {
    let mut txn = db.begin();
    let value = txn.next_value(name).await?;
    txn.commit().await?;
    Ok(value)
}

fn is_missing(error: &TxnError) -> bool {
    matches!(error, TxnError::Sequence(SequenceError::NoSuchSequence { .. }))
}

#[test]
fn no_two_transactions_of_two_nodes_get_one_value() {
    const TASKS: usize = 4;
    const EACH: usize = 300;
    let (cluster, databases) = two_nodes();
    let seen: Arc<Mutex<BTreeSet<i64>>> = Arc::default();
    cluster.runtime.block_on(async {
        create(&databases[0], SequenceSchema { block: 10, ..SequenceSchema::new("ids") }).await;
        let env = databases[0].engine().env().clone();
        let mut tasks = Vec::new();
        for task in 0..2 * TASKS {
            let (db, seen) = (databases[task % 2].clone(), Arc::clone(&seen));
            tasks.push(env.spawn("takes", async move {
                let (env, policy) = (db.engine().env().clone(), RetryPolicy::default());
                for turn in 0..EACH {
                    let value = retry(&env, &policy, || async {
                        let mut txn = db.begin();
                        let value = txn.next_value("ids").await?;
                        if turn % 3 == 0 {
                            txn.rollback().await;
                        } else {
                            txn.commit().await?;
                        }
                        Ok::<_, TxnError>(value)
                    });
                    let value = value.await.unwrap();
                    assert!(seen.lock().insert(value), "{value} came twice");
                }
            }));
        }
        for task in tasks {
            task.join().await.unwrap();
        }
    });
    let seen = seen.lock();
    let all = 2 * TASKS * EACH;
    assert_eq!(seen.len(), all);
    // One caller takes a block for all of its node, so no more is left out than two blocks.
    let last = usize::try_from(*seen.last().unwrap()).unwrap();
    assert!((all..all + 20).contains(&last), "{last}");
    drop(databases);
    cluster.close();
}

#[test]
fn who_takes_values_does_not_conflict_with_others_that_do() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        create(here, SequenceSchema { block: 1, ..SequenceSchema::new("ids") }).await;
        let table = here.table("account").unwrap();
        for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
            let mut txn = here.begin_with(isolation);
            let first = txn.next_value("ids").await.unwrap();
            txn.update(table, &selkie_txn::key![1], crate::common::add(1)).await.unwrap();
            for later in 1..=10 {
                assert_eq!(next(there, "ids").await.unwrap(), first + later);
            }
            // Another leaf of the catalogue was changed, and rows of the table.
            pay(there, table, 2, 1).await;
            assert_eq!(txn.next_value("ids").await.unwrap(), first + 11);
            txn.commit().await.unwrap();
        }
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_sequence_is_seen_by_others_once_it_is_committed() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin();
        assert!(is_missing(&txn.next_value("ids").await.unwrap_err()));
        let from_seven = SequenceSchema { start: 7, ..SequenceSchema::new("ids") };
        txn.create_sequence(from_seven.clone()).await.unwrap();
        assert_eq!(txn.next_value("ids").await.unwrap(), 7);
        let savepoint = txn.savepoint().unwrap();
        assert_eq!(txn.next_value("ids").await.unwrap(), 8);
        txn.rollback_to(savepoint).unwrap();
        assert_eq!(txn.next_value("ids").await.unwrap(), 8);
        let again = txn.create_sequence(SequenceSchema::new("ids")).await.unwrap_err();
        assert_eq!(again.to_string(), "there is a sequence ids already");
        assert!(is_missing(&next(there, "ids").await.unwrap_err()));
        txn.commit().await.unwrap();
        assert_eq!(next(there, "ids").await.unwrap(), 9);
        assert_eq!(here.begin().sequence("ids").await.unwrap(), from_seven);

        let mut txn = here.begin();
        txn.create_sequence(SequenceSchema::new("gone")).await.unwrap();
        txn.rollback().await;
        assert!(is_missing(&next(here, "gone").await.unwrap_err()));
        let names: Vec<_> = there.begin().sequences().await.unwrap();
        assert_eq!(names, [from_seven]);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_change_makes_blocks_of_other_nodes_worthless() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        create(here, SequenceSchema { block: 100, ..SequenceSchema::new("ids") }).await;
        assert_eq!(next(there, "ids").await.unwrap(), 1);
        let mut open = there.begin();
        assert_eq!(open.next_value("ids").await.unwrap(), 2);
        let mut old = there.begin_with(Isolation::RepeatableRead);
        let table = there.table("account").unwrap();
        old.get(table, &selkie_txn::key![1]).await.unwrap();

        let mut txn = here.begin();
        txn.alter_sequence("ids", |of| of.increment = 10, Some(1_000)).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(next(there, "ids").await.unwrap(), 1_000);
        assert_eq!(next(here, "ids").await.unwrap(), 2_000);
        assert_eq!(next(there, "ids").await.unwrap(), 1_010);
        // It has used the definition that was before.
        assert!(failed_by(open.commit().await, AbortCause::Stale));
        // It sees that definition, and may take what its node has of it; then there is no more.
        for value in 3..=100 {
            assert_eq!(old.next_value("ids").await.unwrap(), value);
        }
        let changed = old.next_value("ids").await.unwrap_err();
        assert!(matches!(changed, TxnError::Sequence(SequenceError::Changed { .. })), "{changed}");
        assert!(changed.is_retryable());
        drop(old);

        // Without a value it goes on behind all blocks that were taken.
        let mut txn = here.begin();
        txn.alter_sequence("ids", |of| of.name = "numbers".to_owned(), None).await.unwrap();
        txn.commit().await.unwrap();
        assert!(is_missing(&next(there, "ids").await.unwrap_err()));
        assert_eq!(next(there, "numbers").await.unwrap(), 3_000);

        let mut txn = there.begin();
        txn.drop_sequence("numbers").await.unwrap();
        assert!(is_missing(&txn.next_value("numbers").await.unwrap_err()));
        assert!(is_missing(&txn.drop_sequence("numbers").await.unwrap_err()));
        txn.commit().await.unwrap();
        assert!(is_missing(&next(here, "numbers").await.unwrap_err()));
    });
    drop(databases);
    cluster.close();
}

#[test]
fn an_end_and_what_is_refused_leave_the_transaction_as_it_was() {
    let (cluster, databases) = two_nodes();
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let few = SequenceSchema { max: 3, block: 2, ..SequenceSchema::new("few") };
        create(db, few.clone()).await;
        create(db, SequenceSchema { name: "round".to_owned(), cycles: true, ..few }).await;
        let mut txn = db.begin();
        for value in [1, 2, 3] {
            assert_eq!(txn.next_value("few").await.unwrap(), value);
        }
        for value in [1, 2, 3, 1, 2] {
            assert_eq!(txn.next_value("round").await.unwrap(), value);
        }
        let ended = txn.next_value("few").await.unwrap_err();
        assert_eq!(ended.to_string(), "sequence few has no more values: its last one is 3");
        let refused = [
            (SequenceSchema { increment: 0, ..SequenceSchema::new("x") }, "an increment of 0"),
            (SequenceSchema::new(""), "its name has 0 bytes (allowed: 1 to"),
            (SequenceSchema::new("n".repeat(500)), "its name has 500 bytes"),
        ];
        for (schema, says) in refused {
            let error = txn.create_sequence(schema).await.unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        // It has reached 3.
        let beyond = txn.alter_sequence("few", |of| of.max = 2, None).await.unwrap_err();
        assert_eq!(beyond.to_string(), "sequence few: 3 is not between its bounds 1 and 2");
        txn.alter_sequence("few", |of| of.max = 4, None).await.unwrap();
        assert_eq!(txn.next_value("few").await.unwrap(), 4);
        txn.commit().await.unwrap();

        let mut reader = db.begin_to_read();
        assert!(matches!(reader.next_value("round").await, Err(TxnError::ReadOnly)));
        assert_eq!(reader.sequence("few").await.unwrap().max, 4);
        assert!(is_missing(&reader.sequence("none").await.unwrap_err()));
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_future_that_is_dropped_keeps_no_other_from_its_turn() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        create(here, SequenceSchema { block: 1, ..SequenceSchema::new("ids") }).await;
        let mut seen = BTreeSet::new();
        for polls in 0..40 {
            seen.extend(next(there, "ids").await.ok());
            let mut txn = here.begin();
            if let Some(value) = poll_times(txn.next_value("ids"), polls).await {
                assert!(seen.insert(value.unwrap()));
            }
            drop(txn);
            assert!(seen.insert(next(here, "ids").await.unwrap()), "after {polls} polls");
        }
    });
    drop(databases);
    cluster.close();
}

#[test]
fn the_block_of_a_node_that_dies_is_left_out() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        create(here, SequenceSchema { block: 50, ..SequenceSchema::new("ids") }).await;
        assert_eq!(next(there, "ids").await.unwrap(), 1);
        // So that the page with what was taken is not lost with the node, which has no log.
        assert_eq!(next(here, "ids").await.unwrap(), 51);
        cluster.kill(1).await;
        let values: Vec<i64> = {
            let mut values = Vec::new();
            for _ in 0..60 {
                values.push(next(here, "ids").await.unwrap());
            }
            values
        };
        assert_eq!(values, (52..=111).collect::<Vec<_>>());
    });
}

#[test]
fn databases_whose_tables_never_change_have_no_sequences() {
    with_each_protocol(1, async |protocol, databases, _| {
        let mut txn = databases[0].begin();
        let created = txn.create_sequence(SequenceSchema::new("ids")).await;
        if protocol == Protocol::Snapshot {
            return created.unwrap();
        }
        for refused in [created, txn.next_value("ids").await.map(drop)] {
            let is_fixed = matches!(refused, Err(TxnError::Catalogue(CatalogueError::FixedTables)));
            assert!(is_fixed, "{protocol}: {refused:?}");
        }
    });
}
