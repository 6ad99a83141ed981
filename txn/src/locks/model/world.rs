//! The state of a model: what nodes share, and where each transaction is.

use std::collections::BTreeMap;

use selkie_btree::ValueChange;
use selkie_engine::GAddr;

use super::{Does, Marks, Mistake};
use crate::locks::entry::{LockName, LockRequest, NAME, Owner, decode_queue};
use crate::locks::queue::{self, Standing};

/// Rows, and most leaves.
pub(super) const ROWS: usize = 2;

/// The node that may die. Its successor has the same index and the next incarnation.
pub(super) const MORTAL: u8 = 0;

/// Where the rows' tree has its root.
const ROOT: u64 = 4096;

/// What can be locked, in the order of names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Lock {
    Tree,
    Row(usize),
    Number(usize),
}

impl Lock {
    pub(super) fn name(self) -> LockName {
        let root = GAddr::from_u64(ROOT);
        match self {
            Self::Tree => LockName::of_tree(root),
            Self::Row(row) => LockName::of_row(root, &[row as u8]),
            Self::Number(number) => LockName::advisory(0, number as u64),
        }
    }
}

/// What a transaction does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum At {
    Idle,
    /// It enters the queue of the first lock that it wants.
    Enters,
    /// It is there, as it knows.
    Waits(Standing),
    /// It gives up its wait: others know no more that it waits, then it leaves the queue.
    GivesUp {
        is_known: bool,
        is_in: bool,
    },
    /// It marks the leaf of a row: looks whether it is marked, then, if not, latches it for that.
    Marks {
        row: usize,
        latches: bool,
    },
    Reads {
        row: usize,
    },
    /// It has read, and holds its lock: it goes on to its commit, or ends.
    HasRead,
    /// Its commit latches the leaf. A mistake lets it know before whether it is kept from the row.
    Commits {
        knows: Option<bool>,
    },
    /// It holds the leaf, and tests the mark.
    Latched {
        knows: Option<bool>,
    },
    /// It looks whether any row of the tree is locked.
    AsksAll,
    /// None is: it clears the mark.
    Clears,
    /// It looks whether it is kept from the row by this lock.
    Asks(Lock),
    /// It has looked at all, and lets go of the leaf or changes the row.
    HasLooked,
    /// It gives its locks back, one after the other.
    Leaves,
    Over,
    Dead,
}

/// One transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Agent {
    pub(super) at: At,
    /// Locks that it wants, or that are obstacles to its commit.
    pub(super) wants: Vec<Lock>,
    pub(super) held: Vec<Lock>,
    /// It has come to its commit.
    pub(super) commits: bool,
    /// What it has read of rows that it has locked and not changed.
    pub(super) read: [Option<u8>; ROWS],
    /// Its latest request.
    pub(super) ticket: u32,
    /// Which turn of its numbers it is at.
    pub(super) turn: usize,
    /// It lets others share what it has locked alone in this turn.
    pub(super) shares: bool,
    /// Requests for numbers, each of which a task takes out of its queue.
    pub(super) left: Vec<(Lock, u32)>,
    /// Those of the numbers that it holds.
    pub(super) tickets: Vec<u32>,
}

/// A leaf as all nodes see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Leaf {
    pub(super) is_marked: bool,
    /// Who has latched it, and whether it was marked before.
    pub(super) latched: Option<(usize, bool)>,
}

/// What has become of the node that may die.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Life {
    First,
    Dead,
    /// Its leaves are as they were before what it had not completed.
    Recovered,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) leaves: [Leaf; ROWS],
    /// The second row is in the second leaf.
    pub(super) is_split: bool,
    pub(super) merges: u8,
    /// How often each row was changed.
    pub(super) rows: [u8; ROWS],
    /// The lock tree, with its bytes.
    pub(super) tree: BTreeMap<[u8; NAME], Vec<u8>>,
    pub(super) agents: Vec<Agent>,
    pub(super) life: Life,
    /// By node: the incarnation of the mortal node that is in the pool, as it knows; 0 for none.
    pub(super) views: Vec<u32>,
    pub(super) seen: Seen,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Seen {
    /// A commit has waited for a lock.
    pub(super) overcome: bool,
    pub(super) cleared: bool,
    /// Two have held one lock.
    pub(super) shared: bool,
}

impl World {
    pub(super) fn new(model: &Marks) -> Self {
        let agent = |part: &super::Part| Agent {
            at: At::Idle,
            wants: match part.does {
                Does::Locks => vec![Lock::Row(part.row)],
                Does::Scans => vec![Lock::Tree],
                Does::Commits => Vec::new(),
                Does::Numbers(_) => numbers(part, 0),
            },
            held: Vec::new(),
            commits: part.does == Does::Commits,
            read: [None; ROWS],
            ticket: 0,
            turn: 0,
            shares: false,
            left: Vec::new(),
            tickets: Vec::new(),
        };
        let nodes = model.parts.iter().map(|part| usize::from(part.node) + 1).max();
        Self {
            leaves: Default::default(),
            is_split: false,
            merges: model.merges,
            rows: [0; ROWS],
            tree: BTreeMap::new(),
            agents: model.parts.iter().map(agent).collect(),
            life: Life::First,
            views: vec![1; nodes.unwrap_or(0)],
            seen: Seen::default(),
        }
    }

    /// The leaf that a row is in.
    pub(super) fn leaf_of(&self, row: usize) -> usize {
        if self.is_split { row } else { 0 }
    }

    pub(super) fn is_free(&self, row: usize) -> bool {
        self.leaves[self.leaf_of(row)].latched.is_none()
    }

