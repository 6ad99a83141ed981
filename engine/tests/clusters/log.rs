//! Engines with logs: what leaves a node is durable before, and the logs make the pages again.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::backup::Backup;
use selkie_engine::log::{
    FIRST_LSN, LogError, LogFiles, LogObjects, LogOwner, LogStore, LogTo, Lsn, MergeError, Pages,
    Piece, ReadError, Sink, Written, merge,
};
use selkie_engine::{Engine, EngineConfig, EngineError, GAddr, change_together};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{BoxFuture, Buf, Fabric, PeerId, RemoteAddr, Verb};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{ComputeIndex, Pool, PoolConfig};

use crate::common::pages::coded;
use crate::common::{GCL, engine_config, id, page};

/// A log in memory, which makes nothing durable while it is shut, and fails while it is broken.
struct Valve {
    bytes: Mutex<Vec<u8>>,
    /// From where it would be kept.
    start: AtomicU64,
    capacity: AtomicU64,
    shut: AtomicBool,
    broken: AtomicBool,
    appends: AtomicU64,
    /// Where others said that it ends.
    ended: Mutex<Option<Lsn>>,
    /// Who waits adds to it when that is said.
    opens_late: AtomicBool,
}

impl Default for Valve {
    fn default() -> Self {
        Self {
            bytes: Mutex::default(),
            start: AtomicU64::new(FIRST_LSN),
            capacity: AtomicU64::new(u64::MAX),
            shut: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            appends: AtomicU64::new(0),
            ended: Mutex::default(),
            opens_late: AtomicBool::new(false),
        }
    }
}

impl Valve {
    fn end(&self) -> Lsn {
        FIRST_LSN + self.bytes.lock().len() as u64
    }
}

/// It is that of the test.
struct Tap(Arc<Valve>);

impl Sink for Tap {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let valve = &self.0;
            while valve.shut.load(Ordering::SeqCst) {
                selkie_fabric::env::yield_now().await;
            }
            if valve.broken.load(Ordering::SeqCst) {
                let source = Arc::new(std::io::ErrorKind::StorageFull.into());
                let error = LogError { what: "write", place: "valve".into(), source };
                return Written { bytes, result: Err(error) };
            }
            let mut all = valve.bytes.lock();
            assert_eq!(at, FIRST_LSN + all.len() as u64, "one after the other");
            all.extend_from_slice(&bytes);
            valve.appends.fetch_add(1, Ordering::SeqCst);
            Written { bytes, result: Ok(()) }
        })
    }

    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            self.0.start.store(lsn, Ordering::SeqCst);
            Ok(lsn)
        })
    }

    fn capacity(&self) -> u64 {
        self.0.capacity.load(Ordering::SeqCst)
    }
}

/// A valve for each node.
struct Valves(Vec<Arc<Valve>>);

impl std::fmt::Debug for Valves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} valves", self.0.len())
    }
}

