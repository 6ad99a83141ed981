//! Rebuilds pages from the records of several logs.
//!
//! Nodes change a page in turn, so its records lie in several logs, in order in each of them. The
//! page's sequence number orders the records across the logs. A record is applied as a whole, when
//! all its pages are in the state before it: so the pages are consistent with each other at any
//! time. No page leaves a node before its record is durable. Therefore some log always has a record
//! that can be applied next, until all logs are read. If none has, a log lacks records. A caller
//! that accepts the loss also loses the changes that build upon them, and no more: the record that
//! cannot be applied is left out, and so is each record that finds a page without its change.
//!
//! A full-page image, as of a page that was put into a new pool or taken from an archive, has the
//! whole page, and repeats the page's last change. The earlier records may be missing. So when no
//! log has a record to apply, all following full-page images are put in place, and the records that
//! they cover are skipped. From then on the pages are consistent with each other only when all logs
//! are read to their ends. Where loss is accepted, the part of a lost record remains that a
//! full-page image has.

use std::collections::HashSet;

use selkie_pool::GAddr;

use crate::conflict::MergeConflict;
use crate::error::ReadError;
use crate::lsn::Lsn;
use crate::owner::LogOwner;
use crate::pages::Pages;
use crate::record::{NoRecord, Record};
use crate::scan::{LogEnd, scan};
use crate::store::{LogStore, Piece, followed_by, pieces_of};

/// The result of a merge for one log.
#[derive(Clone, Debug)]
pub struct MergedLog {
    /// The owner of the log.
    pub owner: LogOwner,
    /// Records that were applied.
    pub applied: u64,
    /// Records that were left out, as they build upon missing changes.
    pub left_out: u64,
    /// The first record that was left out because another log has other changes of its pages.
    pub fork: Option<(Lsn, MergeConflict)>,
    /// Where its last whole record ends.
    pub end: Lsn,
    /// Why no record follows: [`NoRecord::End`], unless the owner died during a write.
    pub then: NoRecord,
    /// Why records after its end may be missing, if they may.
    pub damage: Option<ReadError>,
}

/// Why logs cannot be merged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MergeError {
    /// A log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The logs contradict each other or lack changes.
    #[error("log of compute node {}-{} at {lsn}: {conflict}", owner.node, owner.incarnation)]
    Conflict {
        /// The log in which the conflict was found.
        owner: LogOwner,
        /// The record.
        lsn: Lsn,
        /// The conflict.
        conflict: MergeConflict,
    },
}

/// Rebuilds pages from the records of logs, which are read piece by piece. With `accept_loss`,
/// records that build upon missing changes are left out.
///
/// # Errors
/// [`MergeError`]; with `accept_loss` only if a log cannot be read at all. Of two different changes
/// of the same state of a page, the one that is read first is then applied.
pub async fn merge(
    store: &dyn LogStore,
    owners: &[LogOwner],
    pages: &mut Pages,
    accept_loss: bool,
) -> Result<Vec<MergedLog>, MergeError> {
    let mut logs = Vec::new();
    for owner in owners {
        logs.push(Reader::open(store, *owner, accept_loss).await?);
    }
    let mut has_begun = false;
    // All changes that are in some log; collected once a change is missing.
    let mut known: Option<HashSet<(GAddr, u64)>> = None;
    loop {
        let mut moved = false;
        for log in &mut logs {
            moved |= log.apply_all(store, pages, accept_loss).await?;
        }
        if moved {
            continue;
        }
        let waiting =
            logs.iter().enumerate().find_map(|(log, reader)| Some((log, reader.waits(pages)?)));
        let Some((log, (owner, lsn, conflict))) = waiting else { break };
        if !has_begun {
            has_begun = true;
            let begin = |record: &Record<'_>| {
                if record.is_full_page_image() {
                    pages.put_full_page_image(record);
                }
            };
            look_ahead(&logs, store, accept_loss, begin).await?;
            continue;
        }
        if !accept_loss {
            return Err(MergeError::Conflict { owner, lsn, conflict });
        }
        if known.is_none() {
            let mut all = HashSet::new();
            let note =
                |record: &Record<'_>| all.extend(record.pages().map(|r| (r.addr(), r.psn())));
            look_ahead(&logs, store, true, note).await?;
            known = Some(all);
        }
        // At least one log waits for a change that no log has.
        let is_known = |addr, psn| known.as_ref().is_some_and(|known| known.contains(&(addr, psn)));
        let misses = |reader: &Reader| match reader.waits(pages) {
            Some((_, _, MergeConflict::Gap { addr, has, .. })) => !is_known(addr, has),
            Some(_) => true,
            None => false,
        };
        // Logs that wait for each other in a circle miss nothing: then the first gives way.
        let stuck = logs.iter().position(misses).unwrap_or(log);
        if let (Some(reader), Some(known)) = (logs.get_mut(stuck), known.as_mut()) {
            reader.leave_out(known);
            reader.fill(store, true).await?;
        }
    }
    Ok(logs.into_iter().map(|log| log.read).collect())
}

