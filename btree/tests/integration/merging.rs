//! Trees that shrink: leaves and inner pages are merged, and their pages go back to the pool.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use selkie_btree::{Direction, LeafView, Reclaimed, StampRule, Tree, TreeError};
use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::env::yield_now;

use crate::common::{ALL, Cluster, Dice, FRAMES, Model, assert_same, insist, on_every_node};

const ROWS: u32 = 6_000;
/// What a row takes in a leaf, at least, and its value.
const ROW_BYTES: usize = 30;
const VALUE: [u8; 20] = [7; 20];

/// An order to work through the rows.
#[derive(Clone, Copy, Debug)]
enum Order {
    Ascending,
    Descending,
    Random,
}

const ORDERS: [Order; 3] = [Order::Ascending, Order::Descending, Order::Random];

impl Order {
    fn of(self, rows: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut rows: Vec<u32> = rows.collect();
        match self {
            Self::Ascending => {}
            Self::Descending => rows.reverse(),
            Self::Random => {
                let mut dice = Dice(3);
                for at in (1..rows.len()).rev() {
                    rows.swap(at, dice.below(at + 1));
                }
            }
        }
        rows
    }
}

async fn filled(engine: &Engine, order: Order) -> Tree {
    let tree = Tree::create(engine, u16::MAX).await.unwrap();
    for number in order.of(0..ROWS) {
        tree.insert(engine, &number.to_be_bytes(), &VALUE).await.unwrap();
    }
    tree
}

fn free_lines(engine: &Engine) -> u64 {
    let (fresh, reusable, on_hold) = engine.unused_lines();
    fresh + reusable + on_hold
}

/// Leaves without rows.
async fn empty_leaves(tree: Tree, engine: &Engine) -> usize {
    let _pin = engine.pin();
    let (mut empty, mut addr) = (0, tree.locate(engine, b"").await.unwrap());
    while !addr.is_null() {
        let guard = engine.shared(addr).await.unwrap();
        let leaf = LeafView::new(&guard).unwrap();
        empty += usize::from(leaf.is_empty());
        addr = leaf.right();
    }
    empty
}

/// Without rows a root and a leaf are left; otherwise at most four times the leaves that the rows
/// would fill: of two siblings, one is more than three eighths full, or both together were more
/// than five eighths full when one of them was last looked at, and have lost less than an eighth
/// each since. Every page that has left the tree is at the node's disposal.
#[test]
fn a_tree_shrinks_to_what_is_left() {
    for inserted in [Order::Ascending, Order::Random] {
        for deleted in ORDERS {
            for keep_every in [u32::MAX, 10] {
                let cluster = Cluster::start(1, 512, FRAMES);
                let engine = &cluster.engines[0];
                println!("inserted {inserted:?}, deleted {deleted:?}, kept one of {keep_every}");
                cluster.runtime.block_on(shrink(engine, inserted, deleted, keep_every));
                cluster.stop();
            }
        }
    }
}

async fn shrink(engine: &Engine, inserted: Order, deleted: Order, keep_every: u32) {
    let tree = filled(engine, inserted).await;
    let (before, free) = (tree.verify(engine).await.unwrap(), free_lines(engine));
    assert!(before.height >= 3 && before.inner_pages > 15, "{before:?}");
    let is_kept = |row: &u32| row % keep_every == keep_every - 1;
    for row in deleted.of((0..ROWS).filter(|row| !is_kept(row))) {
        assert!(tree.delete(engine, &row.to_be_bytes()).await.unwrap());
    }
    let kept = (0..ROWS).filter(is_kept);
    let model: Model = kept.map(|row| (row.to_be_bytes().to_vec(), VALUE.to_vec())).collect();
    let after = assert_same(tree, engine, &model).await;
    println!("{before:?} {after:?}");
    let full = model.len() * ROW_BYTES / (engine.page_bytes() - 60);
    assert!(after.leaves <= 4 * full + 1, "{after:?}");
    assert!(after.inner_pages <= after.leaves / 4 + 1, "{after:?}");
    if model.is_empty() {
        assert_eq!((after.leaves, after.inner_pages), (1, 1), "{after:?}");
    }
    let pages = before.leaves + before.inner_pages;
    let given = (pages - after.leaves - after.inner_pages) as u64;
    assert_eq!(free_lines(engine), free + given, "{after:?}");
}

