//! A line with an operation open, or a waiter: the state that a line at rest does not have.

use super::machine::{Line, LocalUse};
use super::word::ComputeId;
use crate::EngineError;
use crate::access::waiters::Waiters;
use crate::cache::frame::FrameId;
use crate::cache::residual_readers::ResidualReader;
use crate::log::Lsn;

/// A line that is not at rest, or that a local task waits for.
pub(crate) struct OpenLine {
    /// State of the coherence machine.
    pub(crate) line: Line,
    pub(crate) frame: Option<FrameId>,
    pub(crate) waiters: Waiters,
    /// Local accesses since a remote request was deferred, shared ones counting 1, exclusive ones
    /// as many as there are threads (A of SELCC §5.3, times threads).
    pub(crate) accesses: u64,
    /// Use of the local copy that the last step was told.
    pub(crate) seen: LocalUse,
    /// This node's bit in the word, as it was noted for a line without a copy.
    pub(crate) residual: ResidualReader,
    pub(crate) effects: StepEffects,
    pub(crate) hold: Hold,
    pub(crate) going_home: GoingHome,
    pub(crate) deaths: DeadHolders,
    /// Its home is lost, and its operation over.
    pub(crate) quiesced: bool,
    /// No operation is outstanding, or the one that is was posted after the line was told of the
    /// last death.
    pub(crate) is_through: bool,
    /// The last operation was a look at the word.
    pub(crate) looked: bool,
    /// Answers that this node has given itself for nodes that have left, since the last rest.
    pub(crate) answers_given: u16,
    /// The page could not be put together: what the word gives this node is given back.
    pub(crate) damaged: Option<EngineError>,
}

/// Effects of the present step, for a caller that is not among the waiters yet.
#[derive(Default)]
pub(crate) struct StepEffects {
    /// The `nowait` callers were refused.
    pub(crate) refused: bool,
    /// The waiters were told to look again.
    pub(crate) woken: bool,
    /// Why the line was lost.
    pub(crate) lost: Option<EngineError>,
}

/// How long the line keeps a right that has just come ([`crate::EngineConfig::hold`]).
#[derive(Default)]
pub(crate) struct Hold {
    /// What the line allowed when the step began: to read, to write.
    pub(crate) allowed: (bool, bool),
    /// A task looks at the line when its time is over.
    pub(crate) timed: bool,
}

/// A page on its way home.
#[derive(Default)]
pub(crate) struct GoingHome {
    /// It is a copy, so that the frame is free.
    pub(crate) copied: bool,
    /// Where the log has the oldest change of it; 0 if no page is on its way.
    pub(crate) oldest_change: Lsn,
}

/// Dead nodes that the word has named.
#[derive(Default)]
pub(crate) struct DeadHolders {
    /// The recovery from this one is under way: the waiters wait for its end.
    pub(crate) backs_off: Option<ComputeId>,
    /// The recovery from this one is over; if the word names it again the line is lost.
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
            residual,
            effects: StepEffects::default(),
            hold: Hold::default(),
            going_home: GoingHome::default(),
            deaths: DeadHolders::default(),
            quiesced: false,
            is_through: true,
            looked: false,
            answers_given: 0,
            damaged: None,
        }
    }

    /// Forgets the dead nodes: the word names them no more.
    pub(crate) fn forget_deaths(&mut self) {
        self.deaths = DeadHolders::default();
    }

    /// Ends all waits for the line with an error, and those of callers in the present step.
    pub(crate) fn lose(&mut self, error: &EngineError) {
        self.waiters.fail_all(error);
        self.effects.lost = Some(error.clone());
    }
}
