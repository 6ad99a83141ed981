//! `ImageLink`: names the image of a page in the image arena of a node, in one word of a page.
//!
//! ```text
//! 63      58 57                34 33                          0
//! | node:6  | slot:24             | sequence:34               |
//! ```
//!
//! The sequence is never zero, so the word zero is no link. A slot that is used again has another
//! sequence, by which a reader finds out that the image of its link is gone.

use crate::coherence::word::ComputeId;

const SEQUENCE_BITS: u32 = 34;
const SLOT_BITS: u32 = 24;

/// Greatest sequence of a slot.
pub(super) const MAX_SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;
/// Most slots of an arena.
pub(super) const MAX_SLOTS: usize = 1 << SLOT_BITS;

const _: () = assert!(SEQUENCE_BITS + SLOT_BITS + 6 == u64::BITS);

/// Names an image of a page as it was before a change, or none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ImageLink(u64);

/// The image of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ImageName {
    /// The node that keeps it.
    pub(super) node: ComputeId,
    /// Its slot there.
    pub(super) slot: usize,
    /// Which image of that slot it is.
    pub(super) sequence: u64,
}

impl ImageLink {
    /// No image.
    pub const NONE: Self = Self(0);

    /// The word, to be kept in a page.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The link that a word of a page holds.
    #[must_use]
    pub const fn from_u64(word: u64) -> Self {
        Self(word)
    }

    /// Whether it names no image.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn to(name: ImageName) -> Self {
        let ImageName { node, slot, sequence } = name;
        assert!(slot < MAX_SLOTS, "slot {slot} beyond an image link");
        assert!((1..=MAX_SEQUENCE).contains(&sequence), "sequence {sequence} of an image link");
        let node = (node.index() as u64) << (SLOT_BITS + SEQUENCE_BITS);
        Self(node | (slot as u64) << SEQUENCE_BITS | sequence)
    }

    /// What it names; nothing for [`ImageLink::NONE`], and for a word that no node has made.
    pub(super) fn name(self) -> Option<ImageName> {
        let sequence = self.0 & MAX_SEQUENCE;
        let slot = (self.0 >> SEQUENCE_BITS) as usize & (MAX_SLOTS - 1);
        let node = ComputeId::new((self.0 >> (SLOT_BITS + SEQUENCE_BITS)) as usize)?;
        (sequence != 0).then_some(ImageName { node, slot, sequence })
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

    #[test]
    fn a_link_names_what_it_was_made_of() {
        for node in [0, 1, 57] {
            for slot in [0, 1, MAX_SLOTS - 1] {
                for sequence in [1, 2, MAX_SEQUENCE] {
                    let node = ComputeId::new(node).unwrap();
                    let name = ImageName { node, slot, sequence };
                    let link = ImageLink::to(name);
                    assert_eq!(link.name(), Some(name));
                    assert_eq!(ImageLink::from_u64(link.to_u64()), link);
                    assert!(!link.is_none());
                }
            }
        }
    }

    #[test]
    fn a_link_has_its_bits_where_the_map_says() {
        let node = ComputeId::new(0b10_1010).unwrap();
        let link = ImageLink::to(ImageName { node, slot: 0x00AB_CDEF, sequence: 0x2_1234_5678 });
        assert_eq!(link.to_u64(), 0b10_1010 << 58 | 0x00AB_CDEF << 34 | 0x2_1234_5678);
    }

    #[test]
    fn no_image_is_named_by_zero_or_a_word_that_no_node_made() {
        assert_eq!(ImageLink::NONE.name(), None);
        assert_eq!(ImageLink::default(), ImageLink::NONE);
        // A sequence of zero, and a node beyond the last.
        assert_eq!(ImageLink::from_u64(3 << 34).name(), None);
        assert_eq!(ImageLink::from_u64(58 << 58 | 1).name(), None);
    }
}
