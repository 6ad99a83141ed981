//! The settings of a step.

use crate::coherence::word::NodeSet;

/// Bounds and knowledge of a step, and switches by which test builds restore the published
/// protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Cap of a request's priority.
    pub max_priority: u8,
    /// Ask the node that a `NotHeld` names before going back to the word.
    pub follow_hints: bool,
    /// Ask the nodes that the word names. Without it the caller tries the word again, as the
    /// baseline without a cache does; its driver gives every latch up after the last local user.
    pub ask_holders: bool,
    /// Leave this node's bit in the word when a shared copy is evicted.
    pub sticky_bits: bool,
    /// Write a line home when it is handed over. Then home lacks only the changes of the confirmed
    /// holder, which its log has.
    pub home_first: bool,
    /// Dead nodes that latch words may still name: they are not asked.
    pub dead: NodeSet,
    /// A sweep will judge by readers' bits whether a line that a dead node holds has a copy:
    /// readers enter their bits by Join only (`death`).
    pub recovering: bool,
    /// R5's Confirm; the published protocol has none.
    #[cfg(any(test, feature = "planted"))]
    pub confirm: bool,
    /// R2's wait for the reset; the published protocol asks at once.
    #[cfg(any(test, feature = "planted"))]
    pub wait_for_reset: bool,
    /// A holder leaves the carried bit of a dead node to the sweep.
    #[cfg(any(test, feature = "planted"))]
    pub leave_dead_bits: bool,
}

impl Rules {
    /// The rules as designed.
    pub const DESIGNED: Rules = Rules {
        max_priority: 15,
        follow_hints: true,
        ask_holders: true,
        sticky_bits: true,
        home_first: false,
        dead: NodeSet::EMPTY,
        recovering: false,
        #[cfg(any(test, feature = "planted"))]
        confirm: true,
        #[cfg(any(test, feature = "planted"))]
        wait_for_reset: true,
        #[cfg(any(test, feature = "planted"))]
        leave_dead_bits: true,
    };

    pub(super) const fn confirms(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.confirm;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }

    pub(super) const fn waits_for_reset(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.wait_for_reset;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }

    pub(super) const fn leaves_dead_bits(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.leave_dead_bits;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }
}
