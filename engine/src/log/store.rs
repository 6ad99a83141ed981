//! Where logs are kept, and read again by others than those who wrote them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::record::{Format, Lsn, Record};
use super::scan::{LogDamage, LogEnd, scan};
use selkie_pool::checksum;

/// What those who use a pool have to say to each other, by name ([`selkie_pool::Pool::label`]).
pub type Labels = BTreeMap<String, String>;

/// Where every log begins; 0 is no place.
pub const FIRST_LSN: Lsn = 64;

/// Why a log cannot be written or read.
#[derive(Clone, Debug)]
pub struct LogError {
    /// What was tried.
    pub what: &'static str,
    /// With which file or place.
    pub place: PathBuf,
    /// What was met.
    pub source: Arc<std::io::Error>,
}

impl LogError {
    /// What was tried, where, and what was met.
    pub fn new(what: &'static str, place: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self { what, place: place.into(), source: Arc::new(source) }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.place.display(), self.source)
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// Whose log it is. Each incarnation of a node has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogOwner {
    /// The pool's name for itself.
    pub pool: u64,
    /// The compute node.
    pub node: u16,
    /// How many nodes have had its index, it included.
    pub incarnation: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
}

impl LogOwner {
    /// What the records of the log have in common.
    #[must_use]
    pub fn format(&self) -> Format {
        let Self { pool, node, incarnation, line_bytes } = *self;
        let mut name = pool.to_le_bytes().to_vec();
        name.extend_from_slice(&node.to_le_bytes());
        name.extend_from_slice(&incarnation.to_le_bytes());
        Format { line_bytes: line_bytes as usize, salt: checksum(&name) }
    }
}

/// Bytes that may become durable.
#[derive(Debug)]
pub struct Written {
    /// The bytes, for another try or others.
    pub bytes: Vec<u8>,
    /// Whether they are durable.
    pub result: Result<(), LogError>,
}

/// What a log is written to, one append after the other.
pub trait Sink: Send + Sync {
    /// Makes whole records durable that begin at `at`, where those before ended, the first at
    /// [`FIRST_LSN`]. After a failure the very same bytes are given again: what is there of them is
    /// overwritten.
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written>;

    /// What lies before `lsn`, the beginning of a record or the end, is not needed for the node's
    /// pages any more; from where the log is kept then.
    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>>;

    /// Bytes that it can keep.
    fn capacity(&self) -> u64;

    /// Sees to it that what is kept, up to `end`, is kept where it should be, as places come and
    /// go. Nothing is appended meanwhile.
    fn tend(&self, _end: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }
}

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
    pub(super) fn up_to(mut self, next: Option<Lsn>, start: Lsn) -> Self {
        if let Some(next) = next {
            self.bytes.truncate(next.saturating_sub(start) as usize);
        }
        self
    }
}

/// A part of a log: from where a record begins, or the log does, to where another begins, or the
/// log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// From where on; `None`: from the beginning.
    pub from: Option<Lsn>,
    /// Up to where; `None`: to the end.
    pub to: Option<Lsn>,
}

impl Part {
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
        part: Part,
        visit: &'a mut (dyn FnMut(Record<'_>) + Send),
    ) -> BoxFuture<'a, Result<Option<LogEnd>, ReadError>> {
        Box::pin(read_pieces(self, owner, part, visit))
    }

    /// Where a log can be cut into so many parts of about the same length, or fewer, to read them
    /// at the same time.
    fn cuts(&self, owner: LogOwner, parts: usize) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
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
    fn stretch(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(stretch_of(self, owner, from, length))
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

/// Several places as one, to be read: each log is in one of them.
#[derive(Clone, Debug)]
pub struct Joined(pub Vec<Arc<dyn LogStore>>);

impl Joined {
    /// The first place that has a log.
    async fn place_of(&self, owner: LogOwner) -> Result<Option<&dyn LogStore>, ReadError> {
        for store in &self.0 {
            if !store.pieces(owner).await?.is_empty() {
                return Ok(Some(&**store));
            }
        }
        Ok(None)
    }
}

fn not_written() -> LogError {
    let error = std::io::Error::new(std::io::ErrorKind::Unsupported, "they are only read");
    LogError::new("write to", "several places of logs", error)
}

impl LogStore for Joined {
    fn create(&self, _: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        Box::pin(async { Err(not_written()) })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            match self.place_of(owner).await? {
                Some(place) => place.pieces(owner).await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let gone = || LogError::new("find", "a log", std::io::ErrorKind::NotFound.into());
            self.place_of(owner).await?.ok_or_else(gone)?.piece(owner, start).await
        })
    }

    fn end_at(&self, _: LogOwner, _: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        Box::pin(async { Err(not_written().into()) })
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        Box::pin(async move {
            match self.place_of(owner).await? {
                Some(place) => place.ended(owner).await,
                None => Ok(None),
            }
        })
    }

    fn remove(&self, _: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Err(not_written()) })
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        Box::pin(async {
            let mut owners = Vec::new();
            for store in &self.0 {
                owners.extend(store.owners().await?);
            }
            owners.sort();
            owners.dedup();
            Ok(owners)
        })
    }

    /// Those of the last place that has any.
    fn labels(&self, pool: u64) -> BoxFuture<'_, Result<Labels, ReadError>> {
        Box::pin(async move {
            let mut labels = Labels::new();
            for store in &self.0 {
                let own = store.labels(pool).await?;
                labels = if own.is_empty() { labels } else { own };
            }
            Ok(labels)
        })
    }
}

/// Where a node keeps its log, as configured.
#[derive(Clone, Debug)]
pub enum LogTo {
    /// In memory of r + 1 memory nodes, beside the pages: whoever survives the node reads it there.
    Memory,

    /// Elsewhere.
    Store(Arc<dyn LogStore>),
}

/// Why a log cannot be relied on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A part of it is not what it should be.
    #[error("{}: {what}", place.display())]
    Place {
        /// The file or place.
        place: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Records are missing that were durable.
    #[error("{}, from byte {at}: {damage}", place.display())]
    Damaged {
        /// The file or place.
        place: PathBuf,
        /// Where in it.
        at: u64,
        /// What is missing.
        damage: LogDamage,
    },
    /// What was asked for was given up, as the node does not need it any more.
    #[error(
        "{}: it is cut off up to {}, and {from} was asked for",
        place.display(),
        kept.map_or_else(|| "its end".to_owned(), |kept| kept.to_string())
    )]
    Cut {
        /// The file or place.
        place: PathBuf,
        /// From where it was to be read.
        from: Lsn,
        /// From where it is kept, if at all.
        kept: Option<Lsn>,
    },
}

/// Where the pieces of a log begin, in order, each with where what follows it begins, or the log
/// was said to end.
pub(super) async fn pieces_of<S: LogStore + ?Sized>(
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

/// As [`LogStore::stretch`], of the pieces of a log.
async fn stretch_of<S: LogStore + ?Sized>(
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
    store.read(owner, Part::ALL, &mut visit).await
}

async fn read_pieces<S: LogStore + ?Sized>(
    store: &S,
    owner: LogOwner,
    part: Part,
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
pub(super) fn followed_by(
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
