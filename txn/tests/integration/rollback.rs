//! What is rolled back was never there: exact rollback, against a model and byte for byte.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use selkie_txn::{
    Database, DatabaseSchema, Direction, Index, KeyRange, NamedRowError, Protocol, RowError,
    Savepoint, Table, Txn, TxnError, key,
};

use crate::common::{
    Account, BALANCE, Cluster, NOTE, OWNER, TAG, accounts, check, dump, insert, two_phase,
    with_each_protocol,
};

fn account(id: i32, note: usize) -> Account {
    Account {
        tag: 1000 - id,
        owner: format!("own{}", id % 7),
        balance: i64::from(id),
        note: (note > 0).then(|| "n".repeat(note)),
    }
}

async fn fill(db: &Database, table: Table, ids: impl Iterator<Item = i32>) {
    for id in ids {
        let mut txn = db.begin();
        insert(db, &mut txn, table, id, &account(id, 20)).await.unwrap();
        txn.commit().await.unwrap();
    }
}

#[test]
fn rollback_restores_every_byte_through_splits() {
    with_each_protocol(2, async |protocol, databases, table| {
        let db = &databases[0];
        fill(db, table, (0..60).map(|i| i * 10)).await;
        let before = dump(db).await;
        let splits = db.stats().splits;
        let mut txn = db.begin();
        for id in (0..300).step_by(10) {
            txn.delete(table, &key![id]).await.unwrap();
        }
        for id in 0..300 {
            insert(db, &mut txn, table, id, &account(id, 50)).await.unwrap();
        }
        for id in (300..600).step_by(10) {
            let grow = "g".repeat(60);
            let change = |row: &mut selkie_txn::RowMut<'_>| {
                row.set_text(NOTE, &grow)?;
                row.set_i64(BALANCE, -1)?;
                row.set_text(OWNER, "zzz")?;
                Ok(row.set_i32(TAG, 5000 + id)?)
            };
            txn.update(table, &key![id], change).await.unwrap();
            txn.update(table, &key![id], |row| Ok(row.set_null(NOTE)?)).await.unwrap();
        }
        // Other protocols make their changes at commit.
        let more = db.stats().splits - splits;
        assert!(if protocol == Protocol::TwoPhase { more > 20 } else { more == 0 }, "{more}");
        txn.rollback().await;
        assert_eq!(dump(db).await, before, "{protocol}");
        check(&databases[1]).await;
        assert_eq!(dump(&databases[1]).await, before);
    });
}

/// A full leaf gives up its rows, fills up with others beyond them and splits at its end, so that
/// the left half stays full; undo must put the deleted rows back under another, longer fence.
#[test]
fn deleted_rows_fit_back_under_longer_fences() {
    let cluster = Cluster::start(1, 512);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let db = &databases[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        for size in 1..=60 {
            let base = size * 100_000;
            let add = async |txn: &mut Txn<'_>, id: i32| {
                let note = Some("n".repeat(usize::try_from(size).unwrap()));
                let owner = format!("{:05}", id % 100_000);
                let row = Account { tag: id, owner, balance: 0, note };
                insert(db, txn, table, id, &row).await.unwrap();
            };
            let mut txn = db.begin();
            for id in 0..40 {
                add(&mut txn, base + id).await;
            }
            txn.commit().await.unwrap();
            let before = dump(db).await;
            let mut txn = db.begin();
            for id in 0..40 {
                txn.delete(table, &key![base + id]).await.unwrap();
            }
            for id in 40..90 {
                add(&mut txn, base + id * 256).await;
            }
            drop(txn);
            assert_eq!(dump(db).await, before, "notes of {size} bytes");
        }
    });
    cluster.close();
}

#[test]
fn a_duplicate_leaves_nothing_behind_and_the_transaction_goes_on() {
    with_each_protocol(1, async |protocol, databases, table| {
        let db = &databases[0];
        fill(db, table, 0..40).await;
        let before = dump(db).await;
        let mut txn = db.begin();
        let same_key = insert(db, &mut txn, table, 7, &account(500, 0)).await;
        assert!(
            matches!(&same_key, Err(TxnError::Duplicate { index, .. }) if index == "primary key")
        );
        let same_tag = insert(db, &mut txn, table, 700, &account(7, 0)).await;
        assert!(matches!(&same_tag, Err(TxnError::Duplicate { index, .. }) if index == "by_tag"));
        // The owner's entry has moved by the time the tag is refused.
        let third = key![3];
        let both = txn.update(table, &third, |row| {
            row.set_text(OWNER, "moved")?;
            row.set_text(NOTE, "another length")?;
            Ok(row.set_i32(TAG, 1000 - 9)?)
        });
        assert!(matches!(both.await, Err(TxnError::Duplicate { .. })));
        let refused = txn.update(table, &third, |row| {
            row.set_i64(BALANCE, 1)?;
            Ok(row.set_i32(0, 1)?)
        });
        assert!(matches!(
            refused.await,
            Err(TxnError::Row(NamedRowError { error: RowError::KeyColumn { .. }, .. }))
        ));
        assert!(matches!(txn.delete(table, &key![777]).await, Err(TxnError::NotFound { .. })));
        let long = txn.get(table, &key![7i64]).await.map(|row| row.is_some());
        assert!(matches!(long, Err(TxnError::KeyMismatch { .. })));
        txn.commit().await.unwrap();
        assert_eq!(dump(db).await, before, "{protocol}");
    });
}

