//! `Buf`: the payload of a verb, moved into the operation and handed back with its completion.
//!
//! Moving it is what makes one-sided I/O safe: while a device (or another thread) may write to the
//! memory, no code in this process holds a reference to it. There are two kinds. An *owned* buffer
//! comes from the heap. A *lease* covers memory that another object owns and has registered once,
//! such as a buffer pool's frame, so that a page is read straight into its place without
//! allocation.
//!
//! Both are 8-byte aligned and a multiple of 8 bytes long, because the wire moves 8-byte words.
//! This module uses `unsafe`: it turns the raw memory of either kind into slices.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

/// Bytes in the unit in which buffers are measured and remote memory is addressed.
pub const WORD_BYTES: usize = 8;

/// What keeps the memory behind a leased [`Buf`] alive.
pub type LeaseOwner = Arc<dyn Any + Send + Sync>;

/// A byte buffer that can be moved into a verb: 8-byte aligned, length a multiple of 8.
///
/// Dereferences to its bytes. Dropping an owned buffer frees it, dropping a lease ends the lease.
pub struct Buf {
    /// First word; dangling when `words` is 0.
    start: NonNull<u64>,
    words: u32,
    owned: bool,
    /// Leases only.
    keep: Option<LeaseOwner>,
}

// SAFETY: a `Buf` is the only way to its memory while it lives: an owned one allocated it, and for
// a lease the caller of `from_raw` promised it. What keeps a lease alive is `Send + Sync`.
unsafe impl Send for Buf {}
// SAFETY: a shared `Buf` only gives out shared slices of plain bytes.
unsafe impl Sync for Buf {}

impl Buf {
    /// A new buffer of `bytes` zero bytes, rounded up to a multiple of 8. Allocates.
    ///
    /// # Panics
    /// If `bytes` is above 32 GiB.
    pub fn zeroed(bytes: usize) -> Self {
        let words = words_of(bytes);
        let start = match layout_of(words) {
            None => NonNull::dangling(),
            Some(layout) => {
                // SAFETY: the layout is not empty; `layout_of` guarantees it.
                let memory = unsafe { alloc_zeroed(layout) };
                NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(layout))
            }
        };
        Self { start, words, owned: true, keep: None }
    }

    /// A new buffer with a copy of `bytes`, padded with zeros to a multiple of 8. Allocates.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        for (to, from) in buf.iter_mut().zip(bytes) {
            *to = *from;
        }
        buf
    }

    /// A lease on `bytes` bytes of memory at `start` that another object owns. Does not allocate.
    /// `keep` is dropped with the buffer, and may be what keeps the memory alive.
    ///
    /// # Safety
    /// Until the buffer is dropped (which may be after the operation it was moved into completed,
    /// on another thread) the memory must stay valid and initialised, and no other code may read or
    /// write it.
    ///
    /// # Panics
    /// If `start` is not aligned to 8, or `bytes` is not a multiple of 8 or above 32 GiB.
    pub unsafe fn from_raw(start: NonNull<u8>, bytes: usize, keep: Option<LeaseOwner>) -> Self {
        let start: NonNull<u64> = start.cast();
        assert!(start.is_aligned(), "leased memory is not aligned to 8 bytes");
        assert!(bytes.is_multiple_of(WORD_BYTES), "leased memory is not a multiple of 8 bytes");
        Self { start, words: words_of(bytes), owned: false, keep }
    }

    /// The buffer as 8-byte words.
    pub fn words(&self) -> &[u64] {
        // SAFETY: `start` is aligned and valid for `words` initialised words, and only `self` leads
        // to them: by allocation for owned memory, by the promise to `from_raw` for a lease.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words as usize) }
    }

    /// The buffer as 8-byte words, to change.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.words as usize) }
    }
}

/// How many words hold `bytes` bytes.
fn words_of(bytes: usize) -> u32 {
    let words = u32::try_from(bytes.div_ceil(WORD_BYTES));
    assert!(words.is_ok(), "a buffer holds at most 32 GiB");
    words.unwrap_or(u32::MAX)
}

/// Layout of an owned buffer; `None` for an empty one, which owns no memory.
fn layout_of(words: u32) -> Option<Layout> {
    if words == 0 { None } else { Layout::array::<u64>(words as usize).ok() }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if self.owned
            && let Some(layout) = layout_of(self.words)
        {
            // SAFETY: `zeroed` allocated an owned buffer's memory with this very layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
        }
        drop(self.keep.take());
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.words as usize * WORD_BYTES;
        // SAFETY: the same memory as `words`, seen as bytes, for which any alignment will do.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), bytes) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.words as usize * WORD_BYTES;
        // SAFETY: the same memory as `words_mut`, seen as bytes; `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), bytes) }
    }
}

impl Default for Buf {
    /// The empty buffer; allocates nothing.
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.owned { "owned" } else { "leased" };
        write!(f, "Buf({kind}, {} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_buffers_are_zeroed_aligned_and_padded() {
        for bytes in [0, 1, 7, 8, 9, 2048] {
            let buf = Buf::zeroed(bytes);
            assert_eq!(buf.len(), bytes.next_multiple_of(8));
            assert_eq!(buf.as_ptr() as usize % 8, 0);
            assert!(buf.iter().all(|byte| *byte == 0));
        }
        assert_eq!(
            *Buf::copy_of(&[1, 2, 3, 4, 5, 6, 7, 8, 9]),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn words_and_bytes_are_the_same_memory() {
        let mut buf = Buf::zeroed(16);
        buf.words_mut()[1] = u64::from_le_bytes(*b"selkie!!");
        assert_eq!(&buf[8..], b"selkie!!");
        buf[8] = b'S';
        assert_eq!(buf.words()[1].to_le_bytes(), *b"Selkie!!");
    }

    #[test]
    fn a_lease_reaches_its_memory_and_lets_go_of_the_owner_when_dropped() {
        let mut memory = vec![0_u64; 4];
        let start = NonNull::new(memory.as_mut_ptr()).unwrap();
        let owner: LeaseOwner = Arc::new("the arena");
        // SAFETY: `memory` outlives the lease and is not touched until the lease is dropped.
        let mut lease = unsafe { Buf::from_raw(start.cast(), 32, Some(owner.clone())) };
        lease[31] = 7;
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(lease);
        assert_eq!(Arc::strong_count(&owner), 1);
        assert_eq!(memory[3].to_le_bytes()[7], 7);
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn a_misaligned_lease_is_refused() {
        let mut memory = [0_u64; 2];
        let start = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: one byte in, still inside `memory`.
        let start = unsafe { start.add(1) };
        // SAFETY: never used: the call panics.
        let _ = unsafe { Buf::from_raw(start, 8, None) };
    }
}
