//! Node identities and the messages that are under way between nodes.

use crate::coherence::machine::Message;
use crate::coherence::word::{ComputeId, MAX_COMPUTE_NODES};

/// The id of the node at this place. The model uses the greatest ids, which are neighbours, so that
/// a carry out of one bit shows in another bit, or in the holder field.
pub(super) fn id(place: usize) -> ComputeId {
    ComputeId::new(MAX_COMPUTE_NODES - 1 - place).unwrap()
}

/// The place of the node with this id.
pub(super) fn place(id: ComputeId) -> usize {
    MAX_COMPUTE_NODES - 1 - id.index()
}

/// Bound of the messages from one node to another: a request, an answer to the other's request, a
/// Confirm. One more is a fault.
const WIRE_LIMIT: usize = 3;

/// A message and, for a grant, whether its page is fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) message: Message,
    pub(super) fresh: bool,
}

/// The messages from one node to another, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wire {
    pub(super) packets: [Packet; WIRE_LIMIT],
    pub(super) len: u8,
}

impl Wire {
    const BLANK: Packet = Packet { message: Message::Confirm, fresh: false };
    pub(super) const EMPTY: Wire = Wire { packets: [Wire::BLANK; WIRE_LIMIT], len: 0 };

    pub(super) fn packets(&self) -> &[Packet] {
        &self.packets[..self.len as usize]
    }

    pub(super) fn first(&self) -> Option<Packet> {
        self.packets().first().copied()
    }

    /// Returns false if the wire is full, which the protocol excludes.
    pub(super) fn push(&mut self, packet: Packet) -> bool {
        let full = self.len as usize == WIRE_LIMIT;
        if !full {
            self.packets[self.len as usize] = packet;
            self.len += 1;
        }
        !full
    }

    pub(super) fn clear(&mut self) {
        *self = Wire::EMPTY;
    }

    /// Loses the last message.
    pub(super) fn lose_last(&mut self) {
        self.len -= 1;
        self.packets[self.len as usize] = Wire::BLANK;
    }

    pub(super) fn pop(&mut self) {
        self.packets.rotate_left(1);
        self.packets[WIRE_LIMIT - 1] = Wire::BLANK;
        self.len -= 1;
    }
}
