//! Several nodes, several tasks each, on one tree with caches far smaller than it.
//!
//! Every key has one task that writes it, so each task knows the value of its own keys at any time,
//! whatever the others do concurrently; together the tasks know the final tree.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use selkie_btree::{Direction, Tree, TreeError};
use selkie_engine::{Engine, EngineError};
use selkie_fabric::env::yield_now;

use crate::common::{ALL, Cluster, Dice, FRAMES, Model, assert_same, insist, on_every_node, rows};

fn name(number: usize) -> Vec<u8> {
    let mut key = format!("row/{number:05}").into_bytes();
    key.resize(key.len() + number % 13, b'x');
    key
}

#[test]
fn random_operations_of_many_tasks_match_their_models() {
    const TASKS: usize = 9;
    let cluster = Cluster::start(3, 512, FRAMES);
    let engine = cluster.engines[0].clone();
    // Two rows a leaf: a tree of many pages from few rows.
    let tree = cluster.runtime.block_on(Tree::create(&engine, 2)).unwrap();
    let whole = Arc::new(Mutex::new(Model::new()));
    on_every_node(&cluster, TASKS / 3, |engine, task| {
        let whole = whole.clone();
        async move {
            let own = random_work(tree, &engine, task, TASKS).await;
            whole.lock().unwrap().extend(own);
        }
    });
    let whole = std::mem::take(&mut *whole.lock().unwrap());
    for engine in &cluster.engines {
        let stats = cluster.runtime.block_on(assert_same(tree, engine, &whole));
        assert!(stats.leaves > 3 * FRAMES, "far larger than a cache: {stats:?}");
    }
    cluster.stop();
}

async fn random_work(tree: Tree, engine: &Engine, task: usize, tasks: usize) -> Model {
    let mut own = Model::new();
    let mut dice = Dice(task as u64 + 100);
    for number in 0..600 {
        let (key, value) = (name(number * tasks + task), vec![task as u8; number % 60]);
        insist!(tree.insert(engine, &key, &value));
        own.insert(key, value);
    }
    for step in 0..1_000_usize {
        let key = name(dice.below(800) * tasks + task);
        let has = own.contains_key(&key);
        let value = vec![step as u8; dice.below(60)];
        match dice.below(100) {
            0..30 => {
                let found = insist!(tree.get(engine, &key));
                assert_eq!(found.as_ref(), own.get(&key));
            }
            30..60 => {
                insist!(tree.upsert(engine, &key, &value));
                own.insert(key, value);
            }
            60..75 if !has => {
                insist!(tree.insert(engine, &key, &value));
                own.insert(key, value);
            }
            60..75 => {
                let refused = loop {
                    match tree.insert(engine, &key, b"").await {
                        Err(error) if error.is_retryable() => {}
                        result => break result,
                    }
                };
                assert!(matches!(refused, Err(TreeError::Duplicate)));
            }
            75..99 => {
                assert_eq!(insist!(tree.delete(engine, &key)), has);
                own.remove(&key);
            }
            _ => compare_own(tree, engine, &own, task, tasks, step).await,
        }
        yield_now().await;
    }
    own
}

