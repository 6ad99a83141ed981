//! One log that is followed while a backup is made.

use std::sync::Arc;
use std::time::Duration;

use selkie_pool::control::{Member, PoolState};
use selkie_wal::{
    FIRST_LSN, LogDamage, LogObjects, LogOwner, LogStore, Lsn, NoRecord, Piece, ReadError, Record,
    Sink, scan,
};

use super::append::append;
use super::copy_map::CopyMap;
use super::error::BackupError;
use crate::core::Core;

/// Bytes that are read of a log at a time, unless a record is longer.
const AT_ONCE: u64 = 1 << 20;
/// Bytes of records from which on they are written as an object.
const OBJECT_BYTES: usize = 4 << 20;
/// How often it is looked again where a record should be and is not, as others are behind it: they
/// are written while they are read.
const LOOKS: u32 = 50;
/// How long to wait before that.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// A log that is followed.
pub(super) struct FollowedLog {
    pub(super) owner: LogOwner,
    sink: Arc<dyn Sink>,
    /// From where on it was read, and up to where.
    pub(super) start: Lsn,
    pub(super) at: Lsn,
    /// Something of it was there.
    pub(super) has_begun: bool,
    /// The node has gone, and all of its log was read.
    pub(super) is_over: bool,
    /// The barrier up to whose mark it is to be read, and the last one up to whose mark it was.
    pub(super) until: Option<u64>,
    marked: Option<u64>,
    /// Records that are to be written, and up to where the log in the backup was.
    records: Vec<u8>,
    pub(super) written: Lsn,
    copied: CopyMap,
}

/// What came of looking for records.
enum FollowProgress {
    /// There may be more.
    More,
    /// A record that is longer than what was read.
    Longer,
    /// No more records.
    End,
    /// Others come after what is no record.
    Hole(LogDamage),
    /// The mark up to which it was to be read.
    Mark,
}

impl FollowedLog {
    pub(super) fn new(owner: LogOwner, start: Lsn, sink: Arc<dyn Sink>) -> Self {
        Self {
            owner,
            sink,
            start,
            at: start,
            has_begun: false,
            is_over: false,
            until: None,
            marked: None,
            records: Vec::new(),
            written: FIRST_LSN,
            copied: CopyMap::default(),
        }
    }

    /// Whether the node is in the pool, and not declared dead.
    pub(super) fn lives(&self, state: &PoolState) -> bool {
        let is_there = |member: &Member| member.incarnation == self.owner.incarnation;
        state.compute_nodes.get(&self.owner.node).is_some_and(is_there)
    }

    /// Whether it was recovered from, or has left.
    fn is_gone(&self, state: &PoolState) -> bool {
        !self.lives(state) && !state.lost.contains_key(&self.owner.node)
    }

    /// Whether nothing more of it is to be read.
    pub(super) fn is_read(&self) -> bool {
        self.is_over || self.until.is_some() && self.marked == self.until
    }