/// All leaves below some inner pages between others, which are full, as rows were appended.
#[test]
fn no_empty_leaf_stays_as_the_only_one_below_its_parent() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let order = Order::Random;
        for (first, end) in [(0, 1_500), (2_000, 2_130), (2_500, 4_700), (4_900, ROWS)] {
            let tree = filled(engine, Order::Ascending).await;
            let before = tree.verify(engine).await.unwrap();
            for row in order.of(first..end) {
                assert!(tree.delete(engine, &row.to_be_bytes()).await.unwrap());
            }
            let kept = (0..ROWS).filter(|row| !(first..end).contains(row));
            let model: Model =
                kept.map(|row| (row.to_be_bytes().to_vec(), VALUE.to_vec())).collect();
            let after = assert_same(tree, engine, &model).await;
            assert_eq!(empty_leaves(tree, engine).await, 0, "{first}..{end}");
            let share = |pages: usize| pages * (ROWS - (end - first)) as usize / ROWS as usize;
            assert!(after.leaves <= share(before.leaves) + 2, "{before:?} {after:?}");
            assert!(after.inner_pages <= share(before.inner_pages) + 3, "{before:?} {after:?}");
        }
    });
    cluster.stop();
}

/// The same with separators of very different lengths, so that inner pages between which one is
/// left with one child may have no room for it: they divide their children.
#[test]
fn no_leaf_without_rows_stays_among_long_and_short_keys() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        for seed in 0..60 {
            let mut dice = Dice(seed);
            // A leaf for each row.
            let tree = Tree::create(engine, 1).await.unwrap();
            let key = |number: u32| {
                let mut key = vec![(number / 9) as u8; 36 * (number as usize / 9 % 2)];
                key.insert(0, (number / 9) as u8);
                key.extend_from_slice(&number.to_be_bytes());
                key
            };
            let mut rows: Vec<u32> = (0..400).collect();
            if seed % 2 == 0 {
                for at in (1..rows.len()).rev() {
                    rows.swap(at, dice.below(at + 1));
                }
            }
            let mut model = Model::new();
            for number in rows {
                tree.insert(engine, &key(number), b"row").await.unwrap();
                model.insert(key(number), b"row".to_vec());
            }
            while !model.is_empty() {
                let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
                let first = dice.below(keys.len());
                let mut some = keys[first..keys.len().min(first + 90)].to_vec();
                for at in (1..some.len()).rev() {
                    some.swap(at, dice.below(at + 1));
                }
                for key in some {
                    assert!(tree.delete(engine, &key).await.unwrap());
                    model.remove(&key);
                    let stats = tree.verify(engine).await.unwrap();
                    assert_eq!(stats.leaves, model.len().max(1), "seed {seed}: {stats:?}");
                }
                assert_same(tree, engine, &model).await;
            }
        }
    });
    cluster.stop();
}

