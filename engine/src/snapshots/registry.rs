//! `Registry`: the snapshots of one node, and what of them the node publishes. Pure.
//!
//! A registry is *open* while its slot says `open_from`: every snapshot from there on may be
//! active, so a snapshot begins without a word to the others. It is *closed* while the slot lists
//! its snapshots exactly. Then a beginning snapshot opens it first.
//!
//! ```text
//!            open(), published, opened()
//!   closed --------------------------------> open --+
//!      ^                                      |  ^  | raise(): open_from grows
//!      +--------------------------------------+  +--+
//!        raise(): nothing begins, all listed
//! ```
//!
//! Invariant: each snapshot that is active, or between [`Registry::begin`] and its registration, is
//! listed in the slot or is not before the published `open_from`. A beginning one has a lower bound
//! already: the clock as it was last seen, than which no later read of the clock is less.
//! `open_from` is never raised beyond such a bound.

use std::collections::BTreeMap;

use super::active::ActiveSnapshots;
use super::slot::Listed;
use super::stamp::Stamp;

/// Stamps with how often each is there.
type StampCounts = BTreeMap<Stamp, u32>;

/// The snapshots of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Registry {
    /// The latest value of the clock that this node has read.
    known: Stamp,
    /// Lower bounds of the snapshots that are beginning.
    beginning: StampCounts,
    active: StampCounts,
    /// What the slot lists. A snapshot keeps its place.
    listed: Listed,
    /// What the slot says; none while closed, and while it is not published yet.
    open_from: Option<Stamp>,
    /// A snapshot has begun since [`Registry::raise`].
    is_young: bool,
    /// The value of `known` then.
    seen_before: Stamp,
}

/// What a snapshot needs that is to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// It may read the clock. Its lower bound is registered.
    Registered(Stamp),
    /// The registry is to be opened first.
    Closed,
}

impl Registry {
    /// A snapshot is to begin.
    pub(crate) fn begin(&mut self) -> Begin {
        if self.open_from.is_none() {
            return Begin::Closed;
        }
        Begin::Registered(self.register_beginning())
    }

    /// The `open_from` to publish, so that the caller's snapshot can begin: it is registered as its
    /// lower bound. [`Registry::opened`] follows once it is published. The caller has the turn to
    /// publish.
    pub(crate) fn open(&mut self) -> Stamp {
        assert!(self.open_from.is_none(), "a registry that is open is not opened");
        self.register_beginning()
    }

    fn register_beginning(&mut self) -> Stamp {
        self.is_young = true;
        *self.beginning.entry(self.known).or_default() += 1;
        self.known
    }

    /// The slot says `from`.
    pub(crate) fn opened(&mut self, from: Stamp) {
        self.open_from = Some(from);
    }

    /// The snapshot with this lower bound has begun.
    pub(crate) fn began(&mut self, lower: Stamp, snapshot: Stamp) {
        assert!(snapshot >= lower, "the clock went back from {lower:?} to {snapshot:?}");
        self.note_clock(snapshot);
        *self.active.entry(snapshot).or_default() += 1;
        self.gave_up(lower);
    }

    /// The snapshot with this lower bound does not begin.
    pub(crate) fn gave_up(&mut self, lower: Stamp) {
        remove(&mut self.beginning, lower);
    }

    /// An active snapshot has ended.
    pub(crate) fn ended(&mut self, snapshot: Stamp) {
        remove(&mut self.active, snapshot);
    }

    /// The clock is at this value, or later.
    pub(crate) fn note_clock(&mut self, clock: Stamp) {
        self.known = self.known.max(clock);
    }

    /// Lists the oldest active snapshots, and forgets those that have ended. The words to publish,
    /// if they have changed.
    pub(crate) fn list(&mut self) -> Option<Listed> {
        let before = self.listed;
        let active = &self.active;
        self.listed.iter_mut().for_each(|word| {
            word.take_if(|listed| !active.contains_key(listed));
        });
        let old = self.active.keys().copied().filter(|own| *own <= self.seen_before);
        let unlisted: Vec<Stamp> = old.filter(|own| !before.contains(&Some(*own))).collect();
        let free = self.listed.iter_mut().filter(|word| word.is_none());
        for (word, snapshot) in free.zip(unlisted) {
            *word = Some(snapshot);
        }
        (self.listed != before).then_some(self.listed)
    }

