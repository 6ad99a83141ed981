//! What can happen in the model, and what follows: the checker's view of the world.
//!
//! The driver's habits are the engine's: new local users are kept out during a step, grants take
//! the page as it is at the step, a write-back takes what the local copy holds when home executes
//! it (it cannot change: the page is not writable then). Every write-back is taken as of a dirty
//! page: writing back a clean one changes nothing at home.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;
use stateright::{Model, Property};

use super::coded::Careless;
use super::death::Skipped;
use super::home::Omitted;
use super::properties;
use super::world::{Chain, Fault, Heard, Packet, Site, Verb, World, id, phase_tag, place};
use crate::coherence::machine::{
    Action, Actions, Event, Inquiry, Line, LocalUse, Message, Phase, Rules,
};

/// How local latches are modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Latching {
    /// Latches are taken and let go by steps of their own.
    Explicit,
    /// A latch is open until the line asks for its use; then every use that the state allows is
    /// tried, and one that defers a request stays until it is let go. Fewer states, same events.
    Lazy,
}

/// Whether a node's callers wait for latches elsewhere or rather have Busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Callers {
    Waiting,
    Nowait,
    Both,
}

impl Callers {
    fn nowait(self) -> &'static [bool] {
        match self {
            Callers::Waiting => &[false],
            Callers::Nowait => &[true],
            Callers::Both => &[false, true],
        }
    }
}

/// A model to check.
#[derive(Debug)]
pub(super) struct Protocol<const N: usize> {
    pub(super) rules: Rules,
    pub(super) latching: Latching,
    /// The callers of each node.
    pub(super) callers: [Callers; N],
    /// The last node may die, once.
    pub(super) mortal: bool,
    /// What the recovery from its death leaves out.
    pub(super) skipped: Option<Skipped>,
    /// The home may be lost, once.
    pub(super) homeless: bool,
    /// What is left out when it is.
    pub(super) omitted: Option<Omitted>,
    /// The page is coded, one split may be lost; see `coded`.
    pub(super) coded: bool,
    /// What its making good leaves out.
    pub(super) careless: Option<Careless>,
    /// Each node has a log of what it has changed.
    pub(super) logs: bool,
    /// Who takes a line over from a dead node keeps what that one has changed.
    pub(super) hoards: bool,
    /// Take states for the same that differ by a renaming of nodes with the same callers.
    pub(super) symmetric: bool,
    /// The phases met in the search, by tag, to show that it was not in vain.
    pub(super) met: AtomicU32,
}

/// Every use of a local copy, those that others are compared with first.
const ALL_USES: [LocalUse; 5] = [
    LocalUse::Idle,
    LocalUse::Readers,
    LocalUse::Writer,
    LocalUse::ReaderNext,
    LocalUse::WriterNext,
];

/// Whether a step under the use `a` stands for one under `b` that came to the same.
fn stands_for(a: LocalUse, b: LocalUse) -> bool {
    matches!(
        (a, b),
        (LocalUse::Idle, _)
            | (LocalUse::Readers, LocalUse::ReaderNext)
            | (LocalUse::Writer, LocalUse::WriterNext)
    )
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The application's doing.
    Want {
        exclusive: bool,
        nowait: bool,
        look: bool,
    },
    Evict,
    WriteBack,
    Leave,
    Write,
    /// A death's, and what follows; see `death`.
    Dies,
    /// The mortal node dies, and the one that the step is of.
    DiesToo,
    Fenced,
    Heard(Heard),
    Lost(usize),
    /// The last message of a dead node to one that has not heard of its death.
    MailLost {
        from: usize,
    },
    /// The home is lost, and its word made anew; see `home`.
    HomeLost,
    /// A split is lost, or made again; see `coded`.
    SplitLost(usize),
    SplitMade,
    Looked,
    Swept,
    Latch(LocalUse),
    Unlatch,
    /// The system's.
    Freed(LocalUse),
    Home(Verb),
    Complete(LocalUse),
    /// A message from a node; a request that is deferred overtakes that many older ones.
    Receive {
        from: usize,
        message: Message,
        local: LocalUse,
        overtakes: usize,
    },
}

/// A step and the world after it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Step<const N: usize> {
    pub(super) node: usize,
    pub(super) what: What,
    pub(super) after: World<N>,
}

