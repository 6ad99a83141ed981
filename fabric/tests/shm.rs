//! The `shm` fabric between processes: what conformance within one process cannot show.
//!
//! The other processes are this test program, started again to run [`other_process`] in a role.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may fail like tests"
)]

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use selkie_fabric::shm::ShmFabric;
use selkie_fabric::{
    Buf, Endpoint, Fabric, FabricError, LocalRegion, PeerId, QueuePair, RealRuntime, RegionKey,
    RemoteAddr, Verb,
};
use tempfile::TempDir;

const HERE: PeerId = PeerId::memory(0);
const THERE: PeerId = PeerId::compute(0);
const PATIENCE: Duration = Duration::from_secs(20);

/// Says what the process is to do; without it the test is not one.
const ROLE: &str = "SELKIE_SHM_TEST_ROLE";
const ROOT: &str = "SELKIE_SHM_TEST_ROOT";
const KEY: &str = "SELKIE_SHM_TEST_KEY";

fn root() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn first(result: selkie_fabric::ChainResult) -> Result<u64, FabricError> {
    let chain = result.map_err(|error| error.error)?;
    Ok(chain.old(0).unwrap_or_default())
}

fn post(queue_pair: &dyn QueuePair, verb: Verb) -> Result<u64, FabricError> {
    first(queue_pair.post(verb.into()).try_take().expect("executed in the call"))
}

/// A process in a role, ended with the value.
struct Other {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, root: &Path, key: RegionKey) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other_process", "--nocapture"])
            .env(ROLE, role)
            .env(ROOT, root)
            .env(KEY, key.to_raw().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Other { child, says }
    }

    /// Reads on until the process says `word`, and returns what follows it on the line.
    fn waits_for(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.says.read_line(&mut line).unwrap();
            assert!(read > 0, "the process ended without saying {word}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn discarded_memory_goes_back_to_the_host_and_is_taken_again() {
    const BYTES: usize = 8 << 20;
    let root = root();
    let fabric = ShmFabric::open(root.path()).unwrap();
    let node = fabric.join(HERE).unwrap();
    let region = node.register(BYTES).unwrap();
    let file = root.path().join(HERE.to_string()).join("region-0");
    let taken = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) as usize * 512;
    assert!(region.is_committed() && taken() >= BYTES, "{} bytes at first", taken());
    region.write(0, &vec![1; BYTES]);
    assert!(region.discard(1 << 20..BYTES));
    assert!(taken() <= 1 << 20, "{} bytes after the discard", taken());
    region.restore(1 << 20..2 << 20).unwrap();
    assert!((2 << 20..BYTES).contains(&taken()), "{} bytes after a part is restored", taken());
    let mut first = vec![0; 1 << 20];
    region.read(0, &mut first);
    assert!(first.iter().all(|byte| *byte == 1), "what was kept is as it was");
    region.read(1 << 20, &mut first);
    assert!(first.iter().all(|byte| *byte == 0), "what was restored is zero");
}

#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let shm = ShmFabric::open(std::env::var(ROOT).unwrap()).unwrap();
    let key = RegionKey::from_raw(std::env::var(KEY).unwrap().parse().unwrap());
    let endpoint = shm.join(THERE).unwrap();
    let region = endpoint.register(1 << 16).unwrap();
    let back = endpoint.connect(HERE);
    match role.as_str() {
        "lend" => {
            region.store(8, 77);
            println!("READY {}", region.key().to_raw());
            std::thread::sleep(PATIENCE);
        }
        "echo" => {
            println!("READY {}", region.key().to_raw());
            echo(&*region, &*back.unwrap(), RemoteAddr::new(key, 0));
        }
        "count" => {
            let back = back.unwrap();
            println!("READY");
            let started = Instant::now();
            let word = RemoteAddr::new(key, 0);
            while started.elapsed() < PATIENCE {
                if let Err(error) = post(&*back, Verb::fetch_and_add(word, 1)) {
                    println!("STOPPED {error}");
                    return;
                }
            }
            println!("STOPPED by itself");
        }
        role => panic!("no role {role}"),
    }
}

