//! The end of a transaction that is part of the history.

use std::collections::BTreeSet;

use selkie_txn::{AbortCause, Txn, TxnError};

use super::holds::Holder;
use crate::check::serial::Status;
use crate::error::SimError;

/// Commits a transaction that has done what it was to do, or drops it; it has changed these
/// registers. `note` is told how it has ended, unless that is unknown. Returns the conflict if
/// there was one.
///
/// # Errors
/// Every other error of the transaction; [`SimError::NoProgress`] if it has waited in vain: the
/// holder of a page does not give it up, and a retry would fail as well.
pub(super) async fn end(
    (txn, acted): (Txn<'_>, Result<(), TxnError>),
    (mut holder, changes): (Holder, BTreeSet<u64>),
    note: impl FnOnce(Status),
) -> Result<Option<TxnError>, SimError> {
    let begun = holder.ends(acted.is_ok());
    let ended = match acted {
        Ok(()) => txn.commit().await,
        Err(error) => {
            drop(txn);
            Err(error)
        }
    };
    match ended {
        Ok(()) => {
            holder.has_committed(begun, changes);
            note(Status::Committed);
            Ok(None)
        }
        Err(error) if error.is_retryable() => {
            note(Status::Aborted);
            match error.abort_cause() {
                Some(AbortCause::Timeout) => Err(SimError::NoProgress(error.to_string())),
                _ => Ok(Some(error)),
            }
        }
        Err(error) => Err(error.into()),
    }
}
