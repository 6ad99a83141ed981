//! A page on its way home: the splits that a write-back writes.

use selkie_fabric::Buf;
use selkie_pool::Coding;
use selkie_pool::layout::TAG_BYTES;

use super::tag::{SplitSet, Tag, Version, Versions, set_version};
use selkie_pool::checksum;

/// A write-back of a page.
pub(super) struct PageWrite {
    pub(super) dirty: SplitSet,
    /// The versions in the header; `None` if this node does not know them.
    pub(super) before: Option<Versions>,
    /// Payload of each split that is written, and room for its tag.
    pub(super) splits: Vec<(usize, Buf)>,
}

impl PageWrite {
    /// Gives the splits their tags. Returns the versions for the header.
    pub(super) fn tag(&mut self, coding: Coding, before: &Versions) -> Versions {
        let version = Version::after(before, coding.data(), self.dirty);
        let mut versions = *before;
        for (split, buf) in &mut self.splits {
            let checksum = checksum(payload_of(buf));
            Tag { version, checksum }.put(buf);
            set_version(&mut versions, *split, version);
        }
        versions
    }
}

/// The payload of a split that has room for its tag.
///
/// # Panics
/// If there is no room for a tag.
pub(super) fn payload_of(split: &Buf) -> &[u8] {
    split.split_at(split.len() - TAG_BYTES as usize).0
}
