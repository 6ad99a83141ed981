//! What becomes of a queue: who enters it, who leaves it, who holds its lock. No tree and no wait,
//! so that the model of the protocol drives the same code.

use selkie_btree::ValueChange;

use crate::locks::entry::{LockRequest, Owner, decode_queue, encode_queue};

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    /// It has the lock.
    Holds,
    /// It waits for others.
    Waits,
    /// It is not in the queue: that is full, or it was not to wait.
    Absent,
    /// Those before it are of nodes that are gone.
    BehindTheDead,
}

/// Enters a request at the end of a queue, or takes it for the same if its transaction is in it
/// already. One that is not to wait enters an empty queue only. `bury` takes those out who are of
/// nodes that are gone; `most` fit in.
pub(crate) fn enter(
    value: Option<&[u8]>,
    request: LockRequest,
    waits: bool,
    most: usize,
    bury: impl FnOnce(&mut Vec<LockRequest>),
) -> (ValueChange, Standing) {
    let before = value.map(decode_queue).unwrap_or_default();
    let mut queue = before.clone();
    bury(&mut queue);
    let own = queue.iter().position(|other| other.owner.txn == request.owner.txn);
    let at = match own {
        Some(at) => Some(at),
        None if queue.is_empty() || (waits && queue.len() < most) => {
            queue.push(request);
            Some(queue.len() - 1)
        }
        None => None,
    };
    if let Some(own) = at.and_then(|at| queue.get_mut(at)) {
        own.ticket = request.ticket;
    }
    let standing = match at {
        Some(0) => Standing::Holds,
        Some(_) => Standing::Waits,
        None => Standing::Absent,
    };
    let change = match queue == before {
        true => ValueChange::Keep,
        false => ValueChange::Set(encode_queue(&queue)),
    };
    (change, standing)
}

/// Where a transaction stands in a queue.
pub(crate) fn standing(
    queue: &[LockRequest],
    txn: u64,
    lives: impl Fn(&Owner) -> bool,
) -> Standing {
    let Some(at) = queue.iter().position(|request| request.owner.txn == txn) else {
        return Standing::Absent;
    };
    let waits = queue.iter().take(at).any(|request| lives(&request.owner));
    match (at, waits) {
        (0, _) => Standing::Holds,
        (_, true) if queue.iter().all(|request| lives(&request.owner)) => Standing::Waits,
        _ => Standing::BehindTheDead,
    }
}

/// Takes a transaction out of a queue: this request of it only, if one is given.
pub(crate) fn leave(value: Option<&[u8]>, txn: u64, ticket: Option<u32>) -> ValueChange {
    let mut queue = value.map(decode_queue).unwrap_or_default();
    let before = queue.len();
    queue.retain(|other| {
        other.owner.txn != txn || ticket.is_some_and(|ticket| other.ticket != ticket)
    });
    match queue.len() {
        0 => ValueChange::Remove,
        len if len == before => ValueChange::Keep,
        _ => ValueChange::Set(encode_queue(&queue)),
    }
}

/// Whether a transaction other than this one holds the lock or waits for it, unless this one holds
/// it.
pub(crate) fn keeps_from(queue: &[LockRequest], txn: u64, lives: impl Fn(&Owner) -> bool) -> bool {
    let first = queue.iter().find(|request| lives(&request.owner));
    first.is_some_and(|first| first.owner.txn != txn)
}

/// The living requests that a transaction waits for: those before its own. One that is not in the
/// queue, as that was full, waits for the holder at least: it cannot have the lock before that
/// ends.
pub(crate) fn before(
    mut queue: Vec<LockRequest>,
    txn: u64,
    lives: impl Fn(&Owner) -> bool,
) -> Vec<LockRequest> {
    let own = queue.iter().position(|other| other.owner.txn == txn);
    queue.truncate(own.unwrap_or(queue.len()));
    queue.retain(|other| lives(&other.owner));
    if own.is_none() {
        queue.truncate(1);
    }
    queue
}