    /// Raises `open_from` as far as can be, or closes. What to publish, after what is listed, if it
    /// has changed. Called every tick, by the one that has the turn to publish.
    pub(crate) fn raise(&mut self) -> Option<Option<Stamp>> {
        let young = std::mem::take(&mut self.is_young).then_some(self.known);
        self.seen_before = self.known;
        let open = self.open_from?;
        let unlisted = self.active.keys().copied().find(|own| !self.listed.contains(&Some(*own)));
        let beginning = self.beginning.keys().next().copied();
        let from = [young, unlisted, beginning].into_iter().flatten().min();
        self.open_from = from;
        (from != Some(open)).then_some(from)
    }

    /// Nothing is active, or begins.
    fn is_idle(&self) -> bool {
        self.active.is_empty() && self.beginning.is_empty()
    }

    /// As [`Registry::raise`], as if no snapshot were beginning: a mistake that the model finds.
    #[cfg(test)]
    pub(super) fn raise_without_beginning(&mut self) -> Option<Option<Stamp>> {
        let beginning = std::mem::take(&mut self.beginning);
        self.is_young = false;
        let raised = self.raise();
        self.beginning = beginning;
        raised
    }

    /// Whether the slot says nothing.
    pub(crate) fn is_closed_and_empty(&self) -> bool {
        self.open_from.is_none() && self.listed == Listed::default()
    }

    /// It is not known what the slot says: a publication has failed, or was given up, or the slot
    /// is at another memory node now. Nothing begins before the registry is opened again.
    pub(crate) fn forget_published(&mut self) {
        self.open_from = None;
    }

    /// It is not known what the slot says. The `open_from` that is to be published, and then to be
    /// [`Registry::opened`], with the list: it covers all, so that the list may become visible
    /// before it or after it. No `open_from` if nothing is active or begins.
    pub(crate) fn anew(&mut self) -> (Option<Stamp>, Listed) {
        self.forget_published();
        if self.is_idle() {
            self.listed = Listed::default();
        }
        (self.oldest(), self.listed)
    }

    /// Adds what a commit at `before` of this node has to know.
    pub(crate) fn add_own(&self, active: &mut ActiveSnapshots, before: Stamp) {
        if let Some(from) = self.beginning.keys().next().filter(|from| **from < before) {
            active.add_from(*from);
        }
        self.active.keys().take_while(|own| **own < before).for_each(|own| active.add(*own));
    }

    /// No snapshot here is older, nor will be.
    pub(crate) fn oldest(&self) -> Option<Stamp> {
        let firsts = [self.active.keys().next(), self.beginning.keys().next()];
        firsts.into_iter().flatten().min().copied()
    }

    /// Active snapshots.
    pub(crate) fn active_count(&self) -> u64 {
        self.active.values().map(|count| u64::from(*count)).sum()
    }

    /// How many stamps have been drawn since the oldest active snapshot, as far as is known.
    pub(crate) fn oldest_age(&self) -> u64 {
        self.active.keys().next().map_or(0, |oldest| self.known.get() - oldest.get())
    }
}

