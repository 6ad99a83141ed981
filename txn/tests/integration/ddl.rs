//! Changes of tables while others work with them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_txn::{
    AbortCause, CatalogueError, ColumnType, Database, DatabaseSchema, Direction, Isolation,
    KeyRange, NewIndex, Protocol, RetryPolicy, SchemaError, Source, Table, TableSchema, Txn,
    TxnError, key, retry,
};

use crate::common::{
    ACCOUNTS, Cluster, ClusterOptions, OWNER, account, accounts, add, balance, bank, check,
    failed_by, insert, pay, poll_times, scan_all,
};

/// A table with a number and a text.
fn notes(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column("id", ColumnType::I32)
        .column("text", ColumnType::Text(12))
        .primary_key([0])
        .index("by_text", [1])
}

async fn put(txn: &mut Txn<'_>, db: &Database, table: Table, id: i32) -> Result<(), TxnError> {
    let mut row = db.row(table)?;
    txn.insert(table, row.i32(id).text(&format!("note {id}")).finish()?).await
}

async fn count(txn: &mut Txn<'_>, source: impl Into<Source>) -> Result<usize, TxnError> {
    let mut rows = 0;
    txn.scan(source, &KeyRange::all(), Direction::Forward, |_| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    Ok(rows)
}

/// Two nodes with a database that has one table.
fn two_nodes() -> (Cluster, Vec<Database>) {
    let (cluster, databases, _) = bank(Protocol::Snapshot);
    (cluster, databases)
}

/// Creates a table of notes with so many rows.
async fn create_notes(db: &Database, name: &str, rows: i32) -> Table {
    let mut txn = db.begin();
    let table = txn.create_table(notes(name)).await.unwrap();
    txn.commit().await.unwrap();
    db.refresh().await.unwrap();
    for first in (0..rows).step_by(200) {
        let mut txn = db.begin();
        for id in first..rows.min(first + 200) {
            put(&mut txn, db, table, id).await.unwrap();
        }
        txn.commit().await.unwrap();
    }
    table
}

fn is_missing(error: &TxnError) -> bool {
    matches!(error, TxnError::Schema(SchemaError::NoSuchTable { .. }))
}

#[test]
fn a_table_is_seen_by_all_once_it_is_committed() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin();
        let table = txn.create_table(notes("note")).await.unwrap();
        assert_eq!(txn.table("note").await.unwrap(), table);
        assert_eq!(txn.schema(table).await.unwrap(), notes("note"));
        assert!(is_missing(&there.begin().table("note").await.unwrap_err()));
        let again = txn.create_table(notes("note")).await.unwrap_err();
        assert_eq!(again.to_string(), "there is a table note already");
        let account = txn.create_table(notes("account")).await.unwrap_err();
        assert_eq!(account.to_string(), "there is a table account already");
        txn.commit().await.unwrap();

        // Without a word from the other node.
        let mut txn = there.begin();
        assert_eq!(txn.table("note").await.unwrap(), table);
        let by_text = txn.index(table, "by_text").await.unwrap();
        assert_eq!(count(&mut txn, table).await.unwrap(), 0);
        for id in 0..20 {
            put(&mut txn, there, table, id).await.unwrap();
        }
        assert_eq!(count(&mut txn, by_text).await.unwrap(), 20);
        txn.commit().await.unwrap();
        here.refresh().await.unwrap();
        assert_eq!(here.table("note").unwrap(), table);
        check(here).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn what_is_rolled_back_was_never_there() {
    let (cluster, databases) = two_nodes();
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let account = db.table("account").unwrap();
        let mut txn = db.begin();
        let point = txn.savepoint().unwrap();
        let table = txn.create_table(notes("note")).await.unwrap();
        txn.rename_table(account, "konto").await.unwrap();
        txn.truncate(account).await.unwrap();
        assert_eq!(count(&mut txn, account).await.unwrap(), 0);
        txn.rollback_to(point).unwrap();
        assert!(is_missing(&txn.table("konto").await.unwrap_err()));
        assert!(is_missing(&count(&mut txn, table).await.unwrap_err()));
        assert_eq!(count(&mut txn, account).await.unwrap(), ACCOUNTS as usize);
        txn.drop_table(account).await.unwrap();
        assert!(is_missing(&balance(&mut txn, account, 1).await.unwrap_err()));
        txn.rollback().await;
        let next = create_notes(db, "note", 5).await;
        assert_eq!(count(&mut db.begin(), next).await.unwrap(), 5);
        assert_eq!(db.reclaim_dropped().await.unwrap(), 0);
        check(db).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_transaction_lists_the_tables_and_names_the_indexes_that_it_sees() {
    let (cluster, databases) = two_nodes();
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        let before = txn.tables().await.unwrap();
        let point = txn.savepoint().unwrap();
        let table = txn.create_table(notes("note").index("one", [1])).await.unwrap();
        let mut all = before.clone();
        all.push(("note".to_owned(), table));
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        assert_eq!(txn.tables().await.unwrap(), all);
        txn.rename_index(table, "one", "two").await.unwrap();
        assert!(txn.index(table, "one").await.is_err());
        txn.index(table, "two").await.unwrap();
        let error = txn.rename_index(table, "one", "three").await.unwrap_err().to_string();
        assert!(error.contains("one"), "{error}");
        assert_eq!(databases[1].begin().tables().await.unwrap(), before);
        txn.rollback_to(point).unwrap();
        assert_eq!(txn.tables().await.unwrap(), before);
        txn.rollback().await;
    });
    drop(databases);
    cluster.close();
}

