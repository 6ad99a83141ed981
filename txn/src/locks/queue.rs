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
/// already. One that is not to wait enters only a queue in which it has the lock at once. `bury`
/// takes those out who are of nodes that are gone; `most` fit in.
///
/// Where it has shared the lock, it gets a place at the end for itself alone: those behind may hold
/// the lock by now, as they have been let past.
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
    queue.retain(|other| {
        other.owner.txn != request.owner.txn || !other.is_shared() || request.is_shared()
    });
    let own = queue.iter().position(|other| other.owner.txn == request.owner.txn);
    let is_free = !queue.iter().any(|other| other.excludes(&request));
    let has_room = queue.is_empty() || queue.len() < most;
    let at = match own {
        Some(at) => Some(at),
        None if has_room && (waits || is_free) => {
            queue.push(request);
            Some(queue.len() - 1)
        }
        None => None,
    };
    if let Some(own) = at.and_then(|at| queue.get_mut(at)) {
        own.ticket = request.ticket;
    }
    let standing = match at {
        Some(at) if is_held(&queue, at) => Standing::Holds,
        Some(_) => Standing::Waits,
        None => Standing::Absent,
    };
    let change = match queue == before {
        true => ValueChange::Keep,
        false => ValueChange::Set(encode_queue(&queue)),
    };
    (change, standing)
}

/// Whether the request at a place has the lock: none before it excludes it.
fn is_held(queue: &[LockRequest], at: usize) -> bool {
    let Some(own) = queue.get(at) else { return false };
    !queue.iter().take(at).any(|before| before.excludes(own))
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
    let Some(own) = queue.get(at) else { return Standing::Absent };
    let waits = queue.iter().take(at).any(|request| request.excludes(own) && lives(&request.owner));
    match (is_held(queue, at), waits) {
        (true, _) => Standing::Holds,
        (_, true) if queue.iter().all(|request| lives(&request.owner)) => Standing::Waits,
        _ => Standing::BehindTheDead,
    }
}

/// Takes a transaction out of a queue: this request of it only, if one is given.
pub(crate) fn leave(value: Option<&[u8]>, txn: u64, ticket: Option<u32>) -> ValueChange {
    let mut queue = value.map(decode_queue).unwrap_or_default();
    let before = queue.len();
    queue.retain(|other| {
        other.owner.txn != txn || ticket.is_some_and(|ticket| !other.has_ticket(ticket))
    });
    match queue.len() {
        0 => ValueChange::Remove,
        len if len == before => ValueChange::Keep,
        _ => ValueChange::Set(encode_queue(&queue)),
    }
}

/// Lets others share the lock of a transaction that has wanted it for itself alone.
pub(crate) fn share(value: Option<&[u8]>, txn: u64) -> ValueChange {
    let mut queue = value.map(decode_queue).unwrap_or_default();
    match queue.iter_mut().find(|own| own.owner.txn == txn && !own.is_shared()) {
        None => ValueChange::Keep,
        Some(own) => {
            *own = own.to_shared();
            ValueChange::Set(encode_queue(&queue))
        }
    }
}

/// Whether a transaction other than this one holds the lock or waits for it, unless this one holds
/// it.
pub(crate) fn keeps_from(queue: &[LockRequest], txn: u64, lives: impl Fn(&Owner) -> bool) -> bool {
    let first = queue.iter().find(|request| lives(&request.owner));
    first.is_some_and(|first| first.owner.txn != txn)
}

/// The living requests that a transaction waits for: those before its own that exclude it. One that
/// is not in the queue, as that was full, waits for the first one at least: it cannot have the lock
/// before that ends. (One that wants to share it can, if another leaves. It may give up where it
/// would have got a place in time: that is better than a cycle that nobody finds.)
pub(crate) fn before(
    mut queue: Vec<LockRequest>,
    txn: u64,
    lives: impl Fn(&Owner) -> bool,
) -> Vec<LockRequest> {
    let at = queue.iter().position(|other| other.owner.txn == txn);
    let own = at.and_then(|at| queue.get(at).copied());
    queue.truncate(at.unwrap_or(queue.len()));
    queue.retain(|other| lives(&other.owner) && own.is_none_or(|own| own.excludes(other)));
    if own.is_none() {
        queue.truncate(1);
    }
    queue
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "test code")]
mod tests {
    use super::Standing::{Absent, BehindTheDead, Holds, Waits};
    use super::*;

