//! The interface of stores of logs, from which other nodes than the writer read them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use selkie_fabric::BoxFuture;

use crate::error::{LogError, ReadError};
use crate::lsn::Lsn;
use crate::owner::LogOwner;
use crate::record::Record;
use crate::scan::{LogDamage, LogEnd, scan};
use crate::sink::Sink;

/// Labels of a pool, by name (`Pool::label`).
pub type Labels = BTreeMap<String, String>;

/// A piece of a log: whole records, and perhaps a torn end.
#[derive(Debug)]
pub struct Piece {
    /// The name of its file or object.
    pub place: PathBuf,
    /// Where its records begin in the file or object.
    pub offset: u64,
    /// The records.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Truncates a piece that begins at `start` at `next`, if that is known. Bytes beyond are of an
    /// append that failed or came too late.
    #[must_use]
    pub fn up_to(mut self, next: Option<Lsn>, start: Lsn) -> Self {
        if let Some(next) = next {
            self.bytes.truncate(next.saturating_sub(start) as usize);
        }
        self
    }
}

/// A part of a log, from the beginning of a record, or of the log, to the beginning of another, or
/// the end of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRange {
    /// From where on; `None`: from the beginning.
    pub from: Option<Lsn>,
    /// Up to where; `None`: to the end.
    pub to: Option<Lsn>,
}

impl LogRange {
    /// All of a log.
    pub const ALL: Self = Self { from: None, to: None };

    fn has(&self, lsn: Lsn) -> bool {
        self.from.is_none_or(|from| from <= lsn) && self.to.is_none_or(|to| lsn < to)
    }
}

/// A place for the logs of many nodes.
pub trait LogStore: Send + Sync + fmt::Debug {
    /// Begins a log.
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>>;

    /// Where the pieces of a log begin, in order. Empty if the log is not here, or not reachable
    /// from here.
    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>>;

    /// A piece of a log.
    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>>;

    /// Shows `visit` the records of a part of a log in order. Returns where they end, or `None` if
    /// the log is not here. Takes memory for one piece at a time.
    ///
    /// # Errors
    /// [`ReadError`], after the records before it have been shown.
    fn read<'a>(
        &'a self,
        owner: LogOwner,
        part: LogRange,
        visit: &'a mut (dyn FnMut(Record<'_>) + Send),
    ) -> BoxFuture<'a, Result<Option<LogEnd>, ReadError>> {
        Box::pin(read_pieces(self, owner, part, visit))
    }

    /// Where to divide a log into at most `parts` parts of about the same length, to read them in
    /// parallel.
    fn split_points(
        &self,
        owner: LogOwner,
        parts: usize,
    ) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let pieces = pieces_of(self, owner).await?;
            let places = (1..parts).map(|part| pieces.len() * part / parts).filter(|at| *at > 0);
            let mut cuts: Vec<Lsn> =
                places.filter_map(|at| pieces.get(at)).map(|(start, _)| *start).collect();
            cuts.dedup();
            Ok(cuts)
        })
    }

    /// Reads bytes of a log that is being written, from `from` on, where a record begins or the log
    /// ends: about `length`, fewer at the end of the log or of a piece. These bytes and the next
    /// ones have all records that were durable at the call. At the end there may be more bytes,
    /// also torn ones, also beyond [`LogStore::ended`]. [`ReadError::Cut`] if the log was truncated
    /// beyond `from`.
    fn read_range(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(read_range_of(self, owner, from, length))
    }

    /// Ends a log at `end`, the end of one of its records, unless it was ended before. Returns
    /// where it ends. A node that was declared dead may still append after recovery has read its
    /// log for the last time; these records do not count.
    ///
    /// A store need not keep the end if such a node cannot append, or if the log is not read again.
    fn end_at(&self, _owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        Box::pin(async move { Ok(end) })
    }

    /// Where a log ends, if it was ended. [`LogStore::pieces`] may have more, which
    /// [`LogStore::read`] skips.
    fn ended(&self, _owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        Box::pin(async { Ok(None) })
    }

    /// Removes a log, if it is here.
    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>>;

    /// All logs that are here.
    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>>;

    /// The truncated pieces of a log that are kept to rebuild a pool from all logs: where each
    /// begins, and its length in bytes.
    fn archived(&self, _owner: LogOwner) -> BoxFuture<'_, Result<Vec<(Lsn, u64)>, ReadError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Deletes archived pieces of a log that begin before `lsn`.
    fn forget(&self, _owner: LogOwner, _lsn: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    /// Keeps a pool's labels beside its logs, to rebuild a pool from them. A store that does not
    /// outlive the pool keeps none.
    fn keep_labels(&self, _pool: u64, _labels: Labels) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    /// The latest labels of a pool; empty if none were kept.
    fn labels(&self, _pool: u64) -> BoxFuture<'_, Result<Labels, ReadError>> {
        Box::pin(async { Ok(Labels::new()) })
    }
}

