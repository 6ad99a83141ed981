//! A log in an object store while it is written.

use std::collections::VecDeque;
use std::sync::Arc;

use object_store::path::Path;
use parking_lot::Mutex;
use selkie_fabric::BoxFuture;

use super::names::{KEPT, mark_of, object_of};
use super::network::StoreNetwork;
use crate::error::LogError;
use crate::header::{HEADER_BYTES, Header};
use crate::lsn::{FIRST_LSN, Lsn};
use crate::owner::LogOwner;
use crate::sink::{Sink, Written};

/// Truncation takes a request, so it waits for this part (1/n) of the capacity.
const AT_ONCE: u64 = 32;

/// Writes the log of a node.
pub(super) struct ObjectSink {
    network: Arc<StoreNetwork>,
    /// Where its objects are.
    log: Path,
    owner: LogOwner,
    capacity: u64,
    objects: Mutex<Objects>,
}

/// The objects of the log.
#[derive(Default)]
struct Objects {
    /// From where it is kept, and from where it was kept before.
    start: Lsn,
    before: Option<Lsn>,
    /// Where the kept objects begin, in order.
    kept: VecDeque<Lsn>,
    end: Lsn,
}

impl ObjectSink {
    pub(super) fn new(
        network: Arc<StoreNetwork>,
        log: Path,
        owner: LogOwner,
        capacity: u64,
    ) -> Self {
        let objects =
            Mutex::new(Objects { start: FIRST_LSN, end: FIRST_LSN, ..Objects::default() });
        Self { network, log, owner, capacity, objects }
    }

    async fn put(&self, start: Lsn, records: &[u8]) -> Result<(), LogError> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize + records.len());
        bytes.extend_from_slice(&Header { owner: self.owner, start }.encode());
        bytes.extend_from_slice(records);
        self.network.put(&object_of(self.log.clone(), start), bytes).await?;
        let mut objects = self.objects.lock();
        objects.end = start + records.len() as u64;
        objects.kept.push_back(start);
        Ok(())
    }

    /// Says that the log is kept from `from` on.
    async fn cut(&self, from: Lsn) -> Result<(), LogError> {
        let mark = |place| mark_of(self.log.clone(), KEPT, place);
        let kept = Header { owner: self.owner, start: from }.encode();
        self.network.put(&mark(from), kept.to_vec()).await?;
        // There are always two: a listing may miss one that is being written and one that is being
        // deleted.
        let old = {
            let mut objects = self.objects.lock();
            let cut = objects.kept.partition_point(|start| *start < from);
            objects.kept.drain(..cut);
            let start = std::mem::replace(&mut objects.start, from);
            objects.before.replace(start)
        };
        if let Some(old) = old {
            // One that stays does no harm: the last one counts.
            let _ = self.network.delete(vec![mark(old)]).await;
        }
        Ok(())
    }
}

impl Sink for ObjectSink {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let result = self.put(at, &bytes).await;
            Written { bytes, result }
        })
    }

    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            let (first, from) = {
                let objects = self.objects.lock();
                let whole = objects.kept.iter().rev().find(|start| **start <= lsn);
                // The whole log is truncated: the next append begins there.
                let from = if lsn == objects.end { Some(&lsn) } else { whole };
                (objects.start, from.copied().unwrap_or(objects.start).max(objects.start))
            };
            if from - first < self.capacity / AT_ONCE {
                return Ok(first);
            }
            self.cut(from).await?;
            Ok(from)
        })
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}