    /// A queue with these requests, of transactions by their numbers.
    fn queue(requests: &[(u64, bool)]) -> Vec<LockRequest> {
        requests.iter().map(|(txn, shared)| request(*txn, *shared)).collect()
    }

    fn request(txn: u64, shared: bool) -> LockRequest {
        let owner = Owner { node: 0, incarnation: 1, txn, age: txn };
        match shared {
            true => LockRequest::shared(owner, txn),
            false => LockRequest::exclusive(owner, txn),
        }
    }

    fn stands(requests: &[(u64, bool)], txn: u64, dead: &[u64]) -> Standing {
        standing(&queue(requests), txn, |owner| !dead.contains(&owner.txn))
    }

    #[test]
    fn those_who_share_hold_a_lock_together_and_others_wait_in_order() {
        let all = [(1, true), (2, true), (3, false), (4, true)];
        let standings = [1, 2, 3, 4, 5].map(|txn| stands(&all, txn, &[]));
        assert_eq!(standings, [Holds, Holds, Waits, Waits, Absent]);
        let waits_for = |txn| {
            let before = before(queue(&all), txn, |_| true);
            before.iter().map(|own| own.owner.txn).collect::<Vec<_>>()
        };
        assert_eq!([2, 3, 4].map(waits_for), [vec![], vec![1, 2], vec![3]]);
        // The dead hold nothing up, once they are out of the queue.
        assert_eq!(stands(&all, 4, &[3]), BehindTheDead);
        assert_eq!(stands(&all[1..], 2, &[3]), Holds);
        assert_eq!(stands(&[(1, false), (2, true)], 2, &[1]), BehindTheDead);
    }

    #[test]
    fn who_is_not_to_wait_enters_where_the_lock_is_to_be_had() {
        let entered = |requests: &[(u64, bool)], shared, waits, most| {
            let value = encode_queue(&queue(requests));
            let value = (!requests.is_empty()).then_some(&*value);
            enter(value, request(9, shared), waits, most, |_| {}).1
        };
        assert_eq!(entered(&[], false, false, 4), Holds);
        assert_eq!(entered(&[(1, true)], true, false, 4), Holds);
        assert_eq!(entered(&[(1, true)], false, false, 4), Absent);
        assert_eq!(entered(&[(1, false)], true, false, 4), Absent);
        assert_eq!(entered(&[(1, true), (2, false)], true, false, 4), Absent);
        assert_eq!(entered(&[(1, true), (2, false)], true, true, 4), Waits);
        assert_eq!(entered(&[(1, true), (2, true)], true, true, 2), Absent);
    }

    #[test]
    fn a_place_in_which_a_lock_is_shared_is_no_place_for_one_alone() {
        let shared = [(1, true), (9, true), (2, true)];
        let entered = |requests: &[(u64, bool)], shared, waits| {
            let value = encode_queue(&queue(requests));
            let (change, standing) = enter(Some(&value), request(9, shared), waits, 4, |_| {});
            let ValueChange::Set(value) = change else { return (Vec::new(), standing) };
            (decode_queue(&value), standing)
        };
        let last = queue(&[(1, true), (2, true), (9, false)]);
        assert_eq!(entered(&shared, false, true), (last, Waits));
        assert_eq!(entered(&shared, false, false), (queue(&[(1, true), (2, true)]), Absent));
        assert_eq!(entered(&[(9, true)], false, false), (queue(&[(9, false)]), Holds));
        assert_eq!(entered(&shared, true, true), (Vec::new(), Holds));
        // Those behind one that is alone have been let past by nobody.
        let before = [(1, false), (9, false), (2, true)];
        assert_eq!(entered(&before, true, true).0, queue(&[(1, false), (9, true), (2, true)]));
    }

    #[test]
    fn a_lock_that_is_shared_later_is_left_by_its_ticket() {
        let value = encode_queue(&queue(&[(1, false), (2, true)]));
        let ValueChange::Set(shared) = share(Some(&value), 1) else { panic!("it is not shared") };
        let requests = decode_queue(&shared);
        assert_eq!(standing(&requests, 2, |_| true), Holds);
        assert!(matches!(share(Some(&shared), 1), ValueChange::Keep));
        for ticket in [request(1, false).ticket, request(1, true).ticket] {
            let ValueChange::Set(left) = leave(Some(&shared), 1, Some(ticket)) else {
                panic!("it is still there");
            };
            assert_eq!(decode_queue(&left), queue(&[(2, true)]));
        }
    }
}
