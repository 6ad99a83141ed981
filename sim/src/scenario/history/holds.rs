//! Who held which row lock, from when to when, and what must not have happened meanwhile.
//!
//! A lock is noted after it was had, and noted as let go before anything is done that may release
//! it. So what is noted lies within the true time, and two that overlap did overlap. All events of
//! a run have one order, as it has one thread.
//!
//! *Two rules.* No two transactions hold a lock at a time. No transaction begins to commit a change
//! of a register and has ended that while another holds its locks. An optimistic reader notices a
//! broken lock only as a conflict, so these rules are looked at apart from the history.
//!
//! *Nodes that may end.* A node that is taken for dead loses its locks, and learns of that later
//! than those who get them. What a transaction claims there counts only if it has committed: then
//! its node was in the pool up to its commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{SimError, ensure};

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Locked {
    /// The row of a register.
    Row(u64),
    /// Its tombstone.
    Tombstone(u64),
    /// Both: nobody changes the register.
    Register(u64),
}

/// A time in the order of events.
type Event = u64;

#[derive(Clone, Copy, Debug)]
struct Hold {
    what: Locked,
    /// Which transaction, and where.
    holder: u64,
    node: usize,
    from: Event,
    until: Option<Event>,
}

/// A commit that was acknowledged.
#[derive(Debug)]
struct Change {
    by: u64,
    keys: BTreeSet<u64>,
    begun: Event,
    ended: Event,
}

#[derive(Default)]
struct Events {
    last: Event,
    transactions: u64,
    committed: BTreeSet<u64>,
    holds: Vec<Hold>,
    changes: Vec<Change>,
}

/// The row locks of a run.
#[derive(Default)]
pub(super) struct Holds(Mutex<Events>);

impl Holds {
    fn now(&self) -> Event {
        let mut events = self.0.lock();
        events.last += 1;
        events.last
    }

    /// The notes of a transaction that begins.
    pub(super) fn begin(self: &Arc<Self>, node: usize) -> Holder {
        let mut events = self.0.lock();
        events.transactions += 1;
        let number = events.transactions;
        drop(events);
        let holds = Arc::clone(self);
        let sure = holds.now();
        Holder { holds, number, node, sure, own: BTreeSet::new() }
    }

