//! `Images`: which images a node keeps, in which slots, and which it gives up first. Pure.
//!
//! A slot is *free*, *being written*, *in use*, or *spare*. An image is spare when a later image of
//! its page has taken its place in the chain of links, because no snapshot lies in its interval.
//! The chain of the other half of a split page may still lead through it, so it stays until its
//! room is needed. Room is taken from free slots, then from spare images, then from
//! the one that is valid for the oldest snapshots, which is then missed.

use std::collections::BTreeSet;

use super::active::ActiveSnapshots;
use super::link::MAX_SEQUENCE;
use super::stamp::Stamp;

/// The image of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ImageInfo<L> {
    /// Which image of its slot it is.
    pub(crate) sequence: u64,
    /// The commit that made the page what it is here.
    pub(crate) from: Stamp,
    /// The commit that changed it.
    pub(crate) until: Stamp,
    /// The image before.
    pub(crate) previous: L,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum SlotState<L> {
    Free,
    Writing,
    InUse(ImageInfo<L>),
    Spare(ImageInfo<L>),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ImageSlot<L> {
    /// The last sequence that was used.
    sequence: u64,
    state: SlotState<L>,
}

/// The slots of a node's image arena; `L` names an image of any node, or none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Images<L> {
    slots: Vec<ImageSlot<L>>,
    free: Vec<usize>,
    /// Slots in use, by when their images end.
    in_use: BTreeSet<(Stamp, usize)>,
    spare: BTreeSet<(Stamp, usize)>,
    /// Slots that there may be.
    most: usize,
    first_sequence: u64,
}

/// Room for an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) slot: usize,
    pub(crate) sequence: u64,
    /// An image was dropped for it that a snapshot may need.
    pub(crate) dropped: bool,
}

/// What a reader does with an image to which a link has led it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follow {
    /// It reads the image.
    This,
    /// It follows the image's own link.
    Previous,
    /// What it looks for is gone.
    Gone,
}

/// What a reader at `at` does with the image of `[from, until)`. `since` is where the validity of
/// what led to it begins: what a link leads to is older, else the slot has another image by now.
pub(crate) fn follow(from: Stamp, until: Stamp, since: Option<Stamp>, at: Stamp) -> Follow {
    let is_older = since.is_none_or(|since| until <= since);
    match (from..until).contains(&at) {
        _ if !is_older || from >= until || at >= until => Follow::Gone,
        true => Follow::This,
        false => Follow::Previous,
    }
}

/// A lower bound of all snapshots that are active or will be: `clock` was read before what
/// `published` says, which is of the other nodes, and before `own` was looked at.
pub(crate) fn horizon(clock: Stamp, published: &ActiveSnapshots, own: Option<Stamp>) -> Stamp {
    [published.oldest(), own].into_iter().flatten().fold(clock, Stamp::min)
}

impl<L: Copy> Images<L> {
    /// What a new image, of a page that was so `from` a stamp on, links to instead of `previous`:
    /// images between that no snapshot needs are left out. `own` names those that are here. What
    /// does not lead back in time is no chain of images, and is not followed ([`follow`]).
    pub(crate) fn shortened(
        &mut self,
        mut from: Stamp,
        mut previous: L,
        own: impl Fn(L) -> Option<(usize, u64)>,
        active: &ActiveSnapshots,
    ) -> L {
        while let Some(name) = own(previous)
            && let Some(info) = self.get(name.0, name.1).copied()
            && info.until <= from
            && info.from < info.until
            && self.replace(name.0, info, active)
        {
            (from, previous) = (info.from, info.previous);
        }
        previous
    }

