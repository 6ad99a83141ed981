//! A disk for the logs of a simulated cluster: slow, full for a while, and half written when the
//! node dies that writes.
//!
//! ```text
//! append given --> [its bytes may be there, sector by sector] -- latency --> durable --> reported
//!      ^ the owner may be killed here, ..................... here, ............... or here
//! ```
//! What was given and not reported when its owner died is drawn once, when the log is read: of each
//! sector the new bytes, the old ones, or garbage. What was reported stays. A log lies in pieces,
//! as in files; a new one may not be there yet.
//!
//! The disk outlives its world, so that logs can be read in another one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::{
    FIRST_LSN, LogError, LogOwner, LogStore, Lsn, Piece, ReadError, Sink, Written,
};
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::{Controls, World};
use selkie_fabric::{BoxFuture, PeerId};

/// Bytes that are written whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Bytes of a piece, unless an append takes more.
const PIECE_BYTES: usize = 12 << 10;
/// How long an append takes, and a truncation.
const APPEND_NANOS: Range<u64> = 10_000..300_000;
const TRUNCATE_NANOS: Range<u64> = 1_000..50_000;
/// What the disk is called in errors.
const PLACE: &str = "the simulated disk";

/// When, in an append, its owner is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Before anything is written.
    Before,
    /// When anything may be written.
    Amid,
    /// When all is durable, and nobody has been told.
    After,
}

/// What a disk is like.
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// Where all chance comes from.
    pub seed: u64,
    /// Bytes that a log may keep.
    pub capacity: u64,
    /// Keep also what logs were cut off.
    pub is_archive: bool,
}

/// A disk; clones are the same.
#[derive(Clone)]
pub struct SimDisk(Arc<Shared>);

struct Shared {
    config: DiskConfig,
    random: SplitMix,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    world: Option<Attached>,
    logs: BTreeMap<LogOwner, Log>,
    /// Appends that a node lives to make, and when it dies in the next.
    deaths: BTreeMap<u16, (u64, Stage)>,
    /// Nodes that find the disk full, and when.
    outages: BTreeMap<u16, Range<Duration>>,
}

/// The world whose nodes use the disk.
struct Attached {
    envs: Vec<Env>,
    controls: Controls,
}

/// The log of one node.
#[derive(Default)]
struct Log {
    pieces: BTreeMap<Lsn, Vec<u8>>,
    /// From where it is kept, as far as its owner knows.
    start: Lsn,
    /// Where what is durable ends.
    end: Lsn,
    /// What was given and not reported yet.
    given: Option<(Lsn, Vec<u8>)>,
    /// Where others said that it ends.
    ended: Option<Lsn>,
}

/// What became of a sector.
#[derive(Clone, Copy)]
enum Fate {
    Written,
    Old,
    Garbage,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(config: DiskConfig) -> Self {
        let random = SplitMix::new(config.seed);
        Self(Arc::new(Shared { config, random, state: Mutex::default() }))
    }

    /// From now on the disk is that of so many compute nodes of `world`.
    pub(crate) fn attach(&self, world: &World, compute_nodes: usize) {
        let env_of = |node| world.env_of(PeerId::compute(node as u16));
        let envs = (0..compute_nodes).map(env_of).collect();
        let mut state = self.0.state.lock();
        state.world = Some(Attached { envs, controls: world.controls() });
        state.deaths.clear();
        state.outages.clear();
    }

    /// Compute node `node` is killed in its append of this number, from 1 on.
    pub(crate) fn kill_in_append(&self, node: u16, number: u64, stage: Stage) {
        self.0.state.lock().deaths.insert(node, (number, stage));
    }

    /// Nobody is killed any more.
    pub(crate) fn spare_all(&self) {
        self.0.state.lock().deaths.clear();
    }

    /// Compute node `node` finds the disk full for a while.
    pub(crate) fn fill_up(&self, node: u16, when: Range<Duration>) {
        self.0.state.lock().outages.insert(node, when);
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PLACE)
    }
}