    /// Reads what was added, and writes it if that is enough for an object.
    pub(super) async fn follow(
        &mut self,
        core: &Core,
        store: &dyn LogStore,
        to: &LogObjects,
    ) -> Result<(), BackupError> {
        // Checked first: a node that is gone by now has written all records that count.
        let is_gone = self.is_gone(&core.pool.state());
        if is_gone {
            // To its end, whatever it has marked.
            self.until = None;
        }
        match self.read(core, store, true).await {
            Ok(()) if is_gone => {
                self.end_early(core, store, to).await?;
                self.is_over = true;
            }
            Ok(()) => {}
            Err(BackupError::Cut { source: ReadError::Cut { kept: None, .. }, .. })
                if !self.has_begun && !is_gone => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads all that is durable when this is called.
    pub(super) async fn read(
        &mut self,
        core: &Core,
        store: &dyn LogStore,
        keep: bool,
    ) -> Result<(), BackupError> {
        // What is durable now is not beyond the last piece that there is now.
        let Some(last) = store.pieces(self.owner).await?.last().copied() else {
            let place = format!("the log of compute node {}", self.owner.node).into();
            return Err(self.cut(ReadError::Cut { place, from: self.at, kept: None }));
        };
        let (mut length, mut holes) = (AT_ONCE, 0);
        loop {
            let from = self.at;
            let piece = store.read_range(self.owner, from, length).await;
            let piece = piece.map_err(|error| self.cut(error))?;
            self.has_begun = true;
            match self.take(&piece, length, keep) {
                FollowProgress::More => length = AT_ONCE,
                FollowProgress::Longer => length *= 2,
                FollowProgress::Mark => break,
                FollowProgress::End if from >= last => break,
                FollowProgress::End if self.at > from => {}
                found => {
                    holes += 1;
                    if holes > LOOKS {
                        return Err(self.hole(found, &piece, last));
                    }
                    core.env.sleep(PAUSE).await;
                }
            }
            if self.records.len() >= OBJECT_BYTES {
                self.write(core).await?;
            }
        }
        Ok(())
    }

    /// Takes over the records that begin where those before ended.
    fn take(&mut self, piece: &Piece, length: u64, keep: bool) -> FollowProgress {
        let (owner, mut records) = (self.owner, std::mem::take(&mut self.records));
        let (written, mut at) = (self.written, self.at);
        let (copied, until, mut marked) = (&mut self.copied, self.until, self.marked);
        let is_marked = |marked: Option<u64>| until.is_some() && marked == until;
        let visit = |record: Record<'_>| {
            if is_marked(marked) {
                return;
            }
            at = record.end();
            marked = record.mark().or(marked);
            if record.mark().is_none() && keep && !record.is_full_page_image() {
                let place = written + records.len() as u64;
                copied.note(record.lsn(), place, record.end() - record.lsn());
                record.copy_to(&mut records, owner.format().salt, (place, written));
            }
        };
        let scanned = scan(&piece.bytes, self.at, owner.format(), visit);
        let has_moved = at > self.at;
        (self.records, self.at, self.marked) = (records, at, marked);
        if is_marked(marked) {
            return FollowProgress::Mark;
        }
        let is_full = piece.bytes.len() as u64 >= length;
        match scanned.map(|end| end.then) {
            Ok(NoRecord::CutOff | NoRecord::End) if is_full && has_moved => FollowProgress::More,
            Ok(NoRecord::CutOff) if is_full => FollowProgress::Longer,
            Ok(_) => FollowProgress::End,
            Err(_) if has_moved => FollowProgress::More,
            Err(damage) => FollowProgress::Hole(damage),
        }
    }

    /// Drops what nodes pass over that make the pages of the node again, as they had read its log
    /// before that was added.
    async fn end_early(
        &mut self,
        core: &Core,
        store: &dyn LogStore,
        to: &LogObjects,
    ) -> Result<(), BackupError> {
        let end = store.end_at(self.owner, self.at).await?;
        if end > self.at {
            let place = format!("the log of compute node {}", self.owner.node).into();
            let what = format!("its records end at {}, and others have read it to {end}", self.at);
            return Err(BackupError::Read(ReadError::Place { place, what }));
        }
        if end == self.at {
            return Ok(());
        }
        tracing::info!(node = self.owner.node, end, read_to = self.at, "it was added too late");
        self.at = end;
        let copied = self.copied.before(end);
        match copied.checked_sub(self.written) {
            Some(left) => self.records.truncate(left as usize),
            None => {
                self.write(core).await?;
                self.written = to.end_at(self.owner, copied).await?;
            }
        }
        Ok(())
    }

    /// Writes what was read.
    pub(super) async fn write(&mut self, core: &Core) -> Result<(), BackupError> {
        let length = self.records.len() as u64;
        let records = std::mem::take(&mut self.records);
        self.records = append(core, &*self.sink, self.written, records).await?;
        self.records.clear();
        self.written += length;
        Ok(())
    }

    fn cut(&self, error: ReadError) -> BackupError {
        match error {
            cut @ ReadError::Cut { .. } => BackupError::Cut { node: self.owner.node, source: cut },
            error => BackupError::Read(error),
        }
    }

    /// Why it cannot be read on.
    fn hole(&self, found: FollowProgress, piece: &Piece, last: Lsn) -> BackupError {
        let place = piece.place.clone();
        BackupError::Read(match found {
            FollowProgress::Hole(damage) => ReadError::Damaged { place, at: piece.offset, damage },
            _ => ReadError::Place {
                place,
                what: format!("its records end at {}, and others begin at {last}", self.at),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::env::RealRuntime;

    use super::*;
    use crate::GAddr;
    use selkie_wal::Dirty;
    use selkie_wal::{Change, encode_as, read_log};

    const LINE: usize = 512;
    const OWNER: LogOwner = LogOwner { pool: 9, node: 3, incarnation: 1, line_bytes: LINE as u32 };
    const RECORD: u64 = 32 + 24 + LINE as u64;

    /// Records of a page each, of which every third is a beginning, as a part of a log that begins
    /// at `at`.
    fn piece(at: Lsn, records: std::ops::Range<u64>) -> Piece {
        let mut bytes = Vec::new();
        for psn in records {
            let line = [psn as u8; LINE];
            let addr = GAddr::from_u64(LINE as u64);
            let change = Change { addr, psn, pieces: Dirty::ALL, line: &line };
            let place = (at + bytes.len() as u64, at);
            let begins = psn.is_multiple_of(3);
            encode_as(&mut bytes, OWNER.format().salt, place, (&[change], begins));
        }
        Piece { place: "log".into(), offset: 0, bytes }
    }

    fn in_memory() -> LogObjects {
        LogObjects::on(Arc::new(object_store::memory::InMemory::new()), "memory", 0).unwrap()
    }

    fn followed(logs: &LogObjects, at: Lsn) -> FollowedLog {
        let sink = RealRuntime::new(1).unwrap().block_on(logs.create(OWNER)).unwrap();
        FollowedLog::new(OWNER, at, sink)
    }

    #[test]
    fn what_is_taken_over_has_places_of_its_own_and_no_beginnings() {
        let logs = in_memory();
        let mut log = followed(&logs, 7777 * 8);
        let parts = [piece(log.at, 0..7), piece(log.at + 7 * RECORD, 7..20)];
        for piece in &parts {
            assert!(matches!(log.take(piece, 1 << 20, true), FollowProgress::End));
        }
        assert_eq!(log.at, 7777 * 8 + 20 * RECORD);
        let mut read = Vec::new();
        RealRuntime::new(1).unwrap().block_on(async {
            let records = std::mem::take(&mut log.records);
            assert_eq!(records.len() as u64, 13 * RECORD);
            log.sink.append(FIRST_LSN, records).await.result.unwrap();
            let visit = |record: Record<'_>| {
                assert!(!record.is_full_page_image());
                read.extend(record.pages().map(|redo| redo.psn()));
            };
            let end = read_log(&logs, OWNER, visit).await.unwrap().unwrap();
            assert_eq!(end.lsn, FIRST_LSN + 13 * RECORD);
        });
        assert_eq!(read, (0..20).filter(|psn| psn % 3 != 0).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_cut_off_by_the_reader_is_read_on_and_what_is_torn_is_not() {
        let logs = in_memory();
        let mut log = followed(&logs, FIRST_LSN);
        let whole = piece(FIRST_LSN, 0..4);
        let first = |length: u64| {
            let bytes = whole.bytes[..length as usize].to_vec();
            Piece { place: "log".into(), offset: 0, bytes }
        };
        assert!(matches!(log.take(&first(100), 100, true), FollowProgress::Longer));
        assert!(matches!(log.take(&first(100), 200, true), FollowProgress::End), "a torn end");
        let (more, length) = (first(2 * RECORD + 50), 2 * RECORD + 50);
        assert!(matches!(log.take(&more, length, true), FollowProgress::More));
        assert_eq!(log.at, FIRST_LSN + 2 * RECORD);
        // A record is not there yet, and others behind it were made when it was durable.
        let mut hole = piece(FIRST_LSN + 2 * RECORD, 2..3).bytes;
        hole.fill(0);
        hole.extend(piece(FIRST_LSN + 3 * RECORD, 3..4).bytes);
        let hole = Piece { place: "log".into(), offset: 0, bytes: hole };
        assert!(matches!(log.take(&hole, 1 << 20, true), FollowProgress::Hole(_)));
        assert_eq!(log.at, FIRST_LSN + 2 * RECORD);
    }
}
