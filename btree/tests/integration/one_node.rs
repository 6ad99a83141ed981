//! One node against an ordered map, and the building blocks that transactions use.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ops::{Bound, ControlFlow};

use selkie_btree::{
    Direction, LeafView, NoRoom, Tree, TreeError, Whereabouts, leaf_insert, leaf_remove,
    leaf_replace, max_entry, max_key,
};
use selkie_engine::{Engine, GAddr, PSN_BYTES};

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
                let room = max_entry(gcl - PSN_BYTES) - key.len();
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
            assert!(stats.leaves < 60, "empty leaves are reclaimed: {stats:?}");
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
            Err(TreeError::KeyTooLong { bytes: 46, max: 45 })
        ));
        let large = vec![0; max_entry(512 - PSN_BYTES)];
        assert!(matches!(
            tree.upsert(engine, b"k", &large).await,
            Err(TreeError::EntryTooLarge { bytes: 141, max: 140 })
        ));
        // The longest keys with the largest values: every split shape, with the longest fences.
        let mut model = Model::new();
        let mut dice = Dice(5);
        for number in 0..200_u8 {
            let mut key = vec![number.reverse_bits(); 45];
            key[44] = 1;
            let value = vec![number; [0, 50, 95][dice.below(3)]];
            tree.insert(engine, &key, &value).await.unwrap();
            model.insert(key, value);
        }
        for (key, value) in &mut model {
            *value = vec![1; 95];
            assert!(tree.update(engine, key, value).await.unwrap());
        }
        assert_same(tree, engine, &model).await;
    });
    cluster.stop();
}

/// Fills the first leaf of a new tree and splits it as a transaction would, for `new`.
async fn full_leaf(tree: Tree, engine: &Engine) -> GAddr {
    let leaf = tree.locate(engine, b"").await.unwrap();
    let mut guard = engine.exclusive(leaf).await.unwrap();
    let mut number = 0_u8;
    while leaf_insert(&mut guard, &[number], &[number; 40]) == Ok(()) {
        number += 2;
    }
    leaf
}

#[test]
fn an_unposted_split_is_valid_and_posting_is_idempotent() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        let _pin = engine.pin();
        let left = full_leaf(tree, engine).await;
        let mut guard = engine.exclusive(left).await.unwrap();
        let (right, post) = tree.split_leaf(engine, &mut guard, &[7]).await.unwrap();
        let right_addr = right.addr();
        let view = LeafView::new(&guard).unwrap();
        assert_eq!(view.right(), right_addr);
        assert_eq!(view.where_is(&[255]).unwrap(), Whereabouts::Right(right_addr));
        assert_eq!(LeafView::new(&right).unwrap().where_is(&[0]).unwrap(), Whereabouts::Elsewhere);
        drop((guard, right));

        let before = tree.verify(engine).await.unwrap();
        assert_eq!((before.leaves, before.unposted), (2, 1));
        let forward = rows(tree, engine, ALL, Direction::Forward).await;
        let mut backward = rows(tree, engine, ALL, Direction::Reverse).await;
        backward.reverse();
        assert_eq!(forward, backward);
        assert_eq!(tree.locate(engine, &[255]).await.unwrap(), left, "by the right link only");
        assert!(!tree.reclaim(engine, right_addr).await.unwrap(), "not empty");

        for _ in 0..3 {
            tree.post(engine, post.clone()).await.unwrap();
            let after = tree.verify(engine).await.unwrap();
            assert_eq!((after.leaves, after.unposted, after.entries), (2, 0, before.entries));
            assert_eq!(tree.locate(engine, &[255]).await.unwrap(), right_addr);
        }
    });
    cluster.stop();
}

