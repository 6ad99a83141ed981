//! The merged logs of all nodes give the pages, on their own and after an archive.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::{LogFiles, LogOwner, LogStore, LogTo, Pages, merge};
use selkie_engine::{Engine, GAddr, Stamp, change_together};

use super::cluster::{logged, owners, value, valves, write};
use super::valve::{Valve, Valves};
use crate::common::{GCL, page};

/// Several nodes change pages of each other, some of them together; whatever was durable at some
/// moment makes pages that were there together.
#[test]
fn the_logs_make_the_pages_again() {
    let (valves, cluster) = valves(3, "2+1");
    let env = cluster.runtime.env();
    let (addrs, now, all) = cluster.runtime.block_on(async {
        let mut addrs = Vec::new();
        for number in 0..12 {
            addrs.push(page(&cluster.engines[number % 3]).await);
        }
        // Two pages always have the same value.
        let addrs = Arc::new(addrs);
        let tasks: Vec<_> = cluster
            .engines
            .iter()
            .cloned()
            .enumerate()
            .map(|(node, engine)| {
                let addrs = Arc::clone(&addrs);
                env.spawn("changes", async move {
                    for round in 0..300 {
                        let pair = (round * 7 + node) % 6 * 2;
                        let mut left = engine.exclusive(addrs[pair]).await.unwrap();
                        let mut right = engine.exclusive(addrs[pair + 1]).await.unwrap();
                        let value = u64::from_le_bytes(left[16..24].try_into().unwrap()) + 1;
                        for page in [&mut left, &mut right] {
                            page.bytes_mut(16..24).copy_from_slice(&value.to_le_bytes());
                            let at = 24 + 8 * (value as usize % 50);
                            page.bytes_mut(at..at + 8).copy_from_slice(&value.to_le_bytes());
                        }
                        change_together([&mut left, &mut right]);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join().await.unwrap();
        }
        let mut now = Vec::new();
        for addr in &*addrs {
            let page = cluster.engines[0].shared(*addr).await.unwrap();
            now.push((page.psn(), page.to_vec()));
        }
        for engine in &cluster.engines {
            engine.close().await.unwrap();
        }
        let owners = owners(&cluster.pool, 3);
        let mut pages = Pages::new(GCL);
        let read = merge(&Valves(valves.clone()), &owners, &mut pages, false).await.unwrap();
        assert!(
            read.iter().all(|log| log.damage.is_none() && log.left_out == 0 && log.applied > 0)
        );
        let all = pages.into_lines();
        let mut sum = 0;
        for (number, (addr, (psn, page))) in addrs.iter().zip(&now).enumerate() {
            let line = &all[addr];
            assert_eq!(&line[..8], psn.to_le_bytes());
            assert_eq!(&line[8..], page);
            sum += if number % 2 == 0 { value(line) } else { 0 };
        }
        assert_eq!(sum, 900);
        cut_short(&valves, &owners, &addrs).await;
        (addrs, now, all)
    });
    drop(cluster.fabric);
    for coding in ["plain", "2+1", "replicate=2"] {
        let (_, again) = self::valves(1, coding);
        again.runtime.block_on(restored(&again.engines[0], &addrs, &now, &all));
    }
}

/// Cut off anywhere, a log loses changes of both pages of a pair or of none, and others what builds
/// upon them.
async fn cut_short(valves: &[Arc<Valve>], owners: &[LogOwner], addrs: &[GAddr]) {
    let mut refused = 0;
    for cut in 1..20 {
        let torn: Vec<Arc<Valve>> = valves
            .iter()
            .enumerate()
            .map(|(node, valve)| {
                let bytes = valve.bytes.lock();
                // Of one log less is left than of the others.
                let length = bytes.len() * (cut - usize::from(node == cut % 3)) / 20;
                Arc::new(Valve { bytes: Mutex::new(bytes[..length].to_vec()), ..Valve::default() })
            })
            .collect();
        let torn = Valves(torn);
        refused += usize::from(merge(&torn, owners, &mut Pages::new(GCL), false).await.is_err());
        let mut pages = Pages::new(GCL);
        let read = merge(&torn, owners, &mut pages, true).await.unwrap();
        assert!(read.iter().map(|log| log.applied).sum::<u64>() > 0 || cut == 1);
        for pair in addrs.chunks(2) {
            let values: Vec<_> = pair.iter().map(|addr| pages.line(*addr).map(value)).collect();
            assert_eq!(values[0].unwrap_or(0), values[1].unwrap_or(0), "cut at {cut}/20");
        }
    }
    assert!(refused > 10, "{refused} of 19 logs that lack records were refused");
}

/// The pages are what they were, and whatever is allocated is none of them.
async fn restored(
    engine: &Engine,
    addrs: &[GAddr],
    was: &[(u64, Vec<u8>)],
    lines: &BTreeMap<GAddr, Box<[u8]>>,
) {
    engine.restore(lines, |_| Stamp::default()).await.unwrap();
    for _ in 0..300 {
        let page = engine.allocate().await.unwrap();
        assert!(!lines.contains_key(&page.addr()) && page.iter().all(|byte| *byte == 0));
    }
    for (addr, (psn, page)) in addrs.iter().zip(was) {
        let found = engine.shared(*addr).await.unwrap();
        assert_eq!((found.psn(), &*found), (*psn, &**page));
    }
    let again = engine.restore(lines, |_| Stamp::default()).await.unwrap_err().to_string();
    assert!(again.contains("extents in use"), "{again}");
}

/// Cut off again and again, the logs of nodes that live and of one that has left make all pages.
#[test]
fn what_is_archived_is_made_short_and_makes_the_pages_of_another_pool() {
    let place = tempfile::tempdir().unwrap();
    let files = LogFiles::new(place.path(), 1 << 16, 4 << 16).unwrap();
    let cluster = logged(3, LogTo::Store(Arc::new(files.clone())), "plain");
    let [one, two, three] = &cluster.engines[..] else { panic!("three nodes") };
    let env = cluster.runtime.env();
    let owners = owners(&cluster.pool, 3);
    let (addrs, was) = cluster.runtime.block_on(async {
        cluster.pool.set_label("is", None, Some("this")).await.unwrap();
        let mut addrs = Vec::new();
        for _ in 0..40 {
            addrs.push(page(three).await);
        }
        write(three, addrs[0], 7).await;
        three.close().await.unwrap();
        let (mut round, mut most, mut forgotten) = (0, 0, 0);
        // A page that is changed no more, and others.
        while forgotten < 3 {
            round += 1;
            assert!(round < 200_000, "{most} bytes are archived, forgotten {forgotten} times");
            for (node, engine) in [one, two].into_iter().enumerate() {
                let addr = addrs[1 + (round * 7 + node) % 39];
                let mut page = engine.exclusive(addr).await.unwrap();
                let bytes = page.len();
                page.bytes_mut(0..bytes).fill(round as u8);
            }
            if round.is_multiple_of(50) {
                let size =
                    files.archived(owners[0]).await.unwrap().iter().map(|(_, own)| own).sum();
                forgotten += u64::from(size < most);
                most = size;
            }
        }
        // The one that has left, too.
        let started = env.now();
        while !files.pieces(owners[2]).await.unwrap().is_empty() {
            assert!(env.now() - started < Duration::from_secs(20));
            env.sleep(Duration::from_millis(10)).await;
            for addr in &addrs[1..] {
                write(one, *addr, 1).await;
            }
        }
        let mut was = Vec::new();
        for addr in &addrs {
            let page = one.shared(*addr).await.unwrap();
            was.push((page.psn(), page.to_vec()));
        }
        one.close().await.unwrap();
        two.close().await.unwrap();
        // What they were about to forget.
        env.sleep(Duration::from_millis(100)).await;
        (addrs, was)
    });
    let all = LogFiles::existing(place.path());
    cluster.runtime.block_on(async {
        let labels = all.labels(cluster.pool.state().id).await.unwrap();
        assert_eq!(labels.into_iter().collect::<Vec<_>>(), [("is".to_owned(), "this".to_owned())]);
        let owners = all.owners().await.unwrap();
        assert_eq!(owners.len(), 2);
        let mut pages = Pages::new(GCL);
        merge(&all, &owners, &mut pages, false).await.unwrap();
        for (addr, (psn, was)) in addrs.iter().zip(&was) {
            let Some(line) = pages.line(*addr) else {
                panic!("{addr} of number {psn} is in no log")
            };
            assert_eq!((line[..8].to_vec(), &line[8..]), (psn.to_le_bytes().to_vec(), &was[..]));
        }
    });
}
