//! The image arena of a node: registered memory with images of pages, which other nodes read.
//!
//! ```text
//! slot  0         8     16     24        32     40
//!       | sequence | from | until | previous | bytes | page ... |
//! ```
//! All little-endian. The sequence is zero while the slot is written, and is written last. So a
//! reader that finds the sequence of its link after it has read the slot has read the image of the
//! link: it has the link from a page, which got it after the image was whole.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::LocalRegion;
use selkie_wal::PSN_BYTES;

use super::images::{Images, Room};
use super::link::{ImageLink, ImageName, MAX_SEQUENCE, MAX_SLOTS};
use super::stamp::Stamp;
use crate::coherence::word::ComputeId;

/// Words before the page.
const HEADER_WORDS: usize = 5;
/// Bytes before the page.
pub(super) const HEADER_BYTES: usize = 8 * HEADER_WORDS;

/// An image that was read, without its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ImageHeader {
    pub(super) from: Stamp,
    pub(super) until: Stamp,
    pub(super) previous: ImageLink,
    pub(super) bytes: usize,
}

impl ImageHeader {
    /// By the words after the sequence; none if they are none of an image.
    pub(super) fn from_words(words: &[u64], page_bytes: usize) -> Option<Self> {
        let [_, from, until, previous, bytes, ..] = words else { return None };
        let bytes = usize::try_from(u64::from_le(*bytes)).ok().filter(|own| *own <= page_bytes)?;
        let [from, until] = [from, until].map(|word| Stamp::new(u64::from_le(*word)));
        let previous = ImageLink::from_u64(u64::from_le(*previous));
        Some(Self { from, until, previous, bytes })
    }
}

/// Bytes of a slot for pages of so many bytes.
pub(super) const fn slot_bytes(page_bytes: usize) -> usize {
    HEADER_BYTES + page_bytes.next_multiple_of(8)
}

/// Least memory for images of lines of so many bytes: room for one.
pub(crate) const fn least_image_bytes(gcl_bytes: usize) -> u64 {
    slot_bytes(gcl_bytes - PSN_BYTES) as u64
}

/// Slots in so many bytes.
pub(super) fn slots_in(bytes: u64, page_bytes: usize) -> usize {
    let slots = bytes / slot_bytes(page_bytes) as u64;
    usize::try_from(slots).map_or(MAX_SLOTS, |slots| slots.min(MAX_SLOTS))
}

/// The sequence after which those of a node's arena begin. Those of successive incarnations are far
/// from each other, so that no link to an image of an earlier one names an image of this.
fn first_sequence(incarnation: u32) -> u64 {
    // Multiples of the golden ratio spread evenly, however many there are.
    (u64::from(incarnation).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 30) & MAX_SEQUENCE
}

/// The images that a node keeps.
pub(super) struct Arena {
    region: Arc<dyn LocalRegion>,
    page_bytes: usize,
    images: Mutex<Images<ImageLink>>,
}

impl Arena {
    /// `region` has room for at least one slot.
    pub(super) fn new(region: Arc<dyn LocalRegion>, bytes: u64, page: usize, life: u32) -> Self {
        let slots = slots_in(bytes, page);
        assert!(slots > 0 && slots * slot_bytes(page) <= region.len(), "no room for an image");
        let images = Mutex::new(Images::new(slots, first_sequence(life)));
        Self { region, page_bytes: page, images }
    }

    pub(super) fn region(&self) -> &Arc<dyn LocalRegion> {
        &self.region
    }

    pub(super) fn images(&self) -> &Mutex<Images<ImageLink>> {
        &self.images
    }

    fn offset(&self, slot: usize) -> usize {
        slot * slot_bytes(self.page_bytes)
    }

    /// Writes an image into its room, which is no other's meanwhile.
    pub(super) fn write(&self, room: Room, header: &ImageHeader, page: &[u8]) {
        assert!(page.len() <= self.page_bytes, "a page of {} bytes", page.len());
        let at = self.offset(room.slot);
        self.region.store(at, 0);
        // A copy is whole words.
        let (words, rest) = page.split_at(page.len() / 8 * 8);
        self.region.write(at + HEADER_BYTES, words);
        if !rest.is_empty() {
            let mut last = [0; 8];
            last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            self.region.write(at + HEADER_BYTES + words.len(), &last);
        }
        let ImageHeader { from, until, previous, bytes } = header;
        let words = [from.get(), until.get(), previous.to_u64(), *bytes as u64];
        for (number, word) in words.into_iter().enumerate() {
            self.region.store(at + 8 * (1 + number), word);
        }
        // Release: a reader that finds it finds the image.
        self.region.store(at, room.sequence);
    }

