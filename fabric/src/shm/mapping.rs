//! Memory of a file that several processes map.
//!
//! It uses `unsafe` to map, and to give out references to atomics in what was mapped.

use std::fs::File;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::error::FabricError;

/// A mapped file, readable and writable, in full and until dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The file, where more is done with it than to map it.
    file: Option<File>,
}

// SAFETY: the memory may be reached from any thread; what it gives out are atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`, which has as many and never gets shorter.
    pub(super) fn of(file: &File, bytes: usize) -> Result<Self, Errno> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is in
        // use.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // Fewer, larger pages where the system has them; where not, nothing is lost.
        // SAFETY: the advice does not change what the memory holds.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(Self { start, bytes, file: None })
    }

    /// As [`Mapping::of`]; the file stays open, so that memory can be taken for it again.
    pub(super) fn of_own(file: File, bytes: usize) -> Result<Self, Errno> {
        let mut mapping = Self::of(&file, bytes)?;
        mapping.file = Some(file);
        Ok(mapping)
    }

    /// Takes memory for what has none, of a file of this process's own.
    pub(crate) fn allocate(&self, bytes: Range<usize>) -> Result<(), FabricError> {
        let Some(file) = self.file.as_ref().filter(|_| !bytes.is_empty()) else { return Ok(()) };
        let (at, bytes) = (bytes.start as u64, bytes.len() as u64);
        fallocate(file, FallocateFlags::empty(), at, bytes).map_err(|error| match error {
            Errno::NOSPC | Errno::NOMEM | Errno::FBIG => FabricError::OutOfMemory { bytes },
            error => {
                let (path, what) = ("a region's file".to_owned(), error.to_string());
                FabricError::Segment { path, what }
            }
        })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The word at byte `offset`.
    ///
    /// # Panics
    /// If it is not a whole aligned word of the mapping.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.bytes - 7, "no word at {offset}");
        // SAFETY: the offset is inside the mapping.
        let at = unsafe { self.start.add(offset) };
        // SAFETY: mappings are page aligned, so the word is aligned and inside; it lives as long as
        // `self`, and all accesses to it are atomic.
        unsafe { at.cast::<AtomicU64>().as_ref() }
    }

    /// The half word at byte `offset`, which no access reaches as part of a word.
    ///
    /// # Panics
    /// If it is not a whole aligned half word of the mapping.
    #[inline]
    pub(super) fn half_word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.bytes - 3, "no half word at {offset}");
        // SAFETY: the offset is inside the mapping.
        let at = unsafe { self.start.add(offset) };
        // SAFETY: as in `word`.
        unsafe { at.cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is `self`'s own, and references into it cannot outlive it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