/// What the transaction itself had changed before would have gone into the new, empty trees.
#[test]
fn a_table_that_is_emptied_loses_what_the_transaction_had_changed_in_it() {
    let (cluster, databases) = two_nodes();
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let table = create_notes(db, "note", 5).await;
        let mut txn = db.begin();
        put(&mut txn, db, table, 10).await.unwrap();
        txn.delete(table, &key![1]).await.unwrap();
        let point = txn.savepoint().unwrap();
        txn.truncate(table).await.unwrap();
        assert_eq!(count(&mut txn, table).await.unwrap(), 0);
        txn.rollback_to(point).unwrap();
        assert_eq!(count(&mut txn, table).await.unwrap(), 5);
        txn.truncate(table).await.unwrap();
        put(&mut txn, db, table, 2).await.unwrap();
        put(&mut txn, db, table, 10).await.unwrap();
        assert_eq!(count(&mut txn, table).await.unwrap(), 2);
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        assert_eq!(count(&mut txn, table).await.unwrap(), 2);
        let by_text = txn.index(table, "by_text").await.unwrap();
        assert_eq!(count(&mut txn, by_text).await.unwrap(), 2);
        put(&mut txn, db, table, 11).await.unwrap();
        txn.delete(table, &key![2]).await.unwrap();
        txn.drop_table(table).await.unwrap();
        txn.commit().await.unwrap();
        assert!(is_missing(&db.begin().table("note").await.unwrap_err()));
        db.refresh().await.unwrap();
        check(db).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_transaction_that_has_used_an_old_definition_is_run_again() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let table = here.table("account").unwrap();
        let isolations =
            [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];
        for (round, isolation) in isolations.into_iter().enumerate() {
            let mut txn = there.begin_with(isolation);
            txn.update(table, &key![1], add(1)).await.unwrap();
            let mut change = here.begin();
            change.rename_column(table, "note", &format!("n{round}")).await.unwrap();
            change.rename_column(table, &format!("n{round}"), "note").await.unwrap();
            change.commit().await.unwrap();
            assert!(failed_by(txn.commit().await, AbortCause::Stale), "{isolation:?}");
            pay(there, table, 1, 1).await;
        }
        let mut reader = there.begin_to_read();
        assert_eq!(balance(&mut reader, table, 1).await.unwrap(), 13);
        let mut change = here.begin();
        change.drop_table(table).await.unwrap();
        change.commit().await.unwrap();
        // Its state has the table.
        assert_eq!(count(&mut reader, table).await.unwrap(), ACCOUNTS as usize);
        reader.commit().await.unwrap();
        let gone = balance(&mut there.begin(), table, 1).await.unwrap_err();
        assert!(is_missing(&gone), "{gone}");
        let gone = balance(&mut there.begin_to_read(), table, 1).await.unwrap_err();
        assert!(is_missing(&gone), "{gone}");
        let mut txn = there.begin_with(Isolation::ReadCommitted);
        assert!(is_missing(&txn.get(table, &key![1]).await.unwrap_err()));
    });
    drop(databases);
    cluster.close();
}

