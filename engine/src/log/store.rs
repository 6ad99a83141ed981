//! Where logs are kept, and read again by others than those who wrote them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::record::{Format, Lsn, Record};
use super::scan::{LogDamage, LogEnd, scan};
use crate::coding::checksum;

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
    /// Makes whole records durable that begin at `at`, where those before ended, the first at [`FIRST_LSN`]. After a
    /// failure the same bytes, or more of them, are given again: what is there of them is overwritten.
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written>;

    /// What lies before `lsn`, the beginning of a record or the end, is not needed for the node's pages any more; from
    /// where the log is kept then.
    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>>;

    /// Bytes that it can keep.
    fn capacity(&self) -> u64;
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

/// A place for the logs of many nodes.
pub trait LogStore: Send + Sync + fmt::Debug {
    /// Begins a log.
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>>;

    /// Where the pieces of a log begin, in order; none: it is not here, or not to be reached from here.
    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>>;

    /// A piece of a log.
    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>>;

    /// A log is not needed any more. One that is not here is none.
    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>>;

    /// All logs that are here.
    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>>;
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
}

/// Shows `visit` all records of a log in order; where they end, or `None` if the log is not there.
///
/// # Errors
/// [`ReadError`], after the records before it have been shown.
pub async fn read_log(
    store: &dyn LogStore,
    owner: LogOwner,
    mut visit: impl FnMut(Record<'_>),
) -> Result<Option<LogEnd>, ReadError> {
    let starts = store.pieces(owner).await?;
    let mut end = None;
    for (number, start) in starts.iter().enumerate() {
        let Piece { place, offset, mut bytes } = store.piece(owner, *start).await?;
        let next = starts.get(number + 1).copied();
        if let Some(next) = next {
            // What lies beyond was tried and given up.
            bytes.truncate((next - start) as usize);
        }
        let scanned = scan(&bytes, *start, owner.format(), &mut visit);
        end = Some(followed_by(scanned, next, (&place, offset, *start))?);
    }
    Ok(end)
}

/// The end of a piece that begins at that offset of its place, and that LSN, and which another follows, or none.
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
        // A piece is begun when all before it is durable.
        Some(next) => {
            Err(damaged(LogDamage { lsn: own.lsn, why: own.then, witness: next, durable: next }))
        }
        None => Ok(own),
    }
}
