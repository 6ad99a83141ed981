//! Reading what is added to the logs of all nodes while a backup is made.
//!
//! What is read of a log is written to the backup record by record, with places of its own: there
//! it begins where every log does, and has no beginnings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use selkie_pool::PoolError;
use selkie_pool::control::{Member, PoolState};

use super::BackupError;
use super::manifest::BackedUpLog;
use crate::EngineError;
use crate::core::Core;
use crate::join::all_of;
use selkie_wal::{
    FIRST_LSN, LogDamage, LogError, LogObjects, LogOwner, LogStore, Lsn, NoRecord, Piece,
    ReadError, Record, Sink, scan,
};

/// Bytes that are read of a log at a time, unless a record is longer.
const AT_ONCE: u64 = 1 << 20;
/// Bytes of records from which on they are written as an object.
const OBJECT_BYTES: usize = 4 << 20;
/// How often it is looked again where a record should be and is not, as others are behind it: they
/// are written while they are read.
const LOOKS: u32 = 50;
/// How long is waited before that, and before something is written again.
const PAUSE: Duration = Duration::from_millis(10);
/// How often an object is written that the store does not take.
const TRIES: u32 = 5;

/// Writes an object of a backup, some times if need be; the bytes.
pub(super) async fn append(
    core: &Core,
    sink: &dyn Sink,
    at: Lsn,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, LogError> {
    let mut tries = 0;
    loop {
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let written = sink.append(at, bytes).await;
        tries += 1;
        match written.result {
            Ok(()) => return Ok(written.bytes),
            Err(error) if tries >= TRIES => return Err(error),
            Err(_) => bytes = written.bytes,
        }
        core.env.sleep(PAUSE * tries * 10).await;
    }
}

/// The logs of all nodes but this one.
pub(super) struct Logs {
    to: LogObjects,
    followed: Vec<Followed>,
    /// The nodes of each number that are known, or were there before.
    known: BTreeMap<u16, u32>,
}

impl Logs {
    /// Notes where the logs of those end who are in the pool.
    ///
    /// # Errors
    /// [`BackupError::NoLog`] if somebody has none that can be read.
    pub(super) async fn begin(core: &Core, to: &LogObjects) -> Result<Self, BackupError> {
        let state = core.pool.state();
        let mut logs =
            Self { to: to.clone(), followed: Vec::new(), known: state.incarnations.clone() };
        let me = core.index().get();
        for (node, member) in state.compute_nodes.iter().filter(|(node, _)| **node != me) {
            let owner = core.owner_of(*node, member.incarnation);
            let store = core.log_store().ok_or(BackupError::NoLog { node: *node })?;
            let started = core.env.now();
            // Who has just come in may be about to begin it.
            let last = loop {
                if let Some(last) = store.pieces(owner).await?.last() {
                    break *last;
                }
                if core.env.now() - started > core.config.request_timeout {
                    return Err(BackupError::NoLog { node: *node });
                }
                core.env.sleep(PAUSE).await;
            };
            let mut log = Followed::new(owner, last, to.create(owner).await?);
            log.read(core, &*store, false).await?;
            log.start = log.at;
            logs.followed.push(log);
        }
        Ok(logs)
    }

    /// Reads what was added, also to the logs of those who have come in.
    ///
    /// # Errors
    /// [`BackupError::Cut`], or that something cannot be read or written.
    pub(super) async fn follow(&mut self, core: &Core) -> Result<(), BackupError> {
        self.note_who_came(core, &core.pool.state()).await?;
        self.read_on(core).await
    }

    async fn read_on(&mut self, core: &Core) -> Result<(), BackupError> {
        let Some(store) = core.log_store() else { return self.check_alone() };
        let (to, open) = (&self.to, self.followed.iter_mut().filter(|log| !log.is_read()));
        let all = all_of(open.map(|log| log.follow(core, &*store, to))).await;
        all.into_iter().collect()
    }

    /// Reads the logs up to a moment that all nodes mark in them, and those of nodes that are gone
    /// to their ends.
    ///
    /// # Errors
    /// As [`Logs::follow`]; [`BackupError::NoMoment`] if they do not mark one together within the
    /// request timeout.
    pub(super) async fn end(&mut self, core: &Core) -> Result<(), BackupError> {
        let (started, bound) = (core.env.now(), core.pool.state().timing.barrier_bound());
        loop {
            self.follow(core).await?;
            // One that has not begun its log may be long about it, and others would wait for that.
            let is_late = |log: &&Followed| !log.is_over && !log.has_begun;
            let late = self.followed.iter().find(is_late).map(|log| log.owner.node);
            if late.is_none() && self.read_to_moment(core).await? {
                break;
            }
            let waited = core.env.now() - started;
            if waited > core.config.request_timeout {
                return Err(late.map_or_else(
                    || BackupError::NoMoment { node: self.unmarked(), waited },
                    |node| BackupError::NoLog { node },
                ));
            }
            // Others go on for longer than they had to wait.
            core.env.sleep(if late.is_none() { 2 * bound } else { PAUSE }).await;
        }
        for log in &mut self.followed {
            log.write(core).await?;
        }
        Ok(())
    }

    /// A node that has not marked the moment that was announced last.
    fn unmarked(&self) -> Option<u16> {
        let is_unmarked = |log: &&Followed| log.until.is_some() && !log.is_read();
        self.followed.iter().find(is_unmarked).map(|log| log.owner.node)
    }

    /// Announces a moment, and reads the logs up to there; whether that is one to which they all go
    /// together.
    async fn read_to_moment(&mut self, core: &Core) -> Result<bool, BackupError> {
        let until = core.env.now() + core.pool.state().timing.barrier_bound();
        let Some((moment, asked)) = Announced::begin(core).await? else { return Ok(false) };
        let were_over: BTreeSet<LogOwner> =
            self.followed.iter().filter(|log| log.is_over).map(|log| log.owner).collect();
        let is_read = self.until_marked(core, (moment.number, &asked), until).await?;
        let (was_it, now) = (moment.end().await?, latest(core).await?);
        let Some(now) = now.filter(|_| was_it && is_read) else { return Ok(false) };
        // What one has changed after its mark that died may have gone to others before they marked.
        let all_live =
            self.followed.iter().all(|log| were_over.contains(&log.owner) || log.lives(&now));
        let new_ones_live = now.incarnations.iter().all(|(node, last)| {
            asked.incarnations.get(node) == Some(last)
                || now.compute_nodes.get(node).is_some_and(|member| member.incarnation == *last)
        });
        Ok(all_live && new_ones_live)
    }

    /// Reads up to the marks of all who were in the pool when they were asked for; whether they are
    /// there by then.
    async fn until_marked(
        &mut self,
        core: &Core,
        (number, asked): (u64, &PoolState),
        until: Duration,
    ) -> Result<bool, BackupError> {
        self.note_who_came(core, asked).await?;
        for log in &mut self.followed {
            log.until = Some(number);
        }
        loop {
            self.read_on(core).await?;
            let is_late = core.env.now() > until;
            if is_late || self.followed.iter().all(Followed::is_read) {
                return Ok(!is_late);
            }
            core.env.sleep(PAUSE).await;
        }
    }

    /// What was read.
    pub(super) fn parts(&self) -> Vec<BackedUpLog> {
        let part = |log: &Followed| BackedUpLog {
            node: log.owner.node,
            incarnation: log.owner.incarnation,
            start: FIRST_LSN,
            end: log.written,
            read_from: log.start,
            read_to: log.at,
        };
        self.followed.iter().map(part).collect()
    }

    /// Where there are no logs nobody else may be there.
    fn check_alone(&self) -> Result<(), BackupError> {
        match self.followed.first() {
            Some(log) => Err(BackupError::NoLog { node: log.owner.node }),
            None => Ok(()),
        }
    }

    async fn note_who_came(&mut self, core: &Core, state: &PoolState) -> Result<(), BackupError> {
        let me = core.index().get();
        for (node, last) in state.incarnations.iter().filter(|(node, _)| **node != me) {
            let known = self.known.insert(*node, *last).unwrap_or_default();
            for incarnation in known + 1..=*last {
                let owner = core.owner_of(*node, incarnation);
                let sink = self.to.create(owner).await?;
                self.followed.push(Followed::new(owner, FIRST_LSN, sink));
            }
        }
        Ok(())
    }
}

/// A moment that was announced, which is over with this.
struct Announced<'c> {
    core: &'c Core,
    number: u64,
    is_over: bool,
}