impl LogStore for Valves {
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        let valve = Arc::clone(&self.0[usize::from(owner.node)]);
        Box::pin(async { Ok(Arc::new(Tap(valve)) as Arc<dyn Sink>) })
    }

    fn pieces(&self, _: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async { Ok(vec![FIRST_LSN]) })
    }

    fn piece(&self, owner: LogOwner, _: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        let bytes = self.0[usize::from(owner.node)].bytes.lock().clone();
        Box::pin(async { Ok(Piece { place: "valve".into(), offset: 0, bytes }) })
    }

    fn end_at(&self, owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        let valve = &self.0[usize::from(owner.node)];
        let end = *valve.ended.lock().get_or_insert(end);
        Box::pin(async move {
            if valve.opens_late.swap(false, Ordering::SeqCst) {
                let appends = valve.appends.load(Ordering::SeqCst);
                valve.shut.store(false, Ordering::SeqCst);
                let started = std::time::Instant::now();
                while valve.appends.load(Ordering::SeqCst) == appends {
                    assert!(started.elapsed() < Duration::from_secs(10), "nobody waits");
                    selkie_fabric::env::yield_now().await;
                }
            }
            Ok(end)
        })
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        let ended = *self.0[usize::from(owner.node)].ended.lock();
        Box::pin(async move { Ok(ended) })
    }

    fn remove(&self, _: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Engines, each with a log, on a pool of that coding.
struct Logged {
    runtime: selkie_fabric::RealRuntime,
    engines: Vec<Engine>,
    fabric: Arc<MemFabric>,
    pool: Arc<Pool>,
    _memory: Arc<EmbeddedPool>,
}

fn logged(nodes: usize, log: LogTo, coding: &str) -> Logged {
    // Room for some dozens of pages.
    logged_with(nodes, log, coding, 128 << 10)
}

fn logged_with(nodes: usize, log: LogTo, coding: &str, log_bytes: u64) -> Logged {
    let runtime = selkie_fabric::RealRuntime::new(2).unwrap();
    let mem = MemFabric::new();
    let fabric: Arc<dyn Fabric> = Arc::clone(&mem) as Arc<dyn Fabric>;
    let config = PoolConfig { log_bytes, ..coded(4, coding) };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    let pool = Arc::clone(memory.pool());
    let env = runtime.env();
    let engines = (0..nodes).map(|node| {
        let config = EngineConfig { log: Some(log.clone()), ..engine_config() };
        runtime.block_on(Engine::start(&pool, &fabric, &env, id(node), config)).unwrap()
    });
    let engines = engines.collect();
    Logged { runtime, engines, fabric: mem, pool, _memory: memory }
}

fn valves(count: usize, coding: &str) -> (Vec<Arc<Valve>>, Logged) {
    let valves: Vec<Arc<Valve>> = (0..count).map(|_| Arc::default()).collect();
    let store = Valves(valves.clone());
    (valves, logged(count, LogTo::Store(Arc::new(store)), coding))
}

async fn write(engine: &Engine, addr: GAddr, value: u64) {
    let mut page = engine.exclusive(addr).await.unwrap();
    page.bytes_mut(16..24).copy_from_slice(&value.to_le_bytes());
}

async fn read(engine: &Engine, addr: GAddr) -> u64 {
    let page = engine.shared(addr).await.unwrap();
    u64::from_le_bytes(page[16..24].try_into().unwrap())
}

#[test]
fn nothing_leaves_a_node_before_it_is_durable() {
    for coding in ["plain", "2+1"] {
        let (valves, cluster) = valves(2, coding);
        let env = cluster.runtime.env();
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let addr = page(one).await;
            for (round, exclusive) in [(1, false), (2, true), (3, false)] {
                valves[0].shut.store(true, Ordering::SeqCst);
                write(one, addr, round).await;
                let lsn = one.shared(addr).await.unwrap().lsn();
                assert!(lsn > valves[0].end(), "it waits");
                assert_eq!(read(one, addr).await, round, "who is here sees it");
                // Neither home nor to another.
                let there = {
                    let two = two.clone();
                    let got = Arc::new(AtomicU64::new(0));
                    let seen = Arc::clone(&got);
                    let task = env.spawn("asks", async move {
                        let value = if exclusive {
                            let page = two.exclusive(addr).await.unwrap();
                            u64::from_le_bytes(page[16..24].try_into().unwrap())
                        } else {
                            read(&two, addr).await
                        };
                        seen.store(value, Ordering::SeqCst);
                    });
                    (task, got)
                };
                env.sleep(Duration::from_millis(50)).await;
                assert_eq!(there.1.load(Ordering::SeqCst), 0, "{coding}: it was granted");
                valves[0].shut.store(false, Ordering::SeqCst);
                there.0.join().await.unwrap();
                assert_eq!(there.1.load(Ordering::SeqCst), round);
                assert!(valves[0].end() >= lsn);
                one.until_durable(lsn).await.unwrap();
            }
            for engine in &cluster.engines {
                engine.close().await.unwrap();
            }
        });
    }
}

