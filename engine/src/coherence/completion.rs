//! Completes the latch operations of lines: what was found, and what it says of page and line.

use selkie_fabric::{Chain, ChainError, FabricError};

use super::chains::{NOTHING_FOUND, found_word};
use super::machine::{Event, Inquiry, Phase, WordAccess};
use super::open_line::OpenLine;
use super::word::LatchWord;
use crate::cache::frame::FrameId;
use crate::core::Core;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

impl Core {
    /// The operation that took a copy along is over.
    pub(crate) fn write_done(&self, open: &mut OpenLine) {
        open.going_home.oldest_change = 0;
        if std::mem::take(&mut open.going_home.copied) {
            self.cache.end_copy();
        }
    }

    /// Has the recovery find out about a memory node that a verb found dead.
    pub(crate) fn note_dead_memory(&self, error: &FabricError) {
        if let FabricError::PeerDead { peer } = error
            && peer.is_memory()
            && self.memory.coded.is_none()
        {
            self.doubt_memory(*peer);
        }
    }

    /// The event of a completed operation; errors end the waits for the line.
    pub(super) fn completed(
        &self,
        addr: GAddr,
        open: &mut OpenLine,
        access: WordAccess,
        result: Result<Chain, Box<ChainError>>,
    ) -> Option<Event> {
        if let Err(failed) = &result {
            // Before the log may be cut short at what this operation took along.
            self.note_dead_memory(&failed.error);
        }
        self.write_done(open);
        match result {
            Ok(chain) => {
                let old = found_word(&chain, access);
                self.note_looks(open, old);
                Some(self.completed_with(open, old))
            }
            Err(failed) if stays_dirty(open.line.phase, &failed.error) => Some(NOTHING_FOUND),
            Err(error) => {
                self.fail_line(addr, open, &EngineError::Fabric(error.error));
                None
            }
        }
    }

    /// Takes note of what the word was. What follows a look says nothing new.
    pub(crate) fn note_looks(&self, open: &mut OpenLine, old: LatchWord) {
        let looks = open.line.phase.looks();
        if !std::mem::replace(&mut open.looked, looks) {
            self.telemetry.contention.learn(self.me, open.line.phase, old);
        }
    }

    /// The event of an operation whose atomic found `old`.
    pub(crate) fn completed_with(&self, open: &OpenLine, old: LatchWord) -> Event {
        // Whatever was written back is home now; whatever was read is what home has.
        let Some(id) = open.frame else { return Event::Completed { old } };
        match open.line.phase {
            // What home has of a line that a dead node granted may be torn.
            Phase::Claim { .. } if !self.rules.home_first => {
                self.cache.frames.get(id).set_dirty(Dirty::ALL);
            }
            Phase::Claim { .. } | Phase::Inquire { of: Inquiry::Modified, .. }
                if self.rules.home_first =>
            {
                self.cache.frames.get(id).set_dirty(Dirty::ALL);
                self.recovery.claimed.add(self.cache.frames.get(id).addr());
            }
            phase if phase.brings_page_home() => self.is_home(id),
            Phase::Downgrade { .. } | Phase::Rejoin { .. } => self.is_home(id),
            _ => {}
        }
        Event::Completed { old }
    }

    /// All that was changed of a page is home.
    fn is_home(&self, id: FrameId) {
        self.cache.frames.get(id).set_dirty(Dirty::NONE);
        self.cache.frames.get(id).set_unhomed(0);
    }
}

/// Whether a page whose write-back failed like that is still to go home: the copy here is the only
/// one. If its memory node is dead there is no home; if not, this node ends, and its log has the
/// changes.
fn stays_dirty(phase: Phase, failed: &FabricError) -> bool {
    phase == Phase::WriteBack && !matches!(failed, FabricError::PeerDead { .. })
}
