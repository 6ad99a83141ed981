//! Names of the objects of a log, and what a listing says of it.

use object_store::path::Path;

use crate::lsn::{FIRST_LSN, Lsn};
use crate::names::SUFFIX;

/// From where a log is kept.
pub(super) const KEPT: &str = "kept-";
/// From where what a log was cut off is kept.
pub(super) const ARCHIVED: &str = "archived-";
/// That a log was removed.
pub(super) const REMOVED: &str = "removed-";

/// What there is of a log, each by its place, in order, and with its size.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) objects: Vec<(Lsn, u64)>,
    pub(super) kept: Vec<(Lsn, u64)>,
    pub(super) archived: Vec<(Lsn, u64)>,
    pub(super) is_removed: bool,
}

impl Listed {
    /// From where it is kept, with what it was cut off or without; `None` if there is no log.
    pub(super) fn from(&self, archives: bool) -> Option<Lsn> {
        let (kept, _) = self.kept.last().filter(|_| !self.is_removed)?;
        let (archived, _) = self.archived.last().unwrap_or(&(FIRST_LSN, 0));
        Some(if archives { *archived.min(kept) } else { *kept })
    }
}

/// In the order of their names objects are in the order of the log.
pub(super) fn object_of(log: Path, start: Lsn) -> Path {
    log.join(format!("{start:020}.{SUFFIX}"))
}

pub(super) fn mark_of(log: Path, name: &str, place: Lsn) -> Path {
    log.join(format!("{name}{place:020}"))
}