impl<const N: usize> Protocol<N> {
    pub(super) fn new(latching: Latching, callers: [Callers; N]) -> Self {
        // Priority only orders deferred requests; here a deferred request overtakes any number of
        // older ones instead, so every order that priorities could make is searched.
        let rules = Rules { max_priority: 0, ..Rules::DESIGNED };
        let met = AtomicU32::new(0);
        Protocol {
            rules,
            latching,
            callers,
            mortal: false,
            skipped: None,
            homeless: false,
            omitted: None,
            logs: false,
            hoards: false,
            coded: false,
            careless: None,
            symmetric: true,
            met,
        }
    }

    /// One of the published protocol's rules is on: messages may come too early or not at all.
    fn published(&self) -> bool {
        !self.rules.confirm
            || !self.rules.wait_for_reset
            || self.skipped.is_some()
            || self.omitted.is_some()
            || self.careless.is_some()
    }

    /// Runs the checked function at a node that has heard of a death or not; `None` for an error or
    /// a panic.
    pub(super) fn run(
        &self,
        line: &mut Line,
        Site { node, heard, dead }: Site,
        event: Event,
        local: LocalUse,
    ) -> Option<Actions> {
        let recovering = self.recovers(heard, event);
        let rules = Rules { dead, recovering, ..self.rules };
        let step = AssertUnwindSafe(|| line.step(&rules, id(node), event, local));
        catch_unwind(step).ok()?.ok()
    }

    /// Whether a local caller can only wait to be told.
    pub(super) fn stuck(&self, at: Site, line: &Line, exclusive: bool, nowait: bool) -> bool {
        let allowed = if exclusive { line.writable() } else { line.readable() };
        if allowed || nowait && line.refuses_nowait() {
            return false;
        }
        if !line.phase.at_rest() {
            return true;
        }
        let mut tried = line.clone();
        let actions = self.run(
            &mut tried,
            at,
            Event::Want { exclusive, nowait, look: false },
            LocalUse::Idle,
        );
        actions.is_some_and(|actions| actions.is_empty()) && tried == *line
    }

    /// Uses of the local copy that an event can meet.
    fn uses(&self, world: &World<N>, node: usize) -> impl Iterator<Item = LocalUse> + use<N> {
        let Node { line, latch, .. } = &world.nodes[node];
        let open = self.latching == Latching::Lazy && *latch == LocalUse::Idle;
        let (readable, writable, latch) = (line.readable(), line.writable(), *latch);
        ALL_USES.into_iter().filter(move |local| {
            if !open {
                return *local == latch;
            }
            match local {
                LocalUse::Idle | LocalUse::ReaderNext | LocalUse::WriterNext => true,
                LocalUse::Readers => readable,
                LocalUse::Writer => writable,
            }
        })
    }

    /// Feeds an event to a line in every use of its copy, and carries the actions out. `world` is
    /// the world at the moment of the event.
    pub(super) fn drive(
        &self,
        world: &World<N>,
        node: usize,
        event: Event,
        mut then: impl FnMut(LocalUse, World<N>),
    ) {
        let at = world.site(node);
        let mut outcomes: SmallVec<[(LocalUse, (Line, Actions)); 5]> = SmallVec::new();
        for local in self.uses(world, node) {
            let mut after = world.clone();
            let Some(actions) = self.run(&mut after.nodes[node].line, at, event, local) else {
                // Published rules: the message stays where it is, the word is beyond repair.
                if !self.published() {
                    after.fault = Some(Fault::Violation);
                    then(local, after);
                }
                return;
            };
            let outcome = (after.nodes[node].line.clone(), actions.clone());
            if outcomes.iter().any(|(use_, o)| stands_for(*use_, local) && *o == outcome) {
                continue;
            }
            if !after.nodes[node].line.deferred.is_empty() {
                after.nodes[node].latch = local;
            }
            after.fault = self.fault(world, &after, node, event, &actions);
            for action in actions {
                if !self.carry_out(&mut after, node, action) {
                    after.fault = Some(Fault::Action);
                }
            }
            if self.published() {
                after.fault = None;
            }
            self.met.fetch_or(1 << phase_tag(outcome.0.phase), Ordering::Relaxed);
            outcomes.push((local, outcome));
            after.see_through(node, self.hoards);
            after.forget(node);
            then(local, after);
        }
    }

