//! Nodes that die, or lose their patience, while they build an index.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_txn::{
    Database, DatabaseSchema, Direction, KeyRange, NewIndex, Protocol, RetryPolicy, SchemaError,
    Source, Table, TxnError, key, retry,
};

use crate::common::{
    Account, Cluster, ClusterOptions, OWNER, account, accounts, add, check, insert, poll_times,
};

const ROWS: i32 = 700;

/// Two nodes with logs in the pool, and a table.
fn two_nodes() -> (Cluster, Vec<Database>, Table) {
    let logs = vec![Some(LogTo::Memory), Some(LogTo::Memory)];
    let options = ClusterOptions { logs, log_bytes: 1 << 20, ..ClusterOptions::new(1024) };
    let cluster = Cluster::start_as(options);
    let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        for first in (0..ROWS).step_by(100) {
            let mut txn = databases[0].begin();
            for id in first..first + 100 {
                insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
            }
            txn.commit().await.unwrap();
        }
    });
    (cluster, databases, table)
}

/// Changes rows that the index has, may have, and has not.
async fn change_rows(db: &Database, table: Table, round: i32) {
    let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
    let changed = retry(db.engine().env(), &policy, || async {
        let mut txn = db.begin();
        for id in [round, ROWS / 2 + round, ROWS - 1 - round] {
            txn.update(table, &key![id], add(1)).await?;
            let owner = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(OWNER, "new")?);
            txn.update(table, &key![id], owner).await?;
        }
        txn.delete(table, &key![ROWS / 3 + round]).await?;
        let new = Account { tag: 10_000 + round, ..account(round) };
        insert(db, &mut txn, table, 10_000 + round, &new).await?;
        txn.commit().await
    });
    changed.await.unwrap();
}

async fn count(db: &Database, source: impl Into<Source>) -> usize {
    let (mut txn, mut rows) = (db.begin_to_read(), 0);
    txn.scan(source, &KeyRange::all(), Direction::Forward, |_| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    rows
}

async fn incomplete(db: &Database, table: Table) -> Vec<String> {
    db.begin_to_read().incomplete_indexes(table).await.unwrap()
}

fn by_owner_and_tag() -> NewIndex {
    NewIndex::new("late", ["owner", "tag"])
}

/// Drops the index on another node, or completes it there.
async fn clear_up(db: &Database, table: Table, goes_on: bool) {
    let left = incomplete(db, table).await;
    change_rows(db, table, 3).await;
    let again = db.create_index(table, by_owner_and_tag()).await;
    if left.is_empty() {
        // It had not begun, or was complete.
        drop(again);
    } else {
        assert_eq!(left, ["late"]);
        let error = again.unwrap_err().to_string();
        assert!(error.contains("late"), "{error}");
        if goes_on {
            let index = db.resume_index(table, "late").await.unwrap();
            assert_eq!(count(db, index).await, ROWS as usize);
            assert!(incomplete(db, table).await.is_empty());
            let same = db.resume_index(table, "late").await.unwrap();
            assert_eq!(same, index, "it is complete");
        } else {
            let mut txn = db.begin();
            txn.drop_index(table, "late").await.unwrap();
            txn.commit().await.unwrap();
            let gone = db.resume_index(table, "late").await.unwrap_err();
            assert!(matches!(gone, TxnError::Schema(SchemaError::NoSuchIndex { .. })), "{gone}");
        }
    }
    change_rows(db, table, 4).await;
    db.refresh().await.unwrap();
    check(db).await;
}

/// Fails if more pages of the pool are left over, once trees that were dropped are given back.
async fn leaves_pages(db: &Database, most: u64) {
    for _ in 0..1000 {
        if db.reclaim_dropped().await.unwrap() == 0 {
            break;
        }
        db.engine().env().sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(db.reclaim_dropped().await.unwrap(), 0);
    let used = db.pages(db.engine()).await.unwrap();
    let census = db.engine().repair_lines(&used, true).await.unwrap();
    assert!(census.leaked <= most, "{census:?}");
    if most > 0 {
        db.engine().repair_lines(&used, false).await.unwrap();
        let census = db.engine().repair_lines(&used, true).await.unwrap();
        assert_eq!(census.leaked, 0, "{census:?}");
    }
}

#[test]
fn an_index_whose_builder_was_dropped_is_dropped_or_gone_on_with() {
    let mut were_begun = 0;
    for polls in (0..20).chain([40]) {
        for goes_on in [false, true] {
            let (cluster, databases, table) = two_nodes();
            let [here, there] = &databases[..] else { panic!("two nodes") };
            cluster.runtime.block_on(async {
                drop(poll_times(here.create_index(table, by_owner_and_tag()), polls).await);
                were_begun += incomplete(here, table).await.len();
                change_rows(there, table, 1).await;
                change_rows(here, table, 2).await;
                clear_up(there, table, goes_on).await;
                here.engine().close().await.unwrap();
                println!("after {polls} polls, {goes_on}");
                leaves_pages(there, 0).await;
            });
            drop(databases);
            cluster.close();
        }
    }
    assert!(were_begun > 2, "{were_begun}");
}

#[test]
fn an_index_whose_builder_has_died_is_dropped_or_gone_on_with() {
    let mut were_begun = 0;
    for polls in [0, 1, 3, 5, 8, 12, 20, 40] {
        for goes_on in [false, true] {
            let (cluster, databases, table) = two_nodes();
            let [here, there] = &databases[..] else { panic!("two nodes") };
            cluster.runtime.block_on(async {
                let mut building = here.create_index(table, by_owner_and_tag());
                let _ = poll_times(building.as_mut(), polls).await;
                cluster.kill(0).await;
                // It does nothing more, and gives nothing back.
                std::mem::forget(building);
                were_begun += incomplete(there, table).await.len();
                change_rows(there, table, 1).await;
                clear_up(there, table, goes_on).await;
                println!("after {polls} polls, {goes_on}");
                // Two pages at most: a tree, or the half of a leaf, that it had allocated and that
                // nothing came to lead to. Its log has the pages, but not what else its
                // transaction was to do, so who recovers from it cannot tell them from pages in
                // use. They stay allocated until a repair looks at all that is in use.
                leaves_pages(there, 2).await;
                there.engine().close().await.unwrap();
            });
        }
    }
    println!("{were_begun} were begun");
    assert!(were_begun > 0);
}