fn remove(from: &mut StampCounts, stamp: Stamp) {
    let Some(count) = from.get_mut(&stamp) else { panic!("{stamp:?} is not registered") };
    *count -= 1;
    if *count == 0 {
        from.remove(&stamp);
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]
mod tests {
    use super::*;

    fn stamp(number: u64) -> Stamp {
        Stamp::new(number)
    }

    fn opened() -> Registry {
        let mut registry = Registry::default();
        assert_eq!(registry.begin(), Begin::Closed);
        let from = registry.open();
        registry.opened(from);
        registry.began(from, stamp(5));
        registry
    }

    fn begin(registry: &mut Registry, at: u64) {
        let Begin::Registered(lower) = registry.begin() else { panic!("it is open") };
        registry.began(lower, stamp(at));
    }

    #[test]
    fn an_old_snapshot_is_listed_and_the_registry_closes() {
        let mut registry = opened();
        assert_eq!(registry.list(), None, "it is young");
        assert_eq!(registry.raise(), Some(Some(stamp(5))), "one has begun since");
        let listed = [Some(stamp(5)), None, None, None];
        assert_eq!(registry.list(), Some(listed));
        assert_eq!(registry.raise(), Some(None));
        assert_eq!(registry.begin(), Begin::Closed);
        assert!(!registry.is_closed_and_empty());
        registry.ended(stamp(5));
        assert_eq!(registry.list(), Some([None; 4]));
        assert_eq!(registry.raise(), None);
        assert!(registry.is_closed_and_empty());
    }

    #[test]
    fn a_beginning_snapshot_keeps_the_registry_open() {
        let mut registry = opened();
        let Begin::Registered(lower) = registry.begin() else { panic!("it is open") };
        assert_eq!(lower, stamp(5));
        registry.note_clock(stamp(9));
        registry.raise();
        for _ in 0..3 {
            registry.list();
            assert_eq!(registry.raise(), None);
            assert_eq!(registry.oldest(), Some(stamp(5)));
        }
        registry.began(lower, stamp(7));
        registry.ended(stamp(5));
        registry.list();
        assert_eq!(registry.raise(), Some(None), "7 is listed");
    }

    #[test]
    fn the_fifth_snapshot_keeps_open_what_does_not_fit() {
        let mut registry = opened();
        (6..12).for_each(|at| begin(&mut registry, at));
        registry.raise();
        let listed = registry.list().unwrap();
        assert_eq!(listed, [5, 6, 7, 8].map(|at| Some(stamp(at))));
        assert_eq!(registry.raise(), Some(Some(stamp(9))));
        // A snapshot that is listed keeps its place.
        registry.ended(stamp(6));
        assert_eq!(registry.list().unwrap(), [5, 9, 7, 8].map(|at| Some(stamp(at))));
        assert_eq!(registry.raise(), Some(Some(stamp(10))));
    }

    /// Found by a node that died in the midst of it: a raise was not published, or was published at
    /// a memory node that is gone.
    #[test]
    fn a_registry_is_opened_again_when_its_slot_is_not_known() {
        let mut registry = opened();
        registry.forget_published();
        assert_eq!(registry.begin(), Begin::Closed);
        let lower = registry.open();
        assert_eq!(lower, stamp(5));
        registry.opened(lower);
        registry.raise();
        registry.forget_published();
        let lower = registry.open();
        registry.opened(lower);
        assert_eq!(registry.oldest(), Some(stamp(5)));
    }

    #[test]
    fn snapshots_of_one_stamp_are_counted() {
        let mut registry = opened();
        begin(&mut registry, 5);
        registry.ended(stamp(5));
        assert_eq!((registry.oldest(), registry.active_count()), (Some(stamp(5)), 1));
        registry.ended(stamp(5));
        assert_eq!((registry.oldest(), registry.oldest_age()), (None, 0));
    }

    /// Whatever happens, each snapshot is listed or not before `open_from`.
    #[test]
    fn every_snapshot_is_covered_after_random_steps() {
        let mut seed = 1_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut registry, mut clock) = (Registry::default(), 0);
        let (mut beginning, mut active) = (Vec::new(), Vec::new());
        let (mut open_from, mut listed) = (None, Listed::default());
        for step in 0..100_000 {
            match draw(7) {
                0 => clock += draw(3),
                1 => match registry.begin() {
                    Begin::Registered(lower) => beginning.push(lower),
                    Begin::Closed => {
                        let lower = registry.open();
                        open_from = Some(lower);
                        registry.opened(lower);
                        beginning.push(lower);
                    }
                },
                2 => {
                    if let Some(lower) = beginning.pop() {
                        let at = stamp(clock);
                        registry.began(lower, at);
                        active.push(at);
                    }
                }
                3 if !active.is_empty() => {
                    let which = draw(active.len() as u64) as usize;
                    registry.ended(active.swap_remove(which));
                }
                4 if !beginning.is_empty() && draw(4) == 0 => {
                    registry.gave_up(beginning.swap_remove(0));
                }
                5 if draw(8) == 0 => {
                    // What is published fails. The next that begins or narrows publishes anew.
                    registry.list();
                    registry.raise();
                    registry.forget_published();
                    if draw(2) == 0 {
                        beginning.push(registry.open());
                    }
                    (open_from, listed) = registry.anew();
                    open_from.into_iter().for_each(|from| registry.opened(from));
                }
                _ => {
                    listed = registry.list().unwrap_or(listed);
                    open_from = registry.raise().unwrap_or(open_from);
                }
            }
            let is_open = |at: Stamp| open_from.is_some_and(|from| from <= at);
            let is_covered = |at: &Stamp| is_open(*at) || listed.contains(&Some(*at));
            assert!(active.iter().all(is_covered), "step {step}: {registry:?}");
            assert!(beginning.iter().all(|lower| is_open(*lower)), "step {step}: {registry:?}");
        }
    }
}
