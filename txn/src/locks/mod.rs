//! Locks of rows that wait, across nodes ([`Protocol::Snapshot`](crate::Protocol::Snapshot)).
//!
//! A transaction of that protocol holds nothing between its operations, and changes its rows when
//! it commits. To keep others from a row before that, it locks it: an entry in the *lock tree*, one
//! B-link tree of the database, in the pool. The engine keeps its pages coherent as all others, so
//! there is no lock server, and nothing is lost with a node.
//!
//! | file | duty |
//! |---|---|
//! | [`entry`] | names of locks, queues and waits, as bytes |
//! | [`queue`] | what becomes of a queue: who enters, who leaves, who holds the lock |
//! | [`lock_table`] | the lock tree: to enter a queue, look at it, leave it |
//! | [`advisory`] | locks of numbers, which may be shared, of owners that are no transactions |
//! | [`row_locks`] | what one transaction holds; waiting; release, whatever becomes of it |
//! | [`deadlock`] | who waits for whom, and who gives up |
//! | [`lock_bell`] | wakes the waiters of this node |
//! | [`turns`] | advice, of one node: who goes first at a row that many change |
//! | [`held_turns`] | those of one transaction, and the pages that it keeps from other nodes |
//! | [`wanted`] | what one that loses again and again locks first in its next attempt |
//! | [`wait_counts`] | how often locks and turns were waited for, and for how long |
//!
//! # A queue
//!
//! An entry is a queue of transactions, in one leaf, changed under that leaf's latch: so it has an
//! order, and the first one holds the lock. The others look again from time to time, which is a hit
//! in the cache until the page has changed. An entry of a node that is not in the pool any more is
//! nobody's, and the next that looks removes it. A node is entered only when all others know of
//! it, and no two nodes have the same incarnation, also in a pool that was restored.
//!
//! # Changes of rows that others lock
//!
//! A commit that locks nothing must notice locks, and must not pay for them where there are none.
//! So a leaf is *marked* when a row of its range is locked:
//!
//! ```text
//! locker   1. enters the queue, and is first      committer   a. latches the leaf
//!          2. latches the leaf, marks it                      b. mark? looks at the queue
//!          3. reads the row                                   c. changes the row
//! ```
//! Both latch the leaf. If the locker comes first, the committer finds the mark, and behind it the
//! entry, which was made before: it lets go of its leaves, enters the queue itself, and begins
//! again when it holds the lock. If the committer comes first, the locker reads the changed row.
//! With the mark made before the entry, a committer could come between the two, find no entry and
//! change the row, and one that clears the mark could do so for good.
//!
//! *The mark is cleared* by a committer that holds the leaf, and finds no lock of any row of that
//! tree. A locker that enters later marks the leaf later, too; one that entered earlier was seen.
//!
//! The model in `model/` searches all orders of these steps in small worlds, with splits, merges
//! and deaths, and those of requests for advisory locks, alone and shared.
//!
//! # What is not done
//!
//! Locks of rows are exclusive. They stay to the end of the transaction, also if it goes back to a
//! savepoint. A transaction that finds a queue full looks until there is room. A cycle of waits
//! that goes through advisory locks and through those of rows is found by nobody, as their owners
//! are two: it ends when the wait for a row has lasted too long.

pub(crate) mod advisory;
pub(crate) mod deadlock;
pub(crate) mod entry;
pub(crate) mod held_turns;
pub(crate) mod lock_bell;
pub(crate) mod lock_table;
#[cfg(test)]
mod model;
pub(crate) mod queue;
pub(crate) mod row_locks;
pub(crate) mod turns;
pub(crate) mod wait_counts;
pub(crate) mod wanted;
