//! One node: its regions, and whether it lives.
//!
//! The region table is append-only, so that remote verbs look regions up without a lock: a slot is
//! written once, before any peer knows its key. In `mem` a key is `peer:16 | slot:16`, so a key
//! that is used with the wrong peer does not name a region of that peer.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::words::{PAGE_BYTES, Words};
use crate::api::{LocalRegion, zero};
use crate::buf::WORD_BYTES;
use crate::doorbell::Doorbell;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey, RemoteAddr};

/// Regions one node may register.
pub const MAX_REGIONS: u32 = 1024;

/// Greatest length of a region: 128 TiB, the address space of a process.
pub const MAX_REGION_BYTES: u64 = 1 << 47;

/// Low bits of a key that number the region.
pub(crate) const SLOT_BITS: u32 = 16;
const _: () = assert!(MAX_REGIONS <= 1 << SLOT_BITS);

/// Registered memory and its doorbell.
pub(crate) struct MemRegion {
    key: RegionKey,
    words: Words,
    doorbell: Doorbell,
}

pub(crate) struct Node {
    id: PeerId,
    dead: AtomicBool,
    /// Chains of this node that are executing. They may not have seen yet that the node is dead.
    executing: AtomicUsize,
    slots: Box<[OnceLock<Arc<MemRegion>>]>,
    /// Slots in use; its lock orders registrations.
    registered: Mutex<u32>,
}

/// A chain that is executing.
pub(crate) struct ExecutingGuard<'n>(&'n AtomicUsize);

impl Drop for ExecutingGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: a thread that sees the end sees what the chain did.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Kills its node when it is dropped. The endpoint and the queue pairs of a node share it, so a
/// node lives as long as one of them, and then its name is free again.
pub(crate) struct NodeGuard(Arc<Node>);

impl NodeGuard {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self(node)
    }
}

impl Drop for NodeGuard {
    fn drop(&mut self) {
        // All posted chains of the node have executed.
        self.0.kill();
    }
}

impl Node {
    pub(crate) fn new(id: PeerId) -> Self {
        let slots = (0..MAX_REGIONS).map(|_| OnceLock::new()).collect();
        let (dead, executing) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { id, dead, executing, slots, registered: Mutex::new(0) }
    }

    pub(crate) fn id(&self) -> PeerId {
        self.id
    }

    pub(crate) fn kill(&self) {
        // SeqCst: see `wait_until_idle`.
        self.dead.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        // SeqCst: pairs with `kill`.
        self.dead.load(Ordering::SeqCst)
    }

    /// Announces a chain of this node. It executes until the guard is dropped.
    #[inline]
    pub(crate) fn begin_chain(&self) -> ExecutingGuard<'_> {
        // SeqCst: see `wait_until_idle`.
        self.executing.fetch_add(1, Ordering::SeqCst);
        ExecutingGuard(&self.executing)
    }

    /// Waits until a killed node executes nothing. A chain was announced before the death, and this
    /// waits for it, or it sees the death. A chain takes microseconds.
    pub(crate) fn wait_until_idle(&self) {
        while self.executing.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), FabricError> {
        if self.is_dead() { Err(FabricError::PeerDead { peer: self.id }) } else { Ok(()) }
    }

    pub(crate) fn register(&self, bytes: usize) -> Result<Arc<MemRegion>, FabricError> {
        self.register_words(bytes, |_| Ok(()))
    }

    /// Registers memory that `prepare` makes ready first.
    pub(crate) fn register_words(
        &self,
        bytes: usize,
        prepare: impl FnOnce(&Words) -> Result<(), FabricError>,
    ) -> Result<Arc<MemRegion>, FabricError> {
        let asked = bytes as u64;
        if !(1..=MAX_REGION_BYTES).contains(&asked) {
            return Err(FabricError::RegionBytes { bytes: asked, limit: MAX_REGION_BYTES });
        }
        let mut registered = self.registered.lock();
        let full = FabricError::TooManyRegions { peer: self.id, limit: MAX_REGIONS };
        let slot = self.slots.get(*registered as usize).ok_or(full)?;
        let words = Words::zeroed(bytes.div_ceil(PAGE_BYTES))
            .ok_or(FabricError::OutOfMemory { bytes: asked })?;
        prepare(&words)?;
        let key = RegionKey::from_raw(u32::from(self.id.to_raw()) << SLOT_BITS | *registered);
        *registered += 1;
        let region = MemRegion::new(key, words, Doorbell::new());
        Ok(Arc::clone(slot.get_or_init(|| Arc::new(region))))
    }

    /// Enters a region whose memory and key the backend made. Returns the region of the slot, which
    /// is an earlier one if there was one.
    #[cfg(target_os = "linux")]
    pub(crate) fn enter(&self, slot: usize, region: MemRegion) -> Option<&Arc<MemRegion>> {
        Some(self.slots.get(slot)?.get_or_init(|| Arc::new(region)))
    }

    /// The regions that were entered or registered.
    #[cfg(target_os = "linux")]
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Arc<MemRegion>> {
        self.slots.iter().filter_map(OnceLock::get)
    }

    /// The region at `at`, if it is one of this node's.
    #[inline]
    pub(crate) fn region(&self, at: RemoteAddr) -> Result<&MemRegion, FabricError> {
        self.slots
            .get(slot_of(at.region))
            .and_then(OnceLock::get)
            .filter(|region| region.key == at.region)
            .map(Arc::as_ref)
            .ok_or(FabricError::UnknownRegion { peer: self.id, region: at.region })
    }
}