/// Pages of a dropped table are given back some at a time, after a note which. They were left over
/// if the client went away in between.
#[test]
fn pages_come_back_though_the_futures_that_give_them_back_are_dropped() {
    let cluster = Cluster::start(1, 512);
    let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        for polls in 1..16 {
            let table = create_notes(db, "note", 1_200).await;
            let mut txn = db.begin();
            txn.drop_table(table).await.unwrap();
            txn.commit().await.unwrap();
            let until = db.engine().env().now() + Duration::from_secs(60);
            loop {
                drop(poll_times(db.reclaim_dropped(), polls).await);
                if poll_times(db.reclaim_dropped(), 1_000)
                    .await
                    .is_some_and(|left| left.unwrap() == 0)
                {
                    break;
                }
                assert!(db.engine().env().now() < until, "trees are left");
                db.engine().env().sleep(Duration::from_millis(1)).await;
            }
        }
        let used = db.pages(db.engine()).await.unwrap();
        let census = db.engine().repair_lines(&used, true).await.unwrap();
        assert_eq!(census.leaked, 0, "{census:?}");
    });
    drop(databases);
    cluster.close();
}

/// A table is created, filled and dropped, more often than the pool would have room for.
fn pages_come_back(isolation: Isolation) {
    let options = ClusterOptions { bytes_per_node: 8 << 20, ..ClusterOptions::new(512) };
    let cluster = Cluster::start_as(ClusterOptions { logs: vec![None; 2], ..options });
    let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let pages = here.pages(here.engine()).await.unwrap().len();
        for round in 0..12 {
            let table = create_notes(here, "note", 12_000).await;
            let reader = if round % 2 == 0 { here } else { there };
            let mut reader = reader.begin_with(isolation);
            assert_eq!(count(&mut reader, table).await.unwrap(), 12_000, "{round}");
            let mut txn = there.begin();
            txn.drop_table(table).await.unwrap();
            txn.commit().await.unwrap();
            if isolation == Isolation::RepeatableRead {
                // Its state has the table, whatever happens to pages meanwhile.
                assert!(there.reclaim_dropped().await.unwrap() > 0, "{round}");
                let other = create_notes(there, "other", 500).await;
                assert_eq!(count(&mut reader, table).await.unwrap(), 12_000, "{round}");
                let mut txn = there.begin();
                txn.drop_table(other).await.unwrap();
                txn.commit().await.unwrap();
            }
            drop(reader);
            let until = there.engine().env().now() + Duration::from_secs(60);
            while there.reclaim_dropped().await.unwrap() > 0 {
                assert!(there.engine().env().now() < until, "trees are left");
                there.engine().env().sleep(Duration::from_millis(5)).await;
            }
        }
        assert_eq!(here.pages(here.engine()).await.unwrap().len(), pages);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn the_pages_of_dropped_tables_are_used_again() {
    pages_come_back(Isolation::Serializable);
}

#[test]
fn the_pages_of_dropped_tables_are_used_again_beside_snapshots() {
    pages_come_back(Isolation::RepeatableRead);
}

/// Changes rows of the accounts until it is told to stop: balances, owners, and rows that go and
/// come. Returns how many transactions have committed.
async fn change_rows(db: &Database, table: Table, stop: &AtomicBool) -> u64 {
    let (env, mut done) = (db.engine().env(), 0);
    let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
    while !stop.load(Ordering::Relaxed) {
        let id = (env.random_u64() % u64::from(ACCOUNTS as u32)) as i32;
        let what = env.random_u64() % 3;
        let changed = retry(env, &policy, || async {
            let mut txn = db.begin();
            let is_there = txn.get(table, &key![id]).await?.is_some();
            match what {
                _ if !is_there => insert(db, &mut txn, table, id, &account(id)).await?,
                0 => txn.delete(table, &key![id]).await?,
                1 => txn.update(table, &key![id], add(1)).await?,
                _ => {
                    let owner = format!("{}", env.random_u64() % 100);
                    let change =
                        |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(OWNER, &owner)?);
                    txn.update(table, &key![id], change).await?;
                }
            }
            txn.commit().await
        });
        changed.await.unwrap();
        done += 1;
    }
    done
}

