//! Embedded pools that are kept in a directory.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::fs;
use std::path::Path;

use selkie::txn::{ColumnType, DatabaseSchema, Direction, KeyRange, Protocol, TableSchema, key};
use selkie::{DataDirectoryError, Database, Durability, OpenError, Pool, PoolOptions, block_on};

/// Of the protocol whose commits have stamps of the pool's clock: each pool has a clock of its own.
fn rows() -> DatabaseSchema {
    let row = TableSchema::new("row")
        .column("id", ColumnType::I32)
        .column("text", ColumnType::Text(200))
        .primary_key([0]);
    DatabaseSchema::from(vec![row]).protocol(Protocol::Snapshot)
}

fn url(directory: &Path) -> String {
    format!("embedded:{}", directory.display())
}

/// A small cache, so that most pages go home.
fn options() -> PoolOptions {
    PoolOptions::new().memory_bytes(64 << 20).cache_bytes(2 << 20).threads(1)
}

async fn open(directory: &Path) -> Result<Database, OpenError> {
    options().open_or_create_database(&url(directory), rows()).await
}

fn text(id: i32, version: i32) -> String {
    format!("{id}-{version}-").repeat(10)
}

async fn insert(db: &Database, ids: std::ops::Range<i32>) {
    let table = db.table("row").unwrap();
    let mut txn = db.begin();
    for id in ids {
        let mut row = db.row(table).unwrap();
        let row = row.i32(id).text(&text(id, 0)).finish().unwrap();
        txn.insert(table, row).await.unwrap();
    }
    txn.commit().await.unwrap();
}

/// The rows, with the number of the change that has made each what it is.
///
/// They are read as of a snapshot: of pages that were changed at a later time of a clock it has no
/// earlier images.
async fn check(db: &Database, expected: impl Fn(i32) -> Option<i32>) -> usize {
    let table = db.table("row").unwrap();
    let (mut txn, mut found) = (db.begin_to_read(), Vec::new());
    let range = KeyRange::all();
    let all = txn.scan(table, &range, Direction::Forward, |row| {
        found.push((row.i32(0)?, row.text(1)?.to_owned()));
        Ok(std::ops::ControlFlow::Continue(()))
    });
    all.await.unwrap();
    txn.commit().await.unwrap();
    for (id, was) in &found {
        let version = expected(*id).unwrap_or_else(|| panic!("row {id} is there"));
        assert_eq!(*was, text(*id, version));
    }
    found.len()
}

#[test]
fn what_has_committed_is_there_again_however_the_last_process_ended() {
    let place = tempfile::tempdir().unwrap();
    // No URL of an object store.
    let directory = place.path().join("deep://data");
    block_on(async {
        let db = open(&directory).await.unwrap();
        for first in (0..4_000).step_by(500) {
            insert(&db, first..first + 500).await;
        }
        db.close().await.unwrap();
        drop(db);

        // Without a close, as if the process had died; a transaction is open.
        let db = open(&directory).await.unwrap();
        assert_eq!(check(&db, |_| Some(0)).await, 4_000);
        let table = db.table("row").unwrap();
        for id in (0..4_000).step_by(3) {
            let mut txn = db.begin();
            txn.update(table, &key![id], |row| Ok(row.set_text(1, &text(id, 1))?)).await.unwrap();
            txn.commit().await.unwrap();
        }
        let mut open_one = db.begin();
        open_one.delete(table, &key![1]).await.unwrap();
        drop(open_one);
        drop(db);

        for round in 0..3 {
            let db = open(&directory).await.unwrap();
            let changed = |id: i32| Some(i32::from(id < 4_000 && id % 3 == 0));
            assert_eq!(check(&db, changed).await, 4_000 + 100 * round as usize, "{round}");
            insert(&db, 4_000 + 100 * round..4_100 + 100 * round).await;
            if round == 1 {
                db.close().await.unwrap();
            }
        }
        let logs = fs::read_dir(&directory)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_dir());
        assert_eq!(logs.count(), 1, "the logs of earlier openings are gone");
    });
}

#[test]
fn one_process_at_a_time_has_a_directory_open() {
    let place = tempfile::tempdir().unwrap();
    block_on(async {
        let db = open(place.path()).await.unwrap();
        insert(&db, 0..10).await;
        let second = open(place.path()).await.map(drop).unwrap_err();
        assert!(
            matches!(second, OpenError::Directory(DataDirectoryError::InUse { .. })),
            "{second}"
        );
        assert!(second.is_retryable());
        // Another node of the same process is another way in; the log of it is there, too.
        let node = db.pool().join(&PoolOptions::new().cache_bytes(2 << 20)).await.unwrap();
        let other = node.open_database().await.unwrap();
        insert(&other, 10..20).await;
        other.close().await.unwrap();
        db.close().await.unwrap();
        drop((node, other, db));
        let db = open(place.path()).await.unwrap();
        assert_eq!(check(&db, |_| Some(0)).await, 20);
    });
}

