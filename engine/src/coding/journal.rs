//! The journal: an image of a page whose write-back would not outlive its writer, at r + 1 memory nodes.
//!
//! It is written before any split is, and stands until the next image takes its place; whoever looks after the
//! writer's death tells by the versions whether it is of the write-back that was cut short. Where it lies, and how it
//! looks, is in [`selkie_memnode::layout`].

use parking_lot::Mutex;
use selkie_fabric::{Buf, Chain, Completion, Doorbell, FabricError, Verb};
use selkie_memnode::layout::{IMAGE_HEADER_BYTES, JOURNAL_IMAGES, image_bytes};

use super::placed::placed;
use super::tag::Version;
use crate::coherence::word::ComputeId;
use crate::core::Core;
use crate::{EngineError, GAddr};

/// Offset of the checksum in an image.
const CHECKSUM_AT: usize = 16;

/// The places for images in a node's own journal.
pub(crate) struct Places {
    free: Mutex<Vec<u64>>,
    given_back: Doorbell,
}

/// A place in use.
pub(crate) struct Place<'a> {
    all: &'a Places,
    number: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self { free: Mutex::new((0..JOURNAL_IMAGES).collect()), given_back: Doorbell::new() }
    }
}

impl Places {
    /// Waits for a place. Each is in use for as long as a write-back takes, which ends.
    async fn take(&self) -> Place<'_> {
        loop {
            let seen = self.given_back.count();
            let number = self.free.lock().pop();
            if let Some(number) = number {
                return Place { all: self, number };
            }
            self.given_back.wait_past(seen).await;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.all.free.lock().push(self.number);
        self.all.given_back.ring();
    }
}

/// An image in a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) addr: GAddr,
    /// Of the splits after the write-back.
    pub(crate) version: Version,
    /// Of the first parity split before it.
    pub(crate) before: Version,
    pub(crate) page: Vec<u8>,
}

impl Image {
    pub(crate) fn to_buf(&self) -> Buf {
        let mut buf = Buf::zeroed(IMAGE_HEADER_BYTES as usize + self.page.len());
        let versions = u64::from(self.version.to_bits()) | u64::from(self.before.to_bits()) << 32;
        for (to, word) in buf.words_mut().iter_mut().zip([self.addr.to_u64(), versions]) {
            *to = word.to_le();
        }
        if let Some(page) = buf.get_mut(IMAGE_HEADER_BYTES as usize..) {
            for (to, from) in page.iter_mut().zip(&self.page) {
                *to = *from;
            }
        }
        let checksum = super::checksum(&buf);
        if let Some(to) = buf.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4) {
            to.copy_from_slice(&checksum.to_le_bytes());
        }
        buf
    }

    /// `None` if there is none, or not a whole one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut copy = bytes.to_vec();
        let field = copy.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4)?;
        let checksum = u32::from_le_bytes(field.try_into().ok()?);
        field.fill(0);
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (addr, versions) = (word(0)?, word(8)?);
        if addr == 0 || super::checksum(&copy) != checksum {
            return None;
        }
        Some(Self {
            addr: GAddr::from_u64(addr),
            version: Version::from_bits(versions as u32),
            before: Version::from_bits((versions >> 32) as u32),
            page: bytes.get(IMAGE_HEADER_BYTES as usize..)?.to_vec(),
        })
    }
}

impl Core {
    /// Writes an image into this node's journal, at as many memory nodes as a page has parity splits and one. It is
    /// safe there until the place is given back.
    pub(crate) async fn journal(&self, image: &Image) -> Result<Place<'_>, EngineError> {
        let Some(coded) = &self.coded else { return Err(EngineError::Closed) };
        let place = coded.journal_places().take().await;
        let copies = self.pool.descriptor().coding.parity() + 1;
        let offset = self.pool.descriptor().geometry().image_offset(self.me.index(), place.number);
        // Those that are to leave only if there are no others.
        let state = self.pool.state();
        let count = state.memory_nodes.len();
        let leaves = |node: &usize| !state.stays(*node as u16);
        let mut nodes: Vec<usize> = (0..count).map(|on| (self.me.index() + on) % count).collect();
        nodes.sort_by_key(leaves);
        let mut nodes = nodes.into_iter();
        let mut written = 0;
        while written < copies {
            let posted: Vec<Completion> = nodes
                .by_ref()
                .take(copies - written)
                .filter_map(|node| {
                    let at = self.memory_at(node, offset).ok()?;
                    Some(self.queue_pair(node).post(placed(at, image.to_buf())))
                })
                .collect();
            if posted.is_empty() {
                if written > 0 {
                    // It is on all memory nodes that are left: there is no surer place.
                    break;
                }
                let parity = copies - 1;
                return Err(EngineError::TooManyLost { lost: count, parity });
            }
            for one in posted {
                match one.await.map_err(|error| error.error) {
                    Ok(_) => written += 1,
                    Err(FabricError::PeerDead { peer }) if peer.is_memory() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(place)
    }

    /// All whole images in a node's journal.
    pub(crate) async fn images_of(&self, node: ComputeId) -> Result<Vec<Image>, EngineError> {
        let geometry = self.pool.descriptor().geometry();
        let bytes = image_bytes(self.gcl_bytes);
        let mut images: Vec<Image> = Vec::new();
        for number in 0..self.memory_nodes() {
            let at = self.memory_at(number, geometry.image_offset(node.index(), 0))?;
            let all = Buf::zeroed((JOURNAL_IMAGES * bytes) as usize);
            let read = self.queue_pair(number).post(Chain::from(Verb::read(at, all)));
            let chain = match read.await.map_err(|error| error.error) {
                Ok(chain) => chain,
                Err(FabricError::PeerDead { peer }) if peer.is_memory() => continue,
                Err(error) => return Err(error.into()),
            };
            let read = chain.buf(0).map(|buf| &**buf).unwrap_or_default();
            for image in read.chunks_exact(bytes as usize).filter_map(Image::from_bytes) {
                if !images.contains(&image) {
                    images.push(image);
                }
            }
        }
        Ok(images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_as_it_was_written_or_not_at_all() {
        let image = Image {
            addr: GAddr::from_u64(512 * 77),
            version: Version::from_bits(0x0000_5003),
            before: Version::from_bits(0x0000_4001),
            page: (0..512_u32).map(|byte| byte as u8).collect(),
        };
        let mut bytes = image.to_buf().to_vec();
        assert_eq!(Image::from_bytes(&bytes), Some(image));
        assert_eq!(Image::from_bytes(&vec![0; bytes.len()]), None);
        for at in [0, 9, 13, 17, 30, 64, 575] {
            bytes[at] ^= 1;
            assert_eq!(Image::from_bytes(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(Image::from_bytes(&bytes[..100]), None, "torn");
    }
}
