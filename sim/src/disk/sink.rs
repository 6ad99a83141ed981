//! A log that is being written.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use selkie_engine::log::{LogError, LogOwner, Lsn, Sink, Written};
use selkie_fabric::env::Env;
use selkie_fabric::sim::Controls;
use selkie_fabric::{BoxFuture, PeerId};

use super::log::SectorFate;
use super::state::{AppendStage, DiskShared, failed};

/// How long an append takes, and a truncation.
const APPEND_NANOS: Range<u64> = 10_000..300_000;
const TRUNCATE_NANOS: Range<u64> = 1_000..50_000;

/// A log that is being written.
pub(super) struct SimSink {
    pub(super) disk: Arc<DiskShared>,
    pub(super) owner: LogOwner,
    pub(super) env: Env,
    pub(super) controls: Controls,
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
        if stage == Some(AppendStage::Before) {
            self.die().await;
        }
        let kept = disk.with(owner, |log| {
            log.given = Some((at, bytes.to_vec()));
            at + bytes.len() as u64 - log.start
        });
        let kept = kept.ok_or_else(gone)?;
        self.env.sleep(took / 2).await;
        if stage == Some(AppendStage::Amid) {
            self.die().await;
        }
        self.env.sleep(took / 2).await;
        if kept > disk.config.capacity || disk.is_full_for(owner.node, self.env.now()) {
            disk.with(owner, |log| log.tear(&disk.random));
            return Err(failed("write to", io::ErrorKind::StorageFull));
        }
        let written = disk.with(owner, |log| {
            // It may have been read meanwhile, if this node was taken for dead: what was given is
            // written nevertheless.
            log.given = None;
            log.write(at, bytes, &disk.random, || SectorFate::Written);
            log.end = at + bytes.len() as u64;
        });
        written.ok_or_else(gone)?;
        if stage == Some(AppendStage::After) {
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
