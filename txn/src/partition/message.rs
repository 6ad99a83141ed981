//! The messages between partitions, byte by byte.
//!
//! ```text
//! byte 0     1..4   4..8     8..16      16..
//!      +-----+------+--------+----------+---------+
//!      | tag | zero | worker | sequence | payload |
//!      +-----+------+--------+----------+---------+
//! ```
//! Numbers are little-endian. Worker and sequence name a transaction of the coordinator, which is
//! one of the two ends: the sender of what goes to participants, the receiver of what comes from
//! them.

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 16;

/// A transaction across partitions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct TransactionId {
    /// Number of the partition that began it.
    pub(super) coordinator: usize,
    /// Number of the worker there.
    pub(super) worker: u32,
    /// Counts the transactions that began there.
    pub(super) sequence: u64,
}

impl TransactionId {
    /// The number of the coordinator as a column of the ledger.
    #[expect(clippy::expect_used, reason = "partitions are numbered from 0")]
    pub(super) fn coordinator_column(self) -> i32 {
        i32::try_from(self.coordinator).expect("more partitions than an i32 counts")
    }
}

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageKind {
    /// To a participant: execute the request in the payload.
    Execute,
    /// To a participant: vote.
    Prepare,
    /// To a participant: the decision is to commit.
    Commit,
    /// To a participant: roll back.
    Abort,
    /// From a participant: the answer to a request.
    Answer,
    /// From a participant: rolled back, try again.
    Refused,
    /// From a participant: rolled back, or not committed; the payload says why.
    Failed,
    /// From a participant: its vote to commit.
    VoteYes,
    /// From a participant: it has committed.
    Acknowledged,
}

impl MessageKind {
    const ALL: [Self; 9] = [
        Self::Execute,
        Self::Prepare,
        Self::Commit,
        Self::Abort,
        Self::Answer,
        Self::Refused,
        Self::Failed,
        Self::VoteYes,
        Self::Acknowledged,
    ];

    /// Whether it goes from the coordinator to a participant.
    pub(super) const fn is_for_participant(self) -> bool {
        matches!(self, Self::Execute | Self::Prepare | Self::Commit | Self::Abort)
    }
}

/// The header of a message about a transaction.
pub(super) fn encode(kind: MessageKind, id: TransactionId) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = id.worker.to_le_bytes();
    let [e, f, g, h, i, j, k, l] = id.sequence.to_le_bytes();
    // Zero is no tag.
    [1 + kind as u8, 0, 0, 0, a, b, c, d, e, f, g, h, i, j, k, l]
}

/// Decodes a message that `receiver` got from `sender`: its kind, its transaction, its payload.
/// `None` if it is damaged.
pub(super) fn decode(
    bytes: &[u8],
    sender: usize,
    receiver: usize,
) -> Option<(MessageKind, TransactionId, &[u8])> {
    let (header, payload) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [tag, 0, 0, 0, a, b, c, d, sequence @ ..] = *header else { return None };
    let kind = *MessageKind::ALL.get(usize::from(tag).checked_sub(1)?)?;
    let coordinator = if kind.is_for_participant() { sender } else { receiver };
    let worker = u32::from_le_bytes([a, b, c, d]);
    let sequence = u64::from_le_bytes(sequence);
    Some((kind, TransactionId { coordinator, worker, sequence }, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for (kind, tag) in MessageKind::ALL.into_iter().zip(1..) {
            let coordinator = if kind.is_for_participant() { 3 } else { 5 };
            let id = TransactionId { coordinator, worker: 0x0102_0304, sequence: u64::MAX - 7 };
            let bytes = [&encode(kind, id)[..], b"payload"].concat();
            assert_eq!(bytes[..8], [tag, 0, 0, 0, 4, 3, 2, 1]);
            assert_eq!(decode(&bytes, 3, 5), Some((kind, id, &b"payload"[..])));
        }
    }

    #[test]
    fn damaged_headers_are_refused() {
        let id = TransactionId { coordinator: 0, worker: 1, sequence: 2 };
        let good = encode(MessageKind::Acknowledged, id);
        assert!(decode(&good, 1, 0).is_some() && decode(&good[..15], 1, 0).is_none());
        for (at, byte) in [(0, 0), (0, 10), (0, 255), (1, 1), (2, 1), (3, 1)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(decode(&bad, 1, 0), None, "byte {at} is {byte}");
        }
    }
}
