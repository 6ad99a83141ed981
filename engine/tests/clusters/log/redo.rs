//! The pages of a dead node are redone from its log.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_engine::backup::Backup;
use selkie_engine::log::{
    FIRST_LSN, LogFiles, LogObjects, LogStore, LogTo, MergeError, Pages, ReadError, merge,
};
use selkie_engine::{Engine, EngineConfig, GAddr, Stamp};
use selkie_fabric::{Fabric, PeerId};
use selkie_pool::ComputeIndex;

use super::cluster::{Logged, logged, logged_with, owners, read, recovered, value, valves, write};
use super::valve::{Valve, Valves};
use crate::common::{GCL, engine_config, id, page};

#[test]
fn a_node_that_dies_leaves_what_was_durable_in_its_files() {
    let place = tempfile::tempdir().unwrap();
    let logs = LogFiles::new(place.path(), 1 << 16, 1 << 30).unwrap();
    let cluster = logged(2, LogTo::Store(Arc::new(logs.clone())), "plain");
    let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
    let addr = cluster.runtime.block_on(async {
        let addr = page(one).await;
        for value in 1..=400 {
            write(if value % 2 == 0 { one } else { two }, addr, value).await;
        }
        let lsn = one.shared(addr).await.unwrap().lsn();
        one.until_durable(lsn).await.unwrap();
        addr
    });
    cluster.fabric.kill(PeerId::compute(0));
    cluster.runtime.block_on(async {
        let mut pages = Pages::new(GCL);
        let owners = logs.owners().await.unwrap();
        assert_eq!(owners.iter().map(|owner| owner.node).collect::<Vec<_>>(), [0, 1]);
        merge(&logs, &owners, &mut pages, false).await.unwrap();
        assert_eq!(value(pages.line(addr).unwrap()), 400);
    });
}

#[test]
fn what_a_dead_node_has_changed_alone_is_made_again_from_its_log() {
    for coding in ["plain", "2+1"] {
        let (valves, cluster) = valves(2, coding);
        redone(&cluster, Some(&valves[1]), None);
        for memory_dies in [None, Some(1)].into_iter().take(if coding == "plain" { 1 } else { 2 }) {
            redone(&logged(2, LogTo::Memory, coding), None, memory_dies);
        }
    }
}

/// Node 1 dies; what it has changed is there, but for what comes when its valve is shut. A memory
/// node that has its log may die before.
fn redone(cluster: &Logged, valve: Option<&Valve>, memory_dies: Option<u16>) {
    let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut addrs = Vec::new();
        for _ in 0..40 {
            addrs.push(page(one).await);
        }
        if let Some(memory) = memory_dies {
            cluster.fabric.kill(PeerId::memory(memory));
            cluster.pool.declare_memory_dead(memory).await.unwrap();
        }
        // From hand to hand, and last at the one that dies.
        for value in 1..=30 {
            for (number, addr) in addrs.iter().enumerate() {
                write(if (number + value) % 3 == 0 { two } else { one }, *addr, value as u64).await;
            }
        }
        let last = page(two).await;
        write(two, last, 77).await;
        for (number, addr) in addrs.iter().enumerate() {
            write(two, *addr, 100 + number as u64).await;
        }
        let lsn = two.shared(addrs[39]).await.unwrap().lsn();
        two.until_durable(lsn).await.unwrap();
        // A change that is not durable was acknowledged to no caller.
        if let Some(valve) = valve {
            valve.shut.store(true, Ordering::SeqCst);
            write(two, last, 78).await;
        }
        cluster.fabric.kill(PeerId::compute(1));
        cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
        recovered(one, &cluster.pool).await;
        for (number, addr) in addrs.iter().enumerate() {
            assert_eq!(read(one, *addr).await, 100 + number as u64, "page {number}");
            write(one, *addr, 7).await;
        }
        assert_eq!(read(one, last).await, 77);
        assert!(cluster.pool.lost_pages().is_empty() && cluster.pool.dead().is_empty());
        one.close().await.unwrap();
    });
}

