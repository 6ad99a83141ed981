//! Backups of pools in use, and pools made of them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use selkie_engine::backup::{Backup, BackupError, BackupReport};
use selkie_engine::log::{LogFiles, LogObjects, LogStore, LogTo};
use selkie_engine::{Engine, EngineConfig, EngineError, GAddr, Stamp, change_together};
use selkie_fabric::env::{Env, TaskHandle};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Fabric, PeerId, RealRuntime};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{ComputeIndex, Pool, PoolConfig};

use crate::common::pages::coded;
use crate::common::{GCL, PAGE, engine_config, id, page};

/// Pages that belong together lie that far from each other, so that they are read at different
/// times.
const PAIRS: usize = 400;
/// Bytes of a log in memory that goes round many times while a backup waits for that.
const SMALL_RING: u64 = 64 << 10;
/// And of one that outlasts a reader that is slow on purpose.
const RING: u64 = 512 << 10;

/// A pool, and nodes on it.
struct Site {
    runtime: RealRuntime,
    fabric: Arc<MemFabric>,
    pool: Arc<Pool>,
    engines: Vec<Engine>,
    log: Option<LogTo>,
    _memory: Arc<EmbeddedPool>,
}

impl Site {
    fn new(nodes: usize, log: Option<LogTo>, coding: &str) -> Self {
        Self::with_ring(nodes, log, coding, RING)
    }

    fn with_ring(nodes: usize, log: Option<LogTo>, coding: &str, log_bytes: u64) -> Self {
        let runtime = RealRuntime::new(2).unwrap();
        let fabric = MemFabric::new();
        let shared: Arc<dyn Fabric> = Arc::clone(&fabric) as Arc<dyn Fabric>;
        let config = PoolConfig { log_bytes, ..coded(4, coding) };
        let memory = EmbeddedPool::start(&shared, config).unwrap();
        let (pool, engines) = (Arc::clone(memory.pool()), Vec::new());
        let mut site = Self { runtime, fabric, pool, engines, log, _memory: memory };
        for node in 0..nodes {
            let engine = site.runtime.block_on(site.start(node));
            site.engines.push(engine);
        }
        site
    }

    async fn start(&self, node: usize) -> Engine {
        let fabric: Arc<dyn Fabric> = Arc::clone(&self.fabric) as Arc<dyn Fabric>;
        let config = EngineConfig { log: self.log.clone(), ..engine_config() };
        Engine::start(&self.pool, &fabric, &self.runtime.env(), id(node), config).await.unwrap()
    }

    async fn close(&self) {
        for engine in &self.engines {
            engine.close().await.unwrap();
        }
    }
}

fn value(line: &[u8]) -> u64 {
    u64::from_le_bytes(line[16..24].try_into().unwrap())
}

/// Pages in pairs, which always have the same value.
struct Pairs {
    addrs: Vec<GAddr>,
    /// What was acknowledged of each pair.
    known: Vec<AtomicU64>,
    changes: AtomicU64,
    /// How many may follow until a backup goes on.
    budget: AtomicU64,
    stop: AtomicBool,
}

