//! Trees that are built bottom-up from rows in order.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use selkie_btree::{DEFAULT_FILL, StampRule, Tree, TreeError, TreeStats, max_key, max_value};
use selkie_engine::{Engine, PSN_BYTES};

use crate::common::{Cluster, Dice, FRAMES, Model, assert_same};

const LATEST: StampRule = StampRule::Latest;

fn free_lines(engine: &Engine) -> u64 {
    let (fresh, reusable, on_hold) = engine.unused_lines();
    fresh + reusable + on_hold
}

async fn load(tree: Tree, engine: &Engine, fill: u8, model: &Model) -> TreeStats {
    let mut load = tree.bulk_load(engine, fill, LATEST).await.unwrap();
    for (key, value) in model {
        load.push(key, value).await.unwrap();
    }
    assert_eq!(load.finish().await.unwrap(), model.len() as u64);
    assert_same(tree, engine, model).await
}

fn numbered(rows: u32, value: usize) -> Model {
    (0..rows).map(|row| (row.to_be_bytes().to_vec(), vec![row as u8; value])).collect()
}

/// Of any number of rows, also those that fill a page to its last byte and one more; and the tree
/// takes changes as any other.
#[test]
fn a_loaded_tree_is_a_tree() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        for rows in (0..60).chain([400, 460, 500, 5_000]) {
            for fill in [50, DEFAULT_FILL, 100] {
                let tree = Tree::create(engine, u16::MAX).await.unwrap();
                let mut model = numbered(rows, 20);
                let stats = load(tree, engine, fill, &model).await;
                assert_eq!(stats.unposted, 0);
                if rows == 5_000 {
                    let fullest = f64::from(fill) / 100.0;
                    assert!((fullest - 0.08..=fullest).contains(&stats.fill), "{fill} {stats:?}");
                    assert!(stats.height >= 3, "{stats:?}");
                }
                for row in (0..rows).step_by(7) {
                    let key = [&row.to_be_bytes()[..], b"+"].concat();
                    tree.insert(engine, &key, b"between").await.unwrap();
                    model.insert(key, b"between".to_vec());
                    assert!(tree.delete(engine, &row.to_be_bytes()).await.unwrap());
                    model.remove(&row.to_be_bytes()[..]);
                }
                assert_same(tree, engine, &model).await;
                for key in model.keys() {
                    assert!(tree.delete(engine, key).await.unwrap());
                }
                let stats = tree.verify(engine).await.unwrap();
                assert_eq!((stats.leaves, stats.inner_pages), (1, 1));
            }
        }
    });
    cluster.stop();
}

/// Keys with long and changing prefixes, of all lengths, and the largest rows.
#[test]
fn rows_of_every_size_fit_their_pages() {
    for gcl in [512, 1024, 2048] {
        let cluster = Cluster::start(1, gcl, FRAMES);
        let engine = &cluster.engines[0];
        cluster.runtime.block_on(async {
            let mut dice = Dice(gcl as u64);
            let page = gcl - PSN_BYTES;
            for round in 0..40 {
                let mut model = Model::new();
                let prefixes = [&b""[..], b"warehouse/0001/district/", b"w", &[0xff; 12], &[0; 9]];
                for _ in 0..[30, 300, 1_000][round % 3] {
                    let mut key = prefixes[dice.below(prefixes.len())].to_vec();
                    let longest = [6, max_key(page)][dice.below(2)];
                    for _ in 0..dice.below(longest) {
                        key.push([0, 1, b'a', b'b', 0xff][dice.below(5)]);
                    }
                    key.truncate(max_key(page));
                    let room = max_value(page, key.len());
                    let value = vec![3; [3, 30, room][dice.below(3)].min(room)];
                    model.insert(key, value);
                }
                let limit = [u16::MAX, 1, 3][dice.below(3)];
                let tree = Tree::create(engine, limit).await.unwrap();
                let fill = [20, DEFAULT_FILL, 100][dice.below(3)];
                let stats = load(tree, engine, fill, &model).await;
                assert!(limit == u16::MAX || stats.leaves * usize::from(limit) >= model.len());
                for key in model.keys() {
                    assert!(tree.delete(engine, key).await.unwrap());
                }
            }
        });
        cluster.stop();
    }
}

/// Waits until at least so many pages can be used again, and no more are about to be.
async fn until_free(engine: &Engine, lines: u64) -> u64 {
    for _ in 0..5_000 {
        if free_lines(engine) >= lines && engine.unused_lines().2 == 0 {
            return free_lines(engine);
        }
        engine.env().sleep(Duration::from_millis(1)).await;
    }
    panic!("{:?}, not {lines} lines are free", engine.unused_lines());
}