/// A panic while the log of a dead node is read ends no node: the log is read again.
#[test]
fn a_panic_while_a_log_is_read_is_tried_again() {
    let (valves, cluster) = valves(2, "plain");
    valves[1].reads_that_panic.store(3, Ordering::SeqCst);
    redone(&cluster, Some(&valves[1]), None);
    assert_eq!(valves[1].reads_that_panic.load(Ordering::SeqCst), 0);
}

/// Parts of it are read at the same time, by whom each page gets some of its changes.
#[test]
fn a_long_log_makes_the_pages_again_part_by_part() {
    let cluster = logged_with(2, LogTo::Memory, "2+1", 768 << 10);
    let [survivor, dies] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut addrs = Vec::new();
        for _ in 0..20 {
            addrs.push(page(dies).await);
        }
        let mut lsn = FIRST_LSN;
        let mut number = 0;
        // Of each page only the latest change is in the end of the log, and each word was changed
        // at its own time.
        while lsn < 180 << 10 {
            number += 1;
            let mut page = dies.exclusive(addrs[number % 20]).await.unwrap();
            let word = 8 * (1 + number / 20 % 30);
            page.bytes_mut(word..word + 8).copy_from_slice(&(number as u64).to_le_bytes());
            drop(page);
            lsn = dies.shared(addrs[number % 20]).await.unwrap().lsn();
        }
        dies.until_durable(lsn).await.unwrap();
        let mut wanted = Vec::new();
        for addr in &addrs {
            wanted.push(dies.shared(*addr).await.unwrap().to_vec());
        }
        cluster.fabric.kill(PeerId::compute(1));
        cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
        recovered(survivor, &cluster.pool).await;
        for (addr, wanted) in addrs.iter().zip(&wanted) {
            assert_eq!(survivor.shared(*addr).await.unwrap()[..], wanted[..]);
        }
        survivor.close().await.unwrap();
    });
}

/// The log goes around many times, for which the pages have to get home, again and again.
#[test]
fn what_is_written_home_stays_and_outlives_its_node() {
    for coding in ["plain", "2+1"] {
        let cluster = logged(2, LogTo::Memory, coding);
        let [survivor, dies] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let mut addrs = Vec::new();
            for _ in 0..20 {
                addrs.push(page(dies).await);
            }
            let mut kept = Vec::new();
            for number in 0..5 {
                kept.push(page(dies).await);
                write(dies, kept[number], 1000 + number as u64).await;
            }
            let before = dies.stats();
            let (mut lsn, mut value) = (FIRST_LSN, 0_u64);
            while lsn < 20 * (128 << 10) {
                value += 1;
                let addr = addrs[value as usize % 20];
                let mut page = dies.exclusive(addr).await.unwrap();
                let bytes = page.len();
                page.bytes_mut(16..bytes / 2).fill(value as u8);
                page.bytes_mut(16..24).copy_from_slice(&value.to_le_bytes());
                drop(page);
                lsn = dies.shared(addr).await.unwrap().lsn();
            }
            dies.until_durable(lsn).await.unwrap();
            let stats = dies.stats();
            assert!(stats.write_backs - before.write_backs > 100, "{coding}: {stats:?}");
            assert_eq!(stats.evictions, before.evictions, "{coding}");
            assert_eq!(stats.upgrades, before.upgrades, "{coding}");
            cluster.fabric.kill(PeerId::compute(1));
            cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
            recovered(survivor, &cluster.pool).await;
            for last in value - 19..=value {
                let addr = addrs[last as usize % 20];
                assert_eq!(read(survivor, addr).await, last, "{coding}");
                let page = survivor.shared(addr).await.unwrap();
                assert!(page[24..page.len() / 2].iter().all(|byte| *byte == last as u8));
            }
            // These are home since long, and in the log no more.
            for (number, addr) in kept.iter().enumerate() {
                assert_eq!(read(survivor, *addr).await, 1000 + number as u64, "{coding}");
                write(survivor, *addr, 1).await;
            }
            assert!(cluster.pool.lost_pages().is_empty());
            survivor.close().await.unwrap();
        });
    }
}