/// An inner page that could not be merged while its neighbours were in use, with an empty leaf.
#[test]
fn a_page_that_was_in_use_is_merged_by_a_later_attempt() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = filled(engine, Order::Ascending).await;
        let before = tree.verify(engine).await.unwrap();
        let is_child = |page: &[u8], leaf: GAddr| {
            page.windows(8).any(|bytes| bytes == leaf.to_u64().to_le_bytes())
        };
        let middle = tree.locate(engine, &700_u32.to_be_bytes()).await.unwrap();
        let (mut others, mut parent) = (Vec::new(), Vec::new());
        for addr in tree.pages(engine).await.unwrap() {
            let guard = engine.shared(addr).await.unwrap();
            // Their level.
            match guard[2] {
                1 if is_child(&guard, middle) => parent = guard.to_vec(),
                1 => others.push(guard),
                _ => {}
            }
        }
        assert!(others.len() > 10);
        let mut model = Model::new();
        for row in 0..ROWS {
            let key = row.to_be_bytes();
            let leaf = tree.locate(engine, &key).await.unwrap();
            if is_child(&parent, leaf) {
                assert!(tree.delete(engine, &key).await.unwrap());
            } else {
                model.insert(key.to_vec(), VALUE.to_vec());
            }
        }
        let held = tree.verify(engine).await.unwrap();
        assert_eq!((held.inner_pages, empty_leaves(tree, engine).await), (before.inner_pages, 1));
        let (key, rule) = (700_u32.to_be_bytes(), StampRule::Latest);
        assert_eq!(tree.reclaim(engine, &key, rule).await.unwrap(), Reclaimed::InUse);
        drop(others);
        assert_eq!(tree.reclaim(engine, &key, rule).await.unwrap(), Reclaimed::Freed);
        let after = assert_same(tree, engine, &model).await;
        assert_eq!((after.leaves, empty_leaves(tree, engine).await), (held.leaves - 1, 0));
    });
    cluster.stop();
}

/// Neither halves of a page that was split, nor the row that comes and goes at the edge.
#[test]
fn pages_are_not_split_and_merged_in_turn() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = filled(engine, Order::Random).await;
        let free = free_lines(engine);
        let mut pages = HashSet::new();
        for round in 0..2_000_u32 {
            let key = (round * 97 % ROWS).to_be_bytes();
            assert!(tree.delete(engine, &key).await.unwrap());
            tree.insert(engine, &key, &VALUE).await.unwrap();
            pages.insert(free_lines(engine));
        }
        // One row less and one more each: at most some pages that were about to be split.
        assert!(free_lines(engine).abs_diff(free) < 20 && pages.len() < 40, "{pages:?}");
    });
    cluster.stop();
}

/// An update to a shorter value is a change as a delete is.
#[test]
fn leaves_whose_rows_become_shorter_are_merged() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = Tree::create(engine, u16::MAX).await.unwrap();
        let mut model = Model::new();
        for number in 0..400_u32 {
            tree.insert(engine, &number.to_be_bytes(), &[9; 90]).await.unwrap();
            model.insert(number.to_be_bytes().to_vec(), vec![1]);
        }
        let before = tree.verify(engine).await.unwrap();
        for number in Order::Random.of(0..400) {
            assert!(tree.update(engine, &number.to_be_bytes(), &[1]).await.unwrap());
        }
        let after = assert_same(tree, engine, &model).await;
        assert!(after.leaves * 3 < before.leaves, "{before:?} {after:?}");
    });
    cluster.stop();
}

/// A reader that is on its way to a page which is merged meanwhile, on either level, or has a root
/// that becomes lower, starts again; one that has its old address finds it dead.
#[test]
fn old_addresses_lead_to_dead_pages_and_back_to_the_root() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = filled(engine, Order::Ascending).await;
        let pin = engine.pin();
        let mut leaves = Vec::new();
        for row in 0..ROWS {
            leaves.push(tree.locate(engine, &row.to_be_bytes()).await.unwrap());
        }
        let pages = tree.pages(engine).await.unwrap();
        for row in Order::Random.of(1..ROWS) {
            assert!(tree.delete(engine, &row.to_be_bytes()).await.unwrap());
        }
        let left = tree.pages(engine).await.unwrap();
        assert_eq!(left.len(), 2);
        // Under the pin nothing uses them anew.
        let mut others = Vec::new();
        for number in 0..300_u32 {
            let page = engine.allocate().await.unwrap();
            assert!(!pages.contains(&page.addr()), "{number}: reused under a pin");
            others.push(page);
        }
        for (row, addr) in leaves.into_iter().enumerate().step_by(50) {
            let guard = engine.shared(addr).await.unwrap();
            let view = LeafView::new(&guard).unwrap();
            assert_eq!(view.is_dead(), !left.contains(&addr));
            drop(guard);
            let found = tree.get(engine, &(row as u32).to_be_bytes()).await.unwrap();
            assert_eq!(found.is_some(), row == 0);
        }
        others.into_iter().for_each(|page| engine.free(page));
        drop(pin);
    });
    cluster.stop();
}

