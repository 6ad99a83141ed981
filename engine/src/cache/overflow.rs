//! Frames beyond the cache, for pages that transactions have changed and keep latched.
//!
//! Such a page cannot go home before its transaction ends. So that a transaction may change more
//! than the cache holds, the page moves to memory of its own (`leaving.rs`) and its frame is free
//! for other pages. The line is found by a table with a lock, on the slow path. When its latch is
//! free and the log allows it, the evictor writes the page home, and its memory is freed.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use selkie_pool::LineHasher;

use super::frame::Frame;
use super::page_memory::PageMemory;
use crate::GAddr;

/// Frames in the first chunk of metadata; each further chunk has twice as many.
const FIRST_CHUNK: usize = 256;
/// Chunks: 2^31 frames.
const CHUNKS: usize = 23;
/// Alignment of a page: a cache line.
const PAGE_ALIGN: usize = 64;

/// A frame whose page is memory of its own.
#[derive(Default)]
struct OverflowFrame {
    frame: Frame,
    /// `None` while the frame is free.
    page: Mutex<Option<Arc<PageMemory>>>,
}

/// Free frames, and how many frames exist.
#[derive(Default)]
struct FreeFrames {
    free: Vec<u32>,
    made: u32,
}

/// Frames by the addresses of their lines.
type Table = HashMap<u64, u32, BuildHasherDefault<LineHasher>>;

/// The frames beyond the cache.
pub(super) struct Overflow {
    /// Metadata is made when it is needed first, and stays.
    chunks: [OnceLock<Box<[OverflowFrame]>>; CHUNKS],
    state: Mutex<FreeFrames>,
    /// The lock of a line's shard is held by callers that change its entry, and taken first.
    table: Mutex<Table>,
    /// Lines to be written home.
    leaving: Mutex<Vec<GAddr>>,
    /// Frames that exist, to be read without the lock.
    made: AtomicUsize,
    /// Frames in use.
    used: AtomicUsize,
    most: usize,
}

/// The chunk of a frame, and its place there.
fn place_of(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, index - FIRST_CHUNK * ((1 << chunk) - 1))
}

impl Overflow {
    /// No frames; at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            state: Mutex::default(),
            table: Mutex::default(),
            leaving: Mutex::default(),
            made: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            most: most.min(FIRST_CHUNK * ((1 << CHUNKS) - 1)),
        }
    }

    #[expect(clippy::expect_used, reason = "frame ids are made by `take`, with their chunk")]
    fn at(&self, index: usize) -> &OverflowFrame {
        let (chunk, at) = place_of(index);
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        chunk.and_then(|chunk| chunk.get(at)).expect("a frame that was made")
    }

    pub(super) fn frame(&self, index: usize) -> &Frame {
        &self.at(index).frame
    }

    /// The memory of a frame's page.
    #[expect(clippy::expect_used, reason = "a frame in use has a page")]
    pub(super) fn page(&self, index: usize) -> Arc<PageMemory> {
        self.at(index).page.lock().clone().expect("the frame is in use")
    }

    /// The indexes of all frames that exist.
    pub(super) fn indexes(&self) -> std::ops::Range<usize> {
        // Acquire pairs with `take`: the chunks of these frames exist.
        0..self.made.load(Ordering::Acquire)
    }

    /// Frames in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Most frames in use at a time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A frame with a page of so many bytes; `None` if as many are in use as may be.
    pub(super) fn take(&self, page_bytes: usize) -> Option<usize> {
        let mut state = self.state.lock();
        let index = match state.free.pop() {
            Some(index) => index as usize,
            None if state.made as usize >= self.most => return None,
            None => {
                let index = state.made as usize;
                let (chunk, _) = place_of(index);
                let make = || (0..FIRST_CHUNK << chunk).map(|_| OverflowFrame::default()).collect();
                self.chunks.get(chunk)?.get_or_init(make);
                state.made += 1;
                // Release pairs with `indexes`.
                self.made.store(state.made as usize, Ordering::Release);
                index
            }
        };
        drop(state);
        // Release pairs with `find`, of which the caller's later removal from the address table is
        // seen.
        self.used.fetch_add(1, Ordering::Release);
        *self.at(index).page.lock() = Some(Arc::new(PageMemory::new(page_bytes, PAGE_ALIGN)));
        Some(index)
    }

    /// Frees a frame and the memory of its page, unless that is leased: then with the last lease.
    pub(super) fn give_back(&self, index: usize) {
        *self.at(index).page.lock() = None;
        self.state.lock().free.push(index as u32);
        self.used.fetch_sub(1, Ordering::Relaxed);
    }

    /// The frame of a line, if it is beyond the cache.
    pub(super) fn find(&self, addr: GAddr) -> Option<usize> {
        if self.used.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table.lock().get(&addr.to_u64()).map(|index| *index as usize)
    }

    /// Enters a line into the table.
    pub(super) fn enter(&self, addr: GAddr, index: usize) {
        self.table.lock().insert(addr.to_u64(), index as u32);
    }

    /// Takes a line out of the table.
    pub(super) fn forget(&self, addr: GAddr) {
        let mut table = self.table.lock();
        table.remove(&addr.to_u64());
        if table.is_empty() {
            *table = Table::default();
        }
    }

    /// Where the log has the oldest change that is not home, or before that.
    pub(super) fn oldest_change(&self) -> Option<u64> {
        let table = self.table.lock();
        let changes = table.values().map(|index| self.frame(*index as usize).unhomed());
        changes.filter(|lsn| *lsn != 0).min()
    }

    /// Has a line written home.
    pub(super) fn send_home(&self, addr: GAddr) {
        self.leaving.lock().push(addr);
    }

    /// At most `most` of the lines to be written home.
    pub(super) fn take_leaving(&self, most: usize) -> Vec<GAddr> {
        let mut leaving = self.leaving.lock();
        let keep = leaving.len().saturating_sub(most);
        let taken = leaving.split_off(keep);
        if leaving.is_empty() {
            leaving.shrink_to(most);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..10 * FIRST_CHUNK {
            if expected.1 == FIRST_CHUNK << expected.0 {
                expected = (expected.0 + 1, 0);
            }
            assert_eq!(place_of(index), expected);
            expected.1 += 1;
        }
        assert!(place_of(FIRST_CHUNK * ((1 << CHUNKS) - 1) - 1).0 < CHUNKS);
    }

    #[test]
    fn frames_are_bounded_and_used_again() {
        let overflow = Overflow::new(600);
        let taken: Vec<usize> = (0..600).map(|_| overflow.take(512).unwrap()).collect();
        assert_eq!((overflow.take(512), overflow.used()), (None, 600));
        assert_eq!(overflow.indexes(), 0..600);
        overflow.give_back(17);
        assert_eq!((overflow.take(512), overflow.used()), (Some(17), 600));
        taken.iter().for_each(|index| overflow.give_back(*index));
        assert_eq!((overflow.used(), overflow.indexes()), (0, 0..600));
    }
}