impl<'c> Announced<'c> {
    /// Announces a moment; the state that does. `None`: not now.
    async fn begin(core: &'c Core) -> Result<Option<(Self, Arc<PoolState>)>, EngineError> {
        let begun = core.pool.begin_barrier(core.index()).await;
        let begun = not_now(begun)?.flatten();
        Ok(begun.map(|(number, state)| (Self { core, number, is_over: false }, state)))
    }

    /// Ends it; whether it was the announced one until then.
    async fn end(mut self) -> Result<bool, EngineError> {
        let ended = not_now(self.core.pool.end_barrier(self.number).await)?;
        // If that is not known it is told again.
        self.is_over = ended.is_some();
        Ok(ended == Some(true))
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let (pool, number) = (Arc::clone(&self.core.pool), self.number);
            drop(
                self.core.env.spawn("moment", async move { drop(pool.end_barrier(number).await) }),
            );
        }
    }
}

/// The pool's state as it is now; `None`: not now.
async fn latest(core: &Core) -> Result<Option<Arc<PoolState>>, EngineError> {
    not_now(core.pool.latest_state().await)
}

/// What the control plane says; `None` if it is away for a moment.
fn not_now<T>(answer: Result<T, PoolError>) -> Result<Option<T>, EngineError> {
    match answer {
        Err(error) if error.is_retryable() => {
            tracing::debug!(%error, "the control plane is asked again");
            Ok(None)
        }
        answer => Ok(Some(answer?)),
    }
}