/// A post that comes late, with what it knew when its leaf was born, when the parent has been
/// merged, split, and become the root in between.
#[test]
fn a_late_post_meets_pages_that_were_merged() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let mut is_seen = [false; 2];
        for stays in [false, true] {
            let tree = filled(engine, Order::Ascending).await;
            // Splits in all parts of the tree, of which the separators come late.
            let mut posts = Vec::new();
            for row in (100..ROWS).step_by(400) {
                let _pin = engine.pin();
                let key = [&row.to_be_bytes()[..], b"+"].concat();
                let addr = tree.locate(engine, &key).await.unwrap();
                let mut guard = engine.exclusive(addr).await.unwrap();
                let (right, post) = tree.split_leaf(engine, &mut guard, &key, 8).await.unwrap();
                drop((guard, right));
                posts.push(post);
            }
            for row in Order::Random.of(0..ROWS) {
                let is_kept = stays && row % 100 < 5;
                if !is_kept {
                    assert!(tree.delete(engine, &row.to_be_bytes()).await.unwrap());
                }
            }
            let unposted = tree.verify(engine).await.unwrap().unposted;
            is_seen[usize::from(stays)] = unposted > 0;
            for post in posts {
                tree.post(engine, post).await.unwrap();
                tree.verify(engine).await.unwrap();
            }
            let after = tree.verify(engine).await.unwrap();
            assert_eq!(after.unposted, 0);
            // What the posts have made known can be merged as well.
            for row in 0..ROWS {
                let key = row.to_be_bytes();
                tree.reclaim(engine, &key, StampRule::Latest).await.unwrap();
                if stays && row % 100 < 5 {
                    assert!(tree.delete(engine, &key).await.unwrap());
                }
            }
            let stays = tree.reclaim(engine, b"", StampRule::Latest).await.unwrap();
            assert_eq!(stays, Reclaimed::Stays);
            let last = tree.verify(engine).await.unwrap();
            assert_eq!((last.leaves, last.inner_pages, last.entries), (1, 1, 0));
        }
        println!("some were unposted when all was merged: {is_seen:?}");
    });
    cluster.stop();
}

/// The same where the leaf has gone, and then its parent and a neighbour of that have divided their
/// children: the neighbour's count of removals is lower.
#[test]
fn a_late_post_is_not_misled_by_the_count_of_another_parent() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = filled(engine, Order::Ascending).await;
        let before = tree.verify(engine).await.unwrap();
        let key = |row: u32| [&row.to_be_bytes()[..], b"+"].concat();
        let middle = key(700);
        let addr = tree.locate(engine, &middle).await.unwrap();
        let mut guard = engine.exclusive(addr).await.unwrap();
        let (right, post) = tree.split_leaf(engine, &mut guard, &middle, 8).await.unwrap();
        let born = right.addr();
        drop((guard, right));
        // All leaves of some parents go, and none of the first one's, which is full.
        for row in 450..1_100_u32 {
            assert!(tree.delete(engine, &row.to_be_bytes()).await.unwrap());
        }
        let after = tree.verify(engine).await.unwrap();
        assert!(after.inner_pages < before.inner_pages, "{before:?} {after:?}");
        assert!(LeafView::new(&engine.shared(born).await.unwrap()).unwrap().is_dead());
        tree.post(engine, post).await.unwrap();
        let last = tree.verify(engine).await.unwrap();
        assert_eq!((last.leaves, last.unposted), (after.leaves, 0));
    });
    cluster.stop();
}

/// Keys of all tasks lie side by side, so that tasks of all nodes empty the same leaves.
fn key_of(number: usize, task: usize, tasks: usize) -> [u8; 4] {
    u32::try_from(number * tasks + task).unwrap().to_be_bytes()
}

