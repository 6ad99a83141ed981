//! The steps of a model. Each is what a node does between two moments at which others may come
//! between: one look at a leaf or at the lock tree, or one change there.

use selkie_btree::ValueChange;

use super::world::{Agent, At, Life, Lock, MORTAL, World, numbers, txn_of};
use super::{Does, Marks, Mistake, Part};
use crate::locks::entry::{LockRequest, Owner, decode_queue, encode_queue};
use crate::locks::queue::{self, Standing};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A transaction goes on.
    Goes(usize),
    /// It ends, and has changed nothing.
    Ends(usize),
    /// It waits no longer.
    GivesUp(usize),
    /// It splits the leaf that it has latched, before it changes it.
    Splits(usize),
    /// It lets others share the number that it has alone.
    Shares(usize),
    /// It leaves what it has of numbers, or waits for, to tasks.
    Drops(usize),
    /// One of its tasks takes a request out of its queue.
    Tidies(usize, usize),
    /// The second leaf is merged with the first.
    Merge,
    Die,
    /// A node learns that the mortal one is not in the pool.
    Notes(usize),
    /// What the dead had not completed is undone; its marks too, or they were in the pool.
    Recover {
        marks: bool,
    },
    /// A node learns of the successor.
    Welcomes(usize),
}

impl Marks {
    /// What can happen next.
    pub(super) fn steps(&self, world: &World, out: &mut Vec<Step>) {
        for id in 0..self.parts.len() {
            self.steps_of(world, id, out);
        }
        let is_free = world.leaves.iter().all(|leaf| leaf.latched.is_none());
        if world.is_split && world.merges > 0 && is_free {
            out.push(Step::Merge);
        }
        if !self.mortal {
            return;
        }
        let others = || (0..world.views.len()).filter(|node| *node != usize::from(MORTAL));
        match world.life {
            Life::First => out.push(Step::Die),
            Life::Dead if others().any(|node| world.views[node] == 0) => {
                out.extend([true, false].map(|marks| Step::Recover { marks }));
            }
            Life::Dead => {}
            Life::Recovered if self.parts.iter().any(|part| part.incarnation > 1) => {
                out.extend(others().filter(|node| world.views[*node] == 0).map(Step::Welcomes));
            }
            Life::Recovered => {}
        }
        if world.life != Life::First {
            out.extend(others().filter(|node| world.views[*node] == 1).map(Step::Notes));
        }
    }

    fn steps_of(&self, world: &World, id: usize, out: &mut Vec<Step>) {
        let (part, agent) = (&self.parts[id], &world.agents[id]);
        let may_go = match agent.at {
            At::Over | At::Dead => return,
            At::Idle => self.may_begin(world, part),
            At::Marks { row, .. } | At::Reads { row } => world.is_free(row),
            At::Commits { knows } => {
                let asks_first = self.mistake == Mistake::LooksFirst && knows.is_none();
                asks_first || world.is_free(part.row)
            }
            _ => true,
        };
        if may_go {
            out.push(Step::Goes(id));
        }
        self.steps_of_numbers(world, id, out);
        match agent.at {
            At::HasRead if part.does == Does::Locks => out.push(Step::Ends(id)),
            At::Waits(_) if part.may_give_up || world.is_victim(self, id) => {
                out.push(Step::GivesUp(id));
            }
            At::HasLooked if part.splits && agent.wants.is_empty() && !world.is_split => {
                out.push(Step::Splits(id));
            }
            _ => {}
        }
    }

    fn steps_of_numbers(&self, world: &World, id: usize, out: &mut Vec<Step>) {
        let (part, agent) = (&self.parts[id], &world.agents[id]);
        out.extend((0..agent.left.len()).map(|at| Step::Tidies(id, at)));
        if !matches!(part.does, Does::Numbers(_)) {
            return;
        }
        let may_drop = match agent.at {
            At::HasRead | At::GivesUp { is_known: false, is_in: true } => true,
            At::Waits(_) => part.may_give_up,
            _ => false,
        };
        if may_drop {
            out.push(Step::Drops(id));
        }
        let is_alone = |lock: &Lock| !world.is_shared(self, id, *lock);
        if agent.at == At::HasRead && part.may_share && agent.held.iter().all(is_alone) {
            out.push(Step::Shares(id));
        }
    }