#[test]
fn a_post_for_a_leaf_that_died_does_nothing() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        let _pin = engine.pin();
        let left = full_leaf(tree, engine).await;
        let mut guard = engine.exclusive(left).await.unwrap();
        let (mut right, post) = tree.split_leaf(engine, &mut guard, &[7]).await.unwrap();
        let right_addr = right.addr();
        while !LeafView::new(&right).unwrap().is_empty() {
            leaf_remove(&mut right, 0).unwrap();
        }
        drop((guard, right));
        assert!(!tree.reclaim(engine, right_addr).await.unwrap(), "its parent does not know it");
        // Somebody strays to the right leaf and posts it; then it is emptied and reclaimed.
        tree.insert(engine, &[255], b"x").await.unwrap();
        assert_eq!(tree.verify(engine).await.unwrap().unposted, 0);
        assert!(tree.delete(engine, &[255]).await.unwrap());
        assert_eq!(tree.verify(engine).await.unwrap().leaves, 1, "reclaimed");
        assert!(LeafView::new(&engine.shared(right_addr).await.unwrap()).unwrap().is_dead());
        // The first poster comes late, with what it knew from before.
        tree.post(engine, post).await.unwrap();
        let stats = tree.verify(engine).await.unwrap();
        assert_eq!((stats.leaves, stats.unposted), (1, 0));
        assert_eq!(tree.locate(engine, &[255]).await.unwrap(), left);
    });
    cluster.stop();
}

#[test]
fn reclaim_gives_up_on_leaves_in_use() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, 1).await.unwrap();
        for number in 0..3_u8 {
            tree.insert(engine, &[number], b"row").await.unwrap();
        }
        let mut leaves = Vec::new();
        for number in 0..3_u8 {
            leaves.push(tree.locate(engine, &[number]).await.unwrap());
        }
        let mut guard = engine.exclusive(leaves[1]).await.unwrap();
        leaf_remove(&mut guard, 0).unwrap();
        assert!(!tree.reclaim(engine, leaves[1]).await.unwrap(), "the leaf is latched");
        drop(guard);
        let reader = engine.shared(leaves[0]).await.unwrap();
        assert!(!tree.reclaim(engine, leaves[1]).await.unwrap(), "its left sibling is latched");
        drop(reader);
        assert!(!tree.reclaim(engine, leaves[0]).await.unwrap(), "not empty");
        assert!(!tree.reclaim(engine, tree.root()).await.unwrap(), "not a leaf");
        assert!(tree.reclaim(engine, leaves[1]).await.unwrap());
        assert!(!tree.reclaim(engine, leaves[1]).await.unwrap(), "already gone");
        assert_eq!(tree.verify(engine).await.unwrap().leaves, 2);
        assert_eq!(tree.locate(engine, &[1]).await.unwrap(), leaves[0]);
        let keys: Vec<_> =
            rows(tree, engine, ALL, Direction::Reverse).await.into_iter().map(|r| r.0).collect();
        assert_eq!(keys, [[2], [0]]);
    });
    cluster.stop();
}

#[test]
fn reclaim_checks_the_pages_it_changes() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let (tree, other) =
            (Tree::create(engine, 2).await.unwrap(), Tree::create(engine, 2).await.unwrap());
        for tree in [tree, other] {
            for key in [b"a", b"b", b"n"] {
                tree.insert(engine, key, b"row").await.unwrap();
            }
        }
        let _pin = engine.pin();
        let left = tree.locate(engine, b"a").await.unwrap();
        let right = tree.locate(engine, b"n").await.unwrap();
        let mut guard = engine.exclusive(right).await.unwrap();
        leaf_remove(&mut guard, 0).unwrap();
        drop(guard);

        // An address from another tree, as a stale one may be: the leaf here has rows.
        assert!(!other.reclaim(engine, right).await.unwrap());
        assert_eq!(other.verify(engine).await.unwrap().entries, 3);

        // A leaf between the two that the parent does not know yet.
        let mut guard = engine.exclusive(left).await.unwrap();
        let (middle, post) = tree.split_leaf(engine, &mut guard, b"aa").await.unwrap();
        drop((guard, middle));
        assert!(!tree.reclaim(engine, right).await.unwrap());
        let stats = tree.verify(engine).await.unwrap();
        assert_eq!((stats.leaves, stats.unposted, stats.entries), (3, 1, 2));
        tree.post(engine, post).await.unwrap();
        assert!(tree.reclaim(engine, right).await.unwrap());
        let stats = tree.verify(engine).await.unwrap();
        assert_eq!((stats.leaves, stats.unposted, stats.entries), (2, 0, 2));
    });
    cluster.stop();
}