/// Answers each ring with one of its own and the number found.
fn echo(region: &dyn LocalRegion, back: &dyn QueuePair, at: RemoteAddr) {
    let runtime = RealRuntime::new(1).unwrap();
    let mut seen = 0;
    loop {
        seen = runtime.block_on(region.doorbell().wait_past(seen));
        let number = region.load(0);
        let from = Buf::copy_of(&number.to_le_bytes());
        if post(back, Verb::write_with_doorbell(at, from)).is_err() {
            return;
        }
    }
}

fn here(root: &TempDir) -> (Arc<ShmFabric>, Arc<dyn Endpoint>, Arc<dyn LocalRegion>) {
    let shm = ShmFabric::open(root.path()).unwrap();
    let endpoint = shm.join(HERE).unwrap();
    let region = endpoint.register(1 << 16).unwrap();
    (shm, endpoint, region)
}

fn key_said(other: &mut Other) -> RegionKey {
    RegionKey::from_raw(other.waits_for("READY").parse().unwrap())
}

#[test]
fn doorbells_ring_between_processes_that_sleep() {
    let root = root();
    let (_shm, endpoint, region) = here(&root);
    let mut other = Other::start("echo", root.path(), region.key());
    let at = RemoteAddr::new(key_said(&mut other), 0);
    let forth = endpoint.connect(THERE).unwrap();
    let runtime = RealRuntime::new(1).unwrap();
    let mut seen = 0;
    for round in 1..=1_000_u64 {
        post(&*forth, Verb::write_with_doorbell(at, Buf::copy_of(&round.to_le_bytes()))).unwrap();
        while region.load(0) < round {
            seen = runtime.block_on(region.doorbell().wait_past(seen));
        }
        assert_eq!(region.load(0), round);
    }
}