fn failed(what: &'static str, kind: io::ErrorKind) -> LogError {
    LogError::new(what, PLACE, kind.into())
}

impl Shared {
    fn nanos(&self, range: Range<u64>) -> Duration {
        Duration::from_nanos(range.start + self.random.below(range.end - range.start))
    }

    /// When the node is to be killed in the append that it begins.
    fn begin_append(&self, node: u16) -> Option<Stage> {
        let mut state = self.state.lock();
        let (left, stage) = state.deaths.get_mut(&node)?;
        *left = left.saturating_sub(1);
        (*left == 0).then_some(*stage)
    }

    fn is_full_for(&self, node: u16, now: Duration) -> bool {
        self.state.lock().outages.get(&node).is_some_and(|when| when.contains(&now))
    }

    /// Does something to a log; nothing if it was removed.
    fn with<T>(&self, owner: LogOwner, work: impl FnOnce(&mut Log) -> T) -> Option<T> {
        self.state.lock().logs.get_mut(&owner).map(work)
    }

    /// Writes a part of what was given, or all of it, or nothing, and forgets that it was given.
    fn tear(&self, log: &mut Log) {
        let Some((at, bytes)) = log.given.take() else { return };
        let random = &self.random;
        match random.below(6) {
            0 => {}
            1 => log.write(at, &bytes, random, || Fate::Written),
            // Not even its piece.
            2 if !log.has_room(at, bytes.len()) => {}
            _ => log.write(at, &bytes, random, || match random.below(4) {
                0 => Fate::Old,
                1 => Fate::Garbage,
                _ => Fate::Written,
            }),
        }
    }
}

impl Log {
    fn begun() -> Self {
        let pieces = BTreeMap::from([(FIRST_LSN, vec![0; PIECE_BYTES])]);
        Self { pieces, start: FIRST_LSN, end: FIRST_LSN, given: None, ended: None }
    }

    /// Whether the last piece has room for so many bytes there.
    fn has_room(&self, at: Lsn, length: usize) -> bool {
        let last = self.pieces.last_key_value();
        last.is_some_and(|(start, piece)| {
            at >= *start && at - start + length as u64 <= piece.len() as u64
        })
    }

    /// Writes bytes in their place, but for the sectors of which `fate` says otherwise.
    fn write(&mut self, at: Lsn, bytes: &[u8], random: &SplitMix, fate: impl Fn() -> Fate) {
        if !self.has_room(at, bytes.len()) {
            self.pieces.insert(at, vec![0; PIECE_BYTES.max(bytes.len())]);
        }
        let Some((start, piece)) = self.pieces.iter_mut().next_back() else { return };
        let (mut from, mut rest) = ((at - start) as usize, bytes);
        while !rest.is_empty() {
            let in_sector = (SECTOR_BYTES - from % SECTOR_BYTES).min(rest.len());
            let (new, after) = rest.split_at(in_sector);
            if let Some(place) = piece.get_mut(from..from + in_sector) {
                match fate() {
                    Fate::Written => place.copy_from_slice(new),
                    Fate::Old => {}
                    Fate::Garbage => place.fill_with(|| random.next_u64() as u8),
                }
            }
            (from, rest) = (from + in_sector, after);
        }
    }

    /// What lies before `lsn` is not needed; whole pieces of it go.
    fn cut(&mut self, lsn: Lsn, is_archive: bool) -> Lsn {
        if lsn == self.end {
            self.pieces.entry(lsn).or_insert_with(|| vec![0; PIECE_BYTES]);
        }
        let starts = self.pieces.keys().copied().filter(|start| *start <= lsn);
        self.start = starts.max().unwrap_or(self.start).max(self.start);
        if !is_archive {
            let start = self.start;
            self.pieces.retain(|own, _| *own >= start);
        }
        self.start
    }
}