#[test]
fn leaves_keep_to_their_row_limit() {
    let cluster = Cluster::start(1, 2048, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        for limit in [1_u16, 2, 5] {
            let tree = Tree::create(engine, limit).await.unwrap();
            let mut model = Model::new();
            for number in 0..60_u8 {
                let key = vec![number.wrapping_mul(67)];
                tree.insert(engine, &key, &[number; 10]).await.unwrap();
                model.insert(key, vec![number; 10]);
            }
            assert_same(tree, engine, &model).await;
            let _pin = engine.pin();
            for key in model.keys() {
                let leaf = tree.locate(engine, key).await.unwrap();
                let mut guard = engine.exclusive(leaf).await.unwrap();
                let rows = LeafView::new(&guard).unwrap().len();
                assert!((1..=usize::from(limit)).contains(&rows));
                if rows == usize::from(limit) {
                    let between = [key.as_slice(), b"+"].concat();
                    assert_eq!(leaf_insert(&mut guard, &between, b""), Err(NoRoom));
                }
            }
        }
    });
    cluster.stop();
}

#[test]
fn leaf_views_find_rows_below_a_bound() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, 2).await.unwrap();
        for key in [b"b", b"d", b"f", b"h"] {
            tree.insert(engine, key, b"v").await.unwrap();
        }
        let _pin = engine.pin();
        for (bound, expected) in [
            (Bound::Unbounded, Some(b"h")),
            (Bound::Included(&b"f"[..]), Some(b"f")),
            (Bound::Excluded(&b"f"[..]), Some(b"d")),
            (Bound::Excluded(&b"g"[..]), Some(b"f")),
            (Bound::Excluded(&b"b"[..]), None),
            (Bound::Included(&b""[..]), None),
            (Bound::Excluded(&b""[..]), None),
        ] {
            let mut bound: Bound<Vec<u8>> = bound.map(<[u8]>::to_vec);
            let met = loop {
                let below = bound.as_ref().map(Vec::as_slice);
                let leaf = tree.locate_before(engine, below).await.unwrap();
                let guard = engine.shared(leaf).await.unwrap();
                let view = LeafView::new(&guard).unwrap();
                match view.where_is_before(below).unwrap() {
                    Whereabouts::Here(Ok(slot)) => {
                        let mut key = Vec::new();
                        view.key_into(slot, &mut key).unwrap();
                        break Some(key);
                    }
                    Whereabouts::Here(Err(0)) if view.low_fence().is_empty() => break None,
                    Whereabouts::Here(Err(0)) => bound = Bound::Excluded(view.low_fence().to_vec()),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(met.as_deref(), expected.map(|key| &key[..]), "{bound:?}");
        }
    });
    cluster.stop();
}

#[test]
fn values_of_the_same_length_are_written_in_place() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        tree.insert(engine, b"key", b"before").await.unwrap();
        let leaf = tree.locate(engine, b"key").await.unwrap();
        let mut guard = engine.exclusive(leaf).await.unwrap();
        let old = guard.to_vec();
        let range = LeafView::new(&guard).unwrap().value_range(0).unwrap();
        leaf_replace(&mut guard, 0, b"after!").unwrap();
        assert_eq!(&guard[range.clone()], b"after!");
        let changed = (0..old.len()).filter(|at| old[*at] != guard[*at]);
        assert!(changed.clone().count() > 0 && changed.into_iter().all(|at| range.contains(&at)));
        assert_eq!(leaf_replace(&mut guard, 9, b"x"), Err(NoRoom));
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
        check(tree.reclaim(engine, GAddr::NULL));
        check(Tree::create(engine, 1));
    }
    let _ = all;
}