#[test]
fn the_death_of_a_process_surfaces_and_its_memory_is_never_used_again() {
    let root = root();
    let (shm, endpoint, region) = here(&root);
    let mut other = Other::start("lend", root.path(), region.key());
    let key = key_said(&mut other);
    let old = endpoint.connect(THERE).unwrap();
    let word = RemoteAddr::new(key, 8);
    assert_eq!(post(&*old, Verb::fetch_and_add(word, 0)), Ok(77));
    let taken = shm.join(THERE).err();
    assert_eq!(taken, Some(FabricError::AlreadyJoined { peer: THERE }));

    other.signal(Signal::KILL);
    let started = Instant::now();
    let dead = Err(FabricError::PeerDead { peer: THERE });
    while post(&*old, Verb::fetch_and_add(word, 0)) != dead {
        assert!(started.elapsed() < PATIENCE, "the death does not surface");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(endpoint.connect(THERE).err(), dead.clone().err());

    let again = shm.join(THERE).unwrap();
    let fresh = again.register(1 << 16).unwrap();
    assert_eq!(fresh.load(8), 0);
    fresh.store(8, 1);
    let new = endpoint.connect(THERE).unwrap();
    let unknown = FabricError::UnknownRegion { peer: THERE, region: key };
    assert_eq!(post(&*new, Verb::fetch_and_add(word, 0)), Err(unknown));
    assert_eq!(post(&*old, Verb::fetch_and_add(word, 0)), dead);
    drop((new, fresh, again));
    assert_eq!(names(&root), ["lock", "mem0"]);
}

#[test]
fn a_fenced_process_changes_no_byte_when_it_goes_on() {
    let mut fenced = 0;
    for round in 0..20 {
        let root = root();
        let (shm, _endpoint, region) = here(&root);
        let mut other = Other::start("count", root.path(), region.key());
        other.waits_for("READY");
        while region.load(0) < 1_000 * (1 + round % 3) {
            std::thread::yield_now();
        }
        other.signal(Signal::STOP);
        match shm.fence_patiently(THERE, Duration::from_millis(200)) {
            Ok(()) => fenced += 1,
            // Stopped in the middle of a verb: said, and ended by the process that fences.
            Err(FabricError::StillExecuting { peer, process }) => {
                assert_eq!((peer, process), (THERE, u64::from(other.child.id())));
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        let before = region.load(0);
        other.signal(Signal::CONT);
        assert_eq!(other.waits_for("STOPPED"), "peer cn0 is dead");
        assert_eq!(region.load(0), before, "written after the fence");
    }
    println!("fenced {fenced} of 20");
    assert!(fenced > 0, "never met between two verbs");
}

#[test]
fn memory_that_is_not_there_is_refused_and_leaves_nothing_behind() {
    let root = root();
    let (_shm, endpoint, _region) = here(&root);
    let bytes = 1_usize << 46;
    let refused = endpoint.register(bytes).err();
    assert_eq!(refused, Some(FabricError::OutOfMemory { bytes: bytes as u64 }));
    let files = std::fs::read_dir(root.path().join("mem0")).unwrap().count();
    assert_eq!(files, 2, "the control page and one region");
    let refused = endpoint.register_populated(bytes, &mut |_| ControlFlow::Continue(())).err();
    let is_named = matches!(&refused, Some(FabricError::NoRoom { bytes: asked, free, .. })
        if *asked == bytes as u64 && *free < bytes as u64);
    assert!(is_named, "{refused:?}");
    let broken_off = endpoint.register_populated(8192, &mut |_| ControlFlow::Break(())).err();
    assert_eq!(broken_off, Some(FabricError::Interrupted));
    let files = std::fs::read_dir(root.path().join("mem0")).unwrap().count();
    assert_eq!(files, 2, "the control page and one region");
    assert!(endpoint.register(4096).is_ok(), "the slot is not lost");
    let mut told = Vec::new();
    let mut tell = |done| {
        told.push(done);
        ControlFlow::Continue(())
    };
    let region = endpoint.register_populated(100 << 20, &mut tell).unwrap();
    assert!(region.is_committed() && region.load((100 << 20) - 8) == 0);
    assert_eq!(told, [0, 64 << 20, 100 << 20]);
    let file = std::fs::metadata(root.path().join("mem0/region-2")).unwrap();
    let taken = std::os::unix::fs::MetadataExt::blocks(&file) * 512;
    assert!(taken >= 100 << 20, "{taken} bytes have memory");
}

#[test]
fn files_that_are_no_node_are_refused_and_kept() {
    let root = root();
    let shm = ShmFabric::open(root.path()).unwrap();
    let directory = root.path().join("cn0");
    std::fs::create_dir(&directory).unwrap();
    let refused = |file: &[u8], what: &str| {
        std::fs::write(directory.join("control"), file).unwrap();
        let error = shm.join(THERE).err().unwrap();
        assert!(matches!(&error, FabricError::Segment { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(std::fs::read(directory.join("control")).unwrap(), file);
    };
    refused(b"short", "5 bytes, not 28672");
    refused(&[0; 28672], "begins with 0x0");
    let mut page = [0; 28672];
    page[..8].copy_from_slice(b"SELKSHM\x01");
    page[8] = 9;
    refused(&page, "version 9");
}

#[test]
fn files_of_dead_nodes_are_removed_and_no_caller_waits_for_that() {
    let root = root();
    let (shm, endpoint, region) = here(&root);
    assert!(shm.remove_peer(THERE), "there is nothing to remove");
    let mut other = Other::start("lend", root.path(), region.key());
    let key = key_said(&mut other);
    assert!(!shm.remove_peer(THERE), "it lives");
    let queue_pair = endpoint.connect(THERE).unwrap();
    assert_eq!(post(&*queue_pair, Verb::fetch_and_add(RemoteAddr::new(key, 8), 0)), Ok(77));

    other.signal(Signal::KILL);
    other.child.wait().unwrap();
    let lock = std::fs::File::open(root.path().join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let started = Instant::now();
    assert!(!shm.remove_peer(THERE), "a process joins, and stands still");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(names(&root), ["cn0", "lock", "mem0"]);
    // Not by closing it: a child that another test is just starting has the file open, too.
    flock(&lock, FlockOperation::Unlock).unwrap();
    assert!(shm.remove_peer(THERE));
    assert_eq!(names(&root), ["lock", "mem0"]);
}

#[test]
fn joins_that_were_cut_short_leave_nothing() {
    let root = root();
    for name in [".new-cn0-12", ".gone-mem0-7"] {
        std::fs::create_dir(root.path().join(name)).unwrap();
        std::fs::write(root.path().join(name).join("region-0"), b"old").unwrap();
    }
    let (_shm, endpoint, region) = here(&root);
    assert_eq!(names(&root), ["lock", "mem0"]);
    drop((endpoint, region));
    assert_eq!(names(&root), ["lock"]);
}

/// The names under the root, in order.
fn names(root: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(root.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