    /// So many empty slots, whose sequences begin after `first_sequence`.
    pub(crate) fn new(slots: usize, first_sequence: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            in_use: BTreeSet::new(),
            spare: BTreeSet::new(),
            most: slots,
            first_sequence,
        }
    }

    /// The image, if the slot has that one.
    pub(crate) fn get(&self, slot: usize, sequence: u64) -> Option<&ImageInfo<L>> {
        match &self.slots.get(slot)?.state {
            SlotState::InUse(own) | SlotState::Spare(own) if own.sequence == sequence => Some(own),
            _ => None,
        }
    }

    /// A later image takes the place of this one in the chain, unless a snapshot that may be active
    /// lies in its interval. Whether it does.
    fn replace(&mut self, slot: usize, info: ImageInfo<L>, active: &ActiveSnapshots) -> bool {
        if active.any_within(info.from, info.until) {
            return false;
        }
        if self.in_use.remove(&(info.until, slot)) {
            self.spare.insert((info.until, slot));
            self.set(slot, SlotState::Spare(info));
        }
        true
    }

    /// Room for an image; [`Images::fill`] follows. None if all slots are being written.
    pub(crate) fn room(&mut self) -> Option<Room> {
        let (slot, dropped) = self.take_slot()?;
        self.set(slot, SlotState::Writing);
        let own = self.slots.get_mut(slot)?;
        own.sequence = own.sequence % MAX_SEQUENCE + 1;
        Some(Room { slot, sequence: own.sequence, dropped })
    }

    fn take_slot(&mut self) -> Option<(usize, bool)> {
        if let Some(slot) = self.free.pop() {
            return Some((slot, false));
        }
        if self.slots.len() < self.most {
            self.slots.push(ImageSlot { sequence: self.first_sequence, state: SlotState::Free });
            return Some((self.slots.len() - 1, false));
        }
        if let Some((_, slot)) = self.spare.pop_first() {
            return Some((slot, false));
        }
        self.in_use.pop_first().map(|(_, slot)| (slot, true))
    }

    /// The image is in its slot.
    pub(crate) fn fill(&mut self, room: Room, from: Stamp, until: Stamp, previous: L) {
        let info = ImageInfo { sequence: room.sequence, from, until, previous };
        self.set(room.slot, SlotState::InUse(info));
        self.in_use.insert((until, room.slot));
    }

    /// No snapshot before `horizon` is active, nor will be: frees what only those could need.
    pub(crate) fn retire(&mut self, horizon: Stamp) {
        for kept in [&mut self.in_use, &mut self.spare] {
            while let Some((_, slot)) = kept.first().filter(|(until, _)| *until <= horizon) {
                let slot = *slot;
                kept.pop_first();
                self.free.push(slot);
                let Some(own) = self.slots.get_mut(slot) else { panic!("no slot {slot}") };
                own.state = SlotState::Free;
            }
        }
    }

    fn set(&mut self, slot: usize, state: SlotState<L>) {
        let Some(own) = self.slots.get_mut(slot) else { panic!("no slot {slot}") };
        own.state = state;
    }

    /// Frees what was left out of chains: a mistake that the model finds.
    #[cfg(test)]
    pub(super) fn free_spare(&mut self) {
        for (_, slot) in std::mem::take(&mut self.spare) {
            self.set(slot, SlotState::Free);
            self.free.push(slot);
        }
    }

    /// Images in use.
    pub(crate) fn live(&self) -> usize {
        self.in_use.len()
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_use.is_empty() && self.spare.is_empty()
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

    type Link = Option<(usize, u64)>;

    fn stamp(number: u64) -> Stamp {
        Stamp::new(number)
    }

    fn keep(images: &mut Images<Link>, from: u64, until: u64, previous: Link) -> Link {
        let room = images.room()?;
        images.fill(room, stamp(from), stamp(until), previous);
        Some((room.slot, room.sequence))
    }

    fn active(exact: &[u64]) -> ActiveSnapshots {
        let mut active = ActiveSnapshots::none();
        exact.iter().for_each(|at| active.add(stamp(*at)));
        active
    }

    fn has(images: &Images<Link>, link: Link) -> bool {
        link.is_some_and(|(slot, sequence)| images.get(slot, sequence).is_some())
    }

    #[test]
    fn room_is_taken_from_spare_images_before_any_is_dropped() {
        let mut images = Images::new(3, 7);
        let old = keep(&mut images, 0, 2, None);
        let middle = keep(&mut images, 2, 5, old);
        let other = keep(&mut images, 1, 3, None);
        // 1 needs the first, and none needs the second.
        assert_eq!(images.shortened(stamp(5), middle, |own| own, &active(&[1, 6])), old);
        assert!(has(&images, middle), "the other half of a split page may lead there");
        assert_eq!(images.live(), 2);
        let room = images.room().unwrap();
        assert!(!room.dropped && !has(&images, middle) && has(&images, old) && has(&images, other));
        images.fill(room, stamp(5), stamp(7), old);
        let room = images.room().unwrap();
        assert!(room.dropped && !has(&images, old), "the one for the oldest snapshots");
        assert!(images.room().is_some() && images.room().is_some());
        assert_eq!(images.room(), None, "all are being written");
    }

    /// They went round in a circle for ever: links of pages that were put back named images of the
    /// new pool, as its nodes had the same incarnations.
    #[test]
    fn links_that_do_not_lead_back_in_time_are_not_followed() {
        let mut images = Images::new(3, 7);
        let own: Link = Some((0, 8));
        let circle = keep(&mut images, 2, 5, own);
        assert_eq!(circle, own, "it links to itself");
        assert_eq!(images.shortened(stamp(5), circle, |own| own, &active(&[9])), circle);
        assert_eq!(images.live(), 0, "it is followed once");
        let later = keep(&mut images, 5, 7, None);
        assert_eq!(images.shortened(stamp(6), later, |own| own, &active(&[9])), later);
        assert_eq!(images.live(), 1);
    }

    #[test]
    fn a_horizon_frees_what_ended_before_it() {
        let mut images = Images::new(8, 0);
        let all: Vec<Link> = (0..6).map(|at| keep(&mut images, at, at + 1, None)).collect();
        images.retire(stamp(3));
        assert_eq!(all.iter().map(|own| has(&images, *own)).filter(|has| *has).count(), 3);
        assert!(!has(&images, all[2]) && has(&images, all[3]));
        let again = keep(&mut images, 7, 8, None);
        assert!(has(&images, again) && !has(&images, all[2]), "a slot has another sequence");
    }

    #[test]
    fn sequences_of_a_slot_do_not_repeat_and_are_never_zero() {
        let mut images: Images<Link> = Images::new(1, MAX_SEQUENCE - 1);
        let sequences: Vec<u64> = (0..3)
            .map(|at| {
                let room = images.room().unwrap();
                images.fill(room, stamp(at), stamp(at + 1), None);
                room.sequence
            })
            .collect();
        assert_eq!(sequences, [MAX_SEQUENCE, 1, 2]);
    }

    #[test]
    fn a_reader_follows_only_what_is_older() {
        let at = |from, until, since: Option<u64>, at| {
            follow(stamp(from), stamp(until), since.map(stamp), stamp(at))
        };
        assert_eq!(at(3, 5, None, 3), Follow::This);
        assert_eq!(at(3, 5, Some(5), 4), Follow::This);
        assert_eq!(at(3, 5, Some(7), 2), Follow::Previous);
        assert_eq!(at(3, 5, None, 5), Follow::Gone);
        assert_eq!(at(3, 5, Some(4), 3), Follow::Gone, "it is of another page");
        assert_eq!(at(5, 5, None, 4), Follow::Gone);
    }

    #[test]
    fn a_horizon_is_the_oldest_of_all() {
        let bound = |clock, published: &[u64], own: Option<u64>| {
            horizon(stamp(clock), &active(published), own.map(stamp)).get()
        };
        assert_eq!(bound(9, &[], None), 9);
        assert_eq!(bound(9, &[4, 7], Some(5)), 4);
        assert_eq!(bound(9, &[7], Some(5)), 5);
    }
}