    /// A node is entered when all others know of it.
    fn may_begin(&self, world: &World, part: &Part) -> bool {
        if part.node != MORTAL || part.incarnation == 1 {
            return true;
        }
        let others = world.views.iter().enumerate().filter(|(at, _)| *at != usize::from(MORTAL));
        let are_told = others.map(|(_, view)| *view).all(|view| view == part.incarnation);
        world.life == Life::Recovered && (are_told || self.mistake == Mistake::EnteredUnknown)
    }

    pub(super) fn take(&self, world: &mut World, step: Step) {
        match step {
            Step::Goes(id) => self.go(world, id),
            Step::Ends(id) => world.agents[id].end(),
            Step::GivesUp(id) => world.agents[id].at = At::GivesUp { is_known: true, is_in: true },
            Step::Shares(id) => {
                for lock in world.agents[id].held.clone() {
                    world.modify(lock, |value| (queue::share(value, txn_of(id)), ()));
                }
                world.agents[id].shares = true;
            }
            Step::Drops(id) => {
                let agent = &mut world.agents[id];
                agent.left.extend(agent.held.drain(..).zip(agent.tickets.drain(..)));
                if agent.at != At::HasRead {
                    agent.left.push((agent.wants[0], agent.ticket));
                }
                let next = self.next_turn(world, id);
                world.agents[id].at = next;
            }
            Step::Tidies(id, at) => {
                let (lock, ticket) = world.agents[id].left.remove(at);
                let ticket = (self.mistake != Mistake::LeavesAny).then_some(ticket);
                world.modify(lock, |value| (queue::leave(value, txn_of(id), ticket), ()));
            }
            Step::Splits(id) => {
                let is_marked = world.leaves[0].is_marked;
                world.leaves[1].is_marked = is_marked && self.mistake != Mistake::UnmarkedSplit;
                world.leaves[1].latched = Some((id, false));
                world.is_split = true;
            }
            Step::Merge => {
                let right = std::mem::take(&mut world.leaves[1]);
                world.leaves[0].is_marked |=
                    right.is_marked && self.mistake != Mistake::UnmarkedMerge;
                world.is_split = false;
                world.merges -= 1;
            }
            Step::Die => {
                world.life = Life::Dead;
                let first = |part: &Part| part.node == MORTAL && part.incarnation == 1;
                let agents = world.agents.iter_mut().zip(self.parts);
                for (agent, _) in agents.filter(|(agent, part)| first(part) && agent.at != At::Over)
                {
                    agent.at = At::Dead;
                }
            }
            Step::Notes(node) => world.views[node] = 0,
            Step::Recover { marks } => self.recover(world, marks),
            Step::Welcomes(node) => world.views[node] = 2,
        }
    }

    fn recover(&self, world: &mut World, marks: bool) {
        world.life = Life::Recovered;
        let dead = |by: usize, world: &World| world.agents[by].at == At::Dead;
        if world.leaves[1].latched.is_some_and(|(by, _)| dead(by, world))
            && world.leaves[0].latched.is_some_and(|(by, _)| dead(by, world))
        {
            world.leaves[1] = Default::default();
            world.is_split = false;
        }
        for at in 0..world.leaves.len() {
            if let Some((by, was_marked)) = world.leaves[at].latched
                && dead(by, world)
            {
                world.leaves[at].latched = None;
                if marks {
                    world.leaves[at].is_marked = was_marked;
                }
            }
        }
    }

