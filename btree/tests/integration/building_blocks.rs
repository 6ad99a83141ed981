//! The building blocks that transactions use: splits, posts, reclaim, leaf views and edits.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ops::Bound;

use selkie_btree::{
    Direction, KeyLocation, LeafView, NoRoom, Reclaimed, StampRule, SweepRange, Swept, Tree,
    leaf_insert, leaf_remove, leaf_replace,
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
        let (right, post) = tree.split_leaf(engine, &mut guard, &[7], 8).await.unwrap();
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
        assert_eq!(
            tree.reclaim(engine, &[255], StampRule::Latest).await.unwrap(),
            Reclaimed::Stays,
            "not empty"
        );

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
        let (mut right, post) = tree.split_leaf(engine, &mut guard, &[7], 8).await.unwrap();
        let right_addr = right.addr();
        while !LeafView::new(&right).unwrap().is_empty() {
            leaf_remove(&mut right, 0).unwrap();
        }
        drop((guard, right));
        assert_eq!(
            tree.reclaim(engine, &[255], StampRule::Latest).await.unwrap(),
            Reclaimed::Stays,
            "its parent does not know it"
        );
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
        let reclaim =
            async |key: u8| tree.reclaim(engine, &[key], StampRule::Latest).await.unwrap();
        let mut guard = engine.exclusive(leaves[1]).await.unwrap();
        leaf_remove(&mut guard, 0).unwrap();
        assert_eq!(reclaim(1).await, Reclaimed::InUse, "the leaf is latched");
        drop(guard);
        let readers = (engine.shared(leaves[0]).await.unwrap(), engine.shared(leaves[2]).await);
        assert_eq!(reclaim(1).await, Reclaimed::InUse, "its siblings are latched");
        drop(readers.1);
        assert_eq!(reclaim(0).await, Reclaimed::Stays, "not empty");
        assert_eq!(tree.verify(engine).await.unwrap().leaves, 3);
        drop(readers.0);
        let reader = engine.shared(leaves[2]).await.unwrap();
        assert_eq!(reclaim(1).await, Reclaimed::Freed, "the other sibling will do");
        drop(reader);
        assert_eq!(reclaim(1).await, Reclaimed::Stays, "already gone");
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

        assert_eq!(other.reclaim(engine, b"n", StampRule::Latest).await.unwrap(), Reclaimed::Stays);
        assert_eq!(other.verify(engine).await.unwrap().entries, 3);

        // A leaf between the two that the parent does not know yet: it is posted first.
        let mut guard = engine.exclusive(left).await.unwrap();
        let (middle, post) = tree.split_leaf(engine, &mut guard, b"aa", 8).await.unwrap();
        drop((guard, middle));
        let stats = tree.verify(engine).await.unwrap();
        assert_eq!((stats.leaves, stats.unposted, stats.entries), (3, 1, 2));
        assert_eq!(tree.reclaim(engine, b"n", StampRule::Latest).await.unwrap(), Reclaimed::Freed);
        tree.post(engine, post).await.unwrap();
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

/// The first leaf under its parent has no left sibling there: it takes over the right one.
#[test]
fn the_first_leaf_of_a_parent_is_merged_with_the_next() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, 2).await.unwrap();
        for number in 0..6_u8 {
            tree.insert(engine, &[number], &[number; 9]).await.unwrap();
        }
        let before = tree.verify(engine).await.unwrap();
        let first = tree.locate(engine, &[0]).await.unwrap();
        let mut guard = engine.exclusive(first).await.unwrap();
        while !LeafView::new(&guard).unwrap().is_empty() {
            leaf_remove(&mut guard, 0).unwrap();
        }
        drop(guard);
        assert_eq!(tree.reclaim(engine, &[], StampRule::Latest).await.unwrap(), Reclaimed::Freed);
        let after = tree.verify(engine).await.unwrap();
        assert_eq!((after.leaves, after.unposted), (before.leaves - 1, 0));
        assert_eq!(tree.locate(engine, &[0]).await.unwrap(), first, "it has the rows of the next");
        let found = rows(tree, engine, ALL, Direction::Forward).await;
        let kept = (6 - found.len() as u8..6).map(|number| (vec![number], vec![number; 9]));
        assert_eq!(found, kept.collect::<Vec<_>>());
        tree.insert(engine, &[0], b"again").await.unwrap();
        assert_eq!(tree.get(engine, &[0]).await.unwrap().unwrap(), b"again");
    });
    cluster.stop();
}

/// Appends a row; the separator of a split is lost.
async fn append_unposted(tree: Tree, engine: &Engine, key: &[u8]) {
    let _pin = engine.pin();
    let mut addr = tree.locate(engine, key).await.unwrap();
    loop {
        let mut guard = engine.exclusive(addr).await.unwrap();
        let right = LeafView::new(&guard).unwrap().right();
        if !right.is_null() {
            addr = right;
        } else if leaf_insert(&mut guard, key, b"row").is_err() {
            let (right, lost) = tree.split_leaf(engine, &mut guard, key, 8).await.unwrap();
            addr = right.addr();
            drop(lost);
        } else {
            return;
        }
    }
}