impl Pairs {
    async fn make(site: &Site) -> Arc<Self> {
        let mut addrs = Vec::new();
        for number in 0..2 * PAIRS {
            addrs.push(page(&site.engines[number % site.engines.len()]).await);
        }
        let known = (0..PAIRS).map(|_| AtomicU64::new(0)).collect();
        let (changes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let budget = AtomicU64::new(u64::MAX);
        let pairs = Arc::new(Self { addrs, known, changes, budget, stop });
        // The others have changed nothing yet.
        for pair in 0..PAIRS * 3 / 4 {
            pairs.change(&site.engines[0], pair).await.unwrap();
        }
        pairs
    }

    /// One more for both pages of a pair.
    async fn change(&self, engine: &Engine, pair: usize) -> Result<(), EngineError> {
        let mut left = engine.exclusive(self.addrs[pair]).await?;
        let mut right = engine.exclusive(self.addrs[pair + PAIRS]).await?;
        let next = u64::from_le_bytes(left[8..16].try_into().unwrap()) + 1;
        for page in [&mut left, &mut right] {
            page.bytes_mut(8..16).copy_from_slice(&next.to_le_bytes());
            page.bytes_mut(16..PAGE).fill(next as u8);
        }
        let lsn = change_together([&mut left, &mut right]);
        drop((left, right));
        self.changes.fetch_add(1, Ordering::SeqCst);
        if let Some(lsn) = lsn
            && next.is_multiple_of(4)
        {
            engine.until_durable(lsn).await?;
            self.known[pair].fetch_max(next, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Changes them until it is told to stop, or the node is no more.
    fn keep_changing(self: &Arc<Self>, engine: &Engine, seed: usize) -> TaskHandle {
        let (own, engine) = (Arc::clone(self), engine.clone());
        let env = engine.env().clone();
        env.clone().spawn("changes", async move {
            let mut round = seed;
            while !own.stop.load(Ordering::SeqCst) {
                let left = |budget: u64| budget.checked_sub(1);
                if own.budget.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
                    // Some of them much more often.
                    round += 7;
                    let pair = if round.is_multiple_of(3) { round % PAIRS } else { round % 10 };
                    if own.change(&engine, pair).await.is_err() {
                        return;
                    }
                }
                env.sleep(Duration::from_micros(200)).await;
            }
        })
    }

    /// Lets a backup go on only when so much has been changed that the logs in memory go round
    /// meanwhile; not for long, as it reads these no further until then.
    fn watch(&self) -> impl Fn(u64, u64) + Send + Sync {
        move |done, total| {
            assert!(done <= total);
            let (before, started) = (self.changes.load(Ordering::SeqCst), Instant::now());
            while self.changes.load(Ordering::SeqCst) < before + 30 {
                assert!(started.elapsed() < Duration::from_secs(10), "nothing is changed");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Lets a backup go on when `holds` is false; and the others change few pages between two of
    /// its steps, so that it reads each log in memory before that goes round, however busy the
    /// machine is.
    fn hold_back(self: &Arc<Self>, holds: &Arc<AtomicBool>) -> Progress {
        let (own, holds) = (Arc::clone(self), Arc::clone(holds));
        Box::new(move |done, total| {
            let started = Instant::now();
            slowly(done, total);
            while holds.load(Ordering::SeqCst) {
                assert!(started.elapsed() < Duration::from_secs(60), "nothing lets it go on");
                std::thread::sleep(Duration::from_millis(1));
            }
            own.budget.store(60, Ordering::SeqCst);
        })
    }

    fn known(&self) -> Vec<u64> {
        self.known.iter().map(|known| known.load(Ordering::SeqCst)).collect()
    }

    /// The pairs agree, and have what was known before.
    fn check(&self, lines: &BTreeMap<GAddr, Box<[u8]>>, known: &[u64], what: &str) {
        for (pair, known) in known.iter().enumerate() {
            let of = |addr| lines.get(addr).map_or(0, |line| value(line));
            let (left, right) = (of(&self.addrs[pair]), of(&self.addrs[pair + PAIRS]));
            assert_eq!(left, right, "{what}: pair {pair}");
            assert!(left >= *known, "{what}: pair {pair} has {left}, {known} was acknowledged");
        }
    }
}

/// Where nodes have their logs.
fn places(place: &Path) -> Vec<(&'static str, LogTo)> {
    let files = LogFiles::new(&place.join("files"), 1 << 16, 1 << 22).unwrap();
    let objects = LogObjects::at(place.join("objects").to_str().unwrap(), 1 << 22).unwrap();
    vec![
        ("memory", LogTo::Memory),
        ("files", LogTo::Store(Arc::new(files))),
        ("objects", LogTo::Store(Arc::new(objects))),
    ]
}

/// What a backup says of how far it is.
type Progress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// Takes its time, so that much happens meanwhile.
fn slowly(done: u64, total: u64) {
    assert!(done <= total);
    std::thread::sleep(Duration::from_millis(40));
}

fn at(place: &Path, name: &str) -> LogObjects {
    LogObjects::at(place.join(name).to_str().unwrap(), 0).unwrap()
}

/// What the backup has is in another pool, too, and that is one that can be used.
fn restored(pairs: &Pairs, backup: &Backup, coding: &str) {
    let site = Site::new(1, None, coding);
    site.runtime.block_on(restored_in(&site.engines[0], pairs, backup));
}

async fn restored_in(engine: &Engine, pairs: &Pairs, backup: &Backup) {
    backup.restore(engine, |_| Stamp::default()).await.unwrap();
    for addr in pairs.addrs.iter().filter(|addr| backup.lines().contains_key(addr)) {
        let found = engine.shared(*addr).await.unwrap();
        let (psn, page) = backup.lines()[addr].split_at(8);
        assert_eq!((&found.psn().to_le_bytes()[..], &*found), (psn, page));
    }
    pairs.change(engine, 3).await.unwrap();
    let mut page = engine.allocate().await.unwrap();
    assert!(page.iter().all(|byte| *byte == 0));
    page.bytes_mut(0..8).fill(1);
    drop(page);
    let again = backup.restore(engine, |_| Stamp::default()).await.unwrap_err().to_string();
    assert!(again.contains("extents in use"), "{again}");
    engine.close().await.unwrap();
}

#[test]
fn a_backup_of_a_pool_in_use_is_one_state_of_it() {
    let place = tempfile::tempdir().unwrap();
    for (coding, other) in [("plain", "2+1"), ("2+1", "replicate=2")] {
        let place = place.path().join(coding);
        for (what, log) in places(&place) {
            let site = Site::with_ring(3, Some(log), coding, SMALL_RING);
            let (pairs, backup) = site.runtime.block_on(async {
                let pairs = Pairs::make(&site).await;
                let tasks: Vec<_> = site
                    .engines
                    .iter()
                    .enumerate()
                    .map(|(seed, engine)| pairs.keep_changing(engine, seed))
                    .collect();
                site.runtime.env().sleep(Duration::from_millis(100)).await;
                let fourth = site.start(3).await;
                let mut attempts = 0;
                let (to, known, before, report) = loop {
                    attempts += 1;
                    let to = at(&place, &format!("to-{what}-{attempts}"));
                    let (known, before) = (pairs.known(), pairs.changes.load(Ordering::SeqCst));
                    match fourth.backup(&to, &pairs.watch()).await {
                        Ok(report) => break (to, known, before, report),
                        // A ring that went round before it was read: the backup says so.
                        Err(BackupError::Cut { .. }) if attempts < 5 => {}
                        Err(error) => panic!("{coding}, {what}: {error}"),
                    }
                };
                let meanwhile = pairs.changes.load(Ordering::SeqCst) - before;
                assert!(meanwhile > 300, "{what}: only {meanwhile} changes");
                assert!(report.pages > PAIRS as u64 && report.logs == 3, "{report:?}");
                // In all logs together; each goes round.
                assert!(report.log_bytes > 4 * SMALL_RING, "{report:?}");
                pairs.stop.store(true, Ordering::SeqCst);
                for task in tasks {
                    task.join().await.unwrap();
                }
                fourth.close().await.unwrap();
                let backup = Backup::open(&to).await.unwrap();
                pairs.check(backup.lines(), &known, &format!("{coding}, {what}"));
                let occupied = site.engines[0].backup(&to, &slowly).await.unwrap_err();
                assert!(matches!(occupied, BackupError::Occupied { .. }), "{occupied}");
                site.close().await;
                (pairs, backup)
            });
            restored(&pairs, &backup, other);
        }
    }
}

/// A backup that is made by a thread of its own: a worker of the runtime that is held up would keep
/// tasks that it has woken from running.
struct Making {
    env: Env,
    result: Arc<Mutex<Option<Result<BackupReport, BackupError>>>>,
}

impl Making {
    fn begin(engine: &Engine, to: &LogObjects) -> Self {
        Self::begin_with(engine, to, Box::new(slowly))
    }

    fn begin_with(engine: &Engine, to: &LogObjects, progress: Progress) -> Self {
        let (engine, to) = (engine.clone(), to.clone());
        let result = Arc::new(Mutex::new(None));
        let made = Arc::clone(&result);
        let env = engine.env().clone();
        std::thread::spawn(move || {
            *made.lock() = Some(on_this_thread(engine.backup(&to, &progress)));
        });
        Self { env, result }
    }

    async fn ends(self) -> Result<BackupReport, BackupError> {
        let begun = Instant::now();
        loop {
            if let Some(result) = self.result.lock().take() {
                return result;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "the backup does not end");
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Runs a future on the calling thread, which sleeps while the future waits.
fn on_this_thread<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

/// One node comes, another leaves, a third one dies.
#[test]
fn nodes_come_and_go_while_a_backup_is_made() {
    let place = tempfile::tempdir().unwrap();
    for (what, log) in places(place.path()) {
        let site = Site::with_ring(3, Some(log), "2+1", RING);
        let env = site.runtime.env();
        site.runtime.block_on(async {
            let pairs = Pairs::make(&site).await;
            let maker = site.start(3).await;
            for (seed, engine) in site.engines.iter().enumerate() {
                drop(pairs.keep_changing(engine, seed));
            }
            env.sleep(Duration::from_millis(50)).await;
            let known = pairs.known();
            let to = at(place.path(), &format!("to-{what}"));
            let holds = Arc::new(AtomicBool::new(true));
            pairs.budget.store(60, Ordering::SeqCst);
            let backup = Making::begin_with(&maker, &to, pairs.hold_back(&holds));
            env.sleep(Duration::from_millis(60)).await;
            let comes = site.start(4).await;
            let changes = pairs.keep_changing(&comes, 3);
            env.sleep(Duration::from_millis(40)).await;
            site.engines[1].close().await.unwrap();
            site.fabric.kill(PeerId::compute(2));
            site.pool.declare_dead(ComputeIndex::new(2)).await.unwrap();
            assert!(backup.result.lock().is_none(), "{what}: it was over before all that");
            holds.store(false, Ordering::SeqCst);
            let report = backup.ends().await.map_err(|error| format!("{what}: {error}")).unwrap();
            assert_eq!(report.logs, 4, "{report:?}");
            pairs.stop.store(true, Ordering::SeqCst);
            changes.join().await.unwrap();
            pairs.check(Backup::open(&to).await.unwrap().lines(), &known, what);
        });
    }
}

#[test]
fn what_nobody_records_is_backed_up_only_by_who_is_alone() {
    let place = tempfile::tempdir().unwrap();
    let site = Site::new(2, None, "2+1");
    let [one, two] = &site.engines[..] else { panic!("two nodes") };
    site.runtime.block_on(async {
        let pairs = Pairs::make(&site).await;
        for pair in 0..PAIRS {
            pairs.change(two, pair).await.unwrap();
        }
        let error = one.backup(&at(place.path(), "refused"), &slowly).await.unwrap_err();
        assert!(matches!(error, BackupError::NoLog { node: 1 }), "{error}");
        two.close().await.unwrap();
        let to = at(place.path(), "alone");
        let report = one.backup(&to, &slowly).await.unwrap();
        assert_eq!((report.logs, report.log_bytes), (0, 0));
        pairs.check(Backup::open(&to).await.unwrap().lines(), &[1; PAIRS], "alone");
        // One that comes meanwhile might change something.
        let backup = Making::begin(one, &at(place.path(), "met"));
        site.runtime.env().sleep(Duration::from_millis(30)).await;
        let comes = site.start(2).await;
        let error = backup.ends().await.unwrap_err();
        assert!(matches!(error, BackupError::NoLog { node: 2 }), "{error}");
        comes.close().await.unwrap();
        one.close().await.unwrap();
    });
}

#[test]
fn a_log_that_goes_before_it_is_read_ends_the_backup() {
    let place = tempfile::tempdir().unwrap();
    let files = LogFiles::new(&place.path().join("files"), 1 << 16, 1 << 22).unwrap();
    let site = Site::new(1, Some(LogTo::Store(Arc::new(files.clone()))), "plain");
    site.runtime.block_on(async {
        let pairs = Pairs::make(&site).await;
        let changes = pairs.keep_changing(&site.engines[0], 0);
        let maker = site.start(1).await;
        let to = at(place.path(), "to");
        let backup = Making::begin(&maker, &to);
        site.runtime.env().sleep(Duration::from_millis(50)).await;
        let owner = files.owners().await.unwrap()[0];
        files.remove(owner).await.unwrap();
        let error = backup.ends().await.unwrap_err();
        assert!(matches!(error, BackupError::Cut { node: 0, .. }), "{error}");
        assert!(error.is_retryable());
        // A writer waits until the log can be written again, which is never.
        drop(changes);
        let none = Backup::open(&to).await.map(drop).unwrap_err();
        assert!(matches!(none, BackupError::None { .. }), "{none}");
    });
}

/// All objects of a backup.
fn objects(place: &Path) -> Vec<PathBuf> {
    let mut pending = vec![place.to_owned()];
    let mut all = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            all.push(path);
        }
    }
    all
}

#[test]
fn a_backup_that_is_damaged_is_refused_with_what_is_wrong() {
    let place = tempfile::tempdir().unwrap();
    let site = Site::new(2, Some(LogTo::Memory), "2+1");
    site.runtime.block_on(async {
        let pairs = Pairs::make(&site).await;
        let changes = pairs.keep_changing(&site.engines[1], 0);
        let to = at(place.path(), "to");
        site.engines[0].backup(&to, &slowly).await.unwrap();
        pairs.stop.store(true, Ordering::SeqCst);
        changes.join().await.unwrap();
        let all = objects(&place.path().join("to"));
        assert_eq!(all.len(), 5, "manifest, image, and a log, with their marks: {all:?}");
        for object in all {
            let whole = std::fs::read(&object).unwrap();
            let name = object.file_name().unwrap().to_str().unwrap();
            let refused = async |what: &str| {
                let error = Backup::open(&to).await.map(drop).unwrap_err().to_string();
                // What ends too early is known by the log, not by an object.
                let log = object.parent().unwrap().to_str().unwrap();
                let is_named = error.contains(name) || error.contains(log);
                assert!(is_named && !error.contains('\n'), "{what} {name}: {error}");
            };
            let mut bytes = whole.clone();
            let is_mark = name.starts_with("kept-");
            for at in [20, whole.len() / 2, whole.len() - 10].into_iter().filter(|_| !is_mark) {
                bytes[at] ^= 1;
                std::fs::write(&object, &bytes).unwrap();
                refused("flipped in").await;
                bytes[at] ^= 1;
            }
            if !is_mark {
                std::fs::write(&object, &whole[..whole.len() - 200]).unwrap();
                refused("cut off").await;
            }
            std::fs::remove_file(&object).unwrap();
            refused("missing").await;
            std::fs::write(&object, &whole).unwrap();
        }
        let backup = Backup::open(&to).await.unwrap();
        assert_eq!(backup.line_bytes(), GCL);
        site.close().await;
    });
}
