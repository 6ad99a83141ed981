//! What can go wrong between partitions.

use std::time::Duration;

use selkie_channels::ChannelError;

use crate::error::{AbortCause, TxnError};
use crate::transaction::retry::Retryable;

/// A transaction across partitions failed. But for [`Undetermined`](TxnError::Undetermined) and
/// [`Self::Unfinished`] it is, or is about to be, rolled back wherever it was executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// The coordinator's own part failed.
    #[error(transparent)]
    Txn(#[from] TxnError),
    /// A participant met a conflict, or would not vote for it. Run the transaction again.
    #[error("partition {partition} has rolled the transaction back")]
    Refused {
        /// The participant.
        partition: usize,
    },
    /// A participant failed.
    #[error("partition {partition}: {what}")]
    Failed {
        /// The participant.
        partition: usize,
        /// Why.
        what: String,
    },
    /// It has committed, and a participant has not said that it knows.
    #[error("committed, but partition {partition} has not ended it: {what}")]
    Unfinished {
        /// The participant.
        partition: usize,
        /// Why.
        what: String,
    },
    /// A participant has not answered in time.
    #[error("partition {partition} has not answered for {waited:?}")]
    Silent {
        /// The participant.
        partition: usize,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A message could not be sent, or mailboxes not be connected.
    #[error("message to partition {partition}: {source}")]
    Message {
        /// To whom.
        partition: usize,
        /// Why.
        source: ChannelError,
    },
}

impl Retryable for PartitionError {
    fn retry_cause(&self) -> Option<AbortCause> {
        match self {
            Self::Txn(error) => error.retry_cause(),
            Self::Refused { .. } => Some(AbortCause::Conflict),
            _ => None,
        }
    }
}

impl PartitionError {
    /// Whether the same transaction may well succeed when run again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retry_cause().is_some()
    }
}
