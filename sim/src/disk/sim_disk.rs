//! The disk as the nodes of a cluster use it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::{LogError, LogOwner, LogStore, Lsn, Piece, ReadError, Sink};
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::World;
use selkie_fabric::{BoxFuture, PeerId};

use super::log::DiskLog;
use super::sink::SimSink;
use super::state::{AppendStage, Attached, DiskConfig, DiskShared, PLACE, failed};

/// A disk; clones are the same.
#[derive(Clone)]
pub struct SimDisk(Arc<DiskShared>);

impl SimDisk {
    /// An empty disk.
    pub fn new(config: DiskConfig) -> Self {
        let random = SplitMix::new(config.seed);
        Self(Arc::new(DiskShared { config, random, state: Mutex::default() }))
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
    pub(crate) fn kill_in_append(&self, node: u16, number: u64, stage: AppendStage) {
        self.0.state.lock().deaths.insert(node, (number, stage));
    }

    /// The latest incarnation of each node that has a log.
    pub(crate) fn incarnations(&self) -> BTreeMap<u16, u32> {
        let mut all = BTreeMap::new();
        for LogOwner { node, incarnation, .. } in self.0.state.lock().logs.keys() {
            let last = all.entry(*node).or_default();
            *last = (*incarnation).max(*last);
        }
        all
    }

    /// No node is killed from now on.
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
            if state.logs.insert(owner, DiskLog::begun()).is_some() {
                return Err(failed("begin a log twice on", io::ErrorKind::AlreadyExists));
            }
            let disk = Arc::clone(&self.0);
            Ok(Arc::new(SimSink { disk, owner, env, controls }) as Arc<dyn Sink>)
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let starts = self.0.with(owner, |log| {
                log.tear(&self.0.random);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use selkie_engine::log::FIRST_LSN;
    use selkie_fabric::sim::WorldConfig;

    use super::super::log::{PIECE_BYTES, SECTOR_BYTES};
    use super::*;
    use crate::cluster::RUN_BOUND;

    const OWNER: LogOwner = LogOwner { pool: 1, node: 0, incarnation: 1, line_bytes: 512 };
    const DURABLE: usize = 700;
    const GIVEN: usize = 4000;

    /// What is read of a log of which one append was durable and one was not when its owner died.
    fn read_after(seed: u64, stage: AppendStage) -> Vec<u8> {
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
            let read = read_after(seed, AppendStage::Amid);
            assert!(read[..DURABLE].iter().all(|byte| *byte == 1));
            assert!(read[DURABLE + GIVEN..].iter().all(|byte| *byte == 0));
            // The first sector has durable bytes before.
            let first = read[DURABLE..1024].to_vec();
            for sector in std::iter::once(&first[..]).chain(read[1024..4608].chunks(SECTOR_BYTES)) {
                let is_all = |byte| sector.iter().all(|own| *own == byte);
                sectors.insert(if is_all(2) { 2 } else { u8::from(!is_all(0)) });
            }
            assert!(read_after(seed, AppendStage::Before)[DURABLE..].iter().all(|byte| *byte == 0));
            let after = read_after(seed, AppendStage::After);
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