#[test]
fn a_transaction_goes_back_to_its_savepoints_and_on_from_there() {
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let db = &databases[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        fill(db, table, 0..60).await;
        let before = dump(db).await;
        let mut txn = db.begin();
        let none = txn.savepoint().unwrap();
        insert(db, &mut txn, table, 100, &account(100, 9)).await.unwrap();
        let one = txn.savepoint().unwrap();
        let splits = db.stats().splits;
        for id in 0..60 {
            txn.delete(table, &key![id]).await.unwrap();
            insert(db, &mut txn, table, 200 + id, &account(200 + id, 40)).await.unwrap();
        }
        let many = txn.savepoint().unwrap();
        let (latched, made) = (txn.latched_leaves(), (db.stats().splits - splits) as usize);
        txn.rollback_to(one).unwrap();
        assert!(made > 0);
        let relied_on = latched - made;
        assert_eq!(txn.latched_leaves(), relied_on, "what was read is still relied on");
        assert!(matches!(txn.rollback_to(many), Err(TxnError::NoSavepoint)));
        let conflict = databases[1].begin().delete(table, &key![30]).await;
        assert!(matches!(conflict, Err(TxnError::Conflict { .. })), "{conflict:?}");
        // A savepoint stays when it was gone back to.
        txn.delete(table, &key![7]).await.unwrap();
        txn.rollback_to(one).unwrap();
        txn.delete(table, &key![8]).await.unwrap();
        txn.release(one).unwrap();
        assert!(matches!(txn.rollback_to(one), Err(TxnError::NoSavepoint)));
        let mut other = databases[1].begin();
        assert!(matches!(other.rollback_to(none), Err(TxnError::NoSavepoint)), "another's");
        other.rollback().await;
        txn.commit().await.unwrap();
        let expected: Vec<i32> = (0..60).filter(|id| *id != 8).chain([100]).collect();
        let found = dump(&databases[1]).await;
        assert_eq!(found[0].len(), expected.len());
        let mut txn = databases[1].begin();
        for id in expected {
            assert!(txn.get(table, &key![id]).await.unwrap().is_some(), "{id}");
        }
        txn.commit().await.unwrap();
        check(db).await;
        // All the way back.
        let mut txn = db.begin();
        let begin = txn.savepoint().unwrap();
        txn.delete(table, &key![100]).await.unwrap();
        insert(db, &mut txn, table, 8, &account(8, 20)).await.unwrap();
        let all = txn.savepoint().unwrap();
        txn.rollback_to(all).unwrap();
        txn.release(begin).unwrap();
        assert!(matches!(txn.release(all), Err(TxnError::NoSavepoint)), "it came after");
        txn.commit().await.unwrap();
        assert_eq!(dump(db).await, before);
    });
    cluster.close();
}

#[derive(Clone, Debug)]
enum Op {
    Insert(i32, Account),
    Update(i32, i32, String, i64, Option<String>),
    Pay(i32, i64),
    Delete(i32),
    Read(i32),
    Range(i32, i32),
    /// Of the table, or of owners, in either direction.
    Scan(i32, i32, bool),
    Savepoint,
    /// Of the savepoints made, in some order.
    RollbackTo(usize),
    Release(usize),
    Commit,
    Rollback,
}