/// Separators that were never posted, as after the death of a node, and empty leaves.
#[test]
fn a_sweep_posts_what_is_missing_and_frees_what_is_empty() {
    const ROWS: u32 = 3_000;
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, 4).await.unwrap();
        for number in 0..ROWS {
            append_unposted(tree, engine, &number.to_be_bytes()).await;
        }
        let before = tree.verify(engine).await.unwrap();
        assert!(before.unposted > 700 && before.unposted == before.leaves - 1, "{before:?}");

        // All leaves but every tenth are empty.
        for number in 0..ROWS {
            let key = number.to_be_bytes();
            if number / 4 % 10 != 0 {
                let mut addr = tree.locate(engine, &key).await.unwrap();
                let (mut guard, slot) = loop {
                    let guard = engine.exclusive(addr).await.unwrap();
                    match LeafView::new(&guard).unwrap().where_is(&key).unwrap() {
                        KeyLocation::Here(slot) => break (guard, slot.unwrap()),
                        KeyLocation::Right(next) => addr = next,
                        KeyLocation::Elsewhere => panic!("the leaf was freed"),
                    }
                };
                leaf_remove(&mut guard, slot).unwrap();
            }
        }

        // One leaf at a time up to the middle, though the parent knows none further right.
        let middle = (ROWS / 2).to_be_bytes();
        let (mut range, mut sweeps) = (SweepRange::new(&[], &middle), 0);
        let sweep = async |range: &mut SweepRange, leaves| {
            let before = range.from().to_vec();
            let swept = tree.sweep(engine, range, leaves, StampRule::Latest).await.unwrap();
            assert!(swept != Swept::More || *range.from() > *before, "it comes on");
            swept
        };
        while sweep(&mut range, 1).await == Swept::More {
            sweeps += 1;
        }
        let half = tree.verify(engine).await.unwrap();
        assert!(half.unposted > before.unposted / 3 && half.unposted < before.unposted * 2 / 3);
        assert!(sweeps < before.leaves, "{sweeps}");
        let (mut range, mut sweeps) = (SweepRange::new(range.from(), &[255; 4]), 0);
        while sweep(&mut range, 64).await == Swept::More {
            sweeps += 1;
        }
        let after = tree.verify(engine).await.unwrap();
        assert!(sweeps >= before.leaves / 2 / 64 && sweeps < before.leaves / 32, "{sweeps}");
        assert_eq!((after.entries, after.unposted), (ROWS as usize / 10, 0));
        // One for each that has rows.
        assert_eq!(after.leaves, ROWS as usize / 4 / 10, "{before:?} {after:?}");

        // A leaf in use ends the sweep, which may be tried again.
        let (key, end) = (200_u32.to_be_bytes(), ROWS.to_be_bytes());
        let guard = engine.exclusive(tree.locate(engine, &key).await.unwrap()).await.unwrap();
        let low = LeafView::new(&guard).unwrap().low_fence().to_vec();
        let mut range = SweepRange::new(&[], &end);
        assert_eq!((sweep(&mut range, 64).await, range.from()), (Swept::InUse, &*low));
        // One beyond the range is no concern of it.
        let last = tree.locate_before(engine, Bound::Excluded(&low)).await.unwrap();
        let within =
            LeafView::new(&engine.shared(last).await.unwrap()).unwrap().low_fence().to_vec();
        assert_eq!(sweep(&mut SweepRange::new(&[], &within), 64).await, Swept::Done);
        drop(guard);
        assert_eq!(sweep(&mut SweepRange::new(&low, &end), 5_000).await, Swept::Done);
    });
    cluster.stop();
}

/// It does not stop the sweep, which looks at it again later.
#[test]
fn a_sweep_comes_back_to_what_cannot_be_merged_yet() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, 4).await.unwrap();
        for number in 0..400_u32 {
            tree.insert(engine, &number.to_be_bytes(), b"row").await.unwrap();
        }
        let before = tree.verify(engine).await.unwrap();
        let mut leaves = Vec::new();
        for number in [100_u32, 200, 300] {
            let addr = tree.locate(engine, &number.to_be_bytes()).await.unwrap();
            let mut guard = engine.exclusive(addr).await.unwrap();
            while !LeafView::new(&guard).unwrap().is_empty() {
                leaf_remove(&mut guard, 0).unwrap();
            }
            leaves.push((addr, LeafView::new(&guard).unwrap().low_fence().to_vec()));
        }
        // Readers keep the second one, and its neighbours.
        let (addr, low) = leaves.swap_remove(1);
        let guard = engine.shared(addr).await.unwrap();
        let right = LeafView::new(&guard).unwrap().right();
        let left = tree.locate_before(engine, Bound::Excluded(&low)).await.unwrap();
        let beside = (engine.shared(left).await.unwrap(), engine.shared(right).await.unwrap());
        let mut range = SweepRange::new(&[], &[255; 4]);
        let swept = tree.sweep(engine, &mut range, 5_000, StampRule::Latest).await.unwrap();
        assert_eq!((swept, range.from()), (Swept::Postponed, &*low));
        assert_eq!(tree.verify(engine).await.unwrap().leaves, before.leaves - 2);
        drop((guard, beside));
        let swept = tree.sweep(engine, &mut range, 5_000, StampRule::Latest).await.unwrap();
        assert_eq!(swept, Swept::Done);
        assert_eq!(tree.verify(engine).await.unwrap().leaves, before.leaves - 3);
    });
    cluster.stop();
}
