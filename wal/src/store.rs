//! Where logs are kept, and read again by others than those who wrote them.

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

/// What those who use a pool have to say to each other, by name (`Pool::label`).
pub type Labels = BTreeMap<String, String>;

/// A piece of a log: whole records, and perhaps a torn end.
#[derive(Debug)]
pub struct Piece {
    /// What it is called.
    pub place: PathBuf,
    /// Where its records begin in that.
    pub offset: u64,
    /// They.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Of a piece that begins at `start` what comes before `next`, if that is known: what lies
    /// beyond was tried and given up, or came too late.
    #[must_use]
    pub fn up_to(mut self, next: Option<Lsn>, start: Lsn) -> Self {
        if let Some(next) = next {
            self.bytes.truncate(next.saturating_sub(start) as usize);
        }
        self
    }
}

/// A part of a log: from where a record begins, or the log does, to where another begins, or the
/// log ends.
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

    /// Where the pieces of a log begin, in order; none: it is not here, or not to be reached from
    /// here.
    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>>;

    /// A piece of a log.
    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>>;

    /// Shows `visit` the records of a part of a log in order; where they end, or `None` if the log
    /// is not here. Takes memory for a piece at a time.
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

    /// Where a log can be cut into so many parts of about the same length, or fewer, to read them
    /// at the same time.
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

    /// Bytes of a log that is being written, from `from` on, where a record begins or it ends:
    /// about `length`, fewer at the end of the log or of a piece. All that was durable when this
    /// was called is among them, or what follows has it; at the end there may be more, and torn,
    /// also beyond [`LogStore::ended`]. [`ReadError::Cut`] if the log is kept only from later.
    fn read_range(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(read_range_of(self, owner, from, length))
    }

    /// Says that a log ends at `end`, where a record of it does, unless that was said before:
    /// whoever was taken for dead may add to it when others have read it for the last time, and go
    /// by what they have read. Where it ends.
    ///
    /// A store to which such a one cannot add need not keep that, nor one that nobody reads again.
    fn end_at(&self, _owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        Box::pin(async move { Ok(end) })
    }

    /// Where a log ends, if that was said. [`LogStore::pieces`] may have more, which
    /// [`LogStore::read`] passes over.
    fn ended(&self, _owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        Box::pin(async { Ok(None) })
    }

    /// A log is not needed any more. One that is not here is none.
    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>>;

    /// All logs that are here.
    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>>;

    /// The pieces that a log was cut off of its front and that are kept for whoever makes another
    /// pool of all logs: where each begins and what it takes, bytes.
    fn archived(&self, _owner: LogOwner) -> BoxFuture<'_, Result<Vec<(Lsn, u64)>, ReadError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Archived pieces of a log that begin before `lsn` are not needed any more.
    fn forget(&self, _owner: LogOwner, _lsn: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    /// Keeps a pool's labels beside its logs, for whoever makes another pool of these. A store that
    /// does not outlive the pool keeps none.
    fn keep_labels(&self, _pool: u64, _labels: Labels) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    /// The labels of a pool that were kept last; none if none were.
    fn labels(&self, _pool: u64) -> BoxFuture<'_, Result<Labels, ReadError>> {
        Box::pin(async { Ok(Labels::new()) })
    }
}

/// Where the pieces of a log begin, in order, each with where what follows it begins, or the log
/// was said to end.
pub(crate) async fn pieces_of<S: LogStore + ?Sized>(
    store: &S,
    owner: LogOwner,
) -> Result<Vec<(Lsn, Option<Lsn>)>, ReadError> {
    let starts = store.pieces(owner).await?;
    let end = store.ended(owner).await?;
    // A log of which nothing counts is one.
    let count = starts.iter().skip(1).filter(|start| end.is_none_or(|end| **start < end)).count();
    let starts = starts.iter().copied().take(1 + count);
    // Of one that was removed in part the front is gone.
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

/// The end of a piece that begins at that offset of its place, and that LSN, and which another
/// follows, or the log's end.
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
        // A piece is begun when all before it is durable, and a log was read before it was said to
        // end.
        Some(next) => {
            Err(damaged(LogDamage { lsn: own.lsn, why: own.then, witness: next, durable: next }))
        }
        None => Ok(own),
    }
}
