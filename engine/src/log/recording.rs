//! Records what guards have changed: the only way from a page to the node's log.

use smallvec::SmallVec;

use selkie_wal::{Change, Dirty, Lsn};

use super::state::Log;
use crate::cache::frames::Frame;

/// A page that was changed under its exclusive latch, which the caller still holds.
pub(crate) struct ChangedPage<'g> {
    pub(crate) frame: &'g Frame,
    /// Its sequence number before the change.
    pub(crate) psn: u64,
    /// The pieces that were changed.
    pub(crate) pieces: Dirty,
    /// The page with its sequence number, as it is now.
    pub(crate) line: &'g [u8],
}

impl Log {
    /// Appends one record of changes that took place together, and notes at each frame up to where
    /// the log has to be durable before the page may leave, and where its oldest change that is not
    /// home stands. Does not wait.
    pub(crate) fn record(&self, changed: &[ChangedPage<'_>]) -> Lsn {
        // Before the record is appended: a task that looks for the oldest change finds this one, or
        // the log ended before it.
        let oldest = self.end();
        for page in changed.iter().filter(|page| page.frame.unhomed() == 0) {
            page.frame.set_unhomed(oldest);
        }
        let changes: SmallVec<[_; 4]> = changed
            .iter()
            .map(|page| Change {
                addr: page.frame.addr(),
                psn: page.psn,
                pieces: page.pieces,
                line: page.line,
            })
            .collect();
        let lsn = self.append(&changes);
        for page in changed {
            page.frame.set_lsn(lsn);
        }
        lsn
    }
}