#[test]
fn an_opening_that_did_not_end_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    block_on(async {
        let db = open(place.path()).await.unwrap();
        insert(&db, 0..60_000).await;
        drop(db);
        // It had written logs of its own, and was about to say so.
        copy(&place.path().join("1"), &place.path().join("2"));
        fs::write(place.path().join("current.new"), "2").unwrap();
        // Another began, and its pool was too small.
        let small = options().memory_bytes(5 << 20).open_database(&url(place.path())).await;
        let error = small.map(drop).unwrap_err().to_string();
        assert!(error.starts_with("option memory_bytes for pool "), "{error}");
        assert!(error.contains("must be at least "), "{error}");
        for _ in 0..2 {
            let db = open(place.path()).await.unwrap();
            assert_eq!(check(&db, |_| Some(0)).await, 60_000);
        }
    });
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

#[test]
fn labels_and_counts_of_nodes_go_on_with_the_next_opening() {
    let place = tempfile::tempdir().unwrap();
    let latest = |pool: &Pool| pool.pool().state().incarnations.values().copied().max().unwrap();
    block_on(async {
        let pool = options().open(&url(place.path())).await.unwrap();
        assert!(pool.pool().set_label("use", None, Some("a test")).await.unwrap());
        pool.close().await.unwrap();
        drop(pool);
        let mut before = 0;
        for joins in [2, 0, 0, 1, 2] {
            let pool = options().open(&url(place.path())).await.unwrap();
            assert_eq!(pool.pool().state().labels.get("use").unwrap(), "a test");
            let mut nodes = vec![pool.clone()];
            for _ in 0..joins {
                nodes.push(pool.join(&PoolOptions::new().cache_bytes(2 << 20)).await.unwrap());
            }
            // No node has the number of one that was there before, not even of another index.
            for node in &nodes {
                let index = node.engine().node().index() as u16;
                assert!(pool.pool().state().incarnations[&index] > before);
            }
            before = latest(&pool);
            // Without a close.
        }
    });
}

#[test]
fn what_is_no_database_or_a_damaged_one_is_refused_and_stays() {
    let place = tempfile::tempdir().unwrap();
    let fails = |directory: &Path| block_on(open(directory)).map(drop).unwrap_err().to_string();
    let foreign = place.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "years of work").unwrap();
    let error = fails(&foreign);
    assert!(error.contains("`thesis.txt` is of no database"), "{error}");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);
    // A number is a name that others use, too.
    let years = place.path().join("years");
    fs::create_dir_all(years.join("2026")).unwrap();
    let error = fails(&years);
    assert!(error.contains("`2026` is of no database"), "{error}");
    assert!(years.join("2026").is_dir());
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let error = fails(&file);
    assert!(error.starts_with("cannot make "), "{error}");

    let data = place.path().join("data");
    block_on(async {
        let db = open(&data).await.unwrap();
        insert(&db, 0..100).await;
        db.close().await.unwrap();
    });
    let current = data.join("current");
    assert_eq!(fs::read_to_string(&current).unwrap(), "1\n");
    fs::remove_file(&current).unwrap();
    let error = fails(&data);
    assert!(error.contains("is gone, which says which logs are whole"), "{error}");
    for (wrong, said) in
        [("", "is not the number"), ("x\n", "is not the number"), ("7\n", "are gone")]
    {
        fs::write(&current, wrong).unwrap();
        let error = fails(&data);
        assert!(error.contains(said), "{wrong:?}: {error}");
    }
    fs::write(&current, "1\n").unwrap();
    block_on(async {
        let db = open(&data).await.unwrap();
        assert_eq!(check(&db, |_| Some(0)).await, 100);
    });
}

#[test]
fn options_that_a_directory_decides_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let fails = |options: PoolOptions| {
        block_on(options.open(&url(place.path()))).map(drop).unwrap_err().to_string()
    };
    let error = fails(options().durability(Durability::Memory));
    assert!(error.starts_with("option durability"), "{error}");
    let error = fails(options().reads_only(true));
    assert!(error.starts_with("option reads_only"), "{error}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing was begun");
    let pool = block_on(options().open(&url(place.path()))).unwrap();
    let joined = block_on(pool.join(&PoolOptions::new().durability(Durability::None)));
    let error = joined.map(drop).unwrap_err().to_string();
    assert!(error.starts_with("option durability"), "{error}");
}

#[test]
fn a_backup_is_restored_into_a_directory_without_a_database() {
    let place = tempfile::tempdir().unwrap();
    let (data, again) = (place.path().join("data"), place.path().join("again"));
    let backup = place.path().join("backup");
    let to = format!("file://{}", backup.display());
    block_on(async {
        let db = open(&data).await.unwrap();
        insert(&db, 0..1_000).await;
        db.pool().backup(&to).await.unwrap();
        db.close().await.unwrap();
        drop(db);
        let used = options().restore(&url(&data), &to).await.map(drop).unwrap_err();
        assert!(matches!(used, OpenError::Directory(DataDirectoryError::Used { .. })), "{used}");
        let pool = options().restore(&url(&again), &to).await.unwrap();
        drop(pool);
        for directory in [&data, &again] {
            let db = open(directory).await.unwrap();
            assert_eq!(check(&db, |_| Some(0)).await, 1_000);
        }
    });
}