fn ops() -> impl Strategy<Value = Op> {
    let id = || 0..60i32;
    let tag = || 0..200i32;
    let owner = || "[a-c]{0,6}";
    let note = || proptest::option::of("[x-z]{0,60}");
    prop_oneof![
        8 => (id(), tag(), owner(), 0..5i64, note())
            .prop_map(|(id, tag, owner, balance, note)| Op::Insert(id, Account { tag, owner, balance, note })),
        4 => (id(), tag(), owner(), 0..5i64, note())
            .prop_map(|(id, tag, owner, balance, note)| Op::Update(id, tag, owner, balance, note)),
        3 => (id(), 0..5i64).prop_map(|(id, by)| Op::Pay(id, by)),
        5 => id().prop_map(Op::Delete),
        2 => id().prop_map(Op::Read),
        1 => (id(), id()).prop_map(|(a, b)| Op::Range(a, b)),
        2 => (id(), id(), any::<bool>()).prop_map(|(a, b, forward)| Op::Scan(a, b, forward)),
        2 => Just(Op::Savepoint),
        2 => (0..8usize).prop_map(Op::RollbackTo),
        1 => (0..8usize).prop_map(Op::Release),
        1 => Just(Op::Commit),
        1 => Just(Op::Rollback),
    ]
}

type Model = BTreeMap<i32, Account>;

fn tag_taken(model: &Model, tag: i32, by_other_than: i32) -> bool {
    model.iter().any(|(&id, account)| account.tag == tag && id != by_other_than)
}

async fn step(db: &Database, txn: &mut Txn<'_>, table: Table, model: &mut Model, op: Op) {
    match op {
        Op::Insert(id, account) => {
            let done = insert(db, txn, table, id, &account).await;
            if model.contains_key(&id) || tag_taken(model, account.tag, id) {
                assert!(matches!(done, Err(TxnError::Duplicate { .. })), "{done:?}");
            } else {
                done.unwrap();
                model.insert(id, account);
            }
        }
        Op::Update(id, tag, owner, balance, note) => {
            let key = key![id];
            let done = txn.update(table, &key, |row| {
                row.set_i32(TAG, tag)?;
                row.set_text(OWNER, &owner)?;
                row.set_i64(BALANCE, balance)?;
                match &note {
                    Some(note) => row.set_text(NOTE, note)?,
                    None => row.set_null(NOTE)?,
                }
                Ok(())
            });
            let done = done.await;
            if !model.contains_key(&id) {
                assert!(matches!(done, Err(TxnError::NotFound { .. })), "{done:?}");
            } else if tag_taken(model, tag, id) {
                assert!(matches!(done, Err(TxnError::Duplicate { .. })), "{done:?}");
            } else {
                done.unwrap();
                model.insert(id, Account { tag, owner, balance, note });
            }
        }
        Op::Pay(id, by) => {
            let key = key![id];
            let done =
                txn.update(table, &key, |row| Ok(row.set_i64(BALANCE, row.i64(BALANCE)? + by)?));
            let done = done.await;
            match model.get_mut(&id) {
                Some(account) => {
                    done.unwrap();
                    account.balance += by;
                }
                None => assert!(matches!(done, Err(TxnError::NotFound { .. }))),
            }
        }
        Op::Delete(id) => {
            let done = txn.delete(table, &key![id]).await;
            assert_eq!(done.is_ok(), model.remove(&id).is_some());
        }
        Op::Read(id) => {
            let row = txn.get(table, &key![id]).await.unwrap();
            assert_eq!(row.map(|row| read(&row)), model.get(&id).cloned());
        }
        Op::Range(low, high) => {
            let range = KeyRange::between(&key![low], &key![high]);
            let inside = || model.iter().filter(|(id, _)| (low..=high).contains(*id));
            let first = txn.first(table, &range).await.unwrap().map(|row| read(&row));
            assert_eq!(first.as_ref(), inside().next().map(|(_, account)| account));
            let last = txn.last(table, &range).await.unwrap().map(|row| read(&row));
            assert_eq!(last.as_ref(), inside().next_back().map(|(_, account)| account));
        }
        Op::Scan(low, high, forward) => {
            let direction = if forward { Direction::Forward } else { Direction::Reverse };
            scan(db, txn, table, model, (low, high), direction).await;
        }
        Op::Savepoint | Op::RollbackTo(_) | Op::Release(_) | Op::Commit | Op::Rollback => {}
    }
}

/// Scans a range of the table and all of an index, in that direction.
async fn scan(
    db: &Database,
    txn: &mut Txn<'_>,
    table: Table,
    model: &Model,
    (low, high): (i32, i32),
    direction: Direction,
) {
    let in_order = |mut ids: Vec<i32>| {
        if direction == Direction::Reverse {
            ids.reverse();
        }
        ids
    };
    let inside = model.keys().copied().filter(|id| (low..=high).contains(id));
    let expected = in_order(inside.collect());
    let range = KeyRange::between(&key![low], &key![high]);
    assert_eq!(ids(txn, table.into(), &range, direction).await, expected);
    // By owner and balance, then by the primary key.
    let by_owner = db.index("account", "by_owner").unwrap();
    let mut entries: Vec<(&str, i64, i32)> =
        model.iter().map(|(id, own)| (&*own.owner, own.balance, *id)).collect();
    entries.sort_unstable();
    let expected = in_order(entries.into_iter().map(|(_, _, id)| id).collect());
    assert_eq!(ids(txn, by_owner.into(), &KeyRange::all(), direction).await, expected);
    assert_eq!(primary_keys(txn, by_owner, direction).await, expected);
}

