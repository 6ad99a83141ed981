//! A line with an operation open, or a waiter: the state that a line at rest does not have.

use super::machine::{Line, LocalUse};
use super::word::ComputeId;
use crate::EngineError;
use crate::access::waiters::Waiters;
use crate::cache::frames::FrameId;
use crate::cache::residual_readers::ResidualReader;
use crate::log::Lsn;

/// A line that is not at rest, or that a local task waits for.
pub(crate) struct OpenLine {
    pub(crate) line: Line,
    pub(crate) frame: Option<FrameId>,
    pub(crate) waiters: Waiters,
    /// Local accesses since a remote request was deferred, shared ones counting 1, exclusive ones
    /// as many as there are threads (A of SELCC §5.3, times threads).
    pub(crate) accesses: u64,
    /// Use of the local copy that the last step was told.
    pub(crate) seen: LocalUse,
    /// An event since the line was opened refused the `nowait` callers.
    pub(crate) refused: bool,
    /// An event since the line was opened changed what waiters may hope for. A caller that is about
    /// to queue was not among those told.
    pub(crate) woken: bool,
    /// What is known of the line's bit in the word, where there is no copy.
    pub(crate) residual: ResidualReader,
    /// What the line allowed when it was opened: to read, to write.
    pub(crate) allowed: (bool, bool),
    /// Its home is lost, and its operation over.
    pub(crate) quiesced: bool,
    /// The last operation was a look at the word.
    pub(crate) looked: bool,
    /// A copy of the page is on its way home.
    pub(crate) copied: bool,
    /// Where the log has the oldest change that is on its way home; 0 if none is.
    pub(crate) homing: Lsn,
    /// A task will let go of the line when its time here is over.
    pub(crate) timed: bool,
    /// What the line was lost for in this step, for a caller who is not among the waiters yet.
    pub(crate) lost: Option<EngineError>,
    /// The page could not be put together: what the word gives this node is given back.
    pub(crate) damaged: Option<EngineError>,
    /// The word names a node that died: the waiters wait for the end of its recovery.
    pub(crate) backs_off: Option<ComputeId>,
    /// The word named this dead node though its recovery is over; if it does so again the line is
    /// lost.
    pub(crate) doubted: Option<ComputeId>,
}

impl OpenLine {
    /// A line that was at rest.
    pub(crate) fn resting(line: Line, frame: Option<FrameId>, residual: ResidualReader) -> Self {
        Self {
            line,
            frame,
            waiters: Waiters::default(),
            accesses: 0,
            seen: LocalUse::Idle,
            refused: false,
            woken: false,
            residual,
            allowed: (false, false),
            quiesced: false,
            looked: false,
            copied: false,
            homing: 0,
            timed: false,
            lost: None,
            damaged: None,
            backs_off: None,
            doubted: None,
        }
    }

    /// Nothing that was in the way of the line is any more.
    pub(crate) fn forget_deaths(&mut self) {
        self.backs_off = None;
        self.doubted = None;
    }
}