#[test]
fn many_changes_become_durable_at_once() {
    let (valves, cluster) = valves(1, "plain");
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let addr = page(engine).await;
        valves[0].shut.store(true, Ordering::SeqCst);
        for value in 0..200 {
            write(engine, addr, value).await;
        }
        let before = valves[0].appends.load(Ordering::SeqCst);
        valves[0].shut.store(false, Ordering::SeqCst);
        let lsn = engine.shared(addr).await.unwrap().lsn();
        engine.until_durable(lsn).await.unwrap();
        assert!(valves[0].appends.load(Ordering::SeqCst) - before <= 3);
        engine.close().await.unwrap();
    });
}

#[test]
fn while_the_log_cannot_be_written_nothing_is_changed_and_then_it_goes_on() {
    let (valves, cluster) = valves(2, "plain");
    let env = cluster.runtime.env();
    let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let addr = page(one).await;
        write(one, addr, 1).await;
        assert_eq!(read(two, addr).await, 1);
        valves[0].broken.store(true, Ordering::SeqCst);
        write(one, addr, 2).await;
        let lsn = one.shared(addr).await.unwrap().lsn();
        let error = one.until_durable(lsn).await.unwrap_err();
        assert!(matches!(error, EngineError::Log(_)) && error.is_retryable(), "{error}");
        assert_eq!(error.to_string(), "log: cannot write valve: no storage space");
        let refused = one.exclusive(addr).await.map(drop).unwrap_err();
        assert!(matches!(refused, EngineError::Log(_)), "{refused}");
        assert_eq!(read(one, addr).await, 2, "reading goes on");
        // The other has a log of its own.
        let other = page(two).await;
        write(two, other, 7).await;
        valves[0].broken.store(false, Ordering::SeqCst);
        let started = env.now();
        while one.exclusive(addr).await.is_err() {
            assert!(env.now() - started < Duration::from_secs(10));
            env.sleep(Duration::from_millis(1)).await;
        }
        one.until_durable(lsn).await.unwrap();
        assert_eq!(read(two, addr).await, 2);
        for engine in &cluster.engines {
            engine.close().await.unwrap();
        }
    });
}

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
    engine.restore(lines).await.unwrap();
    for _ in 0..300 {
        let page = engine.allocate().await.unwrap();
        assert!(!lines.contains_key(&page.addr()) && page.iter().all(|byte| *byte == 0));
    }
    for (addr, (psn, page)) in addrs.iter().zip(was) {
        let found = engine.shared(*addr).await.unwrap();
        assert_eq!((found.psn(), &*found), (*psn, &**page));
    }
    let again = engine.restore(lines).await.unwrap_err().to_string();
    assert!(again.contains("extents in use"), "{again}");
}

fn value(line: &[u8]) -> u64 {
    u64::from_le_bytes(line[24..32].try_into().unwrap())
}

/// The logs of the first nodes of a pool.
fn owners(pool: &Pool, nodes: u16) -> Vec<LogOwner> {
    let (pool, line_bytes) = (pool.state().id, GCL as u32);
    (0..nodes).map(|node| LogOwner { pool, node, incarnation: 1, line_bytes }).collect()
}

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