    pub(super) fn let_go(&mut self, id: usize) {
        for leaf in &mut self.leaves {
            leaf.latched.take_if(|(by, _)| *by == id);
        }
    }

    pub(super) fn queue(&self, lock: Lock) -> Vec<LockRequest> {
        self.tree.get(&lock.name().key()).map(|value| decode_queue(value)).unwrap_or_default()
    }

    /// Changes an entry of the lock tree, as [`Tree::modify`](selkie_btree::Tree::modify).
    pub(super) fn modify<R>(
        &mut self,
        lock: Lock,
        change: impl FnOnce(Option<&[u8]>) -> (ValueChange, R),
    ) -> R {
        let key = lock.name().key();
        let (change, result) = change(self.tree.get(&key).map(Vec::as_slice));
        match change {
            ValueChange::Keep => {}
            ValueChange::Set(value) => {
                self.tree.insert(key, value);
            }
            ValueChange::Remove => {
                self.tree.remove(&key);
            }
        }
        result
    }

    /// As [`LockTable::has_locks`](crate::locks::lock_table::LockTable::has_locks).
    pub(super) fn has_locks(&self) -> bool {
        let whole = Lock::Tree.name();
        let first = self.tree.range(whole.key()..).next();
        first.is_some_and(|(key, _)| whole.is_of_same_tree(key))
    }

    /// Whether another node, of an incarnation of its own, takes one for a member.
    pub(super) fn lives(&self, model: &Marks, by: usize, owner: &Owner) -> bool {
        let own = &model.parts[by];
        let known = match own.node {
            MORTAL => own.incarnation,
            node => self.views[usize::from(node)],
        };
        match model.mistake {
            _ if owner.node != MORTAL => true,
            Mistake::DeadStay => true,
            Mistake::SuccessorTaken => known != 0,
            _ => known == owner.incarnation,
        }
    }

    /// Those that a transaction waits for.
    fn waits_for(&self, model: &Marks, id: usize) -> Vec<usize> {
        let agent = &self.agents[id];
        let (At::Waits(_) | At::GivesUp { is_known: true, .. }, Some(lock)) =
            (agent.at, agent.wants.first())
        else {
            return Vec::new();
        };
        let lives = |owner: &Owner| self.lives(model, id, owner);
        let before = queue::before(self.queue(*lock), txn_of(id), lives);
        before.iter().map(|request| agent_of(request.owner.txn)).collect()
    }

    /// Whether a transaction is the youngest of a cycle of waits.
    pub(super) fn is_victim(&self, model: &Marks, id: usize) -> bool {
        if model.mistake == Mistake::NoneGivesUp {
            return false;
        }
        let mut reached = vec![false; self.agents.len()];
        let mut to_follow = vec![id];
        while let Some(at) = to_follow.pop() {
            // A cycle of which it is the youngest has none that is younger.
            for next in self.waits_for(model, at).into_iter().filter(|next| *next <= id) {
                if next == id {
                    return true;
                }
                if !std::mem::replace(&mut reached[next], true) {
                    to_follow.push(next);
                }
            }
        }
        false
    }

    /// Whether none that has left its queue is taken for one that waits.
    pub(super) fn waits_are_true(&self, model: &Marks) -> bool {
        let has_left = |id: &usize| matches!(self.agents[*id].at, At::GivesUp { is_in: false, .. });
        (0..self.agents.len()).filter(has_left).all(|id| self.waits_for(model, id).is_empty())
    }

    /// Whether all transactions have ended.
    pub(super) fn is_over(&self) -> bool {
        self.agents.iter().all(|agent| matches!(agent.at, At::Over | At::Dead))
    }

    pub(super) fn locked_rows_stay(&self) -> bool {
        let same = |agent: &Agent| {
            agent.read.iter().zip(self.rows).all(|(read, row)| read.is_none_or(|read| read == row))
        };
        self.agents.iter().filter(|agent| agent.at != At::Dead).all(same)
    }

    /// Whether no two hold one lock that do not share it.
    pub(super) fn locks_are_of_one(&self, model: &Marks) -> bool {
        let mut held: Vec<_> = (0..self.agents.len())
            .filter(|id| self.agents[*id].at != At::Dead)
            .flat_map(|id| self.agents[id].held.iter().map(move |lock| (*lock, id)))
            .map(|(lock, id)| (lock, self.is_shared(model, id, lock)))
            .collect();
        // Those that are alone first.
        held.sort_unstable();
        held.is_sorted_by(|one, next| one.0 < next.0 || one.1)
    }

    /// Whether a transaction shares a lock that it wants or has.
    pub(super) fn is_shared(&self, model: &Marks, id: usize, lock: Lock) -> bool {
        let agent = &self.agents[id];
        let wanted = model.parts[id].turn(agent.turn).iter();
        let is_wanted = wanted.filter(|(number, _)| lock == Lock::Number(*number));
        is_wanted.map(|(_, is_shared)| *is_shared || agent.shares).next().unwrap_or(false)
    }

    /// Whether no transaction that has ended is in a queue.
    pub(super) fn none_is_left(&self) -> bool {
        let mut requests = self.tree.values().flat_map(|value| decode_queue(value));
        requests.all(|request| self.agents[agent_of(request.owner.txn)].at != At::Over)
    }
}

/// The locks of a turn.
pub(super) fn numbers(part: &super::Part, turn: usize) -> Vec<Lock> {
    part.turn(turn).iter().map(|(number, _)| Lock::Number(*number)).collect()
}

pub(super) fn txn_of(id: usize) -> u64 {
    id as u64 + 1
}

fn agent_of(txn: u64) -> usize {
    txn as usize - 1
}
