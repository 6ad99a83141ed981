//! The loss of a line's home: of its latch word, not of its page (docs/design.md, Coded pages).
//!
//! All nodes quiesce the line: they post no operation, send no message, and drop the results of
//! their operations. When all have quiesced, only grants that were sent before can still arrive.
//! When a node has taken those in, it knows what it has: no copy, a shared copy, or the modified
//! page. It enters that in the word at the new home, and the line resumes when all nodes have.
//! Requests and all other answers are dropped: callers begin again.
//!
//! Every write-back that was posted has reached its splits by then, because an operation completes
//! only after that, and a node that does not reach memory that lives never says that it is quiet.
//! The splits at other memory nodes are not lost. One in the place of a dead node (Rejoin) begins
//! with a read of its home, and may not have been posted: it is begun again.

use super::line::Line;
use super::message::Message;
use super::phase::{Inquiry, Phase};
use crate::coherence::word::{ComputeId, NodeSet};

impl Line {
    /// Takes in a message that was sent before the line was quiesced. Only grants count: a grant
    /// carries the only copy, or a copy that the grantor counts on.
    pub fn received_at_rest(&mut self, from: ComputeId, message: Message) {
        let granted = match (message, self.phase) {
            (Message::GrantShared, Phase::WaitRead { holder }) if holder == from => Phase::Shared,
            (Message::GrantModified, Phase::WaitWrite { holder }) if holder == from => {
                Phase::Modified
            }
            _ => return,
        };
        self.phase = granted;
        // It may die before it has written the page home, and its confirmation is dropped.
        self.grantor = Some(from);
    }

    /// The line after the loss of its home, once all grants have been taken in: Invalid, Shared or
    /// Modified. It keeps its grantor only if that node is `lost` and had not confirmed: then home
    /// may lack the page.
    #[must_use]
    pub fn without_home(&self, lost: NodeSet) -> Line {
        let phase = match self.phase {
            Phase::Modified
            | Phase::WriteBack
            | Phase::Claim { .. }
            | Phase::Inquire { of: Inquiry::Modified, .. } => Phase::Modified,
            // An intent is lost with the word; the copy is valid as long as no node writes.
            _ if self.readable() => Phase::Shared,
            _ => Phase::Invalid,
        };
        let grantor = match self.phase {
            Phase::Inquire { of: Inquiry::Shared | Inquiry::Modified, dead }
            // What it was writing home may have reached none of its splits.
            | Phase::Rejoin { dead } => Some(dead),
            _ => self.grantor,
        };
        let mut line = Line::resting(phase);
        line.grantor = grantor.filter(|node| lost.contains(*node) && phase != Phase::Invalid);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that granted a copy and died before it was quiet may not have written the page home.
    #[test]
    fn a_grant_that_is_taken_in_at_rest_is_doubted_if_its_grantor_died() {
        let node = |index| ComputeId::new(index).unwrap();
        let grants = [
            (Message::GrantShared, Phase::WaitRead { holder: node(1) }, Phase::Shared),
            (Message::GrantModified, Phase::WaitWrite { holder: node(1) }, Phase::Modified),
        ];
        for (grant, waits, has) in grants {
            let mut line = Line::new();
            line.phase = waits;
            line.received_at_rest(node(2), grant);
            assert_eq!((line.phase, line.grantor), (waits, None), "not the one it waits for");
            line.received_at_rest(node(1), grant);
            let died = line.without_home(NodeSet::EMPTY.with(node(1)));
            assert_eq!((died.phase, died.grantor), (has, Some(node(1))));
            let lives = line.without_home(NodeSet::EMPTY);
            assert_eq!((lives.phase, lives.grantor), (has, None));
        }
    }

    /// The loss of the home may come before the copy is in any split. Its grantor was forgotten, so
    /// that nobody wrote it home after that.
    #[test]
    fn a_copy_whose_way_home_was_cut_short_is_still_doubted() {
        let dead = ComputeId::new(2).unwrap();
        let mut line = Line::new();
        line.phase = Phase::Rejoin { dead };
        let after = line.without_home(NodeSet::EMPTY.with(dead));
        assert_eq!((after.phase, after.grantor), (Phase::Shared, Some(dead)));
    }
}
