//! The building blocks that transactions use: splits, posts, reclaim, leaf views and edits.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ops::Bound;

use selkie_btree::{
    Direction, KeyLocation, LeafView, NoRoom, Tree, leaf_insert, leaf_remove, leaf_replace,
};
use selkie_engine::{Engine, GAddr};

use crate::common::{ALL, Cluster, FRAMES, Model, assert_same, rows};

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
        assert_eq!(view.where_is(&[255]).unwrap(), KeyLocation::Right(right_addr));
        assert_eq!(LeafView::new(&right).unwrap().where_is(&[0]).unwrap(), KeyLocation::Elsewhere);
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
        // A writer reaches the right leaf by its link and posts it; then it is emptied and
        // reclaimed.
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
                    KeyLocation::Here(Ok(slot)) => {
                        let mut key = Vec::new();
                        view.key_into(slot, &mut key).unwrap();
                        break Some(key);
                    }
                    KeyLocation::Here(Err(0)) if view.low_fence().is_empty() => break None,
                    KeyLocation::Here(Err(0)) => bound = Bound::Excluded(view.low_fence().to_vec()),
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
