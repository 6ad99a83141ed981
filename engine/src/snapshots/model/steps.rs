//! The steps of a model. Each is one verb, or what a node does between two.

use super::world::{Commit, Fault, Link, Publish, Reader, Step, Sweep, World};
use super::{Mistake, Snapshots};
use crate::snapshots::active::ActiveSnapshots;
use crate::snapshots::images::{Follow, follow, horizon};
use crate::snapshots::registry::Begin;
use crate::snapshots::slot::{add_published, word_of};
use crate::snapshots::stamp::Stamp;

impl Snapshots {
    /// What can happen next.
    pub(super) fn steps(&self, world: &World, out: &mut Vec<Step>) {
        for (id, node) in world.nodes.iter().enumerate() {
            match node.commit {
                Commit::Idle if node.commits > 0 => {
                    let free = (0..self.leaves).filter(|leaf| !world.leaves[*leaf].is_latched);
                    out.extend(
                        free.filter(|leaf| self.is_there(world, *leaf))
                            .map(|leaf| Step::Commit(id, leaf)),
                    );
                }
                Commit::Idle => {}
                _ => out.push(Step::Commit(id, 0)),
            }
            let may_read = match node.reader {
                Reader::Idle => node.snapshots > 0 && self.may_begin(world, id),
                Reader::Reads { leaf, .. } => !world.leaves[leaf].is_latched,
                _ => true,
            };
            if may_read {
                out.push(Step::Read(id));
            }
            let publishes = !node.publishes.is_empty();
            if publishes || node.ticks > 0 && !node.reader_has_turn {
                out.push(Step::Tick(id));
            }
            if node.sweep != Sweep::Idle || node.horizons > 0 {
                out.push(Step::Horizon(id));
            }
        }
        let is_free = world.leaves.iter().all(|leaf| !leaf.is_latched);
        if self.splits && !world.seen.split && is_free {
            out.push(Step::Split);
        }
    }

    /// The second leaf is not there before the split.
    fn is_there(&self, world: &World, leaf: usize) -> bool {
        !self.splits || world.seen.split || leaf == 0
    }

    /// A snapshot waits while its node publishes.
    fn may_begin(&self, world: &World, id: usize) -> bool {
        world.nodes[id].publishes.is_empty() && !world.nodes[id].reader_has_turn
    }

    pub(super) fn take(&self, world: &mut World, step: Step) {
        match step {
            Step::Commit(id, leaf) => self.commit(world, id, leaf),
            Step::Read(id) => self.read(world, id),
            Step::Tick(id) => self.tick(world, id),
            Step::Horizon(id) => self.horizon(world, id),
            Step::Split => {
                world.seen.split = true;
                world.leaves[1] = world.leaves[0].clone();
            }
        }
    }

    fn commit(&self, world: &mut World, id: usize, chosen: usize) {
        let commit = world.nodes[id].commit.clone();
        world.nodes[id].commit = match commit {
            Commit::Idle => {
                world.nodes[id].commits -= 1;
                world.leaves[chosen].is_latched = true;
                Commit::Latched { leaf: chosen }
            }
            Commit::Latched { leaf } if self.mistake == Mistake::MaskBeforeDraw => {
                let mut active = ActiveSnapshots::none();
                world.nodes[id].registry.add_own(&mut active, Stamp::new(u64::MAX));
                Commit::Masked { leaf, mask: world.mask & !(1 << id), active }
            }
            Commit::Latched { leaf } => Commit::Drawn { leaf, stamp: draw(world) },
            Commit::Masked { leaf, mask, active } => {
                let stamp = draw(world);
                Commit::Learns { leaf, stamp, mask, has_open: false, active }
            }
            Commit::Drawn { leaf, stamp } => {
                let mut active = ActiveSnapshots::none();
                world.nodes[id].registry.add_own(&mut active, stamp);
                let mask = world.mask & !(1 << id);
                Commit::Learns { leaf, stamp, mask, has_open: false, active }
            }
            Commit::Learns { leaf, stamp, mut mask, mut has_open, mut active } if mask != 0 => {
                learn(world, &mut mask, &mut has_open, &mut active, stamp);
                Commit::Learns { leaf, stamp, mask, has_open, active }
            }
            Commit::Learns { leaf, stamp, active, .. } => {
                self.install(world, id, leaf, stamp, &active);
                Commit::Idle
            }
        };
    }

