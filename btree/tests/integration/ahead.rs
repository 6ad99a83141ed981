//! Leaves that are found in cached inner pages, without a wait.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use selkie_btree::{Direction, LeafView, RestOfScan, Tree};
use selkie_engine::{Engine, GAddr};

use crate::common::{Cluster, FRAMES};

const ROWS: u16 = 3_000;

async fn filled(engine: &Engine) -> Tree {
    let tree = Tree::create(engine, 4).await.unwrap();
    for row in 0..ROWS {
        tree.insert(engine, &row.to_be_bytes(), &[7; 8]).await.unwrap();
    }
    tree
}

/// All leaves, with their low and high fences, in order.
async fn leaves(tree: Tree, engine: &Engine) -> Vec<(GAddr, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let mut addr = tree.locate(engine, b"").await.unwrap();
    while !addr.is_null() {
        let page = engine.shared(addr).await.unwrap();
        let leaf = LeafView::new(&page).unwrap();
        all.push((addr, leaf.low_fence().to_vec(), leaf.high_fence().unwrap_or(&[]).to_vec()));
        addr = leaf.right();
    }
    all
}

fn rest<'a>(from: &'a [u8], until: Option<&'a [u8]>, direction: Direction) -> RestOfScan<'a> {
    RestOfScan { from, until, direction }
}

#[test]
fn leaves_ahead_are_those_that_a_scan_comes_to() {
    let cluster = Cluster::start(1, 512, FRAMES);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let tree = filled(engine).await;
        let all = leaves(tree, engine).await;
        assert!(tree.verify(engine).await.unwrap().height > 2, "parents with neighbours");
        let _pin = engine.pin();
        let mut found = Vec::new();
        for at in 0..all.len() - 1 {
            for most in [1, 5, 40] {
                let (from, rest_of) = (&all[at].2, Direction::Forward);
                assert!(!tree.leaves_ahead(engine, rest(from, None, rest_of), most, &mut found));
                let expected: Vec<_> = all[at + 1..].iter().take(most).map(|leaf| leaf.0).collect();
                assert_eq!(found, expected, "from {from:?}");
                let (from, rest_of) = (&all[at + 1].1, Direction::Reverse);
                tree.leaves_ahead(engine, rest(from, Some(&[]), rest_of), most, &mut found);
                let expected: Vec<_> =
                    all[..=at].iter().rev().take(most).map(|leaf| leaf.0).collect();
                assert_eq!(found, expected, "before {from:?}");
            }
            // Up to a bound: forwards what begins before it, in reverse what ends behind it.
            let (from, until) = (&all[at].2, &all[(at + 7).min(all.len() - 1)].1);
            tree.leaves_ahead(engine, rest(from, Some(until), Direction::Forward), 40, &mut found);
            assert_eq!(found.len(), 6.min(all.len() - 2 - at).max(1), "{at}");
            let (from, until) = (&all[at + 1].1, &all[(at + 1).saturating_sub(7)].2);
            tree.leaves_ahead(engine, rest(from, Some(until), Direction::Reverse), 40, &mut found);
            assert_eq!(found.len(), 6.min(at).max(1), "{at}");
        }
    });
    cluster.stop();
}

#[test]
fn keys_are_located_where_inner_pages_are_cached() {
    let cluster = Cluster::start(2, 512, FRAMES);
    let [engine, cold] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let tree = filled(engine).await;
        let mut keys: Vec<_> = (0..ROWS).step_by(7).map(u16::to_be_bytes).collect();
        keys.extend([[0; 2], [0xff; 2], 5_u16.to_be_bytes()]);
        let mut expected = Vec::new();
        let _pin = (engine.pin(), cold.pin());
        for (at, key) in keys.iter().enumerate() {
            expected.push((at, tree.locate(engine, key).await.unwrap()));
        }
        let mut found = Vec::new();
        tree.locate_cached(engine, keys.iter().map(|key| &key[..]), |at, leaf| {
            found.push((at, leaf))
        });
        assert_eq!(found, expected);
        // A node that has no inner page finds none, and fetches the first that it lacks.
        let located = |engine: &Engine| {
            let mut found = 0;
            tree.locate_cached(engine, [&keys[9][..]], |_, leaf| {
                found += 1;
                assert_eq!(leaf, expected[9].1);
            });
            found
        };
        assert_eq!((located(cold), cold.stats().misses), (0, 0));
        let mut asked = 1;
        while located(cold) == 0 {
            asked += 1;
            assert!(asked < 1_000, "it never comes");
            cold.env().sleep(std::time::Duration::from_micros(100)).await;
        }
        let stats = cold.stats();
        assert_eq!((stats.misses, stats.prefetches), (0, 3), "one for each inner level");
    });
    cluster.stop();
}