/// A node is taken for dead while it writes its log, and has written it when that was read by
/// others, which make the pages again, and by one that makes a backup.
#[test]
fn what_is_added_too_late_is_no_part_of_a_log() {
    let place = tempfile::tempdir().unwrap();
    let (valves, cluster) = valves(3, "2+1");
    let [late, other, maker] = [0, 1, 2].map(|node| cluster.engines[node].clone());
    let to = LogObjects::at(place.path().to_str().unwrap(), 0).unwrap();
    let (has_begun, may_end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let env = cluster.runtime.env();
    cluster.runtime.block_on(async {
        let until = async |what: &str, is_so: &(dyn Fn() -> bool + Sync)| {
            let started = env.now();
            while !is_so() {
                assert!(env.now() - started < Duration::from_secs(30), "{what}");
                env.sleep(Duration::from_millis(1)).await;
            }
        };
        let addr = page(&late).await;
        write(&late, addr, 1).await;
        let watch = {
            let (has_begun, may_end) = (Arc::clone(&has_begun), Arc::clone(&may_end));
            move |_: u64, _: u64| {
                has_begun.store(true, Ordering::SeqCst);
                let started = std::time::Instant::now();
                while !may_end.load(Ordering::SeqCst) {
                    assert!(started.elapsed() < Duration::from_secs(60), "it may not end");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        let backup = {
            let (maker, to) = (maker.clone(), to.clone());
            let make = async move { maker.backup(&to, &watch).await.map(|_| ()).unwrap() };
            env.spawn("backup", make)
        };
        until("the image was read", &|| has_begun.load(Ordering::SeqCst)).await;
        valves[0].shut.store(true, Ordering::SeqCst);
        valves[0].opens_late.store(true, Ordering::SeqCst);
        write(&late, addr, 2).await;
        let lsn = late.shared(addr).await.unwrap().lsn();
        drop(env.spawn("commit", async move { drop(late.until_durable(lsn).await) }));
        env.sleep(Duration::from_millis(20)).await;
        let durable = valves[0].end();
        cluster.fabric.kill(PeerId::compute(0));
        cluster.pool.declare_dead(ComputeIndex::new(0)).await.unwrap();
        let pool = &cluster.pool;
        until("recovery", &|| pool.lost().is_empty() && pool.members().len() == 2).await;
        assert_eq!(*valves[0].ended.lock(), Some(durable), "the pages were made of that");
        assert!(valves[0].end() > durable, "it was added");
        // The backup reads on meanwhile.
        env.sleep(Duration::from_millis(200)).await;
        assert_eq!(read(&other, addr).await, 1);
        write(&other, addr, 3).await;
        let lsn = other.shared(addr).await.unwrap().lsn();
        other.until_durable(lsn).await.unwrap();
        may_end.store(true, Ordering::SeqCst);
        backup.join().await.unwrap();
        let value = |line: &[u8]| u64::from_le_bytes(line[24..32].try_into().unwrap());
        assert_eq!(value(&Backup::open(&to).await.unwrap().lines()[&addr]), 3);
        let mut pages = Pages::new(GCL);
        let logs = Valves(valves.clone());
        merge(&logs, &owners(pool, 3), &mut pages, false).await.unwrap();
        assert_eq!(value(pages.line(addr).unwrap()), 3);
        // What was to be there before the end is missed.
        valves[0].bytes.lock().truncate(durable as usize - FIRST_LSN as usize - 8);
        let short = merge(&logs, &owners(pool, 3), &mut Pages::new(GCL), false).await;
        assert!(matches!(short, Err(MergeError::Read(ReadError::Damaged { .. }))), "{short:?}");
    });
}

/// The words that said what the dead node had are gone as well: its log says it all the same.
#[test]
fn what_a_dead_node_has_changed_is_made_again_also_if_nobody_knows_what_it_had() {
    let (_, cluster) = valves(3, "2+1");
    let [one, two, three] = &cluster.engines[..] else { panic!("three nodes") };
    let env = cluster.runtime.env();
    cluster.runtime.block_on(async {
        let mut addrs = Vec::new();
        for _ in 0..60 {
            addrs.push(page(one).await);
        }
        for (number, addr) in addrs.iter().enumerate() {
            write(if number % 2 == 0 { two } else { three }, *addr, number as u64 + 1).await;
        }
        let lsn = three.shared(addrs[59]).await.unwrap().lsn();
        three.until_durable(lsn).await.unwrap();
        cluster.fabric.kill(PeerId::memory(0));
        cluster.fabric.kill(PeerId::compute(2));
        cluster.pool.declare_memory_dead(0).await.unwrap();
        cluster.pool.declare_dead(ComputeIndex::new(2)).await.unwrap();
        let started = env.now();
        while !cluster.pool.lost().is_empty() || !cluster.pool.rebuilds().is_empty() {
            assert!(env.now() - started < Duration::from_secs(30), "{:?}", cluster.pool.state());
            env.sleep(Duration::from_millis(1)).await;
        }
        for (number, addr) in addrs.iter().enumerate() {
            assert_eq!(read(one, *addr).await, number as u64 + 1, "page {number}");
        }
        assert_eq!((cluster.pool.lost_pages(), cluster.pool.dead()), (vec![], vec![]));
        for engine in [one, two] {
            engine.close().await.unwrap();
        }
    });
}

/// Also where logs are in memory, in which the fresh node has to begin one of its own.
#[test]
fn a_fresh_node_recovers_alone_from_all_that_died() {
    let cluster = logged(2, LogTo::Memory, "plain");
    let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let addr = page(one).await;
        for value in 1..=30 {
            write(if value % 2 == 0 { one } else { two }, addr, value).await;
        }
        let lsn = one.shared(addr).await.unwrap().lsn();
        one.until_durable(lsn).await.unwrap();
        for node in 0..2 {
            cluster.fabric.kill(PeerId::compute(node));
            cluster.pool.declare_dead(ComputeIndex::new(node)).await.unwrap();
        }
        let fabric: Arc<dyn Fabric> = Arc::clone(&cluster.fabric) as Arc<dyn Fabric>;
        let config = EngineConfig { log: Some(LogTo::Memory), ..engine_config() };
        let env = cluster.runtime.env();
        let fresh = Engine::start(&cluster.pool, &fabric, &env, id(2), config).await.unwrap();
        assert_eq!(read(&fresh, addr).await, 30);
        recovered(&fresh, &cluster.pool).await;
        assert!(cluster.pool.lost_pages().is_empty() && cluster.pool.dead().is_empty());
        fresh.close().await.unwrap();
    });
}

#[test]
fn pages_that_were_put_back_outlive_who_put_them_back() {
    for coding in ["plain", "2+1"] {
        let (_, cluster) = valves(2, coding);
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let mut lines = BTreeMap::new();
            for number in 2..20_u64 {
                let mut line = vec![number as u8; GCL];
                line[..8].copy_from_slice(&(100 + number).to_le_bytes());
                lines.insert(GAddr::from_u64(number * GCL as u64), line.into_boxed_slice());
            }
            one.restore(&lines, |_| Stamp::default()).await.unwrap();
            let addr = GAddr::from_u64(7 * GCL as u64);
            write(one, addr, 77).await;
            let lsn = one.shared(addr).await.unwrap().lsn();
            one.until_durable(lsn).await.unwrap();
            cluster.fabric.kill(PeerId::compute(0));
            cluster.pool.declare_dead(ComputeIndex::new(0)).await.unwrap();
            recovered(two, &cluster.pool).await;
            for (found, line) in &lines {
                let page = two.shared(*found).await.unwrap();
                let psn = u64::from_le_bytes(line[..8].try_into().unwrap());
                assert_eq!(page.psn(), psn + u64::from(*found == addr));
                assert_eq!(page[24..], line[32..]);
            }
            assert_eq!(read(two, addr).await, 77);
            assert!(cluster.pool.lost_pages().is_empty());
            two.close().await.unwrap();
        });
    }
}
