//! Errors of a mailbox.

use selkie_fabric::FabricError;
use thiserror::Error;

/// Why a mailbox could not be opened or connected, or did not take or deliver a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// A field of the configuration, or of a peer's descriptor, is out of bounds.
    #[error("{key} = {value} is not allowed: {allowed}")]
    Config {
        /// Field of [`crate::MailboxConfig`] or [`crate::MailboxDescriptor`], or `me`.
        key: &'static str,
        /// What was given.
        value: u64,
        /// What is allowed.
        allowed: String,
    },
    /// A mailbox does not send to itself.
    #[error("mailbox {me} cannot send to itself")]
    ToSelf {
        /// This mailbox.
        me: usize,
    },
    /// The peer's index is beyond this mailbox's slots.
    #[error("peer {peer} is beyond the mailbox's {peers} slots")]
    UnknownPeer {
        /// The index asked for.
        peer: usize,
        /// Slots of this mailbox; indexes are below it.
        peers: usize,
    },
    /// The peer was not connected before the first send to it.
    #[error("peer {to} is not connected")]
    NotConnected {
        /// The receiver.
        to: usize,
    },
    /// The peer is connected already.
    #[error("peer {to} is connected already")]
    AlreadyConnected {
        /// The receiver.
        to: usize,
    },
    /// The message is longer than a mailbox carries.
    #[error("a message of {bytes} bytes is longer than {limit}")]
    MessageTooLong {
        /// Header and payload together.
        bytes: usize,
        /// What a mailbox carries.
        limit: usize,
    },
    /// The receiver's ring and this sender's outbox are both full; the message was not taken.
    #[error("outbox to peer {to} is full with {queued} messages")]
    OutboxFull {
        /// The receiver.
        to: usize,
        /// Messages waiting for room in the receiver's ring.
        queued: usize,
    },
    /// A write to the peer failed, now or earlier. Nothing more is sent to it; messages that were
    /// not delivered, this one included, may or may not arrive.
    #[error("peer {to} is lost")]
    PeerLost {
        /// The receiver.
        to: usize,
        /// What the fabric said.
        source: FabricError,
    },
    /// The ring of a sender holds something that is not a record. Reported once; nothing more is
    /// received from that sender.
    #[error("damaged record from peer {from} at ring offset {offset}: header {word:#018x}")]
    DamagedRecord {
        /// The sender.
        from: usize,
        /// Offset of the header word in the sender's ring, in bytes.
        offset: u64,
        /// The header word found.
        word: u64,
    },
    /// The credit returned by a receiver is impossible. Nothing more is sent to it.
    #[error("damaged credit from peer {to}: {credit} bytes, expected {least} to {most}")]
    DamagedCredit {
        /// The receiver.
        to: usize,
        /// The credit found.
        credit: u64,
        /// The credit it had returned before.
        least: u64,
        /// The bytes sent to it so far.
        most: u64,
    },
    /// The fabric refused to register the mailbox or to connect it.
    #[error("fabric: {0}")]
    Fabric(#[from] FabricError),
}

impl ChannelError {
    /// True if the same call may succeed later without a change by the caller.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::OutboxFull { .. } => true,
            Self::Fabric(source) => source.is_retryable(),
            _ => false,
        }
    }
}
