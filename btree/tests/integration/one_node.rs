//! The operations of one node against an ordered map, their limits, and damaged pages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_btree::{Direction, StampRule, Tree, TreeError, max_key, max_value};
use selkie_engine::{Engine, EngineError, PSN_BYTES};

use crate::common::{ALL, Cluster, Dice, FRAMES, Model, assert_same, rows};

/// Keys of all lengths from a space small enough to meet again.
fn key(dice: &mut Dice, longest: usize) -> Vec<u8> {
    let number = dice.below(3_000);
    if number == 0 {
        return Vec::new();
    }
    let mut key = match number % 4 {
        0 => b"customer/".to_vec(),
        1 => vec![0xff; number % 9],
        2 => vec![0; number % 7],
        _ => Vec::new(),
    };
    key.extend_from_slice(number.to_string().as_bytes());
    key.resize((key.len() + number % 30).min(longest), 0xff);
    key
}

async fn compare_ranges(tree: Tree, engine: &Engine, model: &Model, dice: &mut Dice) {
    let longest = max_key(engine.page_bytes());
    let bounds = |dice: &mut Dice| match dice.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key(dice, longest)),
        _ => Bound::Excluded(key(dice, longest)),
    };
    for _ in 0..40 {
        let (start, end) = (bounds(dice), bounds(dice));
        let inside = |key: &Vec<u8>| {
            (match &start {
                Bound::Included(start) => key >= start,
                Bound::Excluded(start) => key > start,
                Bound::Unbounded => true,
            }) && (match &end {
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
                Bound::Unbounded => true,
            })
        };
        let mut expected: Vec<_> =
            model.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
        let range = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        assert_eq!(rows(tree, engine, range, Direction::Forward).await, expected);
        expected.reverse();
        assert_eq!(rows(tree, engine, range, Direction::Reverse).await, expected);
    }
}

#[test]
fn random_operations_match_an_ordered_map() {
    for (gcl, max_rows, steps) in
        [(512, u16::MAX, 12_000), (2048, u16::MAX, 8_000), (1024, 2, 4_000)]
    {
        let cluster = Cluster::start(1, gcl, FRAMES);
        let engine = &cluster.engines[0];
        cluster.runtime.block_on(async {
            let tree = Tree::create(engine, max_rows).await.unwrap();
            let mut model = Model::new();
            let mut dice = Dice(gcl as u64);
            let longest = max_key(gcl - PSN_BYTES);
            for step in 0..steps {
                // Phases of growth and of decay, so that leaves empty out.
                let growing = (step / 2_000) % 2 == 0;
                let key = key(&mut dice, longest);
                let room = max_value(gcl - PSN_BYTES, key.len());
                let value = vec![step as u8; [3, 3, 40, room][dice.below(4)].min(room)];
                let has = model.contains_key(&key);
                match dice.below(8) {
                    0 => {
                        assert_eq!(tree.get(engine, &key).await.unwrap(), model.get(&key).cloned())
                    }
                    1 => match tree.insert(engine, &key, &value).await {
                        Ok(()) => assert!(!has && model.insert(key, value).is_none()),
                        Err(error) => assert!(has && matches!(error, TreeError::Duplicate)),
                    },
                    2 => {
                        assert_eq!(tree.update(engine, &key, &value).await.unwrap(), has);
                        if has {
                            model.insert(key, value);
                        }
                    }
                    roll if (roll < 7) == growing => {
                        tree.upsert(engine, &key, &value).await.unwrap();
                        model.insert(key, value);
                    }
                    _ => {
                        assert_eq!(tree.delete(engine, &key).await.unwrap(), has);
                        model.remove(&key);
                    }
                }
                if step % 2_000 == 1_999 {
                    assert_same(tree, engine, &model).await;
                    compare_ranges(tree, engine, &model, &mut dice).await;
                }
            }
            assert!(tree.verify(engine).await.unwrap().height >= 3);
            for key in std::mem::take(&mut model).into_keys() {
                assert!(tree.delete(engine, &key).await.unwrap());
            }
            let stats = assert_same(tree, engine, &model).await;
            assert_eq!((stats.leaves, stats.inner_pages), (1, 1), "all else was given back");
            tree.insert(engine, b"again", b"1").await.unwrap();
            assert_eq!(tree.get(engine, b"again").await.unwrap().unwrap(), b"1");
        });
        cluster.stop();
    }
}

#[test]
fn ascending_inserts_fill_their_leaves() {
    let cluster = Cluster::start(1, 2048, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        for number in 0..20_000_u64 {
            tree.insert(engine, &number.to_be_bytes(), &[7; 40]).await.unwrap();
        }
        let stats = tree.verify(engine).await.unwrap();
        assert_eq!((stats.entries, stats.unposted), (20_000, 0));
        assert!(stats.fill > 0.9, "{stats:?}");
        assert_eq!(stats.height, 3, "{stats:?}");
    });
    cluster.stop();
}

#[test]
fn scans_stop_when_told_and_may_use_the_tree() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        for number in 0..100_u8 {
            tree.insert(engine, &[number], &[number; 30]).await.unwrap();
        }
        for (direction, expected) in
            [(Direction::Forward, vec![20, 21, 22]), (Direction::Reverse, vec![59, 58, 57])]
        {
            let mut met = Vec::new();
            let stop_at_three = |key: &[u8], _: &[u8]| {
                met.push(key[0]);
                if met.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let range = (Bound::Included(&[20][..]), Bound::Excluded(&[60][..]));
            tree.scan(engine, range, direction, stop_at_three).await.unwrap();
            assert_eq!(met, expected);
        }
    });
    cluster.stop();
}