#[test]
fn an_index_is_built_while_others_change_the_rows() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    let table = here.table("account").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let runtime = &cluster.runtime;
        let workers: Vec<_> = [here, there]
            .map(|db| threads.spawn(|| runtime.block_on(change_rows(db, table, &stop))))
            .into_iter()
            .collect();
        for round in 0..20 {
            runtime.block_on(async {
                let name = format!("again_{round}");
                let schema = NewIndex::new(&name, ["owner", "tag"]);
                let schema = if round % 2 == 0 { schema.unique() } else { schema };
                let index = here.create_index(table, schema).await.unwrap();
                let mut reader = there.begin_to_read();
                let (rows, entries) =
                    (count(&mut reader, table).await.unwrap(), count(&mut reader, index).await);
                assert_eq!(entries.unwrap(), rows);
                reader.commit().await.unwrap();
                if round % 4 == 3 {
                    let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
                    let dropped = retry(here.engine().env(), &policy, || async {
                        let mut txn = here.begin();
                        txn.drop_index(table, &name).await?;
                        txn.commit().await
                    });
                    dropped.await.unwrap();
                }
            });
        }
        stop.store(true, Ordering::Relaxed);
        let done: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert!(done > 0);
    });
    cluster.runtime.block_on(async {
        for db in &databases {
            db.refresh().await.unwrap();
            assert_eq!(db.schema(table).unwrap().indexes.len(), 2 + 15);
            check(db).await;
        }
    });
    drop(databases);
    cluster.close();
}