    /// Keeps an image if a snapshot may want it, changes the leaf, and lets go of it.
    fn install(
        &self,
        world: &mut World,
        id: usize,
        number: usize,
        stamp: Stamp,
        active: &ActiveSnapshots,
    ) {
        let World { leaves, nodes, seen, .. } = world;
        let (leaf, node) = (&mut leaves[number], &mut nodes[id]);
        if active.any_since(leaf.write) {
            let own = |link: Link| link.filter(|own| own.0 == id).map(|own| (own.1, own.2));
            let previous = match self.mistake {
                Mistake::UncheckedRelink => {
                    node.images.shortened(leaf.write, leaf.link, own, &ActiveSnapshots::none())
                }
                _ => node.images.shortened(leaf.write, leaf.link, own, active),
            };
            if self.mistake == Mistake::FreedRelink {
                node.images.free_spare();
            }
            leaf.link = None;
            if let Some(room) = node.images.room() {
                seen.dropped |= room.dropped;
                node.images.fill(room, leaf.write, stamp, previous);
                node.contents[room.slot] = leaf.write;
                leaf.link = Some((id, room.slot, room.sequence));
            } else {
                seen.dropped = true;
            }
        }
        leaf.write = stamp;
        leaf.history.push(stamp);
        leaf.is_latched = false;
        world.acked = world.acked.max(stamp);
    }

    fn read(&self, world: &mut World, id: usize) {
        let (acked, clock) = (world.acked, world.clock);
        let reader = world.nodes[id].reader;
        let node = &mut world.nodes[id];
        let next = match reader {
            Reader::Idle => {
                node.snapshots -= 1;
                match node.registry.begin() {
                    Begin::Registered(lower) => Reader::Begins { lower, acked, has_turn: false },
                    Begin::Closed => {
                        node.reader_has_turn = true;
                        let lower = node.registry.open();
                        Reader::Opens { lower, acked, is_written: false }
                    }
                }
            }
            Reader::Opens { lower, acked, is_written: false } => {
                world.slots[id].open_from = Some(lower);
                Reader::Opens { lower, acked, is_written: true }
            }
            Reader::Opens { lower, acked, is_written: true } => {
                world.mask |= 1 << id;
                node.has_bit = true;
                Reader::Begins { lower, acked, has_turn: true }
            }
            Reader::Begins { lower, acked, has_turn } => {
                if has_turn {
                    node.registry.opened(lower);
                    node.reader_has_turn = false;
                }
                node.registry.began(lower, clock);
                if clock < acked {
                    world.fault = Some(Fault::Excluded);
                }
                Reader::Reads { at: clock, leaf: 0 }
            }
            Reader::Reads { at, leaf } => self.read_leaf(world, at, leaf),
            Reader::Follows { at, leaf, head, link, since } => {
                follow_link(world, (at, leaf), (head, link), since)
            }
        };
        world.nodes[id].reader = next;
        if let Reader::Reads { at, leaf } = world.nodes[id].reader
            && leaf == self.leaves
        {
            world.nodes[id].registry.ended(at);
            world.nodes[id].reader = Reader::Idle;
        }
    }

    fn read_leaf(&self, world: &mut World, at: Stamp, number: usize) -> Reader {
        let leaf = &world.leaves[number];
        if !self.is_there(world, number) {
            return Reader::Reads { at, leaf: number + 1 };
        }
        if leaf.write <= at {
            world.reads.insert((number, at, leaf.write));
            return Reader::Reads { at, leaf: number + 1 };
        }
        let link = leaf.link;
        Reader::Follows { at, leaf: number, head: link, link, since: None }
    }