impl LogStore for SimDisk {
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        Box::pin(async move {
            let mut state = self.0.state.lock();
            let env = state.world.as_ref().and_then(|world| {
                let env = world.envs.get(usize::from(owner.node))?;
                Some((env.clone(), world.controls.clone()))
            });
            let (env, controls) =
                env.ok_or_else(|| failed("begin a log on", io::ErrorKind::NotFound))?;
            if state.logs.insert(owner, Log::begun()).is_some() {
                return Err(failed("begin a log twice on", io::ErrorKind::AlreadyExists));
            }
            let disk = Arc::clone(&self.0);
            Ok(Arc::new(SimSink { disk, owner, env, controls }) as Arc<dyn Sink>)
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let starts = self.0.with(owner, |log| {
                self.0.tear(log);
                log.pieces.keys().copied().collect()
            });
            Ok(starts.unwrap_or_default())
        })
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let bytes = self.0.with(owner, |log| log.pieces.get(&start).cloned()).flatten();
            let bytes = bytes.ok_or_else(|| failed("read", io::ErrorKind::NotFound))?;
            Ok(Piece { place: PLACE.into(), offset: 0, bytes })
        })
    }

    fn end_at(&self, owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        Box::pin(async move {
            let said = self.0.with(owner, |log| *log.ended.get_or_insert(end));
            Ok(said.ok_or_else(|| failed("end a log on", io::ErrorKind::NotFound))?)
        })
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        Box::pin(async move { Ok(self.0.with(owner, |log| log.ended).flatten()) })
    }

    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            if !self.0.config.is_archive {
                self.0.state.lock().logs.remove(&owner);
            }
            Ok(())
        })
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        Box::pin(async { Ok(self.0.state.lock().logs.keys().copied().collect()) })
    }
}

/// A log that is being written.
struct SimSink {
    disk: Arc<Shared>,
    owner: LogOwner,
    env: Env,
    controls: Controls,
}

impl SimSink {
    /// Kills the owner, whose task this is.
    async fn die(&self) {
        self.controls.kill(PeerId::compute(self.owner.node));
        std::future::pending().await
    }

    async fn write(&self, at: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        let (disk, owner) = (&self.disk, self.owner);
        let gone = || failed("write to", io::ErrorKind::NotFound);
        let (stage, took) = (disk.begin_append(owner.node), disk.nanos(APPEND_NANOS));
        if stage == Some(Stage::Before) {
            self.die().await;
        }
        let kept = disk.with(owner, |log| {
            log.given = Some((at, bytes.to_vec()));
            at + bytes.len() as u64 - log.start
        });
        let kept = kept.ok_or_else(gone)?;
        self.env.sleep(took / 2).await;
        if stage == Some(Stage::Amid) {
            self.die().await;
        }
        self.env.sleep(took / 2).await;
        if kept > disk.config.capacity || disk.is_full_for(owner.node, self.env.now()) {
            disk.with(owner, |log| disk.tear(log));
            return Err(failed("write to", io::ErrorKind::StorageFull));
        }
        let written = disk.with(owner, |log| {
            let given = log.given.take().is_some();
            assert!(given, "the log of {owner:?} was read while it was written");
            log.write(at, bytes, &disk.random, || Fate::Written);
            log.end = at + bytes.len() as u64;
        });
        written.ok_or_else(gone)?;
        if stage == Some(Stage::After) {
            self.die().await;
        }
        Ok(())
    }
}