/// A log that is followed.
struct Followed {
    owner: LogOwner,
    sink: Arc<dyn Sink>,
    /// From where on it was read, and up to where.
    start: Lsn,
    at: Lsn,
    /// Something of it was there.
    has_begun: bool,
    /// The node has gone, and all of its log was read.
    is_over: bool,
    /// The moment up to whose mark it is to be read, and the last one up to whose mark it was.
    until: Option<u64>,
    marked: Option<u64>,
    /// Records that are to be written, and up to where the log in the backup was.
    records: Vec<u8>,
    written: Lsn,
    copied: Copied,
}

/// Where records of a log are in its copy, which lacks some of them.
#[derive(Default)]
struct Copied {
    /// Stretches without one that it lacks: where each begins, and where in the copy.
    stretches: Vec<(Lsn, Lsn)>,
    /// Where the last one ends.
    end: (Lsn, Lsn),
}

impl Copied {
    /// A record from `lsn` on, of so many bytes, is in the copy behind those before.
    fn note(&mut self, lsn: Lsn, place: Lsn, length: u64) {
        if self.stretches.is_empty() || self.end.0 != lsn {
            self.stretches.push((lsn, place));
        }
        self.end = (lsn + length, place + length);
    }

    /// Where the copy ends of what comes before `lsn`, where a record begins or the log ends.
    fn before(&self, lsn: Lsn) -> Lsn {
        let following = self.stretches.partition_point(|(start, _)| *start < lsn);
        let (_, end) = self.stretches.get(following).copied().unwrap_or(self.end);
        match following.checked_sub(1).and_then(|last| self.stretches.get(last)) {
            Some((start, place)) => end.min(place + (lsn - start)),
            None => FIRST_LSN,
        }
    }
}

/// What came of looking for records.
enum Found {
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

impl Followed {
    fn new(owner: LogOwner, start: Lsn, sink: Arc<dyn Sink>) -> Self {
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
            copied: Copied::default(),
        }
    }

    /// Whether the node is in the pool, and nobody has taken it for dead.
    fn lives(&self, state: &PoolState) -> bool {
        let is_there = |member: &Member| member.incarnation == self.owner.incarnation;
        state.compute_nodes.get(&self.owner.node).is_some_and(is_there)
    }

    /// Whether it was recovered from, or has left.
    fn is_gone(&self, state: &PoolState) -> bool {
        !self.lives(state) && !state.lost.contains_key(&self.owner.node)
    }

    /// Whether nothing more of it is to be read.
    fn is_read(&self) -> bool {
        self.is_over || self.until.is_some() && self.marked == self.until
    }