async fn ids(
    txn: &mut Txn<'_>,
    source: selkie_txn::Source,
    range: &KeyRange,
    direction: Direction,
) -> Vec<i32> {
    let mut ids = Vec::new();
    let visit = |row: selkie_txn::RowRef<'_>| {
        ids.push(row.i32(0)?);
        Ok(std::ops::ControlFlow::Continue(()))
    };
    txn.scan(source, range, direction, visit).await.unwrap();
    ids
}

async fn primary_keys(txn: &mut Txn<'_>, index: Index, direction: Direction) -> Vec<i32> {
    let mut ids = Vec::new();
    let visit = |key: &[u8]| {
        ids.push(i32::from_be_bytes(key.try_into().unwrap()) ^ i32::MIN);
        Ok(std::ops::ControlFlow::Continue(()))
    };
    txn.scan_keys(index, &KeyRange::all(), direction, visit).await.unwrap();
    ids
}

fn read(row: &selkie_txn::RowRef<'_>) -> Account {
    Account {
        tag: row.i32(TAG).unwrap(),
        owner: row.text(OWNER).unwrap().to_owned(),
        balance: row.i64(BALANCE).unwrap(),
        note: (!row.is_null(NOTE).unwrap()).then(|| row.text(NOTE).unwrap().to_owned()),
    }
}

async fn check_model(db: &Database, table: Table, model: &Model) {
    check(db).await;
    let mut txn = db.begin();
    let mut rows = Vec::new();
    txn.scan(table, &KeyRange::all(), selkie_txn::Direction::Forward, |row| {
        rows.push((row.i32(0)?, read(&row)));
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    txn.commit().await.unwrap();
    assert_eq!(rows, model.clone().into_iter().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn random_transactions_match_a_model(
        rows in 2..20u16,
        protocol in proptest::sample::select(&Protocol::ALL[..]),
        ops in proptest::collection::vec(ops(), 1..400),
    ) {
        let cluster = Cluster::start(1, 512);
        let schema = DatabaseSchema::from(vec![accounts().max_rows_per_page(rows)]);
        let databases = cluster.create(schema.protocol(protocol));
        let db = &databases[0];
        let table = db.table("account").unwrap();
        cluster.runtime.block_on(async {
            let (mut committed, mut model) = (Model::new(), Model::new());
            let mut before = dump(db).await;
            let mut txn = db.begin();
            // Those that can be gone back to, with what there was; all that were ever made.
            let (mut kept, mut made): (Vec<(Savepoint, Model)>, Vec<Savepoint>) = Default::default();
            for op in ops {
                if matches!(op, Op::Commit | Op::Rollback) {
                    kept.clear();
                }
                match op {
                    Op::Savepoint => {
                        let savepoint = txn.savepoint().unwrap();
                        kept.push((savepoint, model.clone()));
                        made.push(savepoint);
                    }
                    Op::RollbackTo(number) | Op::Release(number) if !made.is_empty() => {
                        let chosen = made[made.len() - 1 - number % made.len()];
                        let at = kept.iter().position(|(savepoint, _)| *savepoint == chosen);
                        let goes_back = matches!(op, Op::RollbackTo(_));
                        let done = if goes_back { txn.rollback_to(chosen) } else { txn.release(chosen) };
                        let Some(at) = at else {
                            assert!(matches!(done, Err(TxnError::NoSavepoint)), "{done:?}");
                            continue;
                        };
                        done.unwrap();
                        if goes_back {
                            model = kept[at].1.clone();
                        }
                        kept.truncate(at + usize::from(goes_back));
                    }
                    Op::Commit => {
                        txn.commit().await.unwrap();
                        committed = model.clone();
                        check_model(db, table, &model).await;
                        before = dump(db).await;
                        txn = db.begin();
                    }
                    Op::Rollback => {
                        txn.rollback().await;
                        model = committed.clone();
                        assert_eq!(dump(db).await, before);
                        txn = db.begin();
                    }
                    op => step(db, &mut txn, table, &mut model, op).await,
                }
            }
            drop(txn);
            assert_eq!(dump(db).await, before);
            check_model(db, table, &committed).await;
        });
        cluster.close();
    }
}