/// Waits until what died is recovered from.
async fn recovered(engine: &Engine, pool: &Pool) {
    let env = engine.env();
    let started = env.now();
    while !pool.lost().is_empty() || pool.members().len() > 1 {
        assert!(env.now() - started < Duration::from_secs(30), "{:?}", pool.lost());
        env.sleep(Duration::from_millis(1)).await;
    }
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
        // Of what is not durable nobody may have heard.
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
/// others, who make the pages again, and by one who makes a backup.
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

/// A directory that nothing can be made in: who commits is told so, and goes on when it can.
#[test]
fn a_log_directory_that_is_gone_for_a_while_stops_writers_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (here, away) = (place.path().join("logs"), place.path().join("away"));
    let logs = LogFiles::new(&here, 1 << 16, 1 << 22).unwrap();
    let cluster = logged(2, LogTo::Store(Arc::new(logs)), "plain");
    let [survivor, dies] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let addrs = [page(dies).await, page(dies).await, page(dies).await];
        let commit = async |value: u64| {
            let mut page = dies.exclusive(addrs[value as usize % 3]).await?;
            let bytes = page.len();
            page.bytes_mut(24..bytes).fill(value as u8);
            page.bytes_mut(16..24).copy_from_slice(&value.to_le_bytes());
            let lsn = change_together([&mut page]).unwrap();
            drop(page);
            dies.until_durable(lsn).await
        };
        let mut acknowledged = 0;
        // Until the directory is missed, in a file that is there, and until it is back.
        let mut go_on = async |until_refused: bool| {
            for _ in 0..10_000 {
                match commit(acknowledged + 1).await {
                    Ok(()) => acknowledged += 1,
                    Err(EngineError::Log(error)) if until_refused => {
                        let text = error.to_string();
                        assert!(text.contains(here.to_str().unwrap()), "{text}");
                        return acknowledged;
                    }
                    Err(error) if until_refused => panic!("{error}"),
                    Err(_) => {}
                }
                if !until_refused && acknowledged % 200 == 0 {
                    break;
                }
            }
            acknowledged
        };
        assert_eq!(go_on(false).await, 200);
        std::fs::rename(&here, &away).unwrap();
        let stopped = go_on(true).await;
        assert!(stopped < 10_000, "nobody was refused");
        std::fs::rename(&away, &here).unwrap();
        let last = go_on(false).await;
        assert!(last > stopped, "it does not go on");
        cluster.fabric.kill(PeerId::compute(1));
        cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
        recovered(survivor, &cluster.pool).await;
        for value in last - 2..=last {
            let addr = addrs[value as usize % 3];
            assert_eq!(read(survivor, addr).await, value);
            let page = survivor.shared(addr).await.unwrap();
            assert!(page[24..].iter().all(|byte| *byte == value as u8));
        }
        survivor.close().await.unwrap();
    });
}

/// The record that tells of the damage begins behind a long one, anywhere about the end of what is
/// read at a time.
#[test]
fn what_tells_of_damage_may_lie_far_behind_it() {
    const READ_AT_ONCE: u64 = 64 << 10;
    for short in 0..6 {
        let cluster = logged_with(2, LogTo::Memory, "plain", 512 << 10);
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let mut addrs = Vec::new();
            for _ in 0..150 {
                addrs.push(page(one).await);
            }
            // Changes so many bytes of each of some pages; where the record ends.
            let change = async |bytes: &[usize]| {
                let mut guards = Vec::new();
                for (addr, bytes) in addrs.iter().zip(bytes) {
                    let mut page = two.exclusive(*addr).await.unwrap();
                    page.bytes_mut(0..*bytes).fill(7);
                    guards.push(page);
                }
                let lsn = change_together(guards.iter_mut()).unwrap();
                drop(guards);
                two.until_durable(lsn).await.unwrap();
                lsn
            };
            let ends = [change(&[8]).await, change(&[8]).await, change(&[8, 8]).await];
            let (one_page, two_pages) = (ends[1] - ends[0], ends[2] - ends[1]);
            // All take as much as these, and of some more is changed.
            let least = one_page + (addrs.len() as u64 - 1) * (two_pages - one_page);
            let length = READ_AT_ONCE - 8 * short;
            let mut more = (length - least) as usize;
            let bytes = addrs.iter().map(|_| {
                let some = more.min(480);
                more -= some;
                8 + some
            });
            let bytes: Vec<usize> = bytes.collect();
            let begins = ends[2];
            assert_eq!(change(&bytes).await - begins, length);
            change(&bytes).await;
            cluster.fabric.kill(PeerId::compute(1));
            let at = cluster.pool.descriptor().geometry().log_offset(1) + 4096;
            let rogue = cluster.fabric.join(PeerId::compute(9)).unwrap();
            for memory in &cluster.pool.descriptor().memory_nodes {
                let queue_pair = rogue.connect(memory.peer).unwrap();
                let place = RemoteAddr::new(memory.region, at + begins + 64);
                let junk = Verb::write(place, Buf::copy_of(&[0xEE; 8]));
                queue_pair.post(junk.into()).await.unwrap();
            }
            cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
            recovered(one, &cluster.pool).await;
            let lost = cluster.pool.lost_pages().len();
            assert_eq!(lost, addrs.len(), "{short} words before the end");
            one.close().await.unwrap();
        });
    }
}

