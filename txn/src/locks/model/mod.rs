//! Model of what nodes share for row locks: queues in the lock tree, and marks of leaves. It keeps
//! the bytes of the lock tree, and drives [`queue`](super::queue) and [`entry`](super::entry) as
//! the nodes do. Which step comes before which is as in `transaction/commit_locks.rs`,
//! `access/locked.rs` and [`row_locks`](super::row_locks).
//!
//! Two rows are in one leaf, until a commit splits it. Each transaction locks a row, locks all rows
//! to read them, or changes a row that it has not locked. Owners of advisory locks lock numbers,
//! alone or shared; what they give up or give back may be taken out of the queue by a task, while
//! they go on. What holds in every state:
//!
//! - *locked rows stay*: between a transaction's read of what it has locked and its end, no other
//!   changes that;
//! - *locks are of one*: no two hold the same, but those that share it;
//! - *waits are true*: none that has left its queue is taken for one that waits;
//! - *none is left*: who has ended is in no queue;
//! - *comes to rest*: from it some path leads to the end of all transactions.
//!
//! [`Mistake`] plants mistakes, which the search must find. All states of these worlds:
//!
//! | transactions (L locks, S locks all, C changes without; its row) | states |
//! |---|---|
//! | L0 C0 | 213 |
//! | L0 C0 C0 | 2,394 |
//! | the same, one request in a queue | 2,316 |
//! | L1 C0 C1 | 1,422 |
//! | L1 C0 C1, of which C0 splits | 2,444 |
//! | the same, with a merge | 2,974 |
//! | L0, L0 that may give up at any time, L0 that does not wait, C0 | 43,063 |
//! | S L1 C0 C1, of which C0 splits; waits that are cycles | 73,601 |
//! | the same, one request in a queue | 70,096 |
//! | L0 C0, and L0 that may die at any time | 24,896 |
//! | L1 C1, and C0 that splits and may die at any time | 15,153 |
//! | L0 C0, and L0 whose node may die at any time and has a successor with L0 | 73,743 |
//! | L1 C1, and L1 C0 whose node may die and has a successor with C1; split and merge | 909,556 |
//!
//! | owners of numbers (s shares, x is alone; one after the other; tasks may leave) | states |
//! |---|---|
//! | s, s, x | 620 |
//! | s then x, s, s | 2,784 |
//! | the same, two requests in a queue | 3,328 |
//! | x that may be shared later, s, s then x that do not wait | 3,120 |
//! | s0 with x1, s1 with x0, s0: cycles | 1,510 |
//! | s then x, s then x that may die and have a successor s, x that may be shared later | 291,733 |
//!
//! Each node learns of a death, and of a successor, in a step of its own. One whose node has died
//! takes no more steps; leaves that it has latched are free once a recovery has undone what it had
//! not completed, with the mark as it was before or as the dead one left it.
//!
//! Not modelled: pages of the lock tree, where an entry is changed in one step, as under the latch
//! of its leaf; recoveries that a look into the lock tree finds in its way, after which the commit
//! begins again; the moment from which a wait is known, as each is from its beginning; commits of
//! rows in several leaves; validation, so that a commit without locks is never refused.

mod rest;
mod searches;
mod steps;
mod world;

use stateright::{Checker, HasDiscoveries, Model, Property};

use steps::Step;
use world::World;

/// A mistake of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    Nothing,
    /// A locker marks the leaf before it enters the queue.
    MarkFirst,
    /// A locker marks the leaf after it has read the row.
    MarkLast,
    /// A commit looks into the queue before it latches the leaf.
    LooksFirst,
    /// A commit that finds no lock of its row clears the mark, though another row is locked.
    ClearedForOneRow,
    /// The right half of a split is not marked.
    UnmarkedSplit,
    /// A leaf has no mark that only the one merged into it had.
    UnmarkedMerge,
    /// Entries of dead nodes count for ever.
    DeadStay,
    /// A node is known by its index alone.
    SuccessorTaken,
    /// A node is entered before the others know of it.
    EnteredUnknown,
    /// Who gives up a wait leaves its entry behind.
    StaysInQueue,
    /// Who gives up a wait leaves the queue before it says so.
    LeavesFirst,
    /// None of those that wait for each other gives up.
    NoneGivesUp,
    /// Who has shared a lock, and wants it alone, keeps its place.
    KeepsPlace,
    /// A task takes any request of its owner out of the queue.
    LeavesAny,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    /// Locks a row, reads it, and changes it or not.
    Locks,
    /// Locks all rows together and reads them.
    Scans,
    /// Changes a row that it has not locked.
    Commits,
    /// Locks numbers, which are no rows: all of a turn together, then those of the next.
    Numbers(&'static [Turn]),
}

/// Numbers that are locked in this order, and whether each is shared.
type Turn = &'static [(usize, bool)];

/// One transaction.
#[derive(Clone, Copy, Debug)]
struct Part {
    does: Does,
    row: usize,
    node: u8,
    incarnation: u32,
    /// For the lock that it wants first.
    waits: bool,
    /// Any wait of it may end without the lock.
    may_give_up: bool,
    /// It splits the leaf before it changes the row, or not.
    splits: bool,
    /// It may share a number that it has alone.
    may_share: bool,
}

impl Part {
    const fn new(does: Does, row: usize, node: u8) -> Self {
        let (incarnation, waits) = (1, true);
        let (may_give_up, splits, may_share) = (false, false, false);
        Self { does, row, node, incarnation, waits, may_give_up, splits, may_share }
    }

    /// The locks of a turn; those of rows are of none.
    fn turn(&self, turn: usize) -> Turn {
        match self.does {
            Does::Numbers(turns) => turns.get(turn).copied().unwrap_or_default(),
            _ => &[],
        }
    }
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
struct Marks {
    parts: &'static [Part],
    /// Node 0 may die at any time.
    mortal: bool,
    /// Merges of the leaves, at most.
    merges: u8,
    /// Requests that a queue has room for.
    room: usize,
    mistake: Mistake,
}

impl Model for Marks {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, out: &mut Vec<Step>) {
        self.steps(world, out);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.take(&mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("locked rows stay", |_, world: &World| world.locked_rows_stay()),
            Property::always("locks are of one", |model: &Self, world: &World| {
                world.locks_are_of_one(model)
            }),
            Property::always("waits are true", |model: &Self, world: &World| {
                world.waits_are_true(model)
            }),
            Property::always("none is left", |_, world: &World| world.none_is_left()),
        ]
    }
}

/// Searches until a property fails, for a model with a mistake by which others may fail, too.
fn breaks(model: Marks, property: &'static str) -> bool {
    let until = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().threads(2).finish_when(until).spawn_bfs().join();
    checker.discovery(property).is_some()
}

/// Searches all states; how many there are, or what fails with the steps to it.
fn search(model: Marks) -> Result<usize, String> {
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        let steps = path.into_actions();
        return Err(format!("{name} fails after {} steps: {steps:?}", steps.len()));
    }
    let all = rest::search(&model)?;
    assert_eq!(all.states, checker.unique_state_count(), "both searches find the same states");
    let has_rows = model.parts.iter().any(|part| part.does == Does::Commits);
    assert_eq!(has_rows, all.seen.overcome || all.seen.cleared, "whether a commit meets a mark");
    assert_eq!(!has_rows, all.seen.shared, "whether two hold one lock");
    Ok(all.states)
}