    /// How many locks were held.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().holds.len()
    }

    /// Fails if a rule was broken. `may_end` says which nodes may have ended.
    pub(super) fn check(&self, may_end: impl Fn(usize) -> bool) -> Result<(), SimError> {
        let events = self.0.lock();
        let mut by_lock: BTreeMap<Locked, Vec<Hold>> = BTreeMap::new();
        let counts = |hold: &&Hold| events.committed.contains(&hold.holder) || !may_end(hold.node);
        for hold in events.holds.iter().filter(counts) {
            by_lock.entry(hold.what).or_default().push(*hold);
        }
        for holds in by_lock.values_mut() {
            holds.sort_by_key(|hold| hold.from);
            for pair in holds.windows(2) {
                if let [one, other] = pair {
                    let is_free = one.until.is_some_and(|until| until < other.from);
                    ensure(is_free || one.holder == other.holder, || {
                        format!("two hold one row lock: {one:?} and {other:?}")
                    })?;
                }
            }
        }
        for change in &events.changes {
            for key in &change.keys {
                let holds = by_lock.get(&Locked::Register(*key)).into_iter().flatten();
                for hold in holds.filter(|hold| hold.holder != change.by) {
                    let within = change.begun > hold.from
                        && hold.until.is_none_or(|until| change.ended < until);
                    ensure(!within, || {
                        format!("register {key} was changed by {change:?} under the lock {hold:?}")
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// What one transaction holds. It is let go with this.
pub(super) struct Holder {
    holds: Arc<Holds>,
    number: u64,
    node: usize,
    /// When it held its locks for sure: an operation that fails gives them back.
    sure: Event,
    own: BTreeSet<Locked>,
}

impl Holder {
    /// The transaction is about to do something, and has all of its locks.
    pub(super) fn steps(&mut self) {
        self.sure = self.holds.now();
    }

    /// It has a lock.
    pub(super) fn has(&mut self, what: Locked) {
        self.add(what);
        let (Locked::Row(key) | Locked::Tombstone(key) | Locked::Register(key)) = what;
        let both = [Locked::Row(key), Locked::Tombstone(key)];
        if both.iter().all(|part| self.own.contains(part)) {
            self.add(Locked::Register(key));
        }
    }

    fn add(&mut self, what: Locked) {
        if self.own.insert(what) {
            let from = self.holds.now();
            let (holder, node, until) = (self.number, self.node, None);
            self.holds.0.lock().holds.push(Hold { what, holder, node, from, until });
        }
    }

    /// It begins to end, and has all of its locks up to now, or up to its last step, as the one
    /// after that has failed. Returns since when they may be given back.
    pub(super) fn ends(&mut self, has_all: bool) -> Event {
        if has_all {
            self.steps();
        }
        self.let_go();
        self.sure
    }

    /// It has committed changes of these registers, which it had begun at `begun`.
    pub(super) fn has_committed(&self, begun: Event, keys: BTreeSet<u64>) {
        let ended = self.holds.now();
        let mut events = self.holds.0.lock();
        events.committed.insert(self.number);
        events.changes.push(Change { by: self.number, keys, begun, ended });
    }

    fn let_go(&mut self) {
        let mut events = self.holds.0.lock();
        let own = |hold: &&mut Hold| hold.holder == self.number && hold.until.is_none();
        for hold in events.holds.iter_mut().filter(own) {
            hold.until = Some(self.sure);
        }
        // Locks that came with an operation that failed in the end.
        events.holds.retain(|hold| hold.until.is_none_or(|until| hold.from <= until));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds() -> Arc<Holds> {
        Arc::default()
    }

    fn locked(holder: &mut Holder, key: u64) {
        holder.has(Locked::Row(key));
        holder.has(Locked::Tombstone(key));
    }

    #[test]
    fn one_after_the_other_is_right_and_both_at_a_time_is_not() {
        let holds = holds();
        let (mut one, mut other) = (holds.begin(0), holds.begin(1));
        locked(&mut one, 7);
        locked(&mut other, 8);
        let begun = one.ends(true);
        locked(&mut other, 7);
        one.has_committed(begun, BTreeSet::from([7]));
        drop(other);
        holds.check(|_| false).unwrap();
        let (mut one, mut other) = (holds.begin(0), holds.begin(1));
        one.has(Locked::Row(9));
        other.has(Locked::Row(9));
        let error = holds.check(|_| false).unwrap_err().to_string();
        assert!(error.contains("two hold one row lock"), "{error}");
        // A node that ends may have lost its lock, unless the transaction has committed.
        holds.check(|node| node == 0).unwrap();
        one.ends(true);
        one.has_committed(0, BTreeSet::new());
        assert!(holds.check(|node| node == 0).is_err());
    }

    #[test]
    fn a_commit_within_the_time_of_a_lock_is_wrong() {
        for (locks_both, is_wrong) in [(true, true), (false, false)] {
            let holds = holds();
            let mut one = holds.begin(0);
            one.has(Locked::Row(7));
            if locks_both {
                one.has(Locked::Tombstone(7));
            }
            let mut other = holds.begin(1);
            let begun = other.ends(true);
            other.has_committed(begun, BTreeSet::from([7]));
            one.steps();
            drop(one);
            assert_eq!(holds.check(|_| false).is_err(), is_wrong);
        }
    }

    #[test]
    fn a_lock_is_held_up_to_the_last_step_that_succeeded() {
        let holds = holds();
        let mut one = holds.begin(0);
        locked(&mut one, 7);
        one.steps();
        // The next operation fails, and has released it when another gets it.
        let mut other = holds.begin(1);
        locked(&mut other, 7);
        drop(one);
        drop(other);
        holds.check(|_| false).unwrap();
    }
}