    /// Reads what was added, and writes it if that is enough for an object.
    async fn follow(
        &mut self,
        core: &Core,
        store: &dyn LogStore,
        to: &LogObjects,
    ) -> Result<(), BackupError> {
        // Looked at first: who has gone by now has written all that counts.
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
    async fn read(
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
                Found::More => length = AT_ONCE,
                Found::Longer => length *= 2,
                Found::Mark => break,
                Found::End if from >= last => break,
                Found::End if self.at > from => {}
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
    fn take(&mut self, piece: &Piece, length: u64, keep: bool) -> Found {
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
            return Found::Mark;
        }
        let is_full = piece.bytes.len() as u64 >= length;
        match scanned.map(|end| end.then) {
            Ok(NoRecord::CutOff | NoRecord::End) if is_full && has_moved => Found::More,
            Ok(NoRecord::CutOff) if is_full => Found::Longer,
            Ok(_) => Found::End,
            Err(_) if has_moved => Found::More,
            Err(damage) => Found::Hole(damage),
        }
    }

    /// Drops what others pass over who make the pages of the node again, as they had read its log
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
    async fn write(&mut self, core: &Core) -> Result<(), BackupError> {
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
    fn hole(&self, found: Found, piece: &Piece, last: Lsn) -> BackupError {
        let place = piece.place.clone();
        BackupError::Read(match found {
            Found::Hole(damage) => ReadError::Damaged { place, at: piece.offset, damage },
            _ => ReadError::Place {
                place,
                what: format!("its records end at {}, and others begin at {last}", self.at),
            },
        })
    }
}

impl Core {
    fn owner_of(&self, node: u16, incarnation: u32) -> LogOwner {
        let (pool, line_bytes) = (self.pool.state().id, self.cache.gcl_bytes() as u32);
        LogOwner { pool, node, incarnation, line_bytes }
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

    fn followed(logs: &LogObjects, at: Lsn) -> Followed {
        let sink = RealRuntime::new(1).unwrap().block_on(logs.create(OWNER)).unwrap();
        Followed::new(OWNER, at, sink)
    }

    #[test]
    fn what_is_taken_over_has_places_of_its_own_and_no_beginnings() {
        let logs = in_memory();
        let mut log = followed(&logs, 7777 * 8);
        let parts = [piece(log.at, 0..7), piece(log.at + 7 * RECORD, 7..20)];
        for piece in &parts {
            assert!(matches!(log.take(piece, 1 << 20, true), Found::End));
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
    fn where_a_copy_ends_of_what_comes_before_a_record_is_known() {
        let mut copied = Copied::default();
        assert_eq!(copied.before(1000), FIRST_LSN);
        // Of 1000..1090 the copy lacks 1030..1050, and what comes before 1010.
        for (lsn, place) in [(1010, 64), (1020, 74), (1050, 84), (1060, 94), (1070, 104)] {
            copied.note(lsn, place, 10);
        }
        assert_eq!(copied.stretches.len(), 2);
        let ends = [(1000, 64), (1010, 64), (1020, 74), (1030, 84), (1040, 84), (1050, 84)];
        for (lsn, end) in ends.into_iter().chain([(1060, 94), (1080, 114), (1090, 114)]) {
            assert_eq!(copied.before(lsn), end, "{lsn}");
        }
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
        assert!(matches!(log.take(&first(100), 100, true), Found::Longer));
        assert!(matches!(log.take(&first(100), 200, true), Found::End), "a torn end");
        let (more, length) = (first(2 * RECORD + 50), 2 * RECORD + 50);
        assert!(matches!(log.take(&more, length, true), Found::More));
        assert_eq!(log.at, FIRST_LSN + 2 * RECORD);
        // A record is not there yet, and others behind it were made when it was durable.
        let mut hole = piece(FIRST_LSN + 2 * RECORD, 2..3).bytes;
        hole.fill(0);
        hole.extend(piece(FIRST_LSN + 3 * RECORD, 3..4).bytes);
        let hole = Piece { place: "log".into(), offset: 0, bytes: hole };
        assert!(matches!(log.take(&hole, 1 << 20, true), Found::Hole(_)));
        assert_eq!(log.at, FIRST_LSN + 2 * RECORD);
    }
}
