//! How often a transaction that met a conflict is tried again.

use std::time::Duration;

use selkie_txn::RetryPolicy;

/// For rows that are loaded. A table begins as one page, and all tasks that load it meet there with
/// transactions of dozens of rows. When none gets by, their attempts must be further apart than all
/// of these transactions take together.
pub(crate) const LOADING: RetryPolicy =
    RetryPolicy { attempts: 500, base: Duration::from_micros(10), cap: Duration::from_millis(64) };

/// For all other transactions. A conflict ends when the other transaction does, so many attempts
/// only mean many others. That of a node that dies ends after its lease and the recovery from it:
/// seconds with the default lease, and more on a busy machine. After some twenty it is an error.
pub(crate) const PATIENCE: RetryPolicy = RetryPolicy {
    attempts: 10_000,
    base: Duration::from_micros(10),
    cap: Duration::from_millis(4),
};