/// The slot of a region in the table of its node.
#[inline]
pub(crate) fn slot_of(key: RegionKey) -> usize {
    (key.to_raw() & ((1 << SLOT_BITS) - 1)) as usize
}

impl MemRegion {
    #[cfg(feature = "verbs")]
    pub(crate) fn key(&self) -> RegionKey {
        self.key
    }

    pub(crate) fn new(key: RegionKey, words: Words, doorbell: Doorbell) -> Self {
        Self { key, words, doorbell }
    }

    #[inline]
    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// The `count` words from byte offset `offset` on; `None` if they are not all in the region.
    #[inline]
    pub(crate) fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU64]> {
        let first = usize::try_from(offset).ok()? / WORD_BYTES;
        self.words.get(first..first.checked_add(count)?)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * WORD_BYTES
    }

    /// All its words.
    #[cfg(feature = "verbs")]
    pub(crate) fn all_words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// The word of a local access. Panics as [`MemRegion::local`].
    #[inline]
    fn local_word(&self, offset: usize) -> &AtomicU64 {
        #[expect(clippy::indexing_slicing, reason = "`local` returns as many words as asked for")]
        &self.local(offset, WORD_BYTES)[0]
    }

    /// The words of a local access. Panics if it is misaligned or out of bounds.
    #[inline]
    fn local(&self, offset: usize, bytes: usize) -> &[AtomicU64] {
        let aligned = offset.is_multiple_of(WORD_BYTES) && bytes.is_multiple_of(WORD_BYTES);
        match self.words(offset as u64, bytes / WORD_BYTES) {
            Some(words) if aligned => words,
            _ => panic!(
                "local access of {bytes} bytes at {offset} in {} of {} bytes is misaligned or \
                 out of bounds",
                self.key,
                self.bytes()
            ),
        }
    }
}

impl LocalRegion for MemRegion {
    fn key(&self) -> RegionKey {
        self.key
    }

    fn len(&self) -> usize {
        self.bytes()
    }

    #[inline]
    fn load(&self, offset: usize) -> u64 {
        Words::load(self.local_word(offset))
    }

    #[inline]
    fn store(&self, offset: usize, value: u64) {
        // Release is what the contract promises: it pairs with remote 8-byte verbs.
        self.local_word(offset).store(value, Ordering::Release);
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let words = self.local(offset, into.len());
        for (to, word) in into.chunks_exact_mut(WORD_BYTES).zip(words) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        // As in `Words::copy_out`.
        fence(Ordering::Acquire);
    }

    fn write(&self, offset: usize, from: &[u8]) {
        let words = self.local(offset, from.len());
        // As in `Words::copy_in`; local accesses have no order to keep with later reads.
        fence(Ordering::Release);
        let (values, _) = from.as_chunks::<WORD_BYTES>();
        for (word, value) in words.iter().zip(values) {
            word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
        }
    }

    fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    fn is_committed(&self) -> bool {
        self.words.are_committed()
    }

    fn discard(&self, bytes: Range<usize>) -> bool {
        let pages = bytes.start.div_ceil(PAGE_BYTES)..bytes.end / PAGE_BYTES;
        if pages.is_empty() || !self.words.give_back(pages.clone()) {
            zero(self, bytes);
            return false;
        }
        zero(self, bytes.start..pages.start * PAGE_BYTES);
        zero(self, pages.end * PAGE_BYTES..bytes.end);
        true
    }

    fn restore(&self, bytes: Range<usize>) -> Result<(), FabricError> {
        // Panics out of bounds, as every local access does.
        self.local(bytes.start, bytes.len());
        self.words.take_again(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_rounded_up_and_their_number_and_length_bounded() {
        let node = Node::new(PeerId::memory(1));
        assert_eq!(node.register(4097).unwrap().len(), 8192);
        let limit = MAX_REGION_BYTES;
        for bytes in [0, MAX_REGION_BYTES + 1] {
            let error = node.register(bytes as usize).err();
            assert_eq!(error, Some(FabricError::RegionBytes { bytes, limit }));
        }
        for _ in 1..MAX_REGIONS {
            node.register(1).unwrap();
        }
        let full = FabricError::TooManyRegions { peer: node.id(), limit: MAX_REGIONS };
        assert_eq!(node.register(1).err(), Some(full));
    }

    #[test]
    fn a_key_of_another_peer_is_unknown() {
        let (one, two) = (Node::new(PeerId::memory(1)), Node::new(PeerId::memory(2)));
        let at = RemoteAddr::new(one.register(8).unwrap().key(), 0);
        two.register(8).unwrap();
        assert!(one.region(at).is_ok());
        let unknown = FabricError::UnknownRegion { peer: two.id(), region: at.region };
        assert_eq!(two.region(at).err(), Some(unknown));
    }

    #[test]
    fn local_accesses_outside_or_across_words_panic() {
        let region = Node::new(PeerId::memory(0)).register(4096).unwrap();
        for (offset, bytes) in [(4096, 8), (4, 8), (0, 7), (4088, 16), (usize::MAX - 7, 8)] {
            let access = std::panic::AssertUnwindSafe(|| region.read(offset, &mut vec![0; bytes]));
            assert!(std::panic::catch_unwind(access).is_err(), "{bytes} bytes at {offset}");
        }
    }
}
