//! Memory for pages. It never moves, so leases of its bytes can be handed to the fabric as buffers.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use selkie_fabric::want_huge_pages;

/// Memory that outlives every buffer leased from it.
pub(super) struct PageMemory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is plain memory; access to its bytes is governed by the frames' latches.
unsafe impl Send for PageMemory {}
// SAFETY: as for Send.
unsafe impl Sync for PageMemory {}

impl PageMemory {
    pub(super) fn new(bytes: usize, align: usize) -> PageMemory {
        let layout = match Layout::from_size_align(bytes, align) {
            Ok(layout) if bytes > 0 => layout,
            _ => handle_alloc_error(Layout::new::<u8>()),
        };
        // SAFETY: the layout's size is not zero, checked above.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        // SAFETY: it was allocated with this size just now, and nothing else refers to it.
        let memory = unsafe {
            std::slice::from_raw_parts_mut(base.as_ptr().cast::<MaybeUninit<u8>>(), bytes)
        };
        want_huge_pages(memory);
        memory.fill(MaybeUninit::new(0));
        PageMemory { base, layout }
    }

    /// Its first byte.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        // SAFETY: `base` came from alloc with this very layout and is freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
