//! Recording of the changes that guards made: the only way from a page to the node's log.

use smallvec::SmallVec;

use selkie_wal::{Change, Dirty, Lsn};

use super::state::Log;
use crate::cache::frame::Frame;

/// A page that was changed under its exclusive latch, which the caller still holds.
pub(crate) struct ChangedPage<'g> {
    pub(crate) frame: &'g Frame,
    /// The page's sequence number before the change.
    pub(crate) psn: u64,
    /// The changed pieces.
    pub(crate) pieces: Dirty,
    /// The changed line.
    pub(crate) line: &'g [u8],
}

impl Log {
    /// Appends one record of changes that are atomic together. Notes in each frame up to where the
    /// log must be durable before the page may leave, and the LSN of its oldest change that is not
    /// home. Does not wait.
    pub(crate) fn record(&self, changed: &[ChangedPage<'_>]) -> Lsn {
        // Before the append: a checkpoint that looks for the oldest change finds this one, or read
        // the end of the log before it.
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