    /// Faults of a step by itself.
    fn fault(
        &self,
        before: &World<N>,
        after: &World<N>,
        node: usize,
        event: Event,
        actions: &Actions,
    ) -> Option<Fault> {
        let at = before.site(node);
        let (before, after) = (&before.nodes[node].line, &after.nodes[node].line);
        let keeps = |local, right: fn(&Line) -> bool| {
            let mut line = before.clone();
            !right(before) || self.run(&mut line, at, event, local).is_none() || right(&line)
        };
        if !keeps(LocalUse::Readers, Line::readable) || !keeps(LocalUse::Writer, Line::writable) {
            return Some(Fault::RightLost);
        }
        let told = actions.contains(&Action::Wake) || matches!(event, Event::Want { .. });
        let missed = |exclusive, nowait| {
            self.stuck(at, before, exclusive, nowait) && !self.stuck(at, after, exclusive, nowait)
        };
        let pairs = [(false, false), (false, true), (true, false), (true, true)];
        let lost = !told && pairs.into_iter().any(|(exclusive, nowait)| missed(exclusive, nowait));
        lost.then_some(Fault::WakeLost)
    }

    /// False: an action that no driver could carry out.
    fn carry_out(&self, world: &mut World<N>, node: usize, action: Action) -> bool {
        match action {
            Action::Post(operation) => {
                let phase = world.nodes[node].line.phase;
                let chain = Chain::post(operation, phase, id(node), N, self.coded);
                chain.is_some() && std::mem::replace(&mut world.nodes[node].chain, chain).is_none()
            }
            Action::Send { to, message } => {
                let grant = matches!(message, Message::GrantShared | Message::GrantModified);
                let fresh = grant && world.nodes[node].fresh;
                let to = place(to);
                if to < N && !Self::runs(world, to) {
                    return true;
                }
                to < N && to != node && world.wires[node][to].push(Packet { message, fresh })
            }
            Action::Wake | Action::Refuse | Action::BackOff { .. } => true,
        }
    }

    fn application(&self, world: &World<N>, node: usize, out: &mut Vec<Step<N>>) {
        let Node { line, latch, .. } = &world.nodes[node];
        let mut event = |what, event| {
            self.drive(world, node, event, |_, after| {
                if after != *world {
                    out.push(Step { node, what, after });
                }
            });
        };
        for exclusive in [false, true] {
            let allowed = if exclusive { line.writable() } else { line.readable() };
            for nowait in self.callers[node]
                .nowait()
                .iter()
                .copied()
                .filter(|_| !allowed && line.phase.at_rest())
            {
                for look in [false, true] {
                    let want = Event::Want { exclusive, nowait, look };
                    event(What::Want { exclusive, nowait, look }, want);
                }
            }
        }
        if line.phase.at_rest() {
            event(What::Evict, Event::Evict);
            event(What::Leave, Event::Leave);
        }
        if self.logs && line.phase == Phase::Modified {
            event(What::WriteBack, Event::WriteBack);
        }
        let mut plain = |what, change: &dyn Fn(&mut World<N>)| {
            let mut after = world.clone();
            change(&mut after);
            if after != *world {
                out.push(Step { node, what, after });
            }
        };
        let explicit = self.latching == Latching::Explicit;
        if explicit && *latch == LocalUse::Idle {
            for (right, local) in
                [(line.readable(), LocalUse::Readers), (line.writable(), LocalUse::Writer)]
            {
                if right {
                    plain(What::Latch(local), &|after| after.nodes[node].latch = local);
                }
            }
        }
        let writer = *latch == LocalUse::Writer || !explicit && *latch == LocalUse::Idle;
        if writer && line.writable() {
            plain(What::Write, &|after| {
                after.write(node);
                if self.logs {
                    after.unhomed = after.unhomed.with(id(node));
                }
            });
        }
        if *latch != LocalUse::Idle {
            plain(What::Unlatch, &|after| {
                let node = &mut after.nodes[node];
                node.latch = LocalUse::Idle;
                node.free_due = !node.line.deferred.is_empty();
            });
        }
    }