/// A scan among concurrent writers: strictly ordered, and the task's own rows exactly.
async fn compare_own(
    tree: Tree,
    engine: &Engine,
    own: &Model,
    task: usize,
    tasks: usize,
    step: usize,
) {
    let direction = [Direction::Forward, Direction::Reverse][step % 2];
    let mut met = Model::new();
    let mut last: Option<Vec<u8>> = None;
    let collect = |key: &[u8], value: &[u8]| {
        if let Some(last) = &last {
            let ascending = last.as_slice() < key;
            assert!(ascending == (direction == Direction::Forward) && last != key);
        }
        last = Some(key.to_vec());
        let number: usize = std::str::from_utf8(&key[4..9]).unwrap().parse().unwrap();
        if number % tasks == task {
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
fn concurrent_ascending_inserts_lose_nothing() {
    let cluster = Cluster::start(3, 512, FRAMES);
    let engine = cluster.engines[0].clone();
    let tree = cluster.runtime.block_on(Tree::create(&engine, u16::MAX)).unwrap();
    let next = Arc::new(AtomicU64::new(0));
    const ROWS: u64 = 6_000;
    on_every_node(&cluster, 2, |engine, _| {
        let next = next.clone();
        async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= ROWS {
                    return;
                }
                let key = number.to_be_bytes();
                insist!(tree.insert(&engine, &key, &key));
                assert_eq!(insist!(tree.get(&engine, &key)).unwrap(), key);
            }
        }
    });
    let model = (0..ROWS).map(|n| (n.to_be_bytes().to_vec(), n.to_be_bytes().to_vec())).collect();
    let engine = &cluster.engines[2];
    let stats = cluster.runtime.block_on(assert_same(tree, engine, &model));
    assert!(stats.height >= 3, "{stats:?}");
    cluster.stop();
}

#[test]
fn emptied_leaves_are_reclaimed_under_concurrent_scans() {
    const BLOCK: usize = 150;
    let cluster = Cluster::start(3, 512, FRAMES);
    let engine = cluster.engines[0].clone();
    let tree = cluster.runtime.block_on(Tree::create(&engine, u16::MAX)).unwrap();
    // Rows that stay: between the blocks that come and go.
    let pillars: Model = (0..=6).map(|n| (name(n * 1_000), b"pillar".to_vec())).collect();
    cluster.runtime.block_on(async {
        for (key, value) in &pillars {
            tree.insert(&engine, key, value).await.unwrap();
        }
    });
    let writing = Arc::new(AtomicU64::new(6));
    on_every_node(&cluster, 3, |engine, task| {
        let (writing, pillars) = (writing.clone(), pillars.clone());
        async move {
            // One scanner a node.
            if task % 3 == 2 {
                while writing.load(Ordering::Relaxed) > 0 {
                    for direction in [Direction::Forward, Direction::Reverse] {
                        let mut met = rows(tree, &engine, ALL, direction).await;
                        let ascending = direction == Direction::Forward;
                        assert!(met.windows(2).all(|w| (w[0].0 < w[1].0) == ascending));
                        met.retain(|(key, _)| pillars.contains_key(key));
                        assert_eq!(met.len(), pillars.len(), "every pillar once");
                        yield_now().await;
                    }
                }
                return;
            }
            let base = (task - task / 3) * 1_000 + 1;
            for round in 0..5 {
                for number in base..base + BLOCK {
                    insist!(tree.insert(&engine, &name(number), &[round; 30]));
                }
                for number in base..base + BLOCK {
                    // From the left, from the right, and from both ends to the middle.
                    let number = match round % 3 {
                        0 => number,
                        1 => 2 * base + BLOCK - 1 - number,
                        _ if (number - base) % 2 == 0 => base + (number - base) / 2,
                        _ => base + BLOCK - 1 - (number - base) / 2,
                    };
                    assert!(insist!(tree.delete(&engine, &name(number))));
                }
            }
            writing.fetch_sub(1, Ordering::Relaxed);
        }
    });
    let engine = &cluster.engines[1];
    cluster.runtime.block_on(async {
        assert_same(tree, engine, &pillars).await;
        // Empty leaves stay where reclaim met another latch. Without concurrency none stays.
        for base in (0..6).map(|block| block * 1_000 + 1) {
            for number in base..base + BLOCK {
                tree.insert(engine, &name(number), &[9; 30]).await.unwrap();
            }
            for number in base..base + BLOCK {
                assert!(tree.delete(engine, &name(number)).await.unwrap());
            }
        }
        let stats = assert_same(tree, engine, &pillars).await;
        assert!(stats.leaves <= pillars.len(), "{stats:?}");
    });
    cluster.stop();
}
