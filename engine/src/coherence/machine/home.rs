//! The loss of a line's home: of its latch word, not of its page (DESIGN §7).
//!
//! All nodes come to a stop with the line: they post nothing, send nothing, and what their
//! operations found does not matter any more. Once that is known of all, nothing is under way but
//! grants that were sent before; when those have been taken in, each node knows by itself what it
//! has: nothing, a shared copy, or the page to change. That is what it enters in the word at the
//! new home, and the line goes on when all have. Requests and all other answers are dropped:
//! whoever waited begins anew.
//!
//! What was to be written back by then is written: operations end only after the page has got to
//! its splits, of which those at other nodes are not lost.

use super::{Inquiry, Line, Message, Phase};
use crate::coherence::word::{ComputeId, NodeSet};

impl Line {
    /// Takes in a message that was under way when the line came to a stop. Only grants count: with
    /// them comes the only copy, or what its holder takes for granted.
    pub fn received_at_rest(&mut self, from: ComputeId, message: Message) {
        self.phase = match (message, self.phase) {
            (Message::GrantShared, Phase::WaitRead { holder }) if holder == from => Phase::Shared,
            (Message::GrantModified, Phase::WaitWrite { holder }) if holder == from => {
                Phase::Modified
            }
            (_, phase) => phase,
        };
    }

    /// What the line is at this node once its home was lost and all grants have been taken in:
    /// Invalid, Shared or Modified, and nothing besides; but that one of those who are `lost` has
    /// granted it, and did not say that the page got home.
    #[must_use]
    pub fn without_home(&self, lost: NodeSet) -> Line {
        let phase = match self.phase {
            Phase::Modified
            | Phase::WriteBack
            | Phase::Claim { .. }
            | Phase::Inquire { of: Inquiry::Modified, .. } => Phase::Modified,
            // An intent is as lost as the word; the copy is good as long as nobody writes.
            _ if self.readable() => Phase::Shared,
            _ => Phase::Invalid,
        };
        let grantor = match self.phase {
            Phase::Inquire { of: Inquiry::Shared | Inquiry::Modified, dead } => Some(dead),
            _ => self.grantor,
        };
        let mut line = Line::resting(phase);
        line.grantor = grantor.filter(|node| lost.contains(*node) && phase != Phase::Invalid);
        line
    }
}