impl Sink for SimSink {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let result = self.write(at, &bytes).await;
            Written { bytes, result }
        })
    }

    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            self.env.sleep(self.disk.nanos(TRUNCATE_NANOS)).await;
            let is_archive = self.disk.config.is_archive;
            let start = self.disk.with(self.owner, |log| log.cut(lsn, is_archive));
            start.ok_or_else(|| failed("cut a log on", io::ErrorKind::NotFound))
        })
    }

    fn capacity(&self) -> u64 {
        self.disk.config.capacity
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use selkie_fabric::sim::WorldConfig;

    use super::*;
    use crate::cluster::RUN_BOUND;

    const OWNER: LogOwner = LogOwner { pool: 1, node: 0, incarnation: 1, line_bytes: 512 };
    const DURABLE: usize = 700;
    const GIVEN: usize = 4000;

    /// What is read of a log of which one append was durable and one was not when its owner died.
    fn read_after(seed: u64, stage: Stage) -> Vec<u8> {
        let world = World::new(WorldConfig::new(seed));
        let endpoint = world.fabric().join(PeerId::compute(0)).unwrap();
        let disk = SimDisk::new(DiskConfig { seed, capacity: 1 << 20, is_archive: false });
        disk.attach(&world, 1);
        disk.kill_in_append(0, 2, stage);
        let (own, env) = (disk.clone(), world.env_of(endpoint.id()));
        drop(env.spawn("log", async move {
            let sink = own.create(OWNER).await.unwrap();
            sink.append(FIRST_LSN, vec![1; DURABLE]).await.result.unwrap();
            let _ = sink.append(FIRST_LSN + DURABLE as u64, vec![2; GIVEN]).await;
            panic!("it was told of what it did not live to see");
        }));
        let read = async {
            world.env().sleep(Duration::from_millis(1)).await;
            assert!(!world.controls().lives(PeerId::compute(0)));
            let mut all = Vec::new();
            for _ in 0..2 {
                assert_eq!(disk.pieces(OWNER).await.unwrap(), [FIRST_LSN]);
                all.push(disk.piece(OWNER, FIRST_LSN).await.unwrap().bytes);
            }
            assert_eq!(all[0], all[1], "it is drawn once");
            all.remove(0)
        };
        world.run(RUN_BOUND, read).unwrap()
    }

    #[test]
    fn what_was_not_reported_is_there_or_not_sector_by_sector() {
        let mut sectors = BTreeSet::new();
        for seed in 0..100 {
            let read = read_after(seed, Stage::Amid);
            assert!(read[..DURABLE].iter().all(|byte| *byte == 1));
            assert!(read[DURABLE + GIVEN..].iter().all(|byte| *byte == 0));
            // The first sector has durable bytes before.
            let first = read[DURABLE..1024].to_vec();
            for sector in std::iter::once(&first[..]).chain(read[1024..4608].chunks(SECTOR_BYTES)) {
                let is_all = |byte| sector.iter().all(|own| *own == byte);
                sectors.insert(if is_all(2) { 2 } else { u8::from(!is_all(0)) });
            }
            assert!(read_after(seed, Stage::Before)[DURABLE..].iter().all(|byte| *byte == 0));
            let after = read_after(seed, Stage::After);
            assert!(after[DURABLE..DURABLE + GIVEN].iter().all(|byte| *byte == 2));
        }
        assert_eq!(sectors, BTreeSet::from([0, 1, 2]), "new bytes, old ones, garbage");
    }

    #[test]
    fn a_log_is_cut_by_pieces_and_an_archive_keeps_them() {
        for is_archive in [false, true] {
            let world = World::new(WorldConfig::new(1));
            let disk = SimDisk::new(DiskConfig { seed: 1, capacity: 1 << 20, is_archive });
            disk.attach(&world, 1);
            let work = async {
                let sink = disk.create(OWNER).await.unwrap();
                let mut at = FIRST_LSN;
                for number in 0..10 {
                    let bytes = vec![number; PIECE_BYTES / 2];
                    sink.append(at, bytes).await.result.unwrap();
                    at += PIECE_BYTES as u64 / 2;
                }
                let starts = disk.pieces(OWNER).await.unwrap();
                assert_eq!(starts.len(), 5);
                assert_eq!(sink.truncate(starts[2] + 8).await.unwrap(), starts[2]);
                assert_eq!(sink.truncate(starts[1]).await.unwrap(), starts[2]);
                let left = if is_archive { &starts[..] } else { &starts[2..] };
                assert_eq!(disk.pieces(OWNER).await.unwrap(), left);
            };
            world.run(RUN_BOUND, work).unwrap();
        }
    }
}
