//! A coded page in the model: two data splits and one of parity, of which one may be lost.
//!
//! ```text
//! write-back:  Parity --> Data --> Versions, Word      (one data split is changed: DESIGN §7, c <= r)
//! a split is lost at any moment --> SplitLost --> a reader makes it again, whoever that is: SplitMade
//! the writer dies: what was under way is there, or not, or torn --> the sweep mends the page by `page_of`
//! ```
//! Splits are read again until they have the versions of the header, under the latch; so one read
//! when the latch is had stands for all. Nobody may be writing then, and two do not write at the
//! same time.

use super::protocol::{Protocol, Step, What};
use super::world::{Fault, Life, Verb, World};
use crate::coding::{Found, Page, SplitSet, Version, Versions, page_of};

/// Splits of the page: two of data, the first of which is changed, and one of parity.
const SPLITS: usize = 3;
const DATA: usize = 2;
const CHANGED: usize = 0;

/// What making a page good can leave out, to show that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Careless {
    /// Who makes a split again does not wait until who granted the page has written it back.
    Unsettled,
    /// The splits of data and of parity are written at once.
    AtOnce,
}

impl Careless {
    pub(super) const ALL: [Careless; 2] = [Careless::Unsettled, Careless::AtOnce];
}

/// A split, beside what the header says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Split {
    #[default]
    Old,
    Torn,
    New,
}

/// The splits of the page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Store {
    /// Who writes the page back.
    pub(super) writer: Option<usize>,
    splits: [Split; SPLITS],
    /// What it writes is fresh.
    new_fresh: bool,
    lost: Option<usize>,
    /// One was lost.
    bereft: bool,
    /// Too little is left of the page: it is refused.
    refused: bool,
}

impl Store {
    pub(super) fn code(&self) -> u64 {
        let splits = self.splits.iter().fold(0, |all, split| all << 2 | *split as u64);
        let lost = self.lost.map_or(0, |lost| lost as u64 + 1);
        let flags =
            u64::from(self.new_fresh) | u64::from(self.bereft) << 1 | u64::from(self.refused) << 2;
        splits | lost << 8 | flags << 16
    }

    /// What is written is the page.
    pub(super) fn end(&mut self) {
        self.writer = None;
        self.splits = Default::default();
        self.new_fresh = false;
    }

    /// The header as it is, and what whoever looks finds.
    fn found(&self) -> (Versions, Vec<Found>) {
        let old = Version::NEVER.next(SplitSet::first(DATA));
        let new = old.next(SplitSet::EMPTY.with(CHANGED));
        let mut header = Versions::default();
        header.iter_mut().take(SPLITS).for_each(|version| *version = old);
        let found = self.splits.iter().enumerate().map(|(number, split)| match split {
            _ if self.lost == Some(number) => Found::Nothing,
            Split::Old => Found::Whole(old),
            Split::New => Found::Whole(new),
            Split::Torn => Found::Nothing,
        });
        (header, found.collect())
    }

    fn page(&self) -> Page {
        let (header, found) = self.found();
        let coding = selkie_memnode::Coding::new(DATA, SPLITS - DATA).unwrap();
        page_of(coding, &header, &found, None)
    }
}

impl<const N: usize> World<N> {
    /// A stage of a write-back has been executed.
    pub(super) fn write_stage(&mut self, writer: usize, verb: Verb, fresh: bool) {
        let other = self.store.writer.filter(|other| *other != writer);
        if other.is_some_and(|other| self.nodes[other].life == Life::Runs) {
            self.fault = Some(Fault::Torn);
            return;
        }
        let store = &mut self.store;
        if other.is_some() {
            // Who takes over from a dead node journals the page, and writes all of it.
            store.end();
        }
        store.writer = Some(writer);
        store.new_fresh = fresh;
        match verb {
            Verb::Parity => store.splits[DATA] = Split::New,
            Verb::Data => store.splits[CHANGED] = Split::New,
            _ => {
                self.home_fresh = fresh;
                store.end();
            }
        }
    }

    /// Who has the latch reads: nobody may be writing, and what is there has to be a page.
    pub(super) fn read_splits(&mut self) {
        if self.store.writer.is_some() || !matches!(self.store.page(), Page::Old(_)) {
            self.fault = Some(Fault::Torn);
        }
    }

    /// The header is made anew of what the splits say: they have to be of one page.
    pub(super) fn check_splits(&mut self) {
        if self.store.splits != [Split::Old; SPLITS] {
            self.fault = Some(Fault::Torn);
        }
    }

    /// Whether a node's next verb writes a split.
    pub(super) fn is_writing_splits(&self, node: usize) -> bool {
        let next = self.nodes[node].chain.and_then(|chain| chain.next());
        matches!(next, Some(Verb::Parity | Verb::Data))
    }

    /// The split that a node was about to write is torn, or both.
    pub(super) fn tear(&mut self, node: usize, at_once: bool) {
        let next = self.nodes[node].chain.and_then(|chain| chain.next());
        let split = if next == Some(Verb::Parity) { DATA } else { CHANGED };
        self.store.writer = Some(node);
        self.store.new_fresh = self.nodes[node].fresh;
        self.store.splits[split] = Split::Torn;
        if at_once {
            self.store.splits[CHANGED] = Split::Torn;
        }
    }
}

impl<const N: usize> Protocol<N> {
    /// Splits are lost and made again.
    pub(super) fn splits(&self, world: &World<N>, out: &mut Vec<Step<N>>) {
        if !self.coded || world.home_lost {
            return;
        }
        if !world.store.bereft {
            for split in 0..SPLITS {
                let mut after = world.clone();
                (after.store.bereft, after.store.lost) = (true, Some(split));
                out.push(Step { node: 0, what: What::SplitLost(split), after });
            }
        }
        for (node, own) in world.nodes.iter().enumerate() {
            let settled = own.line.grantor.is_none() || self.careless == Some(Careless::Unsettled);
            let reads = own.line.readable() && !own.line.writable() && own.chain.is_none();
            if world.store.lost.is_none() || !Self::runs(world, node) || !reads || !settled {
                continue;
            }
            let mut after = world.clone();
            after.store.lost = None;
            // Its copy is what the header speaks of.
            if world.store.writer.is_some() || !world.home_fresh {
                after.fault = Some(Fault::Torn);
            }
            out.push(Step { node, what: What::SplitMade, after });
        }
    }

    /// The sweep for a dead node is over with the line: what it was writing is made one page again.
    pub(super) fn mend(&self, world: &mut World<N>, of: usize, lost: bool) {
        if world.store.writer != Some(of) {
            return;
        }
        // Only what is lost is looked at.
        let page = if lost { world.store.page() } else { Page::Lost };
        match page {
            Page::Old(_) => {}
            Page::New(..) => world.home_fresh = world.store.new_fresh,
            // The writer and a memory node are gone.
            Page::Lost if lost && world.store.lost.is_some() => {
                (world.home_fresh, world.store.refused) = (false, true);
            }
            Page::Lost => world.fault = Some(Fault::Torn),
        }
        world.store.end();
    }
}