    fn tick(&self, world: &mut World, id: usize) {
        let World { nodes, slots, mask, .. } = world;
        let (node, slot) = (&mut nodes[id], &mut slots[id]);
        if !node.publishes.is_empty() {
            match node.publishes.remove(0) {
                Publish::Listed(listed) => slot.listed = listed,
                Publish::OpenFrom(open_from) => slot.open_from = open_from,
                Publish::ClearBit => *mask &= !(1 << id),
            }
            return;
        }
        node.ticks -= 1;
        let listed = node.registry.list();
        let raised = match self.mistake {
            Mistake::CloseWhileBeginning => node.registry.raise_without_beginning(),
            _ => node.registry.raise(),
        };
        node.publishes.extend(listed.map(Publish::Listed));
        node.publishes.extend(raised.map(Publish::OpenFrom));
        if self.mistake == Mistake::ListedLast {
            node.publishes.reverse();
        }
        if node.has_bit && node.registry.is_closed_and_empty() {
            node.publishes.push(Publish::ClearBit);
            node.has_bit = false;
        }
    }

    fn horizon(&self, world: &mut World, id: usize) {
        let sweep = world.nodes[id].sweep.clone();
        let others = world.mask & !(1 << id);
        let clock_first =
            !matches!(self.mistake, Mistake::HorizonWithoutClock | Mistake::HorizonClockLast);
        let active = ActiveSnapshots::none();
        world.nodes[id].sweep = match sweep {
            Sweep::Idle => {
                world.nodes[id].horizons -= 1;
                if clock_first {
                    Sweep::Clock { clock: world.clock }
                } else {
                    Sweep::Learns { clock: None, mask: others, has_open: false, active }
                }
            }
            Sweep::Clock { clock } => {
                Sweep::Learns { clock: Some(clock), mask: others, has_open: false, active }
            }
            Sweep::Learns { clock, mut mask, mut has_open, mut active } if mask != 0 => {
                let before = clock.unwrap_or(Stamp::new(u64::MAX));
                learn(world, &mut mask, &mut has_open, &mut active, before);
                Sweep::Learns { clock, mask, has_open, active }
            }
            Sweep::Learns { clock, active, .. } => {
                let late = match self.mistake {
                    Mistake::HorizonWithoutClock => Stamp::new(u64::MAX),
                    _ => world.clock,
                };
                let own = world.nodes[id].registry.oldest();
                let horizon = horizon(clock.unwrap_or(late), &active, own);
                world.nodes[id].images.retire(horizon);
                if let Some(clock) = clock {
                    world.nodes[id].registry.note_clock(clock);
                }
                Sweep::Idle
            }
        };
    }
}

fn draw(world: &mut World) -> Stamp {
    world.clock = Stamp::new(world.clock.get() + 1);
    world.clock
}

/// Reads a word of the next slot: `open_from`, then what is listed.
fn learn(
    world: &World,
    mask: &mut u8,
    has_open: &mut bool,
    active: &mut ActiveSnapshots,
    before: Stamp,
) {
    let slot = &world.slots[mask.trailing_zeros() as usize];
    if *has_open {
        add_published(active, 0, slot.listed.into_iter().map(word_of), before);
        *mask &= *mask - 1;
    } else {
        add_published(active, word_of(slot.open_from), std::iter::empty(), before);
    }
    *has_open = !*has_open;
}

/// A reader of a leaf at a stamp, at a link of the chain that begins with `head`.
fn follow_link(
    world: &mut World,
    (at, leaf): (Stamp, usize),
    (head, link): (Link, Link),
    since: Option<Stamp>,
) -> Reader {
    let image = link.and_then(|(node, slot, sequence)| {
        let owner = &world.nodes[node];
        Some((*owner.images.get(slot, sequence)?, owner.contents[slot]))
    });
    let found = image.map(|(image, _)| follow(image.from, image.until, since, at));
    match (found, image) {
        (Some(Follow::This), Some((_, content))) => {
            world.reads.insert((leaf, at, content));
            world.seen.image_read = true;
            Reader::Reads { at, leaf: leaf + 1 }
        }
        (Some(Follow::Previous), Some((image, _))) => {
            Reader::Follows { at, leaf, head, link: image.previous, since: Some(image.from) }
        }
        // It reads the leaf again, which it finds as it was, or not.
        _ if world.leaves[leaf].link != head => Reader::Reads { at, leaf },
        _ => {
            if !world.seen.dropped {
                world.fault = Some(Fault::Gone);
            }
            Reader::Reads { at, leaf: leaf + 1 }
        }
    }
}