/// Where the pieces of a log begin, in order, each with its end: the beginning of the next piece,
/// or the end of the log if it was ended.
pub(crate) async fn pieces_of<S: LogStore + ?Sized>(
    store: &S,
    owner: LogOwner,
) -> Result<Vec<(Lsn, Option<Lsn>)>, ReadError> {
    let starts = store.pieces(owner).await?;
    let end = store.ended(owner).await?;
    // A log that was ended at its beginning is a log.
    let count = starts.iter().skip(1).filter(|start| end.is_none_or(|end| **start < end)).count();
    let starts = starts.iter().copied().take(1 + count);
    // If a removal was interrupted, the front of the log is missing.
    let end = end.map(|end| starts.clone().next().map_or(end, |first| end.max(first)));
    let nexts = starts.clone().skip(1).map(Some).chain([end]);
    Ok(starts.zip(nexts).collect())
}

/// As [`LogStore::read_range`], of the pieces of a log.
async fn read_range_of<S: LogStore + ?Sized>(
    store: &S,
    owner: LogOwner,
    from: Lsn,
    length: u64,
) -> Result<Piece, ReadError> {
    let starts = store.pieces(owner).await?;
    let Some(start) = starts.iter().rev().find(|start| **start <= from) else {
        let place = format!("log of compute node {}-{}", owner.node, owner.incarnation).into();
        return Err(ReadError::Cut { place, from, kept: starts.first().copied() });
    };
    let Piece { place, offset, mut bytes } = store.piece(owner, *start).await?;
    if let Some(next) = starts.iter().find(|next| *next > start) {
        bytes.truncate((next - start) as usize);
    }
    let before = bytes.len().min((from - start) as usize);
    bytes.drain(..before);
    bytes.truncate(length as usize);
    Ok(Piece { place, offset: offset + before as u64, bytes })
}

/// As [`LogStore::read`].
///
/// # Errors
/// [`ReadError`], after the records before it have been shown.
pub async fn read_log(
    store: &dyn LogStore,
    owner: LogOwner,
    mut visit: impl FnMut(Record<'_>) + Send,
) -> Result<Option<LogEnd>, ReadError> {
    store.read(owner, LogRange::ALL, &mut visit).await
}

async fn read_pieces<S: LogStore + ?Sized>(
    store: &S,
    owner: LogOwner,
    part: LogRange,
    visit: &mut (dyn FnMut(Record<'_>) + Send),
) -> Result<Option<LogEnd>, ReadError> {
    let mut end = None;
    let pieces = pieces_of(store, owner).await?;
    for (start, next) in pieces.into_iter().filter(|(start, _)| part.has(*start)) {
        let piece = store.piece(owner, start).await?.up_to(next, start);
        let scanned = scan(&piece.bytes, start, owner.format(), &mut *visit);
        end = Some(followed_by(scanned, next, (&piece.place, piece.offset, start))?);
    }
    Ok(end)
}

/// Checks the end of a piece, which begins at this offset of its place and at this LSN, against the
/// beginning of the next piece, or the end of the log.
pub(crate) fn followed_by(
    scanned: Result<LogEnd, LogDamage>,
    next: Option<Lsn>,
    (place, offset, start): (&Path, u64, Lsn),
) -> Result<LogEnd, ReadError> {
    let damaged = |damage: LogDamage| {
        let at = offset + damage.lsn - start;
        ReadError::Damaged { place: place.to_owned(), at, damage }
    };
    let own = scanned.map_err(damaged)?;
    match next.filter(|next| *next != own.lsn) {
        // A piece is begun when all records before it are durable, and a log is ended by a node
        // that has read it.
        Some(next) => {
            Err(damaged(LogDamage { lsn: own.lsn, why: own.then, witness: next, durable: next }))
        }
        None => Ok(own),
    }
}