/// Shows `visit` all records that were not applied yet.
async fn look_ahead(
    logs: &[Reader],
    store: &dyn LogStore,
    accept_loss: bool,
    mut visit: impl FnMut(&Record<'_>),
) -> Result<(), MergeError> {
    for log in logs {
        let mut ahead = log.clone();
        while let Some(record) = ahead.record() {
            visit(&record);
            ahead.at = record.end();
            ahead.fill(store, accept_loss).await?;
        }
    }
    Ok(())
}

/// A log that is being read.
#[derive(Clone)]
struct Reader {
    read: MergedLog,
    /// Pieces that were not read yet, the next one last, each with its end if that is known.
    pieces: Vec<(Lsn, Option<Lsn>)>,
    /// The piece that is being read, its beginning, and the end of its last whole record.
    bytes: Vec<u8>,
    start: Lsn,
    whole: Lsn,
    /// The next record.
    at: Lsn,
}

impl Reader {
    async fn open(
        store: &dyn LogStore,
        owner: LogOwner,
        accept_loss: bool,
    ) -> Result<Self, MergeError> {
        let mut damage = None;
        let mut pieces = match pieces_of(store, owner).await {
            Err(error) if accept_loss => {
                damage = Some(error);
                Vec::new()
            }
            pieces => pieces?,
        };
        pieces.reverse();
        let first = pieces.last().map_or(0, |(first, _)| *first);
        let then = NoRecord::End;
        let read =
            MergedLog { owner, applied: 0, left_out: 0, fork: None, end: first, then, damage };
        let mut log =
            Self { read, pieces, bytes: Vec::new(), start: first, whole: first, at: first };
        log.fill(store, accept_loss).await?;
        Ok(log)
    }

    /// Reads the next piece, if this one is at its end.
    async fn fill(&mut self, store: &dyn LogStore, accept_loss: bool) -> Result<(), MergeError> {
        while self.at == self.whole && self.read.damage.is_none() {
            let Some((start, next)) = self.pieces.pop() else { return Ok(()) };
            let owner = self.read.owner;
            let fetched = match store.piece(owner, start).await {
                Ok(piece) => self.take((start, next), piece.up_to(next, start)),
                Err(error) => Err(error),
            };
            match fetched {
                Ok(()) => {}
                Err(error) if accept_loss => self.read.damage = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Begins to read a piece.
    fn take(&mut self, (start, next): (Lsn, Option<Lsn>), piece: Piece) -> Result<(), ReadError> {
        let Piece { place, offset, bytes } = piece;
        let mut whole = start;
        let format = self.read.owner.format();
        let scanned = scan(&bytes, start, format, |record| whole = record.end());
        (self.bytes, self.start, self.at, self.whole) = (bytes, start, start, whole);
        self.read.end = whole;
        let LogEnd { then, .. } = followed_by(scanned, next, (&place, offset, start))?;
        self.read.then = then;
        Ok(())
    }

    fn record(&self) -> Option<Record<'_>> {
        let rest = self.bytes.get((self.at - self.start) as usize..)?;
        let is_there = self.at < self.whole;
        is_there.then(|| Record::decode(rest, self.at, self.read.owner.format()).ok()).flatten()
    }

    /// Applies records until one has to wait. Returns whether any was applied.
    async fn apply_all(
        &mut self,
        store: &dyn LogStore,
        pages: &mut Pages,
        accept_loss: bool,
    ) -> Result<bool, MergeError> {
        let mut moved = false;
        while let Some(record) = self.record() {
            let (lsn, end) = (record.lsn(), record.end());
            match pages.apply(&record) {
                Ok(()) => {}
                Err(MergeConflict::Gap { .. }) => break,
                // An earlier recovery could not read it, and nodes continued without it.
                Err(fork @ MergeConflict::Fork { .. }) if accept_loss => {
                    self.read.left_out += 1;
                    self.read.fork.get_or_insert((lsn, fork));
                    (self.at, moved) = (end, true);
                    self.fill(store, true).await?;
                    continue;
                }
                Err(conflict) => {
                    return Err(MergeError::Conflict { owner: self.read.owner, lsn, conflict });
                }
            }
            self.read.applied += 1;
            (self.at, moved) = (end, true);
            self.fill(store, accept_loss).await?;
        }
        Ok(moved)
    }

    /// The change that the next record waits for.
    fn waits(&self, pages: &Pages) -> Option<(LogOwner, Lsn, MergeConflict)> {
        let record = self.record()?;
        let missing = record.pages().find_map(|redo| {
            let (addr, next) = (redo.addr(), redo.psn());
            let has = pages.psn(addr);
            (next > has && !record.is_full_page_image()).then_some(MergeConflict::Gap {
                addr,
                has,
                next,
            })
        })?;
        Some((self.read.owner, record.lsn(), missing))
    }

    /// Leaves out a record: its changes are lost.
    fn leave_out(&mut self, known: &mut HashSet<(GAddr, u64)>) {
        let Some(record) = self.record() else { return };
        for redo in record.pages() {
            known.remove(&(redo.addr(), redo.psn()));
        }
        let end = record.end();
        self.at = end;
        self.read.left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use selkie_fabric::{BoxFuture, RealRuntime};

    use super::*;
    use crate::dirty::Dirty;
    use crate::error::LogError;
    use crate::lsn::FIRST_LSN;
    use crate::record::{Change, Format, encode, encode_as};
    use crate::sink::Sink;

    const LINE: usize = 512;
    const FORMAT: Format = Format { line_bytes: LINE, salt: 0 };
    const ADDR: GAddr = GAddr::from_u64(4 * LINE as u64);
    const OTHER: GAddr = GAddr::from_u64(5 * LINE as u64);

    /// Changes of one page in their order, each as a record; the page after all.
    fn history(changes: u64) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut line = vec![0; LINE];
        let all = (0..changes).map(|psn| {
            line[..8].copy_from_slice(&(psn + 1).to_le_bytes());
            let from = 8 + 8 * (psn as usize * 5 % 50);
            line[from..from + 24].fill(psn as u8 + 1);
            let pieces = Dirty::of(&(from..from + 24), LINE);
            let mut bytes = Vec::new();
            encode(&mut bytes, 0, (0, 0), &[Change { addr: ADDR, psn, pieces, line: &line }]);
            bytes
        });
        (all.collect(), line)
    }

    fn apply(pages: &mut Pages, record: &[u8]) -> Result<(), MergeConflict> {
        pages.apply(&Record::decode(record, 0, FORMAT).unwrap())
    }

    #[test]
    fn a_page_of_some_time_passes_over_what_it_has() {
        let (records, line) = history(30);
        let (_, half) = history(12);
        let mut pages = Pages::new(LINE);
        pages.insert(ADDR, half.into());
        records.iter().for_each(|record| apply(&mut pages, record).unwrap());
        assert_eq!(pages.line(ADDR), Some(&*line));
    }

    #[test]
    fn a_beginning_needs_nothing_before_it() {
        let (records, line) = history(30);
        let (_, half) = history(12);
        let mut whole = Vec::new();
        let change = Change { addr: ADDR, psn: 11, pieces: Dirty::ALL, line: &half };
        encode_as(&mut whole, 0, (0, 0), (&[change], true));
        let mut later = Vec::new();
        encode(&mut later, 0, (0, 0), &[change]);
        let gap = MergeConflict::Gap { addr: ADDR, has: 0, next: 11 };
        assert_eq!(
            apply(&mut Pages::new(LINE), &later),
            Err(gap),
            "a change of the whole page does"
        );
        for before in 0..12 {
            let mut pages = Pages::new(LINE);
            records.iter().take(before).for_each(|record| apply(&mut pages, record).unwrap());
            apply(&mut pages, &whole).unwrap();
            // The records of the others are read only now.
            for record in records.iter().skip(before) {
                apply(&mut pages, record).unwrap();
            }
            assert_eq!(pages.line(ADDR), Some(&*line), "after {before}");
        }
    }

    #[test]
    fn what_was_changed_together_is_made_together_or_not_at_all() {
        let (records, _) = history(3);
        let mut pages = Pages::new(LINE);
        apply(&mut pages, &records[0]).unwrap();
        let lines = [vec![3; LINE], vec![4; LINE]];
        let pieces = Dirty::of(&(16..24), LINE);
        let change = |addr, psn, line| Change { addr, psn, pieces, line };
        let mut both = Vec::new();
        encode(&mut both, 0, (0, 0), &[change(OTHER, 0, &lines[0]), change(ADDR, 2, &lines[1])]);
        assert_eq!(
            apply(&mut pages, &both),
            Err(MergeConflict::Gap { addr: ADDR, has: 1, next: 2 })
        );
        assert_eq!(pages.line(OTHER), None);
        apply(&mut pages, &records[1]).unwrap();
        apply(&mut pages, &both).unwrap();
        assert_eq!(pages.line(OTHER).map(|line| line[16]), Some(3));
        assert_eq!(apply(&mut pages, &records[2]), Err(MergeConflict::Fork { addr: ADDR, psn: 2 }));
        assert_eq!((pages.len(), pages.is_empty()), (2, false));
    }

    /// Logs, each in one piece.
    #[derive(Debug)]
    struct Logs(Vec<(LogOwner, Vec<u8>)>);

    impl LogStore for Logs {
        fn create(&self, _: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
            panic!("no test writes")
        }

        fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
            let is_here = self.0.iter().any(|(own, _)| *own == owner);
            Box::pin(async move { Ok(is_here.then_some(FIRST_LSN).into_iter().collect()) })
        }

        fn piece(&self, owner: LogOwner, _: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
            let own = self.0.iter().find(|(own, _)| *own == owner).unwrap();
            let piece = Piece { place: "here".into(), offset: 0, bytes: own.1.clone() };
            Box::pin(async move { Ok(piece) })
        }

        fn remove(&self, _: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
            panic!("no test removes")
        }

        fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
            Box::pin(async { Ok(self.0.iter().map(|(own, _)| *own).collect()) })
        }
    }

    /// Each log has the beginning of one page behind changes that build upon what the other log was
    /// cut off.
    #[test]
    fn logs_that_wait_for_each_others_beginnings_go_on() {
        let (_, line) = history(30);
        let owner = |node| LogOwner { pool: 1, node, incarnation: 1, line_bytes: LINE as u32 };
        let pieces = Dirty::of(&(16..24), LINE);
        let log = |node, first: GAddr, begun: GAddr| {
            let mut bytes = Vec::new();
            let salt = owner(node).format().salt;
            let changed = Change { addr: first, psn: 20, pieces, line: &line };
            encode_as(&mut bytes, salt, (FIRST_LSN, 0), (&[changed], false));
            let end = FIRST_LSN + bytes.len() as u64;
            let change = Change { addr: begun, psn: 29, pieces: Dirty::ALL, line: &line };
            encode_as(&mut bytes, salt, (end, 0), (&[change], true));
            (owner(node), bytes)
        };
        let logs = Logs(vec![log(0, ADDR, OTHER), log(1, OTHER, ADDR)]);
        let runtime = RealRuntime::new(1).unwrap();
        for accept_loss in [false, true] {
            let mut pages = Pages::new(LINE);
            let owners = [owner(0), owner(1)];
            let done = merge(&logs, &owners, &mut pages, accept_loss);
            let read = runtime.block_on(done).unwrap();
            let numbers: Vec<_> = read.iter().map(|log| (log.applied, log.left_out)).collect();
            assert_eq!(numbers, [(2, 0), (2, 0)]);
            let made = [ADDR, OTHER].map(|addr| pages.line(addr).unwrap() == line);
            assert_eq!(made, [true; 2]);
        }
        let alone = Logs(vec![log(0, ADDR, OTHER)]);
        let refused = runtime.block_on(merge(&alone, &[owner(0)], &mut Pages::new(LINE), false));
        let conflict = MergeConflict::Gap { addr: ADDR, has: 0, next: 20 };
        assert!(
            matches!(refused, Err(MergeError::Conflict { conflict: own, .. }) if own == conflict)
        );
    }
}
