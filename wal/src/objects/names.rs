//! Names of the objects of a log, and the result of a listing.

use object_store::path::Path;

use crate::lsn::{FIRST_LSN, Lsn};
use crate::names::SUFFIX;

/// Marks from where a log is kept.
pub(super) const KEPT: &str = "kept-";
/// Marks from where the archive of a log is kept.
pub(super) const ARCHIVED: &str = "archived-";
/// Marks that a log was removed.
pub(super) const REMOVED: &str = "removed-";

/// The objects of a log, each with its place in the log and its size, in order.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) objects: Vec<(Lsn, u64)>,
    pub(super) kept: Vec<(Lsn, u64)>,
    pub(super) archived: Vec<(Lsn, u64)>,
    pub(super) is_removed: bool,
}

impl Listed {
    /// From where the log is kept, with its archive or without; `None` if there is no log.
    pub(super) fn from(&self, archives: bool) -> Option<Lsn> {
        let (kept, _) = self.kept.last().filter(|_| !self.is_removed)?;
        let (archived, _) = self.archived.last().unwrap_or(&(FIRST_LSN, 0));
        Some(if archives { *archived.min(kept) } else { *kept })
    }
}

/// The name of an object. The order of names is the order of the log.
pub(super) fn object_of(log: Path, start: Lsn) -> Path {
    log.join(format!("{start:020}.{SUFFIX}"))
}

pub(super) fn mark_of(log: Path, name: &str, place: Lsn) -> Path {
    log.join(format!("{name}{place:020}"))
}