#[test]
fn rows_that_fit_no_page_are_refused() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        let long = vec![b'k'; max_key(512 - PSN_BYTES) + 1];
        assert!(matches!(
            tree.insert(engine, &long, b"").await,
            Err(TreeError::KeyTooLong { bytes: 104, max: 103 })
        ));
        let large = vec![0; max_value(512 - PSN_BYTES, 1) + 1];
        assert!(matches!(
            tree.upsert(engine, b"k", &large).await,
            Err(TreeError::ValueTooLong { bytes: 448, max: 447, key_bytes: 1 })
        ));
        // The longest keys with the largest values: every split shape, with the longest fences.
        let mut model = Model::new();
        let mut dice = Dice(5);
        for number in 0..200_u8 {
            let mut key = vec![number.reverse_bits(); 103];
            key[102] = 1;
            let value = vec![number; [0, 50, 243][dice.below(3)]];
            tree.insert(engine, &key, &value).await.unwrap();
            model.insert(key, value);
        }
        for (key, value) in &mut model {
            *value = vec![1; 243];
            assert!(tree.update(engine, key, value).await.unwrap());
        }
        assert_same(tree, engine, &model).await;
    });
    cluster.stop();
}

#[test]
fn damaged_pages_are_named() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        for number in 0..200_u8 {
            tree.insert(engine, &[number], &[number; 20]).await.unwrap();
        }
        let leaf = tree.locate(engine, &[50]).await.unwrap();
        for (target, name) in [(leaf, "leaf"), (tree.root(), "root")] {
            let sound = engine.shared(target).await.unwrap().to_vec();
            let mut dice = Dice(9);
            let mut refused = 0;
            for _ in 0..150 {
                let mut guard = engine.exclusive(target).await.unwrap();
                let at = dice.below(80);
                guard.bytes_mut(at..at + 1)[0] ^= 1 << dice.below(8);
                if guard[3] & 1 == 1 {
                    guard.bytes_mut(3..4)[0] &= !1; // A dead root would only be retried.
                }
                drop(guard);
                for result in [
                    tree.get(engine, &[50]).await.map(|_| ()),
                    tree.upsert(engine, &[50], b"another length").await,
                    tree.verify(engine).await.map(|_| ()),
                ] {
                    match result {
                        Err(TreeError::Corrupt { addr, .. }) => {
                            assert!(!addr.is_null(), "{name}");
                            refused += 1;
                        }
                        Ok(()) | Err(TreeError::Broken { .. } | TreeError::Engine(_)) => {}
                        Err(TreeError::Contended { .. }) => {}
                        Err(other) => panic!("{name}: {other}"),
                    }
                }
                let mut guard = engine.exclusive(target).await.unwrap();
                guard.bytes_mut(0..512 - PSN_BYTES).copy_from_slice(&sound);
            }
            assert!(refused > 40, "{name}: {refused}");
        }
    });
    cluster.stop();
}

#[test]
fn futures_can_move_between_threads() {
    fn check<F: Future + Send>(_: F) {}
    fn all(tree: Tree, engine: &Engine) {
        check(tree.get(engine, b""));
        check(tree.insert(engine, b"", b""));
        check(tree.delete(engine, b""));
        check(tree.scan(engine, ALL, Direction::Reverse, |_, _| ControlFlow::Break(())));
        check(tree.verify(engine));
        check(tree.locate(engine, b""));
        check(tree.locate_before(engine, Bound::Unbounded));
        check(tree.reclaim(engine, b"", StampRule::Latest));
        check(Tree::create(engine, 1));
    }
    let _ = all;
}

/// A split that only freed pages make room for, which a reader holds back for longer than the split
/// waits with its latches.
#[test]
fn a_write_waits_for_freed_pages_without_latches() {
    let cluster = Cluster::start(1, 4096, FRAMES);
    let engine = &cluster.engines[0];
    let env = cluster.runtime.env();
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        let mut pages = Vec::new();
        let full = loop {
            match engine.allocate().await {
                Ok(page) => pages.push(page.addr()),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, EngineError::PoolFull { .. }), "{full}");
        let is_pinned = Arc::new(AtomicBool::new(false));
        let reader = {
            let (engine, env, is_pinned) = (engine.clone(), env.clone(), Arc::clone(&is_pinned));
            env.clone().spawn("reader", async move {
                let pin = engine.pin();
                is_pinned.store(true, Ordering::SeqCst);
                env.sleep(Duration::from_secs(1)).await;
                drop(pin);
            })
        };
        while !is_pinned.load(Ordering::SeqCst) {
            env.sleep(Duration::from_millis(1)).await;
        }
        for page in pages.into_iter().rev().take(32) {
            engine.free(engine.exclusive(page).await.unwrap());
        }
        let mut waited = Duration::ZERO;
        for number in 0..100_u64 {
            let started = env.now();
            tree.insert(engine, &number.to_be_bytes(), &[7; 60]).await.unwrap();
            waited = waited.max(env.now() - started);
        }
        assert!(waited > Duration::from_millis(250), "{waited:?}: no split had to wait");
        reader.join().await.unwrap();
        assert!(tree.verify(engine).await.unwrap().leaves > 1);
    });
    cluster.stop();
}