    /// One step of a transaction.
    fn go(&self, world: &mut World, id: usize) {
        let (part, at) = (&self.parts[id], world.agents[id].at);
        let next = match at {
            At::Idle if part.does == Does::Commits => At::Commits { knows: None },
            At::Idle if self.mistake == Mistake::MarkFirst => {
                At::Marks { row: part.row, latches: false }
            }
            At::Idle => At::Enters,
            At::Enters | At::Waits(Standing::Absent | Standing::BehindTheDead) => {
                self.enter(world, id, at == At::Enters)
            }
            At::Waits(Standing::Waits) => {
                let queue = world.queue(world.agents[id].wants[0]);
                At::Waits(queue::standing(&queue, txn_of(id), |owner| world.lives(self, id, owner)))
            }
            At::Waits(Standing::Holds) => self.has_lock(world, id),
            At::Marks { row, latches } => self.mark(world, id, row, latches),
            At::Reads { row } => {
                world.agents[id].read[row] = Some(world.rows[row]);
                match part.does {
                    Does::Scans if row == 0 => At::Reads { row: 1 },
                    _ if self.mistake == Mistake::MarkLast => At::Marks { row, latches: false },
                    _ => At::HasRead,
                }
            }
            At::HasRead if part.does == Does::Scans => {
                world.agents[id].end();
                At::Leaves
            }
            At::HasRead if matches!(part.does, Does::Numbers(_)) => At::Leaves,
            At::HasRead => {
                world.agents[id].commits = true;
                At::Commits { knows: None }
            }
            At::GivesUp { is_known, is_in } => self.give_up(world, id, is_known, is_in),
            At::Leaves => self.leave_one(world, id),
            At::Over | At::Dead => at,
            _ => self.commit(world, id),
        };
        world.agents[id].at = next;
    }

    /// Enters the queue of the lock that a transaction wants first.
    fn enter(&self, world: &mut World, id: usize, is_new: bool) -> At {
        let (part, lock) = (&self.parts[id], world.agents[id].wants[0]);
        world.agents[id].ticket += u32::from(is_new);
        let (txn, ticket) = (txn_of(id), world.agents[id].ticket);
        let owner = Owner { node: part.node, incarnation: part.incarnation, txn, age: txn };
        let request = match world.is_shared(self, id, lock) {
            true => LockRequest::shared(owner, ticket.into()),
            false => LockRequest::exclusive(owner, ticket.into()),
        };
        if self.mistake == Mistake::KeepsPlace {
            world.modify(lock, |value| (in_its_place(value, request), ()));
        }
        let waits = part.waits || world.agents[id].commits;
        let known = world.clone();
        let standing = world.modify(lock, |value| {
            let bury = |queue: &mut Vec<LockRequest>| {
                queue.retain(|request| known.lives(self, id, &request.owner));
            };
            queue::enter(value, request, waits, self.room, bury)
        });
        match standing {
            Standing::Holds => self.has_lock(world, id),
            standing if waits => At::Waits(standing),
            _ => At::GivesUp { is_known: false, is_in: true },
        }
    }

    /// What a transaction does with the lock that it has just got.
    fn has_lock(&self, world: &mut World, id: usize) -> At {
        let lock = world.agents[id].wants.remove(0);
        let mut living = world.agents.iter().filter(|other| other.at != At::Dead);
        world.seen.shared |= living.any(|other| other.held.contains(&lock));
        let (part, agent) = (&self.parts[id], &mut world.agents[id]);
        agent.held.push(lock);
        if let Lock::Number(_) = lock {
            agent.tickets.push(agent.ticket);
        }
        let row = if part.does == Does::Scans { 0 } else { part.row };
        match agent.wants.is_empty() {
            false => At::Enters,
            true if matches!(part.does, Does::Numbers(_)) => At::HasRead,
            true if agent.commits => At::Commits { knows: None },
            true if matches!(self.mistake, Mistake::MarkFirst | Mistake::MarkLast) => {
                At::Reads { row }
            }
            true => At::Marks { row, latches: false },
        }
    }

    /// One step of a transaction that waits no more.
    fn give_up(&self, world: &mut World, id: usize, is_known: bool, is_in: bool) -> At {
        let leaves_first = self.mistake == Mistake::LeavesFirst;
        if is_known && !(is_in && leaves_first) {
            return At::GivesUp { is_known: false, is_in };
        }
        if !is_in {
            world.agents[id].end();
            return At::Leaves;
        }
        let agent = &world.agents[id];
        let (lock, ticket) = (agent.wants[0], agent.ticket);
        if self.mistake != Mistake::StaysInQueue {
            world.modify(lock, |value| (queue::leave(value, txn_of(id), Some(ticket)), ()));
        }
        At::GivesUp { is_known, is_in: false }
    }