async fn grow_and_shrink(tree: Tree, engine: &Engine, task: usize, tasks: usize) -> Model {
    const SPAN: usize = 700;
    let (mut own, mut dice) = (Model::new(), Dice(task as u64));
    for round in 0..6_usize {
        for _ in 0..SPAN * 2 {
            let key = key_of(dice.below(SPAN), task, tasks);
            let value = vec![round as u8; dice.below(30)];
            insist!(tree.upsert(engine, &key, &value));
            own.insert(key.to_vec(), value);
        }
        for step in 0..SPAN {
            // Up, down, and anywhere.
            let number = [step, SPAN - 1 - step, dice.below(SPAN)][round % 3];
            if dice.below(20) == 0 {
                continue;
            }
            let key = key_of(number, task, tasks);
            let was_there = own.remove(&key[..]).is_some();
            assert_eq!(insist!(tree.delete(engine, &key)), was_there);
            if step % 50 == 0 {
                compare_own(tree, engine, &own, task, tasks, step).await;
                yield_now().await;
            }
        }
    }
    own
}

/// A scan among others that split and merge: in order, and the task's own rows exactly.
async fn compare_own(
    tree: Tree,
    engine: &Engine,
    own: &Model,
    task: usize,
    tasks: usize,
    step: usize,
) {
    let direction = [Direction::Forward, Direction::Reverse][step / 50 % 2];
    let (mut met, mut last) = (Model::new(), None::<Vec<u8>>);
    let collect = |key: &[u8], value: &[u8]| {
        if let Some(last) = &last {
            let is_ascending = last.as_slice() < key;
            assert!(is_ascending == (direction == Direction::Forward) && last != key);
        }
        last = Some(key.to_vec());
        if u32::from_be_bytes(key.try_into().unwrap()) as usize % tasks == task {
            met.insert(key.to_vec(), value.to_vec());
        }
        ControlFlow::Continue(())
    };
    match tree.scan(engine, ALL, direction, collect).await {
        Ok(()) => assert!(met == *own, "task {task} step {step}: own rows differ"),
        Err(TreeError::Engine(EngineError::Timeout { .. } | EngineError::Busy { .. })) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn many_tasks_grow_and_shrink_one_tree() {
    const TASKS: usize = 6;
    let cluster = Cluster::start(3, 512, FRAMES);
    let engine = cluster.engines[0].clone();
    let tree = cluster.runtime.block_on(Tree::create(&engine, u16::MAX)).unwrap();
    let whole = Arc::new(Mutex::new(Model::new()));
    on_every_node(&cluster, TASKS / 3, |engine, task| {
        let whole = whole.clone();
        async move {
            let own = grow_and_shrink(tree, &engine, task, TASKS).await;
            whole.lock().unwrap().extend(own);
        }
    });
    let whole = std::mem::take(&mut *whole.lock().unwrap());
    for engine in &cluster.engines {
        let stats = cluster.runtime.block_on(assert_same(tree, engine, &whole));
        println!("{} rows: {stats:?}", whole.len());
    }
    // What was in use stays behind; with nobody else there all of it goes.
    cluster.runtime.block_on(async {
        let keys: Vec<Vec<u8>> = whole.into_keys().collect();
        for key in &keys {
            assert!(tree.delete(&engine, key).await.unwrap());
        }
        let mut low: Option<Vec<u8>> = Some(Vec::new());
        while let Some(key) = low {
            tree.reclaim(&engine, &key, StampRule::Latest).await.unwrap();
            let leaf: GAddr = tree.locate(&engine, &key).await.unwrap();
            let guard = engine.shared(leaf).await.unwrap();
            low = LeafView::new(&guard).unwrap().high_fence().map(<[u8]>::to_vec);
        }
        let stats = tree.verify(&engine).await.unwrap();
        assert_eq!((stats.leaves, stats.entries), (1, 0), "{stats:?}");
    });
    cluster.stop();
}
