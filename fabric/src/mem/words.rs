//! `Words`: zeroed memory that any number of threads may access at once, as 8-byte atomic words.
//!
//! Remote verbs race with each other and with the owner; the words are atomics so that such races
//! have defined outcomes. Ordering:
//!
//! - Single words: loads and stores are SeqCst, as are the atomics. A store publishes everything
//!   its thread wrote before; and a store followed by a load of another word keeps its order, as
//!   the verbs of one queue pair must.
//! - Longer copies are relaxed word by word between fences: what was written before a copy is
//!   visible to a reader that sees one of the copied words, and a copy out sees what was published
//!   by the words it read. A copy in is ended by a SeqCst fence, so a later read keeps behind it.
//!
//! The module uses `unsafe` to allocate: zeroed pages straight from the system stay uncommitted
//! until touched, which neither `Vec` nor `Box` promises together with page alignment.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::MaybeUninit;
use std::ops::{ControlFlow, Deref, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::buf::WORD_BYTES;
use crate::error::FabricError;
use crate::populate::{populate, want_huge_pages};
#[cfg(target_os = "linux")]
use crate::shm::Mapping;
#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};

/// Unit and alignment of region memory.
pub(crate) const PAGE_BYTES: usize = 4096;

const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

/// From so many bytes on, memory that comes when it is touched comes in huge pages.
const MUCH: usize = 64 << 20;

// Values are little-endian on the wire; words are kept in native order. A big-endian port must swap
// in `load`, `store` and the atomics.
const _: () = assert!(cfg!(target_endian = "little"), "only little-endian hosts are supported");

/// Page-aligned words, zero at first. Dereferences to them.
pub(crate) struct Words {
    memory: Memory,
    /// First aligned word in the memory.
    start: NonNull<AtomicU64>,
    words: usize,
}

/// What the words lie in.
enum Memory {
    /// The whole allocation, which is one page longer to leave room for alignment.
    Allocated { memory: NonNull<u8>, layout: Layout },
    /// Shared with other processes.
    #[cfg(target_os = "linux")]
    Mapped(Mapping),
}

// SAFETY: `Words` owns its memory and gives out nothing but atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// `pages` pages of zeros, not committed until touched (huge ones if they are many).
    /// `None` if there is no memory.
    pub(crate) fn zeroed(pages: usize) -> Option<Self> {
        let words = pages.checked_mul(PAGE_WORDS)?;
        // Asking for page alignment would make the allocator zero, and so commit, every page.
        let layout = Layout::array::<AtomicU64>(words.checked_add(PAGE_WORDS)?).ok()?;
        // SAFETY: the layout is at least one page long.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        if layout.size() >= MUCH {
            // SAFETY: it was allocated with this size just now, and nothing else refers to it.
            let memory = unsafe {
                slice::from_raw_parts_mut(memory.as_ptr().cast::<MaybeUninit<u8>>(), layout.size())
            };
            want_huge_pages(memory);
        }
        let gap = memory.align_offset(PAGE_BYTES);
        // SAFETY: `gap` is below a page, and the allocation is a page longer than `words`.
        let start = unsafe { memory.add(gap) }.cast();
        Some(Self { memory: Memory::Allocated { memory, layout }, start, words })
    }

    /// The words of memory shared with other processes, which access them as atomics too.
    #[cfg(target_os = "linux")]
    pub(crate) fn mapped(mapping: Mapping) -> Self {
        let (start, words) = (mapping.start().cast(), mapping.bytes() / WORD_BYTES);
        Self { memory: Memory::Mapped(mapping), start, words }
    }

    /// Takes memory for all of them now, in huge pages where the system gives them. `told` is
    /// called as [`populate`] says.
    ///
    /// # Errors
    /// `OutOfMemory`, `Interrupted`.
    pub(crate) fn populate(
        &self,
        told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), FabricError> {
        // Where it cannot be, memory comes when it is touched.
        populate(self.start.cast(), self.words * WORD_BYTES, told).map(drop)
    }

    /// Whether they take memory before they are touched.
    pub(crate) fn are_committed(&self) -> bool {
        match &self.memory {
            Memory::Allocated { .. } => false,
            #[cfg(target_os = "linux")]
            Memory::Mapped(_) => true,
        }
    }

    /// Gives the memory of whole pages back to the system; whether it took it. They are zero then.
    #[cfg(target_os = "linux")]
    pub(crate) fn give_back(&self, pages: Range<usize>) -> bool {
        let advice = match &self.memory {
            // Private and of no file: the next touch finds fresh zeros.
            Memory::Allocated { .. } => Advice::LinuxDontNeed,
            // A hole in the file, for all who map it.
            Memory::Mapped(_) => Advice::LinuxRemove,
        };
        let Range { start, end } = pages;
        let is_inside = start <= end && end * PAGE_WORDS <= self.words;
        assert!(is_inside, "pages {start} to {end} of {} words", self.words);
        // SAFETY: checked to be inside.
        let first = unsafe { self.start.add(start * PAGE_WORDS) };
        // SAFETY: the pages are `self`'s own, and all accesses to them are atomic, for which
        // zeros are a value.
        let taken = unsafe { madvise(first.as_ptr().cast(), (end - start) * PAGE_BYTES, advice) };
        taken.is_ok()
    }

    /// Where there is no such call nothing is given back.
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn give_back(&self, _pages: Range<usize>) -> bool {
        false
    }

    /// Takes memory for bytes that were given back, where it is taken before they are touched.
    pub(crate) fn take_again(&self, bytes: Range<usize>) -> Result<(), FabricError> {
        match &self.memory {
            Memory::Allocated { .. } => Ok(()),
            #[cfg(target_os = "linux")]
            Memory::Mapped(mapping) => mapping.allocate(bytes),
        }
    }

    /// One word.
    #[inline]
    pub(crate) fn load(word: &AtomicU64) -> u64 {
        word.load(Ordering::SeqCst)
    }

    /// One word.
    #[inline]
    pub(crate) fn store(word: &AtomicU64, value: u64) {
        word.store(value, Ordering::SeqCst);
    }

    /// Copies words out, up to the shorter of the two.
    #[inline]
    pub(crate) fn copy_out(from: &[AtomicU64], into: &mut [u64]) {
        for (to, word) in into.iter_mut().zip(from) {
            *to = word.load(Ordering::Relaxed);
        }
        // Pairs with the Release fence of `copy_in` and with single-word stores.
        fence(Ordering::Acquire);
    }

    /// Copies words in, up to the shorter of the two.
    #[inline]
    pub(crate) fn copy_in(to: &[AtomicU64], from: &[u64]) {
        // Pairs with the Acquire fence of `copy_out` and with single-word loads.
        fence(Ordering::Release);
        for (word, value) in to.iter().zip(from) {
            word.store(*value, Ordering::Relaxed);
        }
        // Orders the copy before later reads of this thread; pairs with the same fence, and with
        // the SeqCst single-word accesses, of other threads.
        fence(Ordering::SeqCst);
    }

    /// Compare-and-swap; returns the value found.
    #[inline]
    pub(crate) fn compare_and_swap(word: &AtomicU64, expected: u64, desired: u64) -> u64 {
        word.compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst)
            .unwrap_or_else(|found| found)
    }

    /// Wrapping add; returns the value before.
    #[inline]
    pub(crate) fn fetch_and_add(word: &AtomicU64, delta: u64) -> u64 {
        word.fetch_add(delta, Ordering::SeqCst)
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `start` is aligned and followed by `words` words inside the memory that `self`
        // owns; any bytes are a valid `AtomicU64`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        match self.memory {
            // SAFETY: `zeroed` allocated this memory with this layout, and no other code frees it.
            Memory::Allocated { memory, layout } => unsafe { dealloc(memory.as_ptr(), layout) },
            #[cfg(target_os = "linux")]
            Memory::Mapped(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zero_and_of_the_length_asked_for() {
        for pages in [1, 2, 300] {
            let words = Words::zeroed(pages).unwrap();
            assert_eq!(words.len(), pages * PAGE_WORDS);
            assert_eq!(words.as_ptr() as usize % PAGE_BYTES, 0);
            assert!(words.iter().all(|word| Words::load(word) == 0));
            Words::store(words.last().unwrap(), u64::MAX);
        }
    }

    #[test]
    fn more_memory_than_there_can_be_is_no_memory() {
        assert!(Words::zeroed(usize::MAX / PAGE_BYTES).is_none());
    }

    /// How many pages of these words have memory, from the kernel. Of these words alone: other
    /// tests run beside this one.
    #[cfg(target_os = "linux")]
    fn committed_pages(words: &Words) -> usize {
        use std::os::unix::fs::FileExt;

        /// An entry of a page that is present, or swapped out.
        const COMMITTED: u64 = 3 << 62;
        let mut entries = vec![0; words.len() / PAGE_WORDS * 8];
        let first = words.as_ptr() as usize / PAGE_BYTES;
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        pagemap.read_exact_at(&mut entries, first as u64 * 8).unwrap();
        let entries = entries.as_chunks().0.iter().map(|entry| u64::from_le_bytes(*entry));
        entries.filter(|entry| entry & COMMITTED != 0).count()
    }

    /// Many, so that huge pages that the kernel backs a few touches with do not matter.
    #[cfg(target_os = "linux")]
    const PAGES: usize = (256 << 20) / PAGE_BYTES;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_was_given_back_is_zero_and_not_committed() {
        let words = Words::zeroed(PAGES).unwrap();
        words.iter().step_by(PAGE_WORDS).for_each(|word| Words::store(word, 7));
        assert_eq!(committed_pages(&words), PAGES);
        assert!(words.give_back(1..PAGES));
        let kept = committed_pages(&words);
        assert!((1..PAGES / 16).contains(&kept), "{kept} pages are committed");
        assert_eq!(Words::load(&words[0]), 7);
        assert!(words.iter().skip(PAGE_WORDS).step_by(PAGE_WORDS).all(|w| Words::load(w) == 0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn populated_memory_is_committed_and_keeps_what_it_holds() {
        let words = Words::zeroed(PAGES).unwrap();
        Words::store(&words[9], 7);
        let mut told = Vec::new();
        let mut tell = |done| {
            told.push(done);
            if done < 128 << 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        assert_eq!(words.populate(&mut tell), Err(FabricError::Interrupted));
        assert_eq!(told, [0, 64 << 20, 128 << 20]);
        assert!((PAGES / 2..PAGES).contains(&committed_pages(&words)), "half of it");
        words.populate(&mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((committed_pages(&words), Words::load(&words[9])), (PAGES, 7));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn untouched_memory_is_not_committed() {
        let words = Words::zeroed(PAGES).unwrap();
        Words::store(&words[words.len() / 2], 1);
        let committed = committed_pages(&words);
        assert!((1..PAGES / 16).contains(&committed), "{committed} pages are committed");
        assert_eq!(Words::load(&words[words.len() / 2]), 1);
    }
}