    /// Looks whether the leaf of a row is marked, or latches it and marks it.
    fn mark(&self, world: &mut World, id: usize, row: usize, latches: bool) -> At {
        let leaf = world.leaf_of(row);
        if !world.leaves[leaf].is_marked && !latches {
            return At::Marks { row, latches: true };
        }
        world.leaves[leaf].is_marked = true;
        match self.parts[id].does {
            // The leaf ends where the next begins.
            Does::Scans if row == 0 && world.is_split => At::Marks { row: 1, latches: false },
            Does::Scans => At::Reads { row: 0 },
            _ if self.mistake == Mistake::MarkFirst => At::Enters,
            _ if self.mistake == Mistake::MarkLast => At::HasRead,
            _ => At::Reads { row },
        }
    }

    /// One step of a commit.
    fn commit(&self, world: &mut World, id: usize) -> At {
        let row = self.parts[id].row;
        let leaf = world.leaf_of(row);
        let kept = |world: &World, lock| {
            let lives = |owner: &Owner| world.lives(self, id, owner);
            queue::keeps_from(&world.queue(lock), txn_of(id), lives)
        };
        match world.agents[id].at {
            At::Commits { knows: None } if self.mistake == Mistake::LooksFirst => {
                At::Commits { knows: Some(kept(world, Lock::Row(row))) }
            }
            At::Commits { knows } => {
                world.leaves[leaf].latched = Some((id, world.leaves[leaf].is_marked));
                At::Latched { knows }
            }
            At::Latched { .. } if !world.leaves[leaf].is_marked => At::HasLooked,
            At::Latched { knows: Some(is_kept) } => {
                if is_kept {
                    world.agents[id].wants.push(Lock::Row(row));
                }
                At::HasLooked
            }
            At::Latched { knows: None } => At::AsksAll,
            At::AsksAll => match world.has_locks() {
                true if self.mistake == Mistake::ClearedForOneRow
                    && !kept(world, Lock::Row(row)) =>
                {
                    At::Clears
                }
                true => At::Asks(Lock::Tree),
                false => At::Clears,
            },
            At::Clears => {
                world.leaves[leaf].is_marked = false;
                world.seen.cleared = true;
                At::HasLooked
            }
            At::Asks(lock) => {
                if kept(world, lock) {
                    world.agents[id].wants.push(lock);
                }
                if lock == Lock::Tree { At::Asks(Lock::Row(row)) } else { At::HasLooked }
            }
            At::HasLooked if world.agents[id].wants.is_empty() => {
                world.rows[row] += 1;
                world.let_go(id);
                world.agents[id].end();
                At::Leaves
            }
            At::HasLooked => {
                world.let_go(id);
                world.seen.overcome = true;
                At::Enters
            }
            other => other,
        }
    }

    /// Gives the first of its locks back.
    fn leave_one(&self, world: &mut World, id: usize) -> At {
        let agent = &mut world.agents[id];
        if agent.held.is_empty() {
            return self.next_turn(world, id);
        }
        let lock = agent.held.remove(0);
        let is_number = matches!(lock, Lock::Number(_));
        let ticket = is_number.then(|| agent.tickets.remove(0));
        world.modify(lock, |value| (queue::leave(value, txn_of(id), ticket), ()));
        At::Leaves
    }

    /// What a transaction does that has nothing: it goes on with its next numbers, if there are
    /// any, and is over else, when its tasks are.
    fn next_turn(&self, world: &mut World, id: usize) -> At {
        let (part, agent) = (&self.parts[id], &mut world.agents[id]);
        agent.shares = false;
        agent.wants = numbers(part, agent.turn + 1);
        match (agent.wants.is_empty(), agent.left.is_empty()) {
            (false, _) => {
                agent.turn += 1;
                At::Enters
            }
            (true, true) => At::Over,
            (true, false) => At::Leaves,
        }
    }
}

/// A request takes the place that its owner has already, if there is one.
fn in_its_place(value: Option<&[u8]>, request: LockRequest) -> ValueChange {
    let mut queue = value.map(decode_queue).unwrap_or_default();
    match queue.iter_mut().find(|own| own.owner.txn == request.owner.txn) {
        None => ValueChange::Keep,
        Some(own) => {
            *own = request;
            ValueChange::Set(encode_queue(&queue))
        }
    }
}

impl Agent {
    /// From now on it holds what it does only until it has given it back.
    fn end(&mut self) {
        self.at = At::Leaves;
        self.wants.clear();
        self.read = Default::default();
    }
}