#[test]
fn a_load_that_does_not_end_leaves_the_tree_empty_and_gives_its_pages_back() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        // Leases lines, so that the counts below are of the same ones.
        let warm = Tree::create(engine, u16::MAX).await.unwrap();
        load(warm, engine, 100, &numbered(6_000, 20)).await;
        for row in 0..6_000_u32 {
            assert!(warm.delete(engine, &row.to_be_bytes()).await.unwrap());
        }
        let free = until_free(engine, 0).await;
        for ending in 0..4 {
            let mut load = tree.bulk_load(engine, 100, LATEST).await.unwrap();
            for (key, value) in numbered(5_000, 20) {
                load.push(&key, &value).await.unwrap();
            }
            assert!(free_lines(engine) < free - 300);
            match ending {
                // Dropped half-way.
                0 => drop(load),
                // Built, and not attached.
                1 => {
                    let built = load.build().await.unwrap();
                    assert_eq!(built.rows(), 5_000);
                    assert!(built.leaves().len() > 300);
                }
                // Out of order, or twice the same key.
                2 => {
                    for key in [7_u32, 4_999] {
                        let error = load.push(&key.to_be_bytes(), b"").await.unwrap_err();
                        assert!(matches!(error, TreeError::OutOfOrder { position: 5_000 }));
                    }
                    drop(load);
                }
                // Others were there first.
                _ => {
                    tree.insert(engine, b"first", b"row").await.unwrap();
                    let refused = load.finish().await;
                    assert!(matches!(refused, Err(TreeError::NotEmpty)), "{refused:?}");
                    let again = tree.bulk_load(engine, 100, LATEST).await;
                    assert!(matches!(again.err(), Some(TreeError::NotEmpty)));
                    assert!(tree.delete(engine, b"first").await.unwrap());
                }
            }
            assert_eq!(until_free(engine, free).await, free, "{ending}");
            let stats = tree.verify(engine).await.unwrap();
            assert_eq!((stats.entries, stats.leaves, stats.inner_pages), (0, 1, 1), "{ending}");
        }
        load_all_again(tree, engine).await;
    });
    cluster.stop();
}

async fn load_all_again(tree: Tree, engine: &Engine) {
    let stats = load(tree, engine, 100, &numbered(5_000, 20)).await;
    assert_eq!(stats.entries, 5_000);
}

/// One that comes and goes while the load is under way changes the leaf, and no more.
#[test]
fn a_tree_that_is_empty_again_is_loaded_unless_pages_came_and_went() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        for (others, fits) in [(1_u32, true), (300, false)] {
            let tree = Tree::create(engine, u16::MAX).await.unwrap();
            let model = numbered(3_000, 20);
            let mut load = tree.bulk_load(engine, DEFAULT_FILL, LATEST).await.unwrap();
            for (key, value) in &model {
                load.push(key, value).await.unwrap();
            }
            for row in 0..others {
                tree.insert(engine, &row.to_be_bytes(), &[1; 40]).await.unwrap();
            }
            for row in 0..others {
                assert!(tree.delete(engine, &row.to_be_bytes()).await.unwrap());
            }
            let finished = load.finish().await;
            // Posts may wait with what they knew of the pages that have gone.
            assert_eq!(finished.is_ok(), fits, "{others}: {finished:?}");
            let model = if fits { model } else { Model::new() };
            assert_same(tree, engine, &model).await;
        }
    });
    cluster.stop();
}

/// Far more pages than the cache holds; read by another node.
#[test]
fn a_load_is_larger_than_the_cache() {
    let cluster = Cluster::start(2, 512, FRAMES);
    let [loader, reader] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let tree = Tree::create(loader, u16::MAX).await.unwrap();
        let model = numbered(60_000, 20);
        let mut load = tree.bulk_load(loader, DEFAULT_FILL, LATEST).await.unwrap();
        for (key, value) in &model {
            load.push(key, value).await.unwrap();
            if key.ends_with(&[0, 0]) {
                assert!(tree.get(reader, key).await.unwrap().is_none(), "not before its end");
            }
        }
        load.finish().await.unwrap();
        let stats = assert_same(tree, reader, &model).await;
        assert!(stats.leaves > 3 * FRAMES, "{stats:?}");
    });
    cluster.stop();
}
