//! A page on its way home: the splits that a write-back writes.

use selkie_fabric::Buf;
use selkie_memnode::Coding;
use selkie_memnode::layout::TAG_BYTES;

use super::checksum::checksum;
use super::tag::{SplitSet, Tag, Version, Versions};

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
            let bytes = buf.len() - TAG_BYTES as usize;
            let checksum = checksum(buf.get(..bytes).unwrap_or_default());
            if let Some(word) = buf.words_mut().last_mut() {
                *word = Tag { version, checksum }.to_word().to_le();
            }
            if let Some(own) = versions.get_mut(*split) {
                *own = version;
            }
        }
        versions
    }
}