/// Two rows are alike until one goes that is not entered yet: the other one keeps its entry.
#[test]
fn a_row_that_goes_while_an_index_is_built_leaves_the_entry_of_its_like() {
    let cluster = Cluster::start(1, 2048);
    let schema = DatabaseSchema::from(vec![notes("note")]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let table = db.table("note").unwrap();
        let mut txn = db.begin();
        for id in 0..600 {
            put(&mut txn, db, table, id).await.unwrap();
        }
        txn.commit().await.unwrap();
        let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
        let (mut built, mut refused) = (0, 0);
        for polls in 1..40 {
            let mut txn = db.begin();
            let alike = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(1, "note 0")?);
            txn.update(table, &key![599], alike).await.unwrap();
            txn.commit().await.unwrap();
            let schema = NewIndex::new("only", ["text"]).unique();
            let mut building = std::pin::pin!(db.create_index(table, schema));
            let mut done = poll_times(building.as_mut(), polls).await;
            let deleted = retry(db.engine().env(), &policy, || async {
                let mut txn = db.begin();
                txn.delete(table, &key![599]).await?;
                txn.commit().await
            });
            deleted.await.unwrap();
            if done.is_none() {
                done = Some(building.await);
            }
            match done.unwrap() {
                Ok(_) => {
                    built += 1;
                    db.refresh().await.unwrap();
                    assert_eq!(db.schema(table).unwrap().indexes.len(), 2);
                    check(db).await;
                    let mut txn = db.begin();
                    txn.drop_index(table, "only").await.unwrap();
                    txn.commit().await.unwrap();
                }
                Err(TxnError::Duplicate { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            let mut txn = db.begin();
            put(&mut txn, db, table, 599).await.unwrap();
            txn.commit().await.unwrap();
        }
        println!("{built} were built, {refused} refused");
        assert!(built > 0);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_unique_index_on_rows_that_are_alike_is_refused() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let table = here.table("account").unwrap();
        let refused = here.create_index(table, NewIndex::new("owner", ["owner"]).unique()).await;
        let error = refused.unwrap_err().to_string();
        let named = "table account, owner: duplicate key (owner = Text ";
        assert!(error.starts_with(named), "{error}");
        let taken = here.create_index(table, NewIndex::new("by_tag", ["owner"])).await;
        let error = taken.unwrap_err().to_string();
        assert_eq!(error, "table account: the name by_tag is used twice");
        let wide = NewIndex::new("wide", ["owner", "width"]);
        let error = here.create_index(table, wide).await.unwrap_err().to_string();
        assert_eq!(error, "table account has no column width");
        assert_eq!(there.begin().schema(table).await.unwrap(), accounts().max_rows_per_page(3));
        let missing = there.begin().drop_index(table, "owner").await.unwrap_err();
        assert_eq!(missing.to_string(), "table account has no index owner");
        let mut txn = there.begin();
        insert(there, &mut txn, table, 1000, &account(1000)).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(scan_all(here, table.into()).await.len(), ACCOUNTS as usize + 1);
        here.reclaim_dropped().await.unwrap();
        check(there).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn sessions_see_tables_that_others_create() {
    let (cluster, databases) = two_nodes();
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut session = there.session().unwrap();
        session.begin(Isolation::ReadCommitted).unwrap();
        let before = session.run(|txn| Box::pin(async { txn.table("note").await })).await;
        assert!(is_missing(&before.unwrap_err()));
        let table = create_notes(here, "note", 3).await;
        let seen = session.run(|txn| Box::pin(async { txn.table("note").await })).await;
        assert_eq!(seen.unwrap(), table);
        let rows = session.run(|txn| Box::pin(async move { count(txn, table).await })).await;
        assert_eq!(rows.unwrap(), 3);
        session
            .run(|txn| Box::pin(async move { txn.delete(table, &key![1]).await }))
            .await
            .unwrap();
        session.commit().await.unwrap();
        // One that sits in a transaction keeps nobody from a change of the table, and is told.
        session.begin(Isolation::Serializable).unwrap();
        session
            .run(|txn| Box::pin(async move { txn.delete(table, &key![2]).await }))
            .await
            .unwrap();
        let mut txn = here.begin();
        txn.truncate(table).await.unwrap();
        txn.commit().await.unwrap();
        assert!(failed_by(session.commit().await, AbortCause::Stale));
        assert_eq!(count(&mut here.begin(), table).await.unwrap(), 0);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn bad_definitions_change_nothing() {
    let (cluster, databases) = two_nodes();
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        let long = "n".repeat(60);
        let error = txn.create_table(notes(&long)).await.unwrap_err().to_string();
        assert!(error.contains("takes 60 bytes (allowed: 1 to 50"), "{error}");
        let error = txn.create_table(notes("")).await.unwrap_err().to_string();
        assert!(error.contains("takes 0 bytes"), "{error}");
        let names = (0..30).map(|number| format!("u{number}"));
        let wide = names.fold(notes("wide"), |wide, name| wide.column(name, ColumnType::Uuid));
        let error = txn.create_table(wide).await.unwrap_err().to_string();
        assert!(error.starts_with("table wide, primary key: every entry takes 4"), "{error}");
        let table = txn.create_table(notes("note")).await.unwrap();
        let error = txn.rename_table(table, "account").await.unwrap_err().to_string();
        assert_eq!(error, "there is a table account already");
        let error = txn.rename_column(table, "no", "yes").await.unwrap_err().to_string();
        assert_eq!(error, "table note has no column no");
        let error = txn.rename_column(table, "id", "text").await.unwrap_err().to_string();
        assert_eq!(error, "table note: the name text is used twice");
        txn.rename_table(table, "paper").await.unwrap();
        txn.commit().await.unwrap();
        let mut reader = db.begin_to_read();
        assert!(matches!(reader.drop_table(table).await, Err(TxnError::ReadOnly)));
        assert_eq!(reader.schema(table).await.unwrap(), notes("paper"));
        check(db).await;
    });
    drop(databases);
    cluster.close();
    let (cluster, databases, table) = bank(Protocol::TwoPhase);
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        let fixed = txn.create_table(notes("note")).await.unwrap_err();
        assert!(matches!(fixed, TxnError::Catalogue(CatalogueError::FixedTables)), "{fixed}");
        let fixed = databases[0].begin().drop_table(table).await.unwrap_err();
        assert!(matches!(fixed, TxnError::Catalogue(CatalogueError::FixedTables)), "{fixed}");
        assert_eq!(databases[0].reclaim_dropped().await.unwrap(), 0);
    });
    drop(databases);
    cluster.close();
}