/// One copy of a log that is damaged is as good as the other one up to there; if both are, what was
/// durable is missed, and said to be.
#[test]
fn a_damaged_copy_of_a_log_in_memory_does_not_matter_while_there_is_another() {
    for damaged in [1, 2] {
        let cluster = logged(2, LogTo::Memory, "2+1");
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let mut addrs = Vec::new();
            for _ in 0..40 {
                addrs.push(page(one).await);
            }
            let mut lsn = 0;
            for addr in &addrs {
                write(two, *addr, 8).await;
                // What comes later says that it was.
                lsn = two.shared(*addr).await.unwrap().lsn();
                two.until_durable(lsn).await.unwrap();
            }
            cluster.fabric.kill(PeerId::compute(1));
            let at = cluster.pool.descriptor().geometry().log_offset(1);
            let rogue = cluster.fabric.join(PeerId::compute(9)).unwrap();
            let mut copies = 0;
            for memory in &cluster.pool.descriptor().memory_nodes {
                let queue_pair = rogue.connect(memory.peer).unwrap();
                let place = |offset| RemoteAddr::new(memory.region, at + offset);
                let head = queue_pair.post(Verb::read(place(0), Buf::zeroed(8)).into()).await;
                if head.unwrap().buf(0).unwrap().iter().all(|byte| *byte == 0) {
                    continue;
                }
                copies += 1;
                if copies <= damaged {
                    let middle = 4096 + lsn / 2 / 8 * 8;
                    let junk = Verb::write(place(middle), Buf::copy_of(&[0xEE; 8]));
                    queue_pair.post(junk.into()).await.unwrap();
                }
            }
            assert_eq!(copies, 2);
            cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
            recovered(one, &cluster.pool).await;
            let lost = cluster.pool.lost_pages().len();
            assert_eq!(lost, if damaged == 1 { 0 } else { addrs.len() });
            for addr in addrs.iter().filter(|_| damaged == 1) {
                assert_eq!(read(one, *addr).await, 8);
            }
            one.close().await.unwrap();
        });
    }
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

/// Four files, of which only whole ones can go.
#[test]
fn a_log_of_few_files_never_stays_full() {
    let place = tempfile::tempdir().unwrap();
    let logs = LogFiles::new(place.path(), 1 << 16, 4 << 16).unwrap();
    let cluster = logged(1, LogTo::Store(Arc::new(logs)), "plain");
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let addrs = [page(engine).await, page(engine).await];
        // In all, several times what the log can keep.
        for round in 0..2000 {
            let mut page = engine.exclusive(addrs[round % 2]).await.unwrap();
            let bytes = page.len();
            page.bytes_mut(0..bytes).fill(round as u8);
        }
        engine.close().await.unwrap();
    });
}

/// What it has latched may be what the log would have to be rid of.
#[test]
fn who_waits_for_no_latch_does_not_wait_for_room_in_the_log() {
    let (valves, cluster) = valves(1, "plain");
    let engine = &cluster.engines[0];
    valves[0].capacity.store(1 << 16, Ordering::SeqCst);
    cluster.runtime.block_on(async {
        let (held, other) = (page(engine).await, page(engine).await);
        let mut first = engine.exclusive(held).await.unwrap();
        first.bytes_mut(0..8).fill(1);
        change_together([&mut first]);
        let refused = loop {
            match engine.try_exclusive(other).await {
                Ok(mut page) => {
                    let bytes = page.len();
                    page.bytes_mut(0..bytes).fill(2);
                }
                Err(error) => break error,
            }
            engine.env().yield_now().await;
        };
        assert!(matches!(refused, EngineError::LogFull), "{refused}");
        drop(first);
        write(engine, other, 3).await;
        assert_eq!(read(engine, other).await, 3);
        engine.close().await.unwrap();
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
            one.restore(&lines).await.unwrap();
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