    /// The image of this name, with its page behind `HEADER_BYTES` in `into`; none if it is gone.
    pub(super) fn read(&self, name: ImageName, into: &mut Vec<u8>) -> Option<ImageHeader> {
        let ImageName { slot, sequence, .. } = name;
        let at = self.offset(slot);
        if at + slot_bytes(self.page_bytes) > self.region.len() {
            return None;
        }
        into.clear();
        into.resize(slot_bytes(self.page_bytes), 0);
        self.region.read(at, into);
        // Acquire, after the copy: if it is still that image, the copy is of it.
        if self.region.load(at) != sequence {
            return None;
        }
        let words = into.chunks_exact(8).take(HEADER_WORDS).filter_map(|word| {
            let word: [u8; 8] = word.try_into().ok()?;
            Some(u64::from_ne_bytes(word))
        });
        let words: smallvec::SmallVec<[u64; HEADER_WORDS]> = words.collect();
        ImageHeader::from_words(&words, self.page_bytes)
    }

    pub(super) fn link(&self, node: ComputeId, room: Room) -> ImageLink {
        ImageLink::to(ImageName { node, slot: room.slot, sequence: room.sequence })
    }

    pub(super) fn live_bytes(&self) -> (u64, u64) {
        let live = self.images.lock().live() as u64;
        (live, live * slot_bytes(self.page_bytes) as u64)
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use selkie_fabric::{Fabric, MemFabric, PeerId};

    use super::*;

    const PAGE: usize = 504;

    fn arena(slots: u64) -> Arena {
        let endpoint = MemFabric::new().join(PeerId::compute(3)).unwrap();
        let bytes = slots * slot_bytes(PAGE) as u64;
        let region = endpoint.register(bytes as usize).unwrap();
        Arena::new(region, bytes, PAGE, 1)
    }

    fn keep(arena: &Arena, at: u64, page: &[u8]) -> ImageName {
        let previous = ImageLink::from_u64(at);
        let room = arena.images().lock().room().unwrap();
        let (from, until) = (Stamp::new(at), Stamp::new(at + 1));
        arena.write(room, &ImageHeader { from, until, previous, bytes: page.len() }, page);
        arena.images().lock().fill(room, from, until, previous);
        let node = ComputeId::new(3).unwrap();
        let name = arena.link(node, room).name().unwrap();
        assert_eq!((name.node, name.slot), (node, room.slot));
        name
    }

    #[test]
    fn an_image_is_read_as_it_was_kept_until_its_slot_is_used_again() {
        let (arena, mut read) = (arena(2), Vec::new());
        let name = keep(&arena, 5, &[9; PAGE]);
        let odd = keep(&arena, 6, &[7; 13]);
        let header = arena.read(name, &mut read).unwrap();
        let expected = ImageHeader {
            from: Stamp::new(5),
            until: Stamp::new(6),
            previous: ImageLink::from_u64(5),
            bytes: PAGE,
        };
        assert_eq!(header, expected);
        assert!(read[HEADER_BYTES..].iter().all(|byte| *byte == 9));
        assert_eq!(arena.read(odd, &mut read).unwrap().bytes, 13);
        assert_eq!(&read[HEADER_BYTES..HEADER_BYTES + 16], &[[7; 13].as_slice(), &[0; 3]].concat());
        keep(&arena, 7, &[1; PAGE]);
        assert_eq!(arena.read(name, &mut read), None, "the first was dropped");
        let beyond = ImageName { slot: 9, ..name };
        assert_eq!(arena.read(beyond, &mut read), None);
    }

    /// A reader meets a writer of the slot: it gets the image of its link, or none.
    #[test]
    fn an_image_that_is_overwritten_is_never_half_read() {
        let (arena, ends) = (arena(1), AtomicBool::new(false));
        let latest = Mutex::new(keep(&arena, 0, &[0; PAGE]));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 1..50_000_u64 {
                    *latest.lock() = keep(&arena, at, &[at as u8; PAGE]);
                }
                ends.store(true, Ordering::Release);
            });
            let mut read = Vec::new();
            while !ends.load(Ordering::Acquire) {
                let name = *latest.lock();
                if let Some(header) = arena.read(name, &mut read) {
                    let byte = header.from.get() as u8;
                    assert!(read[HEADER_BYTES..].iter().all(|own| *own == byte));
                }
            }
        });
    }

    /// The images of a thousand nodes of one index have sequences far from each other.
    #[test]
    fn sequences_of_incarnations_are_far_apart() {
        let mut first: Vec<u64> = (1..=1_000).map(first_sequence).collect();
        first.sort_unstable();
        let least = first.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
        assert!(least > 1 << 22, "{least}");
    }
}