    fn system(&self, world: &World<N>, node: usize, out: &mut Vec<Step<N>>) {
        let mut before = world.clone();
        if world.nodes[node].free_due && Self::runs(world, node) {
            before.nodes[node].free_due = false;
            self.drive(&before, node, Event::LocalFree, |local, after| {
                out.push(Step { node, what: What::Freed(local), after });
            });
        }
        let Some(chain) = world.nodes[node].chain else { return };
        let mut before = world.clone();
        let Some(verb) = chain.next() else {
            if !Self::runs(world, node) {
                return;
            }
            before.nodes[node].chain = None;
            let phase = before.nodes[node].line.phase;
            let claims =
                matches!(phase, Phase::Claim { .. } | Phase::Inquire { of: Inquiry::Modified, .. });
            before.nodes[node].claimed |= claims && self.logs;
            self.completes(&mut before, node);
            if chain.reads() {
                before.nodes[node].fresh = chain.data;
            }
            self.drive(&before, node, Event::Completed { old: chain.old }, |local, after| {
                out.push(Step { node, what: What::Complete(local), after });
            });
            return;
        };
        let fresh = world.nodes[node].fresh;
        let (mut writes, mut reads) = (false, false);
        if let Some(chain) = &mut before.nodes[node].chain {
            match verb {
                Verb::WriteBack => before.home_fresh = fresh,
                Verb::Parity | Verb::Data | Verb::Versions => {
                    writes = true;
                }
                Verb::Word => {
                    before.word = chain.change(id(node), world.word);
                }
                Verb::Read => {
                    chain.data = world.home_fresh;
                    reads = chain.is_granted();
                }
            }
            chain.advance();
            if matches!(verb, Verb::WriteBack | Verb::Versions) {
                let chain = *chain;
                before.is_home(&chain);
                before.nodes[node].claimed = false;
            }
        }
        if writes {
            before.write_stage(node, verb, fresh);
        }
        if reads {
            before.read_splits();
        }
        before.forget(node);
        if !Self::runs(world, node) {
            before.forget_chain(node);
        }
        out.push(Step { node, what: What::Home(verb), after: before });
    }

    fn mail(&self, world: &World<N>, node: usize, from: usize, out: &mut Vec<Step<N>>) {
        let Some(Packet { message, fresh }) = world.wires[from][node].first() else { return };
        let mut before = world.clone();
        before.wires[from][node].pop();
        if matches!(message, Message::GrantShared | Message::GrantModified) {
            before.nodes[node].fresh = fresh;
        }
        let older = world.nodes[node].line.deferred.len();
        let event = Event::Received { from: id(from), message };
        self.drive(&before, node, event, |local, after| {
            let newcomer = after.nodes[node].line.deferred.len() > older;
            for overtakes in 0..=if newcomer { older } else { 0 } {
                let mut after = after.clone();
                if newcomer {
                    after.nodes[node].line.deferred[older - overtakes..].rotate_right(1);
                }
                let what = What::Receive { from, message, local, overtakes };
                out.push(Step { node, what, after });
            }
        });
    }
}

use super::world::Node;

impl<const N: usize> Model for Protocol<N> {
    type State = World<N>;
    type Action = Step<N>;

    fn init_states(&self) -> Vec<World<N>> {
        let class = |node| {
            let mortal = if self.mortal && node == Self::MORTAL { 100 } else { 0 };
            mortal + if self.symmetric { self.callers[node] as u8 } else { node as u8 }
        };
        vec![World::new(std::array::from_fn(class))]
    }

    fn actions(&self, world: &World<N>, out: &mut Vec<Step<N>>) {
        if world.fault.is_some() {
            return;
        }
        self.death(world, out);
        self.home_loss(world, out);
        self.splits(world, out);
        for node in 0..N {
            self.system(world, node, out);
            if !Self::runs(world, node) {
                continue;
            }
            self.application(world, node, out);
            for from in (0..N).filter(|from| *from != node) {
                self.mail(world, node, from, out);
            }
        }
    }

    fn next_state(&self, _: &World<N>, step: Step<N>) -> Option<World<N>> {
        Some(step.after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = properties::safety();
        if !self.published() {
            all.extend(properties::answers_and_rest());
        }
        all
    }
}

/// How much a phase says to a reader of a trace.
pub(super) fn describe<const N: usize>(step: &Step<N>) -> String {
    let World { word, nodes, home_fresh, .. } = &step.after;
    let phases: Vec<Phase> = nodes.iter().map(|n| n.line.phase).collect();
    let readers: Vec<usize> = word.readers().iter().map(place).collect();
    let holder = word.holder().ok().flatten().map(place);
    let copies: String = nodes.iter().map(|n| if n.fresh { 'F' } else { '-' }).collect();
    let home = if *home_fresh { "fresh" } else { "stale" };
    format!(
        "cn{} {:?} -> word {holder:?}{readers:?}, home {home}, copies {copies}, {phases:?}",
        step.node, step.what
    )
}
